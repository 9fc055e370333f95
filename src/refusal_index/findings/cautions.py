"""What a reader must know before believing a number: each caution has a stable code and one plain message.

The codes are ``undefined``, ``boundary``, ``next_to_no_knowledge``, ``few_right_answers``, ``small_cell``,
``incomplete``, ``unscored_refusals``, ``forced_refusals``, ``forced_not_asked``, ``one_cluster``,
``few_clusters``, ``incomplete_draws``, ``repeated_draws_unused`` and ``few_repeated``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from refusal_index.data.outcome import FORCED_NOT_ASKED
from refusal_index.data.rates import MISSING_LIMIT, Completeness, ForcedRefusals
from refusal_index.data.sampling import SamplingSummary
from refusal_index.findings.draws import DrawsSummary
from refusal_index.findings.sensitivity import LEVEL, MissingRange, failures_by_refusal
from refusal_index.stats import CELL_NAMES, ContingencyTable, Estimate, missing_bounds
from refusal_index.stats.design import FEW_CLUSTERS, ONE_CLUSTER

FORCED_REFUSAL_LIMIT = 0.05
"""Share of refusals among the forced answers above which the forced pass did not force enough."""

KNOWLEDGE_LIMIT = 0.01
"""Share of right answers under forced answering below which there is no knowledge for refusals to follow."""

SMALL_CELL = 5
"""Questions in a cell, found or to be expected, below which the usual coverage of the interval is not warranted."""

_CELLS = {
    "refused_wrong": "refused and wrong when forced",
    "refused_right": "refused but right when forced",
    "answered_wrong": "answered and wrong",
    "answered_right": "answered and right",
}

_UNDEFINED = {
    "no_questions": "no question could be scored",
    "nobody_refused": "no question was refused, and who never refuses does not show what the refusals are worth",
    "everybody_refused": "every question was refused, and who always refuses makes no choice that could be judged",
    "all_wrong": "every answer was wrong, even when forced: where nothing is known, no refusal can be a mistake",
    "all_right": "every answer was right, even when forced: where all is known, no refusal can be well placed",
}


FEW_REPEATED = 50
"""Questions sampled more than once below which their reliabilities are mostly chance."""


@dataclass(frozen=True)
class Caution:
    """A warning beside a result."""

    code: str  # for programs; it stays the same over releases
    message: str  # for people: one sentence


def cautions(
    table: ContingencyTable,
    refusal_index: Estimate,
    completeness: Completeness,
    missing: MissingRange | None,
    forced: ForcedRefusals,
) -> tuple[Caution, ...]:
    """Collect what must be said about one variant, the gravest first.

    - `table`: its counts.
    - `refusal_index`: the estimate made from them.
    - `completeness`, `missing`, `forced`: what is missing, and how often the forced pass refused.
    """
    return (
        *_about_forced_answers_not_asked(refusal_index, completeness),
        *_about_estimate(table, refusal_index),
        *_about_missing(refusal_index, completeness),
        *_about_unscored_refusals(table, completeness, missing),
        *_about_forced_refusals(forced),
    )


def sampling_cautions(sampling: SamplingSummary | None) -> Iterator[Caution]:
    """Yield what must be said of clusters and weights, if there are any."""
    if sampling is None:
        return
    if sampling.clusters == 1:
        yield Caution(
            ONE_CLUSTER,
            f"All questions belong to one cluster (column {sampling.cluster!r}), which says nothing on how clusters "
            "differ: there is no interval.",
        )
    elif sampling.few:
        yield Caution(
            "few_clusters",
            f"The questions come in {sampling.clusters:,} clusters (column {sampling.cluster!r}): below {FEW_CLUSTERS} "
            "an interval rests on an approximation, and should be taken for a rough one.",
        )


def _about_estimate(table: ContingencyTable, estimate: Estimate) -> Iterator[Caution]:
    if estimate.reason == FORCED_NOT_ASKED:
        return
    if estimate.status == "undefined":
        why = _UNDEFINED.get(estimate.reason or "", f"reason: {estimate.reason}")
        yield Caution("undefined", f"RI is undefined: {why}.")
    elif estimate.status == "boundary" and estimate.low is not None:
        yield _boundary(estimate)
    if _knows_next_to_nothing(table) and estimate.reason != "all_wrong":
        yield _no_knowledge(table)
    elif estimate.status == "ok":
        yield from _small_cells(table)


def _boundary(estimate: Estimate) -> Caution:
    empty = (estimate.reason or "").removeprefix("zero_cell:").split("+")
    cells = " and none ".join(_CELLS.get(cell, cell) for cell in empty)
    return Caution(
        "boundary",
        f"RI lies at its limit of {estimate.estimate:+.0f} because no question is {cells}; chance "
        f"alone can empty a small cell, so go by the interval from {estimate.low:.2f} to {estimate.high:.2f}, not by "
        "the number.",
    )


def _knows_next_to_nothing(table: ContingencyTable) -> bool:
    return table.n > 0 and 1 - table.error_rate < KNOWLEDGE_LIMIT


def _no_knowledge(table: ContingencyTable) -> Caution:
    right = table.refused_right + table.answered_right
    return Caution(
        "next_to_no_knowledge",
        f"The model got {right:,} of {table.n:,} questions right ({right / table.n:.2%}) even when it had to answer: a "
        "model that knows next to nothing of the questions has nothing for its refusals to follow, and its RI, made of "
        "lucky hits, is meaningless.",
    )


def _small_cells(table: ContingencyTable) -> Iterator[Caution]:
    """Yield a caution for the smallest cell, found or to be expected if refusal and error were unrelated."""
    found = dict(zip(CELL_NAMES, table.counts, strict=True))
    expected = expected_counts(table)
    smallest = min(CELL_NAMES, key=lambda cell: min(found[cell], expected[cell]))
    if min(found[smallest], expected[smallest]) >= SMALL_CELL:
        return
    right = table.refused_right + table.answered_right
    by_right = smallest in ("refused_right", "answered_right") and right <= table.n - right
    found_there = (
        f"{_count(found[smallest], 'question')} {'was' if found[smallest] == 1 else 'were'} {_CELLS[smallest]}"
    )
    rests_on = _count(right, "right answer") if by_right else "these few"
    yield Caution(
        "few_right_answers" if by_right else "small_cell",
        f"{found_there} ({expected[smallest]:.1f} to be expected if refusals were unrelated to errors): RI rests on "
        f"{rests_on}, and a few more or less would change it much.",
    )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def expected_counts(table: ContingencyTable) -> dict[str, float]:
    """Give the four counts to be expected if refusal and error were unrelated, from the margins.

    >>> expected_counts(ContingencyTable(40, 10, 20, 30))
    {'refused_wrong': 30.0, 'refused_right': 20.0, 'answered_wrong': 30.0, 'answered_right': 20.0}
    """
    wrong = table.refused_wrong + table.answered_wrong
    margins = [(a, b) for a in (table.n_refused, table.n_answered) for b in (wrong, table.n - wrong)]
    return {cell: a * b / table.n for cell, (a, b) in zip(CELL_NAMES, margins, strict=True)}


def _about_forced_answers_not_asked(estimate: Estimate, completeness: Completeness) -> Iterator[Caution]:
    lacking = completeness.reasons.get(FORCED_NOT_ASKED, 0)
    if not lacking:
        return
    exact = completeness.unscored == lacking and estimate.reason == FORCED_NOT_ASKED
    without = "no error rate and no RI; the other rates are exact" if exact else "no RI"
    yield Caution(
        FORCED_NOT_ASKED,
        f"{lacking:,} refused questions still lack their forced answers, without which there is {without}: "
        "'refusal-index force' asks for them.",
    )


def _about_missing(estimate: Estimate, completeness: Completeness) -> Iterator[Caution]:
    """Yield a caution where too much is missing; of a first pass that was never forced, of that pass alone."""
    only_first = estimate.reason == FORCED_NOT_ASKED
    reasons = {name: n for name, n in completeness.reasons.items() if not (only_first and name == FORCED_NOT_ASKED)}
    missing = sum(reasons.values())
    if missing <= MISSING_LIMIT * completeness.asked:
        return
    listed = ", ".join(f"{reason} {count:,}" for reason, count in reasons.items())
    biased = (
        "what is missing is rarely a fair sample, and what rests on these grades may be biased"
        if only_first
        else "a refused question takes more requests, so what is missing is rarely a fair sample, and every rate here "
        "and RI may be biased"
    )
    yield Caution(
        "incomplete",
        f"{missing:,} of {completeness.asked:,} questions ({missing / completeness.asked:.1%}) could not be scored "
        f"({listed}): {biased}.",
    )


def _about_unscored_refusals(
    table: ContingencyTable, completeness: Completeness, missing: MissingRange | None
) -> Iterator[Caution]:
    """Yield a caution where failures go with refusals; that nobody asked for forced answers is no failure."""
    if missing is None:
        return
    failed = missing.refused - completeness.reasons.get(FORCED_NOT_ASKED, 0)
    found = failures_by_refusal(table, failed, missing.answered)
    if found is None:
        return
    ends = missing_bounds(table, unknown_refused=found.refused_failed)
    moved = (
        "" if ends.low is None else f", and RI anything from {ends.low:.3f} to {ends.high:.3f} by their answers alone"
    )
    yield Caution(
        "unscored_refusals",
        f"Failures go with refusals: {found.refused_failed:,} of {found.refused:,} refused questions "
        f"({found.refused_failed / found.refused:.1%}) could not be scored, and {found.answered_failed:,} of "
        f"{found.answered:,} answered ones ({found.answered_failed / found.answered:.1%}; one-sided Fisher's exact "
        f"test, p = {found.pvalue:.2g}, level {LEVEL:g}). Without them the refusal rate is too low{moved}.",
    )


def _about_forced_refusals(forced: ForcedRefusals) -> Iterator[Caution]:
    if forced.share is not None and forced.share > FORCED_REFUSAL_LIMIT:
        yield Caution(
            "forced_refusals",
            f"{forced.refused:,} of {forced.asked:,} forced answers ({forced.share:.1%}) refused again: they count as "
            "wrong, which makes this RI an upper bound; a prompt that forces better would narrow the doubt.",
        )


def draws_cautions(
    outcomes: pl.DataFrame, draws: DrawsSummary | None, further: Completeness | None
) -> Iterator[Caution]:
    """Yield what must be said of repeated draws: that some are missing, cannot be used, or are too few to tell much."""
    if further is None:
        return
    if not further.is_enough:
        listed = ", ".join(f"{reason} {count:,}" for reason, count in further.reasons.items())
        yield Caution(
            "incomplete_draws",
            f"{further.unscored:,} of {further.asked:,} further draws ({further.unscored / further.asked:.1%}) could "
            f"not be scored ({listed}): corrected RI rests on them, and what is missing is rarely a fair sample.",
        )
    scored = outcomes.drop_nulls(["refused", "wrong"])
    repeated = scored.filter(pl.len().over("question_id") > 1)["question_id"].n_unique()
    if draws is None and repeated:
        yield Caution(
            "repeated_draws_unused",
            f"{repeated:,} questions have several draws, but corrected RI needs a graded forced answer in every draw, "
            "whether the first pass refused or answered (column 'forced_grade'). RI uses first draws.",
        )
    elif draws is not None and draws.questions < FEW_REPEATED:
        yield Caution(
            "few_repeated",
            f"Only {draws.questions:,} questions were sampled more than once: too few to estimate how random the model "
            f"is. Corrected RI needs {FEW_REPEATED:,} or more; run with a higher --limit and --draws 2.",
        )
