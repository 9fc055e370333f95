"""Checks of how replies were read and graded: refusals by how they were recognised, and signs that a rule is wrong.

A rule that compares text counts a right answer in a sentence as wrong, and wording can miss refusals. Both leave
traces: wrong answers that contain the gold answer, replies without the tag that the prompt asks for, choices that
cannot be read, and sentences that repeat.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import polars as pl

from refusal_index.data.outcome import FLAGGED_ANSWER
from refusal_index.data.reasoning import without_reasoning
from refusal_index.findings.metrics import Statement

GOLD_LIMIT = 0.05
"""Share of wrong answers that contain the gold answer above which the rule is probably not suited."""

UNREAD_LIMIT = 0.03
"""Share of answers to questions with choices whose choice cannot be read above which a caveat is shown."""

MIN_COUNT = 5
"""Smallest number of such answers for a caveat."""

REPEATED_LIMIT = 0.03
"""Share of wrong answers with the same first sentence above which they may be refusals."""

MIN_REPEATED = 5
"""Smallest number of wrong answers with the same first sentence for a caveat."""

MIN_WORDS = 4
"""Smallest number of words in such a sentence; a name alone may be a wrong answer to many questions."""

MAX_QUOTED_LENGTH = 200
"""Longest quotation, in characters."""

FLAG = "flag"
"""The reading of a refusal by the mark of a provider or a model function."""

ANSWER_TAG = re.compile(r"</?answer>", re.IGNORECASE)
SENTENCE = re.compile(r"(.+?[.!?\u3002])(?:\s|$)")


@dataclass(frozen=True)
class ReplyChecks:
    """Counts of the first draws of a variant, after its replies were read and graded."""

    refusals: Mapping[str, int]  # refusals by how they were recognised
    answers: int  # answers of the first pass, unclear ones included
    untagged: int  # of these, without an answer tag
    unclear: int  # of these, unclear
    unread_choices: int  # of these, to questions with choices, without a single choice that is named
    # wrong, wrong_with_gold: wrong answers, and those that contain the gold answer; None if a model graded
    wrong: int | None = None
    wrong_with_gold: int | None = None
    filtered: int = 0  # replies of any draw, pass and role from which a key of the run was removed

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        """Read the counts from a summary; raises ValueError or TypeError if they are invalid."""
        counts = {name: value for name, value in document.items() if name != "refusals"}
        known = [value for name, value in counts.items() if value is not None or not name.startswith("wrong")]
        if any(isinstance(value, bool) or not isinstance(value, int) for value in known):
            raise TypeError("expected whole numbers")
        return cls({str(name): int(count) for name, count in document["refusals"].items()}, **counts)

    def to_document(self) -> dict[str, Any]:
        """Return the counts as a JSON-serialisable dictionary."""
        return {**asdict(self), "refusals": dict(self.refusals)}


def reply_caveats(rows: pl.DataFrame, checks: ReplyChecks | None) -> Iterator[Statement]:
    """Yield caveats that replies may have been read or graded wrongly.

    - `rows`: one variant, one row a question, with ``first_reply``.
    - `checks`: its counts; None where the replies are not known.
    """
    if checks is None:
        return
    if checks.filtered:
        yield Statement("keys_removed", "serious", {"replies": checks.filtered})
    yield from _flagged_replies(rows)
    with_gold = checks.wrong_with_gold or 0
    if with_gold >= MIN_COUNT and with_gold > GOLD_LIMIT * (checks.wrong or 0):
        counts = {"untagged": checks.untagged, "answers": checks.answers}
        yield Statement("wrong_with_gold", "serious", {"wrong": checks.wrong, "with_gold": with_gold, **counts})
    if checks.unread_choices >= MIN_COUNT and checks.unread_choices > UNREAD_LIMIT * checks.answers:
        values = {"unread": checks.unread_choices, "answers": checks.answers}
        yield Statement("unread_choices", "serious", values)
    if checks.wrong is not None:
        yield from _missed_refusals(rows)


def _flagged_replies(rows: pl.DataFrame) -> Iterator[Statement]:
    """Yield a note on the replies that a provider or a model function marked as refusals or as answers."""
    counts = {"refusals": (rows["reading"] == FLAG).sum(), "answers": (rows["reading"] == FLAGGED_ANSWER).sum()}
    if any(counts.values()):
        yield Statement("flagged_replies", "note", counts)


def _missed_refusals(rows: pl.DataFrame) -> Iterator[Statement]:
    """Yield caveats that refusals may be missed: none were found, or wrong answers share a sentence."""
    answered = rows.filter(pl.col("refused").not_() & pl.col("reading").ne_missing(FLAGGED_ANSWER))
    if answered.height and not rows["refused"].any():
        yield Statement("no_refusals_found", "note", {"answered": answered.height})
    wrong = answered.filter("wrong")
    for quoted, count in repeated_sentences(wrong["first_reply"])[:1]:
        if count >= MIN_REPEATED and count > REPEATED_LIMIT * wrong.height:
            yield Statement("repeated_sentence", "serious", {"sentence": quoted, "count": count, "wrong": wrong.height})


def repeated_sentences(replies: Iterable[str | None]) -> list[tuple[str, int]]:
    """Return the first sentences of replies with their counts, the most frequent first.

    Sentences that differ only in case are one. Shorter ones than `MIN_WORDS` words are left out; a Chinese or Japanese
    sentence counts if it ends in a full stop.

    >>> repeated_sentences(["I do not know. Sorry.", "i do not know.", "Lima"])
    [('I do not know.', 2)]
    """
    counts: Counter[str] = Counter()
    written: dict[str, str] = {}
    for reply in replies:
        sentence = first_sentence(reply or "")
        if sentence.count(" ") >= MIN_WORDS - 1 or sentence.endswith("\u3002"):
            counts[sentence.lower()] += 1
            written.setdefault(sentence.lower(), sentence)
    return [(written[key], count) for key, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]


def first_sentence(reply: str) -> str:
    """Return the first sentence of a reply, without reasoning and answer tags.

    >>> first_sentence("<think>Who?</think><answer>Not named in the text. Sorry.</answer>")
    'Not named in the text.'
    """
    text = " ".join(ANSWER_TAG.sub("", without_reasoning(reply)).split())
    match = SENTENCE.match(text)
    return (match[1] if match else text)[:MAX_QUOTED_LENGTH]
