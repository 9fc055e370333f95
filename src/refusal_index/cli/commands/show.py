"""``refusal-index show``: every metric of a run or of outcome tables, and every note on them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from refusal_index.cli import console
from refusal_index.cli.inputs import only_folder, summary_of
from refusal_index.cli.shared_options import DEFAULT_LEVEL, columns_of, weights_of


def show(
    files: list[Path],
    /,
    column: list[str] | None = None,
    penalty: Annotated[float | None, typer.Option(min=0)] = None,
    truthfulness_weights: str | None = None,
    confidence_level: Annotated[float | None, typer.Option(min=0.5, max=0.9999)] = None,
    cluster: str | None = None,
    weight: str | None = None,
) -> None:
    """Show every metric of a run.

    Prints all metrics with intervals, and every note. Without options, shows the results as the run stored them.
    Changes nothing.

    Exit status: 0 done, 2 bad input.

    - `files` RUN: Folder of one run, or outcome tables (.csv, .jsonl, .parquet).
    - `column` ROLE=NAME: Name a column of the tables, as in wrong=is_error. Repeatable.
    - `penalty`: Penalty for a wrong answer in the weighted score. [default: that of the run, else 1]
    - `confidence_level`: Confidence level of every interval. [default: 0.95]
    """
    from refusal_index.data.sampling import Sampling
    from refusal_index.render.display import run_blocks
    from refusal_index.render.summary import summary_blocks
    from refusal_index.runs.writing import open_run

    folder, options = (
        only_folder("show", files),
        (penalty, truthfulness_weights, confidence_level, cluster, weight, column or None),
    )
    if folder and options == (None,) * len(options):
        console.show(run_blocks(open_run(folder)))
        return
    payoffs: dict[str, Any] = {"penalty": penalty, "truthfulness_weights": weights_of(truthfulness_weights)}
    given = {name: value for name, value in payoffs.items() if value is not None}
    level, columns = confidence_level or DEFAULT_LEVEL, columns_of(column or [])
    console.show(summary_blocks(summary_of(files, Sampling(cluster, weight), given, level, columns)))
