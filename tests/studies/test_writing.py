"""Files of a study: the same bytes each time, and harmless whatever a model is called."""

from __future__ import annotations

import csv
import io
import re
from xml.etree import ElementTree

import polars as pl
import pytest
from tests.studies.made import HOSTILE, made_run

from refusal_index.plugins.studies.results import results_table
from refusal_index.plugins.studies.study import (
    Study,
    StudyOptions,
    WritingError,
    index_text,
    markdown,
    study_csv,
    tex_text,
    write_study,
)
from refusal_index.plugins.studies.style import MAX_ROWS, escaped, latex_table

OPTIONS = StudyOptions()


@pytest.fixture(scope="module")
def hostile():
    return results_table.make([made_run(HOSTILE, n=60), made_run("=1+1", n=60, seed=1)], OPTIONS)


@pytest.fixture(scope="module")
def written(hostile, tmp_path_factory):
    return {path.name: path.read_bytes() for path in write_study(hostile, tmp_path_factory.mktemp("written"))}


@pytest.mark.slow
def test_the_same_study_gives_the_same_bytes(tmp_path, hostile, written):
    again = {path.name: path.read_bytes() for path in write_study(hostile, tmp_path)}
    assert sorted(written) == [f"results_table.{kind}" for kind in ("csv", "pdf", "png", "svg", "tex")]
    assert written == again


@pytest.mark.slow
def test_pictures_carry_no_dates_and_no_markup_of_others(written):
    text = written["results_table.svg"].decode()
    ElementTree.fromstring(text)  # noqa: S314 - our own
    assert "<script" not in text
    assert "\x1b" not in text
    assert not re.search(r"20\d\d-\d\d-\d\d", text)
    assert b"CreationDate" not in written["results_table.pdf"]


def test_csv_cells_cannot_be_formulas(hostile):
    rows = list(csv.DictReader(io.StringIO(study_csv(hostile))))
    assert {row["model"] for row in rows} >= {"'=1+1"}
    assert not any(cell.startswith(("=", "+", "@")) for row in rows for cell in row.values())
    # Numbers keep their signs, and are unrounded.
    weighted = next(row for row in rows if row["metric"] == "weighted_score")
    assert float(weighted["estimate"]) == hostile.frame.filter(pl.col("metric") == "weighted_score")["estimate"][0]


def test_latex_prints_text_of_others_as_text(hostile):
    text = tex_text(hostile)
    assert "\\input" not in text
    assert "\\textbackslash{}input" in text
    assert "\x1b" not in text
    # Every special character outside our own commands is escaped.
    line = next(line for line in text.splitlines() if "script" in line and "&" in line)
    assert not re.search(r"(?<!\\)[#%_]", line)
    assert text.count("{") == text.count("}")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("a_b & 5%", r"a\_b \& 5\%"),
        ("$x^2$ ~#", r"\$x\textasciicircum{}2\$ \textasciitilde{}\#"),
        ("a--b", "a-{}-b"),
        ("\n\\", r"\textbackslash{}n\textbackslash{}"),
    ],
)
def test_latex_escapes(given, expected):
    assert escaped(given) == expected


def test_latex_of_a_long_frame_says_where_the_rest_is():
    text = latex_table(pl.DataFrame({"x": [float(i) for i in range(MAX_ROWS + 5)]}), "Caption.", "some_study")
    assert "5 further rows are in some_study.csv" in text
    assert text.count("\\\\\n") == MAX_ROWS + 1
    assert "\\toprule" in text
    assert "\\label{tab:some-study}" in text


def test_latex_sets_numbers_to_the_right_with_real_minus_signs():
    table = pl.DataFrame({"name": ["gpt-4.1"], "value": [-0.5], "cell": ["-0.300 [-0.400, 0.100]"]})
    text = latex_table(table, "Caption.", "s")
    assert "{lrr}" in text
    assert "gpt-4.1 & $-$0.500 & $-$0.300 [$-$0.400, 0.100]" in text


def test_a_table_only_has_no_pictures(tmp_path):
    study = Study(pl.DataFrame({"x": [1]}), caption="Caption.", name="s", title="S")
    assert [path.name for path in write_study(study, tmp_path)] == ["s.csv", "s.tex"]


def test_a_place_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    study = Study(pl.DataFrame({"x": [1]}), caption="Caption.", name="s", title="S")
    with pytest.raises(WritingError, match="choose another place"):
        write_study(study, tmp_path / "file")


def test_the_page_of_a_folder_shows_all_and_is_harmless(tmp_path, hostile):
    run = made_run(HOSTILE, n=10)
    paths = write_study(hostile, tmp_path, ["csv", "svg"])
    text = index_text([(hostile, paths)], [("x", "X", "It needs <b>more</b>.")], [run], ["a_file cannot be read."])
    assert "![Full results](results_table.svg)" in text
    assert "[results_table.csv](results_table.csv)" in text
    assert "- **X** (`x`): It needs &lt;b&gt;more&lt;/b&gt;." in text
    assert "Left out: a\\_file cannot be read." in text
    assert "<script" not in text
    assert "\x1b" not in text
    table_row = next(line for line in text.splitlines() if "script" in line)
    assert len(re.findall(r"(?<!\\)\|", table_row)) == 4  # three columns, whatever the name holds


def test_markdown_of_links_and_images():
    assert markdown("![x](y) [a](b)") == "\\!\\[x\\](y) \\[a\\](b)"
