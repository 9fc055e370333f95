"""Reading a reply: its answer, its refusal, or why it is neither.

A reading depends on the reply, the question's text and its choices. The gold answer is not known here, so a reply
cannot be read differently because it is right or wrong; it first appears when answers are graded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from refusal_index.data.outcome import FLAGGED_ANSWER
from refusal_index.protocol.choices import ChoiceReading, read_choice
from refusal_index.protocol.final_answer import FinalAnswer, ends_unanswered, find_final_answer, is_unanswered
from refusal_index.protocol.refusals import WORDING, RefusalRule
from refusal_index.protocol.wording import Says, Wording, read_wording

TRUNCATED = "truncated"
FILTERED = "content_filter"
TOOL_CALL = "tool_call"
EMPTY = "empty"
UNKNOWN_STOP = "unknown_stop"
REPLY_REASONS = TRUNCATED, FILTERED, TOOL_CALL, EMPTY, UNKNOWN_STOP
"""Reasons why a reply cannot be read."""

CHOICE_AMBIGUOUS = "choice_ambiguous"
"""Reason of an answer whose letter and text name different choices."""
PATTERN_TIMEOUT = "pattern_timeout"
"""Reason of an answer in which the search for a regular expression took too long."""


class StopReason(StrEnum):
    """Why a model stopped writing.

    ``REFUSAL`` is the mark of a provider, or of a model function, that a reply refuses; ``ANSWER`` is the mark of a
    function that it does not. ``UNKNOWN`` is a reason that is not known, so that it is not known either whether the
    reply is whole.
    """

    STOP = "stop"
    LENGTH = "length"
    CONTENT_FILTER = "content_filter"
    TOOL_CALL = "tool_calls"
    REFUSAL = "refusal"
    ANSWER = "answer"
    UNKNOWN = "unknown"

    @property
    def is_end_of_text(self) -> bool:
        """Whether the model stopped because its text was complete."""
        return self in (StopReason.STOP, StopReason.ANSWER)


class ReadAs(StrEnum):
    """What a reply is read as.

    ``UNCLEAR`` is an answer that also declines, so that neither clearly wins, or that names no single choice. It counts
    as an answer, and the forced pass asks its question too. ``FLAGGED_ANSWER`` is an answer by the mark of a model
    function, whatever its wording.
    """

    ANSWER = "answer"
    FLAGGED_ANSWER = FLAGGED_ANSWER
    REFUSAL = "refusal"
    UNCLEAR = "unclear"
    UNSCORED = "unscored"


class RecognisedBy(StrEnum):
    """How a refusal was recognised.

    ``TAG`` is the UNANSWERED tag, ``FLAG`` the mark of a provider or of a model function, ``CHOICE`` a choice that
    declines, ``WORDING`` the wording of the reply, ``PHRASE`` a regular expression and ``FUNCTION`` a function of the
    user. ``MODEL`` is a model that is asked only whether a reply attempts an answer, ``GRADER`` a grader.
    """

    TAG = "tag"
    FLAG = "flag"
    CHOICE = "choice"
    WORDING = "wording"
    PHRASE = "phrase"
    FUNCTION = "function"
    MODEL = "model"
    GRADER = "grader"


@dataclass(frozen=True)
class Reading:
    """What a reply says.

    Attributes
    ----------
    read_as
        An answer, a refusal, unclear, or unscored.
    answer
        The answer's text: the content of the last answer tag, of a box, or of a last line such as "Answer: Lima", or
        else all visible text; without a caveat where the two can be separated. Empty if the reply is unscored.
    recognised_by
        How a refusal was recognised; None otherwise.
    unscored_reason
        One of `REPLY_REASONS`, ``"choice_ambiguous"`` or ``"pattern_timeout"``; None if the reply can be graded.
    choice
        The single choice that the answer names; None without one, or without choices.
    is_tagged
        Whether the reply has an answer tag.
    well_formed
        Whether there is exactly one answer tag, complete and not empty.
    """

    read_as: ReadAs
    answer: str = ""
    recognised_by: RecognisedBy | None = None
    unscored_reason: str | None = None
    choice: str | None = None
    is_tagged: bool = False
    well_formed: bool = False

    @property
    def refused(self) -> bool:
        """Whether the reply is a refusal."""
        return self.read_as is ReadAs.REFUSAL


@lru_cache(maxsize=16)  # a reply is read again for each request that may follow it, and for its outcome
def read_reply(
    text: str,
    question: str = "",
    choices: Sequence[str] = (),
    *,
    stop_reason: StopReason = StopReason.STOP,
    refusals: RefusalRule = WORDING,
) -> Reading:
    """Read a model's reply.

    The last complete tag counts, because the prompt asks for the answer at the end; tags inside a reasoning block do
    not. A reply that was cut off at the token limit is unscored even if it contains a tag, because its continuation is
    unknown.

    Parameters
    ----------
    text
        The reply, word for word.
    question, choices
        The question's text and its choices.
    stop_reason
        Why the model stopped writing.
    refusals
        How refusals without a tag are recognised, and what is reasoning.

    Examples
    --------
    >>> read_reply("<think>Rome? No.</think> It is <answer>Paris</answer>").answer
    'Paris'
    >>> read_reply("<answer>UNANSWERED</answer>").recognised_by
    <RecognisedBy.TAG: 'tag'>
    >>> read_reply("<answer>Par", stop_reason=StopReason.LENGTH).unscored_reason
    'truncated'
    >>> read_reply("<answer>Ole Ruud, but I'm not certain.</answer>").answer
    'Ole Ruud'
    """
    stopped = {
        StopReason.LENGTH: TRUNCATED,
        StopReason.CONTENT_FILTER: FILTERED,
        StopReason.TOOL_CALL: TOOL_CALL,
        StopReason.UNKNOWN: UNKNOWN_STOP,
    }
    if stop_reason in stopped:
        return _unscored(stopped[stop_reason])
    if stop_reason is StopReason.REFUSAL:
        return Reading(ReadAs.REFUSAL, text.strip(), RecognisedBy.FLAG)
    try:
        final = find_final_answer(text, refusals.reasoning)
        if not final.text:
            return _unscored(EMPTY)
        is_tag = is_unanswered(final.text) if final.n_tags else ends_unanswered(final.text)
        if is_tag and stop_reason is not StopReason.ANSWER:
            return _read_as(ReadAs.REFUSAL, final, final.text, RecognisedBy.TAG)
        return _untagged(final, question, choices, refusals, is_flagged=stop_reason is StopReason.ANSWER)
    except TimeoutError:
        return _unscored(PATTERN_TIMEOUT)


def _untagged(
    final: FinalAnswer, question: str, choices: Sequence[str], refusals: RefusalRule, *, is_flagged: bool
) -> Reading:
    """Read a final answer that is no refusal by its tag.

    - `is_flagged`: whether a function marked it as an answer.
    """
    is_choice = bool(choices) and refusals.reads_choices
    named = read_choice(final.text, choices) if is_choice else ChoiceReading(None)
    if named.is_contradiction:
        return _unscored(CHOICE_AMBIGUOUS)
    if is_flagged:
        return _read_as(ReadAs.FLAGGED_ANSWER, final, final.text, choice=named.choice)
    if named.choice is not None and read_wording(named.choice).says is Says.REFUSAL:
        return _read_as(ReadAs.REFUSAL, final, final.text, RecognisedBy.CHOICE)
    wording = read_wording(final.text, question) if refusals.by_wording else Wording(Says.ANSWER, final.text)
    recognised_by = _recognised_by(final.text, wording, refusals)
    if recognised_by is not None:
        return _read_as(ReadAs.REFUSAL, final, final.text, recognised_by)
    choice = named.choice or (read_choice(wording.candidate, choices).choice if is_choice else None)
    if choice is not None:
        return _read_as(ReadAs.ANSWER, final, final.text, choice=choice)
    is_unclear = is_choice or wording.says is Says.UNCLEAR
    return _read_as(ReadAs.UNCLEAR if is_unclear else ReadAs.ANSWER, final, wording.candidate)


def _recognised_by(answer: str, wording: Wording, refusals: RefusalRule) -> RecognisedBy | None:
    """Return how a refusal without a tag is recognised; None if it is none."""
    if refusals.has_phrase(answer):
        return RecognisedBy.PHRASE
    if refusals.function is not None and refusals.function(answer):
        return RecognisedBy.FUNCTION
    return RecognisedBy.WORDING if wording.says is Says.REFUSAL else None


def _read_as(
    read_as: ReadAs,
    final: FinalAnswer,
    answer: str,
    recognised_by: RecognisedBy | None = None,
    choice: str | None = None,
) -> Reading:
    return Reading(
        read_as,
        answer,
        recognised_by,
        choice=choice,
        is_tagged=final.n_tags > 0,
        well_formed=final.well_formed,
    )


def _unscored(reason: str) -> Reading:
    return Reading(ReadAs.UNSCORED, unscored_reason=reason)
