"""A cut of a score as text: what it promises, and what it gave on the questions that it was not chosen on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from refusal_index.findings.threshold import OperatingPoint, Threshold, Worth
from refusal_index.render.blocks import Block, Table, shows
from refusal_index.render.format import interval_of, number
from refusal_index.render.sentences import sentence

COLUMNS = ("n", "answered", "interval", "errors of answered", "interval ", "utility", "interval  ")


@shows(Threshold)
def threshold_blocks(found: Threshold) -> Iterator[Block]:
    """Yield the choice in words, what must be said beside it, and the numbers of the other half."""
    compared = [(one, one.difference) for one in found.points if one.difference is not None]
    for place, one in enumerate(found.statements):
        yield from [""] * bool(place)
        yield sentence(one)
        if one.code == "judged_on_other_half":
            yield from ("", _table(found, "", [(point, point.worth) for point in found.points]))
        elif one.code == "cut_less_others":
            yield from ("", _table(found, "the cut less", compared))


def _table(found: Threshold, heading: str, rows: Sequence[tuple[OperatingPoint, Worth]]) -> Table:
    cells = ((sentence(found.name(point)), f"{point.questions:,}", *_cells(worth)) for point, worth in rows)
    return Table.of((heading, *COLUMNS), cells, left=(heading,))


def _cells(worth: Worth) -> Iterator[str]:
    for one in (worth.coverage, worth.error_rate, worth.utility):
        yield from (number(one.estimate), interval_of(one))
