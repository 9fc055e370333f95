"""`regrade`: the replies of a finished run under another grader; what is sent, stored and reported."""

from __future__ import annotations

import csv
import json
import shutil
from collections import Counter
from pathlib import Path

import polars as pl
import pytest
from aiohttp import web
from click.testing import Result
from typer.testing import CliRunner

from refusal_index.cli import app
from refusal_index.errors import escape
from tests.cli.making import PIPELINE, outcomes, stored, write_sums
from tests.models.fake_api import FakeApi, is_forced, is_grading, question_of
from tests.served import ADDRESS, with_addresses

KEY = "sk-very-secret"
COUNT = 12
MODEL = ("--grader", "grader", "--out", "model")


def number_of(message: str) -> int:
    return int(question_of(message).split()[2])


def answer(message: str) -> str:
    """Refuse every third question by the tag, hedge at 1 and 7, be vague at 4 and 10; be correct when forced."""
    number = number_of(message)
    if is_forced(message):
        return f"<answer>{2 * number}</answer>"
    if number % 3 == 0:
        return "<answer>UNANSWERED</answer>"
    if number in {1, 7}:
        return f"<answer>I think it is {2 * number}</answer>"
    return "<answer>=nobody can say\x1b[31m</answer>" if number in {4, 10} else f"<answer>{2 * number}</answer>"


def verdict(message: str) -> str:
    """Grade by the instructions: hedged answers are correct, and 'cannot say' is not attempted."""
    prediction = message.split("<prediction>\n")[1].split("\n</prediction>", maxsplit=1)[0]
    gold = message.split("<gold_answer>\n")[1].split("\n</gold_answer>", maxsplit=1)[0]
    if "nobody can say" in prediction or "don't know" in prediction:
        return "C"
    return "A" if gold in prediction else "B"


def scripted_reply(message: str) -> str:
    return verdict(message) if is_grading(message) else answer(message)


def write_questions(folder: Path, count: int = COUNT) -> None:
    write_sums(folder / "q.csv", count)


def options(command: str, *more: str) -> list[str]:
    """Return the options that a command takes besides those of a test; the questions are sums."""
    patience = ["--max-retries", "0", "--attempt-timeout", "5", "--max-connections", "8"]
    if command != "run":
        return patience
    variants = "low" if "--draws" in more else "low,high"
    return [*patience, "--model", "any", "--data", "q.csv", "--variants", variants]


@pytest.fixture(scope="module")
def graded_by_rule(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that holds a run graded by comparison, in `exact`."""
    folder = tmp_path_factory.mktemp("graded")
    write_questions(folder)
    with FakeApi(scripted_reply) as api:
        assert in_folder(folder, api, "run", "--grader", "exact", "--out", "exact", *options("run")).exit_code == 0
    return folder


def in_folder(folder: Path, api: FakeApi, *arguments: str) -> Result:
    """Run a command in a folder against a server."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("FAKE_API_KEY", KEY)
        patch.setenv(ADDRESS, api.url)
        patch.setenv("COLUMNS", "200")
        return CliRunner().invoke(app, with_addresses(arguments), catch_exceptions=False)


@pytest.fixture(scope="module")
def graded_by_model(graded_by_rule: Path) -> tuple[Path, Result]:
    """Return the folder with both runs, regraded by a model in `model`, and the output."""
    with FakeApi(scripted_reply) as api:
        return graded_by_rule, in_folder(
            graded_by_rule, api, "regrade", "exact", *MODEL, "--grader-price", "10,0", *options("regrade")
        )


@pytest.fixture
def ask(command, tmp_path: Path, monkeypatch):
    """Return a function that runs and regrades against a server."""
    write_questions(tmp_path)
    monkeypatch.setenv("FAKE_API_KEY", KEY)
    monkeypatch.setenv(ADDRESS, "http://127.0.0.1:9/v1")
    monkeypatch.setenv("COLUMNS", "200")

    def run(api: FakeApi | None, *arguments: str):
        if api is not None:
            monkeypatch.setenv(ADDRESS, api.url)
        return command(*arguments, *options(*arguments))

    return run


@pytest.fixture
def exact(graded_by_rule: Path, ask, tmp_path: Path) -> None:
    """Put a run that was graded by comparison into the working folder, as `exact`."""
    shutil.copytree(graded_by_rule / "exact", tmp_path / "exact")


@pytest.fixture
def model(graded_by_model: tuple[Path, Result], exact, tmp_path: Path) -> Result:
    """Put the regraded run next to it, as `model`, and return its output."""
    shutil.copytree(graded_by_model[0] / "model", tmp_path / "model")
    return graded_by_model[1]


def summary(folder: str) -> dict:
    return json.loads(Path(folder, "summary.json").read_text())


def test_regrading_by_rule_sends_nothing_and_matches_a_rule_graded_run(ask, command, exact):
    with FakeApi(scripted_reply) as api:
        assert ask(api, "run", "--grader", "grader", "--out", "model").exit_code in (0, 1)
        sent = len(api.answered)
        result = ask(api, "regrade", "model", "--grader", "exact", "--out", "again")
        assert len(api.answered) == sent
    assert result.exit_code == 0
    columns = ["variant", "question_id", "refused", "wrong", "first_grade", "first_reply"]
    assert outcomes("again").select(columns).equals(outcomes("exact").select(columns))
    kept = outcomes("again").filter(question_id="q4")
    assert kept["forced_grade"].to_list() == ["correct", "correct"], "asked for when q4 was a refusal"
    assert summary("again")["variants"][0]["usage"]["requests"] == 0
    assert command("score", "again").stdout == result.stdout


def test_regrading_requests_only_grades_and_each_once(ask, exact):
    with FakeApi(scripted_reply) as api:
        sent = len(api.answered)
        result = ask(api, "regrade", "exact", "--grader", "grader", "--out", "model")
        new = api.messages()[sent:]
        assert all(map(is_grading, new))
        answered, forced = 8, 4  # of each variant; forced answers are shared between them
        assert len(new) == 3 + 2 * answered + forced
        sent = len(api.answered)
        again = ask(api, "regrade", "exact", "--grader", "grader", "--out", "model")
        assert len(api.answered) == sent
    assert result.exit_code == again.exit_code == 1, "a third is unscored"
    assert result.stdout == again.stdout


def test_answer_regraded_as_refusal_is_unscored_and_reported(ask, model):
    with FakeApi(scripted_reply) as api:
        output = " ".join(model.stdout.split())
        vague = outcomes("model").filter(pl.col("question_id").is_in(["q4", "q10"]))
        assert vague["unscored_reason"].to_list() == ["forced_not_asked"] * 4
        assert vague["first_grade"].to_list() == ["refused"] * 4
        assert vague["wrong"].null_count() == 4
        assert "4 replies were graded as answers before" in output
        assert "force model/outcomes.parquet --model MODEL' with the run's --data or --dataset" in output
        assert "4 of 24" not in output
        assert "by exact, now by grader" in output
        assert "8 of 24" in output
        assert "answered and wrong to answered and right 4" in output
        assert "answered and wrong to unscored 4" in output
        sent = len(api.answered)
        grader = ("--model", "any", "--grader", "exact", "--out", "forced")
        assert ask(api, "force", "model/outcomes.parquet", *grader).exit_code == 0, "as was told"
        assert len(api.answered) - sent == 6, "the questions that were refused by the new grader"
    assert outcomes("forced").filter(question_id="q4")["wrong"].to_list() == [False, False]


def test_grader_is_recorded_in_every_result(model):
    assert summary("exact")["grader"]["name"] == "exact"
    settings = json.loads(Path("model/run.json").read_text())["settings"]
    assert summary("model")["grader"] == settings["grader"]
    assert settings["grader"]["name"] == "grader"
    assert len(settings["grader"]["prompt_sha256"]) == 64
    assert settings["regraded_from"]["grader"]["name"] == "exact"
    assert json.loads(Path("model/run.json").read_text())["about"]["regraded"]["from"] == "exact"
    regrading = summary("model")["regrading"]
    assert regrading["n"] == 2 * COUNT
    assert regrading["first"]["agreement"] == pytest.approx(16 / 24)
    assert {"before": "incorrect", "now": "refused", "count": 4} in regrading["first"]["counts"]


def test_grader_disagreements_are_listed_in_a_spreadsheet_safe_file(ask, command, exact):
    def two(message: str) -> str:
        return scripted_reply(message)

    class Second(FakeApi):
        async def _chat(self, request):
            body = json.loads(await request.read())
            message = body["messages"][-1]["content"]
            if body["model"] == "strict" and is_grading(message) and "nobody can say" in message:
                self._answer = lambda _: "B"
            else:
                self._answer = two
            return await super()._chat(request)

    with Second(two) as api:
        result = ask(api, "regrade", "exact", "--grader", "mild,strict", "--out", "two")
    assert "The graders disagree on 4 replies, listed in disagreements.csv." in result.stdout
    with Path("two/disagreements.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert Counter((row["question_id"], row["variant"], row["pass"]) for row in rows) == {
        (question, variant, "first"): 1 for question in ("q4", "q10") for variant in ("low", "high")
    }
    row = next(row for row in rows if row["question_id"] == "q4")
    assert (row["grader"], row["grade"]) == ("mild", "refused")
    assert (row["second_grader"], row["second_grade"]) == ("strict", "incorrect")
    assert (row["question"], row["gold"]) == ("What is 4 plus 4?", "8")
    assert row["reply"].startswith("<answer>=nobody")
    assert outcomes("two").filter(question_id="q4")["unscored_reason"].to_list() == ["first_graders_disagree"] * 2
    Path("two/disagreements.csv").unlink()
    assert command("score", "two").stdout == result.stdout
    assert Path("two/disagreements.csv").exists()
    assert not Path("exact/disagreements.csv").exists()


@pytest.mark.slow
def test_each_distinct_reply_of_repeated_draws_is_graded_once(ask):
    with FakeApi(scripted_reply, max_choices=100) as api:
        assert ask(api, "run", "--grader", "exact", "--draws", "20", "--out", "exact").exit_code == 0
        sent = len(api.answered)
        assert sent == 2 * COUNT, "one request a question and pass"
        ask(api, "regrade", "exact", "--grader", "grader", "--out", "model")
        assert len(api.answered) - sent == 3 + 8 + COUNT, "the check, first answers, forced answers"
    table = outcomes("model")
    assert table.height == 20 * COUNT
    assert table.filter(question_id="q4")["wrong"].to_list() == [False] * 20, "forced answers are there in every draw"
    assert summary("model")["variants"][0]["draws"]["draws"] == 20


@pytest.mark.slow
def test_unanswered_stays_unanswered_and_failed_grades_are_retried(ask):
    def fault(message: str, _: int) -> web.StreamResponse | None:
        refused = web.json_response({"error": {"message": f"no {KEY}", "type": "t", "code": None}}, status=400)
        return refused if "What is 5 plus" in message else None

    with FakeApi(scripted_reply, fault) as api:
        assert ask(api, "run", "--grader", "exact", "--out", "exact").exit_code == 1
        api._fault = lambda message, _: fault(message.replace("What is 2 ", "What is 5 "), 0)
        grade = ("regrade", "exact", "--grader", "grader", "--out", "model")
        failing = ask(api, *grade)
        assert outcomes("model").filter(question_id="q2")["unscored_reason"].to_list() == ["request_failed"] * 2
        assert "low q2: BadRequestError" in failing.stdout
        assert KEY not in failing.output
        api._fault = None
        fixed = ask(api, *grade)
    assert outcomes("model").filter(question_id="q2")["wrong"].to_list() == [False] * 2
    assert outcomes("model").filter(question_id="q5")["unscored_reason"].to_list() == ["request_failed"] * 2
    assert "low q5: not answered in the run that is regraded: BadRequestError" in fixed.stdout


def test_regrading_names_the_option_that_changed(command, pipeline):
    write_questions(Path(), 6)
    run = ("run", *PIPELINE, "--data", "q.csv", "--grader", "exact", "--variants", "low", "--reasoning", "~.*~")
    assert command(*run, "--out", "exact").exit_code == 0
    output = " ".join(
        command("regrade", "exact", "--grader", "exact", "--refusal", "+red", "--out", "red").stdout.split()
    )
    assert "--refusal was wording, is +red" in output
    assert "--reasoning" not in output
    grader = json.loads(Path("red/run.json").read_text())["settings"]["grader"]
    assert grader["reasoning"] == "~.*~", "that of the run"
    again = command("regrade", "exact", "--grader", "includes", "--reasoning", "=.*=", "--out", "other")
    output = " ".join(again.stdout.split())
    assert "by exact, now by includes; --reasoning was ~.*~, is =.*=" in output
    assert "--refusal" not in output
    assert command("score", "other").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere", "--grader", "exact"], "found nothing there; check the path"),
        (["exact", "--grader", "exct"], "did you mean 'exact'"),
        (["exact", "--grader", "exact", "--reasoning", ""], "--reasoning: '' cannot be used: it is empty"),
        (["exact", "--grader", "regex"], "expected a pattern in every question"),
        (["exact", "--grader", "choice"], "expected choices in every question"),
        (["exact", "--grader", "alamanac/base"], "no provider is called 'alamanac'"),
        (["exact", "--grader", "a/b,a/b"], "two different models"),
        (["exact", "--grader", "exact", "--out", "exact"], "different settings (regraded_from"),
        (["forced", "--grader", "exact"], "holds a forced pass alone"),
    ],
)
def test_bad_regrade_input_is_one_line_before_any_request(ask, exact, monkeypatch, arguments, message):
    monkeypatch.delenv(ADDRESS)
    if arguments[0] == "forced":
        forced = json.loads(Path("exact/run.json").read_text())
        forced["settings"]["first_pass"] = {"model": "fake/any"}
        Path("forced").mkdir()
        Path("forced/run.json").write_text(json.dumps(forced))
    result = ask(None, "regrade", *arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert not Path("runs").exists()


def test_different_replies_are_regraded_into_another_folder(command, pipeline):
    write_questions(Path(), 6)
    run = ("run", *PIPELINE, "--data", "q.csv", "--grader", "exact", "--variants", "low", "--out")
    assert command(*run, "exact").exit_code == command(*run, "other", "--seed", "1").exit_code == 0
    regrade = ("--grader", "exact")
    assert command("regrade", "exact", *regrade).exit_code == 0
    assert command("regrade", "exact", *regrade).exit_code == 0
    assert len(list(Path("runs").iterdir())) == 1
    assert command("regrade", "other", *regrade).exit_code == 0
    assert len(list(Path("runs").iterdir())) == 2
    (name,) = {folder.name.rsplit("-", 1)[0] for folder in Path("runs").iterdir()}
    assert name == "python-tests.cli.some_pipeline-answer-own-q-regraded"


def test_a_regraded_run_is_regraded_like_any_other(ask, model):
    back = ask(None, "regrade", "model", "--grader", "exact", "--out", "back")
    assert back.exit_code == 0
    assert outcomes("back").equals(outcomes("exact"))


def test_regrade_output_is_escaped(model):
    assert all(line == escape(line) for line in model.stdout.splitlines())


GRADED = ("regrade", "exact", "--grader", "python:tests.cli.some_pipeline:grade", "--max-retries", "0")


def test_stopped_regrading_resumes_without_repeating_grades(command, pipeline):
    write_questions(Path(), 30)
    run = ("run", *PIPELINE, "--data", "q.csv", "--variants", "low,high", "--grader", "exact", "--out", "exact")
    assert command(*run).exit_code == 0
    pipeline.__init__()
    whole = command(*GRADED, "--out", "whole")
    assert whole.exit_code == 0, whole.stderr
    grades = Counter(pipeline.prompts)
    assert len(grades) == 1 + 30, "a plainly wrong answer, 20 answers, 10 forced ones; variants say the same"
    pipeline.__init__()
    for enough in (10, 25):
        pipeline.stops_after, pipeline.stopping = enough, KeyboardInterrupt()
        stopped = command(*GRADED, "--out", "model")
        assert stopped.exit_code == 130
        assert "run the same command again" in stopped.stderr
    pipeline.stops_after = None
    resumed = command(*GRADED, "--out", "model").stdout
    assert resumed.replace("model/", "whole/").replace(" model", " whole") == whole.stdout
    assert Counter(pipeline.prompts) == grades
    assert outcomes("model").equals(outcomes("whole"))
    assert outcomes("model").equals(outcomes("exact")), "it grades as the rule does"


def test_missing_repeated_draws_are_skipped_and_first_draw_graded(command, pipeline):
    """A question whose second draw failed is graded by its first; one that failed in its first is unscored."""
    write_questions(Path(), 12)
    run = ("run", *PIPELINE, "--data", "q.csv", "--variants", "low", "--grader", "exact", "--draws", "2")
    pipeline.stops_after = 30
    assert command(*run, "--max-retries", "0", "--max-connections", "1", "--out", "exact").exit_code == 1
    pipeline.__init__()
    result = command("regrade", "exact", "--grader", "exact", "--out", "again")
    assert result.exit_code == 1, result.stderr
    # the forced answer of a draw that stands alone is not needed, and not regraded; why others are missing is the
    # matter of the run that asked for them
    known = ("forced_grade", "forced_reply", "unscored_reason")
    one, other = (outcomes(name).drop(known) for name in ("again", "exact"))
    assert one.equals(other)
    assert "low q11: not answered in the run that is regraded: python:tests.cli" in result.stdout


@pytest.mark.parametrize("sent", [30, 31])
def test_run_that_stopped_during_draws_is_regraded_as_far_as_it_got(command, pipeline, sent):
    """In its second draw a question lacks either pass, or the forced one alone."""
    write_questions(Path(), 12)
    run = ("run", *PIPELINE, "--data", "q.csv", "--variants", "low", "--grader", "exact", "--draws", "2")
    assert command(*run, "--max-requests", str(sent), "--max-connections", "1", "--out", "ended").exit_code == 1
    result = command("regrade", "ended", "--grader", "exact", "--out", "again")
    assert result.exit_code == 1, result.stderr
    assert isinstance(result.exception, SystemExit)
    places = ["question_id", "draw", "refused", "wrong"]
    assert outcomes("again").select(places).equals(outcomes("ended").select(places))


def test_regraded_run_lacking_only_further_draws_is_incomplete(command, pipeline):
    write_questions(Path(), 12)
    run = ("run", *PIPELINE, "--data", "q.csv", "--variants", "low", "--grader", "exact", "--out", "ended")
    assert command(*run, "--draws", "1").exit_code == 0
    ended = (*run, "--draws", "2", "--max-requests", str(len(stored("ended")) + 6), "--max-connections", "1")
    assert command(*ended).exit_code == 1
    for grader in ("exact", "python:tests.cli.some_pipeline:grade"):
        assert command("regrade", "ended", "--grader", grader, "--out", grader[:5]).exit_code == 1
        (before,), (found,) = (summary(name)["variants"] for name in ("ended", grader[:5]))
        assert (found["status"], found["completeness"]["unscored"]) == ("incomplete", 0)
        assert found["further_draws"] == before["further_draws"]


def test_regrading_cost_counts_only_graders(model):
    found = summary("model")
    assert (found["price"], found["grader_price"]) == (None, {"input": 10.0, "output": 0.0})
    for variant in found["variants"]:
        assert variant["usage"]["cost"] == pytest.approx(variant["usage"]["input_tokens"] * 10 / 1e6)
        assert variant["usage"]["cost"] > 0
