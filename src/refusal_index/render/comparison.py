"""Runs compared or ranked, as text: a first screen of 80 columns, and every number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from refusal_index.data.rates import BY_ANSWERABLE
from refusal_index.findings.comparison import PairComparison, both_numbers, is_significant
from refusal_index.findings.metrics import INDEX, METRICS, Statement
from refusal_index.findings.ranking import RunRanking
from refusal_index.findings.sections import registered_sections
from refusal_index.render.format import (
    UNDEFINED,
    Block,
    Definitions,
    Table,
    abbreviated,
    count,
    interval,
    interval_of,
    number,
    percent,
    pvalue,
)
from refusal_index.render.sentences import paragraphs, selected, sentence
from refusal_index.render.summary import marks, rates_explained, scale_start

MISSING = ("never_forced", "missing_grades", "forced_refusals_of")
MATCHES = ("matched", "partly_shared", "none_shared", "unpaired")
SAMPLING = ("clusters", "weights")
CONCLUSIONS = (
    "refused_by_answerable",
    "ahead",
    "not_told_apart",
    "difference_not_settled",
    "difference_unknown",
    "leader",
    "no_leader",
)
DIFFERENT = ("other_models_answered", "settings_differ", "payoffs_differ")
RATES = {
    "refused": "refusal_rate",
    "precision": "refusal_precision",
    "wrong": "correct_given_attempted",
    "over-refusal": "over_refusal",
}
"""Columns of the first screen, and the metric of each; in a run, "wrong" is 1 - C/A too."""
MAX_NAME_LENGTH = 12
MAX_LABEL_LENGTH = 24
SCALE_WIDTH = 21
MAX_RUNS = 8
"""On a first screen: characters of a prompt's name, of a run's name and of a scale, and number of ranked runs."""


def _first_lines(compared: PairComparison | RunRanking) -> Iterator[Block]:
    """Yield what the runs lack, each before an empty line."""
    for line in selected(compared, *MISSING):
        yield from (line, "")


def pair_screen(comparison: PairComparison) -> Iterator[Block]:
    """Yield which of two runs is better and how certain this is, the rates of both, and serious caveats."""
    yield from _first_lines(comparison)
    yield f"{comparison.labels[0]} vs {comparison.labels[1]}"
    yield from selected(comparison, *CONCLUSIONS, "depends_on_copula")
    table = _rates_table(comparison)
    yield from ("", table, "", sentence(_pair_explained(comparison)))
    yield Definitions(sentence(rates_explained(table.columns)))
    matched = [statement for statement in comparison.statements if statement.code in MATCHES]
    alike = [replace(statement, values={**statement.values, "variant": None}) for statement in matched]
    yield from map(sentence, alike[:1] if all(statement == alike[0] for statement in alike) else matched)
    caveats = ("indices_disagree", "difference_at_boundary", "difference_undefined", *DIFFERENT)
    yield from selected(comparison, *SAMPLING, *caveats)


def _pair_explained(comparison: PairComparison) -> Statement:
    """Explain the cells of the table, and which p-values are adjusted."""
    primary = ("combined RI" if comparison.joint else "RI") if comparison.has_primary else None
    values = {"alpha": 1 - comparison.analysis.confidence_level, "primary": primary}
    return Statement("pair_explained", "scope", values)


def _rates_table(comparison: PairComparison) -> Table:
    """Return RI and the rates of both runs, a row for each prompt."""
    compared = {(metric, variant): (difference, holm) for metric, variant, difference, holm in comparison.rows()}
    names = {variant.name: abbreviated(variant.name, MAX_NAME_LENGTH) for variant in comparison.variants}
    alpha = 1 - comparison.analysis.confidence_level
    index = {METRICS[INDEX].column: INDEX}
    split = {METRICS[name].column: name for name in BY_ANSWERABLE}
    is_split = any(metric in BY_ANSWERABLE for metric, _ in compared)
    columns = split | index | {"wrong": RATES["wrong"]} if is_split else index | RATES

    def cell(metric: str, variant: str) -> str:
        if (metric, variant) not in compared:
            return ""
        difference, holm = compared[metric, variant]
        is_marked = is_significant(difference, difference.pvalue if holm is None else holm, alpha)
        numbers: Sequence[float | None] = both_numbers(difference)
        if metric == "correct_given_attempted":  # shown as the rate of errors
            numbers = [None if value is None else 1 - value for value in numbers]
        shown = " / ".join(number(value, 2) if metric == INDEX else percent(value, 0) for value in numbers)
        return UNDEFINED if set(numbers) == {None} else shown + ("*" if is_marked else "")

    joint = [("combined", variant) for metric, variant in compared if metric == INDEX and variant not in names][:1]
    rows = [
        (label, *(cell(metric, name) for metric in columns.values()))
        for label, name in (*joint, *((label, name) for name, label in names.items()))
    ]
    return Table.from_rows(("prompt", *columns), rows, left=("prompt",)).without_empty()


def pair_blocks(comparison: PairComparison) -> Iterator[Block]:
    """Yield all differences of two runs, and the settings that differ."""
    yield from _first_lines(comparison)
    yield f"Differences: {' minus '.join(run.label for run in comparison.runs)}"
    for line in selected(comparison, "depends_on_copula"):
        yield from (line, "")
    yield from selected(comparison, *MATCHES, *SAMPLING)
    level = comparison.analysis.confidence_level
    labels = [run.label for run in comparison.runs]
    columns = ("metric", "prompt", *labels, "difference", f"{percent(level)} interval", "p", "Holm", "status")
    rows = (
        (
            METRICS[metric].column,
            variant,
            *(number(value, METRICS[metric].digits) for value in (*both_numbers(difference), difference.estimate)),
            interval(*difference.confidence_interval(level).or_none(), METRICS[metric].digits),
            pvalue(difference.pvalue),
            pvalue(holm),
            difference.status,
        )
        for metric, variant, difference, holm in comparison.rows()
    )
    yield from ("", Table.from_rows(columns, rows, left=("metric", "prompt", "status")))
    indices = ("corrected_repeats_ri", "corrected_ri", "indices_disagree", "models_differ_in_randomness")
    undefined = ("difference_at_boundary", "difference_undefined")
    yield from paragraphs(selected(comparison, "primary", "no_primary", *indices, *undefined))
    for section in registered_sections().values():
        if section.name in comparison.sections:
            yield from section.comparison_blocks(comparison)
    yield from paragraphs(selected(comparison, *DIFFERENT))


def ranking_screen(ranked: RunRanking) -> Iterator[Block]:
    """Yield the best run and its ties, a row for each run, and serious caveats."""
    yield from _first_lines(ranked)
    yield from selected(ranked, *CONCLUSIONS)
    runs = ranked.ranking.runs
    if len(runs) > 1:
        metric = METRICS[ranked.ranking.metric]
        start = min(scale_start(run.low) for run in runs)
        has_scale = metric.unit == "correlation"
        level = f"{percent(ranked.ranking.confidence_level)} interval"
        columns = ("run", metric.column, level, *([f"{start} to 1"] if has_scale else []), "letters")
        rows = (
            (
                abbreviated(ranked.runs[run.row].label, MAX_LABEL_LENGTH),
                number(run.estimate, 2),
                interval_of(run, 2),
                *([marks(run, start, SCALE_WIDTH)] if has_scale else []),
                run.letters,
            )
            for run in runs[:MAX_RUNS]
        )
        yield from ("", Table.from_rows(columns, rows, left=("run", "letters")))
        if len(runs) > MAX_RUNS:
            yield f"and {count(len(runs) - MAX_RUNS, 'run')} more"
        yield ""
    yield from selected(ranked, "letters", *MATCHES, *SAMPLING)
    yield from selected(ranked, "variants_left_out", "two_prompts_ranked", "not_ranked", "nothing_to_rank", *DIFFERENT)


def ranking_blocks(ranked: RunRanking) -> Iterator[Block]:
    """Yield a ranking, the questions it uses, and the settings that differ."""
    yield from _first_lines(ranked)
    yield from selected(ranked, *MATCHES, *SAMPLING)
    codes = ("variants_left_out", "two_prompts_ranked", "not_ranked", "boundary_tested", "nothing_to_rank")
    yield from paragraphs(selected(ranked, *codes))
    ranking = ranked.ranking
    labels = ranked.labels
    if len(ranking.runs) > 1:
        name = METRICS[ranking.metric].column
        level = percent(ranking.confidence_level)
        columns = ("model", name if ranked.variant else f"{name}, combined", f"{level} interval", "letters")
        rows = ((labels[run.row], number(run.estimate), interval_of(run), run.letters) for run in ranking.runs)
        yield from ("", Table.from_rows(columns, rows, left=("model", "letters")), "")
        yield from selected(ranked, "letters")
        headings = ("pair", "difference", f"simultaneous {level}", "p", "Holm", "max-t")
        pairs = (
            (
                f"{labels[pair.first]} - {labels[pair.second]}",
                number(pair.estimate),
                interval(*pair.simultaneous_interval.or_none()),
                *map(pvalue, (pair.pvalue, pair.pvalue_holm, pair.pvalue_max_t)),
            )
            for pair in ranking.pairs
        )
        yield from ("", Table.from_rows(headings, pairs, left=("pair",)))
    yield from paragraphs(selected(ranked, "corrected_ri", *DIFFERENT))
