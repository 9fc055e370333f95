"""Runs by files: requests are written, answered externally and read back, with the same result as any engine."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from refusal_index.cli import app
from refusal_index.plugins.batches import formats
from refusal_index.protocol import StopReason
from refusal_index.runs.store import ReplyStore
from tests.cli.making import outcomes, stored, write_sums
from tests.models.batches.answering import LINES, dumped, failed_line
from tests.models.fake_api import is_forced, is_grading
from tests.runs.models import reply_to
from tests.tiers import one_fast

BY_HAND = ("--engine", "files")
FAKE = (
    "run",
    "--data",
    "q.csv",
    "--model",
    "vllm/any",
    "--variants",
    "low,high",
    "--grader",
    "exact",
    *BY_HAND,
)
SMALL = ("run", "--model", "almanac/small", "--limit", "12", "--variants", "low,high")
Answer = Callable[[str], str]


@pytest.fixture
def wide(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    return command


def lines_in(path: str | Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_bytes().splitlines()]


def id_in(line: dict[str, Any]) -> str:
    return str(line["custom_id"])


def text_in(line: dict[str, Any]) -> str:
    """Return the message of a request in any format."""
    return str((line.get("params") or line["body"])["messages"][-1]["content"])


def choices_in(line: dict[str, Any]) -> int:
    return int(line.get("body", {}).get("n", 1))


def scripted_reply(message: str) -> str:
    if not is_grading(message):
        return reply_to(message)
    return "A" if "Predicted answer: none" not in message else "B"


def results_of(path: str | Path, style: str = "compatible", answer: Answer = scripted_reply) -> list[dict[str, Any]]:
    """Answer the requests of a file."""
    return [
        LINES[style](id_in(line), [(answer(text_in(line)), StopReason.STOP)] * choices_in(line))
        for line in lines_in(path)
    ]


def write(path: str, lines: list[dict[str, Any]]) -> str:
    Path(path).write_bytes(dumped(lines))
    return path


def by_hand(command: Any, run: str, style: str | None = None, answer: Answer = scripted_reply) -> int:
    """Complete a run by files until nothing is pending, and return the number of rounds."""
    for number in range(20):
        named = ("--format", style) if style else ()
        done = command("requests", run, "--out", f"w{number}.jsonl", *named)
        assert done.exit_code == 0, done.output
        files = sorted(Path().glob(f"w{number}*.jsonl"))
        if not files:
            assert "no request is pending" in done.stdout
            return number
        results = [
            write(f"r{number}-{place}.jsonl", results_of(one, style or "compatible", answer))
            for place, one in enumerate(files)
        ]
        done = command("replies", run, *results)
        assert done.exit_code in (0, 1), done.output
        assert "left out" not in done.stderr
    raise AssertionError("it does not end")


@pytest.fixture
def first_requests(wide):
    """Start a run by files, and return its first file of requests."""
    write_sums("q.csv", 6)
    done = wide(*FAKE, "--out", "r")
    assert done.exit_code == 1
    assert "12 requests are pending, and nothing was sent" in done.stdout
    assert "refusal-index requests r --out FILE" in done.stdout
    assert wide("requests", "r", "--out", "w.jsonl").exit_code == 0
    return "w.jsonl"


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folders of local runs of the small model; tests must not change them."""
    out = tmp_path_factory.mktemp("local")
    for draws in ("1", "2"):
        done = CliRunner().invoke(app, [*SMALL, "--draws", draws, "--out", str(out / draws)])
        assert done.exit_code == 0, done.output
    return out


def batch(command: Any, number: int) -> str:
    done = command("run-batch", "-i", f"w{number}.jsonl", "-o", f"r{number}.jsonl", "--model", "almanac/small")
    assert done.exit_code == 0, done.output
    return f"r{number}.jsonl"


@pytest.mark.slow
@one_fast("draws", ["1", "2"])
def test_run_by_files_equals_local_run_row_by_row(wide, local, draws):
    assert wide(*SMALL, *BY_HAND, "--draws", draws, "--out", "r").exit_code == 1
    for number in range(3):
        output = wide("requests", "r", "--out", f"w{number}.jsonl").stdout
        if "no request is pending" in output:
            break
        done = wide("replies", "r", batch(wide, number))
    assert number == (2 if draws == "1" else 1)
    assert done.exit_code == 0
    assert "95% interval" in done.stdout
    assert outcomes("r").equals(outcomes(local / draws))
    whole, ours = (json.loads(Path(one, "summary.json").read_text()) for one in (local / draws, "r"))
    for one, other in zip(whole["variants"], ours["variants"], strict=True):
        assert one["metrics"] == other["metrics"]
        assert one["usage"] == other["usage"], "requests and tokens"
    again = wide(*SMALL, *BY_HAND, "--draws", draws, "--out", "r")
    assert again.exit_code == 0, "no request is pending"
    assert wide("score", "r").exit_code == 0
    assert wide("report", "r").exit_code == 0


@pytest.mark.slow
@one_fast("first", ["files", "local"])
def test_run_started_by_one_engine_can_be_finished_by_another(wide, local, first):
    if first == "files":
        wide(*SMALL, *BY_HAND, "--draws", "1", "--out", "r")
        wide("requests", "r", "--out", "w0.jsonl")
        assert wide("replies", "r", batch(wide, 0)).exit_code == 1
        kept = stored("r")
        assert wide(*SMALL, "--draws", "1", "--out", "r").exit_code == 0
        assert stored("r")[: len(kept)] == kept, "nothing is asked again"
    else:
        wide(*SMALL, "--draws", "1", "--max-requests", "9", "--max-connections", "1", "--out", "r")
        assert len(stored("r")) == 9
        for number in range(2):
            assert wide("requests", "r", "--out", f"w{number}.jsonl").exit_code == 0
            done = wide("replies", "r", batch(wide, number))
        assert done.exit_code == 0
    assert outcomes("r").equals(outcomes(local / "1"))


def test_replies_from_files_cost_the_batch_rate_and_others_the_full_price(wide):
    one_by_one = ("--draws", "1", "--max-requests", "9", "--max-connections", "1")
    wide(*SMALL, *one_by_one, "--price", "2,8", "--batch-rate", "0.25", "--out", "r")
    for number in range(2):
        assert wide("requests", "r", "--out", f"w{number}.jsonl").exit_code == 0
        done = wide("replies", "r", batch(wide, number))
    assert done.exit_code == 0
    with ReplyStore(Path("r/replies.sqlite")) as store:
        dollars = [(2 * reply.input_tokens + 8 * reply.output_tokens) / 1e6 for reply in store.replies()]
    costs = [variant["usage"]["cost"] for variant in json.loads(Path("r/summary.json").read_text())["variants"]]
    assert sum(costs) == pytest.approx(sum(dollars[:9]) + sum(dollars[9:]) / 4)
    about = json.loads(Path("r/run.json").read_text())["about"]
    assert (about["price"], about["batch_rate"]) == ({"input": 2.0, "output": 8.0}, 0.25)


def test_request_file_holds_exactly_the_pending_requests(first_requests, wide):
    lines = lines_in(first_requests)
    assert len({id_in(line) for line in lines}) == 12
    assert {line["body"]["model"] for line in lines} == {"any"}
    assert wide("requests", "r", "--out", "again.jsonl").exit_code == 0
    assert Path("again.jsonl").read_bytes() == Path(first_requests).read_bytes(), (
        "it is the same as long as nothing came"
    )
    done = wide("replies", "r", write("res.jsonl", results_of(first_requests)))
    assert done.exit_code == 1
    assert "12 new replies" in done.stdout
    assert "3 requests are pending" in done.stdout
    wide("requests", "r", "--out", "second.jsonl")
    assert all(is_forced(text_in(line)) for line in lines_in("second.jsonl"))


@one_fast(("style", "draws"), list(product(formats.FORMATS, ("1", "2")))[::-1])
def test_every_format_gives_the_same_run(wide, style, draws):
    write_sums("q.csv", 6)
    for out, chosen in (("plain", None), ("r", style)):
        wide(*FAKE, "--draws", draws, "--out", out)
        assert by_hand(wide, out, chosen) == (2 if draws == "1" else 1)
        for path in (*Path().glob("w*.jsonl"), *Path().glob("r*.jsonl")):
            path.unlink()
    assert outcomes("r").equals(outcomes("plain"))


def test_reported_pending_count_matches_written_requests(wide, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-none")
    write_sums("q.csv", 3)
    arguments = [one.replace("vllm/any", "anthropic/one") for one in FAKE]
    done = wide(*arguments, "--draws", "2", "--out", "r")
    assert "18 requests are pending" in done.stdout, "one of each draw of two first passes and a forced one"
    assert wide("requests", "r", "--out", "w.jsonl").exit_code == 0
    written = lines_in("w.jsonl")
    assert len(written) == 18
    done = wide("replies", "r", write("res.jsonl", results_of("w.jsonl", "anthropic")[:2]))
    assert "16 requests are pending" in done.stdout


def test_single_choice_grader_does_not_split_model_draws(wide):
    write_sums("q.csv", 2)
    arguments = ["anthropic/one" if one == "exact" else one for one in FAKE]
    assert wide(*arguments, "--draws", "3", "--out", "r").exit_code == 1
    assert wide("requests", "r", "--out", "w.jsonl").exit_code == 0
    assert {line["body"]["n"] for line in lines_in(Path("w.jsonl"))} == {3}


@pytest.mark.slow
def test_model_and_two_graders_get_separate_files_in_provider_formats(wide):
    write_sums("q.csv", 6)
    arguments = list(FAKE)
    arguments[arguments.index("exact")] = "anthropic/one,vllm/two"
    assert wide(*arguments, "--out", "r").exit_code == 1
    seen: dict[str, str] = {}
    for number in range(6):
        output = wide("requests", "r", "--out", f"w{number}.jsonl")
        if "no request is pending" in output.stdout:
            break
        for path in sorted(Path().glob(f"w{number}*.jsonl")):
            (line, *_) = lines_in(path)
            style = "anthropic" if "params" in line else "compatible"
            seen[(line.get("params") or line["body"])["model"]] = text_in(line)
            write(f"r-{path}", results_of(path, style))
        done = wide("replies", "r", *map(str, Path().glob(f"r-w{number}*.jsonl")))
    assert set(seen) == {"any", "one", "two"}
    assert is_grading(seen["one"])
    assert is_grading(seen["two"])
    assert done.exit_code == 0, done.output
    assert outcomes("r")["wrong"].null_count() == 0


def test_pending_model_and_grader_requests_are_two_files(wide):
    write_sums("q.csv", 6)
    arguments = list(FAKE)
    arguments[arguments.index("exact")] = "vllm/grader"
    wide(*arguments, "--out", "r")
    wide("requests", "r", "--out", "w.jsonl")
    wide("replies", "r", write("res.jsonl", results_of("w.jsonl")))
    output = wide("requests", "r", "--out", "next.jsonl").stdout
    assert [{line["body"]["model"] for line in lines_in(one)} for one in ("next.jsonl", "next-2.jsonl")] in (
        [{"any"}, {"grader"}],
        [{"grader"}, {"any"}],
    )
    assert "grader" in output
    assert "next-2.jsonl" in output


@pytest.mark.parametrize("limits", [{"most_requests": 5}, {"most_bytes": 9_000}])
def test_request_file_is_split_at_provider_limits(wide, monkeypatch, limits):
    monkeypatch.setattr(formats, "FORMATS", dict(formats.FORMATS))
    formats.FORMATS["compatible"] = replace(formats.FORMATS["compatible"], **limits)
    write_sums("q.csv", 6)
    wide(*FAKE, "--out", "r")
    output = wide("requests", "r", "--out", "w.jsonl").stdout
    files = [Path("w.jsonl"), *sorted(Path().glob("w-*.jsonl"))]
    assert len(files) >= 3
    for file in files:
        assert len(lines_in(file)) <= limits.get("most_requests", 99)
        assert file.stat().st_size <= limits.get("most_bytes", 10**9)
        assert str(file) in output
    assert len({id_in(line) for one in files for line in lines_in(one)}) == 12


def test_results_may_arrive_in_any_order_twice_and_in_parts(first_requests, wide):
    results = results_of(first_requests)[::-1]
    parts = [write(f"p{place}.jsonl", results[place::3]) for place in range(3)]
    assert "4 new replies" in wide("replies", "r", parts[2]).stdout
    output = wide("replies", "r", *parts, parts[0])
    assert "8 new replies, 4 were stored before" in output.stdout
    assert output.exit_code == 1, "the second pass is due"
    assert "left out" not in output.stderr


def test_failed_requests_stay_pending_and_are_reported(first_requests, wide):
    results = results_of(first_requests)
    results[:3] = [failed_line(id_in(result), "openai") for result in results[:3]]
    done = wide("replies", "r", write("res.jsonl", results))
    assert "9 new replies" in done.stdout
    assert "3 requests failed and stay pending: batch_expired" in done.stdout
    wide("requests", "r", "--out", "next.jsonl")
    again = {id_in(line) for line in lines_in("next.jsonl")}
    assert {id_in(result) for result in results[:3]} <= again
    done = wide("replies", "r", write("more.jsonl", results_of("next.jsonl")), "res.jsonl")
    assert "failed" not in done.stdout.replace("failures", "")
    by_hand(wide, "r")
    assert outcomes("r")["wrong"].null_count() == 0


def test_failed_shared_request_is_reported_once(first_requests, wide):
    wide("replies", "r", write("res.jsonl", results_of(first_requests)))
    wide("requests", "r", "--out", "next.jsonl")
    failures = [failed_line(id_in(line), "openai") for line in lines_in("next.jsonl")]
    done = wide("replies", "r", write("failed.jsonl", failures))
    assert f"{len(failures)} requests failed and stay pending" in done.stdout
    score = wide("score", "r")
    assert score.exit_code == 1, "results of what is there"


def test_results_of_another_run_are_named_and_left_out(first_requests, wide):
    write_sums("q.csv", 3, "other")
    wide(*FAKE, "--out", "other")
    wide("requests", "other", "--out", "theirs.jsonl")
    done = wide("replies", "r", write("res.jsonl", results_of("theirs.jsonl")))
    assert done.exit_code == 1
    assert "left out: 6 belong to no request of this run" in done.stderr
    assert id_in(lines_in("theirs.jsonl")[0]) in done.stderr
    assert "and 1 more" in done.stderr
    assert not stored("r")


def test_damaged_lines_and_conflicting_duplicates_are_named_and_skipped(first_requests, wide):
    results = results_of(first_requests)
    other = LINES["openai"](id_in(results[0]), [("<answer>another</answer>", StopReason.STOP)])
    raw = dumped([*results, other]) + json.dumps(results[0]).encode()[:-30]
    Path("res.jsonl").write_bytes(raw)
    done = wide("replies", "r", "res.jsonl")
    assert done.exit_code == 1
    assert "12 new replies" in done.stdout
    assert "left out: 1 hold no result" in done.stderr
    assert "res.jsonl, line 14: expected a line of JSON" in done.stderr
    assert "left out: 1 contradict an earlier result" in done.stderr


def test_result_that_conflicts_with_the_stored_reply_is_left_out(first_requests, wide):
    wide("replies", "r", write("res.jsonl", results_of(first_requests)))
    kept = stored("r")
    others = results_of(first_requests, answer=lambda _: "<answer>another</answer>")[:2]
    done = wide("replies", "r", write("others.jsonl", others))
    assert done.exit_code == 1
    assert "left out: 2 differ from the stored reply" in done.stderr
    assert id_in(others[0]) in done.stderr
    assert stored("r") == kept


def test_left_out_results_give_exit_status_1_even_for_a_complete_run(first_requests, wide):
    by_hand(wide, "r")
    whole = outcomes("r")
    done = wide(
        "replies", "r", write("others.jsonl", results_of(first_requests, answer=lambda _: "<answer>x</answer>")[:1])
    )
    assert done.exit_code == 1
    assert "95% interval" in done.stdout
    assert outcomes("r").equals(whole)
    done = wide("replies", "r", write("same.jsonl", results_of(first_requests)))
    assert (done.exit_code, done.stderr) == (0, "")
    assert "0 new replies, 12 were stored before" in done.stdout


def test_replies_without_prior_requests_and_requests_with_none_pending(first_requests, wide):
    fresh = write("res.jsonl", results_of(first_requests))
    shutil.rmtree("r")
    wide(*FAKE, "--out", "r")
    assert "12 new replies" in wide("replies", "r", fresh).stdout
    by_hand(wide, "r")
    done = wide("requests", "r", "--out", "none.jsonl")
    assert (done.exit_code, done.stdout.splitlines()[0][:20]) == (0, "r: no request is pen")
    assert not Path("none.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("requests", "nowhere", "--out", "w.jsonl"), "nowhere"),
        (("requests", "empty", "--out", "w.jsonl"), "empty"),
        (("replies", "nowhere", "w.jsonl"), "nowhere"),
        (("requests", "r", "--out", "w.jsonl"), "--out: w.jsonl already exists"),
        (("requests", "r", "--out", "."), "already exists"),
        (("requests", "r", "--out", "n.jsonl", "--format", "opnai"), "'openai'"),
        (("requests", "r", "--out", "n.jsonl", "--prompts", "q.csv"), "q.csv"),
        (("replies", "r", "absent.jsonl", "w.jsonl"), "absent.jsonl: expected a file of results"),
        (("replies", "r", "empty"), "empty: expected a file of results"),
    ],
)
def test_bad_input_is_one_line_and_changes_nothing(first_requests, wide, arguments, message):
    Path("empty").mkdir()
    before = Path(first_requests).read_bytes()
    done = wide(*arguments)
    assert done.exit_code == 2
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert Path(first_requests).read_bytes() == before
    assert not Path("nowhere").exists()
    assert not stored("r")


@pytest.mark.parametrize("out", ["absent/w.jsonl", "q.csv/w.jsonl"])
def test_unwritable_request_file_leaves_nothing_behind(first_requests, wide, out):
    done = wide("requests", "r", "--out", out)
    assert done.exit_code == 1
    assert done.stderr.startswith("error: ")
    assert not [*Path().glob("**/.*.tmp")]


def test_existing_second_file_prevents_writing_any(wide, monkeypatch):
    monkeypatch.setattr(formats, "FORMATS", dict(formats.FORMATS))
    formats.FORMATS["compatible"] = replace(formats.FORMATS["compatible"], most_requests=5)
    write_sums("q.csv", 6)
    wide(*FAKE, "--out", "r")
    Path("w-2.jsonl").write_text("mine")
    done = wide("requests", "r", "--out", "w.jsonl")
    assert (done.exit_code, "w-2.jsonl already exists" in done.stderr) == (2, True)
    assert not Path("w.jsonl").exists()
    assert Path("w-2.jsonl").read_text() == "mine"
    assert not [*Path().glob(".*.tmp")]


def test_custom_prompt_set_must_be_given_again(wide):
    write_sums("q.csv", 4)
    shipped = (files("refusal_index.protocol") / "data" / "default.toml").read_text()
    mine = shipped.replace('name = "default"', 'name = "mine"')
    Path("mine.toml").write_text(mine.replace("Work out", "Please work out"))
    wide(*FAKE, "--prompts", "mine.toml", "--out", "r")
    done = wide("requests", "r", "--out", "w.jsonl")
    assert (done.exit_code, "--prompts: expected the file of the prompt set 'mine'" in done.stderr) == (2, True)
    assert wide("requests", "r", "--prompts", "mine.toml", "--out", "w.jsonl").exit_code == 0
    assert all("Please work out" in text_in(line) for line in lines_in("w.jsonl"))
    results = write("res.jsonl", results_of("w.jsonl"))
    assert wide("replies", "r", results).exit_code == 2
    assert "8 new replies" in wide("replies", "r", results, "--prompts", "mine.toml").stdout
    Path("mine.toml").write_text(mine)
    done = wide("requests", "r", "--prompts", "mine.toml", "--out", "w2.jsonl")
    assert (done.exit_code, "got another" in done.stderr) == (2, True)


CONFIG = """
[defaults]
grader = "exact"
variants = "high"
engine = "files"
[[models]]
model = "vllm/one"
[[models]]
model = "vllm/two"
[[datasets]]
data = "q.csv"
"""


def test_matrix_starts_every_run_and_summarises_after_results(wide):
    write_sums("q.csv", 4)
    Path("two.toml").write_text(CONFIG)
    done = wide("run", "--config", "two.toml", "--out", "set")
    assert done.exit_code == 1
    folders = sorted(path.parent for path in Path("set").glob("*/run.json"))
    assert len(folders) == 2, done.output
    for folder in folders:
        by_hand(wide, str(folder))
        for path in Path().glob("w?*.jsonl"):
            path.unlink()
    done = wide("run", "--config", "two.toml", "--out", "set")
    assert done.exit_code == 0, done.output
    assert all(run["status"] == "complete" for run in json.loads(Path("set/summary.json").read_text())["runs"])


def test_replies_of_hostile_text_are_harmless(first_requests, wide):
    hostile = "\x1b[2J\x1b]0;owned\x07 [bold]x[/a] \u202e \ud83d <script>"
    results = results_of(first_requests, answer=lambda _: f"<answer>{hostile}</answer>")
    results[0] = {"custom_id": id_in(results[0]), "response": None, "error": {"code": hostile, "message": hostile}}
    results[1] = LINES["openai"](f"{hostile}", [("x", StopReason.STOP)])
    Path("res.jsonl").write_bytes(dumped(results) + hostile.encode(errors="replace") + b"\n\xff\xfe\n")
    done = wide("replies", "r", "res.jsonl")
    assert done.exit_code == 1
    printed = (done.stdout + done.stderr).replace("\n", "")
    assert all(character.isprintable() for character in printed), ascii(printed)
    assert "10 new replies" in done.stdout


def test_key_in_results_is_neither_stored_nor_shown(first_requests, wide, monkeypatch):
    monkeypatch.setenv("FAKE_API_KEY", "very-secret-value-1")
    results = results_of(first_requests, answer=lambda _: "<answer>very-secret-value-1</answer>")
    results[0] = {"custom_id": id_in(results[0]), "response": None, "error": "the key very-secret-value-1 is wrong"}
    done = wide("replies", "r", write("res.jsonl", results))
    assert "very-secret" not in done.output
    assert b"very-secret" not in b"".join(path.read_bytes() for path in Path("r").rglob("*") if path.is_file())


def test_discarded_replies_are_requested_again(first_requests, wide):
    by_hand(wide, "r", answer=lambda message: "" if "What is 0" in message else reply_to(message))
    assert outcomes("r")["unscored_reason"].drop_nulls().unique().to_list() == ["first_empty"]
    old = [*map(str, Path().glob("r?-*.jsonl"))]
    for path in (*Path().glob("w?*.jsonl"),):
        path.unlink()
    assert wide(*FAKE, "--retry", "unscored", "--out", "r").exit_code in (0, 1)
    assert wide("requests", "r", "--out", "again.jsonl").exit_code == 0
    assert len(lines_in("again.jsonl")) == 2
    assert "of no request" not in wide("replies", "r", *old).stderr, "what was set aside is known"
    assert wide("replies", "r", write("res.jsonl", results_of("again.jsonl"))).exit_code == 0
    assert outcomes("r")["unscored_reason"].null_count() == outcomes("r").height


def test_a_finished_run_is_regraded_by_files(first_requests, wide):
    by_hand(wide, "r")
    done = wide("regrade", "r", "--grader", "vllm/grader", *BY_HAND, "--out", "g")
    assert done.exit_code == 1
    for path in (*Path().glob("w?*.jsonl"),):
        path.unlink()
    assert by_hand(wide, "g") >= 1
    assert outcomes("g").height == outcomes("r").height
    assert outcomes("g")["wrong"].null_count() == 0


def test_external_first_pass_is_forced_by_files(wide):
    rows = [f"What is {n} plus {n}?,{2 * n},{'AC'[n % 2]}" for n in range(8)]
    Path("first.csv").write_text("\n".join(["question,answer,grade", *rows]))
    arguments = ("force", "first.csv", "--model", "vllm/first", "--grader", "exact")
    done = wide(*arguments, *BY_HAND, "--out", "f")
    assert done.exit_code == 1
    wide("requests", "f", "--out", "w.jsonl")
    assert len(lines_in("w.jsonl")) == 4
    assert all(is_forced(text_in(line)) for line in lines_in("w.jsonl"))
    done = wide("replies", "f", write("res.jsonl", results_of("w.jsonl")))
    assert done.exit_code == 0, done.output
    assert outcomes("f").filter("refused")["forced_grade"].null_count() == 0


def test_function_grader_is_reported_to_need_another_engine(wide):
    write_sums("q.csv", 4)
    arguments = list(FAKE)
    arguments[arguments.index("exact")] = "python:tests.runs.models:judge"
    wide(*arguments, "--out", "r")
    wide("requests", "r", "--out", "w.jsonl")
    wide("replies", "r", write("res.jsonl", results_of("w.jsonl")))
    wide("requests", "r", "--out", "w2.jsonl")
    wide("replies", "r", write("res2.jsonl", results_of("w2.jsonl")))
    done = wide("requests", "r", "--out", "w3.jsonl")
    assert "a function; send them with run --engine" in done.stderr
    assert "no request is pending" not in done.stdout
    assert not Path("w3.jsonl").exists()


@pytest.mark.slow
def test_unsupported_parameters_of_a_format_are_reported(wide):
    write_sums("q.csv", 2)
    arguments = ["anthropic/any" if one == "vllm/any" else one for one in FAKE]
    wide(*arguments, "--out", "r")
    done = wide("requests", "r", "--out", "w.jsonl")
    assert "anthropic format does not support temperature, top_p, seed" in done.stderr
    assert "openai" not in done.stderr


def test_replies_left_by_another_engine_are_not_paid_for_again(wide):
    assert wide(*SMALL, *BY_HAND, "--out", "r").exit_code == 1
    left = Path("r/rounds/abc.replies.jsonl")
    left.parent.mkdir()
    left.write_text("{}\n")
    for command in (("requests", "r", "--out", "w.jsonl"), (*SMALL, "--out", "r")):
        done = wide(*command)
        assert done.exit_code == 2
        assert "another engine would pay for them again" in done.stderr
    left.unlink()
    assert wide("requests", "r", "--out", "w.jsonl").exit_code == 0


def test_request_file_or_empty_file_is_rejected_as_results(wide):
    wide(*SMALL, *BY_HAND, "--out", "r")
    wide("requests", "r", "--out", "w.jsonl")
    done = wide("replies", "r", "w.jsonl")
    assert done.exit_code == 2
    assert "w.jsonl: expected results, got requests: run this file as a batch" in done.stderr
    Path("e.jsonl").touch()
    done = wide("replies", "r", "e.jsonl")
    assert done.exit_code == 1
    assert "e.jsonl is empty" in done.stderr
    assert "0 new replies" in done.stdout
    assert wide("run-batch", "-i", "w.jsonl", "-o", "res.jsonl", "--model", "almanac/small").exit_code == 0
    results = Path("res.jsonl")
    Path("one.jsonl").write_bytes(results.read_bytes().splitlines(keepends=True)[0])
    assert "r: 1 new reply\n" in wide("replies", "r", "one.jsonl", "e.jsonl").stdout


def test_budget_options_are_rejected_for_files_engine(wide):
    for option, value in (("--max-requests", "5"), ("--max-cost", "1"), ("--max-time", "9")):
        done = wide(*SMALL, *BY_HAND, "--out", "r", option, value)
        assert done.exit_code == 2
        assert f"{option}: --engine files sends nothing" in done.stderr
        assert not Path("r").exists()


def test_set_with_files_engine_reports_pending_requests(wide):
    Path("set.toml").write_text(
        'name = "set"\n[defaults]\nengine = "files"\nlimit = 5\ndraws = 1\nvariants = "low"\n'
        '[[models]]\nmodel = "almanac/small"\n[[datasets]]\ndataset = "almanac"\n'
    )
    done = wide("run", "--config", "set.toml")
    assert done.exit_code == 1
    assert "5 requests are pending, and nothing was sent: 'refusal-index requests runs/set/" in done.stdout
    assert "run the same command again to complete" not in done.stdout
    (run,) = json.loads(Path("runs/set/summary.json").read_text())["runs"]
    assert (run["status"], run["error"]) == ("waiting", None)
    assert "nothing was sent" in run["waits"]


def test_format_limitations_are_reported_only_for_used_options(wide):
    write_sums("q.csv", 2)
    wide(*["anthropic/any" if one == "vllm/any" else one for one in FAKE], "--out", "r")
    assert "logprobs" not in wide("requests", "r", "--out", "w.jsonl").stderr
    assert "logprobs" in wide("requests", "r", "--out", "v.jsonl", "--logprobs").stderr


def test_missing_grader_check_is_reported(wide):
    write_sums("q.csv", 2)
    arguments = ["vllm/judge" if one == "exact" else one for one in FAKE]
    assert "does not first test the grader on a simple answer" in wide(*arguments, "--out", "r").stderr
    assert "simple answer" not in wide(*FAKE, "--out", "s").stderr
