"""The folders of the embedded models load in transformers, as their model card says."""

from __future__ import annotations

import json

import pytest

from refusal_index.plugins.almanac.models import model_folder

NAMES = ("base", "small", "rash")


@pytest.mark.parametrize("name", NAMES)
def test_tokenizer_names_the_inputs_of_a_llama_model(name):
    """By default, transformers before 5 adds token types, which such a model refuses."""
    config = json.loads((model_folder(name) / "tokenizer_config.json").read_text())
    assert config["model_input_names"] == ["input_ids", "attention_mask"]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_model_and_tokenizer_generate_as_the_model_card_shows(name):
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = model_folder(name)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    messages = [{"role": "user", "content": "Which river flows through the town?"}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    inputs = tokenizer(text, return_tensors="pt")
    assert set(inputs) == {"input_ids", "attention_mask"}
    written = model.generate(**inputs, max_new_tokens=8, do_sample=False)
    assert written.shape[1] > inputs["input_ids"].shape[1]
