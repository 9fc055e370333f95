"""What all studies share: their style, and the files that they write."""

from __future__ import annotations

import csv
import io
import itertools
import re
import shutil
import subprocess
import tomllib
from dataclasses import replace
from importlib.resources import files
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import polars as pl
import pytest
from tests.studies.made import HOSTILE, made_run

from refusal_index.plugins.studies import precision, style
from refusal_index.plugins.studies.latex import MAX_ROWS, escaped, latex_table
from refusal_index.plugins.studies.results import results_table
from refusal_index.plugins.studies.study import (
    STUDY_NAMES,
    Study,
    StudyOptions,
    WritingError,
    index_text,
    markdown,
    study_csv,
    study_spec,
    tex_text,
    write_study,
)
from refusal_index.plugins.studies.style import BLOCK, label_contours

# --- Figures


def luminance(colour: str) -> float:
    red, green, blue = mpl.colors.to_rgb(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_variants_darken_with_caution():
    shades = [luminance(style.VARIANT_COLOURS[name]) for name in ("low", "normal", "high", "highest")]
    assert shades == sorted(shades, reverse=True)


def test_models_keep_distinct_styles_beyond_the_last_colour():
    names = [f"m{i}" for i in range(20)]
    assert len(set(style.model_looks(names).values())) == len(names)


def test_untrusted_text_is_drawn_literally():
    text = style.safe_text(HOSTILE, 200)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\\$" in text
    assert style.safe_text("\u4e2d") == "\\u4e2d"  # the font has no such character
    with style.house_style():
        figure = style.new_figure()
        figure.text(0, 0, style.safe_text("$a$ and $b^2$ \u4e2d"))
        figure.draw_without_rendering()
        assert not any("$" in text.get_text().replace("\\$", "") for text in figure.texts)


def test_long_text_is_cut():
    assert style.safe_text("x" * 100, 10) == "xxxxxxxxx\u2026"


def test_the_style_leaves_global_settings_alone():
    before = dict(mpl.rcParams)
    with style.house_style({"svg.hashsalt": "here"}):
        assert mpl.rcParams["svg.hashsalt"] == "here"
        assert mpl.rcParams["font.size"] == 8
    assert dict(mpl.rcParams) == before


def test_user_settings_do_not_change_a_figure():
    with mpl.rc_context({"lines.dashed_pattern": (9, 9), "axes.facecolor": "red"}), style.house_style():
        assert mpl.rcParams["axes.facecolor"] == style.PAPER
        assert mpl.rcParams["lines.dashed_pattern"] == [3.7, 1.6]


def test_property_levels_of_contours_are_on_their_lines_in_view_and_clear_of_points():
    xs = np.linspace(0, 1, 51)
    contours = {level: np.stack([xs, level * (1 - xs)], axis=1) for level in (0.2, 0.4, 0.6, 0.8, 1.4)}
    points = [(0.3, 0.42), (0.5, 0.1), (0.6, 0.24), (0.2, 0.5)]
    with style.house_style():
        figure = style.new_figure(4, 3)
        axes = figure.subplots()
        axes.set(xlim=(0, 1), ylim=(0, 1))
        label_contours(axes, contours, points)
        figure.draw_without_rendering()
        boxes = [text.get_window_extent() for text in axes.texts]
        marks = axes.transData.transform(points)
        assert sorted(text.get_text() for text in axes.texts) == ["0.2", "0.4", "0.6", "0.8", "1.4"]
        for text, box in zip(axes.texts, boxes, strict=True):
            x, y = text.get_position()
            assert y == pytest.approx(float(text.get_text()) * (1 - x), abs=0.01)
            assert axes.bbox.x0 <= box.x0 < box.x1 <= axes.bbox.x1
            assert axes.bbox.y0 <= box.y0 < box.y1 <= axes.bbox.y1
            assert not any(box.contains(*mark) for mark in marks)
    for one, other in itertools.combinations(boxes, 2):
        assert not one.overlaps(other)


def test_a_contour_that_is_nowhere_apart_from_another_has_no_label():
    xs = np.linspace(0, 1, 51)
    contours = {level: np.stack([xs, level * xs], axis=1) for level in (0.5, 0.51)}
    with style.house_style():
        axes = style.new_figure(4, 3).subplots()
        label_contours(axes, contours, [])
        assert not axes.texts


def test_study_draws_its_frame_and_a_table_only_study_has_no_figure():
    seen = []

    def draw(figure, frame):
        figure.set_size_inches(2, 1)
        seen.append(frame)

    frame = pl.DataFrame({"x": [1]})
    study = Study(frame, draw)
    assert study.figure().get_size_inches().tolist() == [2, 1]
    assert seen[0] is frame
    with pytest.raises(ValueError, match="table without a figure"):
        Study(frame).figure()


def test_every_study_has_its_texts_and_every_text_is_used():
    package = files("refusal_index.plugins.studies")
    texts = tomllib.loads((package / "captions.toml").read_text(encoding="utf-8"))
    assert sorted(texts) == sorted((*STUDY_NAMES, "shared"))
    source = "".join(path.read_text(encoding="utf-8") for path in package.iterdir() if path.name.endswith(".py"))
    for name, codes in texts.items():
        assert name == "shared" or codes.keys() >= {"title", "needs", "caption", "table_caption"}
        assert all(f'"{code}"' in source for code in codes)


OF_FIGURES = re.compile(
    r"CSV|grey|orange|blue|colour|filled|hollow|dashed|dotted|solid|drawn|band\b|\bbars?\b|circle|diamond|\bax[ie]s\b|"
    r"marker|\bmarks?\b|panel|\barrow|legend|\bpale\b|"
    r"\b(left|right|above|below|open):",
    re.IGNORECASE,
)


@pytest.mark.parametrize("name", STUDY_NAMES)
def test_captions_of_tables_describe_tables(name):
    texts = tomllib.loads((files("refusal_index.plugins.studies") / "captions.toml").read_text(encoding="utf-8"))
    assert not OF_FIGURES.search(texts[name]["table_caption"])


def test_latex_has_the_caption_of_the_table():
    study = Study(pl.DataFrame({"x": [1]}), caption="Grey lines.", table_caption="One row.", name="s", title="S")
    assert "\\caption{S. One row.}" in tex_text(study)
    assert "\\caption{S. Grey lines.}" in tex_text(replace(study, table_caption=""))


# --- Files of a study

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
def test_figures_contain_no_dates_or_untrusted_markup(written):
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


def test_latex_escapes_untrusted_text(hostile):
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
    pages = -(-MAX_ROWS // 52)
    assert text.count("\\\\\n") == MAX_ROWS + pages  # with a heading on each page
    assert text.count("\\caption{Caption., continued.}") == pages - 1
    assert text.count("\\label{") == 1
    assert "\\toprule" in text
    assert "\\label{tab:some-study}" in text


def test_blocks_of_rows_have_a_rule_and_a_heading():
    table = pl.DataFrame({BLOCK: ["A_1", "A_1", "B"], "name": ["x", "y", "z"], "value": [1, 2, 3]})
    lines = latex_table(table, "Caption.", "s").splitlines()
    first = lines.index("\\multicolumn{2}{l}{\\textit{A\\_1}} \\\\")
    assert lines[first - 1] == "\\midrule"
    assert lines[first + 1 : first + 6] == [
        "x & 1 \\\\",
        "y & 2 \\\\",
        "\\midrule",
        "\\multicolumn{2}{l}{\\textit{B}} \\\\",
        "z & 3 \\\\",
    ]
    assert "\\textbf{block}" not in "\n".join(lines)
    alone = latex_table(table.filter(pl.col("name") != "z"), "Caption.", "s")
    assert "multicolumn" not in alone
    assert alone.count("\\midrule") == 1


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs LaTeX")
def test_end_to_end_tables_of_sixteen_models_fit_a_page(tmp_path, monkeypatch):
    monkeypatch.setattr(precision, "RESAMPLES", 20)
    names = [f"openrouter/some-provider/model-{place}-with-a-long-name" for place in range(16)]
    runs = [made_run(name, dataset="simpleqa", n=40, seed=seed) for seed, name in enumerate(names)]
    for name in ("results_table", "accuracy_refusal_plane", "score_variability", "index_and_accuracy"):
        study = study_spec(name).make(runs, StudyOptions(without_paper=name == "results_table"))
        table = tex_text(study)
        assert all(table.count(escaped(model)) for model in names), name
        packages = "\\usepackage{booktabs,graphicx,rotating,textcomp}\\usepackage[T1]{fontenc}"
        page = f"\\documentclass{{article}}{packages}\\begin{{document}}{table}\\end{{document}}"
        (tmp_path / f"{name}.tex").write_text(page)
        command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", f"{name}.tex"]
        made = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stdout
        parts = table.count("\\end{tabular}")
        assert parts == 1 + (name != "results_table"), name  # 64 rows, or two blocks
        assert int(re.search(r"\((\d) page", made.stdout)[1]) <= parts
        assert not re.search(r"Float too large|Overfull \\hbox", made.stdout), made.stdout


SCALE = re.compile(r"natural width (\d+\.\d+)pt ?of (\d+\.\d+)pt")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs LaTeX")
@pytest.mark.parametrize("name", ["operating_point", "cost_table", "hallucination_table", "results_table"])
def test_end_to_end_latex_of_28_runs_is_legible(name, tmp_path, monkeypatch):
    monkeypatch.setattr(precision, "RESAMPLES", 20)
    others = ("precise_wiki", "faitheval_inconsistent+precise_wiki", "faitheval_unanswerable+precise_wiki")
    names = [f"openrouter/qwen/qwen3-{place}b-instruct-2507" for place in range(16)]
    places = [*((model, "simpleqa") for model in names), *((model, d) for model in names[:4] for d in others)]
    runs = [made_run(model, dataset=d, n=60, seed=seed) for seed, (model, d) in enumerate(places)]
    assert len(runs) == 28
    table = tex_text(
        study_spec(name).make([replace(run, label=f"{run.model}, {run.dataset}") for run in runs], OPTIONS)
    )
    # Where the table is scaled to the text, LaTeX says by how much.
    measured = "\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}{!}{"
    assert measured in table
    told = "{\\sbox0{#2}\\typeout{natural width \\the\\wd0\\space of \\the\\linewidth}\\usebox0}"
    page = "\\documentclass{article}\\usepackage{booktabs,graphicx,rotating,textcomp}\\usepackage[T1]{fontenc}"
    marked = table.replace(f"resizebox{{{measured}", "told{}{")
    body = f"{page}\\newcommand\\told[2]{told}\\begin{{document}}{marked}\\end{{document}}"
    (tmp_path / "t.tex").write_text(body)
    (tmp_path / "whole.tex").write_text(f"{page}\\begin{{document}}{table}\\end{{document}}")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error"]
    logs = [
        subprocess.run([*command, file], cwd=tmp_path, capture_output=True, text=True, check=False)
        for file in ("t.tex", "whole.tex")
    ]
    assert [log.returncode for log in logs] == [0, 0], logs[0].stdout
    assert not re.search(r"Float too large|Overfull", logs[1].stdout)
    widths = [tuple(map(float, pair)) for pair in SCALE.findall(logs[0].stdout)]
    size = 7.0 if "scriptsize" in table else 8.0 if "footnotesize" in table else 9.0
    assert min(size * min(1.0, line / natural) for natural, line in widths) >= 5.5


def test_latex_right_aligns_numbers_with_minus_signs():
    table = pl.DataFrame({"name": ["gpt-4.1"], "value": [-0.5], "cell": ["-0.300 [-0.400, 0.100]"]})
    text = latex_table(table, "Caption.", "s")
    assert "{lrr}" in text
    assert "gpt-4.1 & $-$0.500 & $-$0.300 [$-$0.400, 0.100]" in text


def test_table_only_study_has_no_figure_files(tmp_path):
    study = Study(pl.DataFrame({"x": [1]}), caption="Caption.", name="s", title="S")
    assert [path.name for path in write_study(study, tmp_path)] == ["s.csv", "s.tex"]


def test_unwritable_output_folder_raises(tmp_path):
    (tmp_path / "file").write_text("")
    study = Study(pl.DataFrame({"x": [1]}), caption="Caption.", name="s", title="S")
    with pytest.raises(WritingError, match="choose another place"):
        write_study(study, tmp_path / "file")


def test_index_page_lists_everything_and_is_harmless(tmp_path, hostile):
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


def test_the_page_of_all_studies_has_their_tables(tmp_path):
    runs = [made_run(f"m{place}", dataset="simpleqa", n=40, seed=place, variants=["normal"]) for place in range(2)]
    study = study_spec("results_table").make(runs, OPTIONS)
    lines = index_text([(study, [])], [], runs).splitlines()
    first = lines.index("| Model | Correct | Refused | C/A | F | Weighted | RI |")
    printed = study.printed(study.frame).filter(block="simpleqa")
    assert lines[first + 2] == "| *simpleqa* | | | | | | |"
    assert lines[first + 3].startswith(f"| m0 | {printed['Correct'][0].replace('[', chr(92) + '[')[:6]}")
    assert lines[first + 5].startswith("| *Published: Pan et al.")
    assert sum(line.startswith("|") for line in lines[first:]) == 2 + 2 + 2 + 16


def test_long_tables_on_the_page_of_all_studies_say_what_is_missing():
    study = Study(pl.DataFrame({"x": range(45)}), caption="Caption.", name="s", title="S")
    text = index_text([(study, [])], [], [])
    assert "5 more rows are in the LaTeX and CSV files." in text
    assert text.count("\n| ") == 1 + 1 + 40  # runs, heading and rows


def test_markdown_escapes_links_and_images():
    assert markdown("![x](y) [a](b)") == "\\!\\[x\\](y) \\[a\\](b)"
