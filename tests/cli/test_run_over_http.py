"""`run` end to end over HTTP, and failures of a provider."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import polars as pl
import pytest
from aiohttp import web

from tests.cli.making import outcomes
from tests.cli.serving import finish, kill_once, start
from tests.models.fake_api import FakeApi, Fault, is_grading, question_of
from tests.served import ADDRESS
from tests.tiers import others_nightly

# --- Commands over HTTP, end to end


@pytest.mark.slow
@others_nightly(("size", "kills"), [(20, (25,)), (150, (60, 200))], ids=["40", "300"])
def test_killed_run_resumes_without_repeats_to_the_same_result(
    server,
    command,
    monkeypatch,
    tmp_path,
    size,
    kills,
):
    arguments = ("--limit", str(size), "--variants", "low,highest", "--max-connections", "5")
    killed = ("run", *arguments, "--out", str(tmp_path / "killed"))
    for enough in kills:
        kill_once(server, enough, start(server, *killed))
    monkeypatch.setenv(ADDRESS, server.url)
    assert command(*killed, "--model", "base").exit_code == 0
    sent = Counter(entry["seed"] for entry in server.answered())
    refused = outcomes(tmp_path / "killed").filter("refused")["question_id"].n_unique()
    assert len(sent) == 2 * size + refused
    assert sum(count - 1 for count in sent.values()) <= 5 * len(kills), "only what was in flight at a kill"

    before = len(server.answered())
    assert command(*killed, "--model", "base").exit_code == 0
    assert len(server.answered()) == before, "a finished run sends nothing"

    assert command("run", *arguments, "--out", "whole").exit_code == 0
    known = ["variant", "question_id", "refused", "wrong", "first_reply", "forced_reply"]
    whole = outcomes("whole").select(known)
    assert outcomes(tmp_path / "killed").select(known).equals(whole), "and as within one process, never killed"


@pytest.mark.nightly
def test_model_without_simpleqa_knowledge_is_reported_clearly(server, tmp_path):
    shared = Path(__file__).parents[3] / "shared" / "data" / "simpleqa" / "simple_qa_test_set.csv"
    if not shared.exists():
        pytest.skip("needs a local copy of the SimpleQA test set")
    arguments = ("--dataset", "simpleqa", "--data", str(shared), "--limit", "200", "--out", str(tmp_path / "out"))
    output = finish(start(server, "run", *arguments, "--variants", "normal", "--grader", "exact"))
    assert any(reason in output for reason in ("knows next to nothing", "undefined", "limit"))


# --- FaithEval over HTTP, end to end

COUNT = 30


def write(path: Path, task: str) -> Path:
    """Make up questions under exactly the published columns."""
    records = [
        {"qid": f"id{i}", "question": f"Who tends garden {i}?", "context": f"Garden {i} is tended.", "answers": ["x"]}
        for i in range(COUNT)
    ]
    if task == "counterfactual":
        choices = {"label": ["A", "B", "C", "D"], "text": ["an oak", "a yew", "an ash", "a fir"]}
        records = [
            {"id": record["qid"], "question": "Which tree?", "context": f"{record['context']} In it stands a yew.",
             "choices": choices, "answer": "a yew", "answerKey": "B", "num of options": 4}
            for record in records
        ]  # fmt: skip
    pl.DataFrame(records).write_parquet(path)
    return path


@pytest.mark.slow
@others_nightly("task", ["counterfactual", "unanswerable", "inconsistent"])
def test_task_sends_only_necessary_requests_and_resumes_without_any(server, tmp_path, task):
    file = write(tmp_path / "test.parquet", task)
    arguments = ("--dataset", f"faitheval_{task}", "--data", str(file), "--grader", "exact", "--variants", "highest")
    out = tmp_path / "out"
    finish(start(server, "run", *arguments, "--out", str(out)))
    table = outcomes(out)
    assert table["question_id"].n_unique() == table.height == COUNT
    refused, no_gold = table["refused"], table["gold"].is_null()
    assert no_gold.all() == (task != "counterfactual")
    sent = Counter(entry["seed"] for entry in server.answered())
    assert len(sent) == COUNT + (refused & ~no_gold).sum(), "a forced answer only where one can be right"
    assert table.filter(no_gold)["wrong"].all()

    before = len(server.answered())
    finish(start(server, "run", *arguments, "--out", str(out)))
    assert len(server.answered()) == before


# --- Provider failures

QUESTIONS = 60
KEY = "sk-very-secret"


@pytest.fixture
def questions(tmp_path: Path) -> str:
    path = tmp_path / "questions.csv"
    lines = [f"q{number},What is {number} plus {number}?,{2 * number}" for number in range(QUESTIONS)]
    path.write_text("\n".join(["question_id,question,answer", *lines]))
    return str(path)


@pytest.fixture
def ask(command, questions, monkeypatch):
    """Return a function that runs one variant of the questions against a server."""

    def run(api: FakeApi, *more: str, grader: str = "exact"):
        monkeypatch.setenv(ADDRESS, api.url)
        monkeypatch.setenv("FAKE_API_KEY", KEY)
        monkeypatch.setenv("COLUMNS", "200")
        arguments = ["run", "--model", "any", "--data", questions, "--variants", "normal"]
        patience = ["--max-retries", "0", "--attempt-timeout", "5", "--max-connections", "20"]
        return command(*arguments, *patience, "--grader", grader, "--out", "r", *more)

    return run


def number_of(message: str) -> int:
    return int(question_of(message).split()[2])


def answer(message: str) -> str:
    number = number_of(message)
    return f"<answer>{2 * number if number % 2 else 'UNANSWERED'}</answer>"


def refuse(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message, "type": "t", "code": None}}, status=status)


def failing(*numbers: int) -> Fault:
    return lambda message, _: refuse(400, f"\x1b[31mnot {KEY}") if number_of(message) in numbers else None


@pytest.mark.slow
def test_more_than_two_percent_failing_gives_exit_status_1_and_names_them(ask):
    with FakeApi(answer, failing(3, 7)) as api:
        result = ask(api)
        assert result.exit_code == 1
        assert result.stdout.startswith("Incomplete: normal 58 of 60 questions scored; ")
        assert "2 (3.3%)" in result.stdout
        lines = result.stdout.splitlines()
        start = lines.index("2 not finished; run the same command again to complete them:")
        assert lines[start + 1] == "  normal q3: BadRequestError: 400: not [key]"
        assert lines[start + 2].startswith("  normal q7: ")
        assert KEY not in result.output
        assert "\x1b[31m" not in result.output
        api._fault = None
        sent = len(api.answered)
        fixed = ask(api)
        assert fixed.exit_code == 0
        assert "not finished" not in fixed.stdout
        assert len(api.answered) == sent + 2


@pytest.mark.slow
def test_up_to_two_percent_failing_gives_exit_status_0_with_a_note(ask):
    with FakeApi(answer, failing(3)) as api:
        result = ask(api)
    assert result.exit_code == 0
    assert "1 (1.7%)" in result.stdout
    assert "  normal q3: " in result.stdout


def test_server_that_never_answers_gives_exit_status_1_and_no_index(ask):
    with FakeApi(answer, lambda *_: refuse(401, "who are you?")) as api:
        result = ask(api, "--limit", "5")
    assert result.exit_code == 1
    assert "5 not finished" in result.stdout
    assert "401" in result.stdout
    assert "RI undefined (no questions)" in result.stdout
    assert "5 of 5 questions (100.0%) could not be scored" in result.stdout


@pytest.mark.parametrize(
    ("says", "fault", "message"),
    [
        ("B", None, "expected the letter A"),
        ("\x1b[2Jwhat?", None, "expected the letter A"),
        ("A", refuse(401, f"bad key {KEY}"), "401"),
    ],
)
def test_unusable_grader_is_reported_before_the_first_question(ask, says, fault, message):
    with FakeApi(lambda _: says, lambda *_: fault) as api:
        result = ask(api, grader="grader")
        assert all(is_grading(message) for message in api.messages())
        assert sum(api.received.values()) <= 2
    assert result.exit_code == (1 if fault else 2)
    error = result.stderr.splitlines()[-1]
    assert error.startswith("error: grader 'grader'")
    assert message in error
    assert KEY not in result.output
    assert "\x1b[2J" not in result.output


@pytest.mark.slow
def test_finished_run_does_not_call_the_grader_again(ask):
    with FakeApi(lambda message: "A" if is_grading(message) else "<answer>1</answer>") as api:
        assert ask(api, "--limit", "3", grader="grader").exit_code == 0
        sent = sum(api.received.values())
        assert ask(api, "--limit", "3", grader="grader").exit_code == 0
        assert sum(api.received.values()) == sent
