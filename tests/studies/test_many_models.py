"""Every study is legible for one, two and many models: no text is cut, and no name or legend covers the data."""

from __future__ import annotations

import itertools
import math
import struct
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from matplotlib.text import Annotation
from tests.studies.made import made_run
from tests.studies.scores_made import in_folder, record

from refusal_index.plugins.studies import precision, style
from refusal_index.plugins.studies.planes import operating_point
from refusal_index.plugins.studies.regression import DRAWN_AT, SIZE, side_by_side
from refusal_index.plugins.studies.study import (
    BIASED,
    FORMATS,
    MARK,
    NotPossibleError,
    Study,
    StudyOptions,
    few_notes,
    index_text,
    study_spec,
    study_specs,
    write_study,
)

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
    """Label a run as it is when a model has runs on several datasets; its prompts state targets."""
    return replace(run, label=f"{run.model}, {run.dataset}", settings=STATED)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two datasets; four draws of the first and scores of confidence, one draw of the second."""
    folder = tmp_path_factory.mktemp("runs")
    return {
        place: [scored(folder / str(place), labelled_run(place, "almanac", 4)), labelled_run(place, "precise_wiki", 1)]
        for place in range(MANY)
    }


def labelled_run(place, dataset, draws):
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


def hidden_tick_labels(figure):
    """Find the labels of ticks beyond an axis's limits, which Matplotlib keeps but does not draw."""
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        low, high = sorted(axis.get_view_interval())
        for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
            if not low <= tick.get_loc() <= high:
                yield from (tick.label1, tick.label2)


def cut_texts(figure):
    """Find texts of a drawn figure that lie outside it by more than two points."""
    slack, frame, hidden = 2 * figure.dpi / 72, figure.bbox, set(hidden_tick_labels(figure))
    for text in figure.findobj(lambda artist: hasattr(artist, "get_text")):
        notes = text.get_visible() and str(text.get_text()).strip() and text not in hidden
        # The box of a label with a leader includes the leader.
        if not notes or (isinstance(text, Annotation) and text.arrow_patch is not None):
            continue
        box = text.get_window_extent()
        if box.x0 < -slack or box.y0 < -slack or box.x1 > frame.x1 + slack or box.y1 > frame.y1 + slack:
            yield text.get_text()


def problems_of(study, figure):
    """Draw a figure, and find parts that are cut or overlap a panel or a legend."""
    with style.house_style():
        figure.draw_without_rendering()
        yield from (("cut", text) for text in cut_texts(figure))
        for artist, other in itertools.product((*figure.legends, *figure.texts), (*figure.axes, *figure.legends)):
            if artist is not other and artist.get_window_extent().padded(-2).overlaps(other.get_window_extent()):
                yield "covered", study.name


@pytest.mark.parametrize(
    "count", [pytest.param(2, marks=pytest.mark.slow), *(pytest.param(n, marks=pytest.mark.nightly) for n in (1, MANY))]
)
def test_no_text_is_cut_and_no_legend_covers_a_panel(runs, options, count) -> None:
    drawn = [study for study in studies(runs, count, options) if study.draw is not None]
    assert [(study.name, problem) for study in drawn for problem in problems_of(study, study.figure())] == []
    assert len(drawn) >= 14


@pytest.mark.usefixtures("few_resamples")
@pytest.mark.parametrize(
    "formats",
    [pytest.param(FORMATS[:2], marks=pytest.mark.slow), pytest.param(FORMATS, marks=pytest.mark.nightly)],
    ids=["tables", "pictures"],
)
def test_every_study_marks_runs_with_missing_grades(runs, options, tmp_path, formats) -> None:
    lacking = {place: [without_grades(run) for run in runs[place]] for place in range(2)}
    made = list(studies(lacking, 2, options))
    for study in made:
        assert study.caption.endswith(BIASED), study.name
        # Tables and figures that name models mark them; ranking stability covers all runs and names none.
        models = study.marked["model"].drop_nulls() if "model" in study.frame else pl.Series([MARK])
        assert models.str.ends_with(MARK).any(), study.name
        files = {path.suffix: path for path in write_study(study, tmp_path, formats)}
        assert pl.read_csv(files[".csv"], infer_schema_length=None)["incomplete"].any(), study.name
        assert "\\textdagger{} Incomplete" in files[".tex"].read_text(), study.name
        figure = study.figure()
        assert study.warning.replace(" ", "") in ["".join(text.get_text().split()) for text in figure.texts]
        assert list(problems_of(study, figure)) == [], study.name
        if formats == FORMATS:
            width, height = figure.get_size_inches()
            assert f"/MediaBox [ 0 0 {72 * width:g} ".encode() in files[".pdf"].read_bytes(), study.name
            size = struct.unpack(">II", files[".png"].read_bytes()[16:24])
            assert size == pytest.approx((200 * width, 200 * height), abs=1), study.name
            assert "<!-- \N{DAGGER} Incomplete" in files[".svg"].read_text(), study.name
    assert len(made) >= 14


def without_grades(run):
    """Remove the grades of every third question."""
    grades = ("refused", "wrong", "first_grade", "forced_grade")
    gone = pl.int_range(pl.len()) % 3 == 0
    tables = {
        variant: rows.with_columns(pl.when(~gone).then(pl.col(name)).alias(name) for name in grades)
        for variant, rows in run.tables.items()
    }
    return run.with_tables(tables)


def test_only_incomplete_runs_are_marked_in_every_format(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(precision, "RESAMPLES", 50)
    incomplete, whole = (made_run(name, n=60, seed=seed, variants=["low"]) for seed, name in enumerate(("a", "b")))
    make = study_spec("results_table").make
    study = make([without_grades(incomplete), whole], StudyOptions())
    assert "Incomplete, as answers without a grade are left out: 20 of 60 answers of a (33.3%)." in study.caption
    assert study.notes == ("a: answers left out because they have no grade: 20 of 60.",)
    files = {path.suffix: path for path in write_study(study, tmp_path, ["csv", "tex", "svg"])}
    rows = pl.read_csv(files[".csv"])
    assert rows.select("model", "incomplete").unique(maintain_order=True).rows() == [("a", True), ("b", False)]
    table = files[".tex"].read_text()
    assert "\na \\textdagger{} & 0." in table
    assert "\nb & 0." in table
    picture = files[".svg"].read_text()  # which draws text as paths, and quotes it in comments
    assert "<!-- a † -->" in picture
    assert f"<!-- {study.warning[:40]}" in picture
    assert study.warning not in make([incomplete, whole], StudyOptions()).caption
    page = index_text([(study, list(files.values()))], [], [incomplete, whole])
    assert "† Incomplete" in page


def test_wrapped_names_keep_the_dataset_on_a_line_of_its_own() -> None:
    datasets = ("faitheval_inconsistent+precise_wiki", "faitheval_unanswerable+precise_wiki")
    names = [f"openrouter/qwen/qwen3-32b, {dataset}" for dataset in datasets]
    wrapped = style.wrapped_names(names, 30)
    assert len(set(wrapped.values())) == 2
    for name, dataset in zip(names, datasets, strict=True):
        model, line = wrapped[name].split("\n")
        assert model == "openrouter/qwen/qwen3-32b"
        assert len(line) == 30
        assert line[:12] == dataset[:12]


def test_names_that_are_cut_keep_what_differs(few_resamples) -> None:
    names = ["openai/gpt-4.1-2025-04-14", "openai/gpt-4.1-mini-2025-04-14"]
    runs = [made_run(name, dataset=d, n=60, seed=s) for s, (name, d) in enumerate((n, d) for n in names for d in "xy")]
    runs = [replace(run, label=f"{run.model}, {run.dataset}") for run in runs]
    for name in ("sample_size", "operating_point", "cost_table"):
        texts = {
            text.get_text().partition("\n")[0]
            for text in study_spec(name)
            .make(runs, StudyOptions())
            .figure()
            .findobj(lambda artist: hasattr(artist, "get_text"))
        }
        assert not any(text.endswith(")") and "(" in text and "gpt" in text for text in texts), name  # none is numbered
        assert any("4.1-mini" in text for text in texts), name


@pytest.mark.slow
def test_figures_of_sixteen_models_fit_a_page(few_resamples) -> None:
    names = [f"openrouter/some-provider/model-{place}-with-a-long-name" for place in range(16)]
    runs = [made_run(name, dataset="simpleqa", n=60, seed=seed) for seed, name in enumerate(names)]
    for name in ("results_table", "prompt_agreement", "sample_size", "cost_table", "operating_point"):
        assert study_spec(name).make(runs, StudyOptions()).figure().get_size_inches()[1] <= 11, name


def test_shortened_names_are_unique() -> None:
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
        style.outside_legend(figure, style.model_handles([named(place) for place in range(9)]))
        figure.draw_without_rendering()
        (legend,) = figure.legends
        box = legend.get_window_extent()
        assert 0 <= box.x0 < box.x1 <= figure.bbox.x1
        assert figure.get_size_inches()[1] - 2.0 == pytest.approx(box.height / figure.dpi, abs=0.15)
        assert len({text.get_text() for text in legend.get_texts()}) == 9


def test_models_of_equal_size_are_spread_around_it() -> None:
    frame = side_by_side(pl.DataFrame({SIZE: [7.0, 70.0, 7.0, *[700.0] * 30]}))
    places = frame[DRAWN_AT].log10()
    assert places[1] == pytest.approx(math.log10(70))
    assert (places[0] + places[2]) / 2 == pytest.approx(math.log10(7))
    assert places[2] - places[0] == pytest.approx(0.04 * 2)
    # Of many models, the first and last stay near their size, too.
    crowd = places[3:].to_numpy()
    assert np.ptp(crowd) == pytest.approx(0.25 * 2)
    assert np.all(np.diff(crowd) > 0)
    assert side_by_side(pl.DataFrame({SIZE: [3.0, 3.0]}))[DRAWN_AT].n_unique() == 2


def test_operating_points_of_every_panel_are_in_view(runs, options) -> None:
    # The first model is the least accurate: limits made for it would cut off the others.
    study = operating_point.make([runs[place][0] for place in (0, 8)], options)
    figure = study.figure()
    highest = study.frame.select(pl.max_horizontal("correct_rate", "correct_rate_high").max()).item()
    planes = [axes for axes in figure.axes if axes.get_xlabel() == ""]
    assert len(planes) == 2
    assert all(axes.get_ylim()[1] >= highest for axes in planes)


@pytest.mark.parametrize(
    "name",
    ["auroc_correlation", "calibrator_comparison", "index_and_size", "thinking", "ranking_stability"],
)
def test_error_for_many_runs_is_short_and_counts_notes(name):
    runs = [made_run(f"provider/model-number-{i}", n=30, seed=i, variants=["normal"]) for i in range(32)]
    with pytest.raises(NotPossibleError) as error:
        study_spec(name).make(runs, StudyOptions())
    assert len(error.value.short) < 480
    assert error.value.short.count("model-number") <= 4
    assert error.value.short.startswith("It needs ")
    if error.value.notes:
        assert f"({len(error.value.notes)} note" in error.value.short


def test_notes_are_limited_when_all_studies_are_shown():
    study = Study(pl.DataFrame(), notes=[f"Note {i}." for i in range(40)], name="name")
    notes = few_notes(study)
    assert notes[:2] == ("Note 0.", "Note 1.")
    assert notes[-1] == "And 32 more notes, which 'refusal-index study name' prints."
    assert len(notes) == 9
