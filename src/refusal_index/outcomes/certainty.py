"""How certain a run is, held against what it was told to wait for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from refusal_index.outcomes.stopping import STOPPED, Until
from refusal_index.outcomes.summary import Summary, is_complete


def half_width_of(summary: Summary) -> float | None:
    """Return half the width of the interval of a run's Refusal Index; None where it has none to go by."""
    index = summary.index
    if index is None or index.status != "ok" or index.low is None or index.high is None:
        return None
    return (index.high - index.low) / 2


def short_of(about: Mapping[str, Any], summary: Summary) -> str | None:
    """Say that a run is less certain than it was told to become; None where it is not, or was told nothing.

    - `about`: what the run's folder says of how it was made.
    - `summary`: of all that was asked by now.
    """
    is_reached, sentence = _held(about, summary)
    return None if is_reached else sentence


def reached(about: Mapping[str, Any], summary: Summary) -> str | None:
    """Say that a run that did not stop is as certain as it was told to become; it takes what `short_of` takes."""
    is_reached, sentence = _held(about, summary)
    return sentence if is_reached else None


def _held(about: Mapping[str, Any], summary: Summary) -> tuple[bool, str | None]:
    """Hold a run against what it was told, and say it; a run that stopped says it already."""
    until = Until.read(about)
    if until is None or about.get(STOPPED):
        return False, None
    half_width, whole = half_width_of(summary), is_complete(summary)
    is_reached = whole and half_width is not None and half_width <= until.half_width
    found = "no half-width" if half_width is None else f"half-width {half_width:.3f}"
    asked = max((variant.completeness.asked for variant in summary.variants), default=0)
    lacking = "" if whole else ", of which not all have a grade"
    verdict = "Reached" if is_reached else "Not reached"
    return is_reached, f"{verdict}: {until}; {found} after {asked:,} questions{lacking}."
