"""APRICOT on tiny random weights in the formats of the published ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from refusal_index.plugins.confidence import trained
from refusal_index.plugins.confidence.hidden_states import WeightsError
from refusal_index.plugins.confidence.method import missing_packages
from refusal_index.plugins.confidence.plan import METHODS
from refusal_index.plugins.confidence.trained import PUBLISHED, Recipe, apricot, fine_tuned
from refusal_index.stats import auroc
from tests.confidence.made_up import LETTERS, evidence_of, word

LACKING = missing_packages(METHODS["apricot"].packages)
QUICK = Recipe(steps=120, batch_size=16, learning_rate=2e-3, longest=64)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(LACKING), reason=f"needs {', '.join(LACKING)}: refusal-index[transformers]"),
]


@pytest.fixture(autouse=True)
def two_folds(monkeypatch):
    """Train twice instead of five times."""
    monkeypatch.setattr(trained, "N_FOLDS", 2)


@pytest.fixture(scope="module")
def weights(tmp_path_factory) -> dict[str, str]:
    """Return folders of a question embedder and a DeBERTa, both with random weights."""
    import torch
    from transformers import BertConfig, BertModel, DebertaV2Config, DebertaV2ForSequenceClassification

    torch.manual_seed(1)  # untrained weights: with one seed in four, little is learned in so few steps
    folder = tmp_path_factory.mktemp("weights")
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    size["max_position_embeddings"] = 64
    tokenizer = tokenizer_of_letters()
    bert = BertModel(BertConfig(vocab_size=len(tokenizer), **size))
    relative = {"relative_attention": True, "position_buckets": 16, "pos_att_type": ["p2c", "c2p"]}
    relative |= {"position_biased_input": False, "type_vocab_size": 0, "share_att_key": True}
    deberta = DebertaV2ForSequenceClassification(DebertaV2Config(vocab_size=len(tokenizer), **size, **relative))
    for name, model in (("embedder", bert), ("predictor", deberta.half())):  # as the published ones are kept
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    return {name: str(folder / name) for name in ("embedder", "predictor")}


def tokenizer_of_letters():
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    marks = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
    vocabulary = {token: number for number, token in enumerate([*marks, *sorted({*LETTERS, *"?<>/answer"})])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=marks[-1]))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    names = dict(zip(("pad_token", "cls_token", "sep_token", "unk_token"), marks, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=64, **names)


def replying(right, seed=0):
    """Answers whose replies begin with a different letter if they are wrong."""
    evidence = evidence_of(right, seed=seed)
    marked = {
        one: replace(answer, reply=f"{'zzzz' if answer.wrong else 'bbbb'}{answer.text}")
        for one, answer in evidence.answers.items()
    }
    return replace(evidence, answers=marked)


def test_apricot_learns_from_replies_and_is_reproducible(weights):
    evidence = replying([number % 2 == 0 for number in range(64)])
    scored, again = (apricot(evidence, **weights, recipe=QUICK) for _ in range(2))
    assert scored.equals(again), "the seed determines everything"
    right = np.array([not evidence.answers[one].wrong for one in scored["question_id"]])
    assert auroc(scored["confidence"].to_numpy(), right).estimate > 0.9
    assert set(scored["fold"]) == {0, 1}


def test_random_labels_are_not_learned(weights):
    right = np.random.default_rng(2).uniform(size=80) < 0.5
    found = apricot(evidence_of(right.tolist()), **weights, recipe=replace(QUICK, steps=20))
    low, high = auroc(found["confidence"].to_numpy(), right).confidence_interval()
    assert low < 0.5 < high


def test_global_torch_generator_is_left_unchanged(weights):
    import torch

    before = torch.random.get_rng_state()
    texts = [(word(np.random.default_rng(number)), "yes") for number in range(8)]
    fine_tuned(weights["predictor"], texts, np.linspace(0, 1, 8), texts[:2], replace(QUICK, steps=2))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_long_texts_are_truncated(weights):
    long = [("b" * 500, "c" * 900), ("d", "f")]
    found = fine_tuned(weights["predictor"], long, np.array([0.0, 1.0]), long, replace(PUBLISHED, steps=1))
    assert found.shape == (2,)
    assert np.isfinite(found).all()


@pytest.mark.parametrize("broken", ["embedder", "predictor"])
def test_unloadable_weights_are_named(weights, broken, tmp_path):
    (tmp_path / "empty").mkdir()
    places = {**weights, broken: str(tmp_path / "empty")}
    with pytest.raises(
        WeightsError, match=rf"apricot: the weights '{Path(places[broken])}' cannot be loaded"
    ) as marked:
        apricot(replying([True, False] * 10), **places, recipe=QUICK)
    assert "\n" not in str(marked.value)
