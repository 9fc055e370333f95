"""The sections of a report on confidence, a gate and the steps of a training."""

from __future__ import annotations

import re
from collections import Counter
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

from refusal_index.data.analysis import DEFAULT_ANALYSIS, Analysis
from refusal_index.findings.gate import GateResult, decide
from refusal_index.findings.gate_policy import Policy
from refusal_index.findings.run_results import RunResults
from refusal_index.findings.summary import summarise
from refusal_index.plugins.confidence.section import MAX_POINTS, roc_points, section_values
from refusal_index.plugins.confidence.section import SECTION as CONFIDENCE_SECTION
from refusal_index.plugins.confidence.summary import NAME, summarise_outcomes
from refusal_index.plugins.training.section import SECTION as PANEL_SECTION
from refusal_index.plugins.training.section import (
    TESTED,
    PanelOfSteps,
    panel_values,
    panels_of,
    steps_of_trainings,
    vertical,
)
from refusal_index.render.format import DASH
from refusal_index.render.report.page import number
from refusal_index.render.run_view import RunView
from refusal_index.render.sentences import sentence
from refusal_index.stats import METRIC_NAMES, Estimate, auroc
from tests.render.chromium import Page
from tests.render.making import HOSTILE, report_run, rows, write_page
from tests.render.test_page import _Parsed
from tests.scores import Score, confidence_table

# --- The confidence section

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


def scored_run(table: pl.DataFrame, scores: Sequence[Score], label: str = "m") -> RunView:
    """Take a table of one model and dataset with scores as a run, without a folder."""
    variants = {name: part for (name,), part in table.group_by("variant", maintain_order=True)}
    run = RunResults.of_tables(label, Path("runs/m"), "m", "d", variants, confidence=confidence_table(scores))
    sections = {NAME: summarise_outcomes(table.lazy(), run.confidence, DEFAULT_ANALYSIS)}
    return RunView(replace(run, computed=replace(summarise(table), sections=sections)), table)


def values_of(run: RunView) -> dict[str, Any] | None:
    return section_values(run)


@pytest.fixture(scope="module")
def table() -> pl.DataFrame:
    return rows(200, variants=("low", "high"))


@pytest.fixture(scope="module")
def page(table: pl.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("scored") / "report.html"
    return write_page([scored_run(table, scores_of(table))], out).path.read_text(encoding="utf-8")


def section_text(page: str) -> str:
    """Return the text of the section."""
    section = page.partition('id="run-1-confidence"')[2].partition("</section>")[0]
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", section)).split())


def test_confidence_section_is_absent_without_scores(table, tmp_path):
    bare = write_page([report_run(table)], tmp_path / "r.html").path.read_text(encoding="utf-8")
    assert "run-1-confidence" not in bare
    assert values_of(report_run(table)) is None


def test_confidence_section_has_findings_and_numbers_of_every_method(table, page):
    run = scored_run(table, scores_of(table))
    text = section_text(page)
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


def test_reliability_bins_match_direct_computation(table):
    run = scored_run(table, scores_of(table))
    view = values_of(run)
    score, wrong = (np.array([getattr(s, name) for s in scores_of(table)[:200]]) for name in ("confidence", "wrong"))
    bins = np.maximum(np.ceil(np.round(score * 10, 9)) - 1, 0)
    found = view["methods"][0]["bins"]
    assert [one.count for one in found] == [int((bins == b).sum()) for b in np.unique(bins)]
    assert [one.outcome_rate for one in found] == pytest.approx([1 - wrong[bins == b].mean() for b in np.unique(bins)])
    assert [one.mean_score for one in found] == pytest.approx([score[bins == b].mean() for b in np.unique(bins)])
    page = next(CONFIDENCE_SECTION.of_run(run)).html
    radii = map(float, re.findall(r'r="([0-9.]+)"', page.partition("Reliability of")[2].partition("</svg>")[0]))
    areas = [radius**2 / one.count for radius, one in zip(radii, found, strict=True) if radius > 2.5]
    assert areas == pytest.approx([areas[0]] * len(areas), rel=0.03)  # radii have one decimal


@given(st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=2, max_size=80))
def test_area_under_roc_curve_equals_auroc_with_ties_property(drawn):
    score, right = np.array([float(s) for s, _ in drawn]), np.array([r for _, r in drawn])
    if right.all() or not right.any():
        return
    x, y = roc_points(score, right)
    assert (x[0], y[0], x[-1], y[-1]) == (0, 0, 1, 1)
    assert np.trapezoid(y, x) == pytest.approx(auroc(score, right).estimate)


def test_long_roc_curve_is_thinned_and_keeps_its_area():
    rng = np.random.default_rng(0)
    right = rng.random(5000) < 0.5
    score = right + rng.standard_normal(5000)
    x, y = roc_points(score, right)
    assert len(x) == MAX_POINTS
    assert np.trapezoid(y, x) == pytest.approx(auroc(score, right).estimate, abs=0.002)


def test_each_curve_is_defined_once_and_referenced(table, tmp_path):
    run = scored_run(table, scores_of(table, METHODS))
    page = write_page([run, run], tmp_path / "r.html").path.read_text(encoding="utf-8")
    defined = re.findall(r'<polyline id="([^"]*)"', page)
    assert len(defined) == len(set(defined)) == 2 * len(METHODS)
    used = re.findall(r'<use class="(\w+)" href="#([^"]*)"', page)
    assert {name for _, name in used} == set(defined)
    assert [name for kind, name in used if kind == "mine"] == defined
    assert "2 more" in section_text(page), "beyond six methods the charts are collapsed"


def test_chart_says_why_there_is_no_curve_if_all_answers_are_right(table, tmp_path):
    right = [one for one in scores_of(table) if not one.wrong]
    page = write_page([scored_run(table, right)], tmp_path / "r.html").path.read_text(encoding="utf-8")
    assert "every answer is right" in page
    assert "cannot be compared with the model's refusals under low (no answer is wrong)" in section_text(page)
    assert "undefined all true" in section_text(page)


def test_method_without_scores_has_a_row_and_remark_but_no_chart(table, tmp_path):
    empty = [replace(one, method="verbalised-words", confidence=None) for one in scores_of(table)[:200]]
    page = write_page([scored_run(table, [*scores_of(table), *empty])], tmp_path / "r.html")
    text = section_text(page.path.read_text(encoding="utf-8"))
    assert "verbalised-words no score in 200 of 200 replies; they are excluded, not imputed." in text
    assert f"verbalised-words 0 {DASH}" in text
    assert "verbalised-words orders" not in text


def test_trained_methods_are_marked(table, tmp_path):
    trained = [replace(one, method="p-ik", fold=0) for one in scores_of(table)[:200]]
    page = write_page([scored_run(table, trained)], tmp_path / "r.html").path.read_text(encoding="utf-8")
    assert "p-ik 200 answers, trained on right and wrong answers" in section_text(page)
    assert "so the score is not the model's own" in section_text(page)


def test_hostile_method_names_add_no_element(table, tmp_path):
    def elements(name: str) -> list[str]:
        scores = [replace(one, method=name) for one in scores_of(table)[:200]]
        page = write_page([scored_run(table, scores)], tmp_path / "r.html").path.read_text(encoding="utf-8")
        marks = re.sub(r'<span class="control"[^>]*>', "", page.partition('<script type="application')[0])
        return re.findall(r"<([a-z]\w*)", marks)

    assert elements(" ".join(HOSTILE)) == elements("plain")
    assert elements("=cmd|' /C calc'!A0") == elements("plain")


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.slow
def test_confidence_section_fits_any_width_and_draws_every_curve(
    table: pl.DataFrame, tmp_path: Path, new_page: Callable[..., Page], width: int
) -> None:
    scores = scores_of(table, (*METHODS, " ".join(HOSTILE)))
    path = write_page([scored_run(table, scores)], tmp_path / "report.html").path
    page = new_page(path, width=width, height=800)
    page.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert page.run("document.documentElement.scrollWidth") == width
    heights = page.run("[...document.querySelectorAll('.mine')].map((one) => one.getBoundingClientRect().height)")
    assert len(heights) == len(METHODS) + 1
    assert min(heights) > 100
    assert page.run("document.documentElement.dataset.owned ?? ''") == ""


# --- The training section


def headline(found: PanelOfSteps) -> str:
    return sentence(found.headline, "page")


def details(found: PanelOfSteps) -> list[str]:
    return [sentence(statement, "page") for statement in found.statements]


def of_steps(caution: list[float], *, n: int = 500, noise: list[float] | None = None, seed: int = 1) -> list[RunView]:
    """Return runs of training steps, given the caution and the randomness of refusals at each."""
    rng = np.random.default_rng(seed)
    doubt = rng.standard_normal(n)
    wrong = doubt + 0.7 * rng.standard_normal(n) > 0
    found = []
    for place, more in enumerate(caution):
        blind = 0.6 if noise is None else noise[place]
        refused = doubt + blind * rng.standard_normal(n) + more > 0
        table = rows(n, model=f"step {place}", variants=["normal"]).with_columns(
            refused=pl.Series(refused), wrong=pl.Series(wrong)
        )
        one = report_run(table, label=f"step {place}")
        found.append(replace(one, run=replace(one.run, step=500 * (place + 1), source=Path(f"panel/step-{place}"))))
    return found


def on_page(runs: list[RunView]) -> list[RunView]:
    return [replace(run, number=place) for place, run in enumerate(runs)]


def panel_of(runs: list[RunView]) -> PanelOfSteps:
    (steps,) = steps_of_trainings([run.run for run in runs])
    (found,) = panels_of(steps, Analysis())
    return found


def test_refusal_increase_is_reported_without_other_changes():
    found = panel_of(of_steps([-1.0, -1.0, -1.0, -0.3, -0.3, -0.3]))
    assert headline(found) == (
        "It refuses more since step 2,000; how strongly its refusals are correlated with its errors does not change "
        "significantly."
    )
    refusals, errors, index, rests_on = details(found)
    assert refusals.startswith("The refusal rate is ")
    assert "before step 2,000" in refusals
    assert errors == "There is no change in how often it is wrong when it must answer."
    assert index.startswith(
        "There is no significant change in how strongly its refusals are correlated with its errors: the average "
        "from step 2,000 on minus that before is "
    )
    assert "about 5%" in rests_on
    assert "the same 500 questions" in rests_on


def test_steady_rise_is_not_called_a_jump():
    found = panel_of(of_steps([-1.5, -1.1, -0.7, -0.3, 0.1, 0.5]))
    assert headline(found).startswith("It refuses more since about step ")
    assert "this is not a single jump" in details(found)[0]


def test_weaker_correlation_with_errors_is_reported():
    found = panel_of(of_steps([-0.8] * 6, noise=[0.3] * 3 + [4.0] * 3, n=800))
    assert "its refusals are less strongly correlated with its errors since step 2,000" in headline(found)


def test_no_significant_change_is_reported_as_such():
    found = panel_of(of_steps([-0.8] * 5))
    assert headline(found) == "There is no significant change over these 5 steps."
    refusals, errors, index, _ = details(found)
    assert errors.startswith("There is no change in "), "the same answers are wrong at every step"
    assert all(expected.startswith("There is no significant change in ") for expected in (refusals, index))


def test_step_without_refusals_is_a_gap_with_a_reason():
    (view,) = panel_values(on_page(runs := of_steps([-50.0, -0.8, -0.8, -0.7])))
    index = view["charts"][0]
    gaps = [(point.step, point.value.reason) for point in index["points"] if point.value.estimate is None]
    assert gaps == [(500, "nobody_refused")]
    assert index["gap_words"] == "no refusals at step 500"
    assert len(index["lines"]) == len(index["bands"]) == 1
    assert len(index["lines"][0].split()) == 3
    assert "Left out: 1 step without an interval." in sentence(view["statements"][2], "page")
    assert len(runs) == len(view["rows"]) == 4


def test_index_change_is_unknown_if_no_step_has_an_index():
    found = panel_of(of_steps([-50.0] * 3))
    assert "It is unknown how strongly its refusals are correlated with its errors: 0 of 3 steps" in details(found)[2]


def test_first_refusals_are_a_change_and_undefined_index_is_not_compared():
    found = panel_of(of_steps([-50.0, -50.0, -50.0, -0.7, -0.7, -0.7]))
    assert headline(found) == (
        "It refuses more since step 2,000; whether its refusals are more strongly correlated with its errors is "
        "unknown."
    )
    assert details(found)[0].startswith("The refusal rate is 0% on average before step 2,000 and ")


def test_index_is_compared_at_the_change_or_next_defined_step():
    found = panel_of(of_steps([-1.4, -1.4, 50.0, 0.3, 0.3], n=300))
    assert found.metrics["refusal_rate"].change.row == 2
    assert "the average from step 2,000 on minus that before is " in details(found)[2]
    assert headline(found).endswith(
        "; how strongly its refusals are correlated with its errors does not change significantly."
    )


def test_no_change_is_not_claimed_for_left_out_steps():
    found = panel_of(of_steps([-50.0] * 3))
    assert headline(found) == (
        "There is no significant change over these 3 steps, but it is unknown how strongly its refusals are "
        "correlated with its errors at any of them."
    )
    found = panel_of(of_steps([-50.0, -2.5, -2.5], n=60, noise=[2.0] * 3))
    assert not any(found.changed(metric) for metric in TESTED)
    assert headline(found).endswith("correlated with its errors at 2 of them.")


def test_steps_are_sorted_and_runs_without_steps_are_not_a_training():
    runs = [run.run for run in of_steps([-1.0, -0.9, -0.8])]
    assert [run.step for run in steps_of_trainings(runs[::-1])[0]] == [500, 1000, 1500]
    assert steps_of_trainings([replace(run, step=None) for run in runs]) == ()
    assert steps_of_trainings(runs[:1]) == ()
    elsewhere = replace(runs[0], source=Path("other/step-0"))
    assert [len(each) for each in steps_of_trainings([*runs, elsewhere])] == [3]


def test_steps_without_a_common_variant_give_no_panel():
    first, second = (run.run for run in of_steps([-1.0, -0.9]))
    (outcomes,) = second.tables.values()
    other: RunResults = second.with_tables({"low": outcomes, "high": outcomes})
    assert panels_of((first, other), Analysis()) == ()


def test_page_has_a_point_and_row_per_step_and_escapes_hostile_labels(tmp_path: Path):
    runs = of_steps([-1.0, -0.9, -0.8])
    hostile = [
        replace(run, run=replace(run.run, label=f"{text} {n}"))
        for n, (run, text) in enumerate(zip(runs, HOSTILE, strict=False))
    ]
    page = write_page(hostile, tmp_path / "report.html").path.read_text(encoding="utf-8")
    section = page[page.index('id="panel-1"') : page.index('id="overview"')]
    assert section.count('class="step"') == 3 * len(METRIC_NAMES)
    assert section.count('<tr><th scope="row">') == 3
    assert "<script>document" not in section
    assert "<img src=x" not in section
    assert "\x1b" not in section
    assert page.count("<h1") == 1


def test_incomplete_steps_are_named_first_and_marked_in_their_row(tmp_path: Path):
    first, second, third = of_steps([-1.0, -0.9, -0.8], n=100)
    gone = pl.col("question_id").is_in(second.run.tables["normal"]["question_id"][:30].to_list())
    lost = second.run.tables["normal"].with_columns(
        *(pl.when(~gone).then(pl.col(name)).alias(name) for name in ("refused", "wrong", "forced_grade")),
        first_grade=pl.when(gone).then(pl.lit("unscored")).otherwise(pl.col("first_grade")),
        unscored_reason=pl.when(gone).then(pl.lit("not_finished")),
    )
    half = replace(report_run(lost), run=second.run.with_tables({"normal": lost}))
    (panel,) = panel_values(on_page([first, half, third]))
    assert panel["incomplete"] == ("Incomplete; do not rely on these numbers: step 1,000 (70 of 100 questions scored).")
    assert [row["lacks"] for row in panel["rows"]] == [None, "70 of 100 questions scored", None]
    page = write_page([first, half, third], tmp_path / "report.html").path.read_text(encoding="utf-8")
    section = page[page.index('id="panel-1"') : page.index('id="overview"')]
    assert section.count('<small class="undefined">incomplete</small>') == 1


def test_runs_without_steps_have_no_panel_section(tmp_path: Path):
    runs = [replace(run, run=replace(run.run, step=None)) for run in of_steps([-1.0, -0.9])]
    page = write_page(runs, tmp_path / "report.html").path.read_text(encoding="utf-8")
    assert 'id="panel-' not in page
    assert page.count("<h1") == 1


@pytest.mark.parametrize(
    ("metric", "values", "ends"),
    [
        ("error_rate", [Estimate(None)], (0.0, 1.0)),
        ("refusal_index", [Estimate(-0.4, -0.7, 0.1), Estimate(0.2, 0.0, 0.3)], (-1.0, 0.5)),
        ("refusal_rate", [Estimate(0.0)], (0.0, 0.05)),
        ("weighted_score", [Estimate(-1.0, -3.0, 1.0)], (-3.0, 1.0)),
        ("omniscience_index", [Estimate(-20.0, -35.0, -5.0), Estimate(12.0, 1.0, 24.0)], (-40.0, 40.0)),
    ],
)
def test_axes_cover_all_values_between_round_numbers(metric: str, values: list[Estimate], ends: tuple[float, float]):
    scale = vertical(metric, values)
    ticks = scale.ticks
    assert (scale.low, scale.high) == ends == (ticks[0], ticks[-1])


def test_charts_have_text_descriptions():
    runs = on_page(of_steps([-1.0, -1.0, -0.2, -0.2]))
    (view,) = panel_values(runs)
    assert view["charts"][1]["since"] == 1500
    (section,) = PANEL_SECTION.of_page(runs, "h1")
    assert 'aria-label="Refused over steps, from 0.' in section.html


# --- The gate section


def both(text: str = "", temperature: float = 0.0) -> tuple[list[RunView], GateResult]:
    """Return two runs and their gate result; the second model refuses at random, and `text` is in every name.

    At temperature 0 every change of a question is shown.
    """
    made = []
    for name, rho in (("base", 0.9), ("rash", -0.5)):
        table = rows(300, model=name, rho=rho, variants=("normal",))
        names = ("model", "question_id", "question")
        hostile = table.with_columns((pl.lit(text) + pl.col(one)).alias(one) for one in names)
        run = report_run(hostile, label=name + text)
        made.append(replace(run, run=replace(run.run, about={"sent": {"model": {"temperature": temperature}}})))
    base, rash = made
    return [rash, base], decide(rash.run, base.run, Policy())


def page_of(place: Path, text: str = "") -> str:
    runs, found = both(text)
    return write_page(runs, place / "report.html", gate=found).path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def gate_page(tmp_path_factory: pytest.TempPathFactory) -> str:
    return page_of(tmp_path_factory.mktemp("gate"))


def test_gate_verdict_comes_first_and_is_the_only_h1(gate_page: str) -> None:
    found = both()[1]
    assert (found.verdict, Counter(tag for tag, _ in _Parsed(gate_page).elements)["h1"]) == ("fail", 1)
    places = [
        gate_page.index(one) for one in (">Fail</h1>", found.why.split("(")[0], "changed most</summary>", "2 runs side")
    ]
    assert places == sorted(places)
    assert "<title>Refusal Index gate: fail</title>" in gate_page


def test_gate_section_lists_every_guard_and_changed_question(gate_page: str) -> None:
    section, found = gate_page.partition('id="gate"')[2].partition("</section>")[0], both()[1]
    assert section.count("<tr>") == 2 + len(found.guards) + len(found.changed) == 16
    assert all(one.question_id in section for one in found.changed)
    assert "whether the candidate is worse by more than the margin" in section


def test_gate_section_marks_changes_of_single_responses_as_noise(tmp_path: Path) -> None:
    runs, found = both(temperature=0.7)
    page = write_page(runs, tmp_path / "report.html", gate=found).path.read_text(encoding="utf-8")
    section = page.partition('id="gate"')[2].partition("</section>")[0]
    assert "Single responses cannot show that a particular question changed" in section
    assert "changed most</summary>" in section
    assert section.count('data-column="may be noise"><bdi dir="auto">yes<') == len(found.changed) == 10


def test_report_without_a_gate_has_no_gate_section(tmp_path: Path) -> None:
    plain = write_page(both()[0], tmp_path / "report.html").path.read_text(encoding="utf-8")
    assert 'id="gate"' not in plain
    assert "<title>Refusal Index of 2 runs</title>" in plain


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_and_questions_add_no_element(gate_page: str, tmp_path: Path, text: str) -> None:
    elements = [
        tag for tag, attributes in _Parsed(page_of(tmp_path, text)).elements if attributes.get("class") != "control"
    ]
    assert elements == [tag for tag, _ in _Parsed(gate_page).elements]


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.slow
def test_opens_at_any_width_without_scrolling_sideways(
    new_page: Callable[..., Page], tmp_path: Path, width: int
) -> None:
    page_of(tmp_path, HOSTILE[0] + "M" * 300)
    page = new_page(tmp_path / "report.html", width=width)
    page.run("document.querySelector('.gate details').open = true")
    assert page.run("document.documentElement.scrollWidth") == width


@pytest.mark.slow
def test_verdict_and_limits_are_seen_on_a_phone_without_scrolling(
    new_page: Callable[..., Page], tmp_path: Path
) -> None:
    page_of(tmp_path)
    page = new_page(tmp_path / "report.html", width=390)
    cells = "[...document.querySelectorAll('#gate .why, .guards [data-column=limit], .guards [data-column=verdict]')]"
    boxes = page.run(
        f"{cells}.map((cell) => cell.getBoundingClientRect()).map((box) => [box.left, box.right, box.bottom])"
    )
    assert len(boxes) == 1 + 2 * len(both()[1].guards)
    assert all(0 <= left < right <= 390 and bottom <= 800 for left, right, bottom in boxes)
