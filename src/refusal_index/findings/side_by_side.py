"""What the first screen of a report says of several runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from refusal_index.data.errors import OutcomeTableError
from refusal_index.data.runs import ComparedRun, Match, differing_settings
from refusal_index.findings.comparison import CompareOptions, compare_pair, rank
from refusal_index.findings.statement import Statement


@dataclass(frozen=True)
class SideBySide:
    """Several runs, compared."""

    statements: tuple[Statement, ...]
    letters: Mapping[int, str] = field(default_factory=dict)  # by the place of a run: runs that share one are tied
    notes: tuple[Statement, ...] = ()  # what limits the comparison


def side_by_side(runs: Sequence[ComparedRun], options: CompareOptions) -> SideBySide:
    """Compare two runs, or rank several."""
    if len({run.dataset_id for run in runs}) > 1:
        datasets = list(dict.fromkeys(run.dataset or "not stated" for run in runs))
        return SideBySide((Statement("other_questions", "scope", {"datasets": datasets}),))
    differing = differing_settings(runs)
    notes = (Statement("asked_differently", "grave", {"settings": list(differing)}),) if differing else ()
    try:
        if len(runs) == 2:
            return SideBySide(tuple(_pair(runs, options)), notes=notes)
        found = rank(runs, options)
    except OutcomeTableError as error:
        return SideBySide((Statement("not_compared", "grave", {"error": str(error)}),), notes=notes)
    ranked = [(runs[run.row].label, run.letters) for run in found.ranking.runs]
    unranked = {runs[run.row].label: run.reason for run in found.ranking.unranked}
    statements = (
        *_leader(ranked),
        _matched(found.match),
        Statement("shared_letters", "scope", {"error": 1 - found.ranking.confidence_level}),
        *([Statement("unranked", "grave", {"runs": unranked})] if unranked else []),
    )
    return SideBySide(statements, {run.row: run.letters for run in found.ranking.runs}, notes)


def _pair(runs: Sequence[ComparedRun], options: CompareOptions) -> Iterator[Statement]:
    found = compare_pair(runs, options)
    difference = found.headline
    if difference.estimate is None or difference.pvalue is None:
        yield Statement("difference_unknown", "conclusion", {"reason": difference.reason})
    else:
        ahead, ends = difference.estimate >= 0, difference.confidence_interval(options.confidence_level)
        first, second = (run.label for run in (runs if ahead else runs[::-1]))
        low, high = ends if ahead else (-ends.high, -ends.low)
        size = {"size": abs(difference.estimate), "low": low, "high": high, "pvalue": difference.pvalue}
        # At the boundary a test may find a difference whose interval still covers 0.
        apart = difference.pvalue < 1 - options.confidence_level and not low <= 0 <= high
        code = "one_follows_better" if apart else "not_told_apart"
        yield Statement(code, "conclusion", {"first": first, "second": second, **size})
    yield _matched(found.variants[0].match)


def _leader(ranked: Sequence[tuple[str, str]]) -> Iterator[Statement]:
    """State which run has the highest index, and which others may be as good."""
    if len(ranked) > 1:
        (first, letters), *others = ranked
        ties = [label for label, theirs in others if set(letters) & set(theirs)]
        code = "leader" if not ties else "no_leader" if len(ties) == len(others) else "leader_with_ties"
        yield Statement(code, "conclusion", {"first": first, "ties": ties})


def _matched(found: Match) -> Statement:
    return Statement("compared_on", "scope", {"questions": len(found.matrix.question_ids), "is_paired": found.paired})
