"""The look at which a run is judged: of one that is looked at several times no other verdict holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from refusal_index.outcomes.errors import RunFolderError
from refusal_index.outcomes.stopping import MOST_LOOKS, GateLooks, Stop
from refusal_index.stats import AtLook, GroupSequential


def look_of(about: Mapping[str, Any], alpha: float) -> tuple[AtLook, str] | None:
    """Return the look at which a run is judged, and a sentence on it; None of one that is judged once.

    One that stopped is judged where it did, by O'Brien and Fleming's boundary over all the looks that were planned: at
    whichever of them a run stops, and by whatever rule, that errs no more often than alpha. One that a gate looked at
    while it was asked is judged as that gate does, also at its last look: another test there, with all of alpha, would
    be one too many.

    - `about`: what the run's folder says of how it was made.
    - `alpha`: probability of error of all looks together.
    """
    stop, gated = Stop.read(about), GateLooks.read(about)
    if stop is not None:
        sizes, size = _sizes(stop.of, stop.looks), stop.asked
        if sizes[stop.look - 1 : stop.look] != (size,):
            raise _never_planned("stopped", f"{size:,} of {stop.of:,} questions at look {stop.look} of {stop.looks}")
    elif gated is not None:
        sizes = _sizes(gated.of, gated.looks)
        if not sizes:
            raise _never_planned("gate_looks", str(gated))
        size = sizes[-1]
    else:
        return None
    return AtLook(GroupSequential(sizes, alpha), size), looked_at(size, sizes)


def looked_at(asked: int, sizes: Sequence[int]) -> str:
    """Say which look it is, or which one was to come."""
    return (
        f"Look {sizes.index(asked) + 1} of {len(sizes)}, after {asked:,} of {sizes[-1]:,} questions; limits and "
        "p-values allow for all looks together."
    )


def _sizes(questions: int, looks: int) -> tuple[int, ...]:
    """Return after how many questions each look is; none where nobody can have planned so many."""
    return GroupSequential.planned(questions, looks).sizes if looks <= MOST_LOOKS else ()


def _never_planned(key: str, got: str) -> RunFolderError:
    return RunFolderError(f"run.json: about, {key}: expected where a look was planned, got {got}; restore the file")
