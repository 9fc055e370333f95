"""The look: text of others stays text, nothing global is touched, and labels cover neither each other nor points."""

from __future__ import annotations

import itertools
import tomllib
from importlib.resources import files

import matplotlib as mpl
import numpy as np
import polars as pl
import pytest
from matplotlib.text import Annotation
from tests.studies.made import HOSTILE

from refusal_index.plugins.studies import style
from refusal_index.plugins.studies.study import STUDY_NAMES, Study
from refusal_index.plugins.studies.style import label_points


def luminance(colour: str) -> float:
    red, green, blue = mpl.colors.to_rgb(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_variants_darken_with_caution():
    shades = [luminance(style.VARIANT_COLOURS[name]) for name in ("low", "normal", "high", "highest")]
    assert shades == sorted(shades, reverse=True)


def test_models_have_distinct_looks_past_the_last_colour():
    names = [f"m{i}" for i in range(20)]
    colours, markers = style.model_colours(names), style.model_markers(names)
    assert len({(colours[name], markers[name]) for name in names}) == len(names)


def test_text_of_others_is_drawn_as_text():
    shown = style.safe_text(HOSTILE, 200)
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "\\$" in shown
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


def test_a_readers_own_settings_do_not_change_a_figure():
    with mpl.rc_context({"lines.dashed_pattern": (9, 9), "axes.facecolor": "red"}), style.house_style():
        assert mpl.rcParams["axes.facecolor"] == style.PAPER
        assert mpl.rcParams["lines.dashed_pattern"] == [3.7, 1.6]


def test_labels_keep_apart_and_inside():
    rng = np.random.default_rng(5)
    points = [tuple(point) for point in rng.uniform(0.1, 0.9, (12, 2))]
    with style.house_style():
        figure = style.new_figure(5, 4)
        axes = figure.subplots()
        axes.set(xlim=(0, 1), ylim=(0, 1))
        label_points(axes, points, [f"model {i}" for i in range(12)])
        figure.draw_without_rendering()
        boxes = [t.get_window_extent() for t in axes.texts if isinstance(t, Annotation)]
    assert len(boxes) == 12
    # An annotation's extent includes its arrow, so only overlaps of half a label count.
    for one, other in itertools.combinations(boxes, 2):
        shared = mpl.transforms.Bbox.intersection(one, other)
        assert shared is None or shared.width * shared.height < 0.5 * min(one.width * one.height, 500)


def test_a_figure_draws_the_frame_and_a_table_has_none():
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
        assert name == "shared" or codes.keys() >= {"title", "needs", "caption"}
        assert all(f'"{code}"' in source for code in codes)
