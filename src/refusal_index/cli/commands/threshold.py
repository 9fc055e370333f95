"""``refusal-index threshold``: where to cut a score, and what that is worth beside the model's own refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from refusal_index.cli import console
from refusal_index.cli.console import INCOMPLETE, OptionError
from refusal_index.cli.shared_options import Cluster, Weight, check_place, output


def threshold(
    run: Annotated[
        Path,
        typer.Argument(help="A run's folder with scores, or an outcome table with a column confidence.", metavar="RUN"),
    ],
    method: Annotated[
        str | None, typer.Option(help="Whose scores, as 'refusal-index confidence' calls them. [default: the only one]")
    ] = None,
    penalty: Annotated[
        float | None,
        typer.Option(help="Choose the cut that is worth most where a wrong answer costs so many right ones.", min=0),
    ] = None,
    max_error: Annotated[
        float | None,
        typer.Option(
            help="Choose the cut that answers most with no larger share of the answers wrong.", min=0.0001, max=0.9999
        ),
    ] = None,
    confidence_level: Annotated[
        float | None,
        typer.Option(
            help="Of the bound of --max-error, and of every interval. [default: 0.9 and 0.95]", min=0.5, max=0.9999
        ),
    ] = None,
    variant: Annotated[
        str | None, typer.Option(help="Of which prompt variant, where scores differ between variants.")
    ] = None,
    out: Annotated[
        Path | None,
        output(
            "Write the other half as a run that refuses below the cut, an outcome table (.parquet, .csv, .jsonl) "
            "for compare, report, study and score.",
            metavar="FILE",
        ),
    ] = None,
    cluster: Cluster = None,
    weight: Weight = None,
    seed: Annotated[int, typer.Option(help="Of the split into halves.", min=0)] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON and nothing else.")] = False,
) -> None:
    """Choose from which score on to answer.

    The cut is chosen on one half of the questions and judged on the other, beside the model's own refusals under each
    variant and beside answering all: how much is answered, how much of that is wrong, and what it is worth.

    With --max-error no larger share of the answers is wrong, but for a chance of one minus the confidence level, for
    questions like these. Where no cut is known to hold, that is said and nothing is written.

    Exit status: 0 done, 1 no cut does what is asked, 2 bad input.
    """
    from refusal_index.data.errors import listed
    from refusal_index.data.runs import read_runs
    from refusal_index.data.sampling import Sampling
    from refusal_index.findings.threshold import ThresholdOptions, find_threshold
    from refusal_index.render.threshold import threshold_blocks

    if (penalty is None) == (max_error is None):
        got = "neither" if penalty is None else "both"
        raise OptionError(
            f"threshold: expected --penalty or --max-error, got {got}; the first sets a price for wrong answers, the "
            "second bounds their share"
        )
    options = ThresholdOptions(method, variant, penalty, max_error, confidence_level, seed)
    if out is not None:
        check_place(out)
    runs = read_runs([run], Sampling(cluster, weight))
    if len(runs) != 1:
        raise OptionError(
            f"threshold: expected one model on one dataset, got {len(runs)} in {run}: "
            f"{listed(one.label for one in runs)}; name one run, or split the table"
        )
    found = find_threshold(runs[0], options)
    if json:
        console.document(found.to_document())
    else:
        console.show(threshold_blocks(found))
    if found.table is None:
        raise typer.Exit(INCOMPLETE)
    if out is not None:
        found.write(out)
        console.note(f"{out}: {found.table.height:,} questions, for compare, report, study and score")
