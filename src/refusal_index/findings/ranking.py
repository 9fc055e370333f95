"""Three runs or more, ranked by one metric, and which of them cannot be told apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import polars as pl

from refusal_index.data.errors import OutcomeTableError
from refusal_index.data.run_json import is_deterministic
from refusal_index.data.runs import ComparedRun, Match, differing_settings
from refusal_index.findings.comparison import JOINTLY
from refusal_index.findings.draws import corrected_indices, is_defined
from refusal_index.findings.matching import (
    CompareOptions,
    all_defined,
    corrected_by_variant,
    defined_everywhere,
    jointly,
    match_document,
    match_statement,
    matched_variants,
    missing_document,
    missing_statements,
    repeats_ri_of,
    sampling_statements,
    settings_statements,
    stacked,
)
from refusal_index.findings.metrics import CORRECTED, INDEX
from refusal_index.findings.shown import Shown
from refusal_index.findings.statement import Statement
from refusal_index.stats import Ranking, rank_corrected, rank_joint, rank_runs


@dataclass(frozen=True, repr=False)
class RunRanking(Shown):
    """Three runs or more, ranked.

    Attributes
    ----------
    runs
        All of them, as given.
    options
        How they were ranked.
    variants
        The variants that the ranking rests on, jointly where there are several.
    left_out
        Variants that the runs share in which some run has no index with a standard error.
    match
        The questions, of the first of the variants.
    ranking
        What came out.
    """

    runs: tuple[ComparedRun, ...]
    options: CompareOptions
    variants: tuple[str, ...]
    left_out: tuple[str, ...]
    match: Match
    ranking: Ranking

    @property
    def variant(self) -> str | None:
        """The variant, where there is only one."""
        return self.variants[0] if len(self.variants) == 1 else None

    @cached_property
    def statements(self) -> tuple[Statement, ...]:
        """What it says, by code: which run is first, what it rests on, and what cannot be told apart."""
        ranking = self.ranking
        return (
            *self._leader(),
            *missing_statements(self.runs),
            match_statement(self.runs, self.match, self.variant),
            *sampling_statements(self.match, self.options),
            *self._unranked(),
            *([] if len(ranking.runs) > 1 else [Statement("nothing_to_rank", "grave")]),
            Statement("letters", "scope", {"adjustment": ranking.adjustment, "error": 1 - ranking.confidence_level}),
            *([Statement("corrected_ri", values={"each": ()})] if ranking.metric == CORRECTED else []),
            *settings_statements(self.runs),
        )

    def _leader(self) -> Iterator[Statement]:
        """Decide which run has the highest number, and which others may be as good."""
        if len(self.ranking.runs) < 2:
            return
        first, *others = self.ranking.runs
        ties = [self.runs[one.row].label for one in others if set(first.letters) & set(one.letters)]
        values = {"first": self.runs[first.row].label, "ties": ties}
        yield Statement("no_leader" if len(ties) == len(others) else "leader", "conclusion", values)

    def _unranked(self) -> Iterator[Statement]:
        labels = [run.label for run in self.runs]
        if self.left_out:
            yield Statement("variants_left_out", "grave", {"variants": list(self.left_out)})
        for one in self.ranking.unranked:
            yield Statement("not_ranked", "grave", {**asdict(one), "run": labels[one.row]})
        if tested := self.ranking.boundary_pairs:
            pairs = [(labels[one.first], labels[one.second], one.pvalue_holm) for one in tested]
            yield Statement("boundary_tested", values={"pairs": pairs})

    def to_frame(self) -> pl.DataFrame:
        """Return a row a run, the highest first: its number, interval, status and letters."""
        ranking = self.ranking
        rows = [{"run": self.runs[one.row].label, **asdict(one)} for one in (*ranking.runs, *ranking.unranked)]
        return pl.DataFrame(rows, infer_schema_length=None).drop("row")

    def to_document(self) -> dict[str, Any]:
        """Give all of it as JSON holds it, unrounded."""
        ranking, labels = self.ranking, [run.label for run in self.runs]
        return {
            "metric": ranking.metric,
            "variant": self.variant or JOINTLY,
            "variants": self.variants,
            "left_out_variants": self.left_out,
            **match_document(self.runs, self.match, self.options),
            "confidence_level": ranking.confidence_level,
            "adjustment": ranking.adjustment,
            "runs": [{"run": labels[run.row], **asdict(run)} for run in ranking.runs],
            "unranked": [{"run": labels[run.row], **asdict(run)} for run in ranking.unranked],
            "pairs": [
                {
                    **asdict(pair),
                    "first": labels[pair.first],
                    "second": labels[pair.second],
                    "simultaneous_interval": pair.simultaneous_interval.or_none(),
                }
                for pair in ranking.pairs
            ],
            "boundary_pairs": [
                {**asdict(pair), "first": labels[pair.first], "second": labels[pair.second]}
                for pair in ranking.boundary_pairs
            ],
            "settings_that_differ": differing_settings(self.runs),
            "missing": missing_document(self.runs),
        }


def rank(runs: Sequence[ComparedRun], options: CompareOptions) -> RunRanking:
    """Rank three runs or more.

    Raises OutcomeTableError if they share no variant, or not the one asked for, or share several and the metric has no
    joint estimate.
    """
    matches = matched_variants(runs, options.variant)
    if len(matches) > 1 and options.metric not in (INDEX, CORRECTED):
        raise OutcomeTableError(
            f"metric: only {INDEX} and {CORRECTED} have a joint estimate over several variants, got "
            f"{options.metric!r}; name one variant, out of {', '.join(matches)}"
        )
    repeats = options.metric == CORRECTED and repeats_ri_of(runs, options.variant)
    if options.metric == CORRECTED and not repeats:
        return _rank_corrected(runs, matches, options)
    usable = (defined_everywhere(matches) or dict(list(matches.items())[:1])) if len(matches) > 1 else matches
    left_out = tuple(name for name in matches if name not in usable)
    found = next(iter(usable.values()))
    if len(usable) == 1:
        ranking = rank_runs(
            *found.matrix.arrays,
            metric=INDEX if repeats else options.metric,
            penalty=options.penalty,
            truthfulness_weights=options.truthfulness_weights,
            confidence_level=options.confidence_level,
            adjustment=options.adjustment,
            rng=options.seed,
            **found.matrix.design,
        )
    else:
        arrays, design = stacked(usable)
        ranking = rank_joint(
            *arrays,
            confidence_level=options.confidence_level,
            adjustment=options.adjustment,
            rng=options.seed,
            **design,
        )
    ranking = replace(ranking, metric=CORRECTED) if repeats else ranking
    return RunRanking(tuple(runs), options, tuple(usable), left_out, found, ranking)


def _rank_corrected(runs: Sequence[ComparedRun], matches: Mapping[str, Match], options: CompareOptions) -> RunRanking:
    corrected = corrected_by_variant(runs, matches, options.variant)
    if not corrected:
        raise OutcomeTableError(
            f"metric: expected questions sampled more than once in every run for {CORRECTED} (run --draws 2), got none "
            f"of {', '.join(_without_draws(runs))}; rank by {INDEX}"
        )
    usable = all_defined(corrected) or dict(list(corrected.items())[:1])
    ranking = rank_corrected(
        jointly(usable),
        confidence_level=options.confidence_level,
        adjustment=options.adjustment,
        rng=options.seed,
    )
    left_out = tuple(name for name in matches if name not in usable)
    return RunRanking(tuple(runs), options, tuple(usable), left_out, matches[next(iter(usable))], ranking)


def _without_draws(runs: Sequence[ComparedRun]) -> list[str]:
    return [
        run.label
        for run in runs
        if not is_deterministic(run.settings) and not any(map(is_defined, corrected_indices([*run.variants.values()])))
    ] or ["some run under the same variant"]
