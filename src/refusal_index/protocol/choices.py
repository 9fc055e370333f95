"""The grader of multiple choice: which of the choices a reply names, by letter, by text or by both."""

from __future__ import annotations

import re

from refusal_index.outcomes.grade import Grade
from refusal_index.outcomes.question import LETTERS, Question
from refusal_index.protocol.exact import declines, same

LABEL = re.compile(  # what repeats gives nothing back: a megabyte of brackets would take hours
    r"\W*+(?:(?:the\s+)?(?:(?:correct|right|best)\s+)?(?:answer|choice|option)\s*+(?:(?:is\b|:)\s*+)?)?"
    r"[(\[*]*+(?P<letter>[A-Za-z])(?:[)\].:*]+|\s+-|\Z)\s*(?P<rest>.*)",
    re.DOTALL | re.IGNORECASE,
)


def choice_grade(question: Question, prediction: str) -> Grade:
    """Grade `prediction` by the choice that it names.

    A choice is named by its letter ("B", "(b)", "Answer: B"), by its text, compared as the exact grader compares, or by
    both ("B) Lima"). Where letter and text name different choices, one of them the right one, nobody knows which was
    meant: that is unscored. Whoever names several choices, or none, is incorrect, unless they do nothing but decline.

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
    if not named:
        return Grade.REFUSED if declines(prediction) else Grade.INCORRECT
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
