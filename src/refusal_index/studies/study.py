"""What a study is: a tidy frame, a figure that draws exactly this frame, and a caption that says what it shows.

References
----------
.. [1] Pan, W., Xu, J., Chen, Q., et al. Can LLMs Refuse Questions They Do Not Know? Measuring Knowledge-Aware Refusal
   in Factual Tasks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from matplotlib.figure import Figure

from refusal_index.errors import RefusalIndexError
from refusal_index.studies.style import house_style, new_figure


class NotPossibleError(RefusalIndexError, ValueError):
    """The runs do not allow a study; the message says which runs it needs, and what was found."""


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
