"""Draw the pictures of the theory page: ``.venv/bin/python docs/make_theory.py``, a few seconds.

All are computed by the package; nothing in them is a run of a model. The pictures are committed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray
from scipy import special
from scipy.stats import norm

from refusal_index.plugins.studies.style import (
    CELL_COLOURS,
    GREY,
    INK,
    MODEL_COLOURS,
    PALE,
    VARIANT_COLOURS,
    FloatArray,
    house_style,
    new_figure,
)
from refusal_index.stats import (
    ContingencyTable,
    attenuated_refusal_index,
    rho_from_refusal_index,
    tetrachoric,
    upper_orthant,
)
from refusal_index.stats.copulas import CopulaName, copula_upper_orthant, fit_copula

PICTURES = Path(__file__).parent / "assets" / "theory"
WIDTH = 7.4

COPULAS: dict[CopulaName, tuple[str, str]] = {
    "gaussian": ("Gaussian", INK),
    "t": ("Student t, 4 df", MODEL_COLOURS[1]),
    "clayton": ("Clayton", MODEL_COLOURS[0]),
    "frank": ("Frank", MODEL_COLOURS[2]),
    "survival_clayton": ("survival Clayton", MODEL_COLOURS[3]),
}
ERROR_RATE, SEEN_AT, T_RHO = 0.9, 0.5, 0.52
"""Of the picture of copulas: the error rate, the refusal rate of the one table, and the dependence of the t copula."""


def cells(r: ArrayLike, mu: ArrayLike, p11: ArrayLike) -> tuple[FloatArray, ...]:
    """Return the four shares: refused and wrong, refused and right, answered and wrong, answered and right."""
    refused, wrong, both = (np.asarray(values, float) for values in (r, mu, p11))
    return both, refused - both, wrong - both, 1 - refused - wrong + both


def index_of(shares: tuple[FloatArray, ...]) -> FloatArray:
    """Return the Refusal Index of tables of shares."""
    return np.asarray(6 / np.pi * np.arcsin(tetrachoric(*shares) / 2))


def gaussian_cells(r: float, mu: float, rho: float) -> tuple[FloatArray, ...]:
    """Return the four shares that a Gaussian copula gives."""
    return cells(r, mu, upper_orthant(norm.isf(r), norm.isf(mu), rho))


def two_thresholds(figure: Figure) -> None:
    """Draw one cloud of questions cut by a cautious and by a bold threshold."""
    rng = np.random.default_rng(4)
    rho, mu = float(rho_from_refusal_index(0.6)), 0.6
    hard = rng.normal(size=500)
    inclined = rho * hard + np.sqrt(1 - rho**2) * rng.normal(size=500)
    figure.set_size_inches(WIDTH, 3.9)
    for axes, r, who in zip(figure.subplots(1, 2, sharey=True), (0.55, 0.2), ("cautious", "bold"), strict=True):
        _cut_cloud(axes, inclined, hard, (float(norm.isf(r)), float(norm.isf(mu))))
        for share, name in zip(gaussian_cells(r, mu, rho), CELL_COLOURS, strict=True):
            _corner(axes, name, f"{name.replace('_', ', ')}\n{share:.0%}")
        axes.set(title=f"A {who} prompt refuses {r:.0%}: RI 0.60", xlabel="inclination to refuse \N{RIGHTWARDS ARROW}")
    figure.axes[0].set_ylabel("difficulty \N{RIGHTWARDS ARROW}")


def _cut_cloud(axes: Axes, x: NDArray[np.float64], y: NDArray[np.float64], at: tuple[float, float]) -> None:
    for name, colour in CELL_COLOURS.items():
        refused, wrong = name.split("_")
        inside = ((x > at[0]) == (refused == "refused")) & ((y > at[1]) == (wrong == "wrong"))
        axes.scatter(x[inside], y[inside], 7, color=colour, linewidths=0, alpha=0.85)
    axes.axvline(at[0], color=INK, linewidth=1.2)
    axes.axhline(at[1], color=INK, linewidth=1.2)
    axes.annotate("threshold", (at[0], -4.7), (3, 3), textcoords="offset points", fontsize=6.5, color=GREY)
    axes.set(xlim=(-3.9, 3.9), ylim=(-4.7, 4.4), xticks=[], yticks=[])
    axes.grid(visible=False)


def _corner(axes: Axes, name: str, text: str) -> None:
    right, up = name.startswith("refused"), name.endswith("wrong")
    place = (0.985 if right else 0.015, 0.985 if up else 0.015)
    axes.annotate(
        text,
        place,
        xycoords="axes fraction",
        ha="right" if right else "left",
        va="top" if up else "bottom",
        fontsize=7.5,
        fontweight="bold",
        color=CELL_COLOURS[name] if name != "refused_right" else "#4f8fbf",
    )


def attenuation(figure: Figure) -> None:
    """Draw how spread the probabilities are, and the RI of single responses where the index of these is 0.582."""
    figure.set_size_inches(WIDTH, 3.0)
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.35))
    probability = np.linspace(0.002, 0.998, 500)
    shown = {0.5: VARIANT_COLOURS["low"], 1.0: VARIANT_COLOURS["normal"], 3.0: VARIANT_COLOURS["highest"]}
    for slope, colour in shown.items():
        z = special.ndtri(probability)
        left.plot(probability, np.exp(z**2 / 2 * (1 - 1 / slope**2)) / slope, color=colour)

        left.annotate(f"b = {slope:g}", (0.5, 1 / slope), (0, 4), textcoords="offset points", fontsize=7.5, ha="center")
    left.set(title="How random a model is", xlabel="probability of refusing a question", ylabel="how many questions")
    left.set(ylim=(0, 4.2), yticks=[], xlim=(0, 1))

    true, marks = 0.582, np.array([0.5, 1, 2, 3, 5, 20])
    slopes = np.geomspace(0.3, 30, 200)
    right.axhline(true, color=GREY, linewidth=1, linestyle="--")
    right.annotate("corrected RI, 0.582", (0.31, true + 0.012), fontsize=7, color=GREY)
    right.plot(slopes, attenuated_refusal_index(true, slopes, slopes), color=VARIANT_COLOURS["high"])
    seen = attenuated_refusal_index(true, marks, marks)
    right.plot(marks, seen, "o", color=VARIANT_COLOURS["high"])
    for slope, index in zip(marks, seen, strict=True):
        right.annotate(f"{index:.4f}", (slope, index), (5, -10), textcoords="offset points", fontsize=7)
    right.set_xscale("log")
    right.set_xticks(marks, [f"{slope:g}" for slope in marks])
    right.minorticks_off()
    right.set(title="RI from one response per question", xlabel="b, spread of the probabilities (log scale)")
    right.set(ylabel="RI", ylim=(0, 0.66), xlim=(0.3, 36))


def identifiability(figure: Figure) -> None:
    """Draw copulas that give one table at one refusal rate, and what they give at others."""
    figure.set_size_inches(WIDTH, 5.0)
    above = figure.add_subfigure((grid := figure.add_gridspec(2, 1, height_ratios=(1, 1.25)))[0])
    below = figure.add_subfigure(grid[1])
    table = one_table()
    shares = [count / table.n for count in table.counts]
    drawn: tuple[CopulaName, ...] = ("gaussian", "t", "clayton")
    for axes, family in zip(above.subplots(1, 3, sharey=True), drawn, strict=True):
        _copula_map(axes, family, _fitted(table, family))
        for name, share in zip(CELL_COLOURS, shares, strict=True):
            _corner(axes, name, f"{share:.1%}")
    above.axes[0].set_ylabel("difficulty \N{RIGHTWARDS ARROW}")
    rates = np.linspace(0.03, 0.97, 95)
    axes = below.subplots()
    for family, (label, colour) in COPULAS.items():
        index = indices_over(rates, family, _fitted(table, family))
        axes.plot(rates, index, color=colour, linewidth=1.6)
        ends, up = (f": {index[0]:.2f} to {index[-1]:.2f}", -3) if family == "t" else ("", 3 if "Cl" in label else 0)
        axes.annotate(
            label + ends,
            (0.97, index[-1]),
            (5, up),
            textcoords="offset points",
            color=colour,
            fontsize=7.5,
            va="center",
        )
    seen = float(index_of(cells(SEEN_AT, ERROR_RATE, shares[0])))
    axes.plot(SEEN_AT, seen, "o", color=INK, markersize=7, zorder=5)
    axes.annotate(
        "the one table:\nall of them fit it", (SEEN_AT, seen), (-2, 26), textcoords="offset points",
        fontsize=7.5, ha="center", arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.6},
    )  # fmt: skip
    axes.set(title="The index that a single table would show at other refusal rates", xlabel="refusal rate")
    axes.set(ylabel="RI seen", xlim=(0, 1.3), ylim=(0.1, 0.72), xticks=np.linspace(0, 1, 6))


def one_table() -> ContingencyTable:
    """Return the table of a t copula, with so many questions that rounding does not show."""
    n, both = 10**7, float(copula_upper_orthant(SEEN_AT, ERROR_RATE, T_RHO, "t"))
    return ContingencyTable(*(round(n * float(share)) for share in cells(SEEN_AT, ERROR_RATE, both)))


def _fitted(table: ContingencyTable, family: CopulaName) -> float:
    parameter = fit_copula(table, family).parameter
    if parameter is None:
        raise ValueError(f"{family} does not fit {table}")
    return parameter


def indices_over(rates: FloatArray, family: CopulaName, parameter: float) -> FloatArray:
    """Return the index that the table of each refusal rate shows."""
    return index_of(cells(rates, ERROR_RATE, copula_upper_orthant(rates, ERROR_RATE, parameter, family)))


def _copula_map(axes: Axes, family: CopulaName, parameter: float) -> None:
    """Draw where the questions lie, behind the one pair of thresholds."""
    edges = np.linspace(-3.2, 3.2, 54)
    above = copula_upper_orthant(norm.sf(edges)[:, np.newaxis], norm.sf(edges), parameter, family)
    mass = np.diff(np.diff(above, axis=0), axis=1)
    middle, area = (edges[1:] + edges[:-1]) / 2, (edges[1] - edges[0]) ** 2
    levels = [0.003, 0.01, 0.03, 0.07, 0.12, 0.17, 0.5]
    axes.contourf(middle, middle, mass.T / area, levels, colors=[f"#{c}" for c in _SHADES], antialiased=True)
    axes.axvline(norm.isf(SEEN_AT), color=INK, linewidth=1)
    axes.axhline(norm.isf(ERROR_RATE), color=INK, linewidth=1)
    label, colour = COPULAS[family]
    axes.set_title(label, color=colour)
    axes.set(xlabel="inclination to refuse \N{RIGHTWARDS ARROW}", xticks=[], yticks=[], xlim=(-3.3, 3.3))
    axes.set(ylim=(-3.6, 3.6))
    axes.grid(visible=False)


_SHADES = ("f0f0f0", "e2e2e2", "cfcfcf", "b9b9b9", "a4a4a4", "909090")


def grading(figure: Figure) -> None:
    """Draw what a grader's errors and missing answers do to an index of 0.49."""
    r, mu, rho = 0.74, 0.92, 0.51
    shares = gaussian_cells(r, mu, rho)
    true = float(index_of(shares))
    figure.set_size_inches(WIDTH, 3.0)
    left, right = figure.subplots(1, 2)
    for axes, last in ((left, 5), (right, 10)):
        axes.plot([0, last], [true, true], color=GREY, linewidth=1, linestyle="--")
    errors: tuple[tuple[str, float, float, str, float], ...] = (
        ("wrong graded right", 0, 1, MODEL_COLOURS[1], 4),
        ("right graded wrong", 1, 0, MODEL_COLOURS[0], -2),
        ("both", 1, 1, INK, 0),
    )
    rates = np.linspace(0, 0.05, 51)
    for label, f_c, f_w, colour, up in errors:
        seen = misgraded(shares, rates * f_c, rates * f_w)
        left.plot(100 * rates, seen, color=colour)
        left.annotate(
            label, (5, seen[-1]), (4, up), textcoords="offset points", fontsize=7.5, color=colour, va="center"
        )
        if f_c and f_w:
            for at in (10, 30):
                left.plot(100 * rates[at], seen[at], "o", color=colour, markersize=4)
                place = (100 * rates[at], seen[at])
                left.annotate(f"{seen[at]:.3f}", place, (-4, -11), textcoords="offset points", fontsize=7, ha="right")
    left.set(title="The grader errs", xlabel="error rate of the grader, per cent", ylabel="RI seen")
    left.set(xlim=(0, 7.7), ylim=(0.1, 0.56), xticks=range(6))
    left.annotate(f"truth {true:.3f}", (0.1, true + 0.008), fontsize=7, color=GREY)

    missing = np.linspace(0, 0.1, 51)
    low, high, dropped = completed(shares, missing)
    right.fill_between(100 * missing, low, high, color=PALE, linewidth=0)
    for line, label, colour, up in (
        (high, "all wrong: the paper", MODEL_COLOURS[1], 4),
        (dropped, "left out", GREY, -5),
        (low, "all right", MODEL_COLOURS[0], 0),
    ):
        right.plot(100 * missing, line, color=colour)
        right.annotate(
            label, (10, line[-1]), (4, up), textcoords="offset points", fontsize=7.5, color=colour, va="center"
        )
    right.set(title="Forced answers are missing", xlabel="of the refused questions, per cent", ylabel="RI, as counted")
    right.set(xlim=(0, 16.2), ylim=(0.1, 0.56), xticks=range(0, 11, 2))


def misgraded(shares: tuple[FloatArray, ...], f_c: FloatArray, f_w: FloatArray) -> FloatArray:
    """Return the index seen through a grader that takes right for wrong at a rate f_c, and wrong for right at f_w."""
    n11, n10, n01, n00 = shares
    refused_wrong, refused_right = (1 - f_w) * n11 + f_c * n10, f_w * n11 + (1 - f_c) * n10
    return index_of((refused_wrong, refused_right, (1 - f_w) * n01 + f_c * n00, f_w * n01 + (1 - f_c) * n00))


def completed(shares: tuple[FloatArray, ...], missing: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the index if what is missing of the refused were all right, all wrong, or were left out."""
    n11, n10, n01, n00 = shares
    lost, some, others = missing * (n11 + n10), (1 - missing) * n11, (1 - missing) * n10
    return (
        index_of((some, others + lost, n01, n00)),
        index_of((some + lost, others, n01, n00)),
        index_of((some, others, n01, n00)),
    )


DRAWN: dict[str, Callable[[Figure], None]] = {
    "two-thresholds": two_thresholds,
    "attenuation": attenuation,
    "identifiability": identifiability,
    "grading": grading,
}


def main() -> None:
    """Write every picture."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    with house_style():
        for name, draw in DRAWN.items():
            figure = new_figure(WIDTH)
            draw(figure)
            figure.savefig(PICTURES / f"{name}.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
