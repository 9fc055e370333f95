"""The examples of docs/configurations.md work, and what it lists is all there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from refusal_index.protocol import load_prompt_set
from refusal_index.runs.sweep import DATASET_KEYS, MODEL_KEYS, config_names, read_config

PAGE = (Path(__file__).parents[2] / "docs" / "configurations.md").read_text(encoding="utf-8")
CONFIG, PROMPTS, PARAPHRASE = re.findall(r"```toml[^\n]*\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(CONFIG)
    Path("prompts.toml").write_text(PROMPTS.replace("[forced]", f"{PARAPHRASE}\n[forced]"))


def test_the_configuration_can_be_read():
    config = read_config("mine.toml")
    assert [model.name for model in config.models] == [None, "Qwen3-32B, thinking"]
    assert config.datasets[1].values["column"] == (("question", "problem"),)


def test_the_tables_name_every_key_and_every_configuration():
    for table, keys in (("[[models]]", MODEL_KEYS), ("[[datasets]]", DATASET_KEYS)):
        (row,) = re.findall(rf"^\| `{re.escape(table)}` \| (.*) \|$", PAGE, re.MULTILINE)
        assert sorted(row.split(", ")) == sorted(f"`{key}`" for key in keys)
    assert set(re.findall(r"paper/[a-z0-9.-]*[a-z0-9]", PAGE)) - {"paper/all.toml"} == set(config_names())


def test_the_prompt_set_can_be_read_with_its_paraphrase():
    prompts = load_prompt_set("prompts.toml")
    assert prompts.family("shy") == ("shy", "shy-2")
    assert prompts.render("shy", "Who?")[0].count("UNANSWERED") == 2


@pytest.mark.slow
def test_the_table_of_the_dry_run_is_what_the_command_prints(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    (shown,) = re.findall(r"```text\n(model .*?)\n```", PAGE, re.DOTALL)
    said = command("run", "--limit", "100", "--price", "1,2", "--dry-run").stdout
    assert [line.rstrip() for line in shown.splitlines()] == [line.rstrip() for line in said.splitlines()[2:7]]
