"""Matching runs by question, and comparing two of them: every metric, and RI jointly over prompts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from refusal_index import stats
from refusal_index.data.analysis import DEFAULT_ANALYSIS, Analysis
from refusal_index.data.files import plain
from refusal_index.data.outcome import FORCED_NOT_ASKED
from refusal_index.data.rates import (
    BY_ANSWERABLE,
    NEED_FORCED_ANSWERS,
    NEED_NO_GRADES,
    answerable_reason,
    describe,
)
from refusal_index.findings.draws import corrected_indices, is_defined, repeats_ri
from refusal_index.findings.headline import refused_by_answerable
from refusal_index.findings.matching import (
    Match,
    match_by_answerable,
    matched_variants,
    refusals_are_known,
    stacked,
    variants_compared,
)
from refusal_index.findings.metrics import CORRECTED, INDEX, Printable, Statement, rendering
from refusal_index.findings.other_copulas import UnderOtherCopulas, differ_in_caution
from refusal_index.findings.run_differences import differing_settings, missing_statements, settings_statements
from refusal_index.findings.run_results import RunResults
from refusal_index.findings.sections import registered_sections
from refusal_index.findings.sensitivity import missing_ranges
from refusal_index.stats.contingency import FEW_CLUSTERS, FEW_IN_CELL, effective_in_smallest_cell, tables_of_rows


@dataclass(frozen=True, repr=False)
class MatchedRuns(Printable):
    """Runs and their shared questions, by variant: the basis of a comparison or a ranking."""

    runs: tuple[RunResults, ...]
    given: Analysis = DEFAULT_ANALYSIS  # how to compare them, as it was asked for

    @cached_property
    def analysis(self) -> Analysis:
        """How they are compared: what was not asked for is as the folders of the runs record it."""
        return self.given.with_recorded([run.about for run in self.runs])

    @property
    def labels(self) -> list[str]:
        """The labels of the runs."""
        return [run.label for run in self.runs]

    def payoff_statements(self) -> Iterator[Statement]:
        """State in which payoffs the runs differ, and by which their scores are compared, unless these are given."""
        payoffs = self.analysis.payoffs
        compared = {"weighted_score_p": payoffs.weighted_score_p, "truthfulness_weights": payoffs.truthfulness}
        for name, values in self.given.different_payoffs([run.about for run in self.runs]).items():
            yield Statement("payoffs_differ", "serious", {"name": name, "values": values, "by": compared[name]})

    @cached_property
    def variants_compared(self) -> Mapping[str, tuple[str | None, ...]]:
        """The variant of each run, by the name under which they are compared."""
        return variants_compared(self.runs, self.analysis.variant)

    @cached_property
    def matches(self) -> Mapping[str, Match]:
        """The questions of each variant to compare."""
        is_split = self.analysis.metric in BY_ANSWERABLE
        return matched_variants(
            self.runs, self.analysis.variant, without_forced_pass=not self.needs_forced_pass, is_split=is_split
        )

    @property
    def needs_forced_pass(self) -> bool:
        """Whether what is computed needs forced answers; if not, refused questions without one take part as well."""
        return False

    @cached_property
    def matches_with_index(self) -> Mapping[str, Match]:
        """Matched variants in which every run has an index with a standard error; the joint index uses these."""
        return {
            name: match
            for name, match in self.matches.items()
            if not any(match.unforced) and all(_statuses(match) == "ok")
        }

    @cached_property
    def is_ri_corrected(self) -> bool:
        """Whether the corrected index of every run, under each variant that is compared, is RI."""
        chosen = self.variants_compared.values()
        tables = [run.tables[name] for names in chosen for run, name in zip(self.runs, names, strict=True)]
        return repeats_ri(tables, is_deterministic=all(run.is_deterministic for run in self.runs))

    @cached_property
    def corrected_indices(self) -> Mapping[str, tuple[stats.CorrectedRefusalIndexResult, ...]]:
        """The corrected index of each run, by variant, of the variants in which every run has repeated samples."""
        tables = [
            rows.filter(pl.col("question_id").is_in(match.matrix.question_ids)) if match.paired else rows
            for name, match in self.matches.items()
            for run, variant in zip(self.runs, self.variants_compared[name], strict=True)
            for rows in [run.tables[variant]]
        ]
        deterministic = [run.is_deterministic for run in self.runs] * len(self.matches)
        results = iter(corrected_indices(tables, deterministic))
        by_variant = {name: tuple(next(results) for _ in self.runs) for name in self.matches}
        return {name: indices for name, indices in by_variant.items() if all(map(is_defined, indices))}

    @property
    def estimated_indices(self) -> Mapping[str, tuple[stats.CorrectedRefusalIndexResult, ...]]:
        """Those of the corrected indices that every run has."""
        return {
            name: indices
            for name, indices in self.corrected_indices.items()
            if all(index.estimate is not None for index in indices)
        }

    def match_document(self, match: Match) -> dict[str, Any]:
        """Return the questions a comparison uses and how they were sampled, as a JSON-serialisable dictionary."""
        return {
            "paired": match.paired,
            "questions": len(match.matrix.question_ids),
            "left_out": dict(zip(self.labels, match.left_out, strict=True)),
            "sampling": describe(match.matrix.design, self.analysis.sampling),
        }

    def shared_document(self) -> dict[str, Any]:
        """Return differing settings and the range of RI over missing grades, as a JSON-serialisable dictionary."""
        missing = {
            run.label: {
                variant or "all": asdict(missing_range) for variant, missing_range in missing_ranges(run.tables).items()
            }
            for run in self.runs
        }
        return {"settings_that_differ": differing_settings(self.runs), "missing": missing}

    def match_statement(self, match: Match, variant: str | None) -> Statement:
        """State which questions a comparison uses."""
        if match.paired:
            left_out = [(label, count) for label, count in zip(self.labels, match.left_out, strict=True) if count]
            questions = len(match.matrix.question_ids)
            return Statement("matched", "scope", {"variant": variant, "questions": questions, "left_out": left_out})
        scored_counts = list(zip(self.labels, match.matrix.scored.sum(axis=1).tolist(), strict=True))
        shared = int(match.matrix.shared.sum())
        values: dict[str, Any] = {"variant": variant, "shared": shared, "own": scored_counts}
        if not shared:
            values["same_texts"] = _nearly_same(self.runs, "question")
            values["similar_ids"] = _nearly_same(self.runs, "question_id")
        if len(self.runs) > 2 and not shared:
            ids = [_id_column(run) for run in self.runs]
            return Statement("none_shared", "serious", {**values, "ids": ids})
        return Statement("partly_shared" if len(self.runs) > 2 or shared else "unpaired", "serious", values)

    def sampling_statements(self, match: Match) -> Iterator[Statement]:
        """State the clusters and weights that intervals and p-values account for."""
        sampling = describe(match.matrix.design, self.analysis.sampling)
        n = len(match.matrix.question_ids)
        if sampling is not None and sampling["cluster"] is not None:
            few = sampling["clusters"] < FEW_CLUSTERS
            values = {"clusters": sampling["clusters"], "column": sampling["cluster"]}
            yield Statement("clusters", "serious" if few else "scope", {**values, "limit": FEW_CLUSTERS, "few": few})
        if sampling is not None and sampling["weight"] is not None:
            worth = sampling["effective_by_weight"]
            tables = tables_of_rows(match.matrix.arrays, stats.SamplingDesign.of(n, **match.matrix.design))
            in_cell = [effective_in_smallest_cell(table, worth) for table in tables]
            smallest = min((size for size in in_cell if size is not None), default=None)
            few = smallest is not None and smallest < FEW_IN_CELL
            values = {"column": sampling["weight"], "worth": worth, "in_cell": smallest, "limit": FEW_IN_CELL}
            yield Statement("weights", "serious" if few else "scope", {**values, "few": few})


def _statuses(match: Match) -> np.ndarray:
    design = stats.SamplingDesign.of(len(match.matrix.question_ids), **match.matrix.design)
    arrays = match.matrix.arrays if design is None else design.taking_part(match.matrix.arrays)
    return np.array([stats.refusal_index(table).status for table in tables_of_rows(arrays, design)])


def _nearly_same(runs: Sequence[RunResults], column: str) -> int:
    """Return the number of values of a column that all runs have, without regard to case and white space."""
    texts = []
    for run in runs:
        values = next(iter(run.tables.values()))[column].drop_nulls()
        texts.append({" ".join(value.split()).casefold() for value in values})
    return len(set.intersection(*texts))


def _id_column(run: RunResults) -> dict[str, str | None]:
    """Return the column with a run's question ids, None if its rows are numbered, and its first id."""
    ids = next(iter(run.tables.values()))["question_id"]
    numbered = f"{run.source.name} row 1"
    return {"column": None if ids[0] == numbered else "question_id", "first": ids[0]}


def joint_corrected_indices(
    corrected: Mapping[str, tuple[stats.CorrectedRefusalIndexResult, ...]],
) -> list[stats.CorrectedRefusalIndexResult]:
    """Return one corrected index of each run over all variants."""
    return [stats.joint_corrected_refusal_index(indices) for indices in zip(*corrected.values(), strict=True)]


Difference = stats.MetricDifference | stats.JointDifference | stats.CorrectedDifference

COMBINED = "combined"
"""Stands for the variant's name in a joint estimate."""


@dataclass(frozen=True)
class VariantComparison:
    """Two runs under one variant: every metric, and the questions it rests on."""

    name: str
    match: Match
    comparison: stats.Comparison  # of one response per question
    corrected: Difference | None  # of the corrected index; None where a run has no repeated draws
    split: Match  # with `wrong` for the unanswerable questions, whatever the grades

    def differences(self) -> dict[str, Difference]:
        """Every difference by the name of its metric; those of `BY_ANSWERABLE` need an unanswerable question."""
        differences: dict[str, Difference] = {difference.name: difference for difference in self.comparison.differences}
        if self.split.matrix.wrong.any():
            differences |= self.by_answerable
        return differences if self.corrected is None else {**differences, CORRECTED: self.corrected}

    @property
    def by_answerable(self) -> dict[str, Difference]:
        """The differences of the metrics of `BY_ANSWERABLE`."""
        refusals = stats.compare_metrics(*self.split.matrix.arrays, **self.split.matrix.design)
        return {
            name: replace(refusals[like], reason=answerable_reason(refusals[like].reason))
            for name, like in BY_ANSWERABLE.items()
        }


@dataclass(frozen=True, repr=False)
class PairComparison(MatchedRuns):
    """Two runs compared, the first minus the second."""

    @cached_property
    def sections(self) -> Mapping[str, Any]:
        """What plugins add, by name: see `refusal_index.render.sections`."""
        by_name = ((name, section.compare(self.runs, self.analysis)) for name, section in registered_sections().items())
        return {name: value for name, value in by_name if value is not None}

    @cached_property
    def variants(self) -> tuple[VariantComparison, ...]:
        """Every metric under every variant."""
        compared = []
        for name, matched in self.matches.items():
            comparison = stats.compare_metrics(
                *matched.matrix.arrays,
                weighted_score_p=self.analysis.payoffs.weighted_score_p,
                truthfulness_weights=self.analysis.payoffs.truthfulness,
                **matched.matrix.design,
            )
            rows = [run.tables[of] for run, of in zip(self.runs, self.variants_compared[name], strict=True)]
            if any(matched.unforced):
                comparison = _without_forced_pass(comparison, matched)
            corrected: Difference | None = None
            if self.is_ri_corrected:
                corrected = comparison[INDEX]
            elif name in self.corrected_indices:
                corrected = stats.compare_corrected(*self.corrected_indices[name])
            compared.append(VariantComparison(name, matched, comparison, corrected, match_by_answerable(rows)))
        return tuple(compared)

    @property
    def joint_over(self) -> tuple[str, ...]:
        """The variants that the joint RI rests on: those in which both runs have RI with a standard error, or none."""
        return tuple(self.matches_with_index) if len(self.matches_with_index) > 1 else ()

    @cached_property
    def joint(self) -> stats.JointDifference | None:
        """The difference of joint RI; None where there are fewer than two such variants."""
        if not self.joint_over:
            return None
        arrays, design = stacked(self.matches_with_index)
        return stats.compare_joint(*arrays, **design)

    @property
    def corrected_over(self) -> tuple[str, ...]:
        """The variants that the joint corrected RI rests on, or none."""
        if self.is_ri_corrected:
            return self.joint_over
        return tuple(self.estimated_indices) if len(self.estimated_indices) > 1 else ()

    @cached_property
    def joint_corrected(self) -> Difference | None:
        """The difference of joint corrected RI; None where there are fewer than two such variants."""
        if self.is_ri_corrected or not self.corrected_over:
            return self.joint if self.is_ri_corrected else None
        return stats.compare_corrected(*joint_corrected_indices(self.estimated_indices))

    @property
    def headline(self) -> Difference:
        """The primary difference: of RI, joint if there are several variants."""
        return self.joint or self.variants[0].comparison[INDEX]

    @property
    def corrected(self) -> Difference | None:
        """The difference of corrected RI; None where a run has no repeated samples."""
        return self.joint_corrected or (None if self.joint else self.variants[0].corrected)

    @cached_property
    def statements(self) -> tuple[Statement, ...]:
        """Its statements: which run is better, which questions were compared, and caveats."""
        named = len(self.variants) > 1
        return (
            *self._refused(),
            self._conclusion(),
            *self._about_caution(),
            *missing_statements(self.runs),
            *(self.match_statement(variant.match, variant.name if named else None) for variant in self.variants),
            *self.sampling_statements(self.variants[0].match),
            self._primary(),
            *self._about_corrected(),
            *self._reasons(),
            *settings_statements(self.runs),
            *self.payoff_statements(),
        )

    def __repr__(self) -> str:
        names = " vs ".join(self.labels)
        differences = [difference for metric, _, difference, _ in self.rows() if metric == INDEX]
        if not differences:
            return f"<PairComparison: {names}>"
        interval = differences[0].confidence_interval(self.analysis.confidence_level)
        shown = stats.Estimate.of(differences[0], interval)
        return f"<PairComparison: {names}, difference in RI {rendering().estimate_text(shown)}>"

    def rows(self) -> list[tuple[str, str, Difference, float | None]]:
        """Return every difference with metric, variant and Holm's p-value, RI first, then corrected RI.

        Corrected RI is left out where it equals RI. The p-value is None for the primary difference, and where there is
        none: among seven metrics of equal models, some difference is significant far more often than once in twenty
        comparisons, so the primary difference is tested alone, and all others share one family-wise error rate.
        """
        rows: list[tuple[str, str, Difference]] = []
        indices = (
            (INDEX, self.joint, self.joint_over),
            (CORRECTED, self.joint_corrected, self.corrected_over),
        )
        for name, joint, names in indices[:1] if self.is_ri_corrected else indices:
            if joint is not None:
                # which variants it rests on, where these are not all
                label = COMBINED if len(names) == len(self.variants) else f"{COMBINED} over {', '.join(names)}"
                rows.append((name, label, joint))
            of_variants = ((variant.name, variant.differences().get(name)) for variant in self.variants)
            rows += ((name, variant, difference) for variant, difference in of_variants if difference is not None)
        by_variant = {variant.name: variant.differences() for variant in self.variants}
        for name in (*BY_ANSWERABLE, *(name for name in stats.METRIC_NAMES if name != INDEX)):
            rows += ((name, variant, found[name]) for variant, found in by_variant.items() if name in found)
        adjusted = self._adjusted([difference.pvalue for *_, difference in rows])
        return [(*row, adjusted.get(position)) for position, row in enumerate(rows)]

    def _adjusted(self, pvalues: Sequence[float | None]) -> dict[int, float]:
        """Return Holm's p-values by position in `rows`, of all p-values except the primary one."""
        family = {
            position: pvalue
            for position, pvalue in enumerate(pvalues)
            if pvalue is not None and not (self.has_primary and position == 0)
        }
        return dict(zip(family, stats.holm(list(family.values())).tolist(), strict=True))

    @cached_property
    def under_other_copulas(self) -> tuple[UnderOtherCopulas, ...]:
        """Significant differences of RI between runs that refuse unequally often, under other copulas."""
        alpha = 1 - self.analysis.confidence_level
        rows = self.rows()
        pvalues = [difference.pvalue for _, _, difference, _ in rows]
        found = []
        for position, (metric, variant, difference, holm) in enumerate(rows):
            if metric != INDEX or not is_significant(difference, difference.pvalue if holm is None else holm, alpha):
                continue
            names = self.joint_over if difference is self.joint else (variant,)
            rates = [one.comparison["refusal_rate"] for one in self.variants if one.name in names]
            first_rate = float(np.mean([rate.first for rate in rates]))
            second_rate = float(np.mean([rate.second for rate in rates]))
            if not differ_in_caution(first_rate, second_rate):
                continue
            arrays, design = stacked({name: self.matches[name] for name in names})
            differences = tuple(
                stats.compare_under_copula(*arrays, family=family, **design) for family in stats.OTHER_COPULAS
            )
            adjusted: dict[str, float | None] = {}
            for other in differences:
                instead = [*pvalues[:position], other.pvalue, *pvalues[position + 1 :]]
                adjusted[other.family] = self._adjusted(instead).get(position, other.pvalue)
            found.append(UnderOtherCopulas(variant, first_rate, second_rate, differences, adjusted))
        return tuple(found)

    @property
    def has_primary(self) -> bool:
        """Whether the first of `rows` is the primary difference: RI, joint or of the only variant."""
        return len(self.variants) == 1 or self.joint is not None

    def to_frame(self) -> pl.DataFrame:
        """Return every difference as a row: metric, variant, both numbers, the difference, interval and p-values.

        The column `pvalue_holm` is empty in the row of the primary comparison, and where there is no p-value.
        """
        rows = [
            {"metric": metric, "variant": variant, **_compared(difference, self.analysis), "pvalue_holm": holm}
            for metric, variant, difference, holm in self.rows()
        ]
        return pl.DataFrame(rows, schema_overrides={"pvalue_holm": pl.Float64}, infer_schema_length=None)

    def to_document(self) -> dict[str, Any]:
        """Return a JSON-serialisable dictionary with unrounded numbers."""
        return {
            **dict(zip(("first", "second"), self.labels, strict=True)),
            "confidence_level": self.analysis.confidence_level,
            "joint": {
                INDEX: _document(self.joint, self.analysis) if self.joint else None,
                CORRECTED: _document(self.joint_corrected, self.analysis) if self.joint_corrected else None,
            },
            "joint_over": {INDEX: self.joint_over, CORRECTED: self.corrected_over},
            "under_other_copulas": [found.to_document(self.analysis) for found in self.under_other_copulas],
            "variants": [
                {
                    "variant": variant.name,
                    **self.match_document(variant.match),
                    "metrics": {
                        name: _document(difference, self.analysis) for name, difference in variant.differences().items()
                    },
                }
                for variant in self.variants
            ],
            **{name: plain(numbers) for name, numbers in self.sections.items()},
            **self.shared_document(),
        }

    def _refused(self) -> Iterator[Statement]:
        """State what each run refused of unanswerable and of answerable questions, if some are unanswerable.

        Says nothing if it is unknown of too many whether they were refused.
        """
        if not refusals_are_known(run.outcomes for run in self.runs):
            return
        for side, label in zip(("first", "second"), self.labels, strict=True):
            rates = [
                [stats.Estimate(getattr(found[name], side), name=name) for name in BY_ANSWERABLE if name in found]
                for found in (variant.differences() for variant in self.variants)
            ]
            if (statement := refused_by_answerable(rates, label)) is not None:
                yield statement

    def _conclusion(self) -> Statement:
        """Decide which run is better; at a boundary a p-value is not enough, as the interval may contain 0."""
        level = self.analysis.confidence_level
        difference = self.headline
        at_boundary = difference.status == "boundary"
        leads = ahead(difference, 1 - level)
        if difference.estimate is None or difference.pvalue is None:
            labels = dict(zip(("first", "second"), self.labels, strict=True))
            return Statement("difference_unknown", "conclusion", {**labels, "reason": difference.reason})
        turned = difference.estimate < 0
        first, second = self.labels[::-1] if turned else self.labels
        low, high = difference.confidence_interval(level).or_none()
        if turned and low is not None and high is not None:
            low, high = -high, -low
        values = {
            "first": first,
            "second": second,
            "size": None if at_boundary else abs(difference.estimate),
            "low": low,
            "high": high,
            "level": level,
            "pvalue": difference.pvalue,
            "reason": difference.reason,
        }
        if leads and at_boundary and (low is None or low <= 0):
            return Statement("difference_not_settled", "conclusion", values)
        return Statement("ahead" if leads else "not_told_apart", "conclusion", values)

    def _about_caution(self) -> Iterator[Statement]:
        """State which differences of RI are not significant under another copula, if refusal rates differ."""
        alpha = 1 - self.analysis.confidence_level
        each = [
            {
                "variant": found.variant if len(self.variants) > 1 else None,
                "first_rate": found.first_rate,
                "second_rate": found.second_rate,
                "families": list(found.not_significant(alpha).items()),
            }
            for found in self.under_other_copulas
            if found.not_significant(alpha)
        ]
        if each:
            labels = dict(zip(("first", "second"), self.labels, strict=True))
            yield Statement("depends_on_copula", "serious", {**labels, "each": each})

    def _primary(self) -> Statement:
        """State which p-value is unadjusted, and that the others are adjusted."""
        rows = self.rows()
        others = sum(holm is not None for *_, holm in rows)
        if not self.has_primary:
            return Statement("no_primary", "scope", {"others": others})
        metric, variant, difference, _ = rows[0]
        only = variant if len(self.variants) > 1 else None
        values = {"metric": metric, "variant": only, "has_pvalue": difference.pvalue is not None, "others": others}
        return Statement("primary", "scope", values)

    def _about_corrected(self) -> Iterator[Statement]:
        """State how corrected RI was estimated, where it disagrees with RI, and whether the models differ in noise."""
        if self.is_ri_corrected:
            yield Statement("corrected_repeats_ri")
            return
        index = self.headline
        corrected = self.corrected
        alpha = 1 - self.analysis.confidence_level
        if not isinstance(corrected, stats.CorrectedDifference):
            return
        entries = [
            {
                "variant": variant.name if len(self.variants) > 1 else None,
                "first": variant.corrected.first.n_repeated,
                "second": variant.corrected.second.n_repeated,
                "shared": variant.corrected.n_shared,
            }
            for variant in self.variants
            if isinstance(variant.corrected, stats.CorrectedDifference)
        ]
        yield Statement("corrected_ri", values={"each": entries})
        labels = self.labels
        if None not in (index.pvalue, corrected.pvalue) and ahead(index, alpha) != ahead(corrected, alpha):
            leads = [
                {"run": {1: labels[0], -1: labels[1]}.get(ahead(difference, alpha)), "pvalue": difference.pvalue}
                for difference in (index, corrected)
            ]
            yield Statement("indices_disagree", "serious", {"ri": leads[0], "corrected": leads[1]})
        if corrected.reliability_pvalue is not None and corrected.reliability_pvalue < alpha:
            first, second = (result.reliability or 0.0 for result in (corrected.first, corrected.second))
            less, more = labels if first >= second else labels[::-1]
            values = {"less": less, "more": more, "pvalue": corrected.reliability_pvalue}
            yield Statement("models_differ_in_randomness", values=values)

    def _reasons(self) -> Iterator[Statement]:
        """State why differences are undefined or at a boundary, once for each reason."""
        unusual = [
            (name, difference)
            for variant in self.variants
            for name, difference in variant.differences().items()
            if difference.status != "ok"
        ]
        grouped: dict[tuple[str, str | None], dict[str, None]] = {}
        for name, difference in unusual:
            grouped.setdefault((difference.status, difference.reason), {})[name] = None
        without_error = any(
            isinstance(difference, stats.MetricDifference) and difference.method == "power_divergence"
            for _, difference in unusual
        )
        values: dict[str, Any] = dict(zip(("first", "second"), self.labels, strict=True))
        for (status, reason), names in grouped.items():
            values |= {"metrics": list(names), "reason": reason or ""}
            values |= {"power_divergence": without_error and INDEX in names}
            code = "difference_at_boundary" if status == "boundary" else "difference_undefined"
            yield Statement(code, "serious", dict(values))


def _without_forced_pass(comparison: stats.Comparison, match: Match) -> stats.Comparison:
    """Return a comparison whose metrics are undefined where a run without a forced pass does not decide them."""
    not_forced = [FORCED_NOT_ASKED if is_unforced else None for is_unforced in match.unforced]

    def known(difference: stats.MetricDifference) -> stats.MetricDifference:
        reasons = not_forced if difference.name in NEED_FORCED_ANSWERS else match.lacking
        if difference.name in NEED_NO_GRADES or not any(reasons):
            return difference
        first, second = (
            None if reason else value
            for value, reason in zip((difference.first, difference.second), reasons, strict=True)
        )
        return replace(
            difference,
            first=first,
            second=second,
            estimate=None,
            standard_error=None,
            pvalue=None,
            status="undefined",
            reason=";".join(f"{side}:{why}" for side, why in zip(("first", "second"), reasons, strict=True) if why),
        )

    return replace(comparison, differences=tuple(map(known, comparison.differences)))


def is_significant(difference: Difference, pvalue: float | None, alpha: float) -> bool:
    """Whether a difference is significant; at a boundary the interval must exclude 0 too.

    - `pvalue`: its p-value, adjusted where it must be.
    """
    if pvalue is None or pvalue >= alpha:
        return False
    if difference.status != "boundary":
        return True
    low, high = difference.confidence_interval(1 - alpha).or_none()
    return low is not None and high is not None and not low <= 0 <= high


def ahead(difference: Difference, alpha: float) -> int:
    """Return the run with the significantly higher number: 1 for the first, -1 for the second, 0 for neither."""
    if difference.pvalue is None or difference.estimate is None or difference.pvalue >= alpha:
        return 0
    return 1 if difference.estimate > 0 else -1


def compare_pair(runs: Sequence[RunResults], analysis: Analysis = DEFAULT_ANALYSIS) -> PairComparison:
    """Compare two runs; raises OutcomeTableError if they share no variant, or not the one asked for."""
    compared = PairComparison(tuple(runs), analysis)
    _ = compared.variants  # so that errors are raised here, not while showing the result
    return compared


def both_numbers(difference: Difference) -> tuple[float | None, float | None]:
    """Return the numbers of both runs."""
    if isinstance(difference, stats.MetricDifference):
        return difference.first, difference.second
    return difference.first.estimate, difference.second.estimate


def _document(difference: Difference, analysis: Analysis) -> dict[str, Any]:
    document = _compared(difference, analysis)
    if not isinstance(difference, stats.CorrectedDifference):
        return {**document, "standard_error": difference.standard_error}
    questions = difference.first.n_repeated, difference.second.n_repeated, difference.n_shared
    names = ("questions_first", "questions_second", "questions_shared")
    return {**document, **dict(zip(names, questions, strict=True))}


def _compared(difference: Difference, analysis: Analysis) -> dict[str, Any]:
    first, second = both_numbers(difference)
    low, high = difference.confidence_interval(analysis.confidence_level).or_none()
    pair_columns = {"first": first, "second": second, "estimate": difference.estimate, "low": low, "high": high}
    test = difference.method if isinstance(difference, stats.MetricDifference) else None
    test_columns = {"pvalue": difference.pvalue, "test": test, "status": difference.status, "reason": difference.reason}
    return {**pair_columns, **test_columns}
