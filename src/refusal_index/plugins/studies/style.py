"""Common style of figures and tables: colours, markers, legends and labels; cells and LaTeX of tables.

Figures use the same colours for the same things, and sizes that print at the width of a column.

The colours of models, cells and variants are distinguishable with all common colour deficiencies; those of the variants
also increase in darkness, so that they keep their order in greyscale. Models have the colours of Okabe and Ito [1]_.

References
----------
.. [1] Okabe, M. and Ito, K. (2008). Color Universal Design. https://jfly.uni-koeln.de/color/
"""

from __future__ import annotations

import math
import re
import textwrap
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import matplotlib as mpl
import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgb
from matplotlib.contour import ContourSet
from matplotlib.figure import Figure, SubFigure
from matplotlib.font_manager import FontProperties, findfont
from matplotlib.ft2font import FT2Font
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator
from numpy.typing import NDArray

from refusal_index.errors import CONTROL_CATEGORIES
from refusal_index.render.format import UNDEFINED, count, number, with_interval

FloatArray = NDArray[np.float64]
Ends = tuple[Any, Any]
Name = TypeVar("Name", str, str | None)

WIDTH = 5.5
"""Text width of the usual conference styles in inches."""

COLUMN_WIDTH = 3.35
"""Width of one of two columns in inches."""

INK = "#222222"
GREY = "#6b6b6b"
LIGHT = "#a8a8a8"
PALE = "#d0d0d0"
PALEST = "#ececec"
PAPER = "#ffffff"
"""Text and axes; secondary text; context; contours and the faintest context; shades; background."""

MODEL_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8c6d1f", "#882255")
"""Colours of models in order of appearance; from the tenth model on they repeat with other markers."""

MARKERS = ("o", "s", "D", "^", "v", "P", "X", "<", ">", "p")

VARIANT_COLOURS: Mapping[str, str] = {
    "low": "#9ecae1",
    "normal": "#5ba3cf",
    "high": "#2171b5",
    "highest": "#08306b",
    "forced": "#e69f00",
}

CELL_COLOURS: Mapping[str, str] = {
    "refused_wrong": "#0072b2",
    "refused_right": "#a6cee3",
    "answered_wrong": "#d55e00",
    "answered_right": "#009e73",
}

_STYLE: dict[Any, Any] = {
    "figure.dpi": 150,
    "savefig.dpi": 200,
    "figure.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "axes.facecolor": PAPER,
    "font.family": ["DejaVu Sans"],
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 8,
    "axes.labelcolor": INK,
    "axes.edgecolor": GREY,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": PALEST,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "text.parse_math": True,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 7.5,
    "lines.linewidth": 1.4,
    "lines.markersize": 5,
    "errorbar.capsize": 0,
    "pdf.fonttype": 42,
    "svg.fonttype": "path",
    "svg.hashsalt": "refusal-index",
}

_LONGEST = 60
_PROVIDER = re.compile(r"^[^\s,]*/")


@contextmanager
def house_style(also: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Use the style of the package and further settings inside the block, and restore the settings after it."""
    with mpl.rc_context():
        # The user's matplotlibrc should not affect figures.
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE | dict(also or {}))
        yield


def new_figure(width: float = WIDTH, height: float = 3.4) -> Figure:
    """Return an empty figure of the given size in inches, with constrained layout."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def safe_text(text: object, longest: int = _LONGEST) -> str:
    r"""Return untrusted text escaped for Matplotlib.

    Dollar signs are escaped, since Matplotlib treats text between two of them as mathematics. Control and bidirectional
    characters, and those missing from the font, are shown as escape sequences.

    >>> safe_text("gpt $x^2$\n")
    'gpt \\$x^2\\$\\n'
    """
    shown = str(text)
    shown = shown if len(shown) <= longest else shown[: longest - 1] + "\u2026"
    return "".join(_shown(character) for character in shown)


def short_names(names: Sequence[str], longest: int = 24) -> dict[str, str]:
    """Return a unique short form of every name, escaped for Matplotlib.

    A name that is too long loses its provider, if it remains unique, and then its middle, since names of models differ
    at their ends. Names that are still equal are numbered.

    >>> short_names(["openai/gpt-4.1", "openrouter/mistralai/mistral-large-2411"], 18)
    {'openai/gpt-4.1': 'openai/gpt-4.1', 'openrouter/mistralai/mistral-large-2411': 'mistral-large-2411'}
    """
    distinct = list(dict.fromkeys(names))
    bare = {name: _PROVIDER.sub("", name) for name in distinct}
    counts = Counter(bare.values())
    fitting = {name: bare[name] if len(name) > longest and counts[bare[name]] == 1 else name for name in distinct}
    shown = {name: safe_text(_without_middle(text, longest)) for name, text in fitting.items()}
    occurrences = Counter(shown.values())
    return {
        name: text
        if occurrences[text] == 1
        else safe_text(f"{_without_middle(fitting[name], longest - 4)} ({position})")
        for position, (name, text) in enumerate(shown.items(), 1)
    }


def wrapped_names(names: Sequence[str], longest: int = 24) -> dict[str, str]:
    r"""Return a unique form of every name, with what follows its last comma, such as a dataset, on a line of its own.

    - `longest`: of each line, as for `short_names`.

    >>> wrapped_names(["openai/gpt-4.1, simpleqa", "openai/gpt-4.1"])
    {'openai/gpt-4.1, simpleqa': 'openai/gpt-4.1\nsimpleqa', 'openai/gpt-4.1': 'openai/gpt-4.1'}
    """
    parts = {name: name.rsplit(", ", 1) for name in names}
    lines = short_names([line for lines in parts.values() for line in lines], longest)
    return {name: "\n".join(lines[part] for part in both) for name, both in parts.items()}


def _without_middle(text: str, longest: int) -> str:
    """Shorten a text by cutting its middle."""
    if len(text) <= longest:
        return text
    n_kept = max(longest - 1, 2)
    return f"{text[: n_kept - n_kept // 2]}\u2026{text[-(n_kept // 2) :]}"


def model_colours(models: Sequence[str]) -> dict[str, str]:
    """Return the colour of each model, by order of appearance.

    >>> model_colours(["a", "b", "a"])
    {'a': '#0072b2', 'b': '#d55e00'}
    """
    return _cycled(models, MODEL_COLOURS)


def model_looks(models: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return the colour and the marker of each model, so that models are distinguishable without colour, too."""
    return _looks(model_colours(models))


def variant_colours(variants: Sequence[str | None]) -> dict[str | None, str]:
    """Return the colour of each prompt variant; those with names of their own have the colours of models.

    >>> variant_colours(["low", "mine"])
    {'low': '#9ecae1', 'mine': '#d55e00'}
    """
    own = [variant or "" for variant in variants if variant not in VARIANT_COLOURS]
    colours = {**VARIANT_COLOURS, **_cycled(own, MODEL_COLOURS[1:])}
    return {variant: colours[variant or ""] for variant in variants}


def variant_looks(variants: Sequence[str | None]) -> dict[str | None, tuple[str, str]]:
    """Return the colour and the marker of each prompt variant."""
    return _looks(variant_colours(variants))


def _looks(colours: Mapping[Name, str]) -> dict[Name, tuple[str, str]]:
    """Return each colour with the marker of its place."""
    return {name: (colour, MARKERS[place % len(MARKERS)]) for place, (name, colour) in enumerate(colours.items())}


def few_ticks(axis: Axis, max_ticks: int) -> None:
    """Limit a small axis to a few round ticks with short labels."""
    axis.set_major_locator(MaxNLocator(nbins=max_ticks, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _place: short_number(value)))


def short_number(value: float) -> str:
    """Return a number as a label of a tick or contour, with a Unicode minus sign.

    >>> short_number(0.20000000001), short_number(-0.5)
    ('0.2', '\u22120.5')
    """
    return f"{value:.4g}".replace("-", "\N{MINUS SIGN}")


def pale(colour: str) -> str:
    """Return a lighter colour of the same hue, for context.

    >>> pale("#000000")
    '#999999'
    """
    red, green, blue = (0.4 * share + 0.6 for share in to_rgb(colour))
    return to_hex((red, green, blue))


def _cycled(names: Sequence[str], values: Sequence[str]) -> dict[str, str]:
    distinct = list(dict.fromkeys(names))
    return {name: values[index % len(values)] for index, name in enumerate(distinct)}


def _shown(character: str) -> str:
    if character == "$":
        return "\\$"
    if unicodedata.category(character) in CONTROL_CATEGORIES or ord(character) not in _drawn_characters():
        return character.encode("unicode_escape").decode()
    return character


@cache
def _drawn_characters() -> frozenset[int]:
    return frozenset(FT2Font(Path(findfont(FontProperties(family="DejaVu Sans")))).get_charmap())


def model_handles(models: Sequence[str], labels: Mapping[str, str] | None = None) -> list[Line2D]:
    """Return the legend entries of models, with their colours and markers."""
    labels = short_names(models, 32) if labels is None else labels
    return [handle(labels[model], *look) for model, look in model_looks(models).items()]


def outside_legend(figure: Figure, handles: Sequence[Line2D]) -> None:
    """Add a legend below a figure, in as many columns as fit; the figure grows by its height."""
    single = figure.legend(handles=handles, **_LEGEND)
    box = single.get_window_extent()
    single.remove()
    width, height = figure.get_size_inches()
    # The padding of a legend's frame counts once, so several columns need slightly less space.
    fitting = max(1, int(width * figure.dpi // box.width))
    rows = math.ceil(len(handles) / fitting)
    figure.set_size_inches(width, height + 0.05 + rows * box.height / figure.dpi / len(handles))
    figure.legend(handles=handles, loc="outside lower center", ncols=math.ceil(len(handles) / rows), **_LEGEND)


def write_above(figure: Figure, text: str) -> None:
    """Add a sentence above a finished figure, which grows by its height."""
    width, height = figure.get_size_inches()
    shown = safe_text(text, len(text)).replace("\\$", "$")
    fitting = int(width * 72 / (0.6 * _LEGEND["fontsize"]))  # a character is about half an em wide
    lines = textwrap.wrap(shown, fitting, break_on_hyphens=False)
    added = (len(lines) * 1.3 + 0.7) * _LEGEND["fontsize"] / 72
    for legend in figure.legends:  # a legend above the panels moves down
        above = legend.get_window_extent().y0 > figure.bbox.height / 2
        legend.borderaxespad += above * added * 72 / legend.prop.get_size_in_points()
    figure.set_size_inches(width, height + added)
    figure.set_layout_engine("constrained", rect=(0.0, 0.0, 1.0, float(height / (height + added))))
    figure.text(
        0.01,
        1 - 0.04 / (height + added),
        "\n".join(lines),
        fontsize=_LEGEND["fontsize"],
        va="top",
        linespacing=1.2,
        parse_math=False,
        in_layout=False,
    )


_LEGEND: dict[str, Any] = {"fontsize": 6.5, "handletextpad": 0.2, "columnspacing": 1.2}


def title_with_key(axes: Axes, title: str, looks: Mapping[str, tuple[str, str, str]]) -> None:
    """Add a title above a panel, and below it a key of the markers with their colours and fills."""
    handles = [handle(name, colour, marker, face=face) for name, (marker, colour, face) in looks.items()]
    axes.legend(
        handles=handles,
        ncols=len(looks),
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        borderaxespad=0.0,
        borderpad=0.2,
        **_LEGEND,
    )
    axes.set_title(title, pad=16)


def name_rows(
    panels: Sequence[Axes],
    labels: Sequence[str],
    size: float | None = None,
    *,
    heights: Sequence[float] | None = None,
    pad: float = 0.5,
) -> None:
    """Label the rows of panels that share an axis, from the top down, and remove the grid lines of the rows.

    - `size`: font size in points.
    - `heights`: heights of the rows; by default 0, 1, 2 and so on.
    - `pad`: space above the first and below the last row.
    """
    font: dict[str, Any] = {} if size is None else {"fontsize": size}
    heights = range(len(labels)) if heights is None else heights
    panels[0].set_yticks(heights, labels, **font)
    panels[0].set_ylim(max(heights) + pad, -pad)
    for axes in panels:
        axes.grid(visible=False, axis="y")


def ticks_above_too(axes: Axes) -> None:
    """Repeat the ticks of a tall panel at its top."""
    if axes.figure.figure.get_size_inches()[1] > _TALL:
        axes.tick_params(axis="x", top=True, labeltop=True)


_TALL = 7.0
"""Height in inches above which ticks are repeated at the top."""


def mark(
    axes: Axes,
    x: float | None,
    y: float | None,
    colour: str,
    marker: str = "o",
    *,
    xs: Ends | None = None,
    ys: Ends | None = None,
    face: str | None = None,
    size: float = 4.0,
    width: float = 1.3,
    **options: Any,
) -> None:
    """Draw a point, and its intervals if they are defined.

    Unlike `Axes.errorbar`, this allows intervals that do not contain their estimate, like one of the paper's.

    - `x`, `y`: the position; if either is None, no point is drawn.
    - `xs`, `ys`: the ends of the horizontal and of the vertical interval.
    - `face`: the fill colour; None for the point's own colour.
    - `size`, `width`: size of the point and width of the lines, in points.
    - `options`: further arguments of `Axes.plot` for the point.
    """
    line: dict[str, Any] = {"color": colour, "linewidth": width, "solid_capstyle": "butt", "zorder": 2}
    if xs is not None and y is not None and None not in xs:
        axes.plot(xs, [y, y], **line)
    if ys is not None and x is not None and None not in ys:
        axes.plot([x, x], ys, **line)
    if x is not None and y is not None:
        defaults: dict[str, Any] = {"color": colour, "markerfacecolor": colour if face is None else face}
        axes.plot(x, y, marker, **defaults | {"markersize": size, "zorder": 3} | options)


def shade(axes: Axes, rows: pl.DataFrame, x: str, name: str, colour: str, alpha: float) -> None:
    """Shade the intervals of a curve where they are defined, from the columns ``NAME_low`` and ``NAME_high``."""
    low, high = (f"{name}_low", f"{name}_high") if name else ("low", "high")
    defined = rows.drop_nulls([low, high])
    axes.fill_between(defined[x], defined[low], defined[high], color=colour, alpha=alpha, linewidth=0)


def ends(row: Mapping[str, Any], name: str = "") -> Ends:
    """Return the ends of the interval of a column in a row; without a name, the columns ``low`` and ``high``."""
    return (row[f"{name}_low"], row[f"{name}_high"]) if name else (row["low"], row["high"])


def handle(
    label: str, colour: str, marker: str = "", line: str = "none", *, face: str | None = None, **options: Any
) -> Line2D:
    """Return the legend entry of a marker or a line."""
    defaults: dict[str, Any] = {"color": colour, "markerfacecolor": colour if face is None else face, "linestyle": line}
    return Line2D([], [], label=label, **defaults | {"marker": marker, "markersize": 4.0} | options)


def subplots(figure: Figure, width: float, height: float, *shape: int, **shared: Any) -> Any:
    """Set the size of a figure in inches, and return its panels as `Figure.subplots` does."""
    figure.set_size_inches(width, height)
    return figure.subplots(*shape, **shared)


PANELS_A_ROW = 3
MANY_PANELS_A_ROW = 4
"""Panels in a row, and with more than two such rows."""


def panels_a_row(panels: int) -> int:
    """Return how many panels of the same kind are in a row."""
    return min(panels, PANELS_A_ROW if panels <= 2 * PANELS_A_ROW else MANY_PANELS_A_ROW)


def stacked(
    figure: Figure, width: float, upper: float, lower: float, xlabel: str = "", ylabel: str = ""
) -> tuple[SubFigure, SubFigure]:
    """Divide a figure into two parts of these heights in inches, and return them; the labels are of the upper one."""
    figure.set_size_inches(width, upper + lower)
    above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=[upper, lower])[:, 0]
    above.supxlabel(xlabel, fontsize=8)
    above.supylabel(ylabel, fontsize=8)
    return above, below


def panel_grid(
    figure: Figure | SubFigure,
    titles: Sequence[str],
    columns: int,
    labels: tuple[str, str] = ("", ""),
    *,
    size: float = 7.5,
    **shared: Any,
) -> list[Axes]:
    """Return a panel for each title, in rows of a given length; the rest of the last row stays empty.

    - `labels`: of the horizontal axes of the lowest panels, and of the vertical axes of the leftmost ones.
    - `size`: font size of the titles in points.
    - `shared`: further arguments of `Figure.subplots`.
    """
    columns = min(columns, len(titles))
    panels = figure.subplots(math.ceil(len(titles) / columns), columns, squeeze=False, **shared)
    for axes, title in zip(panels.flat, titles, strict=False):
        axes.set_title(title, fontsize=size)
    used, spare = np.split(panels.ravel(), [len(titles)])
    for axes in spare:
        axes.set_axis_off()
    # A panel above an empty one gets the labels of the axis.
    for axes in panels.ravel()[len(titles) - columns : panels.size - columns]:
        axes.tick_params(labelbottom=True)
    for axes in used[-columns:]:
        axes.set_xlabel(labels[0])
    for axes in used[::columns]:
        axes.set_ylabel(labels[1])
    return list(used)


def shifts(names: Sequence[str], reach: float) -> dict[str, float]:
    """Return offsets for markers that share a position, evenly from -reach to reach."""
    return dict(zip(names, np.linspace(-reach, reach, len(names)) if len(names) > 1 else [0.0], strict=True))


def round_ticks(axis: Axis, ticks: Sequence[int], limit: float) -> None:
    """Set some of these ticks on a logarithmic axis of counts, up to the largest count."""
    shown = [tick for tick in ticks if tick <= limit]
    axis.set_ticks(shown, [f"{tick:,}" for tick in shown])
    axis.set_minor_locator(NullLocator())


def draw_tokens(axes: Axes, y: float, row: Mapping[str, Any], questions: int) -> None:
    """Draw the input and output tokens per question as a bar, if they are known."""
    if row["input_tokens"] is not None:
        input_tokens = row["input_tokens"] / questions
        output_tokens = row["output_tokens"] / questions
        axes.barh(y, input_tokens, height=0.6, color=VARIANT_COLOURS["low"])
        axes.barh(y, output_tokens, left=input_tokens, height=0.6, color=VARIANT_COLOURS["highest"])


def token_handles() -> list[Line2D]:
    """Return the legend entries of bars of tokens."""
    looks = {"tokens in": "low", "tokens out": "highest"}
    return [handle(label, VARIANT_COLOURS[name], "s") for label, name in looks.items()]


def label_contours(
    axes: Axes, contours: Mapping[float, FloatArray], obstacles: Sequence[tuple[float, float]], margin: float = 0.035
) -> None:
    """Write the level of each contour on it, where it is in view, apart from points and from the other contours.

    Matplotlib's own labels of contours are used. A contour that is nowhere apart from the others has no label. The
    limits of the axes must be set before.

    - `contours`: positions (x, y) along the line of each level, shape (n, 2).
    - `obstacles`: positions of points in data coordinates.
    - `margin`: distance of a label from the frame and from what it must not cover, as a share of the panel.
    """
    corner, opposite = np.transpose([axes.get_xlim(), axes.get_ylim()])
    shares = {level: (line - corner) / (opposite - corner) for level, line in contours.items()}
    points = (np.reshape(obstacles, (-1, 2)) - corner) / (opposite - corner)
    parts = {}
    for level, line in contours.items():
        others = np.concatenate([points, *(share for other, share in shares.items() if other != level)])
        part = line[_clear_part(shares[level], others, margin)]
        if len(part) > 1:
            parts[level] = part
    if not parts:
        return
    levels = sorted(parts)
    lines = ContourSet(axes, levels, [[parts[level]] for level in levels], colors=GREY)
    for text in lines.clabel(fontsize=6, inline=False, fmt=short_number, zorder=4):
        text.set_bbox({"facecolor": PAPER, "edgecolor": "none", "pad": 0.4})
    lines.set_visible(False)


def _clear_part(line: FloatArray, obstacles: FloatArray, margin: float) -> NDArray[np.intp]:
    """Return the indices of the longest part of a line that is in view and clear of obstacles.

    - `line`, `obstacles`: positions as shares of the panel.
    """
    is_clear = np.asarray(((line > margin) & (line < 1 - margin)).all(axis=1))
    if len(obstacles):
        is_clear &= np.linalg.norm(line[:, np.newaxis] - obstacles, axis=2).min(axis=1) > margin
    edges = np.flatnonzero(np.diff(is_clear)) + 1
    parts = np.split(np.arange(len(line)), edges)
    return max((part for part in parts if is_clear[part].all()), key=len, default=np.arange(0))


DIGITS = 2
"""Decimals of the printed tables that follow the paper's."""

Cell = Callable[[Mapping[str, Any]], Any]


def counts(name: str) -> Cell:
    """Return a function that formats the count in a column."""
    return lambda row: count(row[name])


def table(columns: Mapping[str, str | Cell], **chosen: str) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """Return a function that converts a frame to its printed table.

    - `columns`: for each heading the column to show, with a dash for null, or a function from a row to its cell.
    - `chosen`: values of columns that select the rows to print; by default all rows.
    """

    def shown(name: str) -> Cell:
        return lambda row: UNDEFINED if row[name] is None else row[name]

    cells = {heading: shown(cell) if isinstance(cell, str) else cell for heading, cell in columns.items()}

    def made(frame: pl.DataFrame) -> pl.DataFrame:
        rows = frame.filter(**chosen).iter_rows(named=True)
        printed = [{heading: cell(row) for heading, cell in cells.items()} for row in rows]
        return pl.DataFrame(printed, infer_schema_length=None)

    return made


def fixed(name: str, digits: int = 3) -> Cell:
    """Return a function that formats the number in a column."""
    return lambda row: number(row[name], digits)


def ranged(name: str, digits: int = 3) -> Cell:
    """Return a function that formats a number with its interval, or why it is undefined.

    - `name`: the column; the ends are in ``NAME_low`` and ``NAME_high``, those of `estimate` in ``low`` and ``high``.
    """
    ends = ("low", "high") if name == "estimate" else (f"{name}_low", f"{name}_high")
    return lambda row: with_interval(row[name], row[ends[0]], row[ends[1]], row.get("reason"), digits)


def labelled(labels: Mapping[str, str], name: str) -> Cell:
    """Return a function that replaces the code in a column by its label."""
    return lambda row: labels[row[name]]


def widened(frame: pl.DataFrame, index: list[str], column: str, cell: str) -> pl.DataFrame:
    """Pivot a column's values into columns, in order of appearance, with a dash for missing cells."""
    names = frame[column].unique(maintain_order=True).to_list()
    wide = frame.pivot(column, index=index, values=cell, maintain_order=True)
    return wide.select(*index, *names).with_columns(pl.col(name).fill_null(UNDEFINED) for name in names)


BLOCK = "block"
"""Column of a printed table with the heading of each block of rows, which is set above the block."""
