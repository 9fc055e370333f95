"""Commands that show results: ``score``, ``show``, ``report`` and ``compare``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from refusal_index.cli import console
from refusal_index.cli.console import INCOMPLETE, OptionError, one_of
from refusal_index.cli.shared_options import (
    DEFAULT_LEVEL,
    ConfidenceLevel,
    Penalty,
    columns_of,
    how_to_show,
    only_folder,
    output,
    payoffs_of,
    readable_runs,
    report_left_out,
    summary_of,
    weights_of,
)


def score(
    files: list[Path] | None = None,
    /,
    column: list[str] | None = None,
    penalty: Annotated[float | None, typer.Option(min=0)] = None,
    truthfulness_weights: str | None = None,
    confidence_level: ConfidenceLevel = DEFAULT_LEVEL,
    cluster: str | None = None,
    weight: str | None = None,
    regrade: bool = False,
    rates: Path | None = None,
    json: bool = False,
) -> None:
    """Compute the Refusal Index from graded answers.

    Reads outcome tables or published rates. For the folder of a run, rebuilds its outcome table and summary from the
    stored replies, without a request; with --cluster or --weight it prints the results and changes nothing.

    Exit status: 0 done, 1 more than 2% of the questions unscored, 2 bad input.

    - `files` FILE: Outcome tables (.csv, .jsonl, .parquet; the columns refused and wrong suffice), or the folder of one
      run.
    - `column` ROLE=NAME: Name a column of the tables, as in wrong=is_error. Repeatable.
    - `penalty`: Penalty for a wrong answer in the weighted score. [default: that of the run, else 1]
    - `regrade`: If another version graded the run by other rules, grade its replies again by the rules of this version.
    - `rates` FILE: Published rates instead of outcomes: columns correct_rate, refusal_rate, forced_accuracy, n.
    """
    from refusal_index.data.outcome_table import OWN_COLUMNS, Sampling
    from refusal_index.findings.summary import is_complete
    from refusal_index.render.summary import first_screen, summary_document

    payoffs = payoffs_of(penalty, truthfulness_weights)
    if rates is not None:
        if files:
            raise OptionError(
                f"score: expected outcomes or --rates, got both {files[0]} and {rates}; leave out one of them"
            )
        _score_rates(rates, payoffs, confidence_level, as_json=json)
        return
    if not files:
        raise OptionError("score: expected outcome tables, a run's folder or --rates FILE, got nothing; name one")
    sampling, folder = Sampling(cluster, weight), only_folder("score", files)
    if folder and sampling == OWN_COLUMNS and not column:
        from refusal_index.cli.runs import show_run
        from refusal_index.runs.writing import ComparabilityError, open_run, rebuild

        try:
            run = rebuild(folder, **payoffs, confidence_level=confidence_level, regrade=regrade)
        except ComparabilityError as error:
            console.note(f"note: {error}; add --regrade to grade its replies again")
            run = open_run(folder)
        complete = show_run(run, as_json=json)
    else:
        summary = summary_of(files, sampling, payoffs, confidence_level, columns_of(column))
        complete = is_complete(summary)
        if json:
            console.document(summary_document(summary))
        else:
            options = {
                "penalty": penalty,
                "truthfulness_weights": truthfulness_weights,
                "confidence_level": None if confidence_level == DEFAULT_LEVEL else confidence_level,
                "cluster": cluster,
                "weight": weight,
                "column": column,
            }
            console.show(first_screen(summary))
            console.say()
            console.say(how_to_show(files, options))
    if not complete:
        raise typer.Exit(INCOMPLETE)


def _score_rates(path: Path, payoffs: Mapping[str, Any], confidence_level: float, *, as_json: bool) -> None:
    from refusal_index.data.rates import read_rates
    from refusal_index.findings.summary import summarise_rates
    from refusal_index.render.format import span
    from refusal_index.render.summary import first_screen, summary_document

    rows = read_rates(path)
    summary = summarise_rates(rows, **payoffs, confidence_level=confidence_level)
    if as_json:
        ranges = [
            {"model": row.model, "dataset": row.dataset, **dict(zip(("low", "high"), row.range, strict=True))}
            for row in rows
        ]
        console.document(summary_document(summary) | {"rounding": ranges})
        return
    console.show(first_screen(summary))
    console.say()
    console.prose("From published rates; intervals allow for their rounding. RI of all rates that round to these:")
    for row in rows:
        cells = ", ".join(f"{count:,}" for count in row.table.counts)
        console.say(f"  {row.model}: {span(*row.range)} (cells {cells})")
    console.say("Add --json for all metrics.")


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

    Prints all metrics with intervals, and every note. Without options, prints the results as stored with the run.
    Changes nothing.

    Exit status: 0 done, 2 bad input.

    - `files` RUN: Folder of one run, or outcome tables (.csv, .jsonl, .parquet).
    - `column` ROLE=NAME: Name a column of the tables, as in wrong=is_error. Repeatable.
    - `penalty`: Penalty for a wrong answer in the weighted score. [default: that of the run, else 1]
    - `confidence_level`: Confidence level of every interval. [default: 0.95]
    """
    from refusal_index.data.outcome_table import Sampling
    from refusal_index.render.summary import summary_blocks
    from refusal_index.runs.writing import open_run, run_blocks

    folder = only_folder("show", files)
    options = (penalty, truthfulness_weights, confidence_level, cluster, weight, column or None)
    if folder and all(option is None for option in options):
        console.show(run_blocks(open_run(folder)))
        return
    payoffs, level = payoffs_of(penalty, truthfulness_weights), confidence_level or DEFAULT_LEVEL
    console.show(summary_blocks(summary_of(files, Sampling(cluster, weight), payoffs, level, columns_of(column))))


_PAGE = "report.html"


def report(
    runs: list[Path],
    /,
    out: Annotated[Path | None, output(allowed=_PAGE)] = None,
    penalty: Annotated[float | None, typer.Option(min=0)] = None,
    truthfulness_weights: str | None = None,
    confidence_level: ConfidenceLevel = 0.95,
    cluster: str | None = None,
    weight: str | None = None,
) -> None:
    """Write an HTML report.

    One file with the index and its uncertainty, the prompts side by side, the effect of other grading decisions, the
    settings, and every question with both replies. It works without a network connection.

    Exit status: 0 done, 1 done without a run that could not be read, 2 bad input, or no readable run.

    - `runs` RUN: Folders of runs, folders of sets, or outcome tables (.csv, .jsonl, .parquet).
    - `out` FILE: File to write. [default: report.html in the folder of the run, or next to the table]
    - `penalty`: Penalty for a wrong answer in the weighted score. [default: that of the run, else 1]
    """
    from refusal_index.data.outcome_table import Sampling
    from refusal_index.errors import NotWrittenError
    from refusal_index.render.report import read_report_runs, write_report

    if out is None and len(runs) > 1:
        raise OptionError("report: expected --out FILE, since the report covers several runs, got none; add it")
    path = out or (runs[0] if runs[0].is_dir() else runs[0].parent) / _PAGE
    _refuse_foreign(path)
    readable, left_out = read_report_runs(
        runs,
        penalty=penalty,
        truthfulness_weights=weights_of(truthfulness_weights),
        confidence_level=confidence_level,
        sampling=Sampling(cluster, weight),
    )
    report_left_out(left_out)
    try:
        written = write_report(readable, path, left_out=left_out)
    except NotWrittenError:
        raise
    except OSError as error:
        raise OptionError(f"--out: {path} cannot be written ({error.strerror}); choose another place") from error
    extent = f"{written.n_cut:,} texts cut to {written.limit:,} characters" if written.n_cut else "all texts in full"
    extent = extent if written.limit else "without replies, which would make it too large"
    console.say(f"Report: {written.path} ({written.size / 1e6:.1f} MB, {extent})")
    if left_out:
        raise typer.Exit(INCOMPLETE)


def _refuse_foreign(path: Path) -> None:
    """Refuse to overwrite what is not a report: a mistyped ``--out`` must not destroy an outcome table."""
    from refusal_index.render.report import is_report

    if path.is_dir():
        raise OptionError(f"--out: expected a file, got the folder {path}; name a file in it, such as {path / _PAGE}")
    try:
        foreign = os.path.lexists(path) and not is_report(path)
    except OSError as error:
        raise OptionError(f"--out: {path}: {error.strerror}; name another file, or remove this one") from error
    if foreign:
        raise OptionError(f"--out: {path} exists and is not a report; name another file, or move it away")


def compare(
    runs: list[Path],
    /,
    variants: str | None = None,
    metric: str = "refusal_index",
    adjustment: str = "max-t",
    penalty: Penalty = 1.0,
    truthfulness_weights: str | None = None,
    confidence_level: ConfidenceLevel = 0.95,
    cluster: str | None = None,
    weight: str | None = None,
    seed: int = 0,
    full: bool = False,
    json: bool = False,
) -> None:
    """Compare models on the same questions.

    Two runs: the difference of every metric, the first minus the second, with an interval and a p-value. Three or more:
    a ranking in which runs that share a letter differ within sampling error. Questions are matched by id; runs on
    different questions are compared as independent samples, with a note.

    Go by RI. If every run has repeated samples (run --draws 2), the difference in corrected RI is shown too, with a
    note where the two disagree.

    Exit status: 0 done, 1 done without a run that could not be read, 2 bad input, or fewer than two readable runs.

    - `runs` RUN: Folders of runs, folders of sets, or outcome tables (.csv, .jsonl, .parquet); at least two models.
    - `variants` NAME: Compare under this prompt only. [default: each prompt that the runs share, and all
      combined]
    - `metric`: Metric to rank by, for three runs or more.
    - `adjustment`: Adjustment of a ranking for multiple comparisons: 'max-t' or 'holm'.
    - `seed`: Random seed of the simulation for max-t.
    - `full`: Print every metric, pair and note.
    - `json`: Print everything as JSON and nothing else.
    """
    from refusal_index.data.outcome_table import Sampling
    from refusal_index.data.rates import BY_ANSWERABLE
    from refusal_index.data.run_json import TruthfulnessWeights
    from refusal_index.findings.comparison import CompareOptions, compare_pair
    from refusal_index.findings.metrics import METRICS
    from refusal_index.findings.ranking import rank
    from refusal_index.render.comparison import pair_blocks, pair_screen, ranking_blocks, ranking_screen
    from refusal_index.render.sections import compared_sections

    options = CompareOptions(
        variant=variants,
        metric=one_of("--metric", metric, [name for name in METRICS if name not in BY_ANSWERABLE]),
        adjustment="holm" if one_of("--adjustment", adjustment, ["max-t", "holm"]) == "holm" else "max-t",
        penalty=penalty,
        truthfulness_weights=weights_of(truthfulness_weights) or TruthfulnessWeights(),
        confidence_level=confidence_level,
        seed=seed,
        sampling=Sampling(cluster, weight),
    )
    readable = readable_runs(runs, options.sampling)
    if len(readable.runs) < 2:
        raise OptionError(
            f"compare: expected two models or more, got {readable.runs[0].label} alone; "
            "add the folder or the outcome table of another run"
        )
    if len(readable.runs) == 2:
        pair = compare_pair(readable.runs, options, compared_sections(readable.runs, options))
        document, blocks = pair.to_document, (pair_blocks if full else pair_screen)(pair)
    else:
        ranking = rank(readable.runs, options)
        document, blocks = ranking.to_document, (ranking_blocks if full else ranking_screen)(ranking)
    if json:
        console.document(document())
    else:
        console.show(blocks)
        if not full:
            console.show(["", "Add --full for all metrics, pairs and notes."])
    if readable.left_out:
        raise typer.Exit(INCOMPLETE)
