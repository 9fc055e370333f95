"""The look at which a run is judged: of one that stopped early no other verdict holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from refusal_index.outcomes.errors import RunFolderError
from refusal_index.outcomes.stopping import MOST_LOOKS, Stop
from refusal_index.stats import AtLook, GroupSequential


def look_at_stop(about: Mapping[str, Any], alpha: float) -> tuple[AtLook, str] | None:
    """Return the look at which a run stopped, and a sentence on it; None of one that did not stop.

    It is judged by O'Brien and Fleming's boundary over all the looks that were planned: at whichever of them a run
    stops, and by whatever rule, that errs no more often than alpha.

    - `about`: what the run's folder says of how it was made.
    - `alpha`: probability of error of all looks together.
    """
    stop = Stop.read(about)
    if stop is None:
        return None
    sizes = GroupSequential.planned(stop.of, stop.looks, alpha).sizes if stop.looks <= MOST_LOOKS else ()
    if sizes[stop.look - 1 : stop.look] != (stop.asked,):
        raise RunFolderError(
            f"run.json: about, stopped: expected where a look was planned, got {stop.asked:,} of {stop.of:,} questions "
            f"at look {stop.look} of {stop.looks}; restore the file"
        )
    return AtLook(GroupSequential(sizes, alpha), stop.asked), looked_at(stop.asked, sizes)


def looked_at(asked: int, sizes: Sequence[int]) -> str:
    """Say which look it is, or which one was to come."""
    return (
        f"Look {sizes.index(asked) + 1} of {len(sizes)}, after {asked:,} of {sizes[-1]:,} questions; limits and "
        "p-values allow for all looks together."
    )
