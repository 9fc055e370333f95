"""Runs among the models of the paper, as text: a first screen of 80 columns, and every metric."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from refusal_index.data.published import PRINTED_METRICS
from refusal_index.findings.metrics import INDEX, METRICS, Statement
from refusal_index.findings.published import AmongPublished, PaperComparison, PlacedModel
from refusal_index.render.format import Block, Table, abbreviated, interval_of, number
from refusal_index.render.sentences import selected, sentence
from refusal_index.render.summary import marks, scale_start
from refusal_index.stats import Estimate

MAX_NAME_LENGTH = 24
SCALE_WIDTH = 15
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def published_screen(comparison: PaperComparison, *, full: bool = False) -> Iterator[Block]:
    """Yield for each dataset the runs among the published models, ordered by RI, and what is not comparable.

    - `full`: whether to add a table of every printed metric.
    """
    for position, among in enumerate(comparison.datasets):
        if position:
            yield ""
        yield from _dataset_blocks(among, full=full)
    if comparison.datasets and comparison.other_runs:
        yield ""
    yield from selected(comparison, "published_elsewhere")


def _dataset_blocks(among: AmongPublished, *, full: bool) -> Iterator[Block]:
    yield from selected(among, "published_place", "published_apart")
    notes = Notes()
    yield from ("", _index_table(among, notes), "")
    for letter, text in notes.by_letter():
        yield f"{letter}  {text}"
    if full and len(_printed_metrics(among)) > 1:
        yield from ("", _metrics_table(among), "")
        yield sentence(weighted_statement(among))
    yield from selected(among, "published_untested", "published_scope", "published_corrected")


class Notes:
    """Notes of a table's rows, each with a letter."""

    def __init__(self) -> None:
        self._letters: dict[str, str] = {}

    def letters_of(self, reasons: Sequence[Statement]) -> str:
        """Return the letters of some reasons."""
        texts = [sentence(reason) for reason in reasons]
        return ",".join(self._letters.setdefault(text, LETTERS[len(self._letters) % len(LETTERS)]) for text in texts)

    def by_letter(self) -> Iterator[tuple[str, str]]:
        """Yield each letter with its note."""
        for text, letter in self._letters.items():
            yield letter, text


def _index_table(among: AmongPublished, notes: Notes) -> Table:
    """Return RI and its interval, a row for each model."""
    start = min(scale_start(drawn.low) for drawn in map(drawn_index, among.models))
    columns = ("model", "from", METRICS[INDEX].column, "interval", f"{start} to 1", "notes")
    rows = [
        (
            abbreviated(model.name, MAX_NAME_LENGTH),
            model.source,
            number(model.index.estimate, 2),
            interval_of(model.index, 2),
            marks(drawn_index(model), start, SCALE_WIDTH),
            notes.letters_of((*model.reasons, *model.remarks)),
        )
        for model in among.models
    ]
    return Table.from_rows(columns, rows, left=("model", "from", f"{start} to 1", "notes"))


def drawn_index(model: PlacedModel) -> Estimate:
    """Return RI as it is drawn: a dot alone if there is no interval, or one that does not contain it."""
    index = model.index
    if index.estimate is None or index.low is None or index.high is None:
        return Estimate(index.estimate, index.estimate, index.estimate)
    is_inside = index.low <= index.estimate <= index.high
    return index if is_inside else Estimate(index.estimate, index.estimate, index.estimate)


def _printed_metrics(among: AmongPublished) -> list[str]:
    return [name for name in PRINTED_METRICS if all(name in model.metrics for model in among.published.models)]


def _metrics_table(among: AmongPublished) -> Table:
    """Return every printed metric, a row for each model."""
    names = _printed_metrics(among)
    rows = [
        (
            abbreviated(model.name, MAX_NAME_LENGTH),
            model.source,
            *(number(model.metrics[name].estimate, 2) for name in names),
        )
        for model in among.models
    ]
    columns = ("model", "from", *(METRICS[name].column for name in names))
    return Table.from_rows(columns, rows, left=("model", "from"))


def weighted_statement(among: AmongPublished) -> Statement:
    """State with which p the weighted scores of the paper and of the runs are computed."""
    p = among.analysis.payoffs.weighted_score_p
    return Statement("published_weighted", "scope", {"paper": among.published.penalty, "run": p})
