"""The paper's models as configurations: 16 of them, decoded as the paper says, by names that providers know."""

from __future__ import annotations

import re

import pytest

from refusal_index.data.datasets import dataset_names
from refusal_index.runs.plan import check_name, grader_of
from refusal_index.runs.sweep import Config, config_names, read_config

ROWS = (  # of the paper's table on SimpleQA
    *("Gemma-3-12B", "Qwen2.5-72B", "Qwen3-32B", "Qwen3-32B-Think", "Qwen3-235B", "Mistral-123B", "Llama-3.1-70B"),
    *("GPT-4.1", "GPT-4.1-mini", "Claude-Sonnet-4", "Claude-3.5-Haiku", "Gemini-2.5-Flash", "Gemini-2.5-Flash-Lite"),
    *("DeepSeek-V3-0324", "GLM-4.5", "GLM-4.5-Air"),
)
ALL = read_config("paper/all")
SINGLE = {name: read_config(name) for name in config_names() if name != "paper/all"}
NAME = re.compile(r"(?:openai|anthropic|google)/[a-z0-9.-]+|vllm/[A-Za-z0-9-]+/[A-Za-z0-9.-]+")


@pytest.fixture(params=[ALL, *SINGLE.values()], ids=lambda config: config.name)
def config(request: pytest.FixtureRequest) -> Config:
    return request.param


def test_the_matrix_has_the_rows_of_the_papers_table_in_their_order():
    assert tuple(model.name for model in ALL.models) == ROWS


def test_each_model_of_the_matrix_is_that_of_its_own_file():
    alone = {model.name: dict(model.values) for single in SINGLE.values() for model in single.models}
    assert all(dict(model.values) == alone.pop(model.name) for model in ALL.models)
    assert set(alone) == {"Qwen3-235B-Think"}, "the mode that the paper's text names and its table does not"


def test_decoding_questions_and_grader_are_the_papers(config):
    assert config.defaults == {"temperature": 0.7, "top_p": 0.95, "max_tokens": 4096}
    overridden = {key for model in config.models for key in model.values}.intersection(config.defaults)
    assert not overridden
    (dataset,) = config.datasets
    assert dataset.values == {"dataset": "simpleqa", "grader": "openai/gpt-4o-mini"}
    assert dataset.values["dataset"] in dataset_names()
    assert grader_of(dataset.values["grader"])[1] == ("openai/gpt-4o-mini",)


def test_names_are_well_formed_and_their_providers_known(config):
    for model in config.models:
        name = model.values["model"]
        assert NAME.fullmatch(name), name
        check_name(name, {})


def test_qwen3_is_switched_as_its_name_says_and_no_other_model_is(config):
    for model in config.models:
        switch = model.values.get("think")
        if not model.name.startswith("Qwen3"):
            assert switch is None
        else:
            assert switch == ("/think" if model.name.endswith("-Think") else "/no_think")


def test_prices_can_be_read_and_stand_where_an_api_asks_one(config):
    for model in config.models:
        assert ("price" in model.values) == (not model.values["model"].startswith("vllm/"))
        if "price" in model.values:
            assert model.values["price"].output > 0
