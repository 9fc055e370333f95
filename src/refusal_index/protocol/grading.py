"""Grading an answer by a rule: comparison with the gold answer, multiple choice, regular expression.

Rules grade answers only: whether a reply answers or refuses was read before, without the gold answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from refusal_index.data.outcome import Grade, Question
from refusal_index.data.text import matches
from refusal_index.errors import RefusalIndexError
from refusal_index.protocol.comparison import includes, same
from refusal_index.protocol.final_answer import DECORATION
from refusal_index.protocol.reading import PATTERN_TIMEOUT, Reading


def accepted_answers(question: Question) -> tuple[str, ...]:
    """Return the gold answer and its aliases; none if the question has no right answer."""
    return () if question.gold is None else (question.gold, *question.aliases)


def exact_grade(question: Question, reading: Reading) -> Grade:
    """Grade an answer by comparing normalised text.

    An answer is correct if it equals the gold answer or an alias after normalisation: case, accents, punctuation,
    articles and white space are ignored, and numbers must differ by less than half a unit of the gold answer's last
    digit, with the same words around them or none. Everything else is incorrect, as is any answer to a question without
    a gold answer.

    Examples
    --------
    >>> from refusal_index.protocol.reading import read_reply
    >>> louvre = Question("q", "How many rooms has the Louvre?", "403 rooms")
    >>> exact_grade(louvre, read_reply("403"))
    <Grade.CORRECT: 'correct'>
    >>> exact_grade(louvre, read_reply("There are 403 of them"))
    <Grade.INCORRECT: 'incorrect'>
    """
    return _correct_if(any(same(answer, reading.answer) for answer in accepted_answers(question)))


def includes_grade(question: Question, reading: Reading) -> Grade:
    """Grade an answer by whether it contains the gold answer or an alias as whole words, and no other choice.

    What stands in a phrase of the question does not count, as described for `includes`.

    Examples
    --------
    >>> from refusal_index.protocol.reading import read_reply
    >>> bridge = Question("q", "Who designed the bridge?", "Marta Venn")
    >>> includes_grade(bridge, read_reply("It was designed by Marta Venn in 1912."))
    <Grade.CORRECT: 'correct'>
    """
    if reading.choice is not None:
        return choice_grade(question, reading)
    others = [choice for choice in question.choices if choice not in accepted_answers(question)]
    if any(includes(choice, reading.answer) for choice in others):
        return Grade.INCORRECT
    return _correct_if(any(includes(answer, reading.answer, question.text) for answer in accepted_answers(question)))


def choice_grade(question: Question, reading: Reading) -> Grade:
    """Grade an answer by the choice that it names; one that names none is compared as in `exact_grade`.

    Examples
    --------
    >>> from refusal_index.protocol.reading import read_reply
    >>> capital = Question("q", "What is the capital of Peru?", "Lima", choices=("Cuzco", "Lima", "Quito"))
    >>> choice_grade(capital, read_reply("B) Lima", choices=capital.choices))
    <Grade.CORRECT: 'correct'>
    """
    if reading.choice is None:
        return exact_grade(question, reading)
    return _correct_if(reading.choice == question.gold)


def pattern_grade(question: Question, reading: Reading) -> Grade:
    """Grade an answer by the question's regular expression, which must match all of it.

    Case is ignored, as is punctuation around the answer, and a dot matches line breaks. If matching times out, as it
    can with nested repetitions, the answer is unscored.

    Examples
    --------
    >>> from refusal_index.protocol.reading import read_reply
    >>> war = Question("q", "When did the war end?", "1945", pattern=r"(in )?(may )?1945")
    >>> pattern_grade(war, read_reply("In May 1945."))
    <Grade.CORRECT: 'correct'>
    >>> pattern_grade(war, read_reply("1945 or 1946"))
    <Grade.INCORRECT: 'incorrect'>
    """
    if question.gold is None or question.pattern is None:
        return Grade.INCORRECT
    texts = dict.fromkeys((reading.answer, reading.answer.strip(DECORATION)))
    try:
        return _correct_if(any(matches(question.pattern, text) for text in texts))
    except TimeoutError:
        return Grade.UNSCORED


def _correct_if(is_right: bool) -> Grade:
    return Grade.CORRECT if is_right else Grade.INCORRECT


SHOWN = 5


class GraderError(RefusalIndexError, ValueError):
    """Questions that lack what the grader needs; the message names them."""


class GraderKind(StrEnum):
    """How answers are graded.

    ``EXACT`` compares text, or choices if the question has any. ``INCLUDES`` looks for the gold answer in the answer.
    ``CHOICE`` compares choices and requires them. ``REGEX`` uses the question's pattern. ``MODEL`` asks a model or a
    function, and ``AGREE`` two, whose verdicts must agree.
    """

    EXACT = "exact"
    INCLUDES = "includes"
    CHOICE = "choice"
    REGEX = "regex"
    MODEL = "model"
    AGREE = "agree"

    @property
    def models(self) -> int:
        """The number of models that it asks.

        Examples
        --------
        >>> GraderKind.EXACT.models, GraderKind.AGREE.models
        (0, 2)
        """
        return {GraderKind.MODEL: 1, GraderKind.AGREE: 2}.get(self, 0)


@dataclass(frozen=True)
class Rule:
    """How a rule-based grader grades.

    Attributes
    ----------
    right_if
        When an answer is right, for a list.
    grade
        Returns the grade of an answer to a question.
    unscored_reason
        The reason if it leaves an answer unscored.
    needed
        What it needs besides the gold answer, for messages; empty if nothing.
    can_grade
        Whether a question has what it needs.
    """

    right_if: str
    grade: Callable[[Question, Reading], Grade]
    unscored_reason: str = "rule_undecided"
    needed: str = ""
    can_grade: Callable[[Question], bool] = lambda _question: True


CHOICE_RULE = Rule(
    "names the right choice", choice_grade, needed="choices", can_grade=lambda question: bool(question.choices)
)

RULES: Mapping[GraderKind, Rule] = {
    GraderKind.EXACT: Rule("equals the right answer, apart from case, accents and punctuation", exact_grade),
    GraderKind.INCLUDES: Rule("contains the right answer as whole words, and no other choice", includes_grade),
    GraderKind.CHOICE: CHOICE_RULE,
    GraderKind.REGEX: Rule(
        "matches the pattern of its question",
        pattern_grade,
        PATTERN_TIMEOUT,
        needed="a pattern",
        can_grade=lambda question: question.gold is None or question.pattern is not None,
    ),
}
"""The rule-based graders. To add one, add an entry here and a name in `GraderKind`."""


def rule_of(kind: GraderKind, question: Question) -> Rule:
    """Return the rule by which a question is graded: the exact grader compares choices if the question has any."""
    return CHOICE_RULE if kind is GraderKind.EXACT and question.choices else RULES[kind]


def grade_by_rule(kind: GraderKind, question: Question, reading: Reading) -> Grade:
    """Grade the answer of a reading without a model; a question without a gold answer has only wrong answers.

    Parameters
    ----------
    kind
        A rule.
    question
        The question with its gold answer.
    reading
        The reading of the reply: of an answer, or of an unclear one.

    Examples
    --------
    >>> from refusal_index.protocol.reading import read_reply
    >>> grade_by_rule(GraderKind.EXACT, Question("q", "Who was it?", None), read_reply("Ann"))
    <Grade.INCORRECT: 'incorrect'>
    """
    return rule_of(kind, question).grade(question, reading)


def unscored_reason(kind: GraderKind, question: Question) -> str:
    """Return the reason why a rule leaves an answer to the question unscored, if it does.

    Examples
    --------
    >>> unscored_reason(GraderKind.REGEX, Question("q", "Which?", "Ann", pattern="Ann"))
    'pattern_timeout'
    """
    return rule_of(kind, question).unscored_reason


def check_gradable(questions: Iterable[Question], kind: GraderKind) -> None:
    """Raise if questions lack what the grader needs; call it before the first request.

    Raises
    ------
    GraderError
        If a question has no choices under ``choice``, or a gold answer but no pattern under ``regex``.

    Examples
    --------
    >>> check_gradable([Question("q7", "Who?", "Ann")], GraderKind.CHOICE)
    Traceback (most recent call last):
    ...
    refusal_index.protocol.grading.GraderError: grader 'choice': expected choices in every question, ...
    """
    rule = RULES.get(kind)
    lacking = [question.question_id for question in questions if rule and not rule.can_grade(question)]
    if rule and lacking:
        more = f" and {len(lacking) - SHOWN:,} more" if len(lacking) > SHOWN else ""
        raise GraderError(
            f"grader '{kind}': expected {rule.needed} in every question, found none in {', '.join(lacking[:SHOWN])}"
            f"{more}; name the column that holds {rule.needed}, or choose another grader"
        )
