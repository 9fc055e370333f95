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
def pair_blocks(found: PairComparison) -> Iterator[Block]:
    """Yield what came out of a comparison of two runs, and whether they were asked alike."""
    for line in selected(found, *MISSING):
        yield from (line, "")
    yield " minus ".join(run.label for run in found.runs)
    yield from selected(found, *QUESTIONS)
    yield from ("", differences_table(found))
    about = ("corrected_repeats_ri", "corrected_ri", "indices_disagree", "models_differ_in_randomness")
    for line in selected(found, "primary", "no_primary", *about, "difference_at_boundary", "difference_undefined"):
        yield from ("", line)
    for section in report_sections():
        if section.name in found.sections:
            yield from section.comparison_blocks(found)
    for line in selected(found, "settings_differ"):
        yield from ("", line)


def differences_table(found: PairComparison) -> Table:
    """Return every difference as a row."""
    level, labels = found.options.confidence_level, [run.label for run in found.runs]
    columns = ("metric", "variant", *labels, "difference", f"{percent(level)} interval", "p", "Holm", "status")
    rows = (
        (
            METRICS[metric].column,
            variant,
            *map(number, (*both_numbers(one), one.estimate)),
            interval(*one.confidence_interval(level).or_none()),
            pvalue(one.pvalue),
            pvalue(holm),
            one.status,
        )
        for (metric, variant, one), holm in zip(found.rows(), found.adjusted_pvalues(), strict=True)
    )
    return Table.of(columns, rows, left=("metric", "variant", "status"))


@shows(RunRanking)
def ranking_blocks(found: RunRanking) -> Iterator[Block]:
    """Yield a ranking, what it rests on, and whether the runs were asked alike."""
    for line in selected(found, *MISSING):
        yield from (line, "")
    yield from selected(found, *QUESTIONS)
    for line in selected(found, "variants_left_out", "not_ranked", "boundary_tested", "nothing_to_rank"):
        yield from ("", line)
    if len(found.ranking.runs) > 1:
        yield from ("", ranks_table(found), "")
        yield from selected(found, "letters")
        yield from ("", pairs_table(found))
    for line in selected(found, "corrected_ri", "settings_differ"):
        yield from ("", line)


def ranks_table(found: RunRanking) -> Table:
    """Return every ranked run as a row."""
    name, level = METRICS[found.ranking.metric].column, percent(found.ranking.confidence_level)
    columns = ("model", name if found.variant else f"{name}, jointly", f"{level} interval", "letters")
    rows = (
        (found.runs[one.row].label, number(one.estimate), interval_of(one), one.letters) for one in found.ranking.runs
    )
    return Table.of(columns, rows, left=("model", "letters"))


def pairs_table(found: RunRanking) -> Table:
    """Return every pair of ranked runs as a row."""
    columns = ("pair", "difference", f"simultaneous {percent(found.ranking.confidence_level)}", "p", "Holm", "max-t")
    rows = (
        (
            f"{found.runs[one.first].label} - {found.runs[one.second].label}",
            number(one.estimate),
            interval(*one.simultaneous_interval.or_none()),
            *map(pvalue, (one.pvalue, one.pvalue_holm, one.pvalue_max_t)),
        )
        for one in found.ranking.pairs
    )
    return Table.of(columns, rows, left=("pair",))


def missing_lines(runs: Sequence[ComparedRun]) -> Iterator[str]:
    """Say of each run which questions have no grade, before any number."""
    return map(sentence, missing_statements(runs))
