"""Every study is legible of one model, of two and of many: nothing is cut, and names and legends keep off the data."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from matplotlib.text import Annotation
from tests.studies.made import made_run
from tests.studies.scores_made import in_folder, record

from refusal_index.studies import operating_point, style
from refusal_index.studies.index_and_size import DRAWN_AT, SIZE, side_by_side
from refusal_index.studies.study import NotPossibleError, Study, StudyOptions, few_notes, study_spec, study_specs

VARIANTS = ("low", "normal", "high")
STATED = {"prompts": {"targets": dict(zip(VARIANTS, (0.0, 0.5, 0.75), strict=True))}}
MANY = 9
SCORES = [
    *(record(name) for name in ("p-answering", "verbalised-number-after", "likelihood", "self-consistency")),
    *(record(name, training_examples=50) for name in ("p-ik", "topic", "a-method-of-ones-own-with-a-long-name")),
]


def named(place: int) -> str:
    return f"openrouter/some-provider/model-{place}-of-a-family-with-a-long-name"


def labelled(run):
    """Label a run as those that are read are, where a model has runs on several datasets; its prompts state targets."""
    return replace(run, label=f"{run.model}, {run.dataset}", settings=STATED)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two datasets; four draws of the first and scores of confidence, one draw of the second."""
    folder = tmp_path_factory.mktemp("runs")
    return {
        place: [scored(folder / str(place), made(place, "almanac", 4)), made(place, "precise_wiki", 1)]
        for place in range(MANY)
    }


def made(place, dataset, draws):
    rates = {"rho": 0.1 + 0.06 * place, "right": 0.2 + 0.04 * place}
    run = made_run(named(place), dataset=dataset, n=80, seed=place, variants=VARIANTS, draws=draws, **rates)
    return labelled(run)


def scored(folder, run):
    return in_folder(run, folder, SCORES)


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "models.csv"
    rows = [f"{named(place)},F{place},{(7, 7, 70)[place % 3]}" for place in range(MANY)]
    path.write_text("\n".join(["model,family,parameters_billion", *rows]))
    return StudyOptions(models=path)


def studies(runs, count, options):
    chosen = [run for place in range(count) for run in runs[place]]
    for spec in study_specs():
        try:
            yield spec.make(chosen, options)
        except NotPossibleError:
            # No two of these runs differ in thinking only.
            assert count < 3 or spec.name == "thinking"


def out_of_view(figure):
    """Find the labels of ticks beyond an axis's limits, which Matplotlib keeps but does not draw."""
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        low, high = sorted(axis.get_view_interval())
        for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
            if not low <= tick.get_loc() <= high:
                yield from (tick.label1, tick.label2)


def cut_texts(figure):
    """Find what of a drawn figure's texts lies outside of it, by more than two points."""
    slack, frame, hidden = 2 * figure.dpi / 72, figure.bbox, set(out_of_view(figure))
    for text in figure.findobj(lambda artist: hasattr(artist, "get_text")):
        shown = text.get_visible() and str(text.get_text()).strip() and text not in hidden
        # The box of a label with a leader includes the leader.
        if not shown or (isinstance(text, Annotation) and text.arrow_patch is not None):
            continue
        box = text.get_window_extent()
        if box.x0 < -slack or box.y0 < -slack or box.x1 > frame.x1 + slack or box.y1 > frame.y1 + slack:
            yield text.get_text()


@pytest.mark.parametrize(
    "count", [pytest.param(2, marks=pytest.mark.slow), *(pytest.param(n, marks=pytest.mark.nightly) for n in (1, MANY))]
)
def test_nothing_is_cut_and_no_legend_lies_on_a_panel(runs, options, count) -> None:
    drawn, problems = 0, []
    for study in studies(runs, count, options):
        if study.draw is None:
            continue
        figure = study.figure()
        with style.house_style():
            figure.draw_without_rendering()
            problems += [(study.name, "cut", text) for text in cut_texts(figure)]
            problems += [
                (study.name, "covered", axes.get_title("left"))
                for legend, axes in itertools.product(figure.legends, figure.axes)
                if legend.get_window_extent().padded(-2).overlaps(axes.get_window_extent())
            ]
        drawn += 1
    assert problems == []
    assert drawn >= 14


def test_names_are_short_and_no_others() -> None:
    long = [f"a-provider/of/the-model-{'x' * 30}-{place}" for place in range(3)]
    alike = ["one-long-provider/some-model-name", "two-long-provider/some-model-name"]
    same = ["y" * 30 + "z" * 30, "y" * 31 + "z" * 30]
    names = style.short_names(["openai/gpt-4.1", *long, *alike, *same], 20)
    assert names["openai/gpt-4.1"] == "openai/gpt-4.1"
    assert all(names[name].endswith(f"-{place}") for place, name in enumerate(long))
    assert all(names[name].startswith(name[:3]) for name in alike)
    assert len(set(names.values())) == len(names)
    assert max(map(len, names.values())) <= 20


def test_a_legend_adds_its_height_and_stays_within_the_width() -> None:
    with style.house_style():
        figure = style.new_figure(3.0, 2.0)
        figure.subplots()
        style.model_legend(figure, [named(place) for place in range(9)])
        figure.draw_without_rendering()
        (legend,) = figure.legends
        box = legend.get_window_extent()
        assert 0 <= box.x0 < box.x1 <= figure.bbox.x1
        assert figure.get_size_inches()[1] - 2.0 == pytest.approx(box.height / figure.dpi, abs=0.15)
        assert len({text.get_text() for text in legend.get_texts()}) == 9


def test_models_of_one_size_stand_side_by_side_around_it() -> None:
    frame = side_by_side(pl.DataFrame({SIZE: [7.0, 70.0, 7.0, *[700.0] * 30]}))
    places = frame[DRAWN_AT].log10()
    assert places[1] == pytest.approx(math.log10(70))
    assert (places[0] + places[2]) / 2 == pytest.approx(math.log10(7))
    assert places[2] - places[0] == pytest.approx(0.04 * 2)
    # Of many the first and the last stay near their size, too.
    crowd = places[3:].to_numpy()
    assert np.ptp(crowd) == pytest.approx(0.25 * 2)
    assert np.all(np.diff(crowd) > 0)
    assert side_by_side(pl.DataFrame({SIZE: [3.0, 3.0]}))[DRAWN_AT].n_unique() == 2


def test_operating_points_of_every_panel_are_in_view(runs, options) -> None:
    # The first model is right the least: limits made for it would cut off the others.
    study = operating_point.make([runs[place][0] for place in (0, 8)], options)
    figure = study.figure()
    highest = study.frame.select(pl.max_horizontal("correct_rate", "correct_rate_high").max()).item()
    planes = [axes for axes in figure.axes if axes.get_xlabel() == ""]
    assert len(planes) == 2
    assert all(axes.get_ylim()[1] >= highest for axes in planes)


@pytest.mark.parametrize(
    "name",
    ["auroc_correlation", "attenuation", "calibrator_comparison", "index_and_size", "thinking", "ranking_stability"],
)
def test_what_is_not_possible_with_32_runs_is_one_line_with_a_count_and_no_paragraph_of_names(name):
    runs = [made_run(f"provider/model-number-{i}", n=30, seed=i, variants=["normal"]) for i in range(32)]
    with pytest.raises(NotPossibleError) as error:
        study_spec(name).make(runs, StudyOptions())
    assert len(error.value.short) < 480
    assert error.value.short.count("model-number") <= 4
    assert error.value.short.startswith("It needs ")
    if error.value.notes:
        assert f"({len(error.value.notes)} note" in error.value.short


def test_many_notes_are_cut_where_all_studies_are_shown():
    study = Study("name", "Title", "Caption.", pl.DataFrame(), None, tuple(f"Note {i}." for i in range(40)))
    shown = few_notes(study)
    assert shown[:2] == ("Note 0.", "Note 1.")
    assert shown[-1] == "And 32 more notes, which 'refusal-index study name' prints."
    assert len(shown) == 9
