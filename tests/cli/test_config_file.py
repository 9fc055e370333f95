"""Configurations: their keys, the examples of docs/configurations.md, and the paper's models."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from refusal_index.data.datasets import dataset_names
from refusal_index.data.run_json import Price
from refusal_index.errors import argument
from refusal_index.models.settings import SettingError
from refusal_index.protocol import load_prompt_set
from refusal_index.runs.config import DATASET_KEYS, MODEL_KEYS, SET_KEYS, Config, ConfigError, config_names, read_config
from refusal_index.runs.graders import grader_of
from refusal_index.runs.plan import check_name
from refusal_index.runs.settings import SETTINGS, Settings
from refusal_index.runs.sweep import prepare_sweep

# --- Configuration files

CONFIG = """
[defaults]
temperature = 0
[[models]]
model = "almanac/base"
[[models]]
name = "small"
model = "almanac/small"
top_p = 1
[[datasets]]
data = "q.csv"
variants = ["low", "high"]
column = "question=problem"
"""
MODELS = CONFIG[CONFIG.index("[[models]]") : CONFIG.index("[[datasets]]")]


@pytest.fixture
def read(tmp_path, monkeypatch):
    """Return a function that reads the configuration above with some of its text replaced."""
    monkeypatch.chdir(tmp_path)

    def with_text(old: str = "", new: str = ""):
        assert old in CONFIG
        Path("c.toml").write_text(CONFIG.replace(old, new, 1))
        return read_config("c.toml")

    return with_text


def test_every_setting_is_a_key_of_one_table_but_the_number_of_responses_of_two():
    keys = [*MODEL_KEYS, *DATASET_KEYS, *SET_KEYS]
    assert set(keys) == set(SETTINGS)
    of_both = {"variants", "draws", "answered_only", "repeat_questions"}
    assert {key for key in keys if keys.count(key) > 1} == of_both == {*MODEL_KEYS}.intersection(DATASET_KEYS)


def test_samples_of_a_model_precede_those_of_the_dataset(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("both.toml").write_text(
        '[[models]]\nmodel = "almanac/base"\ndraws = 3\n\n[[models]]\nmodel = "almanac/rash"\n\n'
        '[[datasets]]\ndataset = "almanac"\nlimit = 10\ndraws = 2\n'
    )
    assert [plan.settings.repeats.draws for plan in prepare_sweep("both.toml").plans] == [3, 2]


@pytest.mark.parametrize("written", ['"2,8"', "[2, 8]", "[2.0, 8.0]"])
def test_a_price_is_text_or_two_numbers(read, written):
    assert read("top_p = 1", f"price = {written}").models[1].values["price"] == Price(2, 8)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ('column = ["question=a", "answer=b"]', {"column": (("question", "a"), ("answer", "b"))}),
        ('column = {question = "a", answer = "b"}', {"column": (("question", "a"), ("answer", "b"))}),
        ('data = ["a.csv", "b.csv"]', {"data": (Path("a.csv"), Path("b.csv"))}),
        ("draws = 3\nrepeat_questions = 10", {"draws": 3, "repeat_questions": 10}),
        ('grader_price = [1, 2]\ngrader = "openai/gpt-4.1"', {"grader_price": Price(1, 2), "grader": "openai/gpt-4.1"}),
    ],
)
def test_every_kind_of_value_is_read_like_the_settings(read, written, value):
    (dataset,) = read('column = "question=problem"', "").datasets
    (changed,) = read(
        'data = "q.csv"\nvariants = ["low", "high"]\ncolumn = "question=problem"', f'dataset = "own"\n{written}'
    ).datasets
    assert dict(changed.values) == {"dataset": "own", **value}
    assert Settings.from_values(**changed.values) == Settings.from_values(dataset="own", **value)
    assert "column" not in dataset.values


@pytest.mark.parametrize("name", SETTINGS)
def test_wrong_type_error_names_the_setting_and_the_option(name):
    wrong = {"of": {"another": "kind"}}
    with pytest.raises(SettingError) as caught:
        SETTINGS[name].read([wrong] if name in ("extra_body", "model_args") else wrong)
    assert str(caught.value).startswith(f"{argument(name)}: expected ")
    assert caught.value.shown(lambda key, _: f"--{key}").startswith(f"--{name}: expected ")


def test_config_values_are_parsed_like_command_options(read):
    config = read()
    assert (config.name, config.source) == ("c", "c.toml")
    assert config.defaults == {"temperature": 0.0}
    assert [(model.name, dict(model.values)) for model in config.models] == [
        (None, {"model": "almanac/base"}),
        ("small", {"model": "almanac/small", "top_p": 1.0}),
    ]
    (dataset,) = config.datasets
    assert dataset.values == {
        "data": (Path("q.csv"),),
        "variants": ("low", "high"),
        "column": (("question", "problem"),),
    }


def test_hash_depends_on_contents_and_name_is_a_safe_folder_name(read):
    assert read().sha256 != read("top_p = 1", "top_p = 0.9").sha256
    assert read("[defaults]", 'name = "../My set/1"\n[defaults]').name == "My-set-1"


SEVERAL = """
[[models]]
model = "almanac/base"
datasets = ["ours", "almanac"]

[[models]]
model = "almanac/small"
datasets = "almanac"

[[models]]
model = "almanac/rash"

[[datasets]]
name = "ours"
data = "q.csv"

[[datasets]]
dataset = "almanac"

[[datasets]]
dataset = "simpleqa"
"""


def test_models_choose_datasets_by_their_name_or_dataset(tmp_path):
    path = tmp_path / "several.toml"
    path.write_text(SEVERAL)
    config = read_config(str(path))
    chosen = [[dataset.name or dataset.values["dataset"] for dataset in config.datasets_of(m)] for m in config.models]
    assert chosen == [["ours", "almanac"], ["almanac"], ["ours", "almanac", "simpleqa"]]


def test_datasets_that_no_model_chooses_are_not_loaded_and_the_command_line_replaces_all(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # q.csv and SimpleQA are not there
    path = tmp_path / "several.toml"
    path.write_text(SEVERAL.replace('model = "almanac/rash"\n', 'model = "almanac/rash"\ndatasets = "almanac"\n'))
    text = path.read_text().replace('["ours", "almanac"]', '["almanac"]')
    path.write_text(text)
    sweep = prepare_sweep(str(path), {"limit": 5})
    titles = [plan.title for plan in sweep.plans]
    assert titles == [(f"almanac/{name}", "almanac") for name in ("base", "small", "rash")]
    path.write_text(text.replace('datasets = "almanac"', 'datasets = "ours"'))
    replaced = prepare_sweep(str(path), {"limit": 5, "dataset": "almanac"})
    assert [plan.title for plan in replaced.plans] == titles


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (
            'datasets = "almanc"',
            "datasets: expected some of ours, almanac, simpleqa, .* got 'almanc'; did you mean 'al",
        ),
        ("datasets = []", "datasets: expected names of datasets of this file, got "),
        ("datasets = 3", "datasets: expected names of datasets of this file, got 3"),
        ("datasets = [3]", "datasets: expected names of datasets of this file, got "),
    ],
)
def test_unknown_datasets_of_a_model_are_errors_that_name_its_table(tmp_path, written, message):
    path = tmp_path / "several.toml"
    path.write_text(SEVERAL.replace('datasets = "almanac"', written))
    with pytest.raises(ConfigError, match=rf"\[\[models\]\] 2, {message}"):
        read_config(str(path))


BAD = {
    "not TOML": ("[defaults]", "[defaults", "c.toml: not valid TOML: "),
    "an unknown table": ("[defaults]", "[default]", "got 'default'; did you mean 'defaults'?"),
    "an unknown key": ("top_p", "topp", "c.toml, [[models]] 2: no option is called 'topp'; did you mean 'top_p'?"),
    "an option with dashes": ("top_p", "top-p", "no option is called 'top-p'; did you mean 'top_p'?"),
    "an unknown default": ("temperature", "temprature", "c.toml, [defaults]: no option is called 'temprature'"),
    "a dataset's key at a model": (
        "top_p = 1",
        "limit = 1",
        "[[models]] 2: 'limit' belongs in [[datasets]] or [defaults]",
    ),
    "a model's key at a dataset": (
        'data = "q.csv"',
        'data = "q.csv"\nthink = "x"',
        "[[datasets]] 1: 'think' belongs in",
    ),
    "a model among the defaults": ("temperature = 0", 'model = "x/y"', "[defaults]: 'model' belongs in [[models]]"),
    "a p of one model": ("top_p", "weighted_score_p", "'weighted_score_p' belongs in [defaults]"),
    "text for a number": ("top_p = 1", 'top_p = "1"', "c.toml, [[models]] 2, top_p: expected a number, got '1'"),
    "truth for a number": ("top_p = 1", "max_tokens = true", "max_tokens: expected a whole number, got True"),
    "a fraction for a whole number": ("top_p = 1", "max_tokens = 1.5", "expected a whole number, got 1.5"),
    "a number for text": ("top_p = 1", "think = 1", "think: expected text, got 1"),
    "out of range": ("top_p = 1", "top_p = 2", "top_p: expected a number from 0 to 1, got 2"),
    "below its range": ("temperature = 0", "temperature = -1", "temperature: expected a number from 0, got -1"),
    "a price of one number": ("top_p = 1", "price = [2]", "c.toml, [[models]] 2, price: expected"),
    "a negative price": ("top_p = 1", 'price = "-1,2"', "c.toml, [[models]] 2, price: expected"),
    "a price of the grader in words": (
        'data = "q.csv"',
        'data = "q.csv"\ngrader_price = "cheap"',
        "c.toml, [[datasets]] 1, grader_price: expected",
    ),
    "an effort that is none": ("top_p = 1", 'reasoning_effort = "hihg"', "did you mean 'high'"),
    "one draw repeated": ('data = "q.csv"', 'data = "q.csv"\nrepeat_questions = 1', "a whole number from 2, got 1"),
    "not a number": ("temperature = 0", "temperature = nan", "temperature: expected a number from 0, got nan"),
    "no end": ("temperature = 0", "temperature = inf", "expected a number from 0, got inf"),
    "an array with a number": ('["low", "high"]', '["low", 1]', "variants: expected text or an array of them, got 1"),
    "a table for text": ('"question=problem"', "{a = 1}", "columns: expected text or an array of them, got {'a': 1}"),
    "a model without a model": ('model = "almanac/small"\n', "", "[[models]] 2: expected 'model', got 'name', 'top_p'"),
    "a dataset without any": ('data = "q.csv"\n', "", "[[datasets]] 1: expected 'dataset' or 'data', got 'variants'"),
    "no models": (MODELS, "", "c.toml: expected at least one table [[models]], got nothing"),
    "one table only": ("[[datasets]]", "[datasets]", "expected at least one table [[datasets]], got {"),
    "a name that is none": ('name = "small"', "name = 3", "[[models]] 2, name: expected text, got 3"),
    "an empty name": ('name = "small"', 'name = " "', "[[models]] 2, name: expected text, got ' '"),
}


@pytest.mark.parametrize("case", BAD)
def test_invalid_entries_are_named_with_file_table_and_key(read, case):
    old, new, message = BAD[case]
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        read(old, new)
    assert str(caught.value).startswith("c.toml")
    assert "\n" not in str(caught.value) or case == "not TOML"


@pytest.mark.parametrize("given", ["paper/gpt-4.1", "paper/gpt-4.1.toml", "configs/paper/gpt-4.1.toml"])
def test_packaged_configuration_is_found_by_name_or_path(given, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = read_config(given)
    assert (config.name, config.source) == ("paper-gpt-4.1", "paper/gpt-4.1.toml")
    assert config == read_config("paper/gpt-4.1")


def test_existing_file_takes_precedence_over_packaged_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "configs" / "paper" / "gpt-4.1.toml"
    own.parent.mkdir(parents=True)
    own.write_text(CONFIG)
    assert read_config("configs/paper/gpt-4.1.toml").models[0].values["model"] == "almanac/base"
    assert read_config("paper/gpt-4.1").models[0].values["model"].startswith("openai/")


@pytest.mark.parametrize("given", ["paper/gpt-4", "configs/paper/gpt4.1.toml", "../paper/gpt-4.1", "paper"])
def test_unknown_configuration_error_lists_known_names(given, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=re.escape(f"'{given}' is neither a file nor")) as caught:
        read_config(given)
    assert all(name in str(caught.value) for name in config_names())


# --- The examples of docs/configurations.md

PAGE = (Path(__file__).parents[2] / "docs" / "configurations.md").read_text(encoding="utf-8")
PARTS = re.findall(r"part of a configuration -->\n```toml\n(.*?)```", PAGE, re.DOTALL)
PAGE_CONFIG, PROMPTS, PARAPHRASE = (
    text for text in re.findall(r"```toml[^\n]*\n(.*?)```", PAGE, re.DOTALL) if text not in PARTS
)


@pytest.fixture
def files(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(PAGE_CONFIG)
    Path("prompts.toml").write_text(PROMPTS.replace("[forced]", f"{PARAPHRASE}\n[forced]"))


@pytest.mark.usefixtures("files")
def test_the_configuration_can_be_read():
    config = read_config("mine.toml")
    assert [model.name for model in config.models] == [None, "Qwen3-32B, thinking"]
    assert config.datasets[1].values["column"] == (("question", "problem"),)


@pytest.mark.usefixtures("files")
def test_the_parts_of_a_configuration_can_be_added_to_it():
    Path("more.toml").write_text("\n".join((PAGE_CONFIG, *PARTS)))
    *_, mini, llama = read_config("more.toml").models
    assert mini.datasets == ("simpleqa",)
    assert llama.values["model_args"] == (("tensor_parallel_size", 4), ("gpu_memory_utilization", 0.9))


@pytest.mark.usefixtures("files")
def test_the_page_names_every_configuration():
    assert set(re.findall(r"paper/[a-z0-9.-]*[a-z0-9]", PAGE)) - {"paper/all.toml"} == set(config_names())


@pytest.mark.usefixtures("files")
def test_the_prompt_set_can_be_read_with_its_paraphrase():
    prompts = load_prompt_set("prompts.toml")
    assert prompts.family("shy") == ("shy", "shy-2")
    assert prompts.render("shy", "Who?")[0].count("UNANSWERED") == 2


@pytest.mark.usefixtures("files")
@pytest.mark.slow
def test_dry_run_table_matches_command_output(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    (shown,) = re.findall(r"```text\n(model .*?)\n```", PAGE, re.DOTALL)
    output = command("run", "--limit", "100", "--price", "1,2", "--dry-run").stdout
    assert [line.rstrip() for line in shown.splitlines()] == [line.rstrip() for line in output.splitlines()[2:7]]


# --- Configurations of the paper's models

ROWS = (  # of the paper's table on SimpleQA
    *("Gemma-3-12B", "Qwen2.5-72B", "Qwen3-32B", "Qwen3-32B-Think", "Qwen3-235B", "Mistral-123B", "Llama-3.1-70B"),
    *("GPT-4.1", "GPT-4.1-mini", "Claude-Sonnet-4", "Claude-3.5-Haiku", "Gemini-2.5-Flash", "Gemini-2.5-Flash-Lite"),
    *("DeepSeek-V3-0324", "GLM-4.5", "GLM-4.5-Air"),
)
ALL = read_config("paper/all")
EVERY_DATASET = read_config("paper/all-datasets")
SINGLE = {name: read_config(name) for name in config_names() if name not in ("paper/all", "paper/all-datasets")}
FIVE = {
    "Gemma-3-12B",
    "Qwen3-32B",
    "Qwen2.5-72B",
    "Llama-3.1-70B",
    "Mistral-123B",
}  # of the paper's table of benchmarks
NAME = re.compile(r"(?:openai|anthropic|google)/[a-z0-9.-]+|vllm/[A-Za-z0-9-]+/[A-Za-z0-9.-]+")


@pytest.fixture(params=[ALL, *SINGLE.values()], ids=lambda config: config.name)
def config(request: pytest.FixtureRequest) -> Config:
    return request.param


def test_matrix_models_match_the_papers_table_in_order():
    assert tuple(model.name for model in ALL.models) == ROWS


def test_matrix_models_match_their_own_files():
    alone = {model.name: dict(model.values) for single in SINGLE.values() for model in single.models}
    assert all(dict(model.values) == alone.pop(model.name) for model in ALL.models)
    assert set(alone) == {"Qwen3-235B-Think"}, "the mode that the paper's text names and its table does not"


def test_every_dataset_is_answered_by_the_models_of_its_table():
    assert [(model.name, dict(model.values)) for model in EVERY_DATASET.models] == [
        (model.name, dict(model.values)) for model in ALL.models
    ]
    assert EVERY_DATASET.defaults == ALL.defaults
    simpleqa, *benchmarks = EVERY_DATASET.datasets
    assert simpleqa == replace(ALL.datasets[0], place=simpleqa.place)
    assert [dataset.values["dataset"] for dataset in benchmarks] == [
        "precise_wiki",
        "faitheval_counterfactual",
        "faitheval_inconsistent+precise_wiki",
        "faitheval_unanswerable+precise_wiki",
    ]
    assert {dataset.values["grader"] for dataset in benchmarks} == {"openai/gpt-4o-mini"}
    for model in EVERY_DATASET.models:
        chosen = EVERY_DATASET.datasets_of(model)
        assert chosen == (EVERY_DATASET.datasets if model.name in FIVE else (simpleqa,))


def test_decoding_questions_and_grader_match_the_paper(config):
    decoding = {"temperature": 0.7, "top_p": 0.95, "max_tokens": 4096}
    assert config.defaults == {**decoding, "grader_price": Price(0.15, 0.6)}
    overridden = {key for model in config.models for key in model.values}.intersection(config.defaults)
    assert not overridden
    (dataset,) = config.datasets
    assert dataset.values == {"dataset": "simpleqa", "grader": "openai/gpt-4o-mini"}
    assert dataset.values["dataset"] in dataset_names()
    assert grader_of(dataset.values["grader"])[1] == ("openai/gpt-4o-mini",)


def test_model_names_are_well_formed_with_known_providers(config):
    for model in config.models:
        name = model.values["model"]
        assert NAME.fullmatch(name), name
        check_name(name, {})


def test_only_qwen3_models_set_think_as_their_name_says(config):
    for model in config.models:
        switch = model.values.get("think")
        if not model.name.startswith("Qwen3"):
            assert switch is None
        else:
            assert switch == ("/think" if model.name.endswith("-Think") else "/no_think")


def test_prices_are_given_for_every_model_and_are_0_for_ones_own_weights(config):
    for model in config.models:
        price = model.values["price"]
        assert (price == Price(0, 0)) == model.values["model"].startswith("vllm/")


def test_a_key_of_the_defaults_is_not_sent_to_the_address_of_a_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KEY_OF_A", "sk-of-a")
    Path("two.toml").write_text(
        '[defaults]\nbase_url = "http://127.0.0.1:1/v1"\napi_key_env = "KEY_OF_A"\nheader = "X-Key=env:KEY_OF_A"\n\n'
        '[[models]]\nmodel = "a"\n\n[[models]]\nmodel = "b"\nbase_url = "http://127.0.0.1:2/v1"\n\n'
        '[[datasets]]\ndataset = "almanac"\nlimit = 10\n'
    )
    sent = [
        (plan.settings.servers.api_key_env, plan.settings.sending.header) for plan in prepare_sweep("two.toml").plans
    ]
    assert sent == [("KEY_OF_A", (("X-Key", "KEY_OF_A"),)), (None, ())]
    plan = prepare_sweep("two.toml", {"base_url": "http://127.0.0.1:3/v1"}).plans[0]
    assert plan.settings.servers.api_key_env is None
