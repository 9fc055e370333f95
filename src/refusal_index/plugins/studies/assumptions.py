"""Sensitivity of the Refusal Index to its assumptions: the Gaussian copula, and the grading of answers.

`copula_comparison` is the paper's comparison over single 2x2 tables, with a test that can distinguish copulas. A single
table cannot: given its margins, one parameter fits it exactly in every family that can reach it. Several prompts over
the same questions can, if they share one dependence.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from refusal_index import stats
from refusal_index.data.rates import outcome_matrix
from refusal_index.findings.run_results import RunResults
from refusal_index.plugins.studies import copulas, inputs, style
from refusal_index.plugins.studies.study import NotPossibleError, Study, StudyOptions, schema, study, study_text
from refusal_index.render.format import abridged, pvalue
from refusal_index.stats.copulas import COPULA_NAMES

FAMILY_LABELS = {
    "gaussian": "Gaussian",
    "t": "Student t, 4 df",
    "clayton": "Clayton",
    "gumbel": "Gumbel",
    "frank": "Frank",
    "survival_clayton": "Survival Clayton",
    "survival_gumbel": "Survival Gumbel",
}


@study
def copula_comparison(runs: Sequence[RunResults], _options: StudyOptions) -> Study:
    """Make the study; raises NotPossibleError if no table has a defined index."""
    chosen, others = inputs.of_one_dataset(runs)
    defined, notes = inputs.defined_tables(chosen)
    notes = (*others, *notes)
    tables = [source.table for source in defined]
    if not tables:
        raise NotPossibleError(notes=notes)
    tests, impossible = _tests(inputs.chosen_runs(chosen)[0])
    whole = {"part": "single_tables", "tables": len(tables), "status": "ok"}
    rows = [{**whole, **row} for row in copulas.copula_win_rates(tables)]
    frame = pl.DataFrame(
        [*rows, *tests],
        schema=schema(
            "part family model dataset tables log_likelihood aic bic gaussian_wins_log_likelihood gaussian_wins_aic "
            "gaussian_wins_bic ties parameter statistic degrees_of_freedom pvalue pvalue_holm status reason"
        ),
        orient="row",
    )
    tested = frame.filter(part="test_over_variants")
    rejected = tested.filter(pl.col("pvalue_holm") < 0.05)["family"].to_list()
    return Study(
        frame,
        _draw_copulas,
        _printed_copulas,
        (*notes, *impossible),
        values={
            **inputs.data_values(chosen),
            "tables": len(tables),
            "tested": tested["model"].n_unique(),
            "ruled_out": "; ".join(f"{FAMILY_LABELS[family]} {rejected.count(family)}" for family in COPULA_NAMES),
        },
    )


LEAST_REACH = 0.1
"""Smallest difference of log-likelihoods that the axis shows; differences near 0 are no evidence."""

FITS = {"log_likelihood": "log-likelihood", "aic": "AIC", "bic": "BIC"}


def _tests(runs: Sequence[RunResults]) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Test every family on the variants of each run; the p-values of all tests are Holm-adjusted."""
    rows: list[dict[str, Any]] = []
    impossible: dict[str, list[str]] = {}
    for run, name in zip(runs, inputs.display_names(runs), strict=True):
        results = copulas.copula_tests(*outcome_matrix(list(run.tables.values())).arrays)
        if all(test.pvalue is None for test in results):
            impossible.setdefault(results[0].reason or "", []).append(name)
        else:
            tests = sorted(results, key=lambda test: COPULA_NAMES.index(test.family))
            labels = {"part": "test_over_variants", "model": name, "dataset": run.dataset}
            for test in tests:
                measured = {column: getattr(test, column) for column in _OF_TEST}
                rows.append({**labels, "tables": len(test.tables) - len(test.left_out), **measured})
    tested = [row for row in rows if row["pvalue"] is not None]
    for row, adjusted in zip(tested, stats.holm([row["pvalue"] for row in tested]).tolist(), strict=True):
        row["pvalue_holm"] = adjusted
    notes = (
        study_text("copula_comparison", "impossible", reason=reason, count=len(names), models=abridged(names))
        for reason, names in impossible.items()
    )
    return rows, tuple(notes)


_OF_TEST = ("family", "parameter", "statistic", "degrees_of_freedom", "pvalue", "status", "reason")


def _printed_copulas(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the paper's table, with the number of models for which the test rejects the family at 5% (Holm)."""
    tests = frame.filter(part="test_over_variants")

    def ruled_out(row: Mapping[str, Any]) -> str:
        pvalues = tests.filter(family=row["family"]).drop_nulls("pvalue")["pvalue_holm"]
        return f"{int((pvalues < 0.05).sum())} of {pvalues.len()}"

    columns = {
        "family": style.labelled(FAMILY_LABELS, "family"),
        **{heading: style.fixed(name, 2) for name, heading in FITS.items()},
        "LL wins": style.fixed("gaussian_wins_log_likelihood"),
        "AIC wins": style.fixed("gaussian_wins_aic"),
        "BIC wins": style.fixed("gaussian_wins_bic"),
        "equal": style.fixed("ties"),
        "ruled out": ruled_out,
    }
    return style.table(columns, part="single_tables")(frame)


def _draw_copulas(figure: Figure, frame: pl.DataFrame) -> None:
    """Draw mean log-likelihoods relative to the Gaussian's, and below them the p-value of every family and model."""
    fits, tests = (frame.filter(part=part) for part in ("single_tables", "test_over_variants"))
    models = tests["model"].unique(maintain_order=True).to_list()
    heights = [1.9, 0.6 + 0.19 * len(models)] if models else [1.9]
    panels = style.subplots(
        figure, style.WIDTH * 1.15, sum(heights), len(heights), 1, squeeze=False, sharex=True, height_ratios=heights
    )[:, 0]
    panels[-1].set_xticks(range(fits.height), [textwrap.fill(FAMILY_LABELS[family], 10) for family in fits["family"]])
    _draw_fits(panels[0], fits)
    if models:
        _draw_tests(panels[1], tests, models)


def _draw_fits(axes: Axes, fits: pl.DataFrame) -> None:
    gaussian = fits.filter(family="gaussian")["log_likelihood"][0]
    axes.axhline(0, color=style.PALE)
    axes.set_title("One table at a time", pad=16)
    axes.set_ylabel("mean log-likelihood\nless the Gaussian's")
    reach = LEAST_REACH
    for x, row in enumerate(fits.iter_rows(named=True)):
        gap = row["log_likelihood"] - gaussian
        reach = max(reach, abs(gap))
        axes.plot(x, gap, "o", color=style.INK)
        if row["ties"] is not None:
            text = "all equal" if row["ties"] == 1 else f"{row['ties']:.0%} equal"
            axes.annotate(
                text,
                (x, 1.02),
                xycoords=("data", "axes fraction"),
                ha="center",
                va="bottom",
                fontsize=6.5,
                color=style.GREY,
            )
    axes.set_ylim(-1.3 * reach, 0.5 * reach)
    axes.grid(visible=False, axis="x")
    style.few_ticks(axes.yaxis, 4)


def _draw_tests(axes: Axes, tests: pl.DataFrame, models: Sequence[str]) -> None:
    """Draw a table of p-values, shaded below 5%, and darker if still below it after the adjustment."""
    shades = np.zeros((len(models), len(COPULA_NAMES)))
    for row in tests.iter_rows(named=True):
        y = models.index(row["model"])
        x = COPULA_NAMES.index(row["family"])
        if row["pvalue"] is not None:
            shades[y, x] = int(row["pvalue"] < 0.05) + int(row["pvalue_holm"] < 0.05)
        axes.text(x, y, pvalue(row["pvalue"]), ha="center", va="center", fontsize=6.5)
    colours = ListedColormap([style.PAPER, style.PALEST, style.PALE])
    axes.imshow(shades, cmap=colours, vmin=0, vmax=2, aspect="auto")
    axes.set_title("All prompts at once: p-values")
    style.name_rows([axes], list(style.short_names(models, 28).values()), 6.5)
    axes.grid(visible=False)
    axes.tick_params(length=0)
