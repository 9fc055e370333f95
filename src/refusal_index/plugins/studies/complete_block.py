"""The largest complete block of a grid of models and settings with missing cells.

Rankings of models under several settings need a value of every model in every setting. A complete block is a set of
models and a set of settings without a missing cell. Among all of them the one with the most cells is used; of several,
the one with the most models; of these, the first by name.

A block that no setting can be added to has the settings that some of the models share. These are found by intersecting
the settings of one model after the other. They are at most 2^16 if there are 16 models or 16 settings, and in practice
few, since models usually miss the same settings. Only if there are more, the sets that begin the largest blocks are
kept at each step, and the block found may not be the largest.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

MAX_SETS = 2**16
"""Maximum number of sets of settings up to which the block is the largest."""


@dataclass(frozen=True)
class CompleteBlock:
    """Models and settings without a missing cell, in the order in which they were given."""

    models: tuple[str, ...]
    settings: tuple[str, ...]
    is_largest: bool = True  # whether all blocks were compared

    @property
    def cells(self) -> int:
        """The number of models times the number of settings."""
        return len(self.models) * len(self.settings)


def largest_complete_block(
    settings_of: Mapping[str, Collection[str]],
    *,
    least_models: int = 2,
    least_settings: int = 2,
    groups: Mapping[str, str] | None = None,
) -> CompleteBlock | None:
    """Return the complete block with the most cells, None if none is large enough.

    - `settings_of`: the settings in which each model has a value.
    - `least_models`, `least_settings`: minimum size of the block.
    - `groups`: the group of each setting; the block then has a setting of each group.

    >>> block = largest_complete_block({"a": ["x", "y", "z"], "b": ["x", "y"], "c": ["y"]})
    >>> block.models, block.settings
    (('a', 'b'), ('x', 'y'))
    """
    given = {model: frozenset(settings) for model, settings in settings_of.items()}
    order = list(dict.fromkeys(setting for settings in settings_of.values() for setting in settings))
    groups = groups or {}
    needed = set(groups.values())

    def block_of(settings: frozenset[str]) -> CompleteBlock:
        """Return the block of some settings and all models that have a value in each of them."""
        models = tuple(model for model, own in given.items() if settings <= own)
        return CompleteBlock(models, tuple(setting for setting in order if setting in settings))

    shared: set[frozenset[str]] = set()
    is_largest = True
    for own in given.values():
        shared |= {own, *(own & other for other in shared)}
        if len(shared) > MAX_SETS:
            is_largest = False
            shared = set(
                heapq.nlargest(MAX_SETS, shared, key=lambda settings: (block_of(settings).cells, sorted(settings)))
            )
    blocks = [
        block
        for block in map(block_of, shared)
        if len(block.models) >= least_models
        and len(block.settings) >= least_settings
        and needed <= {groups.get(setting) for setting in block.settings}
    ]
    if not blocks:
        return None
    most = max((block.cells, len(block.models)) for block in blocks)
    largest = [block for block in blocks if (block.cells, len(block.models)) == most]
    first = min(largest, key=lambda block: (sorted(block.models), sorted(block.settings)))
    return replace(first, is_largest=is_largest)
