"""Scores of a run, of two runs compared, and cuts, as tables and sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from refusal_index.findings.comparison import PairComparison
from refusal_index.findings.statement import Statement
from refusal_index.plugins.confidence.summary import NAME, MethodSummary, shared_remarks
from refusal_index.render.blocks import Block, Table
from refusal_index.render.format import abbreviated, abridged, count, interval_of, listed, number, percent, title
from refusal_index.render.sentences import add_sentences, phrase, sentence
from refusal_index.stats import Estimate

add_sentences(__package__)


MOST_METHODS, LONGEST_METHOD = 5, 23
"""Methods that the first screen shows, and the characters of their names."""


def confidence_screen(summary: Sequence[MethodSummary]) -> Iterator[Block]:
    """Yield which method ranks the answers best, and a row for each, the best first, on a screen of 80 columns."""
    if not summary:
        yield "no scores"
        return
    ranked = sorted(summary, key=lambda one: -math.inf if one.auroc.estimate is None else one.auroc.estimate)[::-1]
    best, shown = ranked[0], ranked[:MOST_METHODS]
    yield title(best.model, best.dataset)
    yield sentence(Statement("best_method", "conclusion", {"best": best, "several": len(ranked) > 1}))
    if best.questions:
        yield sentence(best.verdict())
    rows = (
        (
            abbreviated(one.name, LONGEST_METHOD),
            number(one.auroc.estimate, 2),
            interval_of(one.auroc, 2),
            count(one.questions),
            number(one.ece, 2),
            phrase(one.tone, "short_verdict"),
        )
        for one in shown
    )
    columns = ("method", "AUROC", "95 % interval", "answers", "ECE", "against refusals")
    yield from ("", Table.of(columns, rows, left=("method", "against refusals")), "")
    yield sentence(Statement("confidence_explained", "scope"))
    for names, remark in shared_remarks(shown):
        if remark.code == "method_left_out" or (remark.severity == "grave" and best.name in names):
            yield f"Caution: {best.name if remark.severity == 'grave' else abridged(names)}: {sentence(remark)}"
    yield sentence(Statement("more_methods", "scope", {"left_out": len(ranked) - len(shown)}))


def confidence_blocks(summary: Sequence[MethodSummary]) -> Iterator[Block]:
    """Yield how well each method orders and calibrates, what it scored, and in full whether it beats the refusals."""
    if not summary:
        yield "no scores"
        return
    yield measures_table(summary)
    yield from _remarks(summary)
    yield from ("", sentence(Statement("against_refusals", "scope")), "", against_table(summary))
    for one in summary:
        yield from ("", sentence(one.verdict()))
    yield from ("", sentence(Statement("confidence_targets", "scope")), "", targets_table(summary))


def measures_blocks(summary: Sequence[MethodSummary]) -> Iterator[Block]:
    """Yield the same in short, beside the other numbers of a run; nothing without scores."""
    if not summary:
        return
    yield from ("", measures_table(summary))
    yield from _remarks(summary)
    yield from ("", sentence(Statement("against_refusals", "scope")))
    for one in summary:
        if one.questions:
            yield from ("", sentence(one.verdict(numbers=True)))


def _remarks(summary: Sequence[MethodSummary]) -> Iterator[Block]:
    for names, remark in shared_remarks(summary):
        yield from ("", f"{listed(names)}: {sentence(remark)}")


def measures_table(summary: Sequence[MethodSummary]) -> Table:
    """Make the table of the measures, one row a method."""
    several = len({(one.model, one.dataset) for one in summary}) > 1
    heading = "model, dataset, confidence" if several else "confidence"
    columns = (heading, "answers", "right", "AUROC", "interval", "ECE", "RMS", "smooth ECE", "Brier", "AURC", "PRR")
    rows = (
        (
            title(one.model, one.dataset, one.name) if several else one.name,
            f"{one.questions:,}",
            number(one.accuracy),
            number(one.auroc.estimate),
            interval_of(one.auroc),
            *map(number, (one.ece, one.rms_calibration_error, one.smooth_ece, one.brier.estimate, one.aurc, one.prr)),
        )
        for one in summary
    )
    return Table.of(columns, rows, left=(heading,))


def targets_table(summary: Sequence[MethodSummary]) -> Table:
    """Make the table of the value at each confidence target, one row a method."""
    targets = list(dict.fromkeys(target for one in summary for target in one.targets))
    columns = ("target", *(cell for target in targets for cell in (target, f"interval of {target}")))
    rows = (
        (one.name, *(cell(one.targets[target]) for target in targets for cell in (_estimate, interval_of)))
        for one in summary
    )
    return Table.of(columns, rows, left=("target",))


def _estimate(found: Estimate) -> str:
    return number(found.estimate)


def against_table(summary: Sequence[MethodSummary]) -> Table:
    """Make the table of scores against refusals, one row a method and variant."""
    columns = ("confidence", "refusals of", "n", "refused", "RI by score", "by refusals", "difference", "interval")
    errors = ("errors of answered by score", "by refusals ", "difference ", "interval ", "verdict")
    rows = (
        (
            *(method.name, one.variant or "all", f"{one.questions:,}", f"{one.refused:,}"),
            *(
                cell
                for found in (one.refusal_index, one.answered_error_rate)
                for cell in (
                    *map(number, (found.score, found.refusals, found.difference.estimate)),
                    interval_of(found.difference),
                )
            ),
            phrase(one.verdict, "short_verdict"),
        )
        for method in summary
        for one in method.against
    )
    return Table.of((*columns, *errors), rows, left=("confidence", "refusals of", "verdict"))


def scores_table(found: PairComparison) -> Table:
    """Return how the scores of either run order and calibrate, a row a method and measure."""
    level, labels = percent(found.options.confidence_level), [run.label for run in found.runs]
    columns = ("confidence", "measure", "questions", *labels, "difference", f"{level} interval")
    rows = (
        (
            f"{one.method} ({one.variant})" if one.variant else one.method,
            phrase(one.measure, "measure"),
            " and ".join(f"{n:,}" for n in one.questions[: 1 if one.paired else 2]),
            *map(number, (one.first, one.second, one.difference.estimate)),
            interval_of(one.difference),
        )
        for one in found.sections[NAME]
    )
    return Table.of(columns, rows, left=("confidence", "measure"))
