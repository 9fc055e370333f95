"""Everything worth knowing about a run, as a pure function of its outcome table.

Of a question that was drawn repeatedly the first draw makes every number that takes one draw. The number over all
variants is the joint estimate: they share their questions, so their tables must not be added up.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import polars as pl

from refusal_index.outcomes.cautions import MISSING_LIMIT, Caution, cautions, sampling_cautions
from refusal_index.outcomes.counts import (
    Completeness,
    ForcedRefusals,
    VariantGroup,
    completeness,
    contingency_table,
    forced_refusals,
    variant_groups,
)
from refusal_index.outcomes.draws import DrawsSummary, draws_summary
from refusal_index.outcomes.files import read_json
from refusal_index.outcomes.folder import RunFolder
from refusal_index.outcomes.matching import first_draws
from refusal_index.outcomes.missing import MissingRange, missing_range
from refusal_index.outcomes.outcome import FORCED_NOT_ASKED
from refusal_index.outcomes.pooled import PooledSummary, overall_index, pool
from refusal_index.outcomes.price import UNPRICED, Prices
from refusal_index.outcomes.runs import ComparedRun
from refusal_index.outcomes.sampling import OWN_COLUMNS, Sampling, SamplingSummary, sampled_table, sampling_summary
from refusal_index.outcomes.sensitivity import Sensitivity, sensitivity
from refusal_index.stats import ContingencyTable, Estimate, SampledTable, metrics

DEFAULT_PENALTY = 1.0
DEFAULT_CONFIDENCE_LEVEL = 0.95

NEED_FORCED_ANSWERS = ("error_rate", "refusal_index")

INCOMPLETE = "incomplete"
"""Status of a variant that lacks more than the tolerated share of its questions, whatever its index is."""

SUMMARY_VERSION = 1
"""Version of the JSON document."""


@dataclass(frozen=True)
class Usage:
    """What a variant took."""

    # input_tokens, output_tokens, requests: sums over both passes and the grader
    input_tokens: int
    output_tokens: int
    requests: int
    # in US dollars, of the models whose price is known; None where none is, or that of the model under evaluation is
    # not
    cost: float | None = None
    unpriced_tokens: int = 0  # of graders whose price is not known: in the other sums, and not in the cost

    @classmethod
    def total(cls, usages: Iterable[Usage]) -> Usage:
        """Add up; a cost of which a part is not known is not known.

        >>> Usage.total([Usage(100, 5, 2, 0.5), Usage(100, 5, 2, 0.25, 20)])
        Usage(input_tokens=200, output_tokens=10, requests=4, cost=0.75, unpriced_tokens=20)
        >>> Usage.total([Usage(100, 5, 2, 0.5), Usage(100, 5, 2)]).cost is None
        True
        """
        parts = tuple(usages)
        costs = [one.cost for one in parts if one.cost is not None]
        return cls(
            input_tokens=sum(one.input_tokens for one in parts),
            output_tokens=sum(one.output_tokens for one in parts),
            requests=sum(one.requests for one in parts),
            cost=sum(costs) if len(costs) == len(parts) else None,
            unpriced_tokens=sum(one.unpriced_tokens for one in parts),
        )


@dataclass(frozen=True)
class VariantSummary:
    """One model on one dataset under one prompt variant."""

    # model, dataset, variant: what was asked whom; None where the table does not say
    model: str | None
    dataset: str | None
    variant: str | None
    table: ContingencyTable  # counts of the scored questions
    metrics: tuple[Estimate, ...]  # each with interval and status, in the order of `refusal_index.stats.METRIC_NAMES`
    # completeness, forced_refusals: what is missing, and how often the forced pass refused
    completeness: Completeness
    forced_refusals: ForcedRefusals
    warnings: tuple[Caution, ...]  # what must be said beside the numbers, the gravest first
    sensitivity: Sensitivity  # what other decisions on missing grades and refusals of the forced pass would have given
    draws: DrawsSummary | None = None  # what repeated draws show; None where no question was drawn twice
    usage: Usage | None = None  # tokens, requests and cost; None where not known
    missing: MissingRange | None = None  # the index over all that the unscored may have been; None where none are
    sampling: SamplingSummary | None = None  # clusters and weights behind the metrics; None where there are none

    @property
    def is_complete(self) -> bool:
        """Whether it lacks no more than the tolerated share of its questions."""
        share = self.completeness.missing_share
        return share is not None and share <= MISSING_LIMIT

    @property
    def status(self) -> str:
        """That of its index, or ``"incomplete"``: such an index is not to be taken as sound."""
        return self.metric("refusal_index").status if self.is_complete else INCOMPLETE

    def metric(self, name: str) -> Estimate:
        """Find a metric by name."""
        return _by_name(self.metrics, name)


@dataclass(frozen=True)
class Summary:
    """All variants of an outcome table, in the order of the table, and what they say together."""

    variants: tuple[VariantSummary, ...]  # each on its own
    pooled: tuple[PooledSummary, ...]  # the joint estimate of every model and dataset with two variants or more
    # confidence_level, penalty: of every interval, and of the weighted score
    confidence_level: float
    penalty: float
    prices: Prices = UNPRICED  # that the costs were computed with

    @property
    def index(self) -> Estimate | None:
        """The Refusal Index over all variants of the only model and dataset; None where there are several, or none."""
        if len({(variant.model, variant.dataset) for variant in self.variants}) != 1:
            return None
        own = [variant.metric("refusal_index") for variant in self.variants]
        return overall_index(own, self.pooled[0].index if self.pooled else None)


def summarise(
    table: pl.DataFrame,
    *,
    usage: Mapping[str | None, Usage] | None = None,
    prices: Prices = UNPRICED,
    penalty: float = DEFAULT_PENALTY,
    confidence_level: float = DEFAULT_CONFIDENCE_LEVEL,
    sampling: Sampling = OWN_COLUMNS,
) -> Summary:
    """Compute every metric of every variant.

    - `table`: an outcome table; rows of different models and datasets are kept apart.
    - `usage`: what each variant took, by its name.
    - `prices`: that the costs in `usage` were computed with.
    - `penalty`: of the weighted score.
    - `confidence_level`: of every interval.
    - `sampling`: what the columns `cluster` and `weight` were called where they come from.

    >>> from refusal_index.outcomes import Outcome, Question
    >>> from refusal_index.outcomes.table import Identification, outcome_table
    >>> asked, question = Identification("m", "d", "normal"), Question("q1", "Capital of France?", "Paris")
    >>> (normal,) = summarise(outcome_table([(asked, question, Outcome(refused=False, wrong=True))])).variants
    >>> normal.metric("refusal_rate").estimate, normal.metric("refusal_index").status
    (0.0, 'undefined')
    """
    known, groups = usage or {}, variant_groups(table)
    variants = tuple(
        _variant_summary(group, known.get(group.variant), penalty, confidence_level, sampling) for group in groups
    )
    return Summary(variants, tuple(pool(groups, confidence_level)), confidence_level, penalty, prices)


def is_complete(summary: Summary) -> bool:
    """Whether there are variants, none of which lacks more than the tolerated share of its questions."""
    return bool(summary.variants) and all(variant.is_complete for variant in summary.variants)


def _variant_summary(
    group: VariantGroup, usage: Usage | None, penalty: float, level: float, sampling: Sampling
) -> VariantSummary:
    rows = first_draws(group.outcomes)
    table, complete, forced = contingency_table(rows), completeness(rows), forced_refusals(rows)
    missing = missing_range(rows)
    sampled = sampled_table(rows)
    estimates = metrics(sampled or table, penalty=penalty, confidence_level=level)
    if table.n_refused == 0 and complete.reasons.get(FORCED_NOT_ASKED):
        whole = replace(table, refused_wrong=complete.reasons[FORCED_NOT_ASKED])
        estimates = _first_pass_metrics(sampled_table(rows, forced_unknown=True) or whole, penalty, level)
    sampling_found = sampling_summary(rows, sampled, sampling)
    return VariantSummary(
        model=group.model,
        dataset=group.dataset,
        variant=group.variant,
        table=table,
        metrics=estimates,
        completeness=complete,
        forced_refusals=forced,
        warnings=(
            *sampling_cautions(sampling_found),
            *cautions(table, _by_name(estimates, "refusal_index"), complete, missing, forced),
        ),
        sensitivity=sensitivity(rows, penalty, level),
        draws=draws_summary(group.outcomes, level),
        usage=usage,
        missing=missing,
        sampling=sampling_found,
    )


def _first_pass_metrics(whole: ContingencyTable | SampledTable, penalty: float, level: float) -> tuple[Estimate, ...]:
    """Return the metrics of a first pass whose refused questions were never forced: the others need their answers."""
    return tuple(
        Estimate(None, status="undefined", reason=FORCED_NOT_ASKED, name=found.name, method=found.method)
        if found.name in NEED_FORCED_ANSWERS
        else found
        for found in metrics(whole, penalty=penalty, confidence_level=level)
    )


def _by_name(estimates: tuple[Estimate, ...], name: str) -> Estimate:
    return next(estimate for estimate in estimates if estimate.name == name)


def recorded_usage(run: ComparedRun) -> dict[str | None, Usage]:
    """Read what each variant of a run took from the summary in its folder: only the logs know it besides.

    Without one, and for a file, it is not known.
    """
    try:
        variants = read_json(RunFolder(run.source).summary)["variants"] if run.source.is_dir() else []
        mine = [one for one in variants if (one["model"], one["dataset"]) == (run.model_id, run.dataset_id)]
        return {one["variant"]: _usage(one["usage"]) for one in mine if one["usage"]}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _usage(document: Mapping[str, Any]) -> Usage:
    """Read what a variant took; raises ValueError or TypeError where the summary was tampered with."""
    usage = Usage(**document)
    if any(isinstance(value, bool) or not isinstance(value, int | float | None) for value in vars(usage).values()):
        raise TypeError("expected numbers")
    return usage


def summary_document(summary: Summary) -> dict[str, Any]:
    """Give the summary as JSON holds it: floats unrounded, None for what is not a number."""
    return {
        "summary_version": SUMMARY_VERSION,
        "complete": is_complete(summary),
        "confidence_level": summary.confidence_level,
        "penalty": summary.penalty,
        **summary.prices.to_document(),
        "variants": [_variant_document(variant) for variant in summary.variants],
        "pooled": [_pooled_document(pooled) for pooled in summary.pooled],
    }


def summary_to_json(summary: Summary) -> str:
    """Write the summary as JSON text."""
    return json.dumps(summary_document(summary), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _variant_document(variant: VariantSummary) -> dict[str, Any]:
    return {
        **_plain(variant),
        "status": variant.status,
        "n": variant.table.n,
        "metrics": {one.name: {**one.to_document(), "method": one.method} for one in variant.metrics},
    }


def _pooled_document(pooled: PooledSummary) -> dict[str, Any]:
    index = pooled.index.to_document()
    outcome = {name: index.pop(name) for name in ("status", "reason")}
    return {
        "model": pooled.model,
        "dataset": pooled.dataset,
        "variants": pooled.variants,
        **index,
        "standard_error": pooled.standard_error,
        **outcome,
        "left_out": pooled.left_out,
        "homogeneity": _plain(pooled.homogeneity),
        "copulas": [{name: getattr(test, name) for name in _OF_A_COPULA} for test in pooled.copulas],
    }


_OF_A_COPULA = ("family", "statistic", "degrees_of_freedom", "pvalue", "status", "reason")


def _plain(value: Any) -> Any:
    if isinstance(value, Estimate):
        value = value.to_document()
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
