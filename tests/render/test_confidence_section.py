"""The section on confidence: where there are scores, and only there, with the numbers that the summary holds."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusal_index.data.folder import ComparedRun
from refusal_index.findings.summary import summarise
from refusal_index.plugins.confidence.section import MAX_POINTS, SECTION, roc_points, section_values
from refusal_index.plugins.confidence.summary import NAME, summarise_outcomes
from refusal_index.render.format import DASH
from refusal_index.render.report import ReportRun, write_report
from refusal_index.render.report.page import number
from refusal_index.render.sections import RunOnPage
from refusal_index.render.sentences import sentence
from refusal_index.stats import auroc
from tests.render.chromium import Page
from tests.render.making import HOSTILE, report_run, rows
from tests.scores import Score, confidence_table

METHODS = (
    "likelihood",
    "self-consistency",
    "p-true",
    "verbalised-number",
    "p-ik",
    "apricot",
    "topic",
    "answer-entropy",
)


def scores_of(table: pl.DataFrame, methods: Sequence[str] = METHODS[:2], *, values: int = 20) -> list[Score]:
    """Score the first draw of each question, a little higher where it is right."""
    first = table.filter(pl.col("draw") == 0).unique("question_id", maintain_order=True)
    rng = np.random.default_rng(0)
    shift = 0.2 * (1 - 2 * first["wrong"].to_numpy())
    return [
        Score(one, method, round(round(float(value) * values) / values, 6), wrong)
        for method in methods
        for one, value, wrong in zip(
            first["question_id"], np.clip(0.5 + shift + 0.3 * rng.standard_normal(first.height), 0, 1), first["wrong"],
            strict=True,
        )
    ]  # fmt: skip


def scored_run(table: pl.DataFrame, scores: Sequence[Score], label: str = "m") -> ReportRun:
    """Take a table of one model and dataset with scores as a run, without a folder."""
    variants = {name: part for (name,), part in table.group_by("variant", maintain_order=True)}
    run = ComparedRun(label, Path("runs/m"), "m", "d", variants, confidence=confidence_table(scores))
    sections = {NAME: summarise_outcomes(table.lazy(), run.confidence, 0.95)}
    return ReportRun(run, replace(summarise(table), sections=sections), table)


def values_of(run: ReportRun) -> dict[str, Any] | None:
    return section_values(RunOnPage(run.run, run.summary, "run-1"))


@pytest.fixture(scope="module")
def table() -> pl.DataFrame:
    return rows(200, variants=("low", "high"))


@pytest.fixture(scope="module")
def page(table: pl.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("scored") / "report.html"
    return write_report([scored_run(table, scores_of(table))], out).path.read_text(encoding="utf-8")


def shown(page: str) -> str:
    """Return the text of the section."""
    section = page.partition('id="run-1-confidence"')[2].partition("</section>")[0]
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", section)).split())


def test_without_scores_there_is_no_section(table, tmp_path):
    bare = write_report([report_run(table)], tmp_path / "r.html").path.read_text(encoding="utf-8")
    assert "run-1-confidence" not in bare
    assert values_of(report_run(table)) is None


def test_the_section_has_findings_pictures_and_numbers_of_every_method(table, page):
    run = scored_run(table, scores_of(table))
    text = shown(page)
    assert '<a href="#run-1-confidence">Confidence</a>' in page
    for one in run.summary.sections[NAME]:
        assert sentence(one.verdict()) in text
        assert f"AUROC {one.auroc.estimate:.2f} [{one.auroc.low:.2f}, {one.auroc.high:.2f}]" in text
        for value in (one.ece, one.rms_calibration_error, one.smooth_ece, one.brier.estimate, one.aurc, one.prr):
            assert f"{value:.3f}" in text
        for target in one.targets.values():
            assert f"{abs(target.estimate):.3f}" in text
        for each in one.against:
            assert f"{number(each.refusal_index.difference.estimate)} [" in text
            assert f"Under {each.variant} the model refused {each.refused} of 200 questions." in text


def test_bins_lie_where_the_reliability_table_has_them(table):
    run = scored_run(table, scores_of(table))
    view = values_of(run)
    score, wrong = (np.array([getattr(s, name) for s in scores_of(table)[:200]]) for name in ("confidence", "wrong"))
    bins = np.maximum(np.ceil(np.round(score * 10, 9)) - 1, 0)
    found = view["methods"][0]["bins"]
    assert [one.count for one in found] == [int((bins == b).sum()) for b in np.unique(bins)]
    assert [one.outcome_rate for one in found] == pytest.approx([1 - wrong[bins == b].mean() for b in np.unique(bins)])
    assert [one.mean_score for one in found] == pytest.approx([score[bins == b].mean() for b in np.unique(bins)])
    page = next(SECTION.of_run(RunOnPage(run.run, run.summary, "run-1"))).html
    radii = map(float, re.findall(r'r="([0-9.]+)"', page.partition("Reliability of")[2].partition("</svg>")[0]))
    areas = [radius**2 / one.count for radius, one in zip(radii, found, strict=True) if radius > 2.5]
    assert areas == pytest.approx([areas[0]] * len(areas), rel=0.03)  # radii have one decimal


@given(st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=2, max_size=80))
def test_below_the_roc_curve_lies_the_auroc_with_its_ties(drawn):
    score, right = np.array([float(s) for s, _ in drawn]), np.array([r for _, r in drawn])
    if right.all() or not right.any():
        return
    x, y = roc_points(score, right)
    assert (x[0], y[0], x[-1], y[-1]) == (0, 0, 1, 1)
    assert np.trapezoid(y, x) == pytest.approx(auroc(score, right).estimate)


def test_of_a_long_curve_few_corners_are_kept_and_its_area():
    rng = np.random.default_rng(0)
    right = rng.random(5000) < 0.5
    score = right + rng.standard_normal(5000)
    x, y = roc_points(score, right)
    assert len(x) == MAX_POINTS
    assert np.trapezoid(y, x) == pytest.approx(auroc(score, right).estimate, abs=0.002)


def test_each_curve_stands_once_and_is_referred_to(table, tmp_path):
    run = scored_run(table, scores_of(table, METHODS))
    page = write_report([run, run], tmp_path / "r.html").path.read_text(encoding="utf-8")
    defined = re.findall(r'<polyline id="([^"]*)"', page)
    assert len(defined) == len(set(defined)) == 2 * len(METHODS)
    used = re.findall(r'<use class="(\w+)" href="#([^"]*)"', page)
    assert {name for _, name in used} == set(defined)
    assert [name for kind, name in used if kind == "mine"] == defined
    assert "2 more" in shown(page), "beyond six methods the pictures are folded away"


def test_of_one_kind_of_answers_there_is_no_curve_and_the_picture_says_why(table, tmp_path):
    right = [one for one in scores_of(table) if not one.wrong]
    page = write_report([scored_run(table, right)], tmp_path / "r.html").path.read_text(encoding="utf-8")
    assert "every answer is right" in page
    assert "cannot be compared with the model's refusals under low (no answer is wrong)" in shown(page)
    assert "undefined all true" in shown(page)


def test_a_method_without_any_score_has_a_row_and_a_remark_and_no_picture(table, tmp_path):
    empty = [replace(one, method="verbalised-words", confidence=None) for one in scores_of(table)[:200]]
    page = write_report([scored_run(table, [*scores_of(table), *empty])], tmp_path / "r.html")
    text = shown(page.path.read_text(encoding="utf-8"))
    assert "verbalised-words no score in 200 of 200 replies; they are excluded, not imputed." in text
    assert f"verbalised-words 0 {DASH}" in text
    assert "verbalised-words orders" not in text


def test_trained_methods_are_marked(table, tmp_path):
    trained = [replace(one, method="p-ik", fold=0) for one in scores_of(table)[:200]]
    page = write_report([scored_run(table, trained)], tmp_path / "r.html").path.read_text(encoding="utf-8")
    assert "p-ik 200 answers, trained on right and wrong answers" in shown(page)
    assert "so the score is not the model's own" in shown(page)


def test_hostile_method_names_add_no_element(table, tmp_path):
    def elements(name: str) -> list[str]:
        scores = [replace(one, method=name) for one in scores_of(table)[:200]]
        page = write_report([scored_run(table, scores)], tmp_path / "r.html").path.read_text(encoding="utf-8")
        marks = re.sub(r'<span class="control"[^>]*>', "", page.partition('<script type="application')[0])
        return re.findall(r"<([a-z]\w*)", marks)

    assert elements(" ".join(HOSTILE)) == elements("plain")
    assert elements("=cmd|' /C calc'!A0") == elements("plain")


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.slow
def test_in_a_browser_it_fits_any_width_and_draws_every_curve(
    table: pl.DataFrame, tmp_path: Path, new_page: Callable[..., Page], width: int
) -> None:
    scores = scores_of(table, (*METHODS, " ".join(HOSTILE)))
    path = write_report([scored_run(table, scores)], tmp_path / "report.html").path
    page = new_page(path, width=width, height=800)
    page.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert page.run("document.documentElement.scrollWidth") == width
    heights = page.run("[...document.querySelectorAll('.mine')].map((one) => one.getBoundingClientRect().height)")
    assert len(heights) == len(METHODS) + 1
    assert min(heights) > 100
    assert page.run("document.documentElement.dataset.owned ?? ''") == ""
