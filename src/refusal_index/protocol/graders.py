"""Who can grade what: the kinds of graders, the rules of those that are no model, and what each needs of a question."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from refusal_index.errors import RefusalIndexError
from refusal_index.outcomes.grade import Grade
from refusal_index.outcomes.question import Question
from refusal_index.protocol.choices import choice_grade
from refusal_index.protocol.exact import exact_grade
from refusal_index.protocol.patterns import pattern_grade

SHOWN = 5


class GraderError(RefusalIndexError, ValueError):
    """A grader that cannot grade some of the questions; the message names them."""


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


def grade_by_rule(kind: GraderKind, question: Question, prediction: str) -> Grade:
    """Grade `prediction` without a model; a question without a gold answer has only wrong answers and refusals.

    Examples
    --------
    >>> grade_by_rule(GraderKind.EXACT, Question("q", "Who was it?", None), "Ann")
    <Grade.INCORRECT: 'incorrect'>
    """
    return rule_of(kind, question).grade(question, prediction)


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
