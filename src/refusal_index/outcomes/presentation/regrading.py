"""What another grader changed, as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from refusal_index.outcomes.presentation import Block, Table
from refusal_index.outcomes.regrading import GradeAgreement, GradeChanges


def changes_blocks(
    changes: GradeChanges, before: Mapping[str, Any] | None, now: Mapping[str, Any] | None
) -> Iterator[Block]:
    """Yield how the grades of two graders go together, and which cells changed for it.

    - `changes`: as `grade_changes` returns them.
    - `before`, `now`: the graders, as a run's settings hold them.
    """
    yield from ("", f"Graded before by {_name(before)}, now by {_name(now)}.")
    for title, agreement in (("first pass", changes.first), ("forced pass", changes.forced)):
        yield from _agreement(title, agreement)
    moved = ", ".join(f"{one} to {other} {count:,}" for (one, other), count in changes.cells.items())
    share = sum(changes.cells.values())
    words = f": {moved.replace('_', ' ')}" if moved else ""
    yield from ("", f"{share:,} of {changes.n:,} are in another cell now{words}.")


def _agreement(title: str, agreement: GradeAgreement) -> Iterator[Block]:
    kappa, heading = agreement.kappa, f"{title}: before"
    if kappa.agreement is None:
        return
    counts = (
        (one, *(f"{agreement.counts.get((one, other), 0):,}" for other in agreement.grades)) for one in agreement.grades
    )
    columns = (heading, *(f"now {grade}" for grade in agreement.grades))
    told = f"{kappa.estimate:.3f}" if kappa.estimate is not None else f"undefined ({kappa.reason})"
    yield from ("", Table.of(columns, counts, left=(heading,)))
    yield f"{kappa.agreement:.1%} of {kappa.n:,} graded alike, Cohen's kappa {told}"


def _name(grader: Mapping[str, Any] | None) -> str:
    names = [grader.get("name"), grader.get("second")] if grader else []
    return " and ".join(str(name) for name in names if name) or "(not named)"
