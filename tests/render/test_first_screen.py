"""The first screen fits into 80 columns and 20 lines, holds the numbers by definition, and hides nothing serious."""

import polars as pl
import pytest

from refusal_index.cli import console
from refusal_index.data.outcome_table import Identification
from refusal_index.findings.summary import summarise
from refusal_index.render.summary import first_screen, scale
from refusal_index.stats import Estimate
from tests.cli.test_show import summary, table

FOUR = {
    "low": (80, 20, 300, 600),
    "normal": (200, 80, 180, 540),
    "high": (260, 150, 120, 470),
    "a variant with quite a long name": (320, 300, 60, 320),
}


@pytest.mark.parametrize("columns", ["60", "80", "300"])
def test_four_prompts_take_at_most_20_lines_of_80_columns_at_any_width(capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    console.show(first_screen(summary(**FOUR)))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 20 - 3  # a run adds what it used, how to see more, and its files
    assert max(map(len, lines)) <= 80


def refused_again(found: pl.DataFrame) -> pl.DataFrame:
    """Give each forced answer its grade; a tenth of the wrong ones refused again."""
    refused = pl.col("refused") & pl.col("wrong") & (pl.int_range(pl.len()) % 10 == 0)
    forced = (
        pl.when(refused).then(pl.lit("refused")).when("wrong").then(pl.lit("incorrect")).otherwise(pl.lit("correct"))
    )
    return found.with_columns(forced_grade=pl.when("refused").then(forced))


def test_a_caution_fits_as_well(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    tables = [table(counts, Identification("m", "d", name[:16])) for name, counts in FOUR.items()]
    console.show(first_screen(summarise(refused_again(pl.concat(tables)))))
    lines = capsys.readouterr().out.splitlines()
    assert "Caveat, prompt low: " in "\n".join(lines)
    assert len(lines) <= 20 - 3
    assert max(map(len, lines)) <= 80


def test_a_row_holds_the_rates_by_definition(capsys):
    console.show(first_screen(summary(normal=(710, 30, 210, 50))))
    title, _, index, sentence, *rest = capsys.readouterr().out.splitlines()
    assert title == "m on d: 1,000 questions"
    assert index.startswith("RI 0.48 [0.36, 0.59]   0 chance |")
    assert sentence
    row = next(line.split() for line in rest if line.startswith("normal"))
    # refused 740/1000, wrong 710/740 of the refused and 210/260 of the answered, refused 30/80 of the right
    assert " ".join(row) == "normal 0.48 [0.36, 0.59] 74% 96% 81% 38%"


def test_an_undefined_index_says_why_and_undefined_rates_are_dashes(capsys):
    console.show(first_screen(summary(normal=(0, 0, 60, 40))))
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith("RI undefined (no refusals")
    assert next(line.split() for line in lines if line.startswith("normal")) == [
        *("normal", "-", "-", "0%", "-", "60%", "0%")
    ]


def test_missing_answers_stand_beside_the_numbers(capsys):
    found = summarise(table((30, 20, 20, 29), Identification("m", "d", "normal"), unscored=1))
    console.show(first_screen(found))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "m on d: 100 questions"
    assert next(line for line in lines if line.startswith("normal")).endswith("1 (1.0%)")


def test_several_models_have_a_row_each_and_no_index_in_common(capsys):
    rows = [table((30, 20, 20, 30), Identification(model, "d", "normal")) for model in ("one", "two")]
    console.show(first_screen(summarise(pl.concat(rows))))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines[1:3]] == ["one, d, normal", "two, d, normal"]
    assert not any(line.startswith("RI ") for line in lines)


@pytest.mark.parametrize(
    "ends", [(0.0, 0.0, 0.0), (1.0, 1.0, 1.0), (-1.0, -1.0, 1.0), (-0.2, 0.1, 0.4), (0.9, 1.0, 1.0)]
)
def test_property_the_scale_has_one_width_and_shows_the_estimate_once(ends):
    low, estimate, high = ends
    drawn = scale(Estimate(estimate, low, high)).split("|")[1]
    assert len(drawn) == 29
    assert drawn.count("O") == 1
    start = -1 if low < 0 else 0
    assert drawn.index("O") == pytest.approx((estimate - start) / (1 - start) * 28, abs=0.5)
