"""Reading a reply: what the model said in the end, or why that cannot be told."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from refusal_index.protocol.prompts import UNANSWERED

TAG = re.compile(r"<answer>(.*?)</answer>", re.DOTALL | re.IGNORECASE)
OPEN_TAG = re.compile(r"<answer>", re.IGNORECASE)
REASONING = re.compile(r"<(think|thinking|reasoning)>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
UNOPENED_REASONING = re.compile(r"\A.*</(?:think|thinking|reasoning)>", re.DOTALL | re.IGNORECASE)


class StopReason(StrEnum):
    """Why a model stopped writing."""

    STOP = "stop"
    LENGTH = "length"
    CONTENT_FILTER = "content_filter"


@dataclass(frozen=True)
class Reading:
    """What a reply says.

    Attributes
    ----------
    answer
        The text inside the last answer tag or, without one, the whole reply without its reasoning; empty where
        `unscored_reason` is given.
    refused
        Whether that text is the UNANSWERED tag.
    well_formed
        Whether there is exactly one answer tag, complete and not empty.
    unscored_reason
        ``"truncated"``, ``"content_filter"`` or ``"empty"``; None where the reply can be graded.
    """

    answer: str
    refused: bool
    well_formed: bool
    unscored_reason: str | None = None


def read_reply(text: str, stop_reason: StopReason = StopReason.STOP) -> Reading:
    """Read what a model said.

    The last tag counts, as the prompt asks for the answer at the end; tags inside a reasoning block do not. A reply
    that was cut at the token limit is unscored even where it holds a tag, as nobody knows what would have followed.

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
        return _unscored("truncated")
    if stop_reason is StopReason.CONTENT_FILTER:
        return _unscored("content_filter")
    said = without_reasoning(text)
    tags = TAG.findall(said)
    answer = (tags[-1] if tags else said).strip()
    if not answer:
        return _unscored("empty")
    well_formed = len(tags) == 1 and len(OPEN_TAG.findall(said)) == 1
    return Reading(answer, bool(tags) and answer.upper().strip(".") == UNANSWERED, well_formed)


def without_reasoning(text: str) -> str:
    """Return `text` without its reasoning blocks.

    A block that is never closed runs to the end; one whose opening is missing, as some chat templates print the
    opening themselves, begins at the beginning.
    """
    return UNOPENED_REASONING.sub("", REASONING.sub("", text)).strip()


def _unscored(reason: str) -> Reading:
    return Reading("", refused=False, well_formed=False, unscored_reason=reason)
