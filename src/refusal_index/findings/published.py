"""Runs among the models of the paper: the published values on the same dataset, and what is not comparable.

A run is comparable with a published value if it has the same questions, prompts, grader and decoding settings. Nothing
is tested against a published value: where a run is comparable, it is stated which intervals do not overlap.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any, Literal

from refusal_index.data.analysis import Analysis
from refusal_index.data.datasets import PUBLISHED
from refusal_index.data.published import PRINTED_METRICS, PublishedModel, PublishedResults, published_results
from refusal_index.data.rates import first_draws
from refusal_index.data.run_json import decoding_sent
from refusal_index.errors import OutcomeTableError, suggestion
from refusal_index.findings.metrics import INDEX, Printable, Statement
from refusal_index.findings.models_asked import distinct_models
from refusal_index.findings.run_results import RunResults
from refusal_index.stats import Estimate, PlanningScenario
from refusal_index.stats.intervals import normal_quantile
from refusal_index.stats.planning import asymptotic_deviation


@dataclass(frozen=True)
class PlacedModel:
    """A model in the order of RI: one of a run, or one of the paper."""

    name: str
    source: Literal["run", "paper"]
    metrics: Mapping[str, Estimate]  # by name
    reasons: tuple[Statement, ...] = ()  # why it is not comparable; empty if it is
    remarks: tuple[Statement, ...] = ()  # what else limits it

    @property
    def index(self) -> Estimate:
        """Its RI."""
        return self.metrics[INDEX]

    def to_document(self) -> dict[str, Any]:
        """Return it as a JSON-serialisable dictionary."""
        return {
            "model": self.name,
            "source": self.source,
            **{name: estimate.to_document() for name, estimate in self.metrics.items()},
            "comparable": not self.reasons,
            "not_comparable": [_statement_document(reason) for reason in self.reasons],
            "remarks": [_statement_document(remark) for remark in self.remarks],
        }


@dataclass(frozen=True)
class AmongPublished:
    """Runs on one dataset among the published models."""

    runs: tuple[RunResults, ...]
    published: PublishedResults
    analysis: Analysis

    @cached_property
    def placed_runs(self) -> tuple[PlacedModel, ...]:
        """The runs in their own order."""
        return tuple(
            PlacedModel(
                run.label,
                "run",
                _metrics_of(run, self.analysis),
                tuple(reasons_against(run, self.published, self.analysis.variant)),
                (Statement("examples_filled_in", "note"),) if _prompt_set(run) == self.published.prompts else (),
            )
            for run in self.runs
        )

    @cached_property
    def printed(self) -> tuple[PlacedModel, ...]:
        """The published models in the order of the paper."""
        return tuple(_placed(model, self.published) for model in self.published.models)

    @cached_property
    def models(self) -> tuple[PlacedModel, ...]:
        """The runs and the published models, the highest RI first, those without one last."""
        models = [*self.placed_runs, *self.printed]
        return tuple(sorted(models, key=lambda model: (model.index.estimate is None, -(model.index.estimate or 0))))

    @property
    def is_comparable(self) -> bool:
        """Whether some run is comparable with the published models."""
        return any(not run.reasons for run in self.placed_runs)

    def is_grey(self, model: PlacedModel) -> bool:
        """Whether a published model is not comparable with any of the runs."""
        return model.source == "paper" and (bool(model.reasons) or not self.is_comparable)

    @cached_property
    def statements(self) -> tuple[Statement, ...]:
        """Where each run stands, what its place does not show, and how the published values were measured."""
        return (
            *(statement for run in self.placed_runs for statement in self._statements_of(run)),
            *self._scope(),
        )

    def _statements_of(self, run: PlacedModel) -> Iterator[Statement]:
        yield self._place(run)
        if run.reasons:
            values = {"run": run.name, "reasons": run.reasons}
            yield Statement("published_not_comparable", "serious", values)
        elif self.published.interval_level == self.analysis.confidence_level:
            yield self._apart(run)

    def _place(self, run: PlacedModel) -> Statement:
        printed = [_printed(model.index.estimate) for model in self.published.models]
        values: dict[str, Any] = {"run": run.name, "models": len(printed), "low": min(printed), "high": max(printed)}
        if run.index.estimate is None:
            return Statement("published_place", "scope", {**values, "index": None, "above": None, "below": None})
        index = round(run.index.estimate, self.published.decimals)
        above = sum(index > value for value in printed)
        below = sum(index < value for value in printed)
        return Statement("published_place", "scope", {**values, "index": index, "above": above, "below": below})

    def _apart(self, run: PlacedModel) -> Statement:
        """State from which published models a run's interval lies apart, of those whose interval holds."""
        usable = [model for model in self.printed if not model.reasons and not model.remarks]
        own = run.index
        above = [one.name for one in usable if own.low is not None and own.low > _printed(one.index.high)]
        below = [one.name for one in usable if own.high is not None and own.high < _printed(one.index.low)]
        return Statement("published_apart", "conclusion", {"run": run.name, "above": above, "below": below})

    def _scope(self) -> Iterator[Statement]:
        values = {
            "table": self.published.caption,
            "prompts": len(self.published.variants),
            "intervals": self.published.interval_level is not None,
            "mixed": "+" in self.published.dataset,
        }
        is_comparable = {"comparable": self.is_comparable, "runs": len(self.runs)}
        yield Statement("published_untested", "scope", is_comparable)
        yield Statement("published_scope", "scope", values)
        if any(run.summary.corrected is not None for run in self.runs):
            yield Statement("published_corrected", "scope")

    def to_document(self) -> dict[str, Any]:
        """Return it as a JSON-serialisable dictionary, unrounded."""
        published = self.published
        return {
            "dataset": published.dataset,
            "table": published.label,
            "decimals": published.decimals,
            "confidence_level": published.interval_level,
            "weighted_score_p": {"paper": published.penalty, "run": self.analysis.payoffs.weighted_score_p},
            "protocol": {
                "prompts": published.prompts,
                "variants": list(published.variants),
                "grader": published.grader,
                "temperature": published.temperature,
                "top_p": published.top_p,
                "questions": published.questions,
            },
            "models": [model.to_document() for model in self.models],
            "statements": [_statement_document(statement) for statement in self.statements],
        }


@dataclass(frozen=True, repr=False)
class PaperComparison(Printable):
    """Runs compared with the paper: one table for each of its datasets."""

    datasets: tuple[AmongPublished, ...]
    other_runs: tuple[RunResults, ...]  # on datasets for which the paper prints nothing

    @property
    def statements(self) -> tuple[Statement, ...]:
        """Which runs have nothing to be compared with."""
        known = list(published_results())
        return tuple(
            Statement("published_elsewhere", "serious", {"run": run.label, "dataset": run.dataset_id, "known": known})
            for run in self.other_runs
        )

    def to_document(self) -> dict[str, Any]:
        """Return it as a JSON-serialisable dictionary, unrounded."""
        return {
            "with": "paper",
            "datasets": [among.to_document() for among in self.datasets],
            "statements": [_statement_document(statement) for statement in self.statements],
        }


def compare_with_paper(runs: Sequence[RunResults], analysis: Analysis) -> PaperComparison:
    """Place runs among the published models of their datasets.

    Raises OutcomeTableError if a run has no prompt of the name that `analysis` gives.
    """
    by_dataset: dict[str, list[RunResults]] = {}
    others = []
    for run in runs:
        name = published_name(run.dataset_id)
        if name is None:
            others.append(run)
        else:
            by_dataset.setdefault(name, []).append(run)
    payoffs = analysis.with_recorded(run.about for run in runs)
    among = [AmongPublished(tuple(group), published_results()[name], payoffs) for name, group in by_dataset.items()]
    for one in among:
        _ = one.models  # so that errors are raised here, not while showing the result
    return PaperComparison(tuple(among), tuple(others))


def among_published(run: RunResults) -> AmongPublished | None:
    """Place one run among the published models; None if the paper prints nothing for its dataset."""
    name = published_name(run.dataset_id)
    return None if name is None else AmongPublished((run,), published_results()[name], run.summary.analysis)


def published_name(dataset: str | None) -> str | None:
    """Return the dataset of the paper that a run was asked, in whatever order a mixed one is named; None if none is.

    >>> published_name("precise_wiki+faitheval_inconsistent"), published_name("almanac")
    ('faitheval_inconsistent+precise_wiki', None)
    """
    parts = sorted((dataset or "").split("+"))
    return next((name for name in published_results() if sorted(name.split("+")) == parts), None)


def reasons_against(run: RunResults, published: PublishedResults, variant: str | None = None) -> Iterator[Statement]:
    """Yield why a run is not comparable with published values; none if it is.

    - `variant`: the only prompt to compare; None for all prompts of the run.
    """
    if not run.settings:
        yield Statement("settings_not_recorded", "serious")
    else:
        if _prompt_set(run) != published.prompts:
            yield Statement("other_prompts", "serious", {"found": _prompt_set(run)})
        yield from _other_grader(run.settings, published)
        yield from _other_decoding(run, published)
    yield from _other_variants(run, published, variant)
    yield from _other_questions(run, published)


def _other_grader(settings: Mapping[str, Any], published: PublishedResults) -> Iterator[Statement]:
    grader = settings.get("grader") or {}
    name = str(grader.get("name") or "")
    second = grader.get("second")
    is_another = len(distinct_models(published.grader, (published.grader, name))) > 1
    if is_another or second is not None:
        yield Statement(
            "other_grader",
            "serious",
            {"found": f"{name} and {second}" if second else name, "expected": published.grader},
        )
    elif grader.get("prompt_sha256") != published.grader_prompt_sha256:
        yield Statement("other_grader_prompt", "serious")


def _other_decoding(run: RunResults, published: PublishedResults) -> Iterator[Statement]:
    sent = decoding_sent(run.settings, run.about)
    for name in ("temperature", "top_p"):
        expected = getattr(published, name)
        if sent.get(name) != expected:
            yield Statement("other_decoding", "serious", {"name": name, "found": sent.get(name), "expected": expected})


def _other_variants(run: RunResults, published: PublishedResults, variant: str | None) -> Iterator[Statement]:
    found = [name for name in run.tables if variant in (None, name)]
    if published.variants and sorted(map(str, found)) != sorted(published.variants):
        expected = list(published.variants)
        yield Statement(
            "other_variants", "serious", {"found": [name for name in found if name is not None], "expected": expected}
        )


def _other_questions(run: RunResults, published: PublishedResults) -> Iterator[Statement]:
    recorded = run.settings.get("dataset") or {}
    official = PUBLISHED[published.dataset].sha256 if published.dataset in PUBLISHED else None
    if published.own_questions:
        yield Statement("own_questions", "serious")
    elif official is not None and recorded.get("sha256", official) != official:
        yield Statement("other_file", "serious")
    asked = max((first_draws(rows).height for rows in run.tables.values()), default=0)
    if published.questions is not None and asked < published.questions:
        yield Statement("question_sample", "serious", {"found": asked, "expected": published.questions})


def _prompt_set(run: RunResults) -> str | None:
    name: str | None = (run.settings.get("prompts") or {}).get("name")
    return name


def _placed(model: PublishedModel, published: PublishedResults) -> PlacedModel:
    reasons = (Statement("interval_misses", "serious"),) if model.misses_estimate else ()
    return PlacedModel(model.name, "paper", model.metrics, reasons, tuple(_remarks(model, published)))


def _remarks(model: PublishedModel, published: PublishedResults) -> Iterator[Statement]:
    """Yield a remark if the printed interval is narrower than all questions of the dataset allow."""
    if not model.has_interval or published.questions is None or model.misses_estimate:
        return
    questions = implied_questions(model, published.decimals)
    if questions > published.questions:
        yield Statement("interval_narrow", "note", {"expected": published.questions})


PRINTED_LEVEL = 0.95
"""Confidence level of the printed intervals."""


def implied_questions(model: PublishedModel, decimals: int | None = None) -> float:
    """Return the number of questions whose sampling error gives the printed interval of RI.

    - `decimals`: of the printed numbers, for the smallest number that rounding allows; None for the printed width as
      it is.
    """
    printed = [_printed(model.metrics[name].estimate) for name in ("correct_rate", "refusal_rate", INDEX)]
    scenario = PlanningScenario.from_published(*printed)
    deviation = asymptotic_deviation(scenario.refusal_rate, scenario.error_rate, printed[-1])
    rounding = 0.0 if decimals is None else 0.5 * 10**-decimals
    half_width = (_printed(model.index.high) - _printed(model.index.low)) / 2 + rounding
    return float((normal_quantile(PRINTED_LEVEL) * deviation / half_width) ** 2)


def _metrics_of(run: RunResults, analysis: Analysis) -> dict[str, Estimate]:
    """Return the metrics of a run: RI over its prompts, and the mean over the prompts of the others."""
    variants = run.summary.variants
    if analysis.variant is not None:
        variants = tuple(one for one in variants if one.variant == analysis.variant)
        if not variants:
            names = [str(one.variant) for one in run.summary.variants]
            guess = suggestion(analysis.variant, names)
            raise OutcomeTableError(
                f"variants: expected a prompt of {run.label} ({', '.join(names)}), got {analysis.variant!r}{guess}"
            )
    if len(variants) == 1:
        return {name: variants[0].metric(name) for name in PRINTED_METRICS}
    means = {name: _mean([one.metric(name).estimate for one in variants], name) for name in PRINTED_METRICS}
    return {**means, INDEX: run.summary.index or Estimate(None, status="undefined", name=INDEX)}


def _mean(values: Sequence[float | None], name: str) -> Estimate:
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return Estimate(None, status="undefined", name=name)
    return Estimate(fmean(known), name=name)


def _printed(number: float | None) -> float:
    if number is None:
        raise ValueError("expected a printed number")
    return number


def _statement_document(statement: Statement) -> dict[str, Any]:
    values = {
        name: [_statement_document(one) for one in value] if name == "reasons" else value
        for name, value in statement.values.items()
    }
    return {"code": statement.code, "severity": statement.severity, **values}
