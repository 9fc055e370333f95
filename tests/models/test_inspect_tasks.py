"""Inspect's tasks, samples and metrics."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from aiohttp import web
from inspect_ai.log import read_eval_log
from inspect_ai.scorer import SampleScore, Score

from refusal_index import ContingencyTable, refusal_index
from refusal_index.data import Outcome, Question
from refusal_index.models.settings import SettingError
from refusal_index.plugins.inspect.tasks import (
    almanac_task,
    cell_of,
    faitheval_counterfactual,
    mixed,
    own_questions,
    to_dataset,
    to_question,
    two_pass_metrics,
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
    cells = [sample.scores["two_pass_scorer"].value for sample in log.samples]
    assert len(cells) == 30
    table = ContingencyTable(**{cell: cells.count(cell) for cell in CELL_NAMES})
    expected = refusal_index(table)
    metrics = {name: metric.value for name, metric in log.results.scores[0].metrics.items()}
    assert metrics["refusal_index"] == pytest.approx(expected.estimate, abs=0, nan_ok=True)
    assert metrics["standard_error"] == pytest.approx(expected.standard_error or float("nan"), abs=0, nan_ok=True)
    assert metrics["correct_rate"] == table.correct_rate
    assert metrics["refusal_rate"] == table.refusal_rate
    assert metrics["error_rate"] == table.error_rate
    assert metrics["unscored"] == cells.count("unscored") / 30


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


# --- Inspect metrics


def metrics(unscored: int = 0, **counts: int) -> dict[str, float]:
    cells = [cell for cell, count in {**counts, "unscored": unscored}.items() for _ in range(count)]
    return two_pass_metrics()([SampleScore(score=Score(value=cell)) for cell in cells])


FULL = {"refused_wrong": 71, "refused_right": 3, "answered_wrong": 21, "answered_right": 5}


@pytest.mark.parametrize("unscored", [0, 25])
def test_metrics_match_the_statistics_of_the_cells(unscored):
    computed = metrics(unscored, **FULL)
    table = ContingencyTable(**FULL)
    assert computed == {
        "refusal_index": refusal_index(table).estimate,
        "standard_error": refusal_index(table).standard_error,
        "correct_rate": table.correct_rate,
        "refusal_rate": table.refusal_rate,
        "error_rate": table.error_rate,
        "unscored": unscored / (100 + unscored),
    }


def test_no_refusals_leave_ri_undefined_and_rates_defined():
    computed = metrics(answered_wrong=3, answered_right=1)
    assert math.isnan(computed["refusal_index"])
    assert math.isnan(computed["standard_error"])
    assert (computed["correct_rate"], computed["refusal_rate"], computed["error_rate"]) == (0.25, 0.0, 0.75)


def test_boundary_table_has_ri_1_without_standard_error():
    computed = metrics(refused_wrong=40, answered_wrong=20, answered_right=40)
    assert computed["refusal_index"] == 1.0
    assert math.isnan(computed["standard_error"])


def test_no_scored_samples_give_nan_except_the_unscored_share():
    computed = metrics(unscored=4)
    assert computed.pop("unscored") == 1.0
    assert all(math.isnan(value) for value in computed.values())


def test_no_samples_give_nan():
    assert all(math.isnan(value) for value in metrics().values())


@pytest.mark.parametrize(
    ("refused", "wrong", "cell"),
    [
        (True, True, "refused_wrong"),
        (True, False, "refused_right"),
        (False, True, "answered_wrong"),
        (False, False, "answered_right"),
    ],
)
def test_every_cell_has_its_name(refused, wrong, cell):
    assert cell_of(Outcome(refused, wrong)) == cell


@pytest.mark.parametrize(("refused", "wrong"), [(None, None), (True, None)])
def test_partial_outcome_is_unscored(refused, wrong):
    assert cell_of(Outcome(refused, wrong, unscored_reason="x")) == "unscored"
