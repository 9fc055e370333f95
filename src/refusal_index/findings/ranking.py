"""Ranking three or more runs by one metric, with ties where differences are not significant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import polars as pl

from refusal_index.data.analysis import Analysis
from refusal_index.data.rates import BY_ANSWERABLE, NEED_FORCED_ANSWERS, NEED_NO_GRADES, answerable_reason
from refusal_index.errors import OutcomeTableError, suggestion
from refusal_index.findings.comparison import COMBINED, MatchedRuns, joint_corrected_indices
from refusal_index.findings.draws import TWO_PROMPTS, corrected_indices, has_two_prompts, is_defined, joint_index
from refusal_index.findings.matching import Match, stacked
from refusal_index.findings.metrics import CORRECTED, INDEX, METRICS, Statement
from refusal_index.findings.run_differences import missing_statements, settings_statements
from refusal_index.findings.run_results import RunResults
from refusal_index.stats import Ranking, rank_corrected, rank_joint, rank_runs


@dataclass(frozen=True, repr=False)
class RunRanking(MatchedRuns):
    """A ranking of three or more runs."""

    @cached_property
    def variants(self) -> tuple[str, ...]:
        """The variants that the ranking rests on, jointly where there are several."""
        if self._ranks_repeated_samples:
            usable = list(self.estimated_indices or self.corrected_indices)
            return tuple(usable if self.estimated_indices else usable[:1])
        usable = list(self.matches_with_index if len(self.matches) > 1 else self.matches)
        return tuple(usable or list(self.matches)[:1])

    @property
    def left_out(self) -> tuple[str, ...]:
        """Variants that the runs share in which some run has no index with a standard error."""
        return tuple(name for name in self.matches if name not in self.variants)

    @property
    def match(self) -> Match:
        """The questions, of the first of the variants."""
        return self.matches[self.variants[0]]

    @property
    def needs_forced_pass(self) -> bool:
        """Whether the metric needs forced answers."""
        return self.analysis.metric == CORRECTED or self.analysis.metric in NEED_FORCED_ANSWERS

    @property
    def _ranks_repeated_samples(self) -> bool:
        """Whether runs are ranked by a corrected index that is not RI."""
        return self.analysis.metric == CORRECTED and not self.is_ri_corrected

    @cached_property
    def ranking(self) -> Ranking:
        """The runs in order; raises OutcomeTableError as `rank` does."""
        analysis = self.analysis
        if self.needs_forced_pass:
            self._check_forced_pass()
        elif analysis.metric not in NEED_NO_GRADES:
            self._check_grades()
        if len(self.matches) > 1 and analysis.metric not in (INDEX, CORRECTED):
            raise OutcomeTableError(
                f"metric: only {INDEX} and {CORRECTED} have a joint estimate over several prompts, got "
                f"{analysis.metric!r}; name one prompt: {', '.join(self.matches)}"
            )
        common: dict[str, Any] = {
            "confidence_level": analysis.confidence_level,
            "adjustment": analysis.adjustment,
            "rng": analysis.seed,
        }
        if self._ranks_repeated_samples:
            if not self.corrected_indices:
                drawn_once = [
                    run.label
                    for run in self.runs
                    if not run.is_deterministic and not any(map(is_defined, corrected_indices([*run.tables.values()])))
                ]
                raise OutcomeTableError(
                    f"metric: expected questions sampled more than once in every run for {CORRECTED} (run --draws 2), "
                    f"got none of {', '.join(drawn_once) or 'some run under the same prompt'}; rank by {INDEX}"
                )
            indices = {name: self.corrected_indices[name] for name in self.variants}
            return rank_corrected(joint_corrected_indices(indices), **common)
        if len(self.variants) > 1:
            arrays, design = stacked({name: self.matches[name] for name in self.variants})
            ranking = rank_joint(*arrays, **{**common, **design})
        else:
            matrix = self.match.matrix
            ranking = rank_runs(
                *matrix.arrays,
                metric=INDEX if analysis.metric == CORRECTED else BY_ANSWERABLE.get(analysis.metric, analysis.metric),
                weighted_score_p=analysis.payoffs.weighted_score_p,
                truthfulness_weights=analysis.payoffs.truthfulness,
                **{**common, **matrix.design},
            )
        unranked = tuple(replace(run, reason=answerable_reason(run.reason)) for run in ranking.unranked)
        is_split = analysis.metric in BY_ANSWERABLE
        return replace(ranking, metric=analysis.metric, unranked=unranked if is_split else ranking.unranked)

    def _check_forced_pass(self) -> None:
        unforced = [
            run.label
            for position, run in enumerate(self.runs)
            if all(match.unforced[position] for match in self.matches.values())
        ]
        if unforced:
            raise OutcomeTableError(
                f"metric: {self.analysis.metric} needs a forced pass, and there was none in {', '.join(unforced)}; "
                "leave these out, or rank by a metric of the first pass, such as correct_rate"
            )

    def _check_grades(self) -> None:
        lacking = [match.lacking for match in self.matches.values()]
        runs = [run.label for run, *reasons in zip(self.runs, *lacking, strict=False) if any(reasons)]
        if runs:
            raise OutcomeTableError(
                f"metric: {self.analysis.metric} needs graded answers, and too many have no grade in "
                f"{', '.join(runs)}; leave these out, or rank by refusal_rate"
            )

    @property
    def variant(self) -> str | None:
        """The variant, where there is only one."""
        return self.variants[0] if len(self.variants) == 1 else None

    @cached_property
    def statements(self) -> tuple[Statement, ...]:
        """Its statements: which run is first, which questions were compared, and which runs are tied."""
        ranking = self.ranking
        return (
            *self._leader(),
            *missing_statements(self.runs),
            self.match_statement(self.match, None if all(run.has_no_variants for run in self.runs) else self.variant),
            *self.sampling_statements(self.match),
            *self._unranked(),
            Statement("letters", "scope", {"adjustment": ranking.adjustment, "error": 1 - ranking.confidence_level})
            if len(ranking.runs) > 1
            else Statement("nothing_to_rank", "serious"),
            *([Statement("corrected_ri", values={"each": ()})] if ranking.metric == CORRECTED else []),
            *settings_statements(self.runs),
            *self.payoff_statements(),
        )

    def _leader(self) -> Iterator[Statement]:
        """Return which run has the highest number, and which are tied with it."""
        if len(self.ranking.runs) < 2:
            return
        first, *others = self.ranking.runs
        ties = [self.labels[other.row] for other in others if set(first.letters) & set(other.letters)]
        values = {"first": self.labels[first.row], "ties": ties, "metric": self.ranking.metric}
        yield Statement("no_leader" if len(ties) == len(others) else "leader", "conclusion", values)

    def _unranked(self) -> Iterator[Statement]:
        labels = self.labels
        if self.left_out:
            yield Statement("variants_left_out", "serious", {"variants": list(self.left_out)})
        for run in self.ranking.unranked:
            yield Statement("not_ranked", "serious", {**asdict(run), "run": labels[run.row]})
        if self.with_two_prompts:
            yield Statement("two_prompts_ranked", "serious", {"runs": list(self.with_two_prompts)})
        if tested := self.ranking.boundary_pairs:
            pairs = [(labels[pair.first], labels[pair.second], pair.pvalue_holm) for pair in tested]
            yield Statement("boundary_tested", values={"pairs": pairs})

    @cached_property
    def with_two_prompts(self) -> tuple[str, ...]:
        """The runs whose interval of RI includes variation between prompts that is estimated from two."""
        if len(self.variants) != TWO_PROMPTS or self.ranking.metric not in (INDEX, CORRECTED):
            return ()
        joint = (
            joint_index([run.tables[name] for name in self.variants if name in run.tables], self.analysis)
            for run in self.runs
        )
        return tuple(
            label
            for label, found in zip(self.labels, joint, strict=True)
            if found is not None and has_two_prompts(found[1])
        )

    def to_frame(self) -> pl.DataFrame:
        """Return one row per run, highest first: its number, interval, status and letters."""
        return pl.DataFrame(self._runs(), infer_schema_length=None).drop("row")

    def to_document(self) -> dict[str, Any]:
        """Give all of it as JSON holds it, unrounded."""
        ranking = self.ranking
        labels = self.labels
        rows = self._runs()
        pairs, boundary_pairs = (
            [{**asdict(pair), "first": labels[pair.first], "second": labels[pair.second]} for pair in pairs]
            for pairs in (ranking.pairs, ranking.boundary_pairs)
        )
        for document, pair in zip(pairs, ranking.pairs, strict=True):
            document["simultaneous_interval"] = pair.simultaneous_interval.or_none()
        return {
            "metric": ranking.metric,
            "variant": self.variant or COMBINED,
            "variants": self.variants,
            "left_out_variants": self.left_out,
            "two_prompts": self.with_two_prompts,
            **self.match_document(self.match),
            "confidence_level": ranking.confidence_level,
            "adjustment": ranking.adjustment,
            "runs": rows[: len(ranking.runs)],
            "unranked": rows[len(ranking.runs) :],
            "pairs": pairs,
            "boundary_pairs": boundary_pairs,
            **self.shared_document(),
        }

    def _runs(self) -> list[dict[str, Any]]:
        """Return every run by its label, the ranked ones first."""
        return [{"run": self.labels[run.row], **asdict(run)} for run in (*self.ranking.runs, *self.ranking.unranked)]


def rank(runs: Sequence[RunResults], analysis: Analysis) -> RunRanking:
    """Rank three or more runs.

    Raises OutcomeTableError if they share no variant, or not the one asked for, or share several and the metric has no
    joint estimate, or the corrected index is asked for and no variant was sampled more than once in every run.
    """
    if analysis.metric not in METRICS:
        guess = suggestion(analysis.metric, METRICS)
        raise OutcomeTableError(f"metric: expected one of {', '.join(METRICS)}, got {analysis.metric!r}{guess}")
    ranked = RunRanking(tuple(runs), analysis)
    _ = ranked.ranking  # so that errors are raised here, not while showing the result
    return ranked
