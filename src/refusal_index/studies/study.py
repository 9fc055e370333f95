"""What a study is: a tidy frame, a figure that draws exactly this frame, and a caption that says what it shows.

References
----------
.. [1] Pan, W., Xu, J., Chen, Q., et al. Can LLMs Refuse Questions They Do Not Know? Measuring Knowledge-Aware Refusal
   in Factual Tasks.

Numbers as printed tables show them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path

import polars as pl
from matplotlib.figure import Figure

from refusal_index.errors import RefusalIndexError
from refusal_index.outcomes.runs import ComparedRun
from refusal_index.studies.style import house_style, new_figure


class NotPossibleError(RefusalIndexError, ValueError):
    """The runs do not allow a study; the message says which runs it needs, and what was found.

    - `brief`: what it needs, as a sentence.
    - `notes`: what was left out and why, a sentence each.
    """

    def __init__(self, brief: str, notes: Sequence[str] = ()) -> None:
        super().__init__(" ".join([brief, *notes]))
        self.brief, self.notes = brief, tuple(notes)

    @property
    def short(self) -> str:
        """The first sentence, with how many notes say what was left out."""
        notes = len(self.notes)
        return self.brief + (f" ({notes:,} note{'s' if notes > 1 else ''} on what was left out.)" if notes else "")


@dataclass(frozen=True)
class StudyOptions:
    """How to make a study."""

    # penalty, confidence_level: of the weighted score, and of every interval
    penalty: float = 1.0
    confidence_level: float = 0.95
    seed: int = 0  # of everything that is simulated or resampled
    # a table of models (columns ``model``, ``family``, ``parameters``) beside that of the paper; None for no other
    models: Path | None = None


@dataclass(frozen=True, eq=False)
class Study:
    """A finished study."""

    # name, title: as in the registry, ``accuracy_refusal_plane`` and *Accuracy-refusal plane*
    name: str
    title: str
    caption: str  # what is shown, of which data, with which intervals, in which convention: complete sentences
    frame: pl.DataFrame  # one row an observation, with fixed column names: exactly what `draw` draws
    # draws the frame into an empty figure, whose size it may set; None for a study that is a table only
    draw: Callable[[Figure, pl.DataFrame], None] | None
    notes: tuple[str, ...] = ()  # what was left out and why, a sentence each
    # makes of the frame the table for print: few rows, formatted cells; None to print the frame as it is
    printed: Callable[[pl.DataFrame], pl.DataFrame] | None = None
    groups: Mapping[str, str] = field(default_factory=dict)  # by column of the printed table the heading above it

    def figure(self) -> Figure:
        """Draw the figure in the style of the package, without touching Matplotlib's global state.

        Raises ValueError if the study is a table only.
        """
        if self.draw is None:
            raise ValueError(f"{self.name} is a table without a figure; use its frame")
        with house_style():
            figure = new_figure()
            self.draw(figure, self.frame)
        return figure


STUDY_NAMES = (
    "results_table",
    "accuracy_refusal_plane",
    "iso_refusal_index",
    "score_variability",
    "auroc_correlation",
    "ranking_stability",
    "ranking_with_ties",
    "index_and_accuracy",
    "index_and_size",
    "index_predictors",
    "thinking",
    "hallucination_table",
    "copula_comparison",
    "sample_size",
    "prompt_agreement",
    "calibrator_comparison",
    "calibrator_cost",
    "score_or_refusal",
    "cost_table",
    "attenuation",
    "grading_sensitivity",
    "operating_point",
    "response_to_penalty",
)
"""Each is a module of this package with ``NAME``, ``TITLE``, ``NEEDS`` and ``make``."""


@dataclass(frozen=True)
class StudySpec:
    """What is known of a study before it is made."""

    # name, title: for the command line, and for people
    name: str
    title: str
    needs: str  # which runs it needs, as a sentence ends that begins with "It needs"
    # makes it; raises `NotPossibleError` where the runs do not allow it
    make: Callable[[Sequence[ComparedRun], StudyOptions], Study]


@cache
def study_spec(name: str) -> StudySpec:
    """Find a study by name.

    Raises KeyError if there is none of this name.

    >>> study_spec("results_table").title
    'Full results'
    """
    if name not in STUDY_NAMES:
        raise KeyError(name)
    module = import_module(f"refusal_index.studies.{name}")
    return StudySpec(module.NAME, module.TITLE, module.NEEDS, module.make)


def study_specs() -> tuple[StudySpec, ...]:
    """Return all studies in order."""
    return tuple(study_spec(name) for name in STUDY_NAMES)


def each_study(runs: Sequence[ComparedRun], options: StudyOptions) -> Iterator[tuple[StudySpec, Study | ValueError]]:
    """Make every study that the runs allow, and give the error of each of the others.

    A `NotPossibleError` says what other runs it needs; any other is of a study that cannot take these outcomes, which
    should not cost the others.
    """
    for spec in study_specs():
        try:
            made: Study | ValueError = spec.make(runs, options)
        except ValueError as error:
            made = error
        yield spec, made


NOTHING = "-"
MOST_NAMED = 4


def number(value: float | None, digits: int = 3, *, signed: bool = False) -> str:
    """Return a number as text; a dash where there is none.

    >>> number(0.27331), number(-0.2, 2, signed=True), number(None)
    ('0.273', '-0.20', '-')
    """
    if value is None:
        return NOTHING
    return f"{value:+.{digits}f}" if signed else f"{value:.{digits}f}"


def count(value: int | None) -> str:
    """Return a count as text; a dash where there is none."""
    return NOTHING if value is None else f"{value:,}"


def with_interval(
    estimate: float | None, low: float | None, high: float | None, reason: str | None = None, digits: int = 3
) -> str:
    """Return an estimate with its interval, or why there is none.

    >>> with_interval(0.2733, 0.2027, 0.3412), with_interval(None, None, None, "nobody_refused")
    ('0.273 [0.203, 0.341]', 'undefined (nobody refused)')
    """
    if estimate is None:
        return f"undefined ({reason.replace('_', ' ')})" if reason else NOTHING
    if low is None or high is None:
        return number(estimate, digits)
    return f"{number(estimate, digits)} [{number(low, digits)}, {number(high, digits)}]"


def widened(frame: pl.DataFrame, index: list[str], on: str, cell: str) -> pl.DataFrame:
    """Spread a column's values into columns, in the order in which they appear; a dash where there is no cell."""
    names = frame[on].unique(maintain_order=True).to_list()
    wide = frame.pivot(on, index=index, values=cell, maintain_order=True)
    return wide.select(*index, *names).with_columns(pl.col(name).fill_null(NOTHING) for name in names)


def listed(names: Sequence[str]) -> str:
    """Name a few of many things, and count the rest.

    >>> listed(["a", "b"]), listed(["a", "b", "c", "d", "e", "f"])
    ('a; b', 'a; b; c; d and 2 more')
    """
    more = len(names) - MOST_NAMED
    return "; ".join(names[:MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")
