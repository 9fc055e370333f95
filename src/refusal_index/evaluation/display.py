"""How a run shows itself: as text in a terminal, as a table and the plane in a notebook."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import TYPE_CHECKING

from refusal_index.outcomes.presentation import Block, Table, escape, to_html
from refusal_index.outcomes.presentation.summary import summary_blocks, usage_text

if TYPE_CHECKING:
    from refusal_index.evaluation.run import Run

PLANE_INCHES = (3.6, 3.2)


def run_blocks(run: Run) -> Iterator[Block]:
    """Yield what a run says of itself: its table, what must be said beside it, and what it took."""
    yield from summary_blocks(run.summary)
    used = usage_text(run.summary)
    if used is not None:
        yield from ("", used)


def as_text(run: Run) -> str:
    """Return a run as plain text."""
    lines = [f"Run({escape(str(run.path))!r})"]
    for block in run_blocks(run):
        lines += _text_table(block) if isinstance(block, Table) else [escape(block)]
    return "\n".join(lines)


def as_html(run: Run) -> str:
    """Return a run as HTML: the table with intervals, and the small plane of accuracy and refusal beside it."""
    return f"{to_html(run_blocks(run))}\n{_plane(run)}"


def _text_table(table: Table) -> list[str]:
    rows = [table.columns, *([escape(cell) for cell in row] for row in table.rows)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(table.columns))]
    sides = ["<" if name in table.left else ">" for name in table.columns]
    return [
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)).rstrip()
        for row in rows
    ]


def _plane(run: Run) -> str:
    """Draw every variant in the plane of refusal rate and accuracy, as an image within the page."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - drawn in a notebook only

    figure = Figure(figsize=PLANE_INCHES, layout="constrained")
    axes = figure.subplots()
    for variant in run.summary.variants:
        refused, correct = variant.metric("refusal_rate").estimate, variant.metric("correct_rate").estimate
        if refused is None or correct is None:
            continue
        axes.plot(refused, correct, "o", color="#1f5fa8")
        axes.annotate((variant.variant or "all").replace("$", r"\$"), (refused, correct), (4, 4), textcoords="offset points")
    axes.plot([0, 1], [1, 0], color="0.8", linewidth=1)
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="refusal rate", ylabel="correct rate")
    drawn = BytesIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None})
    svg = drawn.getvalue().decode()
    return svg[svg.index("<svg") :]
