"""Thresholds of confidence, and every command that takes outcomes on the virtual run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import Result

import refusal_index as ri
from refusal_index.data.outcome_table import SCHEMA, read_outcomes, write_outcomes
from refusal_index.data.written_tables import write_table
from refusal_index.errors import RunFolderError
from tests.cli.conftest import Command
from tests.cli.test_hostile_text import HOSTILE
from tests.findings.test_threshold import planted
from tests.tiers import others_nightly

QUESTIONS = 400


@pytest.fixture(scope="session")
def scored_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run under two variants with scores; tests must not change it."""
    out = tmp_path_factory.mktemp("scored") / "r"
    run = ri.evaluate("almanac/small", "almanac", limit=60, variants="low,high", out=out)
    ids = run.outcomes["question_id"].unique().sort()
    rng = np.random.default_rng(0)
    score = rng.random(len(ids))
    scores = planted(len(ids)).confidence.with_columns(question_id=ids, confidence=pl.Series(score))
    scores = scores.with_columns(wrong=pl.Series(rng.random(len(ids)) > score), method=pl.lit("likelihood"))
    other = scores.with_columns(method=pl.lit("other"), variant=pl.lit("low"))
    write_table(pl.concat([scores, other, other.with_columns(variant=pl.lit("high"))]), run.folder.confidence)
    return out


@pytest.fixture
def scored(scored_run: Path, command: Command) -> Path:
    """Put such a run into the working folder, as ``r``."""
    return Path(shutil.copytree(scored_run, "r"))


def own_table(name: str = "own.parquet", n: int = QUESTIONS, **changes: pl.Expr) -> str:
    """Write an external outcome table with a confidence column."""
    run = planted(n, variants=("only",))
    (table,) = run.tables.values()
    write_outcomes(table.with_columns(confidence=run.confidence["confidence"]).with_columns(**changes), name)
    return name


def folded(done: Result) -> str:
    return " ".join(done.stdout.split())


def test_free_methods_are_default_and_screens_fit_20_lines_of_80_columns(command, run_folder):
    screens = [command("confidence", "r")]
    assert {"likelihood", "p-true", "verbalised-number"} <= set(pl.read_parquet("r/confidence.parquet")["method"])
    screens += [command("confidence", "r", "--method", "likelihood", *limit) for limit in (("--penalty", "1"),)]
    for done in screens:
        assert done.exit_code == 0, done.output
        lines = done.stdout.splitlines()
        assert len(lines) <= 20
        assert max(map(len, lines)) <= 80


def test_virtual_run_from_real_scores_works_in_every_command(command, run_folder):
    assert command("confidence", "r", "--method", "likelihood").exit_code == 0
    done = command("confidence", "r", "--penalty", "1", "--out", "virtual.parquet")
    assert done.exit_code == 0, done.output
    assert "the model's refusals under low" in done.stdout
    assert "virtual.parquet: 10 questions, for compare, report, study and score" in done.stderr
    table = read_outcomes("virtual.parquet")
    assert table.height == 10
    assert command("confidence", "r", "--max-error", "0.1").exit_code == 1
    assert command("compare", "r", "virtual.parquet").exit_code == 0
    assert command("report", "r", "virtual.parquet", "--out", "page.html").exit_code == 0


@pytest.mark.slow
@pytest.mark.parametrize("method", ["likelihood", "other"])
def test_virtual_run_works_in_every_command_with_its_source_run(command, scored, method):
    chosen = ("--method", method, *(("--variants", "low") if method == "other" else ()))
    done = command("confidence", "r", *chosen, "--penalty", "1", "--out", "v.parquet")
    assert done.exit_code == 0, done.output
    table = read_outcomes("v.parquet")
    assert list(table.columns) == list(SCHEMA)
    model = table["model"][0]
    assert model.startswith(f"almanac/small, {method}{' (low)' if method == 'other' else ''} >= ")
    compared = command("compare", "r", "v.parquet", "--json")
    assert compared.exit_code == 0, compared.output
    document = json.loads(compared.stdout)
    assert (document["first"], document["second"]) == ("almanac/small", model)
    names = ["low", "high"] if method == "likelihood" else ["low"]
    assert [variant["variant"] for variant in document["variants"]] == names
    assert all(variant["paired"] and variant["questions"] == 30 for variant in document["variants"])
    assert f"almanac/small vs {model}" in command("compare", "r", "v.parquet", "--variants", "low").stdout
    scored_alone = command("score", "v.parquet", "--json")
    assert scored_alone.exit_code == 0
    assert json.loads(scored_alone.stdout)["variants"][0]["n"] == 30
    assert command("sensitivity", "v.parquet").exit_code == 0
    assert command("report", "r", "v.parquet", "--out", "page.html").exit_code == 0
    assert model.replace(">", "&gt;") in Path("page.html").read_text()
    for name in ("results_table", "accuracy_refusal_plane", "operating_point"):
        made = command("study", name, "r", "v.parquet", "--out", "s")
        assert made.exit_code == 0, made.output
    ranked = command("study", "ranking_with_ties", "r", "v.parquet", "--out", "s")
    at_boundary = method == "likelihood"  # under both prompts, one of the two has an RI at the boundary
    assert ranked.exit_code == (2 if at_boundary else 0), ranked.output
    frame = pl.read_csv("s/results_table.csv")
    assert set(frame["model"]) == {"almanac/small", model}
    assert command("compare", "r", "v.parquet", "v.parquet").exit_code == 0


def test_two_thresholds_and_their_run_are_ranked(command, scored):
    for name, penalty in (("a.parquet", "0.5"), ("b.parquet", "4")):
        command("confidence", "r", "--method", "likelihood", "--penalty", penalty, "--out", name)
    assert read_outcomes("a.parquet")["question_id"].equals(read_outcomes("b.parquet")["question_id"])
    done = command("compare", "r", "a.parquet", "b.parquet", "--full")
    assert done.exit_code == 0, done.output
    assert "letters" in done.stdout


def test_external_table_is_thresholded_by_its_own_column(command):
    done = command("confidence", own_table(), "--max-error", "0.3", "--out", "v.csv")
    assert done.exit_code == 0, done.output
    assert "Answer at confidence (only) >= 0." in folded(done)
    assert command("compare", "own.parquet", "v.csv").exit_code == 0
    document = json.loads(command("confidence", "own.parquet", "--max-error", "0.3", "--json").stdout)
    assert (document["chosen_on"], document["judged_on"], document["status"]) == (200, 200, "ok")
    assert document["rule"] in read_outcomes("v.csv")["model"][0]
    clustered = command("confidence", "own.parquet", "--max-error", "0.3", "--cluster", "question_id")
    assert "400 clusters" in folded(clustered)


def test_no_valid_threshold_gives_exit_status_1_and_writes_nothing(command):
    own_table()
    done = command("confidence", "own.parquet", "--max-error", "0.001", "--out", "v.parquet")
    assert done.exit_code == 1
    assert "No tested threshold of confidence (only) keeps the share of wrong answers within 0.1%" in folded(done)
    assert not Path("v.parquet").exists()
    result = command("confidence", "own.parquet", "--max-error", "0.001", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["status"] == "undefined"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("r", "--penalty", "1", "--dry-run"), "--dry-run: --penalty and --max-error"),
        (("r", "--penalty", "1", "--max-error", ".1"), "expected penalty or max_error, got penalty and max_error"),
        (("r", "--penalty", "1", "--method", "likelihood,othr"), "did you mean 'other'?"),
        (("r", "--penalty", "1", "--method", "likelyhood"), "did you mean 'likelihood'?"),
        (("r", "--penalty", "1", "--method", "other"), "differ between prompts; name one of low, high"),
        (("r", "--penalty", "inf", "--method", "likelihood"), "penalty: expected a number from 0, got inf"),
        (("r", "--penalty", "1", "--method", "likelihood", "--out", "v.txt"), "v.txt: expected a file that ends in"),
        (
            ("r", "--penalty", "1", "--method", "likelihood", "--out", "no/v.csv"),
            "does not exist; create it",
        ),
        (
            ("r", "--penalty", "1", "--method", "likelihood", "--out", "r/outcomes.parquet"),
            "--out: r/outcomes.parquet lies in the folder of a run; choose another place",
        ),
        (("r", "--method", "likelihood", "--save", "v.json"), "expected penalty or max_error, got neither"),
        (
            ("r", "--penalty", "1", "--method", "likelihood", "--save", "bare.csv"),
            "--save: bare.csv already exists; choose another name",
        ),
        (("nowhere", "--penalty", "1"), "nowhere cannot be read: there is no such file or folder"),
        (
            ("bare.csv", "--penalty", "1"),
            "bare.csv: expected the columns 'confidence' (with values)",
        ),
        (("two.csv", "--penalty", "1"), "expected one model on one dataset, got 2 in two.csv: 'a', 'b'"),
        (("same.parquet", "--penalty", "1"), "expected scores that differ, got 0.5 for all 400 answers"),
        (("wrong.parquet", "--penalty", "1"), "got 400 that are all wrong"),
    ],
)
def test_bad_input_is_one_line_with_the_status_2(command, scored, arguments, message):
    Path("bare.csv").write_text("refused,wrong\ntrue,false\nfalse,true\n")
    Path("two.csv").write_text("model,refused,wrong\na,true,false\nb,false,true\n")
    own_table("same.parquet", confidence=pl.lit(0.5))
    own_table("wrong.parquet", wrong=pl.lit(value=True))
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    done = command("confidence", *arguments)
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stderr.count("error: ") == 1
    assert {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()} == before


def test_run_without_scores_names_the_confidence_command(command, run_folder):
    done = command("confidence", "r", "--penalty", "1")
    assert done.exit_code == 2
    assert "r has no scores yet; 'refusal-index confidence r' adds them" in done.stderr
    with pytest.raises(RunFolderError, match="has no scores yet"):
        ri.threshold("r", penalty=1)


def test_saved_rule_holds_the_threshold_of_the_command(command, scored):
    chosen = ("confidence", "r", "--method", "likelihood", "--penalty", "1", "--json")
    done = command(*chosen, "--save", "rule.json")
    rule = ri.load_rule("rule.json", model="almanac/small", method="likelihood")
    assert rule.threshold == json.loads(done.stdout)["cut"]
    assert "rule.json: a rule for load_rule" in done.stderr
    done = command("confidence", "r", "--method", "other", "--variants", "low", "--penalty", "1", "--save", "o.json")
    assert done.exit_code == 2
    assert "got other; name one of likelihood, " in done.stderr
    assert not Path("o.json").exists()


def test_threshold_rejects_an_existing_folder_as_output(command, scored):
    Path("v.csv").mkdir()
    done = command("confidence", "r", "--method", "likelihood", "--penalty", "1", "--out", "v.csv")
    assert done.exit_code == 2
    assert "v.csv already exists" in done.stderr


@others_nightly("kind", ["markup", *(kind for kind in HOSTILE if kind != "markup")])
def test_hostile_method_names_are_escaped_in_threshold_output(command, scored, kind):
    name = HOSTILE[kind][:300].encode("utf-8", "replace").decode()
    scores = pl.read_parquet("r/confidence.parquet").filter(method="likelihood").with_columns(method=pl.lit(name))
    write_table(scores, Path("r/confidence.parquet"))
    for suffix in ("parquet", "csv"):
        done = command("confidence", "r", "--penalty", "1", "--out", f"v.{suffix}")
        assert done.exit_code == 0, done.output
        assert "\x1b" not in done.output
        assert "\u202e" not in done.output
    assert read_outcomes("v.csv").equals(read_outcomes("v.parquet"))
    assert name in read_outcomes("v.csv")["model"][0]
    assert {path.name for path in Path().iterdir()} == {"r", "v.parquet", "v.csv"}
    assert command("confidence", "r", "--penalty", "1", "--json").exit_code == 0
    assert command("confidence", "r", "--penalty", "1", "--method", "x").exit_code == 2
    assert command("compare", "r", "v.csv").exit_code == 0
    assert command("report", "r", "v.csv", "--out", "page.html").exit_code == 0
    assert "<script>owned()" not in Path("page.html").read_text()


def test_several_methods_or_none_are_compared_on_one_half(command, scored):
    result = command("confidence", "r", "--penalty", "1", "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert [(candidate["method"], candidate["variant"]) for candidate in document["candidates"]] == [
        *(("likelihood", None), ("other", "low"), ("other", "high")),
    ]
    named = command("confidence", "r", "--penalty", "1", "--json", "--method", "other, likelihood")
    assert {candidate["method"] for candidate in json.loads(named.stdout)["candidates"]} == {"likelihood", "other"}
    assert json.loads(named.stdout)["cut"] == document["cut"]
    full = command("confidence", "r", "--max-error", "0.4", "--full")
    assert "methods and prompts on 30 questions by AUROC" in folded(full)
    assert (
        json.loads(command("confidence", "r", "--penalty", "1", "--method", "likelihood", "--json").stdout)[
            "candidates"
        ]
        == []
    )


def test_python_threshold_matches_the_command(command, scored):
    found = ri.threshold("r", "likelihood", penalty=1, seed=2)
    result = command("confidence", "r", "--method", "likelihood", "--penalty", "1", "--seed", "2", "--json")
    assert json.loads(result.stdout) == json.loads(json.dumps(found.to_document()))
    assert ri.threshold(ri.open_run("r"), "likelihood", penalty=1, seed=2).to_document() == found.to_document()
    assert "likelihood" in str(found)
    assert "<table" in found._repr_html_()
    assert read_outcomes(found.write("v.parquet")).equals(found.table)
    assert ri.compare("r", "v.parquet").runs[1].model == found.table["model"][0]
    with pytest.raises(ValueError, match="expected penalty or max_error, got neither"):
        ri.threshold("r", "likelihood")
