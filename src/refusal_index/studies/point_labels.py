"""Labels beside points, where they cover neither each other nor a point."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke

from refusal_index.studies.style import GREY, INK, PAPER, FloatArray


def label_points(
    axes: Axes,
    points: Sequence[tuple[float, float]],
    labels: Sequence[str],
    colours: Sequence[str] | None = None,
    *,
    size: float = 7.0,
    avoid: Sequence[tuple[float, float]] = (),
) -> None:
    """Write a label beside every point where it covers neither another label nor a point; the last thing to draw.

    - `axes`: with their final limits.
    - `points`, `labels`, `colours`: in data coordinates; labels are shown as they are, so pass those of others through
      `safe_text` before.
    - `size`: of the text, in points.
    - `avoid`: further points that no label should cover.
    """
    figure = axes.figure.figure
    figure.draw_without_rendering()
    pixels = figure.dpi / 72
    marks = axes.transData.transform(np.array([*points, *avoid], float).reshape(-1, 2))
    taken = np.hstack([marks - 3 * pixels, marks + 3 * pixels])
    frame = np.asarray(axes.bbox.extents, float)
    colours = [INK] * len(labels) if colours is None else colours
    for number, (point, label, colour) in enumerate(zip(points, labels, colours, strict=True)):
        places, distances = _places(marks[number], _text_size(axes, label, size), pixels)
        others = np.delete(marks[: len(points)], number, axis=0)
        costs = distances / 100 + _covered(places, taken) + 3 * _outside(places, frame)
        best = int(np.argmin(costs + 0.2 * _close_to(places, others, 6 * pixels)))
        taken = np.vstack([taken, places[best]])
        shift = (places[best, :2] - marks[number]) / pixels
        axes.annotate(
            label,
            point,
            xytext=(float(shift[0]), float(shift[1])),
            textcoords="offset points",
            fontsize=size,
            color=colour,
            arrowprops=_LEADER if distances[best] >= _FAR else None,
            annotation_clip=False,
            path_effects=[withStroke(linewidth=1.5, foreground=PAPER)],
        ).set_in_layout(False)


_DISTANCES = (5.0, 9.0, 15.0, 22.0, 30.0)
_FAR = 15.0
_SIDES = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1))
_LEADER = {"arrowstyle": "-", "color": GREY, "linewidth": 0.5, "shrinkA": 0.0, "shrinkB": 3.0, "relpos": (0.5, 0.5)}


def _text_size(axes: Axes, label: str, size: float) -> FloatArray:
    """Measure a label: width and height in pixels."""
    text = axes.text(0, 0, label, fontsize=size)
    box = text.get_window_extent()
    text.remove()
    return np.array([box.width, box.height])


def _places(mark: FloatArray, box: FloatArray, pixels: float) -> tuple[FloatArray, FloatArray]:
    """Return boxes for a label around its mark, shape (m, 4), and their distances in points, the nearest first."""
    sides, distances = np.tile(_SIDES, (len(_DISTANCES), 1)), np.repeat(_DISTANCES, len(_SIDES))
    # To the left of a mark, or below, a box ends at its distance; in line with the mark it is centred.
    corner = mark + sides * distances[:, np.newaxis] * pixels + box * np.where(sides == 0, -0.5, np.minimum(sides, 0))
    return np.hstack([corner, corner + box]), distances


def _shared_areas(boxes: FloatArray, others: FloatArray) -> FloatArray:
    """Return the areas that boxes share with others, shape (m, k); boxes are (left, low, right, high)."""
    low = np.maximum(boxes[:, np.newaxis, :2], others[np.newaxis, :, :2])
    high = np.minimum(boxes[:, np.newaxis, 2:], others[np.newaxis, :, 2:])
    return np.asarray(np.prod(np.clip(high - low, 0, None), axis=-1))


def _areas(boxes: FloatArray) -> FloatArray:
    return np.asarray(np.maximum(np.prod(boxes[:, 2:] - boxes[:, :2], axis=1), 1e-9))


def _covered(boxes: FloatArray, taken: FloatArray) -> FloatArray:
    """Return what share of each box covers what is there already; more than 1 where that overlaps itself."""
    return np.asarray(_shared_areas(boxes, taken).sum(axis=1) / _areas(boxes))


def _outside(boxes: FloatArray, frame: FloatArray) -> FloatArray:
    """Return what share of each box lies outside a frame."""
    return np.asarray(1 - _shared_areas(boxes, np.reshape(frame, (1, 4)))[:, 0] / _areas(boxes))


def _close_to(boxes: FloatArray, marks: FloatArray, reach: float) -> FloatArray:
    """Count the marks so close to each box that its label could be taken for theirs."""
    inside = (marks >= boxes[:, np.newaxis, :2] - reach) & (marks <= boxes[:, np.newaxis, 2:] + reach)
    return np.asarray(inside.all(axis=-1).sum(axis=1))
