"""The verdict of a gate, on top of the report of its runs."""

from __future__ import annotations

from dataclasses import dataclass

from refusal_index.outcomes.gate import GateResult
from refusal_index.outcomes.presentation import Table
from refusal_index.outcomes.presentation.gate import changed_table, guard_table, judged, notes

BESIDE = (
    "Below, runs are told apart where they differ at all. The gate asks whether one is worse by more than is allowed, "
    "so that both can be right."
)
"""Why a comparison on the same page may say that a run is worse, and the gate not."""


@dataclass(frozen=True)
class GateView:
    """A verdict, ready for the template."""

    verdict: str
    why: str
    notes: tuple[str, ...]  # what was judged, and what else there is to know
    # guards, changed: tables; None where there is nothing in them
    guards: Table | None
    changed: Table | None


def gate_view(found: GateResult) -> GateView:
    """Prepare a verdict for the page."""
    beside = (BESIDE,) if found.baseline is not None else ()
    return GateView(
        found.verdict,
        found.why,
        (judged(found), *notes(found), *beside),
        guard_table(found) if found.guards else None,
        changed_table(found) if found.changed else None,
    )
