"""How replies are read: the settings `refusal` and `reasoning`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from refusal_index.data.text import SECONDS, PatternError, compiled

TAG_NAME = "tag"
WORDING_NAME = "wording"
MODEL_PREFIX = "model:"
FUNCTION_PREFIX = "python:"

Detector = Callable[[str], bool]
"""A function of the answer's text that returns whether it refuses."""


@dataclass(frozen=True)
class RefusalRule:
    """How refusals without a tag are recognised.

    Attributes
    ----------
    by_wording
        Whether the wording of a reply decides.
    phrase
        A regular expression that refuses wherever it is found, besides; None for none. Case is ignored.
    function
        A function that decides instead of the wording; None for none.
    asks_model
        Whether a model is asked if a reply without a tag attempts an answer.
    reads_choices
        Whether a choice that declines is a refusal. A grading model decides that itself.
    reasoning
        A regular expression for reasoning, which is not read, besides the known marks; None for none.
    """

    by_wording: bool = True
    phrase: str | None = None
    function: Detector | None = None
    asks_model: bool = False
    reads_choices: bool = True
    reasoning: str | None = None

    def has_phrase(self, answer: str) -> bool:
        """Whether the regular expression is found in an answer; raises TimeoutError.

        Examples
        --------
        >>> RefusalRule(phrase="no comment").has_phrase("No comment!")
        True
        """
        return self.phrase is not None and compiled(self.phrase).search(answer, timeout=SECONDS) is not None


WORDING = RefusalRule()
"""By tag, choice and wording: the default of rules and of functions that grade."""
TAG = RefusalRule(by_wording=False)
"""By tag and choice."""
LEFT_TO_GRADER = RefusalRule(by_wording=False, reads_choices=False)
"""By tag; a grading model decides about all other replies."""


def refusal_rule(refusal: str, detector: Detector | None = None) -> RefusalRule:
    """Return the rule that the setting `refusal` names.

    Parameters
    ----------
    refusal
        ``"wording"``; ``"tag"``; ``"+"`` and a regular expression that counts besides the wording; ``"model:"`` and a
        model's name; or ``"python:"`` and a function's name.
    detector
        The function of that name; None if the user did not name it, since a name in a folder does not run one.

    Raises
    ------
    PatternError
        If it is none of these, is not a regular expression, or names a function that is not given.

    Examples
    --------
    >>> refusal_rule("+no comment").phrase
    'no comment'
    >>> refusal_rule("tag").by_wording
    False
    """
    if refusal == WORDING_NAME:
        return WORDING
    if refusal == TAG_NAME:
        return TAG
    if refusal.startswith(MODEL_PREFIX):
        return RefusalRule(by_wording=False, asks_model=True)
    if refusal.startswith(FUNCTION_PREFIX):
        if detector is not None:
            return RefusalRule(by_wording=False, function=detector)
        raise PatternError(
            f"refusals are recognised by the function {refusal}, which only runs if you name it: add the option "
            "--refusal to run, score, confidence or regrade"
        )
    if not refusal.startswith("+"):
        raise PatternError(f"a regular expression extends the built-in phrases: write it as '+{refusal}'")
    if not refusal[1:].strip():
        raise PatternError("'+' must be followed by a regular expression")
    compiled(refusal[1:])
    return RefusalRule(phrase=refusal[1:])


def recorded_rule(refusal: str, detector: Detector | None = None) -> RefusalRule:
    """Return the rule that a folder names; a bare regular expression, of an earlier version, adds to the wording.

    Examples
    --------
    >>> recorded_rule("no comment").phrase
    'no comment'
    """
    is_known = refusal in (WORDING_NAME, TAG_NAME) or refusal.startswith(("+", MODEL_PREFIX, FUNCTION_PREFIX))
    return refusal_rule(refusal if is_known else f"+{refusal}", detector)


def check_reasoning(reasoning: str) -> None:
    """Raise PatternError if a regular expression for reasoning is empty or invalid."""
    if not reasoning.strip():
        raise PatternError("it is empty; leave it out, or write what encloses the reasoning")
    compiled(reasoning)


def phrases_from_file(content: str) -> str:
    r"""Return the setting for the phrases of a file.

    Every line is a regular expression; blank lines and lines that begin with # are left out.

    Raises
    ------
    PatternError
        If a line is not a regular expression, or there is none; the message names the line.

    Examples
    --------
    >>> phrases_from_file("# ours\nno comment\nask (HR|legal)")
    '+(?:no comment)|(?:ask (HR|legal))'
    """
    phrases = []
    for number, line in enumerate(content.splitlines(), start=1):
        if not (phrase := line.strip()) or phrase.startswith("#"):
            continue
        try:
            compiled(phrase)
        except PatternError as error:
            raise PatternError(f"line {number}: {error}") from error
        phrases.append(f"(?:{phrase})")
    if not phrases:
        raise PatternError("it holds no regular expression; write one a line")
    return f"+{'|'.join(phrases)}"
