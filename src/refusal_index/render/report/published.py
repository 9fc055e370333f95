"""Runs among the models of the paper, as a picture of dots and intervals in the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from refusal_index.findings.metrics import Statement
from refusal_index.findings.published import AmongPublished, PlacedModel, compare_with_paper
from refusal_index.render.published import Notes
from refusal_index.render.report.scales import Scale, index_scale
from refusal_index.render.run_view import RunView
from refusal_index.stats import Estimate


@dataclass(frozen=True)
class PublishedLine:
    """One model of the picture."""

    name: str
    index: Estimate
    is_run: bool
    is_grey: bool  # whether it is a published value that is not comparable with the runs
    letters: str  # of its notes


@dataclass(frozen=True)
class PublishedPicture:
    """Runs and published models on one axis, the highest RI first."""

    among: AmongPublished
    lines: tuple[PublishedLine, ...]
    notes: tuple[tuple[str, str], ...]  # letter and text
    scale: Scale

    @property
    def statements(self) -> tuple[Statement, ...]:
        """What the picture shows, and what it does not."""
        return tuple(one for one in self.among.statements if one.code != "published_not_comparable")


def published_pictures(views: Sequence[RunView]) -> list[PublishedPicture]:
    """Return a picture for each dataset of some runs for which the paper prints values."""
    analysis = views[0].summary.analysis
    return [_picture(among) for among in compare_with_paper([view.run for view in views], analysis).datasets]


def _picture(among: AmongPublished) -> PublishedPicture:
    notes = Notes()
    lines = tuple(_line(among, model, notes) for model in among.models)
    return PublishedPicture(among, lines, tuple(notes.by_letter()), index_scale(line.index for line in lines))


def _line(among: AmongPublished, model: PlacedModel, notes: Notes) -> PublishedLine:
    letters = notes.letters_of((*model.reasons, *model.remarks))
    return PublishedLine(model.name, model.index, model.source == "run", among.is_grey(model), letters)
