"""What a table on the terminal says, and that nobody else's text can make the terminal say more."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest

from refusal_index.cli import console
from refusal_index.cli.runs import show_run
from refusal_index.data import Outcome, Question
from refusal_index.data.folder import RunFolder
from refusal_index.data.outcome_table import Identification, outcome_table
from refusal_index.findings.conclusions import usage as total_usage
from refusal_index.findings.summary import Summary, Usage, summarise
from refusal_index.render.sentences import sentence
from refusal_index.render.summary import summary_blocks
from refusal_index.runs.results import Missing
from refusal_index.runs.writing import Run

CELLS = [(True, True), (True, False), (False, True), (False, False)]
HOSTILE = "[bold]x[/bold] :boom: \x1b[31mred\x9b \u202eltr\u2069 \u200b\r\n\ttab\ud800"


def table(counts: tuple[int, int, int, int], asked: Identification, unscored: int = 0) -> pl.DataFrame:
    """Return an outcome table of so many refused and wrong, refused and right, answered and wrong, and right."""
    outcomes = [Outcome(*cell) for cell, count in zip(CELLS, counts, strict=True) for _ in range(count)]
    outcomes += [Outcome(None, None, unscored_reason="request_failed")] * unscored
    return outcome_table((asked, Question(f"q{i}", "?", "!"), outcome) for i, outcome in enumerate(outcomes))


def summary(**variants: tuple[int, int, int, int]) -> Summary:
    return summarise(pl.concat(table(counts, Identification("m", "d", name)) for name, counts in variants.items()))


def printed(capsys: pytest.CaptureFixture[str], shown: Summary) -> list[str]:
    console.show(summary_blocks(shown))
    return capsys.readouterr().out.splitlines()


def rows(lines: list[str], first: str) -> list[list[str]]:
    """Return the cells of a prompt's row in each table."""
    return [line.split("  ") for line in lines if line.startswith(f"{first}  ")]


def test_a_row_shows_the_estimates_to_three_digits(capsys):
    lines = printed(capsys, summary(normal=(710, 30, 210, 50)))
    index, rates = ([cell.strip() for cell in row if cell] for row in rows(lines, "normal")[:2])
    # correct 50/1000, refused 740/1000, C/A 50/260, F 2*50/(1000+260), weighted 0.050 - 0.260, error 920/1000
    assert index == ["normal", "1,000", "0.482", "[0.360, 0.592]", "not known", "ok", "0", "-"]
    assert rates[1::2] == ["0.050", "0.740", "0.192", "0.079", "-0.210", "0.920"]


def test_undefined_and_boundary_rows_say_so_and_why(capsys):
    lines = printed(capsys, summary(low=(0, 0, 60, 40), high=(40, 0, 20, 40)))
    (undefined, rates, *_), (boundary, *_) = rows(lines, "low"), rows(lines, "high")
    assert "undefined" in [cell.strip() for cell in undefined]
    assert "0.000" in rates, "the rates are known all the same"
    assert not any("[" in cell for cell in undefined)
    cells = [cell.strip() for cell in boundary]
    assert "1.000" in cells
    assert "boundary" in cells
    assert any(cell.endswith("1.000]") for cell in cells)
    said = "\n".join(lines)
    assert "low: RI is undefined: no question was refused" in said
    assert "high: RI is at the boundary (+1)" in said


def test_few_unscored_are_said_and_many_are_a_warning(capsys):
    few = table((70, 30, 40, 60), Identification("m", "d", "few"), unscored=2)
    many = table((70, 30, 40, 60), Identification("m", "d", "many"), unscored=50)
    lines = printed(capsys, summarise(pl.concat([few, many])))
    said = " ".join(lines)
    assert "2 (1.0%)" in said
    assert "few: 2 of 202 questions could not be scored (request_failed 2)." in said
    assert "50 (20.0%)" in said
    assert "many: 50 of 250 questions (20.0%) could not be scored (request_failed 50)" in said


def test_one_source_is_titled_by_variant_and_several_by_all_three(capsys):
    one = printed(capsys, summary(low=(7, 3, 4, 6), high=(9, 1, 2, 8)))
    assert one[0] == "m on d: 20 questions, 2 prompts"
    assert any(line.startswith("prompt ") for line in one)
    tables = [table((7, 3, 4, 6), Identification(model, "d", "low")) for model in ("a", "b")]
    several = printed(capsys, summarise(pl.concat(tables)))
    assert several[0].startswith("model, dataset, prompt")
    assert [line.split("  ")[0] for line in several[1:3]] == ["a, d, low", "b, d, low"]
    nameless = printed(capsys, summarise(table((7, 3, 4, 6), Identification(None, None, None))))
    assert any(line.startswith("all  ") for line in nameless)


def test_a_long_name_cuts_no_cell(capsys):
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
def test_names_and_reasons_of_others_are_shown_and_not_obeyed(capsys):
    asked = [Identification(f"m{number} {HOSTILE}", HOSTILE, HOSTILE) for number in range(2)]
    rows = [(one, Question("q", "?", "!"), Outcome(None, None, unscored_reason=HOSTILE)) for one in asked]
    show_run(made_run(summarise(outcome_table(rows)), [HOSTILE], HOSTILE), as_json=False)
    out = capsys.readouterr().out
    assert "[bold]x[/bold] :boom: \\x1b[31mred\\x9b \\u202eltr\\u2069 \\u200b\\r\\n\\ttab" in out
    assert "\x1b[31m" not in out
    assert not set("\x9b\u202e\u2069\u200b\r\t\ud800") & set(out)


def made_run(shown: Summary, errors: Sequence[str], path: str = "r") -> Run:
    """Return a run of a summary whose questions ended in some errors."""
    missing = tuple(Missing("low", f"q{number}", error) for number, error in enumerate(errors))
    return Run(RunFolder(Path(path)), pl.LazyFrame(), shown, missing)


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
    ("low", "high", "told"),
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
def test_usage_is_summed_over_variants_with_the_cost_where_it_is_known(low, high, told):
    tables = pl.concat(table((7, 3, 4, 6), Identification("m", "d", name)) for name in ("low", "high"))
    usage = {name: used for name, used in (("low", low), ("high", high)) if used is not None}
    assert sentence(total_usage(summarise(tables, usage=usage))) == f"Total: {told}"
    assert total_usage(summarise(tables)) is None
