"""Runs compared or ranked, as text: the numbers, what they rest on, and what cannot be told apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from refusal_index.data.runs import ComparedRun
from refusal_index.findings.comparison import PairComparison, both_numbers
from refusal_index.findings.matching import missing_statements
from refusal_index.findings.metrics import METRICS
from refusal_index.findings.ranking import RunRanking
from refusal_index.render.blocks import Block, Table, shows
from refusal_index.render.format import interval, interval_of, number, percent, pvalue
from refusal_index.render.sections import report_sections
from refusal_index.render.sentences import selected, sentence

MISSING = ("never_forced", "missing_grades")
QUESTIONS = ("matched", "partly_shared", "unpaired", "clusters", "weights")


@shows(PairComparison)
def pair_blocks(comparison: PairComparison) -> Iterator[Block]:
    """Yield what came out of a comparison of two runs, and whether they were asked alike."""
    for line in selected(comparison, *MISSING):
        yield from (line, "")
    yield " minus ".join(run.label for run in comparison.runs)
    yield from selected(comparison, *QUESTIONS)
    yield from ("", differences_table(comparison))
    about = ("corrected_repeats_ri", "corrected_ri", "indices_disagree", "models_differ_in_randomness")
    for line in selected(comparison, "primary", "no_primary", *about, "difference_at_boundary", "difference_undefined"):
        yield from ("", line)
    for section in report_sections():
        if section.name in comparison.sections:
            yield from section.comparison_blocks(comparison)
    for line in selected(comparison, "settings_differ"):
        yield from ("", line)


def differences_table(comparison: PairComparison) -> Table:
    """Return every difference as a row."""
    level, labels = comparison.options.confidence_level, [run.label for run in comparison.runs]
    columns = ("metric", "variant", *labels, "difference", f"{percent(level)} interval", "p", "Holm", "status")
    rows = (
        (
            METRICS[metric].column,
            variant,
            *map(number, (*both_numbers(difference), difference.estimate)),
            interval(*difference.confidence_interval(level).or_none()),
            pvalue(difference.pvalue),
            pvalue(holm),
            difference.status,
        )
        for (metric, variant, difference), holm in zip(comparison.rows(), comparison.adjusted_pvalues(), strict=True)
    )
    return Table.of(columns, rows, left=("metric", "variant", "status"))


@shows(RunRanking)
def ranking_blocks(ranked: RunRanking) -> Iterator[Block]:
    """Yield a ranking, what it rests on, and whether the runs were asked alike."""
    for line in selected(ranked, *MISSING):
        yield from (line, "")
    yield from selected(ranked, *QUESTIONS)
    for line in selected(ranked, "variants_left_out", "not_ranked", "boundary_tested", "nothing_to_rank"):
        yield from ("", line)
    if len(ranked.ranking.runs) > 1:
        yield from ("", ranks_table(ranked), "")
        yield from selected(ranked, "letters")
        yield from ("", pairs_table(ranked))
    for line in selected(ranked, "corrected_ri", "settings_differ"):
        yield from ("", line)


def ranks_table(ranked: RunRanking) -> Table:
    """Return every ranked run as a row."""
    name, level = METRICS[ranked.ranking.metric].column, percent(ranked.ranking.confidence_level)
    columns = ("model", name if ranked.variant else f"{name}, jointly", f"{level} interval", "letters")
    rows = (
        (ranked.runs[run.row].label, number(run.estimate), interval_of(run), run.letters) for run in ranked.ranking.runs
    )
    return Table.of(columns, rows, left=("model", "letters"))


def pairs_table(ranked: RunRanking) -> Table:
    """Return every pair of ranked runs as a row."""
    columns = ("pair", "difference", f"simultaneous {percent(ranked.ranking.confidence_level)}", "p", "Holm", "max-t")
    rows = (
        (
            f"{ranked.runs[pair.first].label} - {ranked.runs[pair.second].label}",
            number(pair.estimate),
            interval(*pair.simultaneous_interval.or_none()),
            *map(pvalue, (pair.pvalue, pair.pvalue_holm, pair.pvalue_max_t)),
        )
        for pair in ranked.ranking.pairs
    )
    return Table.of(columns, rows, left=("pair",))


def missing_lines(runs: Sequence[ComparedRun]) -> Iterator[str]:
    """Say of each run which questions have no grade, before any number."""
    return map(sentence, missing_statements(runs))
