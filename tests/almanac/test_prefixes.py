"""Evidence for the prefix store: it finds what prompts share, settles on it, and stays within its capacity."""

from __future__ import annotations

import numpy as np
import pytest

from refusal_index.plugins.almanac import decoding
from refusal_index.plugins.almanac.decoding import PrefixStore, shared_length

BEGINNING = np.arange(10, 90)


@pytest.fixture
def store(model, monkeypatch):
    monkeypatch.setattr(decoding, "_CAPACITY", 200)
    return PrefixStore(model)


def prompt(*ending, beginning=BEGINNING):
    return np.concatenate([beginning, ending]).astype(np.int64)


@pytest.mark.parametrize(
    ("one", "other", "expected"), [([1, 2, 3], [1, 2, 4], 2), ([1], [1, 2], 1), ([1], [2], 0), ([], [2], 0)]
)
def test_shared_length(one, other, expected):
    assert shared_length(np.array(one), np.array(other)) == expected


def test_the_first_prompt_shares_nothing_and_the_second_finds_the_beginning(store):
    assert store.prefix_of(prompt(1, 2)) is None
    assert store.prefix_of(prompt(3, 4)).tokens.tolist() == BEGINNING.tolist()


def test_a_prefix_leaves_a_token_to_run_even_of_a_repeated_prompt(store):
    for _ in range(3):
        prefix = store.prefix_of(BEGINNING)
    assert prefix.tokens.tolist() == BEGINNING[:-1].tolist()


def test_prompts_that_part_a_little_earlier_or_later_settle_on_one_prefix(store):
    endings = [(1, 2, 3, 4), (1, 2, 3, 5), (1, 2, 6, 7), (8, 9, 1, 2), (1, 2, 3, 6), (8, 9, 3, 4)]
    found = [store.prefix_of(prompt(*ending)) for ending in endings]
    assert [len(prefix) if prefix else 0 for prefix in found] == [0, 83, 82, 80, 80, 80]
    assert found[-1] is found[-2] is found[-3]
    assert len(store) == 1


def test_a_short_common_beginning_is_not_worth_sharing(store):
    for last in range(3):
        assert store.prefix_of(prompt(last, beginning=BEGINNING[:40])) is None


def test_a_prompt_wanted_many_times_is_shared_as_a_whole(store):
    short = prompt(1, 2, 3, beginning=BEGINNING[:5])
    assert len(store.prefix_of(short, repeated=True)) == len(short) - 1


def test_two_variants_keep_a_prefix_each(store):
    variants = [BEGINNING, BEGINNING[::-1]]
    for ending in range(3):
        found = [store.prefix_of(prompt(ending, beginning=variant)) for variant in variants]
    assert [prefix.tokens.tolist() for prefix in found] == [variant.tolist() for variant in variants]


def test_beyond_the_capacity_the_least_recently_used_is_given_up(store):
    beginnings = [BEGINNING, BEGINNING[::-1], BEGINNING + 100]
    for number in (0, 1, 0, 2):
        for ending in (1, 2):
            store.prefix_of(prompt(ending, beginning=beginnings[number]))
    assert len(store) == 2
    kept = [store.prefix_of(prompt(3, beginning=beginnings[number])) for number in (0, 2)]
    assert all(kept)
    assert len(store) == 2


def test_a_prefix_beyond_the_capacity_is_used_and_not_kept(store, monkeypatch):
    monkeypatch.setattr(decoding, "_CAPACITY", 10)
    assert len(store.prefix_of(prompt(1), repeated=True)) == len(BEGINNING)
    assert len(store) == 0


def test_a_cut_prefix_holds_what_computing_it_gives(store, model):
    store.prefix_of(prompt(1, 2, 3))
    store.prefix_of(prompt(1, 2, 4))
    cut = store.prefix_of(prompt(5))
    fresh = PrefixStore(model).prefix_of(prompt(5), repeated=True)
    assert len(cut) == len(fresh) == 80
    np.testing.assert_allclose(cut.keys, fresh.keys, atol=1e-5)
    np.testing.assert_allclose(cut.values, fresh.values, atol=1e-5)
