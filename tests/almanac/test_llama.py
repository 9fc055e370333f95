"""The forward pass and sampling, against transformers and exact probabilities."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from scipy.stats import chisquare

from refusal_index.plugins.almanac import ModelFileError, RequestError
from refusal_index.plugins.almanac.decoding import Cohort, compute_prefix, run
from refusal_index.plugins.almanac.llama import GenerationSettings, Llama, draw, log_probabilities, sample, uniforms
from refusal_index.plugins.almanac.models import read_config

# --- The forward pass

TIED = Path(__file__).parent / "data" / "tied"
TOLERANCE = 1e-5


def next_logits(model, *rows, prefix=None):
    cohort = Cohort(model.config, prefix, len(rows))
    feed = cohort.begin(list(rows))
    return model.logits(run(model, [cohort], [feed])[feed.last])


@pytest.fixture
def reference(folder):
    with np.load(folder / "reference.npz") as arrays:
        numbers = range(len(arrays) // 2)
        return [arrays[f"tokens_{n}"] for n in numbers], np.array([arrays[f"logits_{n}"] for n in numbers])


@pytest.fixture
def prompts(reference):
    return reference[0]


def test_logits_match_transformers_one_prompt_at_a_time(model, reference):
    for tokens, logits in zip(*reference, strict=True):
        np.testing.assert_allclose(next_logits(model, tokens)[0], logits, atol=TOLERANCE)


def test_logits_match_transformers_for_a_batch_of_mixed_lengths(model, reference):
    prompts, logits = reference
    assert len({len(prompt) for prompt in prompts}) == len(prompts)
    np.testing.assert_allclose(next_logits(model, *prompts), logits, atol=TOLERANCE)


def test_logits_match_transformers_token_by_token(model, reference):
    for tokens, logits in zip(*reference, strict=True):
        cohort = Cohort(model.config, None, 1)
        for token in tokens:
            hidden = run(model, [cohort], [cohort.begin([np.array([token])])])
        np.testing.assert_allclose(model.logits(hidden)[0], logits, atol=TOLERANCE)


@pytest.mark.parametrize("length", [1, 7, 11])
def test_logits_with_a_shared_prefix_match_transformers(model, reference, length):
    (one, two, _), logits = reference
    assert (one[:length] == two[:length]).all()
    prefix = compute_prefix(model, one[:length], None)
    shared = next_logits(model, one[length:], two[length:], prefix=prefix)
    np.testing.assert_allclose(shared, logits[:2], atol=TOLERANCE)


def test_a_prefix_may_be_built_on_another_and_cut(model, prompts):
    prompt = prompts[2]
    whole = compute_prefix(model, prompt[:20], None)
    built = compute_prefix(model, prompt[:20], compute_prefix(model, prompt[:6], None))
    for one, other in [(whole, built), (built.cut(9), compute_prefix(model, prompt[:9], None))]:
        assert one.tokens.tolist() == other.tokens.tolist()
        np.testing.assert_allclose(one.keys, other.keys, atol=TOLERANCE)
        np.testing.assert_allclose(one.values, other.values, atol=TOLERANCE)


def test_cohorts_with_and_without_a_prefix_run_together(model, reference):
    (one, two, three), logits = reference
    prefix = compute_prefix(model, one[:9], None)
    cohorts = [Cohort(model.config, prefix, 2), Cohort(model.config, None, 1)]
    feeds = [cohorts[0].begin([one[9:], two[9:]]), cohorts[1].begin([three])]
    hidden = run(model, cohorts, feeds)
    last = [*feeds[0].last, len(feeds[0].tokens) + feeds[1].last[0]]
    np.testing.assert_allclose(model.logits(hidden[last]), logits, atol=TOLERANCE)


def test_remaining_rows_are_unaffected_by_removed_rows(model, prompts):
    ways = [(cohort := Cohort(model.config, None, 3), [0, 2]), (Cohort(model.config, None, 3), [0, 1, 2])]
    results = []
    for cohort, kept in ways:
        run(model, [cohort], [cohort.begin(list(prompts))])
        cohort.keep(kept)
        feed = cohort.begin([np.array([17 + row]) for row in kept])
        results.append(dict(zip(kept, model.logits(run(model, [cohort], [feed])), strict=True)))
    for row in (0, 2):
        np.testing.assert_allclose(results[0][row], results[1][row], atol=TOLERANCE)


def copied(folder, tmp_path, **changes):
    copy = tmp_path / "model"
    shutil.copytree(folder, copy)
    config = json.loads((copy / "config.json").read_text())
    for name, value in changes.items():
        config.pop(name, None) if value is None else config.update({name: value})
    (copy / "config.json").write_text(json.dumps(config))
    return copy


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"attention_bias": True}, "attention_bias is True"),
        ({"model_type": "mistral"}, "model_type is 'mistral'"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_type is 'linear'"),
        ({"rms_norm_eps": None}, "field 'rms_norm_eps' is missing"),
        ({"rope_theta": None}, "field 'rope_theta' is missing"),
        ({"hidden_size": 17}, "has shape (320, 16), expected (None, 17)"),
        ({"num_hidden_layers": 3}, "tensor 'model.layers.2.mlp.gate_proj.weight' is missing"),
    ],
)
def test_unsupported_or_inconsistent_model_is_rejected(tmp_path, changes, complaint):
    folder = copied(TIED, tmp_path, **changes)
    with pytest.raises(ModelFileError) as caught:
        Llama.load(folder)
    assert complaint in str(caught.value)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
@pytest.mark.parametrize("content", [None, b"", b"[]", b"\xff\xff\xff\xff\xff\xff\xff\xff{}"])
def test_a_missing_or_damaged_file_is_named(folder, tmp_path, name, content):
    copy = copied(folder, tmp_path)
    (copy / name).unlink() if content is None else (copy / name).write_bytes(content)
    with pytest.raises(ModelFileError, match=name):
        Llama.load(copy)


def test_end_tokens_come_from_the_generation_config_first(folder, tmp_path):
    assert read_config(folder).end_tokens == {0, 2}
    copy = copied(folder, tmp_path)
    (copy / "generation_config.json").write_text('{"eos_token_id": [5, 6]}')
    assert read_config(copy).end_tokens == {0, 5, 6}
    (copy / "generation_config.json").unlink()
    assert read_config(copy).end_tokens == {0, 2}


def test_untied_head_equal_to_the_embedding_matches_a_tied_one(folder, tmp_path, prompts):
    copy = copied(folder, tmp_path)
    tensors = load_file(copy / "model.safetensors")
    tensors.pop("lm_head.weight", None)
    save_file(tensors, copy / "model.safetensors")
    tied = next_logits(Llama.load(copy), *prompts)
    save_file(tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"].copy()}, copy / "model.safetensors")
    np.testing.assert_array_equal(next_logits(Llama.load(copy), *prompts), tied)


# --- Sampling

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
def test_token_frequencies_against_exact_probabilities(temperature, top_p):
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
def test_nucleus_of_a_large_vocabulary_matches_its_definition(top_p):
    weights = np.exp(np.random.default_rng(3).standard_normal(4096) * 3).astype(np.float32)
    expected = np.flatnonzero(nucleus(weights.astype(np.float64) / weights.sum(dtype=np.float64), top_p))
    drawn = {draw(weights, top_p, uniform) for uniform in np.linspace(0, 1, 3000, endpoint=False)}
    assert drawn <= set(expected.tolist())
    assert draw(weights, top_p, 0.0) == weights.argmax()
    assert draw(weights, top_p, math.nextafter(1, 0)) == min(expected, key=lambda token: (weights[token], -token))


def test_equal_probabilities_are_taken_in_vocabulary_order():
    weights = np.ones(4, dtype=np.float32)
    assert [draw(weights, 0.5, uniform) for uniform in (0, 0.49, 0.5, 0.99)] == [0, 0, 1, 1]
    assert [draw(weights, 1.0, uniform) for uniform in (0, 0.49, 0.5, 0.99)] == [0, 1, 2, 3]


def test_zero_weight_token_is_never_sampled():
    weights = np.array([0, 1, 0, 0], dtype=np.float32)
    for top_p in (0.5, 1.0):
        assert {draw(weights, top_p, uniform) for uniform in (0.0, 0.5, math.nextafter(1, 0))} == {1}


@pytest.mark.parametrize("temperature", [0.0, 1e-300, 1e-6, 1e-4])
def test_near_zero_temperature_selects_the_likeliest_token(temperature):
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
