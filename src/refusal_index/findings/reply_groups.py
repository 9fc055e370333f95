"""First replies that a reader should look at, grouped by their first sentence.

These are unclear replies, refusals that were recognised without the tag, and wrong answers that begin alike, which may
be refusals that were missed. Words of the question are left out of a sentence, so that "The text does not name the
bridge." and "The text does not name the king." are one group.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl

from refusal_index.data.outcome import UNCLEAR
from refusal_index.data.outcome_table import Group
from refusal_index.data.rates import first_draws, variant_groups
from refusal_index.findings.reply_checks import MIN_WORDS, first_sentence

BY_TEXT = ("wording", "phrase", "function", "model")
"""Ways to recognise a refusal without the tag by its text."""

MIN_REPLIES = 2
"""Smallest number of wrong answers that begin alike to be listed."""

WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class ReplyGroup:
    """Replies whose first sentences agree but for words of the question."""

    kind: str  # ``"unclear"``, ``"refused"`` or ``"wrong"``
    replies: int
    sentence: str  # that of the first reply
    question_id: str  # of the first reply


@dataclass(frozen=True)
class ReplyGroups(Group):
    """The groups of one variant, of each kind the largest first."""

    groups: tuple[ReplyGroup, ...]
    is_read: bool = True  # whether the table says how replies were read


def reply_groups(rows: pl.DataFrame) -> tuple[ReplyGroup, ...]:
    """Group the first replies of one variant, one row a question.

    >>> said = ["<answer>Not named in the text.</answer>", "Not named in the text."]
    >>> rows = pl.DataFrame({"question_id": ["a", "b"], "question": ["Who?", "When?"], "first_reply": said,
    ...                      "reading": ["wording", "wording"], "refused": [True, True], "wrong": [True, True]})
    >>> [(group.kind, group.replies, group.sentence) for group in reply_groups(rows)]
    [('refused', 2, 'Not named in the text.')]
    """
    kinds = {
        UNCLEAR: rows.filter(pl.col("reading") == UNCLEAR),
        "refused": rows.filter(pl.col("reading").is_in(BY_TEXT)),
        "wrong": rows.filter(pl.col("refused").not_() & pl.col("wrong") & pl.col("reading").ne_missing(UNCLEAR)),
    }
    groups: list[ReplyGroup] = []
    for kind, chosen in kinds.items():
        asked = chosen.select("question_id", "question", "first_reply").drop_nulls("first_reply")
        found = _grouped(kind, asked.iter_rows())
        groups += [
            group
            for group in found
            if kind != "wrong" or (group.replies >= MIN_REPLIES and len(WORD.findall(group.sentence)) >= MIN_WORDS)
        ]
    return tuple(groups)


def groups_by_variant(table: pl.DataFrame) -> tuple[ReplyGroups, ...]:
    """Group the first replies of each variant of an outcome table."""
    return tuple(
        ReplyGroups(
            group.model,
            group.dataset,
            group.variant,
            reply_groups(first_draws(group.outcomes)),
            is_read=group.outcomes["reading"].is_not_null().any(),
        )
        for group in variant_groups(table)
    )


def _grouped(kind: str, rows: Iterable[tuple[str, str | None, str]]) -> list[ReplyGroup]:
    counts: Counter[str] = Counter()
    first: dict[str, tuple[str, str]] = {}
    for question_id, question, reply in rows:
        sentence = first_sentence(reply)
        key = _without_words_of(sentence, question or "")
        counts[key] += 1
        first.setdefault(key, (sentence, question_id))
    return [ReplyGroup(kind, count, *first[key]) for key, count in counts.most_common()]


def _without_words_of(sentence: str, question: str) -> str:
    asked = set(WORD.findall(question.casefold()))
    return " ".join(word for word in WORD.findall(sentence.casefold()) if word not in asked)
