"""Inspect's way: the tasks that its own command finds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from aiohttp import web
from inspect_ai.log import read_eval_log

from refusal_index import ContingencyTable, refusal_index
from refusal_index.plugins.inspect.tasks import almanac_task, faitheval_counterfactual, mixed, own_questions
from refusal_index.protocol import GraderError
from refusal_index.runs.settings import COMPARABILITY_VERSION
from refusal_index.stats import CELL_NAMES
from tests.models.fake_api import FakeApi, is_grading, question_of
from tests.models.test_keys import every_content


@pytest.mark.slow
def test_inspect_eval_runs_a_task_and_its_metrics_are_the_statistics_of_its_cells(tmp_path):
    command = [str(Path(sys.executable).with_name("inspect")), "eval", "refusal_index/almanac"]
    settings = ["--model", "almanac/base", "-T", "limit=30", "-T", "variant=high", "--display", "none"]
    environment = {**os.environ, "INSPECT_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        [*command, *settings, "--log-dir", str(tmp_path / "logs")],
        capture_output=True, text=True, check=False, cwd=tmp_path, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (tmp_path / "logs").glob("*.eval")
    log = read_eval_log(str(path))
    assert log.status == "success"
    assert log.eval.task_version == COMPARABILITY_VERSION
    cells = [sample.scores["two_pass_scorer"].value for sample in log.samples]
    assert len(cells) == 30
    table = ContingencyTable(**{cell: cells.count(cell) for cell in CELL_NAMES})
    expected = refusal_index(table)
    told = {name: metric.value for name, metric in log.results.scores[0].metrics.items()}
    assert told["refusal_index"] == pytest.approx(expected.estimate, abs=0, nan_ok=True)
    assert told["standard_error"] == pytest.approx(expected.standard_error or float("nan"), abs=0, nan_ok=True)
    assert told["correct_rate"] == table.correct_rate
    assert told["refusal_rate"] == table.refusal_rate
    assert told["error_rate"] == table.error_rate
    assert told["unscored"] == cells.count("unscored") / 30


def test_a_sample_is_seeded_and_a_variant_must_exist():
    drawn = [[sample.id for sample in almanac_task(limit=5, seed=seed).dataset] for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    with pytest.raises(ValueError, match="did you mean 'high'"):
        almanac_task(variant="hihg")


def test_own_questions_keep_their_aliases_and_topics(tmp_path):
    file = tmp_path / "q.csv"
    file.write_text("id,question,answer,aliases,topic\na,Who?,I,me|myself,people\nb,What?,It,,\n")
    first, second = own_questions(data=str(file)).dataset
    assert (first.id, first.input, first.target) == ("a", "Who?", "I")
    assert first.metadata == {"aliases": ("me", "myself"), "topic": "people"}
    assert second.metadata == {}


def test_a_mix_takes_its_files_in_order_and_as_one_text(tmp_path):
    faith, wiki = tmp_path / "f.jsonl", tmp_path / "w.jsonl"
    faith.write_text('{"qid": "1", "question": "Who?", "context": "Text.", "answers": []}')
    wiki.write_text('{"question_id": "1", "question": "When?", "answer": "1804"}\n')
    for files in ([str(faith), str(wiki)], f"{faith},{wiki}"):
        first, second = mixed(datasets="faitheval_unanswerable+precise_wiki", data=files).dataset
        assert (first.id, first.target, first.metadata["no_gold"]) == ("faitheval_unanswerable/1", "", True)
        assert (second.target, second.metadata) == ("1804", {"topic": "precise_wiki"})


def test_a_grader_that_lacks_what_it_goes_by_is_refused_before_anything_is_asked(tmp_path):
    file = tmp_path / "q.csv"
    file.write_text("question,answer\nWho?,I\n")
    for grader, needed in (("choice", "choices"), ("regex", "a pattern")):
        with pytest.raises(GraderError, match=f"expected {needed} in every question"):
            own_questions(data=str(file), grader=grader)


def test_a_choice_task_is_graded_without_a_model(tmp_path):
    file = tmp_path / "q.jsonl"
    choices = {"label": ["A", "B"], "text": ["an oak", "a yew"]}
    row = {"id": "1", "question": "Which?", "context": "A yew.", "choices": choices, "answerKey": "B"}
    file.write_text(json.dumps(row))
    task = faitheval_counterfactual(data=str(file))
    assert task.metadata["grader"] == "choice"
    assert task.dataset[0].metadata["choices"] == ("an oak", "a yew")


@pytest.mark.nightly
def test_a_key_that_the_server_echoes_is_in_no_file_of_an_evaluation_by_inspects_own_command(tmp_path):
    (tmp_path / "q.csv").write_text("question,answer\nWho?,I\nWhat?,It\n")

    def echo(message: str, sent_before: int) -> web.StreamResponse | None:
        told = {"error": {"message": "bad key sk-very-secret", "type": "t", "code": None}}
        refused = is_grading(message) or "Who?" in question_of(message)
        return web.json_response(told, status=400) if refused else None

    with FakeApi(lambda _: "<answer>It</answer>", echo) as api:
        environment = {
            **os.environ,
            "INSPECT_CACHE_DIR": str(tmp_path / "cache"),
            "INSPECT_TRACE_FILE": str(tmp_path / "trace.log"),
            "FAKE_API_KEY": "sk-very-secret",
            "FAKE_BASE_URL": api.url.replace("://", "://me:hush-password@"),
        }
        done = subprocess.run(
            [
                *(str(Path(sys.executable).with_name("inspect")), "eval", "refusal_index/own"),
                *("--model", "openai-api/fake/any", "--model-role", "grader=openai-api/fake/judge"),
                *("-T", "data=q.csv", "--display", "plain", "--no-fail-on-error", "--log-dir", "logs"),
            ],
            capture_output=True, text=True, check=False, cwd=tmp_path, env=environment,
        )  # fmt: skip
    (path,) = (tmp_path / "logs").glob("*.eval")
    log = read_eval_log(str(path))
    errors = [sample.error.message for sample in log.samples]
    assert len(errors) == 2, "one of the model, one of the grader"
    assert all("bad key [key]" in error for error in errors)
    text = log.model_dump_json()
    assert "sk-very-secret" not in text + done.stdout + done.stderr
    contents = every_content(tmp_path)
    trace = b"".join(content for name, content in contents.items() if "/trace.log" in name)
    assert b"://[key]@127.0.0.1" in trace
    assert b"hush-password" not in trace
    assert not any(b"sk-very-secret" in content for content in contents.values())
