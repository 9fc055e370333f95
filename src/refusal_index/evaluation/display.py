"""How a run shows itself: as text in a terminal, as a table and the plane in a notebook."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import TYPE_CHECKING

from refusal_index.outcomes.outcome import FORCED_NOT_ASKED
from refusal_index.outcomes.presentation import Block, Table, escape, to_html
from refusal_index.outcomes.presentation.summary import changes_blocks, summary_blocks, usage_text
from refusal_index.outcomes.summary import Summary

if TYPE_CHECKING:
    from refusal_index.evaluation.run import Run

PLANE_INCHES = (3.6, 3.2)


def run_blocks(run: Run) -> Iterator[Block]:
    """Yield what a run says of itself: its table, what must be said beside it, and what it took."""
    yield from summary_blocks(run.summary)
    if run.changes is not None and run.document is not None:
        yield from changes_blocks(run.changes, run.document["regrading"]["from"], run.document["grader"])
        yield from _not_forced(run)
    if run.disagreements:
        yield from ("", f"The graders differ over {run.disagreements:,} replies: see disagreements.csv.")
    yield from used_blocks(run.summary)


def used_blocks(summary: Summary) -> Iterator[Block]:
    """Yield what all variants took together, where it is known."""
    used = usage_text(summary)
    if used is not None:
        yield from ("", used)


def _not_forced(run: Run) -> Iterator[Block]:
    """Say how many answers are refusals to the new grader, and what would ask for their forced answers."""
    count = run.outcomes.filter(unscored_reason=FORCED_NOT_ASKED).height
    if count:
        yield ""
        yield (
            f"{count:,} replies were answers before and are refusals now, so that no forced answer was asked for: "
            f"they are unscored ({FORCED_NOT_ASKED}). 'refusal-index force {run.path}/outcomes.parquet --model "
            "MODEL' asks for them."
        )


def as_text(run: Run) -> str:
    """Return a run as plain text."""
    lines = [f"Run({escape(str(run.path))!r})"]
    for block in run_blocks(run):
        lines += _text_table(block) if isinstance(block, Table) else [escape(block)]
    return "\n".join(lines)


def as_html(run: Run) -> str:
    """Return a run as HTML: the table with intervals, and the small plane of refusals and right answers."""
    return f"{to_html(run_blocks(run))}\n{_plane(run.summary)}"


def _text_table(table: Table) -> list[str]:
    rows = [table.columns, *(tuple(escape(cell) for cell in row) for row in table.rows)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(table.columns))]
    sides = ["<" if name in table.left else ">" for name in table.columns]
    return [
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)).rstrip()
        for row in rows
    ]


def _plane(summary: Summary) -> str:
    """Draw every variant by its refusal rate and its correct rate, as an image within the page."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - drawn in a notebook only

    figure = Figure(figsize=PLANE_INCHES, layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [1, 0], color="0.8", linewidth=1)
    for variant in summary.variants:
        refused, correct = variant.metric("refusal_rate").estimate, variant.metric("correct_rate").estimate
        if refused is not None and correct is not None:
            axes.plot(refused, correct, "o", color="#1f5fa8")
            name = (variant.variant or "all").replace("$", r"\$")
            axes.annotate(name, (refused, correct), (4, 4), textcoords="offset points")
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="refusal rate", ylabel="correct rate")
    drawn = BytesIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None})
    svg = drawn.getvalue().decode()
    return svg[svg.index("<svg") :]
