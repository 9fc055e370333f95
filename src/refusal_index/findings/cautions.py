"""What a reader must know before believing a number, as statements that `render.sentences` words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict

import polars as pl

from refusal_index.data.outcome import FORCED_NOT_ASKED
from refusal_index.data.rates import Completeness, ForcedRefusals, SamplingSummary, too_many_missing
from refusal_index.findings.draws import DrawsSummary
from refusal_index.findings.sensitivity import LEVEL, MissingRange, failures_by_refusal
from refusal_index.findings.statement import Statement
from refusal_index.stats import CELL_NAMES, ContingencyTable, Estimate, missing_bounds
from refusal_index.stats.contingency import FEW_CLUSTERS, ONE_CLUSTER

FORCED_REFUSAL_LIMIT = 0.05
"""Share of refusals among the forced answers above which the forced pass did not force enough."""

KNOWLEDGE_LIMIT = 0.01
"""Share of right answers under forced answering below which there is no knowledge for refusals to follow."""

SMALL_CELL = 5
"""Questions in a cell, found or expected, below which the interval need not have its nominal coverage."""

REPEATED_LIMIT = 0.03
"""Share of the wrong answers above which one that begins with the same sentence may be a refusal."""

FEWEST_REPEATED = 5
"""Wrong answers that begin with the same sentence below which it may be chance."""

FEWEST_WORDS = 4
"""Words that make a sentence; the same name may be a wrong answer to many questions."""

LONGEST_QUOTED = 200
"""Characters of a sentence that are quoted."""

FEW_REPEATED = 50
"""Questions sampled more than once below which their reliabilities are mostly chance."""


def cautions(
    table: ContingencyTable,
    refusal_index: Estimate,
    completeness: Completeness,
    missing: MissingRange | None,
    forced: ForcedRefusals,
) -> tuple[Statement, ...]:
    """Collect the cautions about one variant, the gravest first.

    - `table`: its counts.
    - `refusal_index`: the estimate made from them.
    - `completeness`, `missing`, `forced`: what is missing, and how often the forced pass refused.
    """
    only_first = refusal_index.reason == FORCED_NOT_ASKED
    return (
        *_forced_not_asked(completeness, only_first=only_first),
        *(() if only_first else _estimate(table, refusal_index)),
        *_incomplete(completeness, only_first=only_first),
        *_unscored_refusals(table, completeness, missing),
        *_forced_refusals(forced),
    )


def sampling_cautions(sampling: SamplingSummary | None) -> Iterator[Statement]:
    """Yield the caution about few clusters, if there are clusters."""
    if sampling is None:
        return
    values = {"clusters": sampling.clusters, "column": sampling.cluster, "limit": FEW_CLUSTERS}
    if sampling.clusters == 1:
        yield Statement(ONE_CLUSTER, "grave", values)
    elif sampling.few:
        yield Statement("few_clusters", "grave", values)


def refusal_cautions(rows: pl.DataFrame, refusals: Mapping[str, int] | None) -> Iterator[Statement]:
    """Yield the cautions that a rule may have missed refusals: it found none, or wrong answers share a sentence.

    - `rows`: one variant, one row a question, with ``first_reply``.
    - `refusals`: how many were recognised by what; without ``wording`` no rule graded.
    """
    if refusals is None or "wording" not in refusals:
        return
    answered = rows.filter(pl.col("refused").not_())
    if answered.height and not rows["refused"].any():
        yield Statement("no_refusals_found", "note", {"answered": answered.height})
    wrong = answered.filter("wrong")
    sentences = wrong.select(sentence=_first_sentence(pl.col("first_reply"))).filter(_is_sentence(pl.col("sentence")))
    same = sentences.group_by(pl.col("sentence").str.to_lowercase().alias("key")).agg(pl.len(), pl.first("sentence"))
    most = same.sort("len", "key", descending=[True, False]).head(1)
    for _, count, sentence in most.iter_rows():
        if count >= FEWEST_REPEATED and count > REPEATED_LIMIT * wrong.height:
            yield Statement("repeated_sentence", "grave", {"sentence": sentence, "count": count, "wrong": wrong.height})


def _first_sentence(reply: pl.Expr) -> pl.Expr:
    """Return how a reply begins, without tags and reasoning and on one line."""
    plain = reply.str.replace_all(
        r"(?s)<(?:think|thinking|reasoning)>.*?</(?:think|thinking|reasoning)>|</?answer>", ""
    )
    plain = plain.str.replace_all(r"\s+", " ").str.strip_chars()
    return pl.coalesce(plain.str.extract(r"^(.+?[.!?\x{3002}])(?: |$)"), plain).str.slice(0, LONGEST_QUOTED)


def _is_sentence(text: pl.Expr) -> pl.Expr:
    return text.str.count_matches(" ").ge(FEWEST_WORDS - 1) | text.str.contains(r"\x{3002}")


def _estimate(table: ContingencyTable, estimate: Estimate) -> Iterator[Statement]:
    if estimate.status == "undefined":
        yield Statement("undefined", "grave", {"reason": estimate.reason})
    elif estimate.status == "boundary" and estimate.low is not None:
        cells = (estimate.reason or "").removeprefix("zero_cell:").split("+")
        ends = {"low": estimate.low, "high": estimate.high}
        yield Statement("boundary", "grave", {"estimate": estimate.estimate, **ends, "cells": cells})
    if table.n > 0 and 1 - table.error_rate < KNOWLEDGE_LIMIT and estimate.reason != "all_wrong":
        right = table.refused_right + table.answered_right
        yield Statement("next_to_no_knowledge", "grave", {"right": right, "n": table.n})
    elif estimate.status == "ok":
        yield from _small_cells(table)


def _small_cells(table: ContingencyTable) -> Iterator[Statement]:
    """Yield a caution about the smallest cell, found or expected if refusal and error were unrelated."""
    found = dict(zip(CELL_NAMES, table.counts, strict=True))
    expected = expected_counts(table)
    smallest = min(CELL_NAMES, key=lambda cell: min(found[cell], expected[cell]))
    if min(found[smallest], expected[smallest]) >= SMALL_CELL:
        return
    right = table.refused_right + table.answered_right
    by_right = smallest in ("refused_right", "answered_right") and right <= table.n - right
    values = {"cell": smallest, "found": found[smallest], "expected": expected[smallest], "right": right}
    yield Statement("few_right_answers" if by_right else "small_cell", "grave", values)


def expected_counts(table: ContingencyTable) -> dict[str, float]:
    """Return the four counts to be expected if refusal and error were unrelated, from the margins.

    >>> expected_counts(ContingencyTable(40, 10, 20, 30))
    {'refused_wrong': 30.0, 'refused_right': 20.0, 'answered_wrong': 30.0, 'answered_right': 20.0}
    """
    wrong = table.refused_wrong + table.answered_wrong
    margins = [(a, b) for a in (table.n_refused, table.n_answered) for b in (wrong, table.n - wrong)]
    return {cell: a * b / table.n for cell, (a, b) in zip(CELL_NAMES, margins, strict=True)}


def _forced_not_asked(completeness: Completeness, *, only_first: bool) -> Iterator[Statement]:
    lacking = completeness.reasons.get(FORCED_NOT_ASKED, 0)
    if lacking:
        exact = completeness.unscored == lacking and only_first
        yield Statement(FORCED_NOT_ASKED, "grave", {"questions": lacking, "others_are_exact": exact})


def _incomplete(completeness: Completeness, *, only_first: bool) -> Iterator[Statement]:
    """Yield a caution if too much is missing; of a first pass that was never forced, of that pass alone."""
    reasons = {name: n for name, n in completeness.reasons.items() if not (only_first and name == FORCED_NOT_ASKED)}
    missing, asked = sum(reasons.values()), completeness.asked
    if too_many_missing(missing, asked):
        values = {"missing": missing, "asked": asked, "reasons": reasons, "only_first": only_first}
        yield Statement("incomplete", "grave", values)


def _unscored_refusals(
    table: ContingencyTable, completeness: Completeness, missing: MissingRange | None
) -> Iterator[Statement]:
    """Yield a caution if refused questions fail more often; what was never asked for is no failure."""
    if missing is None:
        return
    failed = missing.refused - completeness.reasons.get(FORCED_NOT_ASKED, 0)
    failures = failures_by_refusal(table, failed, missing.answered)
    if failures is not None:
        ends = missing_bounds(table, unknown_refused=failures.refused_failed)
        values = {**asdict(failures), "level": LEVEL, "low": ends.low, "high": ends.high}
        yield Statement("unscored_refusals", "grave", values)


def _forced_refusals(forced: ForcedRefusals) -> Iterator[Statement]:
    if forced.share is not None and forced.share > FORCED_REFUSAL_LIMIT:
        yield Statement("forced_refusals", "grave", {"refused": forced.refused, "asked": forced.asked})


def draws_cautions(
    outcomes: pl.DataFrame, draws: DrawsSummary | None, further: Completeness | None
) -> Iterator[Statement]:
    """Yield the cautions about repeated draws: some are missing, cannot be used, or are too few."""
    if further is None:
        return
    if not further.is_enough:
        values = {"missing": further.unscored, "asked": further.asked, "reasons": further.reasons}
        yield Statement("incomplete_draws", "grave", values)
    scored = outcomes.drop_nulls(["refused", "wrong"])
    repeated = scored.filter(pl.len().over("question_id") > 1)["question_id"].n_unique()
    if draws is None and repeated:
        yield Statement("repeated_draws_unused", "grave", {"questions": repeated})
    elif draws is not None and draws.questions < FEW_REPEATED:
        yield Statement("few_repeated", "grave", {"questions": draws.questions, "limit": FEW_REPEATED})
