"""``refusal-index build precise-wiki`` over HTTP: reasons counted, nothing repeated, bad input reported."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from click.testing import Result
from typer.testing import CliRunner

from refusal_index.cli import app
from refusal_index.data.datasets import load_dataset
from refusal_index.plugins.almanac.batches import RequestLog
from refusal_index.plugins.wiki.build import BuildOptions
from refusal_index.plugins.wiki.commands import precise_wiki as build_command
from refusal_index.runs.settings import DEFAULT_GRADER, Settings
from tests.faults.almanac import BatchFaults, faulty_app
from tests.models.batches.batch_server import Server, serve_in_thread
from tests.models.fake_api import FakeApi
from tests.models.wiki_writer import FACT, FAULTS, WriterPool, error_500, fault_of, is_question, write_pages, writer
from tests.served import ADDRESS, with_addresses
from tests.tiers import one_fast

COMMAND = [sys.executable, "-c", "from refusal_index.cli import app; app()", "build", "precise-wiki"]
OPTIONS = (
    "--writer",
    "writer",
    "--shortest",
    "400",
    "--max-connections",
    "8",
    "--attempt-timeout",
    "5",
)
Build = Callable[..., Result]


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "AZUREAI_OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FAKE_API_KEY", "sk-very-secret")
    monkeypatch.setenv(ADDRESS, "http://127.0.0.1:9/v1")


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    with FakeApi(writer) as server:
        monkeypatch.setenv(ADDRESS, server.url)
        yield server


def build(*arguments: str, out: str = "wiki.jsonl") -> Result:
    command = ["build", "precise-wiki", "pages.jsonl", "--out", out, *OPTIONS, *arguments]
    return CliRunner().invoke(app, with_addresses(command), catch_exceptions=False)


def lines(path: str | Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def record(out: str = "wiki.jsonl") -> dict[str, Any]:
    return json.loads(Path(f"{out}.build.json").read_text())


def number_of(title: str) -> int:
    return int(title.split()[1])


def expected_reasons(sections: list[dict[str, Any]]) -> Counter[str]:
    """Count the faults planted in the sections that were tried."""
    planted = Counter[str]()
    first_duplicate = True
    for section in sections:
        fault = "nothing_to_ask" if not section["section"] else fault_of(number_of(section["title"]))
        if fault == "duplicate" and first_duplicate:
            first_duplicate = False
        elif fault:
            planted[fault] += 1
    return planted


@pytest.mark.slow
def test_build_counts_every_planted_fault_and_request(api):
    write_pages(Path("pages.jsonl"), 100)
    result = build("--questions", "60", "--revision", "2023-09-04")
    assert result.exit_code == 0, result.stderr
    questions, tried, made = lines("wiki.jsonl"), lines("wiki.jsonl.build/sections.jsonl"), record()
    assert len(questions) == made["file"]["questions"] == 60
    assert made["file"]["sha256"] == hashlib.sha256(Path("wiki.jsonl").read_bytes()).hexdigest()
    assert made["counts"]["questions_by_difficulty"] == {"0": 15, "1": 15, "2": 15, "3": 15}
    assert made["settings"]["source"]["sha256"] == hashlib.sha256(Path("pages.jsonl").read_bytes()).hexdigest()
    assert made["settings"]["source"]["revision"] == "2023-09-04"

    assert made["counts"]["rejected"] == dict(expected_reasons(tried))
    assert set(made["counts"]["rejected"]) == set(FAULTS.values())
    good = sum(one["reason"] is None for one in tried)
    assert good == 60 + made["counts"]["not_needed"]
    for reason, count in made["counts"]["rejected"].items():
        assert f"{reason} {count}" in " ".join(result.stdout.split())

    asked = Counter(is_question(message) for message in api.messages())
    assert asked[True] == len(tried) == made["usage"]["writer"]["requests"]
    after = {"nothing_to_ask", "question_unreadable", "points_at_text", "cut_short"}
    assert asked[False] == sum(one["reason"] not in after for one in tried) == made["usage"]["answerer"]["requests"]
    assert made["usage"]["writer"]["input_tokens"] == 100 * asked[True]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, FakeApi]:
    """Return the folder of a finished build, which tests must not change, and its server."""
    folder = tmp_path_factory.mktemp("built")
    with FakeApi(writer) as server, pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("FAKE_API_KEY", "sk-very-secret")
        patch.setenv(ADDRESS, server.url)
        write_pages(Path("pages.jsonl"), 60)
        assert build("--questions", "20", "--answerer", "answerer").exit_code == 0
    return folder, server


def test_questions_match_their_sections_and_sources(built):
    questions = lines(built[0] / "wiki.jsonl")
    assert len({one["question_id"] for one in questions}) == len({one["question"] for one in questions}) == 20
    for question in questions:
        number = number_of(question["title"])
        assert int(question["answer"]) - 1500 - number in {0, 1}
        assert question["section"].split(" > ")[0] == "Sights"
        assert (question["topic"], question["difficulty"]) == (f"Towns of region {number % 3}", str(number % 4))
        assert question["revision"] == str(5000 + number)


def test_the_frozen_set_loads_as_a_dataset(built):
    file = built[0] / "wiki.jsonl"
    dataset = load_dataset("precise_wiki", data=file)
    assert [(q.question_id, q.text, q.gold, q.topic) for q in dataset.questions] == [
        (line["question_id"], line["question"], line["answer"], line["topic"]) for line in lines(file)
    ]
    assert dataset.sha256 == record(str(file))["file"]["sha256"]


@one_fast("engine", ["direct", "batch"])
def test_every_engine_builds_the_same_file_with_the_same_record(engine, built, tmp_path, monkeypatch):
    log = tmp_path / "log.jsonl"
    write_pages(Path("pages.jsonl"), 60)
    with serve_in_thread(faulty_app(WriterPool("writer", "answerer"), RequestLog(log))) as url:
        monkeypatch.setenv(ADDRESS, url)
        poll = ["--engine-option", "poll=0.05"] if engine == "batch" else []
        command = ["--questions", "20", "--answerer", "answerer", "--engine", engine, *poll]
        assert build(*command).exit_code == 0
    assert Path("wiki.jsonl").read_bytes() == (built[0] / "wiki.jsonl").read_bytes()
    assert record() == record(str(built[0] / "wiki.jsonl"))
    asked = [line["seed"] for line in lines(log) if line["path"] == "/v1/chat/completions"]
    assert sorted(asked) == sorted(body["seed"] for body in built[1].answered)
    assert (len(Server(url, log).answered_ids()) == len(asked)) is (engine == "batch")


@pytest.mark.slow
def test_detached_build_is_collected_and_never_paid_for_twice(built, tmp_path, monkeypatch):
    log, command = tmp_path / "log.jsonl", ("--questions", "20", "--answerer", "answerer")
    batches = ("--engine", "batch", "--engine-option", "poll=0.05")
    write_pages(Path("pages.jsonl"), 60)
    server = faulty_app(WriterPool("writer", "answerer"), RequestLog(log), faults=BatchFaults(delay=0.3))
    with serve_in_thread(server) as url:
        monkeypatch.setenv(ADDRESS, url)
        detached = build(*command, *batches, "--detach")
        assert (detached.exit_code, detached.stderr.count("error")) == (1, 0), detached.stderr
        assert "run the same command again to collect the results" in detached.stdout
        refused = build(*command)
        assert refused.exit_code == 2
        assert "--engine batch" in refused.stderr
        assert build(*command, *batches).exit_code == 0
    assert Path("wiki.jsonl").read_bytes() == (built[0] / "wiki.jsonl").read_bytes()
    assert len(Server(url, log).answered_ids()) == len(built[1].answered)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["direct", "batch"])
def test_functions_build_the_same_questions(engine, built):
    write_pages(Path("pages.jsonl"), 60)
    function = "python:tests.models.wiki_writer:reply"
    result = build("--questions", "20", "--writer", function, "--answerer", function, "--engine", engine)
    assert result.exit_code == 0, result.stderr
    assert Path("wiki.jsonl").read_bytes() == (built[0] / "wiki.jsonl").read_bytes()
    assert record()["settings"]["writer"]["model"] == function


@pytest.mark.slow
def test_stopped_build_resumes_without_repeating_requests(monkeypatch):
    def used_up(message: str, sent_before: int) -> web.StreamResponse | None:
        body = {"error": {"message": "no more", "type": "t", "code": None}}
        return web.json_response(body, status=401) if len(api.answered) >= 30 else None

    write_pages(Path("pages.jsonl"), 60)
    with FakeApi(writer, used_up) as api:
        monkeypatch.setenv(ADDRESS, api.url)
        stopped = build("--questions", "20", "--answerer", "answerer")
        assert (stopped.exit_code, len(api.answered)) == (1, 30), stopped.stderr
        api._fault = None
        finished = build("--questions", "20", "--answerer", "answerer")
        assert finished.exit_code == 0, finished.stderr
        assert set(Counter(body["seed"] for body in api.answered).values()) == {1}


def test_each_request_has_its_own_seed_and_each_role_its_settings(built):
    answered = built[1].answered
    assert len({body["seed"] for body in answered}) == len(answered)
    sampling = {(is_question(b["messages"][-1]["content"]), b["model"], b["temperature"], b["top_p"]) for b in answered}
    assert sampling == {(True, "writer", 0.7, 0.9), (False, "answerer", 0.3, 0.9)}


@pytest.mark.slow
def test_finished_build_sends_nothing_and_prints_the_same(api):
    write_pages(Path("pages.jsonl"), 40)
    first = build("--questions", "12")
    sent, file = len(api.answered), Path("wiki.jsonl").read_bytes()
    again = build("--questions", "12")
    assert (again.exit_code, again.stdout) == (0, first.stdout)
    Path("wiki.jsonl").unlink()
    rebuilt = build("--questions", "12")
    assert (rebuilt.exit_code, Path("wiki.jsonl").read_bytes()) == (0, file), "from the replies that were kept"
    assert len(api.answered) == sent


@pytest.mark.slow
def test_order_of_pages_does_not_matter(api):
    write_pages(Path("pages.jsonl"), 40)
    build("--questions", "12")
    text = Path("pages.jsonl").read_text().splitlines(keepends=True)
    Path("pages.jsonl").write_text("".join(reversed(text)))
    build("--questions", "12", out="other.jsonl")
    assert lines("other.jsonl") == lines("wiki.jsonl")


@pytest.mark.slow
def test_different_seed_samples_different_sections(api):
    write_pages(Path("pages.jsonl"), 80)
    build("--questions", "12")
    build("--questions", "12", "--seed", "1", out="other.jsonl")
    assert {line["question"] for line in lines("other.jsonl")} != {line["question"] for line in lines("wiki.jsonl")}


@pytest.mark.slow
def test_running_out_of_pages_is_reported_and_the_partial_set_is_saved(api):
    write_pages(Path("pages.jsonl"), 20)
    result = build("--questions", "100")
    assert result.exit_code == 1
    assert "the pages ran out before 100 questions were made" in result.stdout
    # 10 valid towns with two sections each, and one of the duplicates
    assert len(lines("wiki.jsonl")) == record()["file"]["questions"] == 21
    sent = len(api.answered)
    assert build("--questions", "100").exit_code == 1
    assert len(api.answered) == sent


@pytest.mark.slow
def test_model_with_unreadable_output_stops_the_build_with_reasons(monkeypatch):
    write_pages(Path("pages.jsonl"), 200)
    with FakeApi(lambda _: "As a language model, I love questions.") as api:
        monkeypatch.setenv(ADDRESS, api.url)
        result = build("--questions", "50")
        sent = len(api.answered)
    assert 100 <= sent < 150, "to the end of the round in which a hundred in a row yielded nothing"
    assert result.exit_code == 1
    assert f"question_unreadable {sent}" in result.stderr
    assert "--writer" in result.stderr
    assert "sections.jsonl" in result.stderr
    assert not Path("wiki.jsonl").exists()
    assert lines("wiki.jsonl.build/sections.jsonl")[0]["detail"] == "As a language model, I love questions."
    assert len(lines("wiki.jsonl.build/sections.jsonl")) == sent


def test_rejected_key_stops_the_build_and_is_never_shown(monkeypatch):
    def refused(message: str, sent_before: int) -> web.StreamResponse:
        body = {"error": {"message": "bad key sk-very-secret", "type": "t", "code": None}}
        return web.json_response(body, status=401)

    write_pages(Path("pages.jsonl"), 60)
    with FakeApi(writer, refused) as api:
        monkeypatch.setenv(ADDRESS, api.url)
        result = build("--questions", "50")
        assert (result.exit_code, len(api.answered)) == (1, 0)
        assert "writer failed for 20 questions in a row" in result.stderr
        assert len(api.received) <= 48, "a first round of four levels"
        assert "bad key [key]" in result.stderr
        assert not Path("wiki.jsonl").exists()
    assert not any(b"sk-very-secret" in path.read_bytes() for path in Path().rglob("*") if path.is_file())


@pytest.mark.slow
def test_section_with_permanent_request_failure_is_skipped_and_named(monkeypatch):
    def one_town(message: str, sent_before: int) -> web.StreamResponse | None:
        if "Town 11 " not in message:
            return None
        return web.json_response({"error": {"message": "too rude", "type": "t", "code": None}}, status=400)

    write_pages(Path("pages.jsonl"), 20)
    with FakeApi(writer, one_town) as api:
        monkeypatch.setenv(ADDRESS, api.url)
        build("--questions", "100")
    assert record()["counts"]["rejected"]["request_failed"] == 3
    failed = [line for line in lines("wiki.jsonl.build/sections.jsonl") if line["reason"] == "request_failed"]
    assert {one["title"] for one in failed} == {"Town 11"}
    assert all("too rude" in one["detail"] for one in failed)


@pytest.mark.slow
def test_filtered_and_truncated_replies_are_distinguished(monkeypatch):
    def torn_once(message: str, sent_before: int) -> web.StreamResponse | None:
        if "Town 12 " not in message or sent_before:
            return None
        return web.Response(text='{"id": "x", "choi', content_type="application/json")

    def filtered(message: str) -> str:
        return "I cannot[content_filter]" if "Town 11 " in message and not is_question(message) else writer(message)

    write_pages(Path("pages.jsonl"), 20)
    with FakeApi(filtered, torn_once) as api:
        monkeypatch.setenv(ADDRESS, api.url)
        build("--questions", "100")
    assert record()["counts"]["rejected"]["content_filter"] == 2
    assert "request_failed" not in record()["counts"]["rejected"]
    assert "Town 12" in {line["title"] for line in lines("wiki.jsonl")}


def test_a_dry_run_sends_nothing_and_counts_requests(api):
    write_pages(Path("pages.jsonl"), 40)
    result = build("--questions", "30", "--dry-run")
    assert result.exit_code == 0
    assert "40 pages with 4 levels of difficulty" in result.stdout
    assert "30 questions take at least 60 requests" in result.stdout
    assert not api.answered
    assert [path.name for path in Path().iterdir()] == ["pages.jsonl"]


@pytest.mark.slow
def test_changed_settings_of_an_existing_build_are_named(api):
    write_pages(Path("pages.jsonl"), 40)
    build("--questions", "12")
    for changed, named in ((["--seed", "1"], "seed: 0 before, 1 now"), (["--top-p", "1"], "writer.decoding.top_p")):
        result = build("--questions", "12", *changed)
        assert result.exit_code == 2
        assert named in result.stderr
        assert "--out" in result.stderr
    Path("wiki.jsonl").unlink()
    Path("wiki.jsonl.build.json").unlink()
    result = build("--questions", "13")
    assert (result.exit_code, "questions: 12 before, 13 now" in result.stderr) == (2, True)


CASES = {
    "no such file": ("absent.jsonl", "w.jsonl", [], ["absent.jsonl cannot be read"]),
    "no section long enough": ("pages.jsonl", "w.jsonl", ["--shortest", "2000"], ["2,000 characters", "--shortest"]),
    "no such column": ("pages.jsonl", "w.jsonl", ["--difficulty", "dificulty"], ["'dificulty'", "'difficulty'"]),
    "shortest above longest": ("pages.jsonl", "w.jsonl", ["--shortest", "9999"], ["--shortest", "--longest"]),
    "not JSON Lines": ("pages.jsonl", "w.csv", [], ["--out", ".jsonl"]),
    "no such folder": ("pages.jsonl", "no/w.jsonl", [], ["--out", "create it first"]),
    "a file of one's own": ("pages.jsonl", "pages.jsonl", [], ["pages.jsonl", "was not made by a build"]),
    "no key": ("pages.jsonl", "w.jsonl", [], ["OPENAI_API_KEY"]),
    "no provider": ("pages.jsonl", "w.jsonl", ["--writer", "gpt"], ["PROVIDER/NAME"]),
    "no such engine": ("pages.jsonl", "w.jsonl", [*OPTIONS[:2], "--engine", "dirct"], ["--engine", "'direct'"]),
    "files, which nobody could answer": (
        "pages.jsonl",
        "w.jsonl",
        [*OPTIONS[:2], "--engine", "files"],
        ["--engine", "an engine that sends requests", "direct"],
    ),
    "no such writer": ("pages.jsonl", "w.jsonl", ["--writer", "opnai/x"], ["'opnai'"]),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_input_gets_one_line_and_leaves_nothing_behind(case):
    write_pages(Path("pages.jsonl"), 5)
    pages, out, further, expected = CASES[case]
    result = CliRunner().invoke(app, ["build", "precise-wiki", pages, "--out", out, *further])
    assert result.exit_code == 2, result
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert all(part in result.stderr for part in expected), result.stderr
    assert [path.name for path in Path().iterdir()] == ["pages.jsonl"]


def test_command_defaults_match_build_options():
    """Commands import the implementation only when they run, so its defaults are repeated there."""
    defaults = {name: parameter.default for name, parameter in inspect.signature(build_command).parameters.items()}
    plan = BuildOptions(Path("a"), Path("b"), DEFAULT_GRADER, DEFAULT_GRADER)
    assert defaults["temperature"] == plan.writing.temperature
    assert defaults["answer_temperature"] == plan.answering.temperature
    assert defaults["top_p"] == plan.writing.top_p == plan.answering.top_p
    assert defaults["max_tokens"] is None
    assert Settings().decoding.max_tokens == plan.writing.max_tokens == plan.answering.max_tokens
    assert (defaults["shortest"], defaults["longest"]) == (plan.lengths.shortest, plan.lengths.longest)
    assert (defaults["seed"], defaults["questions"]) == (plan.seed, plan.questions)
    assert Settings().sending == plan.sending
    assert defaults["writer"] == DEFAULT_GRADER


@pytest.mark.slow
def test_stopped_build_gives_same_result_as_uninterrupted_build(monkeypatch):
    """A key that is rejected after some replies stops it."""

    def used_up(message: str, sent_before: int) -> web.StreamResponse | None:
        body = {"error": {"message": "no more", "type": "t", "code": None}}
        return web.json_response(body, status=401) if len(api.answered) >= enough else None

    write_pages(Path("pages.jsonl"), 40)
    with FakeApi(writer, used_up) as api:
        monkeypatch.setenv(ADDRESS, api.url)
        for enough in (9, 21):
            stopped = build("--questions", "15")
            assert (stopped.exit_code, len(api.answered)) == (1, enough), stopped.stderr
            assert "no more" in stopped.stderr
            assert not Path("wiki.jsonl").exists()
        api._fault = None
        assert build("--questions", "15").exit_code == 0
        sent = Counter(body["seed"] for body in api.answered)
        assert set(sent.values()) == {1}, "nothing was asked twice"
        used = record()["usage"]
        assert len(sent) == used["writer"]["requests"] + used["answerer"]["requests"]
        assert build("--questions", "15", out="whole.jsonl").exit_code == 0
        assert len(api.answered) == 2 * len(sent)
    assert Path("wiki.jsonl").read_bytes() == Path("whole.jsonl").read_bytes()
    assert {**record(), "file": None} == {**record("whole.jsonl"), "file": None}
    assert record()["counts"]["rejected"] == dict(expected_reasons(lines("wiki.jsonl.build/sections.jsonl")))


def start(out: str) -> subprocess.Popen[str]:
    command = [*COMMAND, "pages.jsonl", "--out", out, "--questions", "24", *OPTIONS]
    command = with_addresses(command)
    return subprocess.Popen(command, env=os.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> str:
    said, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    return said


@pytest.mark.slow
def test_killed_and_interrupted_build_gives_same_result_with_few_repeats(monkeypatch):
    def sometimes(message: str, sent_before: int) -> web.StreamResponse | float | None:
        fact = FACT.search(message)
        if sent_before == 0 and fact and number_of(fact[2]) % 29 == 0:
            return error_500()
        return 0.02

    write_pages(Path("pages.jsonl"), 60)
    with FakeApi(writer, sometimes) as api:
        monkeypatch.setenv(ADDRESS, api.url)
        for enough, ending in ((20, signal.SIGKILL), (40, signal.SIGINT)):
            process = start("killed.jsonl")
            while len(api.answered) < enough:
                assert process.poll() is None, process.communicate()
                time.sleep(0.02)
            process.send_signal(ending)
            output = process.communicate()[1]
            assert process.returncode == (130 if ending is signal.SIGINT else -signal.SIGKILL), output
            assert not Path("killed.jsonl").exists()
        output = finish(start("killed.jsonl"))
        sent = Counter(body["seed"] for body in api.answered)
        used = record("killed.jsonl")["usage"]
        assert len(sent) == used["writer"]["requests"] + used["answerer"]["requests"]
        assert sum(sent.values()) - len(sent) <= 2 * 8, "only what was in flight at a kill"

        before = len(api.answered)
        assert finish(start("killed.jsonl")) == output
        assert len(api.answered) == before, "a finished build sends nothing"

        finish(start("whole.jsonl"))
        assert len(api.answered) - before == len(sent)
    assert Path("killed.jsonl").read_bytes() == Path("whole.jsonl").read_bytes()
    assert len(lines("killed.jsonl")) == 24
    tried = lines("killed.jsonl.build/sections.jsonl")
    assert record("killed.jsonl")["counts"]["rejected"] == dict(expected_reasons(tried))
    same = {**record("killed.jsonl"), "file": None}
    assert same == {**record("whole.jsonl"), "file": None}
