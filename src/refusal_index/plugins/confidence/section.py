"""Present confidence scores: how well each method ranks and calibrates, and whether it beats the refusals.

In the terminal they are tables and sentences; in summaries, comparisons and the report they are a section. The report
shows two charts for each method, with coordinates in per cent of a square: the reliability diagram, and the ROC curve
with those of all other methods faint behind it. Each curve is in the page once and reused by its id.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from importlib import resources
from itertools import chain
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from refusal_index.data.analysis import Analysis
from refusal_index.data.folder import RunFolder
from refusal_index.data.outcome_table import scores_by_method
from refusal_index.findings.comparison import PairComparison
from refusal_index.findings.metrics import Statement
from refusal_index.findings.run_results import RunResults
from refusal_index.findings.summary import Summary
from refusal_index.plugins.confidence.summary import (
    NAME,
    Difference,
    MethodSummary,
    ScoreComparison,
    compare_confidence,
    graded,
    shared_caveats,
    summarise_outcomes,
)
from refusal_index.render.format import (
    Block,
    Table,
    abbreviated,
    abridged,
    count,
    interval_of,
    listed,
    number,
    percent,
    title,
)
from refusal_index.render.report.page import BOX, MetricRow, environment
from refusal_index.render.report.scales import UNIT, Scale
from refusal_index.render.run_view import RunView
from refusal_index.render.sections import PageSection, Section
from refusal_index.render.sentences import add_sentences, phrase, sentence
from refusal_index.stats import Estimate, reliability_table
from refusal_index.stats.calibration import roc_counts

add_sentences(__package__)


MAX_METHODS = 5
"""Maximum number of methods in the short output."""

MAX_METHOD_LENGTH = 23
"""Maximum length of their names in characters."""


def confidence_screen(summary: Sequence[MethodSummary]) -> Iterator[Block]:
    """Yield which method has the highest AUROC and a table that starts with it, within 80 columns."""
    if not summary:
        yield "no scores"
        return
    ranked = sorted(
        summary, key=lambda method: math.inf if method.auroc.estimate is None else -method.auroc.estimate
    )  # the first of several with the same AUROC stays first
    best = ranked[0]
    shown = ranked[:MAX_METHODS]
    yield title(best.model, best.dataset)
    yield " ".join(map(sentence, best.conclusions()))
    if best.questions:
        yield sentence(best.verdict())
    rows = (
        (
            abbreviated(method.name, MAX_METHOD_LENGTH),
            number(method.auroc.estimate, 2),
            interval_of(method.auroc, 2),
            count(method.questions),
            number(method.ece, 2),
            phrase(method.tone, "short_verdict"),
        )
        for method in shown
    )
    columns = ("method", "AUROC", "95% interval", "answers", "ECE", "against refusals")
    yield from ("", Table.from_rows(columns, rows, left=("method", "against refusals")), "")
    yield sentence(Statement("confidence_explained", "scope"))
    for names, caveat in shared_caveats(shown):
        if caveat.code == "method_left_out" or (caveat.severity == "serious" and best.name in names):
            yield f"Caveat: {best.name if caveat.severity == 'serious' else abridged(names)}: {sentence(caveat)}"
    yield sentence(Statement("more_methods", "scope", {"left_out": len(ranked) - len(shown)}))


def confidence_blocks(summary: Sequence[MethodSummary]) -> Iterator[Block]:
    """Yield the measures of each method, its caveats, and the full comparison with the refusals."""
    if not summary:
        yield "no scores"
        return
    yield measures_table(summary)
    yield from _highest(summary)
    yield from _remarks(summary)
    yield from ("", sentence(Statement("against_refusals", "scope")), "", against_table(summary))
    for method in summary:
        yield from ("", sentence(method.verdict()))
    columns = ("target", *chain.from_iterable((target, f"interval of {target}") for target in summary[0].targets))
    rows = ((method.name, *chain.from_iterable(map(estimate_cells, method.targets.values()))) for method in summary)
    yield from ("", sentence(Statement("confidence_targets", "scope")), "")
    yield Table.from_rows(columns, rows, left=("target",))


def measures_blocks(summary: Sequence[MethodSummary]) -> Iterator[Block]:
    """Yield a short version for the summary of a run; nothing if there are no scores."""
    if not summary:
        return
    yield from ("", measures_table(summary))
    yield from _highest(summary)
    yield from _remarks(summary)
    yield from ("", sentence(Statement("against_refusals", "scope")))
    for method in summary:
        if method.questions:
            yield from ("", sentence(method.verdict(numbers=True)))


def _highest(summary: Sequence[MethodSummary]) -> Iterator[Block]:
    """Yield which method has the highest AUROC of several, for each model and dataset."""
    for method in summary:
        if method.highest is not None:
            yield from ("", " ".join(map(sentence, method.conclusions())))


def _remarks(summary: Sequence[MethodSummary]) -> Iterator[Block]:
    for names, caveat in shared_caveats(summary):
        yield from ("", f"{listed(names)}: {sentence(caveat)}")


def estimate_cells(result: Estimate) -> tuple[str, str]:
    """Return the cells of an estimate and its interval."""
    return number(result.estimate), interval_of(result)


def measures_table(summary: Sequence[MethodSummary]) -> Table:
    """Return the table of measures, one row for each method."""
    has_several = len({(method.model, method.dataset) for method in summary}) > 1
    heading = "model, dataset, confidence" if has_several else "confidence"
    columns = (heading, "answers", "right", "AUROC", "interval", "ECE", "RMS", "smooth ECE", "Brier", "AURC", "PRR")
    rows = (
        (
            title(method.model, method.dataset, method.name) if has_several else method.name,
            f"{method.questions:,}",
            number(method.accuracy),
            *estimate_cells(method.auroc),
            *map(number, (method.ece, method.rms_calibration_error, method.smooth_ece)),
            *map(number, (method.brier.estimate, method.aurc, method.prr)),
        )
        for method in summary
    )
    return Table.from_rows(columns, rows, left=(heading,))


def against_table(summary: Sequence[MethodSummary]) -> Table:
    """Return the table of scores against refusals, one row for each method and variant."""

    def cells(difference: Difference) -> tuple[str, ...]:
        return number(difference.score), number(difference.refusals), *estimate_cells(difference.difference)

    columns = ("confidence", "refusals of", "n", "refused", "RI by score", "by refusals", "difference", "interval")
    errors = ("wrong when answering by score", "by refusals ", "difference ", "interval ", "verdict")
    rows = (
        (
            *(method.name, comparison.variant or "all", f"{comparison.questions:,}", f"{comparison.refused:,}"),
            *(*cells(comparison.refusal_index), *cells(comparison.answered_error_rate)),
            phrase(comparison.verdict, "short_verdict"),
        )
        for method in summary
        for comparison in method.against
    )
    return Table.from_rows((*columns, *errors), rows, left=("confidence", "refusals of", "verdict"))


def scores_table(comparison: PairComparison) -> Table:
    """Return the table that compares the scores of two runs, one row for each method and measure."""
    level = percent(comparison.analysis.confidence_level)
    labels = [run.label for run in comparison.runs]
    columns = ("confidence", "measure", "questions", *labels, "difference", f"{level} interval")
    rows = (
        (
            f"{score.method} ({score.variant})" if score.variant else score.method,
            phrase(score.measure, "measure"),
            " and ".join(f"{n:,}" for n in score.questions[: 1 if score.paired else 2]),
            *(number(score.first), number(score.second), *estimate_cells(score.difference)),
        )
        for score in comparison.sections[NAME]
    )
    return Table.from_rows(columns, rows, left=("confidence", "measure"))


MAX_POINTS = 300
"""Maximum number of points of a ROC curve; more are not visible at the size of the chart."""


def section_values(page: RunView) -> dict[str, Any] | None:
    """Return the template values for the section of a run; None if it has no scores."""
    run = page.run
    summary = page.summary
    methods_shown: Sequence[MethodSummary] = summary.sections.get(NAME, ())
    if not methods_shown or run.confidence is None:
        return None
    tables = scores_by_method(run.confidence)
    level = summary.analysis.confidence_level
    methods = []
    for position, method in enumerate(methods_shown, start=1):
        score, right = graded(tables[method.key])
        bins = reliability_table(score, right, n_bins=10, confidence_level=level)
        points = () if method.auroc.estimate is None else zip(*roc_points(score, right), strict=True)
        roc = " ".join(f"{BOX * x:.0f},{BOX * (1 - y):.0f}" for x, y in points)
        # The curve is drawn from `roc`, its points in SVG, and is reused by its id.
        filled = [bin_ for bin_ in bins if bin_.count]
        curve = f"{page.anchor}-roc-{position}"
        methods.append({"summary": method, "bins": filled, "roc": roc, "curve": curve})
    caveats = [*shared_caveats(methods_shown)]
    if summary.is_sampled:
        caveats.append(((), Statement("one_by_one", "scope")))
    variants = tuple(run.tables)
    lowest = min([0.5, *(method.auroc.low for method in methods_shown if method.auroc.low is not None)])
    return {
        "anchor": f"{page.anchor}-confidence",
        "level": level,
        "methods": methods,
        "summaries": methods_shown,
        "several_passes": len({method.scored_pass for method in methods_shown}) > 1,
        "area": Scale(math.floor(10 * lowest) / 10, 1.0),  # from 0.5, or the lowest interval, to 1
        "unit": UNIT,
        "index": tuple(_rows(methods_shown, variants, "refusal_index")),
        "errors": tuple(_rows(methods_shown, variants, "answered_error_rate")),
        "names": [variant or "all" for variant in variants],
        "highest": [method for method in methods_shown if method.highest is not None],
        "caveats": caveats,
    }


def roc_points(score: NDArray[np.float64], right: NDArray[np.bool_]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the points of the ROC curve: shares of wrong and of right answers that score at least a threshold.

    Tied scores make one point, and points on a straight line are omitted. At most `MAX_POINTS` points are kept, evenly
    spaced.

    >>> wrong, right = roc_points(np.array([0.9, 0.7, 0.7, 0.2]), np.array([True, False, True, False]))
    >>> wrong.tolist(), right.tolist()
    ([0.0, 0.0, 0.5, 1.0], [0.0, 0.5, 1.0, 1.0])
    """
    hits, passed = (np.concatenate([[0], counts]) for counts in roc_counts(score, right)[1:])
    across = np.diff(passed - hits)
    rise = np.diff(hits)
    turns = np.flatnonzero(across[1:] * rise[:-1] != across[:-1] * rise[1:]) + 1
    corners = np.concatenate([[0], turns, [len(hits) - 1]])
    shown = corners[np.linspace(0, len(corners) - 1, min(len(corners), MAX_POINTS)).round().astype(int)]
    return ((passed - hits) / np.count_nonzero(~right))[shown], (hits / np.count_nonzero(right))[shown]


def _rows(methods: Sequence[MethodSummary], variants: Sequence[str | None], metric: str) -> Iterator[MetricRow]:
    """Yield a row for each method with its differences under all variants; all rows share one axis."""
    cells: dict[tuple[str, str | None], dict[str | None, Estimate]] = {}
    for method_summary in methods:
        if method_summary.questions:
            by_variant = cells.setdefault((method_summary.method, method_summary.scored_pass), {})
            by_variant.update(
                {comparison.variant: getattr(comparison, metric).difference for comparison in method_summary.against}
            )
    values = [v for row in cells.values() for cell in row.values() for v in (cell.estimate, cell.low, cell.high)]
    reach = max([0.1, *(abs(value) for value in values if value is not None)])
    scale = Scale(-math.ceil(10 * reach) / 10, math.ceil(10 * reach) / 10)
    for (method, _), row in cells.items():
        yield MetricRow(method, "", scale, tuple(row.get(variant) for variant in variants))


class ConfidenceSection(Section):
    """Confidence scores in summaries, comparisons and the report."""

    name = NAME
    style = resources.files(__package__).joinpath("report.css").read_text(encoding="utf-8")

    def summarise(
        self, outcomes: pl.LazyFrame, folder: RunFolder | None, analysis: Analysis
    ) -> tuple[MethodSummary, ...]:
        """Return a summary of each method that scored answers."""
        return summarise_outcomes(outcomes, folder.read_confidence() if folder else None, analysis)

    def summary_blocks(self, summary: Summary) -> Iterator[Block]:
        """Yield the measures of each method and whether it beats the refusals."""
        methods = summary.sections[NAME]
        yield from measures_blocks(methods)
        if methods and summary.is_sampled:
            yield from ("", sentence(Statement("one_by_one", "scope")))

    def compare(self, runs: Sequence[RunResults], analysis: Analysis) -> tuple[ScoreComparison, ...]:
        """Compare the methods that scored the answers of both runs."""
        first, second = runs
        return compare_confidence(first, second, analysis)

    def comparison_blocks(self, comparison: PairComparison) -> Iterator[Block]:
        """Yield a row for each method and measure."""
        scores = comparison.sections[NAME]
        if scores:
            yield from ("", scores_table(comparison))
            paired = sorted({score.paired for score in scores}, reverse=True)
            caveats = [Statement("scores_compared", "scope", {"paired": paired})]
            if comparison.variants[0].match.matrix.design:
                caveats.append(Statement("one_by_one", "scope"))
            yield " ".join(map(sentence, caveats))

    def of_run(self, run: RunView) -> Iterator[PageSection]:
        """Yield the charts, measures and the comparison with the refusals."""
        values = section_values(run)
        if values is not None:
            html = environment(__package__).get_template("confidence.html.j2").render(values)
            yield PageSection(values["anchor"], "Confidence", html)


SECTION = ConfidenceSection()
