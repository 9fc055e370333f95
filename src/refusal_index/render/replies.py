"""The replies that a reader should look at, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from refusal_index.errors import escape
from refusal_index.findings.metrics import Statement
from refusal_index.findings.reply_groups import ReplyGroup, ReplyGroups
from refusal_index.render.format import Block, count, title
from refusal_index.render.sentences import phrase, sentence

SHOWN = 25
"""Largest number of sentences of each kind that are listed."""


def replies_blocks(variants: Sequence[ReplyGroups]) -> Iterator[Block]:
    """Yield the sentences of each variant with their counts: unclear ones, refusals by text, repeated wrong answers."""
    for position, variant in enumerate(variants):
        yield from [""] * bool(position)
        yield title(variant.model, variant.dataset, variant.variant)
        if not variant.is_read:
            yield from ("", sentence(Statement("readings_unknown", "note", {"repeated": bool(variant.groups)})))
        elif not variant.groups:
            yield from ("", sentence(Statement("no_reply_groups", "note")))
        for kind, groups in groupby(variant.groups, key=lambda group: group.kind):
            yield from _of_kind(kind, list(groups))


def _of_kind(kind: str, groups: Sequence[ReplyGroup]) -> Iterator[Block]:
    replies = sum(group.replies for group in groups)
    yield from ("", f"{phrase(kind, 'reply_kind')} ({count(replies)})")
    width = len(count(groups[0].replies))
    for group in groups[:SHOWN]:
        yield f"{count(group.replies):>{width}}  {escape(group.sentence)} [{escape(group.question_id)}]"
    if len(groups) > SHOWN:
        rest = groups[SHOWN:]
        values = {"replies": sum(group.replies for group in rest), "sentences": len(rest)}
        yield sentence(Statement("more_reply_groups", "note", values))
