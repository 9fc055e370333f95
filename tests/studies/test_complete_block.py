"""The largest complete block of a grid, against all subsets of its models."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusal_index.plugins.studies import inputs
from refusal_index.plugins.studies.inputs import CompleteBlock, largest_complete_block

SETTINGS = "stuvwx"
DATASETS = dict(zip(SETTINGS, "aabbcc", strict=True))
GRIDS = st.dictionaries(st.sampled_from("ABCDEF"), st.sets(st.sampled_from(SETTINGS)), max_size=6)


def every_block(grid, groups):
    """All blocks of at least two models and two settings, by brute force; each subset of models has its settings."""
    for count in range(2, len(grid) + 1):
        for models in itertools.combinations(sorted(grid), count):
            settings = set.intersection(*(set(grid[model]) for model in models))
            if len(settings) >= 2 and set(groups.values()) <= {groups.get(setting) for setting in settings}:
                yield models, tuple(sorted(settings))


@pytest.mark.parametrize("groups", [{}, DATASETS], ids=["all", "of every dataset"])
@given(grid=GRIDS)
def test_property_the_block_is_the_best_of_all_subsets(groups, grid):
    found = largest_complete_block(grid, groups=groups)
    blocks = list(every_block(grid, groups))
    if found is None:
        assert blocks == []
        return
    best = min(blocks, key=lambda block: (-len(block[0]) * len(block[1]), -len(block[0]), block))
    assert (tuple(sorted(found.models)), tuple(sorted(found.settings))) == best
    assert found.is_largest


@given(grid=GRIDS, order=st.randoms())
def test_property_the_order_of_the_models_does_not_matter(grid, order):
    models = list(grid)
    order.shuffle(models)
    found, again = (largest_complete_block(given) for given in (grid, {model: grid[model] for model in models}))
    assert (found is None) == (again is None)
    if found is not None and again is not None:
        assert set(found.models) == set(again.models)
        assert set(found.settings) == set(again.settings)


def test_theory_most_cells_then_most_models():
    """Three models with two settings have six cells, as many as two models with three."""
    grid = {"a": "xyz", "b": "xyz", "c": "xy"}
    assert largest_complete_block(grid) == CompleteBlock(("a", "b", "c"), ("x", "y"))
    wider = {"a": "wxyz", "b": "wxyz", "c": "xy"}
    assert largest_complete_block(wider) == CompleteBlock(("a", "b"), ("w", "x", "y", "z"))


def test_theory_a_block_has_what_models_share_though_each_has_more():
    """Any two of these models share two settings with each other, and all three only one."""
    grid = {"a": "vxy", "b": "wxy", "c": "vwx"}
    assert largest_complete_block(grid) == CompleteBlock(("a", "b"), ("x", "y"))
    assert largest_complete_block({**grid, "d": "xyz"}) == CompleteBlock(("a", "b", "d"), ("x", "y"))
    assert largest_complete_block({"a": "x", "b": "xy"}) is None
    assert largest_complete_block({"a": "x", "b": "xy"}, least_settings=1) == CompleteBlock(("a", "b"), ("x",))


def test_paper_eight_settings_are_those_of_every_dataset():
    """16 models under 4 prompts of SimpleQA have 64 cells; 5 of them on the 4 other datasets too have 40."""
    prompts = [f"simpleqa, {prompt}" for prompt in ("low", "normal", "high", "highest")]
    others = ["precise_wiki", "counterfactual", "inconsistent", "unanswerable"]
    grid = {f"m{place}": [*prompts, *(others if place < 5 else ())] for place in range(16)}
    assert largest_complete_block(grid) == CompleteBlock(tuple(grid), tuple(prompts))
    datasets = {setting: setting.partition(",")[0] for setting in (*prompts, *others)}
    block = largest_complete_block(grid, groups=datasets)
    assert block == CompleteBlock(("m0", "m1", "m2", "m3", "m4"), (*prompts, *others))


@given(grid=GRIDS)
def test_property_a_block_that_may_not_be_the_largest_is_complete_and_says_so(grid):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inputs, "MAX_SETS", 2)
        found = largest_complete_block(grid)
    if found is not None:
        assert all(set(found.settings) <= set(grid[model]) for model in found.models)
        exact = largest_complete_block(grid)
        assert found.is_largest is False or (found.models, found.settings) == (exact.models, exact.settings)


@pytest.mark.slow
def test_property_twenty_models_and_sixteen_settings_are_exact():
    settings = [f"s{place}" for place in range(16)]
    grid = {f"m{place}": [s for k, s in enumerate(settings) if (place * 7 + k * 5) % 9] for place in range(20)}
    assert largest_complete_block(grid).is_largest
