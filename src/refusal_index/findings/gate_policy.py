"""Policies of a release gate (margins, bounds, significance level, looks), their guards, and changed questions."""

from __future__ import annotations

import math
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import numpy as np
import polars as pl

from refusal_index import stats
from refusal_index.data import rates
from refusal_index.data.files import plain, read_plain
from refusal_index.data.folder import ComparedRun, Match
from refusal_index.data.run_json import MAX_LOOKS, GateLooks, Stop, is_deterministic
from refusal_index.errors import OutcomeTableError, RefusalIndexError, RunFolderError, listed, shortened, suggestion
from refusal_index.findings.comparison import Difference, VariantComparison, both_numbers
from refusal_index.findings.draws import NO_REPEATED_QUESTIONS, corrected_indices
from refusal_index.findings.metrics import CORRECTED, INDEX, METRICS
from refusal_index.findings.summary import VariantSummary
from refusal_index.stats import AtLook, GroupSequential
from refusal_index.stats.baseline import DEFAULT_PAYOFFS, Payoffs, checked_payoffs, rate_or_score
from refusal_index.stats.contingency import AnyTable, effective_number
from refusal_index.stats.corrected import influence_range
from refusal_index.stats.estimate import NO_INTERVAL
from refusal_index.stats.intervals import normal_quantile
from refusal_index.stats.non_inferiority import Guard, constant_interval, pvalue_of_none, questions_if_equal

MARGINS: Mapping[str, float] = MappingProxyType(
    {"refusal_index": 0.1, "correct_rate": 0.05, "correct_given_attempted": 0.05, "refusal_rate": 0.1}
)
"""Default margins: how much worse than the baseline a candidate may be.

These four are always guarded: an index alone can be kept by a model that knows less, and rates alone by one that
refuses the wrong questions. With the policy's `metric` the corrected index takes the place of RI.
"""

INDICES = ("refusal_index", "corrected_refusal_index")
"""The indices that a policy's `metric` can select."""

MAX_BYTES = 1 << 20
"""Largest policy file, in bytes."""


class PolicyError(RefusalIndexError, ValueError):
    """Raised for an invalid policy; the message names the key."""


@dataclass(frozen=True)
class Policy:
    """The requirements of a gate.

    Attributes
    ----------
    margins
        By metric, by how much worse than the baseline the candidate may be; those of `MARGINS` are always there.
    metric
        Which index is guarded unless told otherwise: ``"refusal_index"``, or ``"corrected_refusal_index"``, for which
        both runs must have been sampled more than once. Without it the verdict is inconclusive.
    at_least, at_most
        By metric, fixed bounds of the candidate's own number, whatever the baseline.
    alpha
        Probability of passing a candidate that is beyond a limit, and that of failing one that is within all.
    max_missing
        Largest share of the questions without a grade with which a run can pass.
    variant
        The prompt variant to judge by; None where both have only one in common.

    Examples
    --------
    >>> Policy(margins={"refusal_index": 0.15}).margins["refusal_index"]
    0.15
    """

    margins: Mapping[str, float] = field(default_factory=dict)
    at_least: Mapping[str, float] = field(default_factory=dict)
    at_most: Mapping[str, float] = field(default_factory=dict)
    alpha: float = 0.05
    max_missing: float = rates.MISSING_LIMIT
    variant: str | None = None
    metric: str = INDICES[0]

    def __post_init__(self) -> None:
        for name in TABLES:
            _check_numbers(name, getattr(self, name))
        for metric in self.at_least:
            if metric in self.at_most and self.at_least[metric] > self.at_most[metric]:
                raise PolicyError(
                    f"at_least, {metric}: expected no more than its at_most, {self.at_most[metric]:g}, got "
                    f"{self.at_least[metric]:g}; no value can meet both"
                )
        if not (_is_number(self.alpha) and 0 < self.alpha < 0.5):
            raise PolicyError(f"alpha: expected a number above 0 and below 0.5, got {shortened(self.alpha)}")
        if not (_is_number(self.max_missing) and 0 <= self.max_missing < 1):
            raise PolicyError(f"max_missing: expected a number from 0 and below 1, got {shortened(self.max_missing)}")
        if self.variant is not None and not isinstance(self.variant, str):
            raise PolicyError(f"variant: expected the name of a prompt, got {shortened(self.variant)}")
        if self.metric not in INDICES:
            raise PolicyError(f"metric: expected {' or '.join(INDICES)}, got {shortened(self.metric)}")
        always = {self.metric if name == INDICES[0] else name: margin for name, margin in MARGINS.items()}
        object.__setattr__(self, "margins", MappingProxyType({**always, **self.margins}))

    @classmethod
    def from_document(cls, document: Mapping[str, Any], source: str) -> Self:
        """Parse a policy from a dictionary as in ``gate.toml``; errors name its source."""
        names = [field_.name for field_ in fields(cls)]
        for key in document:
            if key not in names:
                raise PolicyError(
                    f"{source}: expected keys from {listed(names)}, got {key!r}{suggestion(str(key), names)}"
                )
        try:
            return cls(**document)
        except PolicyError as error:
            raise PolicyError(f"{source}, {error}") from error

    def changed(self, **values: Any) -> Self:
        """Return a copy with other values; tables are merged, and None changes nothing."""
        changes = {name: value for name, value in values.items() if value is not None}
        merged = {name: {**getattr(self, name), **changes[name]} for name in TABLES if name in changes}
        return replace(self, **{**changes, **merged})

    def to_document(self) -> dict[str, Any]:
        """Return it as a JSON-serialisable dictionary."""
        return dict(plain(self))


TABLES = ("margins", "at_least", "at_most")
"""Tables of a policy, with a number for each metric."""


def read_policy(path: Path) -> Policy:
    """Read a policy from a TOML file; raises PolicyError, naming file and key, if it is invalid."""
    try:
        document = tomllib.loads(read_plain(path, MAX_BYTES).decode())
    except OSError as error:
        raise PolicyError(f"policy: {path} cannot be read ({error.strerror}); check the path") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PolicyError(f"{path}: not valid TOML: {error}") from error
    return Policy.from_document(document, str(path))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _check_numbers(name: str, table: object) -> None:
    """Raise PolicyError unless a table of the policy holds a valid number for each metric."""
    if not isinstance(table, Mapping):
        raise PolicyError(f"{name}: expected a table of metrics and numbers, got {shortened(table)}")
    for key, value in table.items():
        if key not in METRICS:
            keys = {metric.label.casefold(): key for key, metric in METRICS.items()}
            metric_name = keys.get(str(key).casefold(), str(key))  # a metric may be called as tables call it
            raise PolicyError(
                f"{name}: expected metrics from {listed(METRICS)}, got "
                f"{shortened(key)}{suggestion(metric_name, METRICS)}"
            )
        metric = METRICS[key]
        if not _is_number(value):
            raise PolicyError(f"{name}, {key}: expected a number, got {shortened(value)}")
        low = 0 if name == "margins" else metric.low
        lowest = -metric.high if name == "margins" else low  # margins with a sign have an error of their own
        if metric.setting is None and not lowest <= value <= metric.high:  # otherwise the range depends on the run
            per_cent = "; is it a percentage?" if abs(value) > metric.high == 1 else ""
            raise PolicyError(
                f"{name}, {key}: expected a number that it can be, from {low:g} to {metric.high:g}, got {value:g}"
                f"{per_cent}"
            )
        if name == "margins" and value < 0:
            raise PolicyError(
                f"margins, {key}: expected by how much worse the candidate may be, a number from 0, got {value:g}; "
                f"leave out the sign: {-value:g} allows that much"
            )


def look_of(about: Mapping[str, Any], alpha: float) -> AtLook | None:
    """Return the look at which a run is judged; None of one that is judged once.

    One that stopped is judged where it did, by O'Brien and Fleming's boundary over all the looks that were planned: at
    whichever of them a run stops, and by whatever rule, that errs no more often than alpha. One that a gate looked at
    while it was asked is judged as that gate does, also at its last look: another test there, with all of alpha, would
    be one too many.

    - `about`: what the run's folder says of how it was made.
    - `alpha`: probability of error of all looks together.
    """
    stop, gated = Stop.read(about), GateLooks.read(about)
    if stop is not None:
        sizes, size = _sizes(stop.of, stop.looks), stop.asked
        is_planned = sizes[stop.look - 1 : stop.look] == (size,)
        key, value = "stopped", f"{size:,} of {stop.of:,} questions at look {stop.look} of {stop.looks}"
    elif gated is not None:
        sizes = _sizes(gated.of, gated.looks)
        is_planned, size = bool(sizes), sizes[-1] if sizes else 0
        key, value = "gate_looks", str(gated)
    else:
        return None
    if not is_planned:
        raise RunFolderError(
            f"run.json: about, {key}: expected where a look was planned, got {value}; restore the file"
        )
    return AtLook(GroupSequential(sizes, alpha), size)


def _sizes(questions: int, looks: int) -> tuple[int, ...]:
    """Return the number of questions at each look; empty if the recorded plan is impossible."""
    return GroupSequential.planned(questions, looks).sizes if looks <= MAX_LOOKS else ()


Interval = Callable[[float], stats.ConfidenceInterval]

NEVER_REFUSES, ALWAYS_REFUSES = "candidate_refused_nothing", "candidate_refused_everything"
"""Reasons for an undefined index that count against the candidate."""

CONSTANT = "constant_difference"
"""Reason of a difference that is the same on every question, as of a model that repeats its baseline's answers."""

WEIGHED = (
    ("weighted_score", "penalty", DEFAULT_PAYOFFS.penalty),
    ("truthfulness_score", "truthfulness_weights", DEFAULT_PAYOFFS.truthfulness),
)
"""Scores with adjustable payoffs: the key in a run's folder that holds them, and the default."""


@dataclass(frozen=True)
class NamedGuard:
    """A guard, and its metric."""

    guard: Guard
    against_baseline: bool
    # first, second: the candidate's number and the baseline's; the last is None for a fixed bound
    candidate: float | None
    baseline: float | None
    reason: str | None  # why the number is undefined or at its boundary


def split_by_answerable(tables: Sequence[pl.DataFrame]) -> VariantComparison | None:
    """Compare refusals of candidate and baseline separately for answerable and unanswerable questions; None if unknown.

    - `tables`: the outcomes of either run, of one variant.
    """
    split = [rates.by_answerable(rates.first_draws(rows)) for rows in tables]
    if any(rows is None for rows in split):
        return None
    matrix = rates.outcome_matrix([rows for rows in split if rows is not None])
    matrix = matrix.of_questions(matrix.shared)
    compared = stats.compare_metrics(*matrix.arrays, **matrix.design)
    return VariantComparison("", Match(matrix, paired=True, left_out=(0, 0)), compared, None)


def margin_guards(
    compared: VariantComparison, policy: Policy, split: VariantComparison | None = None
) -> Iterator[NamedGuard]:
    """Yield a guard for each margin in the comparison of a candidate with its baseline, the index first.

    - `split`: that by whether a question has a right answer, for margins of `BY_ANSWERABLE`.
    """
    matrix = compared.match.matrix
    refused = matrix.refused[0][matrix.scored[0]]
    for name, margin in policy.margins.items():
        higher = not METRICS[name].lower_is_better
        limit = -margin if higher else margin
        source, like = (split, rates.BY_ANSWERABLE[name]) if name in rates.BY_ANSWERABLE else (compared, name)
        difference = None if source is None else source.differences().get(like)
        if source is None or difference is None:  # the corrected index of runs that were sampled once
            why = rates.ANSWERABLE_NOT_RECORDED if name in rates.BY_ANSWERABLE else NO_REPEATED_QUESTIONS
            yield NamedGuard(Guard(name, None, limit, higher), True, None, None, why)
            continue
        estimate = difference.estimate
        pvalue, reason = _missing_index(name, estimate, difference.reason, refused, matrix.design)
        is_constant = difference.reason == CONSTANT
        guard = Guard(name, estimate, limit, higher, _interval(like, difference, source.match), pvalue, is_constant)
        yield NamedGuard(guard, True, *both_numbers(difference), reason)


def questions_for_margins(variant: VariantSummary, level: float, policy: Policy) -> int | None:
    """Return the number of questions with which a candidate equal to this baseline passes with a probability of 80%.

    Its answers are taken to differ from the baseline's as those of other questions would: where they repeat, fewer are
    enough. None where a number has no interval, or no margin.

    - `variant`: of the baseline, whose intervals have the confidence level `level`.
    """
    deviations = []
    for name, margin in policy.margins.items():
        estimate = variant.metric(name)
        if estimate.low is None or estimate.high is None or not margin:
            return None
        error = (estimate.high - estimate.low) / (2 * normal_quantile(level))
        deviations.append(math.sqrt(2 * variant.table.n) * error / margin)
    return math.ceil(questions_if_equal(deviations, policy.alpha))


def bound_guards(run: ComparedRun, rows: pl.DataFrame, policy: Policy, payoffs: Payoffs) -> Iterator[NamedGuard]:
    """Yield a guard for each fixed bound on one variant of the candidate."""
    single = rates.first_draws(rows)
    table = rates.sampled_table(single) or rates.contingency_table(single)
    scored = single.drop_nulls(["refused", "wrong"])
    refused, design = scored["refused"].to_numpy(), rates.design_of(scored)
    for higher, bounds in ((True, policy.at_least), (False, policy.at_most)):
        for name, bound in bounds.items():
            estimate, why, interval = _own_number(name, run, rows, table, payoffs)
            pvalue, reason = _missing_index(name, estimate, why, refused, design)
            yield NamedGuard(Guard(name, estimate, bound, higher, interval, pvalue), False, estimate, None, reason)


def payoffs_of(runs: Sequence[ComparedRun], compared: Container[str] = ()) -> Payoffs:
    """Return what answers are worth in the scores of some runs, as their folders say it; those of the first that does.

    Raises OutcomeTableError if a score is to be compared and the runs disagree.

    - `compared`: the metrics that are compared.
    """
    payoffs: list[Any] = []
    for metric, key, default in WEIGHED:
        stated = [run.about[key] for run in runs if key in run.about]
        if metric in compared and any(value != stated[0] for value in stated):
            raise OutcomeTableError(
                f"{key}: expected the same in both runs to compare {metric}, got {' and '.join(map(str, stated))}; "
                "leave its margin out, or run both with the same one"
            )
        payoffs.append(stated[0] if stated else default)
    return checked_payoffs(*payoffs)


def check_reachable(policy: Policy, payoffs: Payoffs) -> None:
    """Raise PolicyError for a limit outside a score's range."""
    for metric, key, _ in WEIGHED:
        low, high = METRICS[metric].range(payoffs)
        ranges = {"at_least": (low, high), "at_most": (low, high), "margins": (0, high - low)}
        for name, (lowest, highest) in ranges.items():
            limit = getattr(policy, name).get(metric)
            if limit is not None and not lowest <= limit <= highest:
                raise PolicyError(
                    f"{name}, {metric}: expected a number from {lowest:g} to {highest:g}, which is what it can be with "
                    f"the run's {key}, got {limit:g}; is it a percentage?"
                )


def _interval(name: str, difference: Difference, match: Match) -> Interval:
    """Return the interval of a difference; if it is constant, the interval for zero observed changes."""
    if difference.reason != CONSTANT or difference.estimate is None:
        return difference.confidence_interval
    if isinstance(difference, stats.CorrectedDifference):
        widest, n = influence_range(difference.first), difference.n_shared
    else:
        influence = stats.metric_influence(
            *(array[:1] for array in match.matrix.arrays), metric=INDEX if name == CORRECTED else name
        )
        widest, n = float(np.ptp(influence)), len(match.matrix.question_ids)
    units, estimate = _independent(match.matrix.design, n), difference.estimate
    return lambda level: constant_interval(estimate, widest, units, level)


def _independent(design: Mapping[str, Any], n: int) -> int:
    """Return the largest effective sample size of n questions under this design."""
    cluster, weight = design.get("cluster"), design.get("weight")
    clusters = n if cluster is None else len(set(cluster.tolist()))
    return min(n, clusters, n if weight is None else int(effective_number(weight)))


def _missing_index(
    name: str, estimate: float | None, reason: str | None, refused: rates.BoolMatrix, design: Mapping[str, Any]
) -> tuple[float | None, str | None]:
    """Return the p-value of an acceptable model refusing nothing, or everything, and the reason for an undefined index.

    If the index is defined, or undefined for another reason, there is no p-value.
    """
    is_sampled = reason != NO_REPEATED_QUESTIONS
    if name in INDICES and estimate is None and is_sampled and refused.size and refused.any() == refused.all():
        return pvalue_of_none(_independent(design, refused.size)), ALWAYS_REFUSES if refused.all() else NEVER_REFUSES
    return None, reason


def _own_number(
    name: str, run: ComparedRun, rows: pl.DataFrame, table: AnyTable, payoffs: Payoffs
) -> tuple[float | None, str | None, Interval]:
    """Return the candidate's metric: estimate, status and interval."""
    if name in INDICES:
        same = [is_deterministic(run.settings)]
        index = stats.refusal_index(table) if name == INDEX else corrected_indices([rows], same)[0]
        return index.estimate, index.reason, index_interval(index)

    if name in rates.BY_ANSWERABLE:
        split = rates.by_answerable(rates.first_draws(rows))
        if split is None:
            return None, rates.ANSWERABLE_NOT_RECORDED, lambda _: NO_INTERVAL
        name, table = rates.BY_ANSWERABLE[name], rates.sampled_table(split) or rates.contingency_table(split)

    def interval(level: float) -> stats.ConfidenceInterval:
        at_level = rate_or_score(name, table, payoffs, level)
        return stats.ConfidenceInterval(*(math.nan if end is None else end for end in (at_level.low, at_level.high)))

    rate = rate_or_score(name, table, payoffs, 0.9)
    return rate.estimate, rate.reason, interval


def index_interval(index: stats.RefusalIndexResult | stats.CorrectedRefusalIndexResult) -> Interval:
    """Return the interval of an index with the given error at both ends.

    At the boundary one end may be 1 or -1, and the other then has all of the error.
    """
    if index.status == "ok":
        return index.confidence_interval
    return lambda level: index.confidence_interval((1 + level) / 2)


SHOWN = 10
"""Number of questions that are shown."""

FALSE_DISCOVERIES = 0.05
"""False discovery rate of the listed questions."""

WORTH = {"answered_right": 1.0, "refused_wrong": 0.0, "refused_right": 0.0, "answered_wrong": -1.0}
"""Worth of each of the four outcomes, used to measure a change."""


@dataclass(frozen=True)
class ChangedQuestion:
    """A question on which two models differ."""

    question_id: str
    question: str | None
    # baseline, candidate: the cell that most of its draws fall into, such as "answered_right"
    baseline: str
    candidate: str
    # draws_baseline, draws_candidate: how many of the draws that both runs have a grade for do, "3 of 5"
    draws_baseline: str
    draws_candidate: str
    # from -2, always right before and always wrong now, to 2; 0 where refusals alone changed in kind
    change: float


def most_changed(
    candidate: pl.DataFrame, baseline: pl.DataFrame, shared: Collection[str], exact: bool, limit: int = SHOWN
) -> tuple[ChangedQuestion, ...]:
    """Find questions that changed significantly, largest changes first, losses before gains.

    The draws that both runs have of a question are exchanged in every possible way; how often the mean worth then
    differs by at least as much is an exact p-value (permutation test). Benjamini and Hochberg's procedure keeps the
    share of questions listed by chance at `FALSE_DISCOVERIES`.

    - `candidate`, `baseline`: rows of one variant each, all draws.
    - `shared`: ids of the questions to compare.
    - `exact`: whether both models are deterministic, so that every change is beyond sampling noise.
    """
    both = _matched(candidate, baseline, shared)
    if not exact:
        from scipy.stats import false_discovery_control  # noqa: PLC0415 - takes half a second to import

        pvalues = [
            permutation_pvalue(tuple(now), tuple(before))
            for now, before in both.select("worths", "worths_before").iter_rows()
        ]
        adjusted = false_discovery_control(pvalues) if pvalues else []
        both = both.filter(pl.Series(list(adjusted), dtype=pl.Float64) <= FALSE_DISCOVERIES)
    changed = both.filter(pl.col("change") != 0).sort(
        pl.col("change").abs(), -pl.col("change"), "question_id", descending=[True, True, False]
    )
    columns = ("question_id", "question", "cell_before", "cell", "draws_before", "draws", "change")
    return tuple(ChangedQuestion(*row) for row in changed.select(columns).head(limit).iter_rows())


def change_limit(candidate: pl.DataFrame, baseline: pl.DataFrame, shared: Collection[str], exact: bool) -> str | None:
    """Return the code of the reason why no single question can change significantly; None if one can."""
    both = _matched(candidate, baseline, shared)
    samples = 0 if exact else max(map(len, both["worths"]), default=0)
    if samples < 2:
        return "single_responses" if samples else None
    # A question that went from always right to always wrong has the smallest p-value there is.
    smallest = both.height * 2 / math.comb(2 * samples, samples)
    return "too_few_samples" if smallest > FALSE_DISCOVERIES else None


@cache
def permutation_pvalue(first: tuple[float, ...], second: tuple[float, ...]) -> float:
    """Return the share of all exchanges of two samples that move their means at least as far apart as they are.

    >>> permutation_pvalue((1.0,) * 5, (-1.0,) * 5), permutation_pvalue((1.0, 1.0), (-1.0, -1.0))
    (0.007936507936507936, 0.3333333333333333)
    """
    values, m = first + second, len(first)
    total, observed = sum(values), abs(sum(first) / m - sum(second) / len(second))
    ways: Counter[tuple[int, float]] = Counter({(0, 0.0): 1})
    for value in values:
        ways += Counter({(size + 1, subtotal + value): count for (size, subtotal), count in ways.items() if size < m})
    distances = {subtotal: abs(subtotal / m - (total - subtotal) / len(second)) for size, subtotal in ways if size == m}
    return sum(
        ways[m, subtotal] for subtotal, distance in distances.items() if distance >= observed - 1e-9
    ) / math.comb(len(values), m)


def _matched(candidate: pl.DataFrame, baseline: pl.DataFrame, shared: Collection[str]) -> pl.DataFrame:
    """Return the draws that are graded in both runs side by side, one row per question."""
    ids = pl.DataFrame({"question_id": list(shared)}, schema={"question_id": pl.String})
    candidate_rows, baseline_rows = (rows.join(ids, on="question_id", how="semi") for rows in (candidate, baseline))
    graded = [rows.drop_nulls(["refused", "wrong"]) for rows in (candidate_rows, baseline_rows)]
    draw_key = ["question_id", "draw"]
    now, before = (_by_question(rows.join(other, on=draw_key, how="semi")) for rows, other in (graded, graded[::-1]))
    return now.join(before, on="question_id", suffix="_before").with_columns(
        change=(pl.col("worth") - pl.col("worth_before")).round(9)
    )


def _by_question(graded: pl.DataFrame) -> pl.DataFrame:
    """Sum up the graded draws of each question: mean worth, the most frequent cell, and how many fall into it."""
    cell = pl.concat_str(
        pl.when("refused").then(pl.lit("refused_")).otherwise(pl.lit("answered_")),
        pl.when("wrong").then(pl.lit("wrong")).otherwise(pl.lit("right")),
    )
    counted = graded.with_columns(cell=cell).with_columns(
        worth=pl.col("cell").replace_strict(WORTH, return_dtype=pl.Float64)
    )
    mode = pl.col("cell").mode().sort().first()
    return counted.group_by("question_id").agg(
        pl.col("worth").mean(),
        pl.col("question").drop_nulls().first(),
        worths=pl.col("worth").sort(),
        cell=mode,
        draws=pl.format("{} of {}", (pl.col("cell") == mode).sum(), pl.len()),
    )
