"""The steps of a training in a report: what is said of them, what is drawn, and where nothing is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from refusal_index.data.folder import ComparedRun
from refusal_index.findings.comparison import CompareOptions
from refusal_index.plugins.training.section import (
    SECTION,
    TESTED,
    PanelOfSteps,
    panel_values,
    panels_of,
    steps_of_trainings,
    vertical,
)
from refusal_index.render.report import ReportRun, write_report
from refusal_index.render.sections import RunOnPage
from refusal_index.render.sentences import sentence
from refusal_index.stats import METRIC_NAMES, Estimate
from tests.render.making import HOSTILE, report_run, rows


def headline(found: PanelOfSteps) -> str:
    return sentence(found.headline, "page")


def details(found: PanelOfSteps) -> list[str]:
    return [sentence(one, "page") for one in found.statements]


def of_steps(caution: list[float], *, n: int = 500, noise: list[float] | None = None, seed: int = 1) -> list[ReportRun]:
    """Runs of the steps of a training: how cautious the model is at each, and how blindly it refuses."""
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


def on_page(runs: list[ReportRun]) -> list[RunOnPage]:
    return [RunOnPage(run.run, run.summary, f"run-{place}") for place, run in enumerate(runs)]


def panel_of(runs: list[ReportRun]) -> PanelOfSteps:
    (steps,) = steps_of_trainings([run.run for run in runs])
    (found,) = panels_of(steps, CompareOptions())
    return found


def test_more_refusals_at_one_step_are_said_and_no_more_than_that():
    found = panel_of(of_steps([-1.0, -1.0, -1.0, -0.3, -0.3, -0.3]))
    assert headline(found) == (
        "It refuses more since step 2,000; how strongly its refusals are correlated with its errors does not change "
        "significantly."
    )
    refusals, errors, index, rests_on = details(found)
    assert refusals.startswith("The refusal rate is ")
    assert "before step 2,000" in refusals
    assert errors.startswith(
        "There is no significant change in how often it is wrong when it must answer: from step 2,000 on"
    )
    assert index.startswith(
        "There is no significant change in how strongly its refusals are correlated with its errors: from step 2,000 on"
    )
    assert "at most 5%" in rests_on
    assert "the same 500 questions" in rests_on


def test_a_steady_rise_is_no_jump():
    found = panel_of(of_steps([-1.5, -1.1, -0.7, -0.3, 0.1, 0.5]))
    assert headline(found).startswith("It refuses more since about step ")
    assert "this is not a single jump" in details(found)[0]


def test_refusals_that_lose_touch_with_knowledge_are_said():
    found = panel_of(of_steps([-0.8] * 6, noise=[0.3] * 3 + [4.0] * 3, n=800))
    assert "its refusals are less strongly correlated with its errors since step 2,000" in headline(found)


def test_where_nothing_is_shown_nothing_is_said():
    found = panel_of(of_steps([-0.8] * 5))
    assert headline(found) == "There is no significant change over these 5 steps."
    assert all(said.startswith("There is no significant change in ") for said in details(found)[:3])


def test_a_step_that_refused_nothing_is_a_gap_with_its_reason():
    (view,) = panel_values(on_page(runs := of_steps([-50.0, -0.8, -0.8, -0.7])))
    index = view["charts"][0]
    gaps = [(point.step, point.value.reason) for point in index["points"] if point.value.estimate is None]
    assert gaps == [(500, "nobody_refused")]
    assert index["gap_words"] == "no refusals at step 500"
    assert len(index["lines"]) == len(index["bands"]) == 1
    assert len(index["lines"][0].split()) == 3
    assert "Left out: 1 step without an interval." in sentence(view["statements"][2], "page")
    assert len(runs) == len(view["rows"]) == 4


def test_where_no_step_has_an_index_that_is_said():
    found = panel_of(of_steps([-50.0] * 3))
    assert "It is unknown how strongly its refusals are correlated with its errors: 0 of 3 steps" in details(found)[2]


def test_refusals_that_begin_are_a_change_and_what_has_no_index_is_not_compared():
    found = panel_of(of_steps([-50.0, -50.0, -50.0, -0.7, -0.7, -0.7]))
    assert headline(found) == (
        "It refuses more since step 2,000; whether its refusals are more strongly correlated with its errors is "
        "unknown."
    )
    assert details(found)[0].startswith("The refusal rate is 0% on average before step 2,000 and ")


def test_an_index_is_compared_where_refusals_changed_or_at_the_next_step_that_has_one():
    found = panel_of(of_steps([-1.4, -1.4, 50.0, 0.3, 0.3], n=300))
    assert found.metrics["refusal_rate"].change.row == 2
    assert "from step 2,000 on it differs by" in details(found)[2]
    assert headline(found).endswith(
        "; how strongly its refusals are correlated with its errors does not change significantly."
    )


def test_no_change_is_never_said_of_steps_that_are_left_out():
    found = panel_of(of_steps([-50.0] * 3))
    assert headline(found) == (
        "There is no significant change over these 3 steps, but it is unknown how strongly its refusals are "
        "correlated with its errors at any of them."
    )
    found = panel_of(of_steps([-50.0, -2.5, -2.5], n=60, noise=[2.0] * 3))
    assert not any(found.changed(metric) for metric in TESTED)
    assert headline(found).endswith("correlated with its errors at 2 of them.")


def test_steps_come_in_their_order_and_runs_without_one_are_no_training():
    runs = [run.run for run in of_steps([-1.0, -0.9, -0.8])]
    assert [run.step for run in steps_of_trainings(runs[::-1])[0]] == [500, 1000, 1500]
    assert steps_of_trainings([replace(run, step=None) for run in runs]) == ()
    assert steps_of_trainings(runs[:1]) == ()
    elsewhere = replace(runs[0], source=Path("other/step-0"))
    assert [len(each) for each in steps_of_trainings([*runs, elsewhere])] == [3]


def test_steps_without_a_variant_in_common_are_not_followed():
    first, second = (run.run for run in of_steps([-1.0, -0.9]))
    (outcomes,) = second.variants.values()
    other: ComparedRun = replace(second, variants={"low": outcomes, "high": outcomes})
    assert panels_of((first, other), CompareOptions()) == ()


def test_the_page_has_every_step_as_point_and_row_and_nothing_is_obeyed(tmp_path: Path):
    runs = of_steps([-1.0, -0.9, -0.8])
    hostile = [
        replace(run, run=replace(run.run, label=f"{text} {n}"))
        for n, (run, text) in enumerate(zip(runs, HOSTILE, strict=False))
    ]
    page = write_report(hostile, tmp_path / "report.html").path.read_text(encoding="utf-8")
    section = page[page.index('id="panel-1"') : page.index('id="overview"')]
    assert section.count('class="step"') == 3 * len(METRIC_NAMES)
    assert section.count('<tr><th scope="row">') == 3
    assert "<script>document" not in section
    assert "<img src=x" not in section
    assert "\x1b" not in section
    assert page.count("<h1") == 1


def test_steps_that_lack_questions_are_named_first_and_marked_in_their_row(tmp_path: Path):
    first, second, third = of_steps([-1.0, -0.9, -0.8], n=100)
    gone = pl.col("question_id").is_in(second.run.variants["normal"]["question_id"][:30].to_list())
    lost = second.run.variants["normal"].with_columns(
        *(pl.when(~gone).then(pl.col(name)).alias(name) for name in ("refused", "wrong", "forced_grade")),
        first_grade=pl.when(gone).then(pl.lit("unscored")).otherwise(pl.col("first_grade")),
        unscored_reason=pl.when(gone).then(pl.lit("not_finished")),
    )
    half = replace(report_run(lost), run=replace(second.run, variants={"normal": lost}))
    (panel,) = panel_values(on_page([first, half, third]))
    assert panel["lacking"] == ("Incomplete; do not rely on these numbers: step 1,000 (70 of 100 questions scored).")
    assert [row["lacks"] for row in panel["rows"]] == [None, "70 of 100 questions scored", None]
    page = write_report([first, half, third], tmp_path / "report.html").path.read_text(encoding="utf-8")
    section = page[page.index('id="panel-1"') : page.index('id="overview"')]
    assert section.count('<small class="undefined">incomplete</small>') == 1


def test_runs_that_are_no_steps_have_no_such_section(tmp_path: Path):
    runs = [replace(run, run=replace(run.run, step=None)) for run in of_steps([-1.0, -0.9])]
    page = write_report(runs, tmp_path / "report.html").path.read_text(encoding="utf-8")
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
def test_axes_hold_whatever_is_drawn_between_round_numbers(
    metric: str, values: list[Estimate], ends: tuple[float, float]
):
    scale = vertical(metric, values)
    ticks = scale.ticks
    assert (scale.low, scale.high) == ends == (ticks[0], ticks[-1])


def test_charts_say_in_words_what_they_show():
    runs = on_page(of_steps([-1.0, -1.0, -0.2, -0.2]))
    (view,) = panel_values(runs)
    assert view["charts"][1]["since"] == 1500
    (section,) = SECTION.of_page(runs, "h1")
    assert 'aria-label="Refused over steps, from 0.' in section.html
