"""`score`: the table from outcomes alone, and a run's derived files made again."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from refusal_index import ContingencyTable, refusal_index
from refusal_index.data.outcome_table import read_outcomes, write_outcomes
from refusal_index.runs.settings import COMPARABILITY_VERSION
from refusal_index.runs.store_check import with_checksum
from tests.cli.making import LOW

LINES = ["refused,wrong", *["1,1"] * 71, *["1,0"] * 3, *["0,1"] * 21, *["0,0"] * 5]
TABLE = ContingencyTable(refused_wrong=71, refused_right=3, answered_wrong=21, answered_right=5)


def write(name: str, lines: list[str]) -> str:
    Path(name).write_text("\n".join(lines) + "\n")
    return name


def test_two_columns_are_enough_and_json_holds_what_the_statistics_say(command):
    result = command("score", write("o.csv", LINES), "--json")
    assert result.exit_code == 0
    (variant,) = json.loads(result.stdout)["variants"]
    expected = refusal_index(TABLE)
    assert variant["table"] == {
        "refused_wrong": 71, "refused_right": 3, "answered_wrong": 21, "answered_right": 5
    }  # fmt: skip
    assert variant["metrics"]["refusal_index"]["estimate"] == expected.estimate
    low, high = expected.confidence_interval()
    assert (
        variant["metrics"]["refusal_index"]["low"],
        variant["metrics"]["refusal_index"]["high"],
    ) == (low, high)


def test_penalty_and_confidence_level_are_taken_and_told(command):
    result = command("score", write("o.csv", LINES), "--json", "--penalty", "0.2", "--confidence-level", "0.8")
    document = json.loads(result.stdout)
    assert (document["penalty"], document["confidence_level"]) == (0.2, 0.8)
    metrics = document["variants"][0]["metrics"]
    assert metrics["weighted_score"]["estimate"] == pytest.approx(0.05 - 0.2 * 0.26)
    low, high = refusal_index(TABLE).confidence_interval(0.8)
    assert (metrics["refusal_index"]["low"], metrics["refusal_index"]["high"]) == (low, high)
    assert "80% interval" in command("score", "o.csv", "--confidence-level", "0.8").stdout


def test_several_files_are_told_apart_by_their_names(command):
    result = command("score", write("first.csv", LINES), write("second.csv", LINES[:1] + LINES[30:]))
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.stdout.splitlines()[1:3]] == ["first", "second"]
    shown = command("show", "first.csv", "second.csv").stdout
    assert [line.split()[:2] for line in shown.splitlines()[1:3]] == [["first", "100"], ["second", "71"]]


def test_the_same_rows_in_two_files_are_named_with_file_and_row(command):
    lines = ["model,question_id,refused,wrong", "m,a,1,1", "m,b,0,0"]
    result = command("score", write("first.csv", lines), write("second.csv", [lines[0], "m,c,1,0", lines[2]]))
    assert result.exit_code == 2
    assert "second.csv, row 2" in result.stderr
    assert "first.csv, row 2" in result.stderr


def test_a_folder_among_files_is_refused(command):
    Path("run").mkdir()
    result = command("score", write("o.csv", LINES), "run")
    assert result.exit_code == 2
    assert "outcomes.parquet" in result.stderr


@pytest.mark.parametrize(("missing", "status"), [(2, 0), (3, 1)])
def test_beyond_two_percent_unscored_the_exit_status_is_1_with_share_and_reasons(command, missing, status):
    lines = ["refused,wrong,unscored_reason", *(f"{line}," for line in LINES[1:])]
    lines = [*lines[: 101 - missing], *[",,first_truncated"] * (missing - 1), ",,request_failed"]
    result = command("score", write("o.csv", lines))
    assert result.exit_code == status
    assert f"{missing} ({missing}.0%)" in result.stdout
    shown = " ".join(command("show", "o.csv").stdout.split())
    assert f"{missing} of 100 questions" in shown
    assert f"(first_truncated {missing - 1}, request_failed 1)" in shown
    assert f"{missing} ({missing}.0%)" in shown


def test_with_a_third_unscored_the_status_is_incomplete_and_the_first_line_says_so(command):
    result = command("score", write("o.csv", [*LINES, *[","] * 50]))  # as a frame of two columns is written
    assert result.exit_code == 1
    assert result.stdout.splitlines()[0] == "Incomplete: 100 of 150 questions scored."
    assert "50 (33.3%)" in next(line for line in result.stdout.splitlines() if line.startswith("all "))


def test_a_run_that_ended_in_its_second_variant_is_scored_with_both(command, ran):
    before = command("score", "r").stdout
    store = sqlite3.connect("r/replies.sqlite")
    with store:
        asked = store.execute("SELECT question_id, draws FROM asked WHERE variant = 'low'").fetchall()
        store.executemany("INSERT INTO asked VALUES (?, ?, ?, ?)", (with_checksum("high", *one) for one in asked))
    store.close()
    result = command("score", "r")
    lines = result.stdout.splitlines()
    assert result.exit_code == 1
    assert " ".join(lines[:2]).replace("  ", " ").strip() == (
        f"Incomplete: high 0 of {len(asked)} questions scored; run the same command again to complete it."
    )
    low = next(line.split() for line in before.splitlines() if line.startswith("low "))
    again, high = (next(line.split() for line in lines if line.startswith(name)) for name in ("low ", "high "))
    assert again[:4] == low[:4]
    assert (high[1], high[-1]) == ("-", "(100.0%)")
    assert f"{len(asked)} not finished; run the same command again to complete them:" in lines
    document = json.loads(Path("r/summary.json").read_text())
    assert [(one["variant"], one["status"]) for one in document["variants"]] == [("low", "ok"), ("high", "incomplete")]
    assert "Incomplete: high 0 of" in Path("r/report.html").read_text()
    compared = command("compare", "r", "r/outcomes.parquet")
    assert compared.stdout.startswith("Incomplete: ")


DERIVED = ("outcomes.parquet", "summary.json", "report.html")


def test_a_run_is_rebuilt_to_the_same_bytes(command, ran):
    first = command(*LOW, "--out", "r", "--price", "1,2", "--penalty", "0.2")
    assert first.exit_code == 0
    before = [Path("r", name).read_bytes() for name in DERIVED]
    for name in DERIVED:
        Path("r", name).unlink()
    priced = command("score", "r", "--penalty", "0.2", "--json")
    assert json.loads(priced.stdout)["penalty"] == 0.2
    again = command(*LOW, "--out", "r", "--price", "1,2", "--penalty", "0.2")
    assert [Path("r", name).read_bytes() for name in DERIVED] == before
    assert again.stdout == first.stdout


def test_prices_and_penalty_are_those_that_the_folder_was_made_with(command):
    first = command(*LOW, "--out", "r", "--price", "1,2", "--penalty", "0.2")
    before = [Path("r", name).read_bytes() for name in DERIVED]
    for name in DERIVED:
        Path("r", name).unlink()
    again = command("score", "r")
    assert (again.exit_code, again.stdout) == (0, first.stdout)
    assert [Path("r", name).read_bytes() for name in DERIVED] == before


def test_a_folder_that_other_rules_made_is_kept_as_it_is_unless_it_is_graded_anew(command, ran):
    said = command("score", "r").stdout
    run_json = Path("r/run.json")
    document = json.loads(run_json.read_text())
    document["settings"]["comparability_version"] = COMPARABILITY_VERSION + 1
    run_json.write_text(json.dumps(document))
    write_outcomes(read_outcomes(Path("r/outcomes.parquet")).head(15), Path("r/outcomes.parquet"))  # as others had it
    before = {path: path.read_bytes() for path in ran.iterdir() if path.name in {*DERIVED, "run.json"}}
    kept = command("score", "r")
    assert kept.exit_code == 0
    assert kept.stderr == (
        f"note: r was made under comparability version {COMPARABILITY_VERSION + 1}, and this release grades by version "
        f"{COMPARABILITY_VERSION}: its results are kept as they are; add --regrade to grade its replies again\n"
    )
    assert {path: path.read_bytes() for path in before} == before
    shown = json.loads(command("score", "r", "--json").stdout)
    assert shown["variants"] == json.loads(Path("r/summary.json").read_text())["variants"]
    anew = command("score", "r", "--regrade")
    assert (anew.exit_code, anew.stderr, anew.stdout) == (0, "", said)
    assert read_outcomes(Path("r/outcomes.parquet")).height == 20
    assert json.loads(run_json.read_text())["settings"]["comparability_version"] == COMPARABILITY_VERSION
    assert command(*LOW, "--out", "r").exit_code == 0, "and it is a folder of this release"


@pytest.mark.slow
def test_files_are_scored_without_the_engine(tmp_path):
    outcomes = tmp_path / "o.csv"
    outcomes.write_text("\n".join(LINES))
    program = (
        "import sys\nfrom refusal_index.cli import app\n"
        f"app(['score', {str(outcomes)!r}], standalone_mode=False)\n"
        "print([name for name in ('inspect_ai', 'openai', 'aiohttp', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_command_that_shows_everything_is_named_with_the_same_options(command):
    options = ["--penalty", "0.5", "--confidence-level", "0.9"]
    last = command("score", write("two words.csv", LINES), *options).stdout.splitlines()[-1]
    assert last.endswith("refusal-index show 'two words.csv' --penalty 0.5 --confidence-level 0.9")
    shown = command("show", "two words.csv", *options).stdout
    whole = json.loads(command("score", "two words.csv", *options, "--json").stdout)["variants"][0]["metrics"]
    assert "90% interval" in shown
    assert f"{whole['weighted_score']['estimate']:.3f}" in shown


def test_columns_of_other_names_are_named(command):
    write("own.csv", ["declined,is_error,wrong", *(line + ",x" for line in LINES[1:])])
    columns = ["--column", "refused=declined", "--column", "wrong=is_error"]
    assert (
        command("score", "own.csv", "--json", *columns).stdout
        == command("score", write("o.csv", LINES), "--json").stdout
    )
    last = command("score", "own.csv", *columns).stdout.splitlines()[-1]
    assert last.endswith("show own.csv --column refused=declined --column wrong=is_error")
    assert command("show", "own.csv", *columns).exit_code == 0
    wrong = command("score", "own.csv", "--column", "refused=declind")
    assert (wrong.exit_code, "did you mean 'declined'" in wrong.stderr) == (2, True)
    role = command("score", "own.csv", "--column", "refusd=declined")
    assert (role.exit_code, "did you mean 'refused'" in role.stderr) == (2, True)


def test_show_of_a_run_with_options_takes_the_penalty_of_the_run(command, ran):
    assert command("score", "r", "--penalty", "0.25").exit_code == 0
    weighted = [line.split()[9] for line in command("show", "r").stdout.splitlines() if line.startswith("low ")][:1]
    by_topic = command("show", "r", "--cluster", "topic").stdout.splitlines()
    assert [line.split()[9] for line in by_topic if line.startswith("low ")][:1] == weighted


def test_show_refuses_a_folder_among_files_and_a_path_that_is_not_there(command, ran):
    for paths, status in ((["r", write("o.csv", LINES)], 2), (["nowhere"], 2)):
        done = command("show", *paths)
        assert (done.exit_code, done.stdout) == (status, "")
        assert done.stderr.startswith("error: ")
