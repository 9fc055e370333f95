"""What the commands print can be computed in Python: the same numbers, by the same code."""

from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

import refusal_index as ri
from refusal_index.cli import app
from refusal_index.errors import OutcomeTableError, RefusalIndexError
from refusal_index.findings.comparison import PairComparison
from refusal_index.findings.conclusions import summary_caveats
from refusal_index.findings.ranking import RunRanking
from refusal_index.findings.tallies import ScoredFiles
from refusal_index.render.sentences import sentence

GRADED = "question,verdict,second\nWho?,right,\nWhen?,wrong,\nWhere?,declined,{}\nWhy?,declined,{}\n"
WORDS = {"right": "correct", "Wrong": "incorrect", "declined": "refused"}
OPTIONS = ["--map", "right=correct", "--map", "Wrong=incorrect", "--map", "declined=refused"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for index, name in enumerate(("one", "two", "three")):
        numbers = range(80)
        columns = {
            "question_id": [f"q{number}" for number in numbers],
            "model": name,
            "variant": "low",
            "refused": [number % 3 == 0 for number in numbers],
            "wrong": [(number * (7 + index)) % 10 < 6 for number in numbers],
        }
        pl.DataFrame(columns).write_parquet(f"{name}.parquet")
    return tmp_path


def printed(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return " ".join(done.stdout.split())


def shown(result: object) -> str:
    return " ".join(str(result).split())


def test_end_to_end_outcome_tables_are_scored_as_by_the_command():
    scored = ri.score("one.parquet")
    assert printed("score", "one.parquet").startswith(shown(scored))
    assert scored.run.summary.index == ri.score(["one.parquet"], confidence_level=0.95).run.summary.index
    assert scored.run.refusal_index().estimate == scored.run.summary.index.estimate
    assert scored.first_passes == ()
    assert "RI " in repr(scored)


def test_end_to_end_graded_answers_are_read_and_scored_as_by_the_command(folder):
    (folder / "first.csv").write_text(GRADED.format("", ""))
    scored = ri.score("first.csv", columns={"grade": "verdict"}, words=WORDS)
    (tally,) = scored.first_passes
    assert (tally.correct, tally.incorrect, tally.refused, tally.to_force) == (1, 1, 2, 2)
    assert scored.run is None
    assert repr(scored) == "<ScoredFiles: 4 answers, no forced pass>"
    assert printed("score", "first.csv", "--column", "grade=verdict", *OPTIONS).startswith(shown(scored)[:60])
    scored.write("written.parquet")
    assert ri.score("written.parquet").outcomes["refused"].to_list() == [False, False, True, True]


def test_end_to_end_both_passes_of_graded_answers_have_an_index(folder):
    (folder / "both.csv").write_text(GRADED.format("wrong", "right"))
    scored = ri.score("both.csv", columns={"grade": "verdict", "forced_grade": "second"}, words=WORDS)
    assert scored.first_passes == ()
    assert scored.run.refusal_index().estimate == ri.refusal_index(ri.ContingencyTable(1, 1, 1, 1)).estimate == 0


BAD_FILES = {
    "none": ([], {}, "files: expected files"),
    "not there": ("nothing.csv", {}, "nothing.csv"),
    "a folder and a file": ([".", "one.parquet"], {}, "the folder of one run"),
    "no path": (3, {}, "files: expected a path, got 3"),
    "a data frame": (pl.DataFrame({"refused": [True]}), {}, "files: expected a path, got shape: "),
    "unknown option": ("one.parquet", {"level": 0.9}, "level: expected one of"),
    "words of an outcome table": ("one.parquet", {"kind": "outcomes", "words": WORDS}, "words: "),
}


@pytest.mark.parametrize(("files", "options", "says"), BAD_FILES.values(), ids=BAD_FILES)
def test_files_that_cannot_be_scored_are_named(files, options, says):
    with pytest.raises(RefusalIndexError, match=says):
        ri.score(files, **options)


def test_end_to_end_a_plan_is_that_of_the_command():
    expected = {"refusal_rate": 0.5, "error_rate": 0.7, "refusal_index": 0.4}
    options = ["--refusal-rate", ".5", "--error-rate", ".7", "--refusal-index", ".4"]
    assert printed("plan", *options).startswith(shown(ri.plan(**expected)))
    assert f"{ri.plan(**expected, half_width=0.1).questions:,} questions" in printed(
        "plan", *options, "--half-width", ".1"
    )
    pair = ri.plan(["one.parquet", "two.parquet"])
    assert printed("plan", "one.parquet", "two.parquet").startswith(shown(pair))
    assert pair.questions == pair.pairs["low"].needed.n
    corrected = ri.plan("one.parquet", corrected=True, half_width=0.2)
    assert corrected.questions == corrected.plans["low"].sizes[0].n


BAD_PLANS = {
    "nothing": ({}, "refusal_rate, error_rate and refusal_index together"),
    "pilot and rates": ({"pilot": "one.parquet", "refusal_rate": 0.5}, "got both"),
    "half width": ({"pilot": "one.parquet", "half_width": 3}, "half_width: expected a number above 0 and below 2"),
    "a rate": (
        {"refusal_rate": 1.5, "error_rate": 0.7, "refusal_index": 0.4},
        r"refusal_rate must lie in \[0, 1\], got 1.5",
    ),
    "slope": ({"pilot": "one.parquet", "error_slope": 2}, "require corrected, which is missing"),
    "three": ({"pilot": ["one.parquet", "two.parquet", "three.parquet"]}, "one or two models, got 3"),
}


@pytest.mark.parametrize(("arguments", "says"), BAD_PLANS.values(), ids=BAD_PLANS)
def test_arguments_of_a_plan_that_do_not_go_together_are_named(arguments, says):
    with pytest.raises(RefusalIndexError, match=says):
        ri.plan(**arguments)


def test_end_to_end_sensitivity_is_that_of_the_command():
    found = ri.sensitivity("one.parquet", grader_error=(0.02, 0.05))
    assert shown(found) == printed("sensitivity", "one.parquet", "--grader-error", "0.02,0.05")
    assert found.variants[0].misgrading.low < found.variants[0].misgrading.high
    with pytest.raises(RefusalIndexError, match=r"grader_error: expected two rates .* got 2 and 5"):
        ri.sensitivity("one.parquet", grader_error=(2, 5))
    for rates in (0.05, (0.05,)):
        with pytest.raises(RefusalIndexError, match="grader_error: expected two rates"):
            ri.sensitivity("one.parquet", grader_error=rates)
    with pytest.raises(RefusalIndexError, match="choices: expected at least 2, got 1"):
        ri.sensitivity("one.parquet", choices=1)


def test_end_to_end_two_runs_are_compared_and_more_are_ranked_as_by_the_command():
    two = ri.compare("one.parquet", "two.parquet")
    three = ri.compare(["one.parquet", "two.parquet", "three.parquet"])
    assert isinstance(two, PairComparison)
    assert isinstance(three, RunRanking)
    assert printed("compare", "one.parquet", "two.parquet").startswith(shown(two))
    assert printed("compare", "one.parquet", "two.parquet", "three.parquet").startswith(shown(three))
    assert "difference in RI " in repr(two)
    ranked = ri.compare("one.parquet", "two.parquet", metric="correct_rate")
    assert ranked.to_document() == ri.rank(["one.parquet", "two.parquet"], metric="correct_rate").to_document()
    with pytest.raises(RefusalIndexError, match="two runs or more"):
        ri.compare("one.parquet")


def test_runs_without_a_rank_have_no_letters_and_a_caveat_of_one_of_two_models_names_no_prompt():
    for name in ("one", "two"):
        pl.read_parquet(f"{name}.parquet").with_columns(wrong="refused").write_parquet(f"{name}.parquet")
    codes = [statement.code for statement in ri.rank(["one.parquet", "two.parquet"]).statements]
    assert "nothing_to_rank" in codes
    assert "letters" not in codes
    pl.read_parquet(["one.parquet", "two.parquet"]).write_parquet("both.parquet")
    caveat = summary_caveats(ri.score("both.parquet").run.summary)[0]
    assert sentence(caveat).startswith(f"{caveat.values['first']}: ")
    assert not caveat.values["is_prompt"]
    two_prompts = pl.concat([pl.read_parquet("one.parquet").with_columns(variant=pl.lit(name)) for name in "ab"])
    two_prompts.write_parquet("prompts.parquet")
    assert summary_caveats(ri.score("prompts.parquet").run.summary)[0].values["is_prompt"]


def test_what_score_returns_stands_for_its_run():
    one, two = ri.score("one.parquet"), ri.score("two.parquet")
    assert ri.compare(one, two).to_document() == ri.compare(one.run, two.run).to_document()
    assert ri.gate(one, two).to_document() == ri.gate(one.run, two.run).to_document()
    assert ri.plan(one).questions == ri.plan(one.run).questions
    first_pass = ScoredFiles(None, one.outcomes)
    with pytest.raises(
        OutcomeTableError, match=r"runs: expected answers with a forced pass, .* write\('FILE.parquet'\)"
    ):
        ri.compare(first_pass, first_pass)
    with pytest.raises(RefusalIndexError, match=r"^variant: expected a run with prompts"):
        ri.plan(variant="high", refusal_rate=0.5, error_rate=0.5, refusal_index=0.4)


def test_a_run_of_another_tools_file_is_exported_as_it_was_read():
    rows = ["question,reply,grade,forced_reply,forced_grade", "Q1,Paris,correct,,", "Q2,no idea,refused,Oslo,incorrect"]
    Path("both.csv").write_text("\n".join(rows))
    assert ri.export(ri.score("both.csv"), "csv", "both_metrics.csv")
    assert "refusal_rate" in Path("both_metrics.csv").read_text()


def test_limits_of_a_gate_are_arguments_or_a_policy():
    by_policy = ri.gate("one.parquet", policy={"at_least": {"correct_rate": 0.9}, "alpha": 0.1})
    by_limits = ri.gate("one.parquet", policy={"alpha": 0.1}, at_least={"correct_rate": 0.9})
    assert by_limits.to_document() == by_policy.to_document()
    assert by_limits.verdict == "fail"
    with pytest.raises(RefusalIndexError, match="got 'at_leats'; did you mean 'at_least'"):
        ri.gate("one.parquet", at_leats={})


def test_a_result_prints_with_its_interval_and_a_run_that_is_gone_by_its_path(folder):
    table = ri.ContingencyTable(40, 10, 20, 30)
    low, high = ri.refusal_index(table).confidence_interval()
    assert f"[{low:.3f}, {high:.3f}]" in repr(ri.refusal_index(table))
    assert "nobody_refused" in repr(ri.refusal_index(ri.ContingencyTable(0, 0, 6, 4)))
    run = ri.evaluate("almanac/small", limit=20, variants="high", out="run")
    estimate = run.summary.index
    assert f"[{estimate.low:.2f}, {estimate.high:.2f}]" in repr(run)
    gone = replace(run, table=None, computed=None, source=folder / "gone")
    assert repr(gone) == f"RunResults({str(folder / 'gone')!r})"


def test_a_notebook_shows_the_first_screen_with_definitions_folded():
    html = ri.score("one.parquet")._repr_html_()
    assert html.count("<details><summary>Definitions</summary>") == 1
    assert "<details" in ri.compare("one.parquet", "two.parquet")._repr_html_()
    assert "<details" not in str(ri.score("one.parquet"))


def test_commands_and_functions_have_the_same_options():
    from refusal_index.cli.uncertainty import plan

    of_command = set(inspect.signature(plan).parameters) - {"full", "variants", "confidence_level"}
    assert of_command | {"variant", "options"} == set(inspect.signature(ri.plan).parameters)
