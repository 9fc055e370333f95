"""A run as text and as JSON: its summary, how its questions were asked, and what regrading changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from refusal_index.data.outcome import FORCED_NOT_ASKED
from refusal_index.data.run_json import STOPPED
from refusal_index.findings.conclusions import stopped
from refusal_index.findings.labels import changes_document
from refusal_index.findings.metrics import Statement
from refusal_index.findings.run_results import RunResults
from refusal_index.render.format import Block, Table, to_html
from refusal_index.render.sentences import sentence
from refusal_index.render.summary import (
    changes_blocks,
    first_screen,
    plane_svg,
    summary_blocks,
    summary_document,
    used_blocks,
)


def run_blocks(run: RunResults, *, everything: bool = True) -> Iterator[Block]:
    """Yield the results of a run; with `everything`, all its metrics."""
    yield from (summary_blocks if everything else first_screen)(run.summary)
    if run.stopped is not None:
        yield from ("", sentence(stopped(run.stopped)))
    if run.goal is not None:
        yield from ("", sentence(run.goal))
    if run.changes is not None:
        yield from changes_blocks(run.changes, run.settings["regraded_from"].get("grader"), run.settings.get("grader"))
        not_forced = run.outcomes.filter(unscored_reason=FORCED_NOT_ASKED).height
        if not_forced:
            values = {"replies": not_forced, "folder": str(run.path)}
            yield from ("", sentence(Statement("not_forced", "serious", values)))
    if run.disagreements:
        yield from ("", sentence(Statement("disagreements", "note", {"replies": run.disagreements})))
    yield from used_blocks(run.summary)


def run_html(run: RunResults) -> str:
    """Return a run for a notebook: the table with intervals, beside it the plane of refusals and right answers."""
    blocks = list(run_blocks(run, everything=False))
    first = next(index for index, block in enumerate(blocks) if isinstance(block, Table)) + 1
    side_by_side = f'<div style="{SIDE_BY_SIDE}"><div>{to_html(blocks[:first])}</div>{plane_svg(run.summary)}</div>'
    return f"{side_by_side}\n{to_html(blocks[first:])}"


SIDE_BY_SIDE = "display:flex;flex-wrap:wrap;gap:16px;align-items:flex-start"


def run_document(run: RunResults) -> dict[str, Any]:
    """Return a run as `summary.json` has it."""
    document = {
        **summary_document(run.summary),
        STOPPED: None if run.stopped is None else run.stopped.to_document(),
        "short_of": run.unmet_goal,
        "grader": run.settings.get("grader"),
        "disagreements": run.disagreements,
    }
    if run.changes is not None:
        document["regrading"] = {"from": run.settings["regraded_from"]["grader"], **changes_document(run.changes)}
    return document
