"""`run` on the embedded model and on functions: folders, own questions, prompts, prices, interruptions."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from refusal_index.cli import app
from refusal_index.cli.runs import RESUMES
from refusal_index.data.rates import contingency_table
from refusal_index.protocol import load_prompt_set, read_reply
from refusal_index.runs.plan import prepare
from refusal_index.runs.settings import Settings
from refusal_index.stats import refusal_index
from tests.cli.making import LOW, PIPELINE, outcomes, stored, write_sums
from tests.models.fake_api import FakeApi, is_grading
from tests.served import ADDRESS
from tests.tiers import one_fast

# --- `run` on the embedded model

COMMAND = [sys.executable, "-c", "from refusal_index.cli import main; main()"]


def identity(**changes: object) -> dict[str, object]:
    """Return the identity of a small run, with its settings changed as given."""
    return dict(prepare(Settings.from_values(**{"limit": 5, **changes})).identity)


def test_the_same_command_finds_its_folder_and_sends_nothing(command):
    first = command(*LOW)
    assert first.exit_code == 0
    (folder,) = Path("runs").iterdir()
    assert folder.name.startswith("almanac-base-almanac-")
    assert str(folder) in first.stdout
    before = stored(folder)
    again = command(*LOW)
    assert again.stdout == first.stdout
    assert list(Path("runs").iterdir()) == [folder]
    assert stored(folder) == before
    assert command(*LOW, "--seed", "1").exit_code == 0
    assert len(list(Path("runs").iterdir())) == 2


@one_fast("folder", ["a[red]", "b*", "checkpoint-?"])
def test_folder_named_like_a_glob_pattern_is_taken_literally(command, folder):
    assert command(*LOW, "--out", folder).exit_code == 0
    assert command("score", folder).exit_code == 0


def test_corrected_ri_at_temperature_0_is_known_for_any_p(command):
    assert command(*LOW, "--temperature", "0", "--out", "zero").exit_code == 0
    for options in ((), ("--weighted-score-p", "2")):
        assert "Corrected RI equals RI" in command("show", "zero", *options).stdout


@pytest.mark.slow
def test_variant_added_later_gives_same_rows_as_a_joint_run(command):
    begun = command(*LOW, "--out", "mixed")
    assert begun.exit_code == 0
    assert begun.stdout.splitlines()[-1] == f"Report: {Path('mixed', 'report.html')}"
    assert command("run", "--limit", "20", "--variants", "low,highest", "--out", "mixed").exit_code == 0
    assert command("run", "--limit", "20", "--variants", "low,highest", "--out", "whole").exit_code == 0
    assert outcomes("mixed").equals(outcomes("whole"))


def test_a_folder_extended_to_all_variants_shares_its_forced_answers(command):
    assert command("run", "--limit", "20", "--variants", "highest", "--out", "r").exit_code == 0
    highest = outcomes("r")
    forced = set(highest.filter("refused")["question_id"])
    assert forced
    assert len(stored("r")) == 20 + len(forced)
    assert command("run", "--limit", "20", "--out", "r").exit_code == 0
    every = outcomes("r")
    assert every["variant"].unique(maintain_order=True).to_list() == ["low", "normal", "high", "highest"]
    assert every.filter(variant="highest").equals(highest)
    assert len(stored("r")) == 4 * 20 + every.filter("refused")["question_id"].n_unique()
    answers = every.filter("refused").group_by("question_id").agg(pl.col("forced_reply").n_unique())
    assert answers["forced_reply"].unique().to_list() == [1]


PROMPTS = """
name = "mine"
preamble = "{examples}\\n\\n{instruction}"
question = "Question: {question}"
example = "{number}. Question: {question}\\nReply: <answer>{answer}</answer>"
[variants.eager]
instruction = "Close your reply with the answer between <answer> and </answer>."
unanswered = []
[variants.coy]
instruction = "If you are unsure, write <answer>UNANSWERED</answer>."
unanswered = [1]
[forced]
instruction = "Always give your best answer between <answer> and </answer>."
unanswered = []
[[examples]]
question = "Who painted Guernica?"
answer = "Picasso"
"""


@pytest.mark.slow
def test_custom_prompts_with_custom_variants_work_end_to_end(command):
    Path("mine.toml").write_text(PROMPTS)
    ran = command("run", "--limit", "10", "--prompts", "mine.toml", "--out", "r")
    assert ran.exit_code in (0, 1), ran.stderr  # the model was made for other prompts, so some replies may be unscored
    assert outcomes("r")["variant"].unique(maintain_order=True).to_list() == ["eager", "coy"]
    recorded = json.loads(Path("r/run.json").read_text())
    assert recorded["settings"]["prompts"]["variants"] == ["eager", "coy"]
    assert "Always give your best" in recorded["about"]["prompt_set"]["forced"]
    scored = command("score", "r")
    assert scored.exit_code == ran.exit_code
    assert scored.stdout == ran.stdout
    wrong = command("run", "--limit", "10", "--prompts", "mine.toml", "--variants", "eagre")
    assert "did you mean 'eager'" in wrong.stderr


def test_own_questions_with_named_columns(command):
    Path("q.csv").write_text("nr,problem,solution,other\na,Who?,I,you\nb,What?,It,that\n")
    columns = ["--column", "question=problem", "--column", "answer=solution", "--column", "question_id=nr"]
    arguments = ["run", "--data", "q.csv", "--grader", "exact", "--variants", "low", "--out", "r"]
    assert command(*arguments, *columns).exit_code in (0, 1)
    asked = outcomes("r")
    assert asked.select("question_id", "question", "gold").rows() == [("a", "Who?", "I"), ("b", "What?", "It")]
    assert asked["dataset"].unique().to_list() == ["own/q"]
    columns[3] = "answer=other"
    other = command(*arguments, *columns)
    assert other.exit_code == 2, "the same file, but other gold answers"
    assert "questions_sha256" in other.stderr


def test_a_price_is_shown_and_recorded(command):
    result = command(*LOW, "--price", "1000,2000", "--out", "r")
    usage = json.loads(Path("r/summary.json").read_text())["variants"][0]["usage"]
    cost = (1000 * usage["input_tokens"] + 2000 * usage["output_tokens"]) / 1e6
    assert usage["cost"] == pytest.approx(cost)
    assert f"${cost:.2f}" in result.stdout
    assert f"${cost:.2f}" in result.stderr, "and in the progress"
    assert json.loads(Path("r/run.json").read_text())["about"]["price"] == {"input": 1000.0, "output": 2000.0}


def test_summary_of_resumed_run_records_current_prices_and_p(command, run_folder):
    assert command(*LOW, "--price", "1,2", "--out", "r").exit_code == 0
    first = json.loads(Path("r/summary.json").read_text())
    assert (first["price"], first["grader_price"]) == ({"input": 1.0, "output": 2.0}, None)
    assert command(*LOW, "--price", "10,20", "--weighted-score-p", "0.2", "--out", "r").exit_code == 0
    again = json.loads(Path("r/summary.json").read_text())
    assert (again["price"], again["weighted_score_p"]) == ({"input": 10.0, "output": 20.0}, 0.2)
    cost, before = (found["variants"][0]["usage"]["cost"] for found in (again, first))
    assert cost == pytest.approx(10 * before)


@one_fast(
    ("prices", "per_request"),
    [
        (("--price", "1000,0", "--grader-price", "10,0"), (1000, 10)),
        (("--price", "1000,0"), (1000, 0)),
        (("--grader-price", "10,0"), None),
        ((), None),
    ],
)
def test_cost_covers_the_model_and_each_priced_grader(command, monkeypatch, prices, per_request):
    Path("q.csv").write_text("question,answer\nWho?,I\nWhat?,It\n")
    monkeypatch.setenv("FAKE_API_KEY", "sk-none-needed")
    arguments = ["run", "--model", "any", "--data", "q.csv", "--variants", "low", "--out", "r"]
    arguments += ["--grader", "one,two", *prices]
    monkeypatch.setenv(ADDRESS, "http://127.0.0.1:9/v1")
    planned = json.loads(command(*arguments, "--dry-run", "--json").stdout)["runs"][0]
    with FakeApi(lambda message: "A" if is_grading(message) else "<answer>I</answer>") as api:
        monkeypatch.setenv(ADDRESS, api.url)
        result = command(*arguments)
    summary = json.loads(Path("r/summary.json").read_text())
    usage = summary["variants"][0]["usage"]
    assert usage["requests"] == 2 + 4, "each of two answers is graded twice"
    if per_request is None:
        assert usage["cost"] is planned["cost"] is None
        return
    cost = 100 * (2 * per_request[0] + 4 * per_request[1]) / 1e6
    assert usage["cost"] == pytest.approx(cost)
    assert f"${cost:.2f}" in result.stdout
    assert f"${cost:.2f}" in result.stderr, "and in the progress"
    graders_part = (usage["input_tokens"] + usage["output_tokens"]) * 4 // 6
    assert usage["unpriced_tokens"] == (0 if per_request[1] else graders_part)
    assert ("without the" in result.stdout) == (per_request[1] == 0)
    grading = planned["grading"]["input_tokens"]["most"] * per_request[1]
    model = sum(planned[part]["input_tokens"]["most"] for part in ("first", "forced")) * per_request[0]
    assert planned["cost"]["most"] == pytest.approx((grading + model) / 1e6)
    about = json.loads(Path("r/run.json").read_text())["about"]
    assert {key: about[key] for key in ("price", "grader_price")} == {
        key: summary[key] for key in ("price", "grader_price")
    }


def test_json_output_is_the_stored_summary_and_matches_stats(command, run_folder):
    result = command(*LOW, "--json", "--out", "r")
    assert result.stdout == Path("r/summary.json").read_text()
    (variant,) = json.loads(result.stdout)["variants"]
    estimate = refusal_index(contingency_table(outcomes("r"))).estimate
    assert variant["metrics"]["refusal_index"]["estimate"] == estimate


@pytest.mark.parametrize(
    "change",
    [
        *({"model": "almanac/rash"}, {"limit": 6}, {"seed": 1}, {"placement": "system"}, {"temperature": 0.0}),
        *({"top_p": 1.0}, {"max_tokens": 10}, {"grader": "almanac/base"}),
        *({"think": "/no_think"}, {"reasoning_effort": "low"}, {"grader": "almanac/base,almanac/rash"}),
    ],
)
def test_settings_that_affect_replies_or_grades_change_the_identity(change):
    assert identity(**change) != identity()


@pytest.mark.parametrize(
    "change",
    [
        {"variants": "low"},
        {"max_connections": 1},
        {"max_retries": 1},
        {"attempt_timeout": 9},
        {"max_choices": 1},
        {"logprobs": True},
        {"engine": "batch"},
        {"price": "1,2"},
        {"grader_price": "1,2"},
        {"weighted_score_p": 0.5},
        {"draws": 3},
    ],
)
def test_settings_that_do_not_affect_replies_keep_the_identity(change):
    assert identity(**change) == identity()


def test_stored_settings_contain_no_local_paths(tmp_path):
    file = tmp_path / "q.csv"
    file.write_text("question,answer\nWho?,I\n")
    text = json.dumps(identity(data=[file], limit=None, grader="exact"))
    assert str(tmp_path) not in text


@pytest.mark.slow
def test_ctrl_c_names_the_resume_command_and_it_resumes(command, tmp_path):
    """End to end: a process that receives SIGINT keeps its replies, and resuming adds the rest."""
    arguments = ["run", "--limit", "12", "--variants", "low,highest", "--max-connections", "2"]
    with subprocess.Popen(
        [*COMMAND, *arguments, "--out", "r"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    ) as process:
        while len(stored("r")) < 4:
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        said, errors = process.communicate(timeout=60)
    assert (process.returncode, said) == (130, "")
    assert errors.splitlines()[-1] == RESUMES
    assert "Traceback" not in errors
    kept = stored("r")
    assert 4 <= len(kept) < 24
    assert command(*arguments, "--out", "r").exit_code == 0
    assert stored("r")[: len(kept)] == kept
    assert command(*arguments, "--out", "whole").exit_code == 0
    assert outcomes("r").equals(outcomes("whole"))


SUMS = ("run", *PIPELINE, "--data", "q.csv", "--variants", "low,high", "--grader", "exact", "--max-retries", "0")


@pytest.mark.parametrize(
    ("stopping", "status", "message"),
    [
        (RuntimeError("out of quota"), 1, "raised RuntimeError: out of quota); fix the function"),
        (KeyboardInterrupt(), 130, RESUMES),
    ],
)
def test_run_stopped_at_any_reply_resumes_to_the_same_result(command, pipeline, stopping, status, message):
    write_sums("q.csv", 40)
    assert command(*SUMS, "--out", "whole").exit_code == 0
    whole = sorted(pipeline.prompts)
    for enough in (7, 60):
        pipeline.__init__()
        pipeline.stops_after, pipeline.stopping = enough - len(stored("r")), stopping
        stopped = command(*SUMS, "--out", "r")
        assert (stopped.exit_code, stopped.stdout) == (status, "")
        assert message in stopped.stderr
        kept = stored("r")
        assert len(kept) == enough
    pipeline.__init__()
    assert command(*SUMS, "--out", "r").exit_code == 0
    assert len(pipeline.prompts) == len(whole) - 60, "nothing was asked twice"
    assert stored("r")[:60] == kept
    assert outcomes("r").equals(outcomes("whole"))


def test_score_reports_an_interrupted_first_variant(command, pipeline):
    write_sums("q.csv", 10)
    pipeline.stops_after, pipeline.stopping = 3, KeyboardInterrupt()
    assert command(*SUMS, "--out", "r").exit_code == 130
    result = command("score", "r")
    assert (result.exit_code, result.stderr) == (1, "")
    first = " ".join(result.stdout.partition("\n\n")[0].split())
    assert first.startswith("Incomplete: ")
    assert first.endswith(" of 10 questions scored; run the same command again to complete it.")
    assert "not_finished" in command("show", "r").stdout
    assert outcomes("r").height == 2 * 10, "of both variants"
    pipeline.__init__()
    assert command(*SUMS, "--out", "r").exit_code == 0


def test_progress_bar_counts_all_variants_and_is_full_when_done(command, pipeline):
    write_sums("q.csv", 10)
    one = ("--variants", "low", "--out", "r")
    assert "10/10" in command(*SUMS, *one).stderr
    again = command(*SUMS, *one).stderr
    assert "10/10" in again
    assert "100%" in again
    assert "20/20" in command(*SUMS, "--out", "r").stderr
    pipeline.__init__()
    pipeline.stops_after, pipeline.stopping = 0, KeyboardInterrupt()
    assert " 0/20" in command(*SUMS, "--seed", "1", "--out", "s").stderr


def test_duplicate_questions_are_noted_before_any_request(command, tmp_path):
    Path("q.csv").write_text("question,answer\nWhat is 2 plus 2?,4\nWhat is 2 plus 2?,4\n")
    done = command("run", *PIPELINE, "--data", "q.csv", "--grader", "exact", "--dry-run")
    assert done.exit_code == 0
    assert "note: own/q: 1 question repeats another; the ids made from the texts end in -2" in done.stderr


@pytest.mark.slow
def test_unreached_stopping_target_is_reported(command):
    done = command("run", "--limit", "30", "--variants", "normal", "--half-width", ".01")
    assert done.exit_code == 0
    assert "Not reached: half-width=0.01; " in done.stdout
    assert " after 30 questions" in done.stdout


@pytest.mark.slow
def test_already_reached_stopping_target_is_reported(command):
    options = ("run", "--limit", "200", "--variants", "normal", "--temperature", "0")
    assert command(*options, "--out", "r").exit_code == 0
    done = command(*options, "--out", "r", "--half-width", ".9")
    assert done.exit_code == 0
    assert re.search(
        r"^Reached: half-width=0\.9; half-width 0\.\d{3} after 200 questions\.$", done.stdout, re.MULTILINE
    )


def test_looks_without_a_stopping_target_are_rejected(command):
    done = command("run", "--limit", "30", "--looks", "3", "--out", "r")
    assert done.exit_code == 2
    assert "error: --looks: requires --half-width, which is missing" in done.stderr
    assert not Path("r").exists()
    Path("set.toml").write_text('[[models]]\nmodel = "almanac/small"\n\n[[datasets]]\ndataset = "almanac"\n')
    done = command("run", "--config", "set.toml", "--looks", "3", "--limit", "30", "--dry-run")
    assert (done.exit_code, "--looks: requires --half-width" in done.stderr) == (2, True)
    Path("set.toml").write_text(Path("set.toml").read_text() + "half_width = 0.3\n")
    assert command("run", "--config", "set.toml", "--looks", "3", "--limit", "30", "--dry-run").exit_code == 0


@pytest.mark.slow
def test_run_ended_before_further_draws_is_incomplete(command, pipeline):
    write_sums("q.csv", 20)
    asked = (*SUMS[:-2], "--max-connections", "1", "--out", "r")
    assert command(*asked, "--draws", "1").exit_code == 0
    ended = command(*asked, "--draws", "2", "--max-requests", str(len(stored("r")) + 5))
    assert ended.exit_code == 1
    first = " ".join(ended.stdout.split())
    assert re.search(r"^Incomplete: .* repeated samples scored; run the same command again", first)
    assert "ended early: " in ended.stdout
    for scored in ("r", "r/outcomes.parquet"):
        assert command("score", scored).exit_code == 1
    assert command(*asked, "--draws", "2").exit_code == 0
    for scored in ("r", "r/outcomes.parquet"):
        assert command("score", scored).exit_code == 0


# --- The default run

VARIANTS = ["low", "normal", "high", "highest"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("main") / "run"
    result = CliRunner().invoke(app, ["run", "--limit", "800", "--out", str(out)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return out


@pytest.mark.slow
def test_every_variant_scores_every_question_and_fills_every_cell(run):
    table = pl.read_parquet(run / "outcomes.parquet")
    for variant in VARIANTS:
        counts = contingency_table(table.filter(pl.col("variant") == variant, draw=0))
        assert counts.n >= 799
        assert min(counts.counts) > 0, (variant, counts)


@pytest.mark.slow
def test_refusal_rates_rise_from_low_to_highest(run):
    table = pl.read_parquet(run / "outcomes.parquet")
    rates = [table.filter(pl.col("variant") == variant)["refused"].mean() for variant in VARIANTS]
    assert rates == sorted(rates)
    assert rates[-1] - rates[0] > 0.3


@pytest.mark.slow
def test_forced_pass_gets_answers_and_replies_are_well_formed(run):
    summary = json.loads((run / "summary.json").read_text())
    assert all(variant["forced_refusals"]["share"] < 0.05 for variant in summary["variants"])
    table = pl.read_parquet(run / "outcomes.parquet")
    replies = [*table["first_reply"], *table["forced_reply"].drop_nulls()]
    assert sum(read_reply(reply).well_formed for reply in replies) > 0.99 * len(replies)


@pytest.mark.slow
def test_summary_matches_statistics_of_the_outcomes(run):
    table = pl.read_parquet(run / "outcomes.parquet").filter(draw=0).drop_nulls(["refused", "wrong"])
    for variant in json.loads((run / "summary.json").read_text())["variants"]:
        rows = table.filter(pl.col("variant") == variant["variant"])
        result = refusal_index(refused=rows["refused"].to_numpy(), wrong=rows["wrong"].to_numpy())
        low, high = result.confidence_interval()
        metric = variant["metrics"]["refusal_index"]
        assert (metric["estimate"], metric["low"], metric["high"]) == (result.estimate, low, high)
        assert metric["status"] == "ok"


@pytest.mark.slow
def test_base_model_has_a_refusal_index_above_chance(run):
    summary = json.loads((run / "summary.json").read_text())
    assert all(variant["metrics"]["refusal_index"]["low"] > 0 for variant in summary["variants"])
    assert all(variant["draws"] is None for variant in summary["variants"]), "every question is asked once"


# --- Questions with context and choices, end to end

RECORDS = [
    {
        "id": f"q{number}",
        "question": f"Which tree stands in garden {number}?",
        "answer": "B",
        "choices": ["an oak", "a yew"],
        "context": f"In garden {number} stands a yew.",
        "answerable": number % 3 != 0,
        "topic": "trees",
    }
    for number in range(9)
]


def reply(message: str) -> str:
    """Answer, but refuse every second garden in the first pass."""
    is_refused = int(re.search(r"garden (\d+)\?", message)[1]) % 2 and "leaving the question open" not in message
    return f"<answer>{'UNANSWERED' if is_refused else 'a yew'}</answer>"


def requests_of(messages: Sequence[str]) -> dict[tuple[str, str], str]:
    """Return each message that was sent, by question and pass."""
    passes = ("forced" if "leaving the question open is not allowed" in message else "first" for message in messages)
    return {("q" + re.search(r"garden (\d+)\?", one)[1], of): one for one, of in zip(messages, passes, strict=True)}


def test_context_and_choices_are_sent_and_unanswerable_answers_are_wrong(command, monkeypatch):
    Path("q.jsonl").write_text("\n".join(map(json.dumps, RECORDS)))
    asked_how = ("--data", "q.jsonl", "--grader", "exact", "--variants", "highest", "--out", "there")
    with FakeApi(reply) as api:
        monkeypatch.setenv(ADDRESS, api.url)
        result = command("run", "--model", "any", *asked_how)
    assert result.exit_code == 0, result.stderr
    outcomes = pl.read_parquet("there/outcomes.parquet")
    assert outcomes["unscored_reason"].null_count() == outcomes.height == len(RECORDS)
    golds = dict(outcomes.select("question_id", "gold").iter_rows())
    assert golds == {one["id"]: "a yew" if one["answerable"] else None for one in RECORDS}
    assert outcomes.filter(pl.col("gold").is_null())["wrong"].all()

    asked = requests_of(api.messages())
    prompts = load_prompt_set("default")
    refused = dict(outcomes.select("question_id", "refused").iter_rows())
    for record in RECORDS:
        whole = (record["question"], record["context"], record["choices"])
        assert asked.pop((record["id"], "first")) == "\n\n".join(prompts.render("highest", *whole))
        if refused[record["id"]] and record["answerable"]:
            assert asked.pop((record["id"], "forced")) == "\n\n".join(prompts.render("forced", *whole))
    assert not asked, "nothing else was asked"


def test_repeated_context_run_sends_nothing_and_score_rebuilds_it(command):
    Path("q.jsonl").write_text("\n".join(map(json.dumps, RECORDS)))
    arguments = ("run", "--data", "q.jsonl", "--grader", "exact", "--variants", "highest", "--out", "there")
    assert command(*arguments).exit_code == 0
    before, replies = Path("there/outcomes.parquet").read_bytes(), stored("there")
    assert command(*arguments).exit_code == 0
    assert stored("there") == replies
    assert command("score", "there").exit_code == 0
    assert Path("there/outcomes.parquet").read_bytes() == before


# --- User functions as model and grader

HERE = "python:tests.cli.some_pipeline"
COUNT = 12


@pytest.fixture
def run_function(command, pipeline, monkeypatch):
    """Return a function that evaluates a function of the pipeline on sums."""
    write_sums("q.csv", COUNT)
    monkeypatch.setenv("COLUMNS", "200")
    options = ("--data", "q.csv", "--variants", "low", "--max-retries", "0", "--out", "r")
    return lambda name, *more, grader="exact": command("run", "--model", name, *options, "--grader", grader, *more)


@one_fast("name", ["answer", "answer_in_time"])
def test_function_is_evaluated_like_any_model(run_function, pipeline, name):
    result = run_function(f"{HERE}:{name}")
    assert (result.exit_code, result.stderr.count("error")) == (0, 0), result.stderr
    table = outcomes("r")
    assert set(table["model"]) == {f"{HERE}:{name}"}
    number = table["question_id"].str.slice(1).cast(int)
    assert table["refused"].to_list() == (number % 3 == 0).to_list()
    assert table["wrong"].to_list() == (number % 2 == 0).to_list()
    assert len(pipeline.prompts) == COUNT + COUNT // 3
    settings = json.loads(Path("r/run.json").read_text())["settings"]
    assert list(settings["functions"]) == [f"{HERE}:{name}"], "an edited function is another model"
    assert run_function(f"{HERE}:{name}").stdout == result.stdout
    assert len(pipeline.prompts) == COUNT + COUNT // 3, "and nothing is asked twice"


def test_raising_function_is_named_and_its_replies_are_kept(run_function, pipeline):
    pipeline.stops_after = 3
    result = run_function(f"{HERE}:answer", "--max-connections", "1")
    assert result.exit_code == 1
    assert len(stored("r")) == 3
    assert f"{HERE}:answer raised RuntimeError: out of quota" in result.stdout
    assert "10 not finished; run the same command again to complete them:" in result.stdout
    assert "Traceback" not in result.output
    pipeline.__init__()
    assert run_function(f"{HERE}:answer").exit_code == 0
    assert len(pipeline.prompts) == COUNT + COUNT // 3 - 3


def test_always_raising_function_ends_the_run_and_is_named(run_function, pipeline):
    write_sums("q.csv", 30)
    pipeline.stops_after = 0
    result = run_function(f"{HERE}:answer")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines()[-1].startswith(
        f"error: own/q-low: {HERE}:answer failed for 20 questions in a row ({HERE}:answer raised RuntimeError: out of "
        "quota); fix the function"
    )


def test_function_returning_non_text_is_named_with_its_value(run_function):
    result = run_function(f"{HERE}:speechless")
    assert result.exit_code == 1
    assert f"{HERE}:speechless returned None, expected the reply as text" in result.stdout
    assert set(outcomes("r")["unscored_reason"]) == {"request_failed"}


def test_function_grades_each_reply_once(run_function, pipeline):
    result = run_function(f"{HERE}:answer", grader=f"{HERE}:grade")
    assert result.exit_code == 0, result.stderr
    exact = run_function(f"{HERE}:answer", "--out", "exact")
    assert exact.exit_code == 0
    assert outcomes("r").equals(outcomes("exact")), "it compares as the rule does"
    graded = [prompt for prompt in pipeline.prompts if prompt.startswith("grade ")]
    assert len(graded) == len(set(graded)) == 1 + COUNT, "a plainly wrong answer, 8 answers and 4 forced ones"
    assert json.loads(Path("r/summary.json").read_text())["grader"]["name"] == f"{HERE}:grade"


@pytest.mark.slow
def test_two_graders_may_be_a_function_and_a_model(run_function, pipeline, monkeypatch):
    """The model grades every answer as correct, so the two disagree, which is reported."""
    with FakeApi(lambda _: "A") as api:
        monkeypatch.setenv(ADDRESS, api.url)
        result = run_function(f"{HERE}:answer", grader=f"{HERE}:grade,grader")
    assert result.exit_code == 1
    assert "first_graders_disagree" in set(outcomes("r")["unscored_reason"])


def test_invalid_grade_is_named_with_the_valid_ones(run_function):
    result = run_function(f"{HERE}:answer", grader=f"{HERE}:undecided")
    assert result.exit_code == 1
    assert f"{HERE}:undecided returned 'perhaps', expected True, False or one of 'correct'" in result.stdout
