"""How a run shows itself: as text in a terminal, as a table and the plane in a notebook."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol

import polars as pl

from refusal_index.data.outcome import FORCED_NOT_ASKED
from refusal_index.data.run_json import Stop
from refusal_index.findings.conclusions import stopped, usage
from refusal_index.findings.labels import GradeChanges
from refusal_index.findings.statement import Statement
from refusal_index.findings.summary import Summary
from refusal_index.render.blocks import Block, Table, escape, to_html, to_text
from refusal_index.render.first_screen import first_screen
from refusal_index.render.sentences import sentence
from refusal_index.render.summary import changes_blocks, summary_blocks

PLANE_INCHES = (2.3, 2.1)
SMALL = 8  # points
TICKS = (0, 0.5, 1)
SIDE_BY_SIDE = "display:flex;flex-wrap:wrap;gap:16px;align-items:flex-start"


class Results(Protocol):
    """What is shown of a run; its members are those of `Run`."""

    @property
    def path(self) -> Path: ...  # noqa: D102 - as in `Run`

    @property
    def outcomes(self) -> pl.DataFrame: ...  # noqa: D102 - as in `Run`

    @property
    def summary(self) -> Summary: ...  # noqa: D102 - as in `Run`

    @property
    def document(self) -> Mapping[str, Any] | None: ...  # noqa: D102 - as in `Run`

    @property
    def disagreements(self) -> int: ...  # noqa: D102 - as in `Run`

    @property
    def changes(self) -> GradeChanges | None: ...  # noqa: D102 - as in `Run`

    @property
    def stopped(self) -> Stop | None: ...  # noqa: D102 - as in `Run`

    @property
    def unmet_goal(self) -> str | None: ...  # noqa: D102 - as in `Run`

    @property
    def met_goal(self) -> str | None: ...  # noqa: D102 - as in `Run`


def run_blocks(run: Results, *, everything: bool = True) -> Iterator[Block]:
    """Yield the results of a run, and what happened to it; with everything, all its metrics."""
    yield from (summary_blocks if everything else first_screen)(run.summary)
    if run.stopped is not None:
        yield from ("", sentence(stopped(run.stopped)))
    for goal in (run.unmet_goal, run.met_goal):
        if goal is not None:
            yield from ("", goal)
    if run.changes is not None and run.document is not None:
        yield from changes_blocks(run.changes, run.document["regrading"]["from"], run.document["grader"])
        not_forced = run.outcomes.filter(unscored_reason=FORCED_NOT_ASKED).height
        if not_forced:
            values = {"replies": not_forced, "folder": str(run.path)}
            yield from ("", sentence(Statement("not_forced", "grave", values)))
    if run.disagreements:
        yield from ("", sentence(Statement("disagreements", "note", {"replies": run.disagreements})))
    yield from used_blocks(run.summary)


def used_blocks(summary: Summary) -> Iterator[Block]:
    """Yield what all variants took together, where it is known."""
    used = usage(summary)
    if used is not None:
        yield from ("", sentence(used))


def as_text(run: Results) -> str:
    """Return the first screen of a run as plain text."""
    return f"Run({escape(str(run.path))!r})\n{to_text(run_blocks(run, everything=False))}"


def as_html(run: Results) -> str:
    """Return a run as HTML: the table with intervals, beside it the small plane of refusals and right answers."""
    blocks = list(run_blocks(run))
    first = next(place for place, block in enumerate(blocks) if isinstance(block, Table)) + 1
    beside = f'<div style="{SIDE_BY_SIDE}"><div>{to_html(blocks[:first])}</div>{_plane(run.summary)}</div>'
    return f"{beside}\n{to_html(blocks[first:])}"


def _plane(summary: Summary) -> str:
    """Draw every variant by its refusal rate and its correct rate, as an image within the page."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - drawn in a notebook only

    figure = Figure(figsize=PLANE_INCHES, layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [1, 0], color="0.8", linewidth=1)
    axes.tick_params(labelsize=SMALL)
    for variant in summary.variants:
        refused, correct = variant.metric("refusal_rate").estimate, variant.metric("correct_rate").estimate
        if refused is not None and correct is not None:
            axes.plot(refused, correct, "o", color="#1f5fa8")
            name = variant.name.replace("$", r"\$")
            axes.annotate(name, (refused, correct), (4, 3), textcoords="offset points", fontsize=SMALL)
    axes.set(xlim=(0, 1), ylim=(0, 1), xticks=TICKS, yticks=TICKS, aspect="equal")
    axes.set_xlabel("refused", fontsize=SMALL)
    axes.set_ylabel("correct", fontsize=SMALL)
    axes.spines[["top", "right"]].set_visible(False)
    drawn = BytesIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None})
    svg = drawn.getvalue().decode()
    return svg[svg.index("<svg") :]
