"""`confidence`: scores imported, exported, shown by other commands, and asked for over HTTP."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

import refusal_index as ri
from refusal_index.cli import app
from refusal_index.data.outcome_table import read_confidence
from refusal_index.data.written_tables import write_table
from refusal_index.runs.settings import COMPARABILITY_VERSION
from tests.cli.making import outcomes
from tests.served import ADDRESS
from tests.tiers import others_nightly

# --- `confidence --add` and `--out`

HOSTILE = ("=1+1", "[bold]x[/a]", "\x1b[31mred", "@SUM(A1)", "a\x00b", "safe\u202egnp", "one\r\ntwo", "x" * 5000)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.name != ".lock"}


def scores(path: str, ran: Path, method: str = "mine", count: int = 20) -> str:
    """Write a score for each of the first questions of a run, higher for right answers."""
    known = outcomes(ran).head(count)
    table = known.select("question_id", pl.lit(method).alias("method"), (~pl.col("wrong") * 0.5 + 0.25).alias("p"))
    Path(path).write_bytes(table.write_ndjson().encode())
    return path


def test_added_scores_are_stored_without_changing_the_run(command, run_folder):
    before = files(run_folder)
    done = command("confidence", "r", "--add", scores("s.jsonl", run_folder), "--column", "confidence=p")
    assert done.exit_code == 0, done.output
    table = read_confidence(run_folder / "confidence.parquet")
    assert table["wrong"].to_list() == outcomes(run_folder)["wrong"].to_list()
    assert table["variant"].unique().to_list() == ["low"]
    now, shown = files(run_folder), {"confidence.parquet", "summary.json", "report.html"}
    assert {name: now[name] for name in before.keys() - shown} == {name: before[name] for name in before.keys() - shown}
    assert [one["method"] for one in json.loads(now["summary.json"])["confidence"]] == ["mine"]
    assert done.stdout.splitlines()[1].split() == ["mine", "20", "0", "20"]
    assert "the answer that counts" in done.stdout


def test_added_method_replaces_only_its_own_scores(command, run_folder):
    for method, count in (("a", 20), ("b", 20), ("a", 5)):
        path = scores("s.jsonl", run_folder, method, count)
        done = command("confidence", "r", "--add", path, "--column", "confidence=p")
    assert "Earlier scores of the same methods are replaced: a." in " ".join(done.stdout.split())
    table = read_confidence(run_folder / "confidence.parquet")
    assert table["method"].to_list() == ["b"] * 20 + ["a"] * 5


def test_unnamed_method_gets_file_name_or_given_name(command, run_folder):
    Path("s.csv").write_text(f"question_id,confidence\n{outcomes(run_folder)['question_id'][0]},.5\n")
    for options, name in (([], "s"), (["--name", "mine"], "mine")):
        assert command("confidence", "r", "--add", "s.csv", *options).exit_code == 0
        assert read_confidence(run_folder / "confidence.parquet")["method"].to_list()[-1] == name


@pytest.mark.slow
@others_nightly("out", ["o.csv.gz", "o.csv", "o.jsonl", "o.parquet"])
def test_exported_scores_can_be_imported_again(command, run_folder, out):
    for text in HOSTILE:
        row = {"question_id": outcomes(run_folder)["question_id"][0], "method": text, "confidence": 0.5}
        Path("s.jsonl").write_text(json.dumps(row))
        assert command("confidence", "r", "--add", "s.jsonl").exit_code == 0
    assert command("confidence", "r", "--out", out).exit_code == 0
    again = command("confidence", "r", "--out", out)
    assert again.exit_code == 2
    assert "already exists" in again.stderr
    table = read_confidence(run_folder / "confidence.parquet")
    assert table["method"].to_list() == list(HOSTILE)
    (run_folder / "confidence.parquet").unlink()
    assert command("confidence", "r", "--add", out).exit_code == 0
    assert read_confidence(run_folder / "confidence.parquet").equals(table)


def test_hostile_text_is_escaped_when_printed(command, run_folder):
    first = outcomes(run_folder)["question_id"][0]
    rows = [{"question_id": text, "method": text, "confidence": 0.5} for text in HOSTILE]
    rows += [{"question_id": first, "method": text, "confidence": 0.5} for text in HOSTILE]
    Path("s.jsonl").write_text("\n".join(map(json.dumps, rows)))
    done = command("confidence", "r", "--add", "s.jsonl")
    assert done.exit_code == 0, done.output
    assert "[bold]x[/a]" in done.stdout
    assert all(one == "\n" or one.isprintable() for one in done.stdout)
    document = command("confidence", "r", "--add", "s.jsonl", "--json")
    assert [one["method"] for one in json.loads(document.stdout)["coverage"]] == list(HOSTILE)
    assert json.loads(document.stdout)["unknown"] == len(HOSTILE)


def test_scores_for_unknown_answers_are_named_and_counted(command, run_folder):
    ids = [outcomes(run_folder)["question_id"][0], "strange", "stranger"]
    Path("s.csv").write_text("id,confidence\n" + "".join(f"{one},.5\n" for one in ids))
    output = " ".join(command("confidence", "r", "--add", "s.csv").stdout.split())
    assert "2 scores belong to answers that the run does not have; excluded (first: question_id 'strange'" in output
    assert read_confidence(run_folder / "confidence.parquet").height == 1


def test_uqlm_prompts_are_matched_to_questions(command, run_folder):
    texts = outcomes(run_folder)["question"].to_list()
    frame = pl.DataFrame({"prompt": [f"In a word: {text}" for text in texts], "exact_match": [0.8] * len(texts)})
    frame.write_csv("u.csv")
    done = command("confidence", "r", "--add", "u.csv", "--json")
    assert json.loads(done.stdout)["by_text"] == 20
    assert read_confidence(run_folder / "confidence.parquet")["method"].unique().to_list() == ["exact_match"]


def test_unbounded_uncertainties_are_named(command, run_folder):
    first = outcomes(run_folder)["question_id"][0]
    Path("p.csv").write_text(f"question_id,PTrue,MeanTokenEntropy\n{first},.1,2\n")
    output = " ".join(command("confidence", "r", "--add", "p.csv").stdout.split())
    assert "Excluded: 'MeanTokenEntropy', uncertainties that no formula turns into a confidence." in output


BAD = {
    "per cent": ("s.csv", "question_id,confidence\nq,85\n", [], ["s.csv, line 2, column 'confidence'", "per cent"]),
    "no such column": ("s.csv", "question_id,score\nq,.5\n", [], ["--column confidence=NAME"]),
    "no role": ("s.csv", "question_id,score\nq,.5\n", ["--column", "score"], ["--column: expected ROLE=NAME"]),
    "strange ids": ("s.csv", "question_id,confidence\n7,.5\n", [], ["none of 1 scores", "--column question_id=NAME"]),
    "another suffix": ("s.doc", "question_id,confidence\nq,.5\n", [], ["expected a file that ends in"]),
    "no name": ("s.csv", "question_id,confidence\nq,.5\n", ["--name", " "], ["--name: expected a name"]),
    "a method too": (
        "s.csv",
        "question_id,confidence\nq,.5\n",
        ["--method", "all"],
        ["so --method, --list and --dry-run do not apply"],
    ),
    "onto itself": ("s.csv", "question_id,confidence\nq,.5\n", ["--out", "s.csv"], ["--out: s.csv is the file to add"]),
    "out": ("s.csv", "question_id,confidence\nq,.5\n", ["--out", "o.xlsx"], ["o.xlsx: expected a file that ends in"]),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_input_is_one_line_and_changes_nothing(command, run_folder, kind):
    name, content, options, told = BAD[kind]
    Path(name).write_text(content)
    before = files(run_folder)
    done = command("confidence", "r", "--add", name, *options)
    assert done.exit_code == 2, done.output
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert all(one in done.stderr for one in told), done.stderr
    assert files(run_folder) == before


def test_pickle_is_rejected(command, run_folder):
    Path("ue_manager_seed1").write_bytes(pickle.dumps({"estimations": {}}))
    done = command("confidence", "r", "--add", "ue_manager_seed1")
    assert done.exit_code == 2
    assert "got a pickle" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["r", "--out", "o.csv"], "r has no scores"),
        (["r", "--column", "a=b"], "--column: expected --add FILE, whose scores it describes"),
        (["r", "--name", "x"], "--name: expected --add FILE, whose scores it describes"),
        (["r", "--add", "absent.csv"], "absent.csv cannot be read"),
        (["absent", "--add", "s.csv"], "absent: expected the folder of a run"),
    ],
)
def test_missing_input_is_named(command, run_folder, arguments, message):
    Path("s.csv").write_text("question_id,confidence\nq,.5\n")
    done = command("confidence", *arguments)
    assert (done.exit_code, message in done.stderr) == (2, True), done.output
    assert not Path("absent").exists()


def test_run_without_outcomes_must_be_finished_first(command, run_folder):
    shutil.copytree(run_folder, "u")
    Path("u/outcomes.parquet").unlink()
    done = command("confidence", "u", "--add", scores("s.jsonl", run_folder), "--column", "confidence=p")
    assert (done.exit_code, "holds no outcomes yet" in done.stderr) == (2, True)


# --- Confidence in score, report and compare

RUN = ("run", "--limit", "60", "--variants", "normal", "--draws", "2", "--logprobs")
METHODS = "likelihood,p-answering"


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run of the embedded model with scores, which nobody changes."""
    out = tmp_path_factory.mktemp("scored") / "r"
    for words in ([*RUN, "--out", str(out)], ["confidence", str(out), "--method", METHODS]):
        assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    return out


@pytest.fixture
def run(scored: Path, command) -> Path:
    return Path(shutil.copytree(scored, "r"))


def page(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@pytest.mark.slow
def test_confidence_adds_scores_to_summary_and_report(run):
    (p_answering, likelihood) = json.loads((run / "summary.json").read_text())["confidence"]
    assert (likelihood["method"], likelihood["variant"], likelihood["asked"]) == ("likelihood", None, 60)
    assert (p_answering["method"], p_answering["variant"]) == ("p-answering", "normal")
    assert likelihood["auroc"]["estimate"] > 0.7
    assert 'id="run-1-confidence"' in page(run / "report.html")


@pytest.mark.slow
def test_score_prints_measures_and_rerunning_confidence_changes_nothing(command, run):
    assert command("score", "r").exit_code == 0
    output = command("show", "r").stdout
    before = {name: (run / name).read_bytes() for name in ("summary.json", "report.html", "confidence.parquet")}
    assert command("confidence", "r", "--method", METHODS).exit_code == 0
    assert {name: (run / name).read_bytes() for name in before} == before
    lines = [line.split()[:2] for line in output.splitlines()]
    assert ["likelihood", "60"] in lines
    folded = " ".join(output.split())
    assert "refusals under normal (RI " in folded
    document = json.loads(command("score", "r", "--json").stdout)
    assert document["confidence"] == json.loads(before["summary.json"])["confidence"]


@pytest.mark.slow
def test_score_with_clusters_shows_scores_and_says_they_ignore_clusters(command, run):
    done = command("show", "r", "--cluster", "topic")
    assert done.exit_code == 0
    assert "Scores ignore clusters and weights" in " ".join(done.stdout.split())


def test_report_has_confidence_section_for_a_folder_but_not_for_its_table(command, run):
    (run / "report.html").unlink()
    assert command("report", "r").exit_code == 0
    assert 'id="run-1-confidence"' in page(run / "report.html")
    assert command("report", "r/outcomes.parquet", "--out", "table.html").exit_code == 0
    assert 'id="run-1-confidence"' not in page(Path("table.html"))


def test_score_column_of_a_table_is_shown_as_a_method(command, run):
    scores = read_confidence(run / "confidence.parquet").filter(method="likelihood").select("question_id", "confidence")
    outcomes = pl.read_parquet(run / "outcomes.parquet")
    outcomes.join(scores, on="question_id", how="left").write_parquet("own.parquet")
    output = " ".join(command("show", "own.parquet").stdout.split())
    assert "confidence (normal) 60" in output
    assert command("report", "own.parquet", "--out", "own.html").exit_code == 0
    assert 'id="run-1-confidence"' in page(Path("own.html"))


def test_compare_shows_methods_of_two_runs_side_by_side(command, run):
    shutil.copytree("r", "worse")
    table = read_confidence(run / "confidence.parquet")
    turned = pl.when(method="likelihood").then(1 - pl.col("confidence")).otherwise("confidence").alias("confidence")
    write_table(table.with_columns(turned), Path("worse/confidence.parquet"))
    done = command("compare", "r", "worse", "--full")
    assert done.exit_code == 0
    lines = [line.split() for line in done.stdout.splitlines()]
    (area,) = (line for line in lines if line[:2] == ["likelihood", "AUROC"])
    assert float(area[3]) + float(area[4]) == pytest.approx(1, abs=0.002)
    assert "paired, over the questions that both scored" in " ".join(done.stdout.split())
    document = json.loads(command("compare", "r", "worse", "--json").stdout)
    assert [one["measure"] for one in document["confidence"]] == ["auroc", "brier"] * 2
    assert {one["method"]: one["difference"]["low"] for one in document["confidence"][::2]} == {
        "likelihood": pytest.approx(0.5, abs=0.5),
        "p-answering": None,
    }
    (Path("worse") / "confidence.parquet").unlink()
    assert "Brier" not in command("compare", "r", "worse").stdout


def test_run_without_scores_does_not_mention_confidence(command, run_folder):
    output = command("score", "r").stdout
    assert "confidence" not in output
    assert json.loads(Path("r/summary.json").read_text())["confidence"] == []


@pytest.mark.slow
def test_hostile_method_names_are_escaped_everywhere(command, run):
    table = read_confidence(run / "confidence.parquet")
    commands = (["score", "r"], ["score", "r", "--json"], ["report", "r"], ["compare", "r", "r/outcomes.parquet"])
    for name in ("<script>owned()</script>", "=cmd|' /C calc'!A0", "[/a][bold]\x1b[2J\u202e"):
        write_table(table.with_columns(method=pl.lit(name) + pl.col("method")), run / "confidence.parquet")
        for words in commands:
            done = command(*words)
            assert done.exit_code == 0, done.output
            assert all(one.isprintable() for one in done.output.replace("\n", ""))
        assert "<script>owned" not in page(run / "report.html")


def test_damaged_score_table_is_named_with_advice(command, run):
    (run / "confidence.parquet").write_bytes(b"PAR1 no more")
    for words in (["score", "r"], ["report", "r"]):
        done = command(*words)
        assert done.exit_code == 2
        assert "r/confidence.parquet cannot be read" in done.stderr
        assert "remove it, and run the methods again" in done.stderr


def test_folder_of_another_comparability_version_is_not_scored(command, run):
    document = json.loads((run / "run.json").read_text())
    document["settings"]["comparability_version"] = COMPARABILITY_VERSION + 1
    (run / "run.json").write_text(json.dumps(document))
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    done = command("confidence", "r", "--method", "likelihood")
    assert done.exit_code == 2
    assert "'refusal-index score r --regrade' grades its replies again" in done.stderr
    assert {name: (run / name).read_bytes() for name in before} == before


def test_opened_run_has_scores_and_its_report_includes_later_ones(run):
    opened = ri.open_run(run)
    assert opened.confidence.height == 120
    assert [one.method for one in opened.summary.sections["confidence"]] == ["p-answering", "likelihood"]
    (run / "confidence.parquet").rename("aside.parquet")
    bare = ri.open_run(run)
    assert bare.confidence is None
    assert bare.summary.sections["confidence"] == ()
    Path("aside.parquet").rename(run / "confidence.parquet")
    assert 'id="run-1-confidence"' in page(bare.report("later.html"))


# --- Confidence over HTTP, end to end

MODEL = ("--model", "base")
DRAWN = ("--limit", "12", "--variants", "low", "--draws", "3", "--logprobs")


@pytest.mark.nightly
def test_three_methods_share_one_set_of_draws(server, command, monkeypatch):
    monkeypatch.setenv(ADDRESS, server.url)
    assert command("run", *MODEL, *DRAWN, "--out", "r").exit_code == 0
    drawn = sum(int(entry["n"]) for entry in server.answered())
    assert drawn == 12 * 3 * 2, "each draw goes through both passes"
    before = len(server.answered())
    scored = command("confidence", "r", "--method", "p-answering,self-consistency,likelihood")
    assert scored.exit_code == 0, scored.output
    assert len(server.answered()) == before, "and all three methods rest on those"
    table = pl.read_parquet("r/confidence.parquet")
    counts = dict(table.drop_nulls("confidence").group_by("method").len().iter_rows())
    assert counts == {"p-answering": 12, "self-consistency": 12, "likelihood": 12}


@pytest.mark.slow
def test_methods_that_cost_requests_are_opt_in_and_large_ones_need_yes(server, command, monkeypatch):
    monkeypatch.setenv(ADDRESS, server.url)
    assert command("run", *MODEL, "--limit", "4", "--variants", "low", "--out", "r").exit_code == 0
    before = len(server.answered())
    no_method = command("confidence", "r")
    assert no_method.exit_code == 2
    assert "likelihood (4)" in no_method.stderr
    several = ("confidence", "r", "--method", "likelihood,p-true,verbalised-number")
    assert "name it with --base-url" in command(*several).stderr, "the address is asked for before --yes"
    several = (*several, "--base-url", server.url)
    too_many = command(*several)
    assert too_many.exit_code == 2
    assert f"more than the {before} of the run itself; add --yes" in " ".join(too_many.stderr.split())
    assert len(server.answered()) == before, "neither sent a request"
    assert command(*several, "--yes").exit_code == 0
    assert len(server.answered()) >= before + 12
    assert command("confidence", "r").exit_code == 0, "what is stored costs nothing"


@pytest.mark.slow
def test_log_probabilities_over_http_match_the_local_engine(server, command, monkeypatch):
    monkeypatch.setenv(ADDRESS, server.url)
    found = []
    for model, out in ((MODEL, "over-http"), (("--model", "almanac/base"), "within")):
        assert command("run", *model, "--limit", "12", "--variants", "low", "--out", out).exit_code == 0
        before = len(server.answered())
        address = ("--base-url", server.url) if model == MODEL else ()
        assert command("confidence", out, "--method", "likelihood", *address).exit_code == 0
        assert len(server.answered()) - before == (12 if out == "over-http" else 0), "the run took none along"
        found.append(pl.read_parquet(f"{out}/confidence.parquet")["confidence"])
    assert (found[0] - found[1]).abs().max() < 1e-4


@pytest.mark.slow
def test_cost_is_reported_before_and_after_with_a_price(command):
    assert command("run", "--model", "almanac/base", "--limit", "6", "--variants", "low", "--out", "r").exit_code == 0
    priced = ("confidence", "r", "--method", "likelihood", "--price", "1000,2000")
    dry = command(*priced, "--dry-run").stdout
    tokens = int(dry.split("total")[1].split()[1].replace(",", ""))
    assert f"about ${(1000 * tokens + 2000 * 50 * 6) / 1e6:,.2f}, at 50 tokens per reply" in dry
    output = command(*priced).stdout.split("Sent: 6 requests, ")[1]
    read, written = (int(output.split()[place].replace(",", "")) for place in (0, 3))
    assert read == tokens
    assert output.split()[5] == f"${(1000 * read + 2000 * written) / 1e6:,.2f}"
