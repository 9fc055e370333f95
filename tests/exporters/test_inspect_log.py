"""Logs that `export --to inspect` writes, read back by Inspect, and imported again."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from inspect_ai.log import EvalLog, EvalSample, list_eval_logs, read_eval_log

from refusal_index.data.first_pass import FirstPassError, from_outcomes, to_outcomes
from refusal_index.plugins.inspect.export_log import OUTCOME
from refusal_index.plugins.inspect.foreign_log import read_foreign_log
from refusal_index.plugins.trackers.tracker import export_runs
from refusal_index.runs.api import evaluate
from tests.runs.models import LOCAL, reply_to

ROWS = [
    {"id": "q0", "question": "What is 0 plus 0?", "answer": "0"},
    {"id": "q1", "question": "What is 1 plus 1?", "answer": "2", "context": "One and one."},
    {"id": "q3", "question": "What is 3 plus 3?", "answer": "6"},
]


def exported(source: Path, out: Path) -> dict[str, EvalLog]:
    """Export one run, and return its logs as Inspect reads them, by variant."""
    export_runs([source], "inspect", out)
    logs = [read_eval_log(log, resolve_attachments=True) for log in list_eval_logs(str(out))]
    return {log.eval.task_args["variant"]: log for log in logs}


def samples_by_draw(log: EvalLog) -> dict[tuple[Any, int], EvalSample]:
    return {(sample.id, sample.epoch): sample for sample in log.samples or []}


def imported(out: Path) -> pl.DataFrame:
    """Import the logs in a folder, in the order of an outcome table."""
    found = [one for path in sorted(out.glob("*.eval")) for one in read_foreign_log(path).passes]
    return to_outcomes(found).sort("variant", "question_id", "draw")


@pytest.mark.parametrize("name", ["run", "drawn"])
def test_log_metrics_and_intervals_match_the_summary(name, request, tmp_path):
    folder = request.getfixturevalue(name).folder
    logs = exported(folder.path, tmp_path)
    variants = json.loads(folder.summary.read_text())["variants"]
    assert logs.keys() == {one["variant"] for one in variants}
    for variant in variants:
        (score,) = logs[variant["variant"]].results.scores
        undefined = {}
        for metric, value in variant["metrics"].items():
            if value["estimate"] is None:
                undefined[metric] = value["reason"]
            for part, end in ((metric, "estimate"), (f"{metric}/low", "low"), (f"{metric}/high", "high")):
                found = score.metrics.get(part)
                assert (None if found is None else found.value) == value[end]
        assert score.metadata["undefined"] == undefined
        assert score.metrics["refusal_index"].metadata["level"] == 0.95
        assert next(iter(score.metrics)) == "refusal_index"
        assert logs[variant["variant"]].results.metadata["summary"]["table"] == variant["table"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["run", "drawn"])
def test_imported_log_gives_the_same_outcome_table(name, request, tmp_path):
    run = request.getfixturevalue(name)
    logs = exported(run.path, tmp_path)
    assert imported(tmp_path).equals(run.outcomes.sort("variant", "question_id", "draw"))
    assert all(log.status == "success" for log in logs.values())
    path = next(tmp_path.glob("*.eval"))
    change_rows(path, lambda row: {**row, "refused": "perhaps"})
    with pytest.raises(FirstPassError, match="cannot be read"):
        read_foreign_log(path)


def change_rows(path: Path, change: Any) -> None:
    """Change the row in every sample of a log."""
    with zipfile.ZipFile(path) as archive:
        entries = {one: archive.read(one) for one in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in entries.items():
            document = json.loads(content) if name.startswith("samples/") else None
            if document:
                document["metadata"][OUTCOME] = change(document["metadata"][OUTCOME])
            archive.writestr(name, json.dumps(document) if document else content)


@pytest.mark.parametrize(
    "how", [{}, {"placement": "system", "think": "/no_think"}, {"prompts": "own.toml"}], ids=["user", "system", "own"]
)
def test_logged_messages_match_those_sent(how: Mapping[str, Any], tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sent: list[list[Mapping[str, str]]] = []

    def model(messages: list[dict[str, str]]) -> str:
        sent.append([{"role": message["role"], "content": message["content"]} for message in messages])
        return reply_to("\n".join(message["content"] for message in messages).replace("\n\n/no_think", ""))

    rows = ROWS
    if "prompts" in how:
        from importlib.resources import files

        words = (files("refusal_index.protocol") / "data" / "default.toml").read_text()
        Path("own.toml").write_text(words.replace("Question: {question}", "Asked: {question}"))
        rows = [{name: cell for name, cell in row.items() if name != "context"} for row in ROWS]
    run = evaluate(model, rows, model_name="sums", out=tmp_path / "r", **{**LOCAL, **how})
    (log,) = exported(run.path, tmp_path / "out").values()
    events = [event for sample in log.samples for event in sample.events]
    logged = [[{"role": one.role, "content": one.text} for one in event.input] for event in events]
    assert sorted(map(str, logged)) == sorted(map(str, sent))
    assert len(sent) == 5
    sample = samples_by_draw(log)["q1", 1]
    assert [one.text for one in sample.input] == [one.text for one in sample.events[0].input]
    assert [message.text for message in sample.messages if message.role == "assistant"] == [
        "<answer>UNANSWERED</answer>",
        "<answer>none</answer>",
    ]
    assert [event.metadata["pass"] for event in sample.events] == ["first", "forced"]


def test_a_sample_holds_its_target_grade_and_outputs(run, tmp_path):
    log = exported(run.path, tmp_path)["high"]
    outcomes = run.outcomes.filter(variant="high")
    samples = samples_by_draw(log)
    assert len(samples) == log.results.total_samples == log.results.completed_samples == len(outcomes)
    for row in outcomes.iter_rows(named=True):
        sample = samples[row["question_id"], 1]
        assert sample.target == row["gold"]
        assert sample.output.completion == row["first_reply"]
        assert {name: score.value for name, score in sample.scores.items()} == {
            "grade": row["first_grade"],
            "refused": row["refused"],
            "wrong": row["wrong"],
        }
        last = [message.text for message in sample.messages if message.role == "assistant"][-1]
        assert last == (row["forced_reply"] or row["first_reply"])
    assert log.eval.model == run.outcomes["model"][0]
    assert log.eval.dataset.name == "sums"
    assert log.eval.model_generate_config.max_tokens == 4096
    assert "numpy" in log.eval.packages


def test_grader_verdicts_are_separate_request_events(tmp_path):
    def grader(question: Any, answer: str) -> bool:
        return answer == question.gold

    def model(messages: list[dict[str, str]]) -> str:
        return reply_to(messages[-1]["content"])

    run = evaluate(
        model, ROWS, grader=grader, grader_name="judge", model_name="sums", out=tmp_path / "r", variants="high"
    )
    (log,) = exported(run.path, tmp_path / "out").values()
    sample = samples_by_draw(log)["q1", 1]
    assert [(event.role, event.metadata["pass"]) for event in sample.events] == [
        (None, "first"),
        (None, "forced"),
        ("grader", "forced"),
    ]
    assert sample.events[-1].input[0].text == "none"


@pytest.mark.slow
def test_draws_are_epochs(drawn, tmp_path):
    log = exported(drawn.path, tmp_path)["low"]
    outcomes = drawn.outcomes.filter(variant="low")
    assert samples_by_draw(log).keys() == {
        (row["question_id"], row["draw"] + 1) for row in outcomes.iter_rows(named=True)
    }
    assert log.eval.config.epochs == 2


@pytest.mark.slow
def test_exporting_again_replaces_earlier_files(run, tmp_path):
    exported(run.path, tmp_path)
    before = sorted(tmp_path.iterdir())
    exported(run.path, tmp_path)
    assert sorted(tmp_path.iterdir()) == before
    assert len(before) == 2


def test_run_without_stored_replies_exports_the_outcome_table(run, tmp_path):
    source = Path(shutil.copytree(run.path, tmp_path / "r"))
    (source / "replies.sqlite").unlink()
    log = exported(source, tmp_path / "out")["high"]
    row = run.outcomes.filter(variant="high", question_id="q1").row(0, named=True)
    sample = samples_by_draw(log)["q1", 1]
    assert sample.input == row["question"]
    assert [message.text for message in sample.messages] == [
        row["question"],
        row["first_reply"],
        row["question"],
        row["forced_reply"],
    ]
    assert not sample.events
    assert imported(tmp_path / "out").equals(run.outcomes.sort("variant", "question_id", "draw"))


def test_incomplete_variant_has_status_cancelled(incomplete, tmp_path):
    logs = exported(incomplete, tmp_path / "out")
    assert (logs["low"].status, logs["low"].error) == ("success", None)
    assert logs["high"].status == "cancelled"  # questions are still to be asked
    assert logs["high"].error.message == "incomplete: 10 of 40 questions not scored"
    assert logs["high"].eval.metadata["incomplete"] == "10 of 40 questions not scored"
    assert "incomplete" in logs["high"].eval.tags
    (score,) = logs["high"].results.scores
    assert (score.scored_samples, score.unscored_samples) == (30, 10)
    assert score.metrics["refusal_index"].metadata["status"] == "incomplete"
    assert samples_by_draw(logs["high"])["q3", 1].metadata["unscored_reason"] == "not_finished"


def test_failed_request_is_recorded_as_a_sample_error(tmp_path):
    def model(messages: list[dict[str, str]]) -> str:
        if "What is 3 plus" in messages[-1]["content"]:
            raise RuntimeError("the pipeline fell over")
        return reply_to(messages[-1]["content"])

    run = evaluate(model, ROWS, model_name="sums", out=tmp_path / "r", **LOCAL)
    (log,) = exported(run.path, tmp_path / "out").values()
    sample = samples_by_draw(log)["q3", 1]
    assert (log.status, log.results.completed_samples) == ("error", 2)
    assert "the pipeline fell over" in sample.error.message
    assert not sample.scores


def test_api_keys_are_redacted_from_logs(run, tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "swordfish-77-of-mine")
    outcomes = run.outcomes.with_columns(
        first_reply=pl.lit("it is swordfish-77-of-mine"), model=pl.lit("m/swordfish-77-of-mine")
    )
    outcomes.write_parquet(tmp_path / "told.parquet")
    exported(tmp_path / "told.parquet", tmp_path / "out")
    for path in (tmp_path / "out").iterdir():
        with zipfile.ZipFile(path) as archive:
            assert not any(b"swordfish" in archive.read(one) for one in archive.namelist())
    assert "swordfish" not in str([*(tmp_path / "out").iterdir()])


def test_hostile_text_stays_text(run, tmp_path):
    text = "\x1b[31m\u202e</script>\x00 attachment://0 {{x}}"
    run.outcomes.filter(variant="low").with_columns(
        model=pl.lit("../../etc/passwd\n"),
        variant=pl.lit("../v"),
        first_reply=pl.lit(text),
        question_id=pl.format("../{}", "question_id"),
    ).write_parquet(tmp_path / "hostile.parquet")
    (log,) = exported(tmp_path / "hostile.parquet", tmp_path / "out").values()
    (path,) = (tmp_path / "out").iterdir()
    assert path.parent == tmp_path / "out"
    with zipfile.ZipFile(path) as archive:
        assert not any(".." in one.split("/") for one in archive.namelist())
    assert {sample.output.completion for sample in log.samples} == {text}
    assert imported(tmp_path / "out")["question_id"].str.starts_with("../").all()


def test_two_column_table_is_sufficient(tmp_path):
    (tmp_path / "own.csv").write_text("refused,wrong\ntrue,true\nfalse,false\nfalse,true\n")
    (log,) = exported(tmp_path / "own.csv", tmp_path / "out").values()
    assert [sample.scores["refused"].value for sample in log.samples] == [True, False, False]
    assert log.eval.task_args["variant"] == "all"


def test_importing_the_log_equals_importing_the_table(incomplete, tmp_path):
    exported(incomplete, tmp_path / "out")
    table = to_outcomes(from_outcomes(pl.read_parquet(incomplete)))
    assert imported(tmp_path / "out").equals(table.sort("variant", "question_id", "draw"))
