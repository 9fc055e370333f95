"""``refusal-index score``: the table from outcomes alone, or everything derived of a run anew."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from refusal_index.cli import console
from refusal_index.cli.console import INCOMPLETE, OptionError
from refusal_index.cli.inputs import how_to_show, only_folder, summary_of
from refusal_index.cli.shared_options import DEFAULT_LEVEL, ConfidenceLevel, weights_of


def score(
    files: list[Path] | None = None,
    /,
    penalty: Annotated[float | None, typer.Option(min=0)] = None,
    truthfulness_weights: str | None = None,
    confidence_level: ConfidenceLevel = DEFAULT_LEVEL,
    cluster: str | None = None,
    weight: str | None = None,
    regrade: bool = False,
    rates: Path | None = None,
    json: bool = False,
) -> None:
    """Compute the Refusal Index from outcomes, or from published rates.

    For a run's folder, rebuild its outcome table and its summary from its replies, without a request; with --cluster or
    --weight print the numbers of its outcomes as they are, and change nothing. Exit status: 0 done, 1 more than 2 % of
    the questions unscored, 2 bad input.

    - `files` FILE: Outcome tables (.csv, .jsonl, .parquet; columns refused and wrong are enough), or one run's folder.
    - `penalty`: Penalty of the Weighted score. [default: the run's own, else 1]
    - `regrade`: Grade a folder that other rules made by those of this release.
    - `rates` FILE: Published rates in the place of outcomes: columns correct_rate, refusal_rate, forced_accuracy, n.
    """
    from refusal_index.data.sampling import OWN_COLUMNS, Sampling
    from refusal_index.findings.summary import is_complete
    from refusal_index.render.first_screen import first_screen
    from refusal_index.render.summary import summary_document

    worth = {"penalty": penalty, "truthfulness_weights": weights_of(truthfulness_weights)}
    given: dict[str, Any] = {name: value for name, value in worth.items() if value is not None}
    if rates is not None:
        if files:
            raise OptionError(f"score: expected outcomes or --rates, got both {files[0]} and {rates}; score one")
        _score_rates(rates, given, confidence_level, as_json=json)
        return
    if not files:
        raise OptionError("score: expected outcome tables or a run's folder, or --rates FILE, got nothing")
    sampling, folder = Sampling(cluster, weight), only_folder("score", files)
    if folder and sampling == OWN_COLUMNS:
        complete = _score_run(folder, given, confidence_level, regrade=regrade, as_json=json)
    else:
        summary = summary_of(files, sampling, given, confidence_level)
        complete = is_complete(summary)
        if json:
            console.document(summary_document(summary))
        else:
            level = None if confidence_level == DEFAULT_LEVEL else confidence_level
            options = worth | {"confidence_level": level, "cluster": cluster, "weight": weight}
            options["truthfulness_weights"] = truthfulness_weights
            console.show(first_screen(summary))
            console.say()
            console.say(how_to_show(files, options))
    if not complete:
        raise typer.Exit(INCOMPLETE)


def _score_rates(path: Path, worth: Mapping[str, Any], confidence_level: float, *, as_json: bool) -> None:
    from refusal_index.data.rates import read_rates
    from refusal_index.findings.summary import summarise_rates
    from refusal_index.render.first_screen import first_screen
    from refusal_index.render.format import span
    from refusal_index.render.summary import summary_document

    rows = read_rates(path)
    summary = summarise_rates(rows, **worth, confidence_level=confidence_level)
    if as_json:
        ends = [dict(zip(("low", "high"), row.range, strict=True)) for row in rows]
        ranges = [{"model": row.model, "dataset": row.dataset, **end} for row, end in zip(rows, ends, strict=True)]
        console.document(summary_document(summary) | {"rounding": ranges})
        return
    console.show(first_screen(summary))
    console.say()
    console.prose("From published rates; intervals allow for their rounding. RI of all rates that round to these:")
    for row in rows:
        cells = ", ".join(f"{count:,}" for count in row.table.counts)
        console.say(f"  {row.model}: {span(*row.range)} (cells {cells})")
    console.say("all metrics: add --json")


def _score_run(path: Path, worth: Mapping[str, Any], confidence_level: float, *, regrade: bool, as_json: bool) -> bool:
    from refusal_index.cli.runs import show_run
    from refusal_index.runs.writing import ComparabilityError, open_run, rebuild

    try:
        run = rebuild(path, **worth, confidence_level=confidence_level, regrade=regrade)
    except ComparabilityError as error:
        console.note(f"note: {error}; --regrade grades its replies anew")
        run = open_run(path)
    return show_run(run, as_json=as_json)
