"""The runs of a gate, judged by its guards, and what becomes of these when missing answers are imputed.

A guard on RI leaves out the questions that the forced pass refused again, in either run: as the paper scores them, as
wrong, each of them raises RI. `imputation` fills in what is left out, and what has no grade, under assumptions that
count against the verdict, of one run at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

import polars as pl

from refusal_index import stats
from refusal_index.data import rates
from refusal_index.data.analysis import DEFAULT_ANALYSIS, Analysis
from refusal_index.findings import imputation
from refusal_index.findings.comparison import (
    PairComparison,
    VariantComparison,
)
from refusal_index.findings.gate_policy import INDICES, Policy
from refusal_index.findings.guards import (
    Interval,
    NamedGuard,
    bound_guards,
    margin_guards,
    undefined_guards,
)
from refusal_index.findings.matching import match, match_by_answerable
from refusal_index.findings.metrics import CORRECTED, INDEX
from refusal_index.findings.run_results import RunResults
from refusal_index.stats.baseline import rate_or_score
from refusal_index.stats.contingency import ContingencyTable
from refusal_index.stats.estimate import NO_INTERVAL
from refusal_index.stats.non_inferiority import (
    Guard,
    GuardTest,
    judge_guards,
)

Rows = Mapping[str, pl.DataFrame]
"""The outcomes of the runs of a gate: of ``"candidate"``, and of ``"baseline"`` if there is one."""


CONCORDANT = ("refused_wrong", "answered_right")
"""The cells that raise RI."""

DISCORDANT = ("refused_right", "answered_wrong")
"""The cells that lower it."""


@dataclass(frozen=True)
class RefusedAgain:
    """How often the forced pass of a run refused again, and what that does to RI."""

    count: int
    refusals: int  # questions that the first pass refused
    metric: str  # RI, or corrected RI if that alone is guarded
    index: float | None  # without the questions that either run refused again; None if undefined
    index_as_scored: float | None  # if they count as wrong, as in the paper

    @property
    def share(self) -> float:
        """Of the refusals; 0 if there are none."""
        return self.count / self.refusals if self.refusals else 0.0


@dataclass(frozen=True)
class TippingPoint:
    """The number of missing answers in the worst cells with which a guard no longer passes."""

    run: str  # candidate or baseline
    metric: str
    missing: int  # of the run's answers
    # the worst ones, of `imputation.CELLS`; several if what is known of an answer excludes the worst
    cells: tuple[str, ...]
    count: int | None  # None if the guard passes even if all of them fall into these


@dataclass(frozen=True, eq=False)
class JudgedRuns:
    """The runs of a gate under one variant, and what they are judged by.

    Attributes
    ----------
    runs
        By role, candidate first.
    rows
        The outcomes of each; a question that is absent has a row without a grade.
    analysis
        How their metrics are computed.
    """

    runs: Mapping[str, RunResults]
    rows: Rows
    policy: Policy
    analysis: Analysis = DEFAULT_ANALYSIS

    @cached_property
    def rows_for_index(self) -> Rows:
        """The outcomes without the grades of what was refused again, on which guards of an index rest."""
        return {role: imputation.without_refused_again(rows) for role, rows in self.rows.items()}

    @cached_property
    def guards(self) -> tuple[NamedGuard, ...]:
        """Every guard, with the intervals that imputation gives it."""
        return tuple(replace(named, guard=self._with_imputed(named)) for named in self._guards_left_out)

    @cached_property
    def _guards_as_scored(self) -> tuple[NamedGuard, ...]:
        """The guards on RI and corrected RI if what was refused again counts as wrong, as in the paper."""
        return tuple(self._guards_of(self.rows, is_index))

    @cached_property
    def _guards_left_out(self) -> tuple[NamedGuard, ...]:
        found = [
            *self._guards_of(self.rows, lambda name: not is_index(name)),
            *self._guards_of(self.rows_for_index, is_index),
        ]
        order = [*self.policy.margins, *self.policy.at_least, *self.policy.at_most]
        return tuple(sorted(found, key=lambda named: (not named.against_baseline, order.index(named.guard.name))))

    def _guards_of(self, rows: Rows, chosen: Callable[[str], bool]) -> Iterator[NamedGuard]:
        """Yield the guards on the chosen metrics, given the outcomes of the runs."""
        margins = _chosen(self.policy.margins, chosen)
        if margins and "baseline" in rows:
            compared = self._compared(rows, with_corrected=CORRECTED in margins)
            if not compared.match.paired and self._are_paired:
                yield from undefined_guards(margins)
            elif compared.match.paired:
                yield from margin_guards(compared, margins)
        bounds = {True: _chosen(self.policy.at_least, chosen), False: _chosen(self.policy.at_most, chosen)}
        if any(bounds.values()):
            yield from bound_guards(self.runs["candidate"], rows["candidate"], bounds, self.analysis)

    @cached_property
    def _are_paired(self) -> bool:
        """Whether the runs share enough questions before any is left out."""
        runs = self._runs_with(self.rows)
        return match(runs, [next(iter(run.tables)) for run in runs]).paired

    def _runs_with(self, rows: Rows) -> tuple[RunResults, ...]:
        """Return the runs with other outcomes."""
        return tuple(run.with_tables(dict.fromkeys(run.tables, rows[role])) for role, run in self.runs.items())

    def _compared(self, rows: Rows, *, with_corrected: bool) -> VariantComparison:
        runs = self._runs_with(rows)
        if with_corrected:
            return PairComparison(runs, self.analysis).variants[0]
        matched = match(runs, [next(iter(run.tables)) for run in runs])
        comparison = stats.compare_metrics(
            *matched.matrix.arrays,
            weighted_score_p=self.analysis.payoffs.weighted_score_p,
            truthfulness_weights=self.analysis.payoffs.truthfulness,
            **matched.matrix.design,
        )
        return VariantComparison("", matched, comparison, None, match_by_answerable(list(rows.values())))

    def _with_imputed(self, named: NamedGuard) -> Guard:
        """Add an interval for each run and each reason for which its answers are missing."""
        intervals = [
            self._imputed_interval(named, role, reason)
            for role in self._roles(named)
            for reason, chosen in self._missing_by_reason(named.guard.name, role).items()
            if chosen.any()
        ]
        return replace(named.guard, imputed=tuple(intervals))

    def _to_impute(self, name: str, role: str) -> pl.DataFrame:
        """Return the rows of a run in which all answers that are missing for a metric have no grade."""
        rows = (self.rows_for_index if is_index(name) else self.rows)[role]
        return imputation.with_forced_grades(rows) if name == CORRECTED else rows

    def _missing_by_reason(self, name: str, role: str) -> dict[str, pl.Series]:
        """Return which rows of a run have no grade, and which are missing for RI because they were refused again."""
        rows = self.rows[role]
        missing = imputation.is_missing(imputation.with_forced_grades(rows) if name == CORRECTED else rows)
        if not is_index(name):
            return {"missing": missing}
        return {"missing": missing, "refused_again": imputation.is_missing(self._to_impute(name, role)) & ~missing}

    def _imputed_interval(self, named: NamedGuard, role: str, reason: str) -> Interval:
        """Return the interval of a guard after answers of one run were imputed, which happens when it is first used."""
        name = named.guard.name

        @cache
        def after_imputation() -> Guard | None:
            rows = self.rows_for_index if is_index(name) else self.rows
            chosen = self._missing_by_reason(name, role)[reason]
            table = imputation.imputed(self._to_impute(name, role), self._adverse(named, role), chosen=chosen)
            if name == CORRECTED:
                table = imputation.filled_in(rows[role], table)
            return self._like(named, {**rows, role: table})

        def interval(level: float) -> stats.ConfidenceInterval:
            guard = after_imputation()
            return NO_INTERVAL if guard is None else guard.interval(level)

        return interval

    def _like(self, named: NamedGuard, rows: Rows) -> Guard | None:
        """Return the same guard, given other outcomes of the runs; None if the runs then share too few questions."""
        found = self._guards_of(rows, lambda metric: metric == named.guard.name)
        return next((other.guard for other in found if _key(other) == _key(named)), None)

    def _adverse(self, named: NamedGuard, role: str) -> tuple[str, ...]:
        """Return the cells of a run that count against a guard, the worst first."""
        wanted_high = named.guard.higher_is_better is (role == "candidate")
        sign = 1 if wanted_high else -1
        name = named.guard.name
        rows = self._to_impute(name, role)
        metric = INDEX if is_index(name) else rates.BY_ANSWERABLE.get(name, name)
        effects = _effects(metric, rates.contingency_table(rates.first_draws(rows)), self.analysis)
        adverse: tuple[str, ...]
        if metric == INDEX:
            adverse = DISCORDANT if wanted_high else CONCORDANT
        else:
            adverse = tuple(cell for cell, effect in effects.items() if sign * effect < -ROUNDING)
        return tuple(sorted(adverse, key=lambda cell: sign * effects[cell]))

    @property
    def _index(self) -> str:
        """RI if it is guarded, else corrected RI."""
        return INDEX if any(named.guard.name == INDEX for named in self._guards_left_out) else CORRECTED

    @cached_property
    def refused_again(self) -> Mapping[str, RefusedAgain]:
        """What was refused again, and what it does to RI, of each run; empty if no run refused any question again."""
        if not any(count for count, _ in self._counts_again.values()):
            return {}
        return {
            role: RefusedAgain(
                count,
                refusals,
                metric=self._index,
                index=_number_of(self._index, role, self._guards_left_out),
                index_as_scored=_number_of(self._index, role, self._guards_as_scored),
            )
            for role, (count, refusals) in self._counts_again.items()
        }

    def refused_too_often(self, named: NamedGuard) -> tuple[str, ...]:
        """Return the runs that refused again too often for a guard on an index to be judged.

        For corrected RI, every draw counts, and what the first pass answered and the forced pass refused.
        """
        name = named.guard.name
        if not is_index(name):
            return ()
        limit = self.policy.max_refused_again
        counts = [self._counts_again, self._counts_of_draws] if name == CORRECTED else [self._counts_again]
        return tuple(
            role
            for role in self._roles(named)
            if any(again > limit * refusals for again, refusals in (each[role] for each in counts))
        )

    @cached_property
    def _counts_of_draws(self) -> Mapping[str, tuple[int, int]]:
        """How many forced answers of each run were refusals, and how often it refused, over all draws."""
        return {
            role: (rows.filter(imputation.IS_FORCED_REFUSAL).height, rows.filter(pl.col("refused")).height)
            for role, rows in self.rows.items()
        }

    def _roles(self, named: NamedGuard) -> tuple[str, ...]:
        """Return the runs on which a guard rests."""
        return tuple(self.runs) if named.against_baseline else ("candidate",)

    @cached_property
    def _counts_again(self) -> Mapping[str, tuple[int, int]]:
        """How many questions each run refused again, and how many it refused."""
        first = {role: rates.first_draws(rows) for role, rows in self.rows.items()}
        return {
            role: (rows.filter(imputation.IS_REFUSED_AGAIN).height, rows.filter(pl.col("refused")).height)
            for role, rows in first.items()
        }

    def tests(self, look: stats.AtLook | None = None) -> tuple[GuardTest, ...]:
        """Test every guard; one on RI is inconclusive if a run refused again too often."""
        judged = [named.guard for named in self.guards if not self.refused_too_often(named)]
        tests = iter(judge_guards(judged, self.policy.alpha, look) if judged else ())
        return tuple(
            self._unjudged(named.guard, look) if self.refused_too_often(named) else next(tests) for named in self.guards
        )

    def _unjudged(self, guard: Guard, look: stats.AtLook | None) -> GuardTest:
        """Return the test of a guard without a verdict; it takes no part in the adjustment of the others."""
        (test,) = judge_guards([guard], self.policy.alpha, look)
        return replace(test, verdict="inconclusive", pvalue_holm=1.0, times=None)

    def tipping_point(self, look: stats.AtLook | None = None) -> TippingPoint | None:
        """Return the smallest number of one run's missing answers that keeps the candidate from passing.

        None if no answer is missing, or the candidate does not pass for another reason. What was refused again is left
        out of RI, not missing.
        """
        tests = self.tests(look)
        if not tests or any(test.verdict == "fail" or not test.is_within for test in tests):
            return None
        if any(self.refused_too_often(named) for named in self.guards):
            return None
        level = self.policy.alpha if look is None else look.level
        points = [self._tipping_point(named, role, level) for named in self.guards for role in self._roles(named)]
        found = [point for point in points if point is not None]
        first = min(found, key=lambda point: math.inf if point.count is None else point.count, default=None)
        passes_anyway = first is not None and first.count is None
        return None if passes_anyway and any(test.is_blocked for test in tests) else first

    def _tipping_point(self, named: NamedGuard, role: str, level: float) -> TippingPoint | None:
        """Return how many missing answers of a run keep a guard from passing if each is in the worst possible cell."""
        name = named.guard.name
        # only corrected RI depends on further draws, and on the forced grades of what was answered
        of_run = self.rows[role]
        rows = imputation.with_forced_grades(of_run) if name == CORRECTED else rates.first_draws(of_run)
        missing = int(imputation.is_missing(rows).sum())
        adverse = self._adverse(named, role)
        if not missing or not adverse:
            return None

        def passes(count: int) -> bool:
            completed = imputation.imputed_in_cells(rows, adverse, count)
            if name == CORRECTED:
                completed = imputation.filled_in(of_run, completed)
            tables = {**self.rows, role: completed}
            if is_index(name):
                tables = {each: imputation.without_refused_again(table) for each, table in tables.items()}
            guard = self._like(named, tables)
            return guard is not None and guard.reach(level)[0] > 0

        if passes(missing):
            return TippingPoint(role, name, missing, imputation.cells_used(rows, adverse, missing), None)
        # the guard passes below `low`, and not at `high`
        low = 0
        high = missing
        while low < high:
            middle = (low + high) // 2
            if passes(middle):
                low = middle + 1
            else:
                high = middle
        return TippingPoint(role, name, missing, imputation.cells_used(rows, adverse, max(high, 1)), high)


ROUNDING = 1e-12
"""An effect this small is none."""


def is_index(name: str) -> bool:
    """Whether a metric is RI or corrected RI, of which a guard leaves out what was refused again."""
    return name in INDICES


def _chosen(limits: Mapping[str, float], chosen: Callable[[str], bool]) -> dict[str, float]:
    return {name: limit for name, limit in limits.items() if chosen(name)}


def _number_of(metric: str, role: str, guards: Sequence[NamedGuard]) -> float | None:
    """Return a metric of a run on the questions of the first guard on it."""
    return next((getattr(named, role) for named in guards if named.guard.name == metric), None)


def _key(named: NamedGuard) -> tuple[str, bool, bool]:
    """Return what tells one guard from the others: a metric may have a margin and two bounds."""
    return named.guard.name, named.against_baseline, named.guard.higher_is_better


def _effects(name: str, table: ContingencyTable, analysis: Analysis) -> dict[str, float]:
    """Return by how much one more question in each cell changes a metric; 0 where it is undefined."""
    before = _value(name, table, analysis)
    effects = {}
    for cell in imputation.CELLS:
        after = _value(name, replace(table, **{cell: getattr(table, cell) + 1}), analysis)
        effects[cell] = 0.0 if before is None or after is None else after - before
    return effects


def _value(name: str, table: ContingencyTable, analysis: Analysis) -> float | None:
    if name == INDEX:
        return stats.refusal_index(table).estimate
    return rate_or_score(name, table, analysis.payoffs, 0.9).estimate
