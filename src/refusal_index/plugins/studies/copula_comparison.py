"""Copulas compared: the paper's table over single 2x2 tables, and beside it the test that can tell copulas apart.

One table cannot choose between copulas: with its margins given, one parameter fits it exactly in every family that can
reach it. Several prompts over the same questions can, if they share one dependence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from refusal_index import stats
from refusal_index.data.runs import ComparedRun
from refusal_index.data.sampling import outcome_matrix
from refusal_index.plugins.studies import copulas, style
from refusal_index.plugins.studies.runs import chosen_runs, defined_tables, display_names
from refusal_index.plugins.studies.study import NotPossibleError, Study, StudyOptions, study
from refusal_index.plugins.studies.style import label_points
from refusal_index.plugins.studies.tables import Cell, fixed, labelled, printed_table

FAMILY_LABELS = {
    "gaussian": "Gaussian",
    "t": "Student t, 4 df",
    "clayton": "Clayton",
    "gumbel": "Gumbel",
    "frank": "Frank",
    "survival_clayton": "Survival Clayton",
    "survival_gumbel": "Survival Gumbel",
}
SMALLEST_PVALUE = 1e-4
"""Smaller p-values are drawn here, at the edge."""


@study
def copula_comparison(runs: Sequence[ComparedRun], _options: StudyOptions) -> Study:
    """Make the study; raises NotPossibleError if no table has a defined index."""
    chosen, notes = chosen_runs(runs)
    defined, undefined = defined_tables(chosen)
    notes, tables = (*notes, *undefined), [one.table for one in defined]
    if not tables:
        raise NotPossibleError(notes=notes)
    tests, said = _tests(chosen)
    rows = [_fit_row(row, len(tables)) for row in copulas.copula_win_rates(tables, count_df=True)]
    frame = pl.DataFrame([*rows, *tests], schema=_SCHEMA, orient="row")
    tested = frame.filter(part="test_over_variants")
    rejected = tested.filter(pl.col("pvalue_holm") < 0.05)["family"].to_list()
    values = {
        "tables": len(tables),
        "tested": tested["model"].n_unique(),
        "ruled_out": "; ".join(f"{FAMILY_LABELS[family]} {rejected.count(family)}" for family in copulas.COPULA_NAMES),
    }
    return Study(frame, draw, printed, (*notes, *said), values)


_SCHEMA = {
    **dict.fromkeys(("part", "family", "model", "dataset"), pl.String),
    "tables": pl.Int64,
    **dict.fromkeys(("log_likelihood", "aic", "bic", "gaussian_wins_log_likelihood", "gaussian_wins_aic"), pl.Float64),
    **dict.fromkeys(("gaussian_wins_bic", "ties", "parameter", "statistic"), pl.Float64),
    "degrees_of_freedom": pl.Float64,
    "pvalue": pl.Float64,
    "pvalue_holm": pl.Float64,
    "status": pl.String,
    "reason": pl.String,
}


SHARES = {"log_likelihood": "LL wins", "aic": "AIC wins", "bic": "BIC wins"}


FITS = {"log_likelihood": "log-likelihood", "aic": "AIC", "bic": "BIC"}


def _fit_row(found: copulas.CopulaComparison, tables: int) -> dict[str, Any]:
    fits = {name: getattr(found, name) for name in FITS}
    wins = {f"gaussian_wins_{name}": getattr(found, f"{name}_wins") for name in SHARES}
    whose = {"part": "single_tables", "family": found.family, "tables": tables}
    return {**whose, **fits, **wins, "ties": found.ties, "status": "ok"}


def _tests(runs: Sequence[ComparedRun]) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Test every family on the variants of each run, the p-values of all tests adjusted by Holm's method."""
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    for run, name in zip(runs, display_names(runs), strict=True):
        found = copulas.copula_tests(*outcome_matrix(list(run.variants.values())).arrays)
        if all(test.pvalue is None for test in found):
            notes.append(f"The test over the variants of {name} is not possible ({found[0].reason}).")
        else:
            by_family = {test.family: test for test in found}
            rows += (_test_row(by_family[family], name, run) for family in copulas.COPULA_NAMES)
    tested = [row for row in rows if row["pvalue"] is not None]
    for row, adjusted in zip(tested, stats.holm([row["pvalue"] for row in tested]).tolist(), strict=True):
        row["pvalue_holm"] = adjusted
    return rows, tuple(notes)


def _test_row(found: copulas.CopulaTestResult, name: str, run: ComparedRun) -> dict[str, Any]:
    columns = ("family", "parameter", "statistic", "degrees_of_freedom", "pvalue", "status", "reason")
    whose = {"part": "test_over_variants", "model": name, "dataset": run.dataset}
    tables = len(found.tables) - len(found.left_out)
    return {**whose, "tables": tables, **{column: getattr(found, column) for column in columns}}


def printed(frame: pl.DataFrame) -> pl.DataFrame:
    """Print the paper's table, and beside it for how many models the test rules the family out at 5 % (Holm)."""
    tests = frame.filter(part="test_over_variants")

    def ruled_out(row: Mapping[str, Any]) -> str:
        own = tests.filter(family=row["family"]).drop_nulls("pvalue")["pvalue_holm"]
        return f"{int((own < 0.05).sum())} of {own.len()}"

    columns: dict[str, str | Cell] = {
        "family": labelled(FAMILY_LABELS, "family"),
        **{heading: fixed(name, 2) for name, heading in FITS.items()},
        **{heading: fixed(f"gaussian_wins_{name}") for name, heading in SHARES.items()},
        "ties": fixed("ties"),
        "ruled out": ruled_out,
    }
    return printed_table(frame.filter(part="single_tables"), columns)


def draw(figure: Figure, frame: pl.DataFrame) -> None:
    """Draw mean log-likelihoods less the Gaussian's, and the p-value of every family for every model."""
    fits, tests = (frame.filter(part=part) for part in ("single_tables", "test_over_variants"))
    # Of many models the points of one family need room below each other.
    models = tests["model"].unique(maintain_order=True).to_list()
    height = 2.9 + 0.1 * max(0, len(models) - style.MOST_LABELS)
    figure.set_size_inches(style.WIDTH * 1.25 if tests.height else style.WIDTH * 0.7, height)
    axes = figure.subplots(1, 2 if tests.height else 1, sharey=True, squeeze=False)[0]
    _draw_fits(axes[0], fits)
    axes[0].set_yticks(range(fits.height), [FAMILY_LABELS[family] for family in fits["family"]])
    axes[0].set_ylim(fits.height - 0.5, -0.5)
    if tests.height:
        _draw_tests(axes[1], tests)
        if len(models) > style.MOST_LABELS:
            style.model_legend(figure, models)
    for panel in axes:
        panel.grid(visible=False, axis="y")


def _draw_fits(axes: Axes, fits: pl.DataFrame) -> None:
    gaussian = fits.filter(family="gaussian")["log_likelihood"][0]
    axes.axvline(0, color=style.PALE)
    axes.set_title("One table at a time")
    axes.set_xlabel("mean log-likelihood less the Gaussian's")
    gaps = [(row["log_likelihood"] - gaussian, row["ties"]) for row in fits.iter_rows(named=True)]
    beside: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "va": "center", "color": style.GREY}
    for y, (gap, ties) in enumerate(gaps):
        # What rounding leaves of a tie is not a gap.
        axes.plot(0.0 if ties == 1 else gap, y, "o", color=style.INK)
        if y:
            axes.annotate(f"{ties:.0%} ties", (1.02, y), fontsize=6.5, **beside)
    widest = max((abs(gap) for gap, ties in gaps if ties < 1), default=1.0)
    axes.set_xlim(-1.3 * widest, 0.5 * widest)
    style.few_ticks(axes.xaxis, 4)


def _draw_tests(axes: Axes, tests: pl.DataFrame) -> None:
    models = tests["model"].unique(maintain_order=True).to_list()
    colours, markers, short = style.model_colours(models), style.model_markers(models), style.short_names(models)
    few = len(models) <= style.MOST_LABELS
    shifts = style.shifts(models, (0.25 if few else 0.4) * (1 - 1 / len(models)))
    axes.set_xscale("log")
    axes.axvspan(SMALLEST_PVALUE / 2, 0.05, color="#f4f4f4", zorder=0)
    spots = []
    for row in tests.drop_nulls("pvalue").iter_rows(named=True):
        model = row["model"]
        x, y = max(row["pvalue"], SMALLEST_PVALUE), copulas.COPULA_NAMES.index(row["family"]) + shifts[model]
        style.mark(axes, x, y, colours[model], markers[model], size=4.5)
        if row["family"] == "gaussian":
            spots.append((x, y, short[model], colours[model]))
    label = "p-value, unadjusted; shaded: below 5 %"
    axes.set(xlim=(SMALLEST_PVALUE / 2, 1.5), title="All variants at once", xlabel=label)
    if few and spots:
        xs, ys, names, inks = zip(*spots, strict=True)
        label_points(axes, list(zip(xs, ys, strict=True)), names, inks, size=6)
