"""`confidence --add` and `--out`: scores of anyone's go into a run's folder and come out again."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import polars as pl
import pytest

from refusal_index.data.outcome_table import read_confidence
from tests.cli.making import outcomes
from tests.tiers import others_nightly

HOSTILE = ("=1+1", "[bold]x[/a]", "\x1b[31mred", "@SUM(A1)", "a\x00b", "safe\u202egnp", "one\r\ntwo", "x" * 5000)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.name != ".lock"}


def scores(path: str, ran: Path, method: str = "mine", count: int = 20) -> str:
    """Write a score for each of the first questions of a run: right answers have higher ones."""
    known = outcomes(ran).head(count)
    table = known.select("question_id", pl.lit(method).alias("method"), (~pl.col("wrong") * 0.5 + 0.25).alias("p"))
    Path(path).write_bytes(table.write_ndjson().encode())
    return path


def test_scores_lie_in_the_folder_beside_the_run_which_stays_as_it_is(command, ran):
    before = files(ran)
    done = command("confidence", "r", "--add", scores("s.jsonl", ran), "--column", "confidence=p")
    assert done.exit_code == 0, done.output
    table = read_confidence(ran / "confidence.parquet")
    assert table["wrong"].to_list() == outcomes(ran)["wrong"].to_list()
    assert table["variant"].unique().to_list() == ["low"]
    now, shown = files(ran), {"confidence.parquet", "summary.json", "report.html"}
    assert {name: now[name] for name in before.keys() - shown} == {name: before[name] for name in before.keys() - shown}
    assert [one["method"] for one in json.loads(now["summary.json"])["confidence"]] == ["mine"]
    assert done.stdout.splitlines()[1].split() == ["mine", "20", "0", "20"]
    assert "the answer that counts" in done.stdout


def test_other_methods_stay_and_the_same_is_replaced(command, ran):
    for method, count in (("a", 20), ("b", 20), ("a", 5)):
        path = scores("s.jsonl", ran, method, count)
        done = command("confidence", "r", "--add", path, "--column", "confidence=p")
    assert "Earlier scores of the same methods are replaced: a." in " ".join(done.stdout.split())
    table = read_confidence(ran / "confidence.parquet")
    assert table["method"].to_list() == ["b"] * 20 + ["a"] * 5


def test_a_name_is_given_to_what_has_none(command, ran):
    Path("s.csv").write_text(f"question_id,confidence\n{outcomes(ran)['question_id'][0]},.5\n")
    for options, name in (([], "s"), (["--name", "mine"], "mine")):
        assert command("confidence", "r", "--add", "s.csv", *options).exit_code == 0
        assert read_confidence(ran / "confidence.parquet")["method"].to_list()[-1] == name


@pytest.mark.slow
@others_nightly("out", ["o.csv.gz", "o.csv", "o.jsonl", "o.parquet"])
def test_what_goes_out_comes_in_again(command, ran, out):
    for text in HOSTILE:
        row = {"question_id": outcomes(ran)["question_id"][0], "method": text, "confidence": 0.5}
        Path("s.jsonl").write_text(json.dumps(row))
        assert command("confidence", "r", "--add", "s.jsonl").exit_code == 0
    assert command("confidence", "r", "--out", out).exit_code == 0
    again = command("confidence", "r", "--out", out)
    assert again.exit_code == 2
    assert "already exists" in again.stderr
    table = read_confidence(ran / "confidence.parquet")
    assert table["method"].to_list() == list(HOSTILE)
    (ran / "confidence.parquet").unlink()
    assert command("confidence", "r", "--add", out).exit_code == 0
    assert read_confidence(ran / "confidence.parquet").equals(table)


def test_hostile_text_is_printed_and_not_obeyed(command, ran):
    first = outcomes(ran)["question_id"][0]
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


def test_what_the_run_does_not_have_is_named_and_counted(command, ran):
    ids = [outcomes(ran)["question_id"][0], "strange", "stranger"]
    Path("s.csv").write_text("id,confidence\n" + "".join(f"{one},.5\n" for one in ids))
    said = " ".join(command("confidence", "r", "--add", "s.csv").stdout.split())
    assert "2 scores belong to answers that the run does not have; excluded (first: question_id 'strange'" in said
    assert read_confidence(ran / "confidence.parquet").height == 1


def test_prompts_of_uqlm_meet_the_questions_of_the_run(command, ran):
    texts = outcomes(ran)["question"].to_list()
    frame = pl.DataFrame({"prompt": [f"In a word: {text}" for text in texts], "exact_match": [0.8] * len(texts)})
    frame.write_csv("u.csv")
    done = command("confidence", "r", "--add", "u.csv", "--json")
    assert json.loads(done.stdout)["by_text"] == 20
    assert read_confidence(ran / "confidence.parquet")["method"].unique().to_list() == ["exact_match"]


def test_uncertainties_of_no_range_are_named(command, ran):
    first = outcomes(ran)["question_id"][0]
    Path("p.csv").write_text(f"question_id,PTrue,MeanTokenEntropy\n{first},.1,2\n")
    said = " ".join(command("confidence", "r", "--add", "p.csv").stdout.split())
    assert "Excluded: 'MeanTokenEntropy', uncertainties that no formula turns into a confidence." in said


BAD = {
    "per cent": ("s.csv", "question_id,confidence\nq,85\n", [], ["s.csv, line 2, column 'confidence'", "per cent"]),
    "no such column": ("s.csv", "question_id,score\nq,.5\n", [], ["--column confidence=NAME"]),
    "no role": ("s.csv", "question_id,score\nq,.5\n", ["--column", "score"], ["--column: expected ROLE=NAME"]),
    "strange ids": ("s.csv", "question_id,confidence\n7,.5\n", [], ["none of 1 scores", "--column question_id=NAME"]),
    "another suffix": ("s.txt", "question_id,confidence\nq,.5\n", [], ["expected a file that ends in"]),
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
def test_bad_input_is_one_line_and_changes_nothing(command, ran, kind):
    name, content, options, told = BAD[kind]
    Path(name).write_text(content)
    before = files(ran)
    done = command("confidence", "r", "--add", name, *options)
    assert done.exit_code == 2, done.output
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert all(one in done.stderr for one in told), done.stderr
    assert files(ran) == before


def test_a_pickle_is_refused(command, ran):
    Path("ue_manager_seed1").write_bytes(pickle.dumps({"estimations": {}}))
    done = command("confidence", "r", "--add", "ue_manager_seed1")
    assert done.exit_code == 2
    assert "got a pickle" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["r", "--out", "o.csv"], "r has no scores"),
        (["r", "--column", "a=b"], "--column: expected --add FILE, whose scores it describes"),
        (["r", "--name", "x"], "--name: expected --add FILE, whose scores it describes"),
        (["r", "--add", "absent.csv"], "absent.csv cannot be read"),
        (["absent", "--add", "s.csv"], "absent: expected the folder of a run"),
    ],
)
def test_what_is_not_there_is_named(command, ran, arguments, told):
    Path("s.csv").write_text("question_id,confidence\nq,.5\n")
    done = command("confidence", *arguments)
    assert (done.exit_code, told in done.stderr) == (2, True), done.output
    assert not Path("absent").exists()


def test_a_run_without_outcomes_is_to_be_finished_first(command, ran):
    shutil.copytree(ran, "u")
    Path("u/outcomes.parquet").unlink()
    done = command("confidence", "u", "--add", scores("s.jsonl", ran), "--column", "confidence=p")
    assert (done.exit_code, "holds no outcomes yet" in done.stderr) == (2, True)
