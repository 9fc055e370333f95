"""The two tasks for lm-evaluation-harness: their prompts, their grades and a real run against the embedded model."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
import yaml

from refusal_index.data.datasets import DatasetError, load_dataset
from refusal_index.data.outcome_table import read_outcomes
from refusal_index.plugins import lm_eval as lm_eval_tasks
from refusal_index.plugins.lm_eval import FLAGS, graded, prompt, target
from refusal_index.protocol import load_prompt_set
from refusal_index.protocol.prompts import PromptSetError
from tests.cli.serving import COMMAND, serving

FOLDER = Path(lm_eval_tasks.__file__).parent
TASKS = ("refusal_index_first", "refusal_index_forced")
QUESTION = {"question_id": "q", "question": "Who wrote Emma?", "answer": "Jane Austen", "aliases": ["Austen"]}
DOC = {**QUESTION, "topic": None, "context": None, "choices": []}


def about(**changes: str) -> dict[str, object]:
    return {**DOC, "refusal_index": {"dataset": "d", "prompts": "default", "variant": "normal", **changes}}


class Loader(yaml.SafeLoader):
    """Read functions as their names."""


Loader.add_constructor("!function", lambda loader, node: loader.construct_scalar(node))


@pytest.mark.parametrize("name", [*(f"{task}.yaml" for task in TASKS), "both_passes"])
def test_every_function_named_in_a_task_file_exists(name):
    text = (FOLDER / name).read_text()
    task = yaml.load(text, Loader)  # noqa: S506 - a safe loader with one constructor
    named = re.findall(r"!function (\S+)", text)
    assert len(named) == (3 if name == "both_passes" else 1)
    for path in named:
        module, _, function = path.rpartition(".")
        assert callable(getattr(importlib.import_module(module), function))
    assert task.get("task", "none") == (name.removesuffix(".yaml") if name.endswith(".yaml") else "none")


def test_questions_use_the_prompt_set():
    prompts = load_prompt_set("default")
    for variant in ("normal", "highest", "forced"):
        assert prompt(about(variant=variant)) == "\n\n".join(prompts.render(variant, "Who wrote Emma?"))
    with_text = {**about(), "context": "Emma is by Austen.", "choices": ["Austen", "Burney"]}
    asked = prompts.render("normal", "Who wrote Emma?", "Emma is by Austen.", ("Austen", "Burney"))
    assert prompt(with_text) == "\n\n".join(asked)


@pytest.mark.parametrize(
    ("reply", "grade"),
    [
        ("It is <answer>austen</answer>", "is_correct"),
        ("<answer>Jane Austen.</answer>", "is_correct"),
        ("<answer>Burney</answer>", "is_incorrect"),
        ("<answer>UNANSWERED</answer>", "is_not_attempted"),
        ("<answer>I don't know</answer>", "is_not_attempted"),
        ("", None),
    ],
)
def test_replies_are_read_and_graded_as_in_a_run(reply, grade):
    assert graded(about(), [reply]) == {name: float(name == grade) for name in FLAGS}


def test_unanswerable_question_is_graded_wrong_or_refused():
    doc = {**about(), "answer": None, "aliases": []}
    assert target(doc) == ""
    assert graded(doc, ["<answer>Ann</answer>"])["is_incorrect"] == 1
    assert graded(doc, ["<answer>UNANSWERED</answer>"])["is_not_attempted"] == 1


def test_forced_pass_uses_the_same_questions_with_the_forced_prompt(monkeypatch):
    asked = {}
    monkeypatch.setattr(lm_eval_tasks, "first_pass", lambda **given: asked.update(given))
    lm_eval_tasks.forced_pass(dataset="almanac", variant="high", questions=2)
    assert asked == {"dataset": "almanac", "variant": "forced", "questions": 2}


def test_unknown_variant_raises_before_any_request():
    with pytest.raises(PromptSetError, match="no prompt 'normall' \\(did you mean 'normal'"):
        lm_eval_tasks.first_pass(variant="normall", questions=2)


def test_misspelt_setting_raises_and_harness_settings_are_ignored():
    with pytest.raises(DatasetError, match=r"--metadata: expected one of dataset, .* did you mean 'variant'"):
        lm_eval_tasks.first_pass(varient="high")
    harness = ("version", "config_source", "model", "base_url", "num_concurrent", "pretrained", "tokenizer", "task")
    harness = (*harness, "max_length", "dtype", "parallelize", "batch_size", "device")
    lm_eval_tasks._check_misspelt(dict.fromkeys(harness))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"questions": "x"}, "questions: expected a whole number above 0, got 'x'"),
        ({"questions": 0}, "questions: expected a whole number above 0, got 0"),
        ({"questions": 2.5}, "questions: expected a whole number above 0, got 2.5"),
        ({"questions": True}, "questions: expected a whole number above 0, got True"),
        ({"seed": "x"}, "seed: expected a whole number, got 'x'"),
        ({"dataset": 3}, "dataset: expected a name, got 3"),
        ({"prompts": None}, "prompts: expected a name, got None"),
        ({"variant": ["high"]}, "variant: expected a name, got ['high']"),
    ],
)
def test_setting_of_the_wrong_type_raises_one_line(given, message):
    with pytest.raises(DatasetError) as caught:
        lm_eval_tasks.first_pass(**given)
    assert str(caught.value) == f"--metadata: {message}"


@pytest.mark.slow
def test_harness_output_imports_as_a_complete_table(tmp_path):
    pytest.importorskip("lm_eval", reason="needs the extra 'lm-eval'")
    folder = subprocess.run([*COMMAND, "ls", "--task-files"], capture_output=True, text=True, check=True).stdout.strip()
    assert Path(folder) == FOLDER
    settings = {"questions": 60, "variant": "high", "seed": 3}
    with serving(tmp_path / "requests.jsonl") as server:
        place = f"model=almanac/base,base_url={server.url}/chat/completions,num_concurrent=4"
        command = ["run", "--model", "local-chat-completions", "--model_args", place, "--apply_chat_template"]
        tasks = ["--include_path", folder, "--tasks", *TASKS, "--metadata", json.dumps(settings)]
        files = ["--log_samples", "--output_path", str(tmp_path / "out")]
        subprocess.run(
            [sys.executable, "-m", "lm_eval", *command, *tasks, *files],
            env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf")},
            capture_output=True,
            check=True,
            timeout=300,
        )
        asked = server.answered()
    samples = sorted((tmp_path / "out" / "almanac__base").glob("samples_*.jsonl"))
    assert len(asked) == 120
    assert len(samples) == 2
    table = tmp_path / "table.parquet"
    told = [*COMMAND, "import", *map(str, samples), "--out", str(table)]
    subprocess.run(told, check=True, capture_output=True)
    outcomes = read_outcomes(table)
    expected = load_dataset("almanac", limit=60, mix_seed=3)
    assert outcomes["question_id"].to_list() == [question.question_id for question in expected.questions]
    assert outcomes.select("model", "dataset", "variant").unique().rows() == [("almanac/base", "almanac", "high")]
    assert outcomes.select(pl.col("refused", "wrong", "forced_grade").null_count()).row(0) == (0, 0, 0)
    refused = outcomes.filter("refused")
    assert 5 < refused.height < 55
    assert (refused["wrong"] == (refused["forced_grade"] != "correct")).all()
    assert refused["first_reply"].str.contains("UNANSWERED").all()
    assert not outcomes["forced_reply"].str.contains("UNANSWERED").all()
    for path, variant in zip(samples, ("high", "forced"), strict=True):
        sample = json.loads(path.read_text().splitlines()[0])
        (message,) = json.loads(sample["arguments"]["gen_args_0"]["arg_0"][0])
        words = "\n\n".join(load_prompt_set("default").render(variant, sample["doc"]["question"]))
        assert (message["role"], message["content"]) == ("user", words)
