"""Evidence for attention in parts: against the softmax over everything at once, in float64."""

from __future__ import annotations

import numpy as np
import pytest

from refusal_index.plugins.almanac.decoding import attend_rows, attend_shared, weigh


def softmax_attention(queries, keys, values):
    scores = queries.astype(np.float64) @ keys.swapaxes(-1, -2)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ values


def normal(*shape, seed, scale=1.0):
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


@pytest.mark.parametrize("scale", [0.1, 1, 30])
def test_two_parts_join_into_the_whole(scale):
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


def test_rows_see_what_the_mask_allows_and_nothing_else():
    queries, keys, values = normal(2, 3, 1, 2, 4, seed=1), normal(2, 1, 5, 4, seed=2), normal(2, 1, 5, 4, seed=3)
    reach = np.array([[1, 2, 3], [3, 4, 5]])
    mask = np.where(np.arange(5) < reach[:, :, None], 0, -np.inf).astype(np.float32)
    found = attend_rows(queries, keys, values, mask).finish()
    for row, step in np.ndindex(2, 3):
        seen = slice(0, reach[row, step])
        expected = softmax_attention(queries[row, step, 0], keys[row, 0, seen], values[row, 0, seen])
        np.testing.assert_allclose(found[row, step, 0], expected, atol=1e-6)
