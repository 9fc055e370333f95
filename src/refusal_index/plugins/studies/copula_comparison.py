"""Copulas compared: the paper's table over single 2x2 tables, and beside it the test that can tell copulas apart.

One table cannot choose between copulas: with its margins given, one parameter fits it exactly in every family that can
reach it. Several prompts over the same questions can, if they share one dependence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from refusal_index import stats
from refusal_index.data.runs import ComparedRun
from refusal_index.data.sampling import outcome_matrix
from refusal_index.plugins.studies import copulas, style
from refusal_index.plugins.studies.scatter import label_points
from refusal_index.plugins.studies.scores import caption, chosen_runs, defined_tables, display_names
from refusal_index.plugins.studies.study import NotPossibleError, Study, StudyOptions, described
from refusal_index.render.format import number

NAME, TITLE, NEEDS = described("copula_comparison")

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


def make(runs: Sequence[ComparedRun], options: StudyOptions) -> Study:
    """Make the study; raises NotPossibleError if no table has a defined index."""
    chosen, notes = chosen_runs(runs)
    defined, undefined = defined_tables(chosen)
    notes, tables = (*notes, *undefined), [one.table for one in defined]
    if not tables:
        raise NotPossibleError(f"It needs {NEEDS}.", notes)
    tests, said = _tests(chosen)
    rows = [_fit_row(row, len(tables)) for row in copulas.copula_win_rates(tables, count_df=True)]
    frame = pl.DataFrame([*rows, *tests], schema=_SCHEMA, orient="row")
    rejected = (
        frame.filter(pl.col("part") == "test_over_variants").filter(pl.col("pvalue_holm") < 0.05)["family"].to_list()
    )
    text = caption(
        NAME,
        options,
        tables=len(tables),
        tested=frame.filter(part="test_over_variants")["model"].n_unique(),
        ruled_out="; ".join(f"{FAMILY_LABELS[family]} {rejected.count(family)}" for family in copulas.COPULA_NAMES),
    )
    return Study(NAME, TITLE, text, frame, draw, (*notes, *said), printed)


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


def _fit_row(found: copulas.CopulaComparison, tables: int) -> dict[str, Any]:
    return {
        "part": "single_tables",
        "family": found.family,
        "tables": tables,
        "log_likelihood": found.log_likelihood,
        "aic": found.aic,
        "bic": found.bic,
        "gaussian_wins_log_likelihood": found.log_likelihood_wins,
        "gaussian_wins_aic": found.aic_wins,
        "gaussian_wins_bic": found.bic_wins,
        "ties": found.ties,
        "status": "ok",
    }


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
    return {
        "part": "test_over_variants",
        "family": found.family,
        "model": name,
        "dataset": run.dataset,
        "tables": len(found.tables) - len(found.left_out),
        "parameter": found.parameter,
        "statistic": found.statistic,
        "degrees_of_freedom": found.degrees_of_freedom,
        "pvalue": found.pvalue,
        "status": found.status,
        "reason": found.reason,
    }


def printed(frame: pl.DataFrame) -> pl.DataFrame:
    """Print the paper's table, and beside it for how many models the test rules the family out at 5 % (Holm)."""
    tests = frame.filter(part="test_over_variants")
    rows = []
    for row in frame.filter(part="single_tables").iter_rows(named=True):
        own = tests.filter(family=row["family"]).drop_nulls("pvalue")["pvalue_holm"]
        shares = {
            "LL wins": number(row["gaussian_wins_log_likelihood"]),
            "AIC wins": number(row["gaussian_wins_aic"]),
            "BIC wins": number(row["gaussian_wins_bic"]),
            "ties": number(row["ties"]),
        }
        fits = {
            "log-likelihood": number(row["log_likelihood"], 2),
            "AIC": number(row["aic"], 2),
            "BIC": number(row["bic"], 2),
        }
        ruled_out = f"{int((own < 0.05).sum())} of {own.len()}"
        rows.append({"family": FAMILY_LABELS[row["family"]], **fits, **shares, "ruled out": ruled_out})
    return pl.DataFrame(rows)


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
    for y, (gap, ties) in enumerate(gaps):
        # What rounding leaves of a tie is not a gap.
        axes.plot(0.0 if ties == 1 else gap, y, "o", color=style.INK)
        if y:
            axes.annotate(
                f"{ties:.0%} ties",
                (1.02, y),
                xycoords=("axes fraction", "data"),
                va="center",
                fontsize=6.5,
                color=style.GREY,
            )
    widest = max(abs(gap) for gap, ties in gaps if ties < 1) if any(ties < 1 for _, ties in gaps) else 1.0
    axes.set_xlim(-1.3 * widest, 0.5 * widest)
    style.few_ticks(axes.xaxis, 4)


def _draw_tests(axes: Axes, tests: pl.DataFrame) -> None:
    models = tests["model"].to_list()
    colours, markers = style.model_colours(models), style.model_markers(models)
    places = {family: y for y, family in enumerate(copulas.COPULA_NAMES)}
    names, short = list(colours), style.short_names(models)
    spread = 0.5 if len(names) <= style.MOST_LABELS else 0.8
    axes.set_xscale("log")
    axes.axvspan(SMALLEST_PVALUE / 2, 0.05, color="#f4f4f4", zorder=0)
    for row in tests.filter(pl.col("pvalue").is_not_null()).iter_rows(named=True):
        shift = spread * ((names.index(row["model"]) + 0.5) / len(names) - 0.5)
        x, y = max(row["pvalue"], SMALLEST_PVALUE), places[row["family"]] + shift
        axes.plot(x, y, markers[row["model"]], color=colours[row["model"]], markersize=4.5)
    axes.set(
        xlim=(SMALLEST_PVALUE / 2, 1.5), title="All variants at once", xlabel="p-value, unadjusted; shaded: below 5 %"
    )
    if len(names) > style.MOST_LABELS:
        return
    first = tests.filter(pl.col("pvalue").is_not_null(), family="gaussian")
    shifts = [spread * ((names.index(model) + 0.5) / len(names) - 0.5) for model in first["model"]]
    spots = [(max(p, SMALLEST_PVALUE), shift) for p, shift in zip(first["pvalue"], shifts, strict=True)]
    label_points(axes, spots, [short[m] for m in first["model"]], [colours[m] for m in first["model"]], size=6)
