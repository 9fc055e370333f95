"""Evidence for sampling: against exact probabilities, and each reply's randomness its own."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import chisquare

from refusal_index.plugins.almanac import RequestError
from refusal_index.plugins.almanac.llama import GenerationSettings, draw, log_probabilities, sample, uniforms

LOGITS = np.array([2.0, -1.0, 0.5, 0.5, 1.9, -20.0, 0.0], dtype=np.float32)


def softmax(logits):
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


def nucleus(probabilities, top_p):
    """The definition, word for word: the fewest likeliest tokens whose probability reaches top_p."""
    order = sorted(range(len(probabilities)), key=lambda token: (-probabilities[token], token))
    reached = np.cumsum(probabilities[order]) >= top_p
    size = int(reached.argmax()) + 1 if reached.any() else len(order)
    kept = np.zeros_like(probabilities)
    kept[order[:size]] = probabilities[order[:size]]
    return kept / kept.sum()


@pytest.mark.parametrize("temperature", [0.3, 0.7, 1.0, 2.0])
@pytest.mark.parametrize("top_p", [0.4, 0.8, 0.95, 1.0])
def test_against_theory_frequencies_are_the_probabilities(temperature, top_p):
    expected = nucleus(softmax(LOGITS.astype(np.float64) / temperature), top_p)
    n = 4000
    tokens = sample(
        np.tile(LOGITS, (n, 1)),
        np.full(n, temperature),
        np.full(n, top_p),
        np.random.default_rng(5).random(n),
    )
    counts = np.bincount(tokens, minlength=len(LOGITS))
    assert not counts[expected == 0].any()
    likely = expected * n >= 5
    assert counts[~likely].sum() <= 20
    if likely.sum() > 1:
        scaled = expected[likely] / expected[likely].sum() * counts[likely].sum()
        assert chisquare(counts[likely], scaled).pvalue > 1e-3


@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.9, 0.99, 0.9999])
def test_the_nucleus_of_a_large_vocabulary_is_the_defined_one(top_p):
    weights = np.exp(np.random.default_rng(3).standard_normal(4096) * 3).astype(np.float32)
    expected = np.flatnonzero(nucleus(weights.astype(np.float64) / weights.sum(dtype=np.float64), top_p))
    drawn = {draw(weights, top_p, uniform) for uniform in np.linspace(0, 1, 3000, endpoint=False)}
    assert drawn <= set(expected.tolist())
    assert draw(weights, top_p, 0.0) == weights.argmax()
    assert draw(weights, top_p, math.nextafter(1, 0)) == min(expected, key=lambda token: (weights[token], -token))


def test_equal_probabilities_are_taken_in_the_order_of_the_vocabulary():
    weights = np.ones(4, dtype=np.float32)
    assert [draw(weights, 0.5, uniform) for uniform in (0, 0.49, 0.5, 0.99)] == [0, 0, 1, 1]
    assert [draw(weights, 1.0, uniform) for uniform in (0, 0.49, 0.5, 0.99)] == [0, 1, 2, 3]


def test_a_token_without_weight_is_never_drawn():
    weights = np.array([0, 1, 0, 0], dtype=np.float32)
    for top_p in (0.5, 1.0):
        assert {draw(weights, top_p, uniform) for uniform in (0.0, 0.5, math.nextafter(1, 0))} == {1}


@pytest.mark.parametrize("temperature", [0.0, 1e-300, 1e-6, 1e-4])
def test_without_temperature_the_likeliest_token_wins(temperature):
    tokens = sample(LOGITS[None] * 50, np.array([temperature]), np.array([1.0]), np.array([0.999]))
    assert tokens == [0]


def test_rows_with_different_settings_do_not_mix():
    rows = np.array([LOGITS, LOGITS[::-1], LOGITS * 0])
    temperature, top_p, uniform = np.array([0.0, 1.0, 0.5]), np.array([1.0, 0.9, 1.0]), np.array([0.2, 0.4, 0.6])
    together = sample(rows, temperature, top_p, uniform)
    alone = [sample(rows[[i]], temperature[[i]], top_p[[i]], uniform[[i]])[0] for i in range(3)]
    assert together == alone


def test_the_randomness_of_a_reply_depends_on_seed_and_choice_only():
    assert uniforms(3, 0, 5).tolist() == uniforms(3, 0, 9)[:5].tolist()
    streams = [tuple(uniforms(seed, choice, 2)) for seed in (0, 1, -1, 2**40, None, None) for choice in (0, 1)]
    assert len(set(streams)) == len(streams)


def test_log_probabilities_against_their_definition():
    np.testing.assert_allclose(log_probabilities(LOGITS), np.log(softmax(LOGITS.astype(np.float64))), atol=1e-12)
    assert np.isfinite(log_probabilities(LOGITS * np.float32(1e4))).all()


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("temperature", [-0.1, math.nan, math.inf]),
        ("top_p", [0, -1, 1.1, math.nan]),
        ("max_tokens", [0, -3]),
        ("n", [0, -1]),
        ("stop", [("a", "")]),
        ("top_logprobs", [-1]),
    ],
)
def test_settings_out_of_range_are_named(field, values):
    for value in values:
        with pytest.raises(RequestError, match=f"'{field}' must be") as caught:
            GenerationSettings(**{field: value})
        assert caught.value.param == field
