"""The kinds of graders and what each needs; grading by regular expression and by multiple choice."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from refusal_index.data.outcome import LETTERS, Grade, Question
from refusal_index.data.text import matches
from refusal_index.errors import RefusalIndexError
from refusal_index.protocol.grading import exact_grade, same
from refusal_index.protocol.refusals import Detector, refuses
from refusal_index.protocol.replies import DECORATION, read_reply

LABEL = re.compile(  # what repeats gives nothing back: a megabyte of brackets would take hours
    r"\W*+(?:(?:the\s+)?(?:(?:correct|right|best)\s+)?(?:answer|choice|option)\s*+(?:(?:is\b|:)\s*+)?)?"
    r"[(\[*]*+(?P<letter>[A-Za-z])(?:[)\].:*]+|\s+-|\Z)\s*(?P<rest>.*)",
    re.DOTALL | re.IGNORECASE,
)


def choice_grade(question: Question, prediction: str) -> Grade:
    """Grade `prediction` by the choice that it names.

    A choice is named by its letter ("B", "(b)", "Answer: B"), by its text, compared as the exact grader compares, or by
    both ("B) Lima"). Where letter and text name different choices, one of them the right one, nobody knows which was
    meant: that is unscored. Whoever names several choices, or none, is incorrect.

    Parameters
    ----------
    question
        The question with its choices; its gold answer is one of them, or None.
    prediction
        The answer to grade, as `Reading.answer` holds it.

    Examples
    --------
    >>> capital = Question("q", "What is the capital of Peru?", "Lima", choices=("Cuzco", "Lima", "Quito"))
    >>> choice_grade(capital, "B) Lima")
    <Grade.CORRECT: 'correct'>
    >>> choice_grade(capital, "Quito")
    <Grade.INCORRECT: 'incorrect'>
    >>> choice_grade(capital, "B) Cuzco")
    <Grade.UNSCORED: 'unscored'>
    """
    named = named_choices(question, prediction)
    if question.gold not in named:
        return Grade.INCORRECT
    return Grade.CORRECT if len(named) == 1 else Grade.UNSCORED


def named_choices(question: Question, prediction: str) -> set[str]:
    """Return the choices that `prediction` names: one, two where its letter contradicts its text, or none.

    Examples
    --------
    >>> capital = Question("q", "What is the capital of Peru?", "Lima", choices=("Cuzco", "Lima"))
    >>> named_choices(capital, "A"), named_choices(capital, "it depends")
    ({'Cuzco'}, set())
    """
    label = LABEL.fullmatch(prediction.strip())
    if label is None:
        return _by_text(question, prediction)
    place, rest = LETTERS.index(label["letter"].upper()), label["rest"].strip()
    lettered = set(question.choices[place : place + 1])  # none where there are fewer choices
    if not rest:
        return _by_text(question, prediction) or lettered
    if by_rest := _by_text(question, rest):
        return lettered | by_rest
    return _by_text(question, prediction)  # such as "C. elegans"


def _by_text(question: Question, text: str) -> set[str]:
    named = {choice for choice in question.choices if same(choice, text)}
    if question.gold is not None and any(same(alias, text) for alias in question.aliases):
        named.add(question.gold)
    return named


def pattern_grade(question: Question, prediction: str) -> Grade:
    """Grade `prediction` by the question's regular expression, which must match it from end to end.

    Case is ignored, a dot matches line breaks, and punctuation around the prediction may go.

    A pattern that cannot be matched in time, as one whose repetitions are nested may, leaves the prediction unscored.

    Parameters
    ----------
    question
        The question with its pattern; without one nothing matches.
    prediction
        The answer to grade, as `Reading.answer` holds it.

    Examples
    --------
    >>> war = Question("q", "When did the war end?", "1945", pattern=r"(in )?(may )?1945")
    >>> pattern_grade(war, "In May 1945.")
    <Grade.CORRECT: 'correct'>
    >>> pattern_grade(war, "1945 or 1946")
    <Grade.INCORRECT: 'incorrect'>
    """
    if question.gold is not None and question.pattern is not None:
        try:
            if any(
                matches(question.pattern, text) for text in dict.fromkeys((prediction, prediction.strip(DECORATION)))
            ):
                return Grade.CORRECT
        except TimeoutError:
            return Grade.UNSCORED
    return Grade.INCORRECT


SHOWN = 5


class GraderError(RefusalIndexError, ValueError):
    """Questions that lack what the grader needs; the message names them."""


class GraderKind(StrEnum):
    """Who grades what the UNANSWERED tag does not settle.

    ``EXACT`` compares text, or choices where a question has such. ``CHOICE`` does the latter and insists on choices.
    ``REGEX`` goes by the question's pattern. ``MODEL`` asks a model, and ``AGREE`` two, whose verdicts must agree.
    """

    EXACT = "exact"
    CHOICE = "choice"
    REGEX = "regex"
    MODEL = "model"
    AGREE = "agree"

    @property
    def models(self) -> int:
        """How many models it asks.

        Examples
        --------
        >>> GraderKind.EXACT.models, GraderKind.AGREE.models
        (0, 2)
        """
        return {GraderKind.MODEL: 1, GraderKind.AGREE: 2}.get(self, 0)


@dataclass(frozen=True)
class Rule:
    """How a grader that asks nobody grades.

    Attributes
    ----------
    grade
        Returns the grade of an answer to a question.
    unscored_reason
        Why it leaves an answer unscored, where it does.
    needed
        What it goes by besides the gold answer, for messages; empty where that is all.
    can_grade
        Whether a question has it.
    """

    grade: Callable[[Question, str], Grade]
    unscored_reason: str = "rule_undecided"
    needed: str = ""
    can_grade: Callable[[Question], bool] = lambda _question: True


CHOICE_RULE = Rule(choice_grade, "choice_ambiguous", "choices", lambda question: bool(question.choices))

RULES: Mapping[GraderKind, Rule] = {
    GraderKind.EXACT: Rule(exact_grade),
    GraderKind.CHOICE: CHOICE_RULE,
    GraderKind.REGEX: Rule(
        pattern_grade,
        "pattern_timeout",
        needed="a pattern",
        can_grade=lambda question: question.gold is None or question.pattern is not None,
    ),
}
"""The graders that ask nobody. Another one is another entry here, and a name in `GraderKind`."""


def rule_of(kind: GraderKind, question: Question) -> Rule:
    """Return the rule by which a question is graded: choices are compared as such, whatever compares text."""
    return CHOICE_RULE if kind is GraderKind.EXACT and question.choices else RULES[kind]


def grade_by_rule(kind: GraderKind, question: Question, prediction: str, detector: Detector | None = refuses) -> Grade:
    """Grade `prediction` without a model; a question without a gold answer has only wrong answers and refusals.

    What would be incorrect is refused where `detector` says so: of the prediction or, if it names one choice, of that
    choice. A detector that takes too long leaves it unscored.

    Examples
    --------
    >>> grade_by_rule(GraderKind.EXACT, Question("q", "Who was it?", None), "Ann")
    <Grade.INCORRECT: 'incorrect'>
    >>> grade_by_rule(GraderKind.EXACT, Question("q", "Who was it?", "Ann"), "The passage does not say.")
    <Grade.REFUSED: 'refused'>
    >>> asked = Question("q", "Who was it?", "Ann", choices=("Ann", "Eve", "Insufficient information to answer"))
    >>> grade_by_rule(GraderKind.CHOICE, asked, "C")
    <Grade.REFUSED: 'refused'>
    """
    grade = rule_of(kind, question).grade(question, prediction)
    if grade is not Grade.INCORRECT or detector is None:
        return grade
    named = named_choices(question, prediction) if question.choices else set()
    try:
        return Grade.REFUSED if detector(named.pop() if len(named) == 1 else prediction, question) else grade
    except TimeoutError:
        return Grade.UNSCORED


def recognised_by(kind: GraderKind, question: Question, reply: str) -> str:
    """Return what showed that a first reply refused: ``"tag"``, ``"judge"``, ``"choice"`` or ``"wording"``.

    Examples
    --------
    >>> recognised_by(GraderKind.EXACT, Question("q", "Who was it?", "Ann"), "<answer>UNANSWERED</answer>")
    'tag'
    """
    reading = read_reply(reply)
    if reading.refused:
        return "tag"
    if kind.models:
        return "judge"
    return "choice" if question.choices and named_choices(question, reading.answer) else "wording"


def unscored_reason(kind: GraderKind, question: Question) -> str:
    """Return why a rule leaves an answer to the question unscored, where it does.

    Examples
    --------
    >>> unscored_reason(GraderKind.EXACT, Question("q", "Which?", "Ann", choices=("Ann", "Eve")))
    'choice_ambiguous'
    >>> unscored_reason(GraderKind.REGEX, Question("q", "Which?", "Ann", pattern="Ann"))
    'pattern_timeout'
    """
    return rule_of(kind, question).unscored_reason


def check_gradable(questions: Iterable[Question], kind: GraderKind) -> None:
    """Raise if some questions lack what the grader goes by; call it before anything is asked.

    Raises
    ------
    GraderError
        If ``choice`` meets a question without choices, or ``regex`` one that has a gold answer but no pattern.

    Examples
    --------
    >>> check_gradable([Question("q7", "Who?", "Ann")], GraderKind.CHOICE)
    Traceback (most recent call last):
    ...
    refusal_index.protocol.graders.GraderError: grader 'choice': expected choices in every question, ...
    """
    rule = RULES.get(kind)
    lacking = [question.question_id for question in questions if rule and not rule.can_grade(question)]
    if rule and lacking:
        more = f" and {len(lacking) - SHOWN:,} more" if len(lacking) > SHOWN else ""
        raise GraderError(
            f"grader '{kind}': expected {rule.needed} in every question, found none in {', '.join(lacking[:SHOWN])}"
            f"{more}; name the column that holds {rule.needed}, or choose another grader"
        )
