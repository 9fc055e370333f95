"""What a provider cannot or will not do is told: failing questions, a grader that is not there, no keys in any word."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiohttp import web

from tests.models.fake_api import FakeApi, Fault, is_grading, question_of

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
    """Return what runs one variant of the questions against a server."""

    def run(api: FakeApi, *more: str, grader: str = "exact"):
        monkeypatch.setenv("FAKE_BASE_URL", api.url)
        monkeypatch.setenv("FAKE_API_KEY", KEY)
        monkeypatch.setenv("COLUMNS", "200")
        arguments = ["run", "--model", "openai-api/fake/any", "--data", questions, "--variants", "normal"]
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
        assert "2 of 60 questions (3.3%) could not be scored (request_failed 2)" in " ".join(result.stdout.split())
        lines = result.stdout.splitlines()
        start = lines.index("2 not finished; run the same command again to complete them:")
        assert lines[start + 1] == "  normal q3: BadRequestError: 400: not [key]"
        assert lines[start + 2].startswith("  normal q7: ")
        assert KEY not in result.output
        assert "\x1b[31m" not in result.output
        api._fault = None
        sent = len(api.answered)
        mended = ask(api)
        assert mended.exit_code == 0
        assert "not finished" not in mended.stdout
        assert len(api.answered) == sent + 2


@pytest.mark.slow
def test_up_to_two_percent_is_told_and_gives_exit_status_0(ask):
    with FakeApi(answer, failing(3)) as api:
        result = ask(api)
    assert result.exit_code == 0
    assert "1 (1.7%)" in result.stdout
    assert "  normal q3: " in result.stdout


def test_a_server_that_answers_nothing_gives_exit_status_1_and_no_number(ask):
    with FakeApi(answer, lambda *_: refuse(401, "who are you?")) as api:
        result = ask(api, "--limit", "5")
    assert result.exit_code == 1
    assert "5 not finished" in result.stdout
    assert "401" in result.stdout
    assert "no question could be scored" in result.stdout


@pytest.mark.parametrize(
    ("says", "fault", "told"),
    [
        ("B", None, "expected the letter A"),
        ("\x1b[2Jwhat?", None, "expected the letter A"),
        ("A", refuse(401, f"bad key {KEY}"), "401"),
    ],
)
def test_a_grader_that_is_no_use_is_told_before_the_first_question(ask, says, fault, told):
    with FakeApi(lambda _: says, lambda *_: fault) as api:
        result = ask(api, grader="openai-api/fake/grader")
        assert all(is_grading(message) for message in api.messages())
        assert sum(api.received.values()) <= 2
    assert result.exit_code == 2
    error = result.stderr.splitlines()[-1]
    assert error.startswith("error: grader 'openai-api/fake/grader'")
    assert told in error
    assert KEY not in result.output
    assert "\x1b[2J" not in result.output


@pytest.mark.slow
def test_a_finished_run_asks_no_grader_again(ask):
    with FakeApi(lambda message: "A" if is_grading(message) else "<answer>1</answer>") as api:
        assert ask(api, "--limit", "3", grader="openai-api/fake/grader").exit_code == 0
        sent = sum(api.received.values())
        assert ask(api, "--limit", "3", grader="openai-api/fake/grader").exit_code == 0
        assert sum(api.received.values()) == sent
