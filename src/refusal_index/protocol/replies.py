"""Reading a reply: what the model said in the end, or why that cannot be told."""

from __future__ import annotations

import re
import string
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from refusal_index.protocol.prompts import UNANSWERED

ANSWER_MARK = re.compile(r"<(/?)answer>", re.IGNORECASE)
DECORATION = string.punctuation + string.whitespace
REASONING = re.compile(r"<(think|thinking|reasoning)>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
UNOPENED_REASONING = re.compile(r"\A.*</(?:think|thinking|reasoning)>", re.DOTALL | re.IGNORECASE)

REPLY_REASONS = TRUNCATED, FILTERED, TOOL_CALL, EMPTY = "truncated", "content_filter", "tool_call", "empty"
"""Why a reply cannot be graded as it is."""


class StopReason(StrEnum):
    """Why a model stopped writing."""

    STOP = "stop"
    LENGTH = "length"
    CONTENT_FILTER = "content_filter"
    TOOL_CALL = "tool_calls"


@dataclass(frozen=True)
class Reading:
    """What a reply says.

    Attributes
    ----------
    answer
        The text inside the last complete answer tag or, without one, the whole reply without its reasoning and
        without stray marks; empty where `unscored_reason` is given.
    refused
        Whether the last complete answer tag says UNANSWERED, in any case and with any punctuation around it.
    well_formed
        Whether there is exactly one answer tag, complete and not empty.
    unscored_reason
        One of `REPLY_REASONS`; None where the reply can be graded.
    """

    answer: str
    refused: bool
    well_formed: bool
    unscored_reason: str | None = None


def read_reply(text: str, stop_reason: StopReason = StopReason.STOP) -> Reading:
    """Read what a model said.

    The last complete tag counts, as the prompt asks for the answer at the end; tags inside a reasoning block do not.
    A tag is an opening mark and a closing mark with no other between them. A reply that was cut at the token limit is
    unscored even where it holds a tag, as nobody knows what would have followed.

    Parameters
    ----------
    text
        The reply, word for word.
    stop_reason
        Why the model stopped writing.

    Examples
    --------
    >>> read_reply("<think>Rome? No.</think> It is <answer>Paris</answer>").answer
    'Paris'
    >>> read_reply("<answer>UNANSWERED</answer>").refused
    True
    >>> read_reply("<answer>Par", StopReason.LENGTH).unscored_reason
    'truncated'
    """
    if stop_reason is StopReason.LENGTH:
        return _unscored(TRUNCATED)
    if stop_reason is StopReason.CONTENT_FILTER:
        return _unscored(FILTERED)
    if stop_reason is StopReason.TOOL_CALL:
        return _unscored(TOOL_CALL)
    said = without_reasoning(text)
    marks, tagged = len(ANSWER_MARK.findall(said)), _tagged(said)
    answer = (said[slice(*tagged[-1])] if tagged else ANSWER_MARK.sub("", said)).strip()
    if not _is_visible(answer):
        return _unscored(EMPTY)
    refused = bool(tagged) and answer.strip(DECORATION).upper() == UNANSWERED
    return Reading(answer, refused, well_formed=len(tagged) == 1 and marks == 2)


def answer_start(text: str, answer: str) -> int | None:
    """Return where the answer that was read from a reply begins in it: in the last complete tag, else at its first.

    Parameters
    ----------
    text, answer
        The reply, and its answer as `Reading.answer` holds it; None where that is empty or not to be found.

    Examples
    --------
    >>> answer_start("Lima? <answer>Lima</answer> Lima it is", "Lima")
    14
    """
    tagged = _tagged(text)
    found = text.find(answer, *(tagged[-1] if tagged else (0, len(text)))) if answer else -1
    return None if found < 0 else found


def _tagged(text: str) -> list[tuple[int, int]]:
    """Return where the complete answer tags of a text begin and end, without their marks."""
    marks = ANSWER_MARK.finditer(text)
    return [(left.end(), right.start()) for left, right in pairwise(marks) if not left[1] and right[1]]


def without_reasoning(text: str) -> str:
    """Return `text` without its reasoning blocks.

    A block that is never closed runs to the end; one whose opening is missing, as some chat templates print the
    opening themselves, begins at the beginning.

    Examples
    --------
    >>> without_reasoning("The capital? Lima.</think> Lima")
    'Lima'
    """
    return UNOPENED_REASONING.sub("", REASONING.sub("", text)).strip()


def _is_visible(text: str) -> bool:
    """Whether `text` has a character to see: white space, control and zero-width characters are none."""
    return any(character.isprintable() and not character.isspace() for character in text)


def _unscored(reason: str) -> Reading:
    return Reading("", refused=False, well_formed=False, unscored_reason=reason)
