"""The tasks for Inspect, and their samples."""

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
from refusal_index.data import Question
from refusal_index.models.settings import SettingError
from refusal_index.plugins.inspect.foreign_log import read_foreign_log
from refusal_index.plugins.inspect.outcomes import OUTCOME
from refusal_index.plugins.inspect.tasks import (
    almanac_task,
    faitheval_counterfactual,
    mixed,
    own_questions,
    to_dataset,
    to_question,
)
from refusal_index.protocol import Conversation, GraderError, GraderKind, PromptSetError, TwoPass
from refusal_index.runs.settings import COMPARABILITY_VERSION
from refusal_index.stats import CELL_NAMES
from tests.models.fake_api import FakeApi, is_grading, question_of
from tests.models.test_keys import every_content

# --- The Inspect task


@pytest.mark.slow
def test_inspect_eval_metrics_match_the_statistics_of_the_cells(tmp_path):
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
    rows = [sample.metadata[OUTCOME] for sample in log.samples]
    assert len(rows) == 30
    known = [row for row in rows if row["wrong"] is not None]
    table = ContingencyTable.from_arrays([row["refused"] for row in known], [row["wrong"] for row in known])
    (score,) = log.results.scores
    metrics = {name: metric.value for name, metric in score.metrics.items()}
    assert metrics["refusal_index"] == pytest.approx(refusal_index(table).estimate, abs=0, nan_ok=True)
    assert {name: metrics[name] for name in CELL_NAMES} == {name: getattr(table, name) for name in CELL_NAMES}
    assert score.unscored_samples == 30 - len(known)
    read = read_foreign_log(path).passes
    assert [(one.outcome().refused, one.outcome().wrong) for one in read] == [
        (row["refused"], row["wrong"]) for row in rows
    ]


def test_task_sample_is_seeded_and_unknown_variant_raises():
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


def test_mix_accepts_files_as_list_or_comma_separated_text(tmp_path):
    faith, wiki = tmp_path / "f.jsonl", tmp_path / "w.jsonl"
    faith.write_text('{"qid": "1", "question": "Who?", "context": "Text.", "answers": []}')
    wiki.write_text('{"question_id": "1", "question": "When?", "answer": "1804"}\n')
    for files in ([str(faith), str(wiki)], f"{faith},{wiki}"):
        first, second = mixed(datasets="faitheval_unanswerable+precise_wiki", data=files).dataset
        assert (first.id, first.target, first.metadata["no_gold"]) == ("faitheval_unanswerable/1", "", True)
        assert (second.target, second.metadata) == ("1804", {"topic": "precise_wiki"})


def test_grader_without_required_fields_raises_before_any_request(tmp_path):
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


def test_grader_prompt_of_a_task_is_checked_before_any_request(tmp_path):
    (tmp_path / "q.csv").write_text("question,answer\nWho?,I\n")
    (tmp_path / "grader.toml").write_text("gold = 'A, B or C? {question}'")
    questions, prompt = str(tmp_path / "q.csv"), str(tmp_path / "grader.toml")
    with pytest.raises(SettingError, match="has no effect, because a rule grades"):
        own_questions(data=questions, grader="exact", grader_prompt=prompt)
    with pytest.raises(PromptSetError, match="must have the fields"):
        own_questions(data=questions, grader="model", grader_prompt=prompt)


@pytest.mark.slow
def test_inspect_eval_asks_a_grader_with_the_prompt_of_a_file(tmp_path):
    (tmp_path / "q.csv").write_text("question,answer\nWho?,I\n")
    (tmp_path / "grader.toml").write_text("gold = 'A, B or C? <q>{question}</q><g>{gold}</g><p>{prediction}</p>'")
    with FakeApi(lambda message: "A" if message.startswith("A, B or C?") else "<answer>I</answer>") as api:
        done = subprocess.run(
            [
                *(str(Path(sys.executable).with_name("inspect")), "eval", "refusal_index/own"),
                *("--model", "openai-api/fake/any", "--model-role", "grader=openai-api/fake/judge"),
                *("-T", "data=q.csv", "-T", "grader_prompt=grader.toml", "--display", "plain", "--log-dir", "logs"),
            ],
            capture_output=True, text=True, check=False, cwd=tmp_path,
            env={**os.environ, "FAKE_API_KEY": "x", "FAKE_BASE_URL": api.url},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert api.messages()[-1] == "A, B or C? <q>Who?</q><g>I</g><p>I</p>"


@pytest.mark.nightly
def test_echoed_key_is_in_no_file_of_inspect_eval(tmp_path):
    (tmp_path / "q.csv").write_text("question,answer\nWho?,I\nWhat?,It\n")

    def echo(message: str, sent_before: int) -> web.StreamResponse | None:
        body = {"error": {"message": "bad key sk-very-secret", "type": "t", "code": None}}
        refused = is_grading(message) or "Who?" in question_of(message)
        return web.json_response(body, status=400) if refused else None

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


# --- Questions as Inspect samples

QUESTIONS = {
    "plain": Question("a", "Who?", "Ann"),
    "with all": Question("b", "Who?", "Ann", ("Anne",), "people", "Ann {was} it.", ("Bob", "Ann"), "Ann(e)?"),
    "no right answer": Question("c", "Who?", None, context="Nobody tells."),
    "no right choice": Question("d", "Who?", None, choices=("Ann", "Bob")),
}


def conversation_about(question: Question, draws: int = 1) -> Conversation:
    return Conversation(question, "low", TwoPass(GraderKind.EXACT), draws)


@pytest.mark.parametrize("draws", [1, 3])
@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_round_trip(question, draws):
    (sample,) = to_dataset("x", [conversation_about(question, draws)])
    assert sample.input == question.text
    assert isinstance(sample.target, str)
    assert to_question(sample.id, sample.input, sample.target, sample.metadata) == question
    assert sample.metadata.get("draws", 1) == draws


def test_plain_question_has_no_metadata():
    assert to_dataset("x", [conversation_about(QUESTIONS["plain"])])[0].metadata == {}
