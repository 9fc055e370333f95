"""Reading and grading single replies, as a run does: for trainers, test suites and plugins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from refusal_index.data.outcome import Grade, Question
from refusal_index.data.text import PatternError
from refusal_index.errors import RefusalIndexError, shortened, suggestion
from refusal_index.models.calls import RETURNED_GRADES, as_bool, as_grade
from refusal_index.protocol import reading
from refusal_index.protocol.grading import RULES, GraderKind, check_gradable, grade_by_rule
from refusal_index.protocol.refusals import (
    FUNCTION_PREFIX,
    MODEL_PREFIX,
    WORDING_NAME,
    RefusalRule,
    check_reasoning,
    refusal_rule,
)

Refusal = str | Callable[[str], bool]
Grader = str | Callable[[Question, str], object]

FORMS = "'wording', 'tag', +REGEX or a function"


class ReplyError(RefusalIndexError, ValueError):
    """A grader, or a way to recognise refusals, that cannot be used for a single reply."""


def read_reply(
    text: str,
    question: str = "",
    choices: Sequence[str] = (),
    *,
    refusal: Refusal = WORDING_NAME,
    reasoning: str | None = None,
) -> reading.Reading:
    """Return what a model's reply says: an answer, a refusal, or neither.

    Parameters
    ----------
    text : str
        The reply, word for word.
    question : str, optional
        The text of the question. It helps to tell a refusal from an answer that lacks a detail.
    choices : sequence of str, optional
        The choices, if there are any.
    refusal : str or callable, default: "wording"
        How a refusal without the UNANSWERED tag is recognised: ``"wording"``, ``"tag"``, ``"+"`` and a regular
        expression that counts besides the wording, or a function of the answer that returns whether it refuses.
    reasoning : str, optional
        A regular expression for reasoning, which is not read, besides marks such as ``<think>``.

    Returns
    -------
    Reading
        ``read_as`` is ``"answer"``, ``"refusal"``, ``"unclear"`` or ``"unscored"``; ``answer`` is the answer's text
        without reasoning, tags and caveats; ``recognised_by`` says how a refusal was recognised, ``unscored_reason``
        why a reply cannot be graded. An unclear reply declines and also gives an answer, or names no single choice.

    Raises
    ------
    ReplyError
        If an argument has another type, `refusal` is not one of these forms, or a function returns something else.

    Examples
    --------
    >>> import refusal_index as ri
    >>> ri.read_reply("Ole Ruud, but I'm not certain.").answer
    'Ole Ruud'
    >>> ri.read_reply("The documents do not say who designed it.").recognised_by
    <RecognisedBy.WORDING: 'wording'>
    """
    for name, value in (("text", text), ("question", question)):
        if not isinstance(value, str):
            raise ReplyError(f"{name}: expected a string, got {shortened(value)}")
    return reading.read_reply(text, question, _texts("choices", choices), refusals=_rule(refusal, reasoning))


def grade_reply(
    text: str,
    gold: str | None,
    question: str = "",
    *,
    aliases: Sequence[str] = (),
    choices: Sequence[str] = (),
    grader: Grader = GraderKind.EXACT,
    refusal: Refusal = WORDING_NAME,
    reasoning: str | None = None,
) -> Grade:
    """Return the grade of a model's reply.

    The reply is read first, without the gold answer. Only answers are graded; an unclear reply counts as an answer.

    Parameters
    ----------
    text : str
        The reply, word for word.
    gold : str or None
        The right answer, or the letter of the right choice; None if there is none, so that every answer is wrong.
    question, choices, refusal, reasoning
        As for `read_reply`.
    aliases : sequence of str, optional
        Other forms of the right answer.
    grader : str or callable, default: "exact"
        ``"exact"``, ``"includes"`` or ``"choice"``; or a function of the `Question` and the answer's text that returns
        a grade, or whether the answer is right, as for `evaluate`.

    Returns
    -------
    Grade
        ``"correct"``, ``"incorrect"``, ``"refused"``, or ``"unscored"`` if the reply cannot be read or graded.

    Raises
    ------
    ReplyError
        If an argument has another type, `gold` is none of the choices, `grader` or `refusal` is not one of these
        forms, or a function returns something else.
    GraderError
        If the grader needs choices and there are none.

    Examples
    --------
    >>> import refusal_index as ri
    >>> ri.grade_reply("The capital is Lima.", "Lima", grader="includes")
    <Grade.CORRECT: 'correct'>
    >>> ri.grade_reply("I don't know.", "Lima")
    <Grade.REFUSED: 'refused'>
    """
    shown = _texts("choices", choices)
    asked = Question("reply", question, _gold(gold, shown), _texts("aliases", aliases), choices=shown)
    read = read_reply(text, question, shown, refusal=refusal, reasoning=reasoning)
    if read.unscored_reason:
        return Grade.UNSCORED
    if read.refused:
        return Grade.REFUSED
    if callable(grader):
        return _returned(grader(asked, read.answer))
    kinds = [str(kind) for kind in RULES if kind is not GraderKind.REGEX]
    if grader not in kinds:
        guess = suggestion(grader, kinds) if isinstance(grader, str) else ""
        raise ReplyError(f"grader: expected {', '.join(kinds)} or a function, got {grader!r}{guess}")
    check_gradable([asked], GraderKind(grader))
    return grade_by_rule(GraderKind(grader), asked, read)


def _texts(name: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ReplyError(f"{name}: expected a list of strings, got {shortened(value)}; write [TEXT, ...]")
    texts = tuple(value)
    for text in texts:
        if not isinstance(text, str):
            raise ReplyError(f"{name}: expected a list of strings, got {shortened(text)} in it")
    return texts


def _gold(gold: object, choices: tuple[str, ...]) -> str | None:
    """Return the right answer; with choices, the one that is named by its text or its letter, as in question files."""
    if gold is None:
        return None
    if not isinstance(gold, str):
        raise ReplyError(f"gold: expected a string or None, got {shortened(gold)}; write it in quotation marks")
    if not choices:
        return gold
    from refusal_index.data.datasets.dataset import Choices  # noqa: PLC0415 - imports polars, only needed here

    choice = Choices(choices).resolve(gold.strip())
    if choice is None:
        raise ReplyError(
            f"gold: expected one of the choices, by its text or its letter, got {shortened(gold)}; the choices are "
            f"{shortened(', '.join(choices))}"
        )
    return choice


def _rule(refusal: Refusal, reasoning: str | None) -> RefusalRule:
    if reasoning is not None:
        _check_reasoning(reasoning)
    if callable(refusal):
        return RefusalRule(by_wording=False, function=partial(_refuses, refusal), reasoning=reasoning)
    if not isinstance(refusal, str):
        raise ReplyError(f"refusal: expected {FORMS}, got {shortened(refusal)}")
    elsewhere = {
        MODEL_PREFIX: "a single reply is read without a model",
        FUNCTION_PREFIX: "pass the function itself: refusal=FUNCTION",
        "@": "a file is read only on the command line and in configurations",
    }
    for prefix, reason in elsewhere.items():
        if refusal.startswith(prefix):
            raise ReplyError(f"refusal: expected {FORMS}, got {refusal!r}; {reason}")
    try:
        rule = refusal_rule(refusal)
    except ValueError as error:
        raise ReplyError(f"refusal: expected {FORMS}, got {refusal!r} ({error})") from error
    return replace(rule, reasoning=reasoning)


def _check_reasoning(reasoning: object) -> None:
    try:
        if not isinstance(reasoning, str):
            raise ReplyError(f"reasoning: expected a regular expression or None, got {shortened(reasoning)}")
        check_reasoning(reasoning)
    except PatternError as error:
        raise ReplyError(f"reasoning: {reasoning!r} cannot be used: {error}") from error


def _refuses(function: Callable[[str], object], answer: str) -> bool:
    returned = function(answer)
    refuses = as_bool(returned)
    if refuses is None:
        raise ReplyError(f"refusal: expected a function that returns True or False, got {shortened(returned)}")
    return refuses


def _returned(returned: object) -> Grade:
    """Return the grade that a function of the user returned."""
    grade = as_grade(returned)
    if grade is None:
        grades = ", ".join(repr(str(known)) for known in RETURNED_GRADES)
        raise ReplyError(f"grader: expected a function that returns True, False or one of {grades}, got {returned!r}")
    return grade
