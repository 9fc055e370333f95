"""`score`, `show` and `report`, also with clusters and weights."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner, Result

from refusal_index import ContingencyTable, refusal_index
from refusal_index.cli import app, console
from refusal_index.cli.runs import show_run
from refusal_index.data import Outcome, Question
from refusal_index.data.folder import RunFolder
from refusal_index.data.outcome_table import Identification, outcome_table, read_outcomes, write_outcomes
from refusal_index.findings.conclusions import usage as total_usage
from refusal_index.findings.run_results import Missing, RunResults
from refusal_index.findings.summary import Summary, Usage, summarise
from refusal_index.render.sentences import sentence
from refusal_index.render.summary import summary_blocks
from refusal_index.runs.settings import COMPARABILITY_VERSION
from refusal_index.runs.store_check import with_checksum
from refusal_index.stats import SampledTable, metrics
from tests.cli.making import LOW
from tests.render.making import rows

# --- `score`

LINES = ["refused,wrong", *["1,1"] * 71, *["1,0"] * 3, *["0,1"] * 21, *["0,0"] * 5]
TABLE = ContingencyTable(refused_wrong=71, refused_right=3, answered_wrong=21, answered_right=5)


def write(name: str, lines: list[str]) -> str:
    Path(name).write_text("\n".join(lines) + "\n")
    return name


def test_two_columns_suffice_and_json_matches_statistics(command):
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


def test_p_and_confidence_level_are_used_and_reported(command):
    result = command("score", write("o.csv", LINES), "--json", "--weighted-score-p", "0.2", "--confidence-level", "0.8")
    document = json.loads(result.stdout)
    assert (document["weighted_score_p"], document["confidence_level"]) == (0.2, 0.8)
    metrics = document["variants"][0]["metrics"]
    assert metrics["weighted_score"]["estimate"] == pytest.approx(0.05 - 0.2 * 0.26)
    low, high = refusal_index(TABLE).confidence_interval(0.8)
    assert (metrics["refusal_index"]["low"], metrics["refusal_index"]["high"]) == (low, high)
    assert "80% interval" in command("score", "o.csv", "--confidence-level", "0.8").stdout


def test_several_files_are_labelled_by_file_name(command):
    result = command("score", write("first.csv", LINES), write("second.csv", LINES[:1] + LINES[30:]))
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.stdout.splitlines()[1:3]] == ["first", "second"]
    output = command("show", "first.csv", "second.csv").stdout
    assert [line.split()[:2] for line in output.splitlines()[1:3]] == [["first", "100"], ["second", "71"]]


def test_duplicate_rows_across_files_are_named_with_file_and_row(command):
    lines = ["model,question_id,refused,wrong", "m,a,1,1", "m,b,0,0"]
    result = command("score", write("first.csv", lines), write("second.csv", [lines[0], "m,c,1,0", lines[2]]))
    assert result.exit_code == 2
    assert "second.csv, row 2" in result.stderr
    assert "first.csv, row 2" in result.stderr


def test_folder_mixed_with_files_is_rejected(command):
    Path("run").mkdir()
    result = command("score", write("o.csv", LINES), "run")
    assert result.exit_code == 2
    assert "outcomes.parquet" in result.stderr


@pytest.mark.parametrize(("missing", "status"), [(2, 0), (3, 1)])
def test_more_than_two_percent_unscored_gives_exit_status_1_with_reasons(command, missing, status):
    lines = ["refused,wrong,unscored_reason", *(f"{line}," for line in LINES[1:])]
    lines = [*lines[: 101 - missing], *[",,first_truncated"] * (missing - 1), ",,request_failed"]
    result = command("score", write("o.csv", lines))
    assert result.exit_code == status
    assert f"{missing} ({missing}.0%)" in result.stdout
    output = " ".join(command("show", "o.csv").stdout.split())
    assert f"{missing} of 100 questions" in output
    assert f"(first_truncated {missing - 1}, request_failed 1)" in output
    assert f"{missing} ({missing}.0%)" in output


def test_third_unscored_is_reported_as_incomplete_in_the_first_line(command):
    result = command("score", write("o.csv", [*LINES, *[","] * 50]))  # as a frame of two columns is written
    assert result.exit_code == 1
    assert result.stdout.splitlines()[0] == "Incomplete: 100 of 150 questions scored."
    assert "50 (33.3%)" in next(line for line in result.stdout.splitlines() if line.startswith("all "))


def test_a_run_that_ended_in_its_second_variant_is_scored_with_both(command, run_folder):
    before = command("score", "r").stdout
    store = sqlite3.connect("r/replies.sqlite")
    with store:
        asked = store.execute("SELECT question_id, draws FROM asked WHERE variant = 'low'").fetchall()
        store.executemany("INSERT INTO asked VALUES (?, ?, ?, ?)", (with_checksum("high", *one) for one in asked))
    store.close()
    result = command("score", "r")
    lines = result.stdout.splitlines()
    assert result.exit_code == 1
    assert lines[0].startswith(f"Incomplete: high 0 of {len(asked)} ")
    low = next(line.split() for line in before.splitlines() if line.startswith("low "))
    again, high = (next(line.split() for line in lines if line.startswith(name)) for name in ("low ", "high "))
    assert again[:4] == low[:4]
    assert (high[1], high[-1]) == ("-", "(100.0%)")
    assert any(line.startswith(f"{len(asked)} not finished; ") for line in lines)
    document = json.loads(Path("r/summary.json").read_text())
    assert [(variant["variant"], variant["status"]) for variant in document["variants"]] == [
        ("low", "ok"),
        ("high", "incomplete"),
    ]
    assert "Incomplete: high 0 of" in Path("r/report.html").read_text()
    compared = command("compare", "r", "r/outcomes.parquet")
    assert compared.stdout.startswith("Incomplete: ")


DERIVED = ("outcomes.parquet", "summary.json", "report.html")


def test_a_run_is_rebuilt_to_the_same_bytes(command, run_folder):
    first = command(*LOW, "--out", "r", "--price", "1,2", "--weighted-score-p", "0.2")
    assert first.exit_code == 0
    before = [Path("r", name).read_bytes() for name in DERIVED]
    for name in DERIVED:
        Path("r", name).unlink()
    priced = command("score", "r", "--weighted-score-p", "0.2", "--json")
    assert json.loads(priced.stdout)["weighted_score_p"] == 0.2
    again = command(*LOW, "--out", "r", "--price", "1,2", "--weighted-score-p", "0.2")
    assert [Path("r", name).read_bytes() for name in DERIVED] == before
    assert again.stdout == first.stdout


def test_score_reuses_stored_prices_and_p(command):
    first = command(*LOW, "--out", "r", "--price", "1,2", "--weighted-score-p", "0.2")
    before = [Path("r", name).read_bytes() for name in DERIVED]
    for name in DERIVED:
        Path("r", name).unlink()
    again = command("score", "r")
    assert (again.exit_code, again.stdout) == (0, first.stdout)
    assert [Path("r", name).read_bytes() for name in DERIVED] == before


def test_folder_of_another_version_is_kept_unless_regraded(command, run_folder):
    output = command("score", "r").stdout
    run_json = Path("r/run.json")
    document = json.loads(run_json.read_text())
    document["settings"]["comparability_version"] = COMPARABILITY_VERSION + 1
    run_json.write_text(json.dumps(document))
    write_outcomes(read_outcomes(Path("r/outcomes.parquet")).head(15), Path("r/outcomes.parquet"))  # another version's
    before = {path: path.read_bytes() for path in run_folder.iterdir() if path.name in {*DERIVED, "run.json"}}
    kept = command("score", "r")
    assert kept.exit_code == 0
    (note,) = kept.stderr.splitlines()
    assert note.startswith("note: r ")
    assert f"version {COMPARABILITY_VERSION + 1}" in note
    assert f"version {COMPARABILITY_VERSION}:" in note
    assert "--regrade" in note
    assert {path: path.read_bytes() for path in before} == before
    shown = json.loads(command("score", "r", "--json").stdout)
    assert shown["variants"] == json.loads(Path("r/summary.json").read_text())["variants"]
    anew = command("score", "r", "--regrade")
    assert (anew.exit_code, anew.stderr, anew.stdout) == (0, "", output)
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


def test_score_names_the_show_command_with_the_same_options(command):
    options = ["--weighted-score-p", "0.5", "--confidence-level", "0.9"]
    last = command("score", write("two words.csv", LINES), *options).stdout.splitlines()[-1]
    assert last.endswith("refusal-index show 'two words.csv' --weighted-score-p 0.5 --confidence-level 0.9")
    output = command("show", "two words.csv", *options).stdout
    whole = json.loads(command("score", "two words.csv", *options, "--json").stdout)["variants"][0]["metrics"]
    assert "90% interval" in output
    assert f"{whole['weighted_score']['estimate']:.3f}" in output


def test_column_option_maps_other_column_names(command):
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


def test_show_uses_the_stored_p_of_the_run(command, run_folder):
    assert command("score", "r", "--weighted-score-p", "0.25").exit_code == 0
    weighted = [line.split()[9] for line in command("show", "r").stdout.splitlines() if line.startswith("low ")][:1]
    by_topic = command("show", "r", "--cluster", "topic").stdout.splitlines()
    assert [line.split()[9] for line in by_topic if line.startswith("low ")][:1] == weighted
    unused = command("show", "r", "--by", "topic", "--weighted-score-p", "0.5")
    assert (unused.exit_code, "do not depend on --weighted-score-p" in unused.stderr) == (2, True)


def test_show_rejects_mixed_folders_and_missing_paths(command, run_folder):
    for paths, status in ((["r", write("o.csv", LINES)], 2), (["nowhere"], 2)):
        done = command("show", *paths)
        assert (done.exit_code, done.stdout) == (status, "")
        assert done.stderr.startswith("error: ")


# --- Tables on the terminal

CELLS = [(True, True), (True, False), (False, True), (False, False)]
HOSTILE = "[bold]x[/bold] :boom: \x1b[31mred\x9b \u202eltr\u2069 \u200b\r\n\ttab\ud800"


def table(counts: tuple[int, int, int, int], asked: Identification, unscored: int = 0) -> pl.DataFrame:
    """Return an outcome table with these counts of the four cells."""
    outcomes = [Outcome(*cell) for cell, count in zip(CELLS, counts, strict=True) for _ in range(count)]
    outcomes += [Outcome(None, None, unscored_reason="request_failed")] * unscored
    return outcome_table((asked, Question(f"q{i}", "?", "!"), outcome) for i, outcome in enumerate(outcomes))


def summary(**variants: tuple[int, int, int, int]) -> Summary:
    return summarise(pl.concat(table(counts, Identification("m", "d", name)) for name, counts in variants.items()))


def printed(capsys: pytest.CaptureFixture[str], document: Summary) -> list[str]:
    console.show(summary_blocks(document))
    return capsys.readouterr().out.splitlines()


def prompt_rows(lines: list[str], first: str) -> list[list[str]]:
    """Return the cells of a prompt's row in each table."""
    return [line.split("  ") for line in lines if line.startswith(f"{first}  ")]


def test_a_row_shows_the_estimates_to_three_digits(capsys):
    lines = printed(capsys, summary(normal=(710, 30, 210, 50)))
    index, rates = ([cell.strip() for cell in row if cell] for row in prompt_rows(lines, "normal")[:2])
    # correct 50/1000, refused 740/1000, C/A 50/260, F 2*50/(1000+260), weighted 0.050 - 0.260, error 920/1000
    assert index == ["normal", "1,000", "0.482", "[0.360, 0.592]", "not known", "ok", "0", "-"]
    assert rates[1::2] == ["0.050", "0.740", "0.192", "0.079", "-0.210", "0.920"]


def test_undefined_and_boundary_rows_give_status_and_reason(capsys):
    lines = printed(capsys, summary(low=(0, 0, 60, 40), high=(40, 0, 20, 40)))
    (undefined, rates, *_), (boundary, *_) = prompt_rows(lines, "low"), prompt_rows(lines, "high")
    assert "undefined" in [cell.strip() for cell in undefined]
    assert "0.000" in rates, "the rates are known all the same"
    assert not any("[" in cell for cell in undefined)
    cells = [cell.strip() for cell in boundary]
    assert "1.000" in cells
    assert "boundary" in cells
    assert any(cell.endswith("1.000]") for cell in cells)
    output = "\n".join(lines)
    assert "low: RI is undefined: no question was refused" in output
    assert "high: RI is at the boundary (+1)" in output


def test_few_unscored_are_noted_and_many_give_a_warning(capsys):
    few = table((70, 30, 40, 60), Identification("m", "d", "few"), unscored=2)
    many = table((70, 30, 40, 60), Identification("m", "d", "many"), unscored=50)
    summary = summarise(pl.concat([few, many]))
    lines = printed(capsys, summary)
    text = " ".join(lines)
    assert "2 (1.0%)" in text
    assert "50 (20.0%)" in text
    assert "few: 2 of 202 " in text
    assert "(request_failed 2)" in text
    found = {variant.variant: {caveat.code for caveat in variant.caveats} for variant in summary.variants}
    assert found == {"few": set(), "many": {"incomplete"}}


def test_rows_are_labelled_by_variant_or_by_model_dataset_and_variant(capsys):
    one = printed(capsys, summary(low=(7, 3, 4, 6), high=(9, 1, 2, 8)))
    assert one[0] == "m on d: 20 questions, 2 prompts"
    assert any(line.startswith("prompt ") for line in one)
    tables = [table((7, 3, 4, 6), Identification(model, "d", "low")) for model in ("a", "b")]
    several = printed(capsys, summarise(pl.concat(tables)))
    assert several[0].startswith("model, dataset, prompt")
    assert [line.split("  ")[0] for line in several[1:3]] == ["a, d, low", "b, d, low"]
    nameless = printed(capsys, summarise(table((7, 3, 4, 6), Identification(None, None, None))))
    assert any(line.startswith("all  ") for line in nameless)


def test_long_names_do_not_truncate_cells(capsys):
    names = [f"openai-api/{'long-' * 50}{number}" for number in range(2)]
    tables = [table((7, 3, 4, 6), Identification(name, "d", "low")) for name in names]
    lines = printed(capsys, summarise(pl.concat(tables)))
    for name, line in zip(names, lines[1:3], strict=True):
        assert line.startswith(f"{name}, d, low ")
        assert "\u2026" not in line


def test_every_number_fits_a_terminal_of_80_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    found = summary(low=(80, 20, 300, 600), normal=(200, 80, 180, 540))
    lines = printed(capsys, found)
    assert max(map(len, lines)) <= 80
    monkeypatch.setenv("COLUMNS", "200")
    wide = printed(capsys, found)
    assert {*" ".join(wide).split()} == {*" ".join(lines).split()}


@pytest.fixture(params=["piped", "terminal"])
def where(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "terminal":
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("TTY_COMPATIBLE", "1")


@pytest.mark.usefixtures("where")
def test_external_names_and_reasons_are_escaped(capsys):
    asked = [Identification(f"m{number} {HOSTILE}", HOSTILE, HOSTILE) for number in range(2)]
    rows = [(one, Question("q", "?", "!"), Outcome(None, None, unscored_reason=HOSTILE)) for one in asked]
    show_run(made_run(summarise(outcome_table(rows)), [HOSTILE], HOSTILE), as_json=False)
    out = capsys.readouterr().out
    assert "[bold]x[/bold] :boom: \\x1b[31mred\\x9b \\u202eltr\\u2069 \\u200b\\r\\n\\ttab" in out
    assert "\x1b[31m" not in out
    assert not set("\x9b\u202e\u2069\u200b\r\t\ud800") & set(out)


def made_run(document: Summary, errors: Sequence[str], path: str = "r") -> RunResults:
    """Return a run of a summary whose questions ended in some errors."""
    missing = tuple(Missing("low", f"q{number}", error) for number, error in enumerate(errors))
    return RunResults("m", Path(path), "m", "d", pl.LazyFrame(), computed=document, missing=missing)


def test_missing_questions_are_named_with_their_error_and_the_rest_counted(capsys, tmp_path):
    errors = ["Error code: 400 - no" + "o" * 300] * 8
    (tmp_path / "summary.json").touch()
    assert show_run(made_run(summary(low=(7, 3, 4, 6)), errors, str(tmp_path)), as_json=False)
    lines = capsys.readouterr().out.splitlines()
    start = lines.index("8 not finished; run the same command again to complete them:")
    assert lines[start + 1].startswith("  low q0: Error code: 400 - no")
    assert max(map(len, lines[start : start + 6])) < 220
    assert lines[start + 6] == "  and 3 more, in outcomes.parquet"
    assert lines[-1] == f"Report: {tmp_path}/report.html"
    show_run(made_run(summary(low=(7, 3, 4, 6)), []), as_json=False)
    assert "not finished" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (Usage(1000, 20, 3, cost=0.5), Usage(500, 10, 2, cost=0.25), "5 requests, 1,500 tokens in, 30 out, $0.75"),
        (
            Usage(1000, 20, 3, cost=0.5),
            Usage(500, 10, 2),
            "5 requests, 1,500 tokens in, 30 out, total cost unknown",
        ),
        (
            Usage(1000, 20, 3, cost=0.5, unpriced_tokens=1200),
            None,
            "3 requests, 1,000 tokens in, 20 out, $0.50 without the 1,200 tokens of graders (--grader-price)",
        ),
        (Usage(1000, 20, 3), None, "3 requests, 1,000 tokens in, 20 out"),
    ],
)
def test_usage_is_summed_over_variants_with_known_costs(low, high, expected):
    tables = pl.concat(table((7, 3, 4, 6), Identification("m", "d", name)) for name in ("low", "high"))
    usage = {name: used for name, used in (("low", low), ("high", high)) if used is not None}
    assert sentence(total_usage(summarise(tables, usage=usage))) == f"Total: {expected}"
    assert total_usage(summarise(tables)) is None


# --- `--cluster` and `--weight`

FAMILY_CELLS = np.random.default_rng(3).integers(0, 4, (2, 30))[:, :, np.newaxis].repeat(8, axis=2).reshape(2, -1)
FAMILY_CELLS = np.where(np.random.default_rng(4).random(FAMILY_CELLS.shape) < 0.6, FAMILY_CELLS, 3 - FAMILY_CELLS)
FAMILY = np.arange(240) // 8
SHARE = 1 + np.arange(240) % 2


def write_families(name: str, run: int, *, unlike: str = "") -> str:
    lines = ["question_id,refused,wrong,family,share"]
    lines += [
        f"q{i},{int(cell < 2)},{int(cell % 2 == 0)},{unlike}{family},{share}"
        for i, (cell, family, share) in enumerate(zip(FAMILY_CELLS[run], FAMILY, SHARE, strict=True))
    ]
    Path(name).write_text("\n".join(lines) + "\n")
    return name


def test_score_uses_cluster_and_weight_columns_and_reports_them(command):
    name = write_families("o.csv", 0)
    result = command("score", name, "--cluster", "family", "--weight", "share")
    assert result.exit_code == 0
    sampled = "240 questions in 30 clusters (column 'family') with weights (column 'share')"
    assert sampled in " ".join(result.stdout.split())
    (variant,) = json.loads(command("score", name, "--cluster", "family", "--json").stdout)["variants"]
    expected = metrics(SampledTable.from_arrays(FAMILY_CELLS[0] < 2, FAMILY_CELLS[0] % 2 == 0, cluster=FAMILY))[-1]
    index = variant["metrics"]["refusal_index"]
    assert (index["estimate"], index["low"], index["high"]) == (expected.estimate, expected.low, expected.high)
    assert variant["sampling"]["clusters"] == 30


def test_compare_and_report_use_cluster_and_weight_columns(command):
    runs = [write_families("a.csv", 0), write_families("b.csv", 1)]
    result = command("compare", *runs, "--cluster", "family", "--full")
    assert (result.exit_code, "30 clusters (column 'family')" in result.stdout) == (0, True)
    document = json.loads(command("compare", *runs, "--cluster", "family", "--json").stdout)
    assert document["variants"][0]["sampling"] == {
        "cluster": "family", "weight": None, "clusters": 30, "effective_by_weight": None
    }  # fmt: skip
    assert command("report", runs[0], "--cluster", "family").exit_code == 0
    assert "240 questions in 30 clusters" in Path("report.html").read_text()


def test_invalid_cluster_or_weight_column_is_bad_input(command):
    name = write_families("o.csv", 0)
    result = command("score", name, "--cluster", "kind")
    assert (result.exit_code, "expected a column 'kind' for --cluster" in result.stderr) == (2, True)
    result = command("compare", name, write_families("b.csv", 1, unlike="x"), "--cluster", "family", "--full")
    assert (result.exit_code, "question_id 'q0' has the cluster" in result.stderr) == (2, True)


def test_score_with_cluster_leaves_the_folder_unchanged(command):
    assert command("run", "--limit", "40", "--variants", "normal", "--out", "made").exit_code == 0
    before = Path("made/summary.json").read_bytes()
    result = command("score", "made", "--cluster", "topic", "--json")
    assert Path("made/summary.json").read_bytes() == before
    (variant,) = json.loads(result.stdout)["variants"]
    assert variant["sampling"]["clusters"] == read_outcomes("made/outcomes.parquet")["topic"].n_unique()
    assert "few_clusters" in [caveat["code"] for caveat in variant["caveats"]]


def test_table_with_cluster_column_uses_it_by_default(command):
    write_outcomes(read_outcomes(write_families("o.csv", 0)).with_columns(cluster=_text(FAMILY)), "own.parquet")
    document = json.loads(command("score", "own.parquet", "--json").stdout)["variants"][0]["metrics"]["refusal_index"]
    (variant,) = summarise(read_outcomes("own.parquet")).variants
    assert (document["low"], document["high"]) == (
        variant.metric("refusal_index").low,
        variant.metric("refusal_index").high,
    )
    assert variant.sampling.cluster == "cluster"


def _text(values: np.ndarray):
    import polars as pl

    return pl.Series(values).cast(pl.String)


# --- `refusal-index report`


def _run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = RunFolder(tmp_path / "run")
    with made.lock():
        made.create_or_resume({"model": "m"})
        write_outcomes(rows(40), made.outcomes)
    return made.path


def test_folder_report_can_be_written_repeatedly(folder: Path) -> None:
    for _ in range(2):
        result = _run(folder)
        assert result.exit_code == 0
        assert "report.html" in result.output
        assert "all texts in full" in result.output
    assert (folder / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_table_report_is_written_next_to_it_or_to_the_given_path(tmp_path: Path) -> None:
    write_outcomes(rows(40), tmp_path / "outcomes.csv")
    assert _run(tmp_path / "outcomes.csv").exit_code == 0
    assert (tmp_path / "report.html").exists()
    assert _run(tmp_path / "outcomes.csv", "--out", tmp_path / "new" / "page.html").exit_code == 0
    assert (tmp_path / "new" / "page.html").exists()


def test_report_of_several_runs_needs_out_and_names_unreadable_ones(folder: Path, tmp_path: Path) -> None:
    write_outcomes(rows(40, model="other"), tmp_path / "other.parquet")
    refused = _run(folder, tmp_path / "other.parquet")
    assert refused.exit_code == 2
    assert "--out FILE" in refused.output
    (tmp_path / "empty.csv").touch()
    written = _run(folder, tmp_path / "other.parquet", tmp_path / "empty.csv", "--out", tmp_path / "all.html")
    assert written.exit_code == 1
    assert "left out: " in written.output
    assert "empty.csv" in (tmp_path / "all.html").read_text(encoding="utf-8")


def test_report_does_not_overwrite_other_files(folder: Path) -> None:
    before = (folder / "outcomes.parquet").read_bytes()
    for place in (folder / "outcomes.parquet", folder):
        result = _run(folder, "--out", place)
        assert result.exit_code == 2
        assert "--out" in result.output
    assert (folder / "outcomes.parquet").read_bytes() == before


def test_bad_input_is_one_line_and_status_2(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere", tmp_path):
        result = _run(path, "--out", tmp_path / "a.html")
        assert result.exit_code == 2
        assert result.output.startswith("error: ")
        assert result.output.count("\n") == 1


def test_hostile_names_are_harmless_on_the_terminal(tmp_path: Path) -> None:
    place = tmp_path / "\x1b[31mrun"
    place.mkdir()
    write_outcomes(rows(5), place / "outcomes.csv")
    (place / "empty\x1b]0;x.csv").touch()
    result = _run(place / "outcomes.csv", place / "empty\x1b]0;x.csv", "--out", place / "a.html")
    assert result.exit_code == 1
    assert "\x1b" not in result.output
