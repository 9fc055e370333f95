"""What a store keeps, between its rows and the protocol's words; and all of it that is about one question."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import Any

from refusal_index.outcomes.errors import shortened
from refusal_index.outcomes.question import LETTERS, Question
from refusal_index.outcomes.text import sound_text
from refusal_index.protocol import Asked, Completion, Pass, Reply, StopReason
from refusal_index.redaction import redacted, redacted_in

Row = tuple[Any, ...]

REPLY_COLUMNS = (
    "question_id, variant, pass, asked, draw, attempt, text, stop_reason, input_tokens, output_tokens, requests, "
    "seconds, logprobs, request_sha256, in_batch, rowid"
)
"""What is read of a reply; the last tells the order in which they came."""

WORDS: Mapping[str, Mapping[str, Any]] = {
    "pass": {str(one): one for one in Pass},
    "asked": {str(one): one for one in Asked},
    "stop_reason": {str(one): one for one in StopReason},
}
"""Columns of replies that hold one of a few words, and what each stands for."""

_PASSES, _ASKED, _STOP_REASONS = WORDS.values()
_FIELDS = tuple(one.name for one in fields(Question))
_values_of = attrgetter(*_FIELDS)


@dataclass(frozen=True, slots=True)
class QuestionRecord:
    """Everything that a store holds about one question.

    Attributes
    ----------
    question
        What is asked.
    draws, failures
        How often it is asked, and what kept it from being finished, by variant.
    replies, retired
        What was said under any variant and in the forced passes, and what of that was set aside, as they came.
    """

    question: Question
    draws: dict[str, int] = field(default_factory=dict)
    replies: list[Completion] = field(default_factory=list)
    retired: list[Completion] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)

    def said(self, variant: str) -> list[Completion]:
        """Return every reply to its first passes under a variant, and to its forced passes."""
        return [one for one in self.replies if one.variant == variant or not one.variant]

    def standing(self, variant: str) -> list[Completion]:
        """Return all that count: one that was set aside does until another takes its place."""
        said = self.said(variant)
        return with_standing(said, [one for one in self.retired if one.variant in (variant, "")])


def with_standing(said: list[Completion], aside: Sequence[Completion]) -> list[Completion]:
    """Return replies with those set aside whose place nobody has taken, each place once."""
    if not aside:
        return said
    held = {place_of(one)[:-1] for one in said}
    return [*said, *{place_of(one): one for one in aside if place_of(one)[:-1] not in held}.values()]


def place_of(one: Completion) -> tuple[Any, ...]:
    """Return what tells a reply from all others."""
    return one.question_id, one.variant, str(one.reply.of), str(one.reply.asked), one.draw, one.attempt


def reply_row(one: Completion) -> Row:
    """Return a reply as the store's table holds it."""
    reply = one.reply
    return (
        one.question_id,
        one.variant,
        str(reply.of),
        str(reply.asked),
        one.draw,
        one.attempt,
        reply.text,
        str(reply.stop_reason),
        one.input_tokens,
        one.output_tokens,
        one.requests,
        one.seconds,
        one.logprobs,
        one.request_sha256,
        int(one.in_batch),
    )


def reply_of(row: Row) -> Completion:
    """Read a row of `REPLY_COLUMNS`; raises ValueError where it holds a word that stands for nothing."""
    question_id, variant, of, asked, draw, attempt, text, stop_reason, *rest, _ = row
    try:
        reply = Reply(_PASSES[of], _ASKED[asked], text, _STOP_REASONS[stop_reason])
    except KeyError as error:
        said = f"a reply to {shortened(question_id)} cannot be read ({str(error)[:200]} stands for nothing)"
        raise ValueError(said) from error
    rest[-1] = bool(rest[-1])  # whether it came in a batch
    return Completion(question_id, variant, draw, reply, attempt, *rest)


def without_keys(completions: Sequence[Completion]) -> Sequence[Completion]:
    """Return replies as they will be read again, without keys, so that a run and its folder tell the same."""
    texts = [text for one in completions for text in (one.reply.text, one.logprobs) if text]
    whole = "\0".join(texts)
    # One look at all of them is much faster than one at each, and nearly always enough.
    if sound_text(whole) == whole == redacted(whole):
        return completions
    return [_without_keys(one) for one in completions]


def _without_keys(one: Completion) -> Completion:
    """Return a reply without keys. The tokens of one that has some go: they would tell it in pieces."""
    sound = sound_text(one.reply.text), one.logprobs
    clean = redacted_in(sound)
    text, logprobs = clean if clean == sound else (clean[0], None)
    if (text, logprobs) == (one.reply.text, one.logprobs):
        return one
    return replace(one, reply=replace(one.reply, text=text), logprobs=logprobs)


def question_rows(questions: Iterable[Question]) -> Iterable[Row]:
    """Yield questions as the store's table holds them."""
    for question in questions:
        yield question.question_id, json.dumps(dict(zip(_FIELDS, _values_of(question), strict=True)))


def question_of(question_id: str, document: str) -> Question:
    """Read a question; raises ValueError, TypeError, KeyError or RecursionError where it is none."""
    held = json.loads(document)
    question = Question(**{**held, "aliases": tuple(held["aliases"]), "choices": tuple(held["choices"])})
    optional = (question.gold, question.topic, question.context, question.pattern)
    texts = [question.text, *question.aliases, *question.choices, *(one for one in optional if one is not None)]
    if question.question_id != question_id or len(question.choices) > len(LETTERS):
        raise ValueError(f"expected its own id and at most {len(LETTERS)} choices")
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("expected text")
    return question
