"""Attention in parts, and the prefix store."""

from __future__ import annotations

import numpy as np
import pytest

from refusal_index.plugins.almanac import decoding
from refusal_index.plugins.almanac.decoding import PrefixStore, attend_rows, attend_shared, shared_length, weigh

# --- Chunked attention matches the softmax over everything


def softmax_attention(queries, keys, values):
    scores = queries.astype(np.float64) @ keys.swapaxes(-1, -2)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ values


def normal(*shape, seed, scale=1.0):
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


@pytest.mark.parametrize("scale", [0.1, 1, 30])
def test_joined_parts_match_softmax_attention_over_the_whole(scale):
    queries, keys, values = normal(5, 8, seed=1, scale=scale), normal(12, 8, seed=2), normal(12, 8, seed=3)
    parts = [weigh(queries @ keys[part].T, values[part]) for part in (slice(0, 4), slice(4, 12))]
    whole = softmax_attention(queries, keys, values)
    np.testing.assert_allclose(parts[0].join(parts[1]), whole, atol=2e-5)
    np.testing.assert_allclose(parts[1].join(parts[0]), whole, atol=2e-5)
    np.testing.assert_allclose(weigh(queries @ keys.T, values).finish(), whole, atol=2e-5)


def test_scores_far_apart_neither_overflow_nor_vanish():
    values = np.eye(2, dtype=np.float32)
    low, high = weigh(np.array([[-3e4]], np.float32), values[:1]), weigh(np.array([[3e4]], np.float32), values[1:])
    np.testing.assert_array_equal(low.join(high), values[1:])


def test_shared_keys_serve_every_query_of_their_head():
    queries, keys, values = normal(5, 2, 3, 8, seed=1), normal(2, 7, 8, seed=2), normal(2, 7, 8, seed=3)
    found = attend_shared(queries, keys, values).finish()
    assert found.shape == queries.shape
    for head in range(2):
        expected = softmax_attention(queries[:, head], keys[head], values[head])
        np.testing.assert_allclose(found[:, head], expected, atol=1e-6)


def test_rows_attend_only_to_unmasked_keys():
    queries, keys, values = normal(2, 3, 1, 2, 4, seed=1), normal(2, 1, 5, 4, seed=2), normal(2, 1, 5, 4, seed=3)
    reach = np.array([[1, 2, 3], [3, 4, 5]])
    mask = np.where(np.arange(5) < reach[:, :, None], 0, -np.inf).astype(np.float32)
    found = attend_rows(queries, keys, values, mask).finish()
    for row, step in np.ndindex(2, 3):
        seen = slice(0, reach[row, step])
        expected = softmax_attention(queries[row, step, 0], keys[row, 0, seen], values[row, 0, seen])
        np.testing.assert_allclose(found[row, step, 0], expected, atol=1e-6)


# --- The prefix store

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


def test_second_prompt_finds_the_shared_prefix(store):
    assert store.prefix_of(prompt(1, 2)) is None
    assert store.prefix_of(prompt(3, 4)).tokens.tolist() == BEGINNING.tolist()


def test_prefix_leaves_one_token_even_of_a_repeated_prompt(store):
    for _ in range(3):
        prefix = store.prefix_of(BEGINNING)
    assert prefix.tokens.tolist() == BEGINNING[:-1].tolist()


def test_prompts_that_diverge_nearby_converge_on_one_prefix(store):
    endings = [(1, 2, 3, 4), (1, 2, 3, 5), (1, 2, 6, 7), (8, 9, 1, 2), (1, 2, 3, 6), (8, 9, 3, 4)]
    found = [store.prefix_of(prompt(*ending)) for ending in endings]
    assert [len(prefix) if prefix else 0 for prefix in found] == [0, 83, 82, 80, 80, 80]
    assert found[-1] is found[-2] is found[-3]
    assert len(store) == 1


def test_short_common_prefix_is_not_shared(store):
    for last in range(3):
        assert store.prefix_of(prompt(last, beginning=BEGINNING[:40])) is None


def test_repeated_prompt_is_shared_as_a_whole(store):
    short = prompt(1, 2, 3, beginning=BEGINNING[:5])
    assert len(store.prefix_of(short, repeated=True)) == len(short) - 1


def test_each_of_two_variants_keeps_its_prefix(store):
    variants = [BEGINNING, BEGINNING[::-1]]
    for ending in range(3):
        found = [store.prefix_of(prompt(ending, beginning=variant)) for variant in variants]
    assert [prefix.tokens.tolist() for prefix in found] == [variant.tolist() for variant in variants]


def test_least_recently_used_prefix_is_evicted_over_capacity(store):
    beginnings = [BEGINNING, BEGINNING[::-1], BEGINNING + 100]
    for number in (0, 1, 0, 2):
        for ending in (1, 2):
            store.prefix_of(prompt(ending, beginning=beginnings[number]))
    assert len(store) == 2
    kept = [store.prefix_of(prompt(3, beginning=beginnings[number])) for number in (0, 2)]
    assert all(kept)
    assert len(store) == 2


def test_prefix_larger_than_the_capacity_is_used_but_not_kept(store, monkeypatch):
    monkeypatch.setattr(decoding, "_CAPACITY", 10)
    assert len(store.prefix_of(prompt(1), repeated=True)) == len(BEGINNING)
    assert len(store) == 0


def test_cut_prefix_matches_a_newly_computed_one(store, model):
    store.prefix_of(prompt(1, 2, 3))
    store.prefix_of(prompt(1, 2, 4))
    cut = store.prefix_of(prompt(5))
    fresh = PrefixStore(model).prefix_of(prompt(5), repeated=True)
    assert len(cut) == len(fresh) == 80
    np.testing.assert_allclose(cut.keys, fresh.keys, atol=1e-5)
    np.testing.assert_allclose(cut.values, fresh.values, atol=1e-5)
