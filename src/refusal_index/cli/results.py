"""Commands that show results: ``score``, ``show``, ``report`` and ``compare``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refusal_index.cli import console
from refusal_index.cli.console import INCOMPLETE, OptionError, one_of, option
from refusal_index.cli.imported import show_scored
from refusal_index.cli.shared_options import (
    DEFAULT_LEVEL,
    OF_GRADING,
    ConfidenceLevel,
    columns_of,
    how_to_show,
    only_folder,
    output,
    readable_runs,
    takes_settings,
    weights_of,
    words_of,
)

if TYPE_CHECKING:
    import polars as pl

    from refusal_index.data.analysis import Analysis
    from refusal_index.data.imports import ReadOptions
    from refusal_index.data.outcome_table import Sampling
    from refusal_index.findings.run_results import RunResults


@takes_settings(*OF_GRADING)
def score(
    files: list[Path] | None = None,
    /,
    forced: Path | None = None,
    column: list[str] | None = None,
    map_: list[str] | None = None,
    refusal: str | None = None,
    grader: str | None = None,
    scorer: str | None = None,
    format_: str | None = None,
    rows: str | None = None,
    encoding: str = "utf-8",
    name: str | None = None,
    dataset: str | None = None,
    variants: str | None = None,
    weighted_score_p: Annotated[float | None, typer.Option(min=0)] = None,
    truthfulness_weights: str | None = None,
    confidence_level: ConfidenceLevel = DEFAULT_LEVEL,
    cluster: str | None = None,
    weight: str | None = None,
    regrade: bool = False,
    rates: Path | None = None,
    json: bool = False,
    *,
    values: Mapping[str, Any],
) -> None:
    """Compute the Refusal Index from graded answers.

    Reads outcome tables, results of other tools, or published rates. If a file holds the first pass alone, prints its
    rates and the command for the forced pass. For the folder of a run, rebuilds its outcome table and summary from the
    stored replies, without a request; with --cluster or --weight it prints the results and changes nothing. Only a
    model as --grader is sent requests; its grades are kept below runs, and are not asked for again.

    Exit status: 0 done, 1 more than 2% of the questions of both passes unscored, or not all graded, 2 bad input.

    - `files` FILE: Outcome tables or graded answers (.csv, .tsv, .jsonl, .json, .parquet, .xlsx), logs of Inspect,
      samples of lm-eval, or the folder of one run.
    - `column` ROLE=NAME: Name a column of the files, as in wrong=is_error or grade=verdict. Repeatable.
    - `weighted_score_p`: p of the weighted score c - p(1 - r): the share answered right minus p times the share
      answered. [default: that of the run, else 1]
    - `regrade`: If another version graded the run by other rules, grade its replies again by the rules of this version.
    - `refusal`: How to recognise a refusal in a reply, whatever its grade: 'wording', 'tag', +REGEX, @FILE or a
      function. A function that the folder of a run names is called only if you name it too. [default: by the grade]
    - `rates` FILE: Published rates instead of outcomes: columns correct_rate, refusal_rate, forced_accuracy, n.
    """
    from refusal_index.cli.runs import graded_with_progress, show_run
    from refusal_index.data.analysis import Analysis
    from refusal_index.data.imports import ReadOptions
    from refusal_index.data.outcome_table import OWN_COLUMNS, Sampling
    from refusal_index.runs.scoring import FilesToRead, check_asks

    sampling = Sampling(cluster, weight)
    analysis = Analysis(confidence_level, weighted_score_p, weights_of(truthfulness_weights), sampling)
    of_imports: dict[str, object] = {"--forced": forced, "--map": map_, "--scorer": scorer, "--format": format_}
    of_imports |= {option(name): value for name, value in values.items()}
    of_imports |= {"--rows": rows, "--grader": grader, "--name": name, "--dataset": dataset, "--variants": variants}
    if rates is not None:
        of_outcomes = {**of_imports, "--column": column, "--cluster": cluster, "--weight": weight, "--refusal": refusal}
        _check_alone(rates, files, {**of_outcomes, "--regrade": regrade})
        _score_rates(rates, analysis, as_json=json)
        return
    if not files:
        raise OptionError("score: expected outcome tables, a run's folder or --rates FILE, got nothing; name one")
    check_asks(grader, values)
    folder = only_folder("score", files)
    options = ReadOptions(
        *(columns_of(column), scorer, refusal, name, dataset, words_of(map_)),
        encoding=encoding,
        rows=rows,
        grader=grader,
    )
    reading = FilesToRead(files, forced, format_, options, variants)
    if folder and (any(of_imports.values()) or encoding != "utf-8"):
        given = next((name for name, value in of_imports.items() if value), "--encoding")
        raise OptionError(f"{given}: applies to other tools' files, got the folder of a run; leave it out")
    if folder and sampling == OWN_COLUMNS and not column:
        complete = show_run(_rebuilt(folder, analysis, regrade=regrade, refusal=refusal), as_json=json)
    else:
        if folder and refusal is not None:
            raise OptionError(
                "--refusal: replies of a run are read again only without --cluster, --weight and --column"
            )
        reading = reading.with_grades(values, graded_with_progress)
        scored = reading.scored(analysis)
        if not scored.read:
            _note_unused(files, sampling, options)
        complete = show_scored(reading, scored, as_json=json)
        if not scored.read and not json:
            own = {
                "weighted_score_p": weighted_score_p,
                "truthfulness_weights": truthfulness_weights,
                "confidence_level": None if confidence_level == DEFAULT_LEVEL else confidence_level,
                "cluster": cluster,
                "weight": weight,
                "column": column,
            }
            console.say(how_to_show(files, own))
    if not complete:
        raise typer.Exit(INCOMPLETE)


def _check_alone(rates: Path, files: Sequence[Path] | None, of_outcomes: Mapping[str, object]) -> None:
    """Raise OptionError if files or options for outcomes are given together with published rates."""
    if files:
        raise OptionError(
            f"score: expected outcomes or --rates, got both {files[0]} and {rates}; leave out one of them"
        )
    for name, value in of_outcomes.items():
        if value:
            raise OptionError(f"{name}: applies to outcomes, got --rates {rates}; leave it out")


def _rebuilt(folder: Path, analysis: Analysis, *, regrade: bool, refusal: str | None) -> RunResults:
    """Rebuild the results of a run; those of a run graded by other rules are left as they are."""
    from refusal_index.findings.run_results import open_run
    from refusal_index.runs.rebuild import ComparabilityError, rebuild

    try:
        return rebuild(folder, analysis, regrade=regrade, refusal=refusal)
    except ComparabilityError as error:
        console.note(f"note: {error}; add --regrade to grade its replies again")
        return open_run(folder)


def _note_unused(files: Sequence[Path], sampling: Sampling, options: ReadOptions) -> None:
    """Name the columns of outcome tables that were not used."""
    from refusal_index.data.outcome_table import SAMPLING_COLUMNS, unused_columns
    from refusal_index.data.tables import column_names
    from refusal_index.errors import OutcomeTableError
    from refusal_index.findings.imported import not_used
    from refusal_index.render.sentences import sentence

    used = {*options.columns.values(), *map(sampling.column, SAMPLING_COLUMNS)}
    tables = filter(Path.is_file, files)
    present = [name for path in tables for name in column_names(path, OutcomeTableError, options.encoding)]
    unused = unused_columns(present, used)
    if unused:
        console.note(f"note: {sentence(not_used(unused))}")


def _score_rates(path: Path, analysis: Analysis, *, as_json: bool) -> None:
    from refusal_index.data.rates import read_rates
    from refusal_index.findings.summary import summarise_rates
    from refusal_index.render.format import span
    from refusal_index.render.summary import first_screen, summary_document

    rows = read_rates(path)
    summary = summarise_rates(rows, analysis)
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
    weighted_score_p: Annotated[float | None, typer.Option(min=0)] = None,
    truthfulness_weights: str | None = None,
    confidence_level: Annotated[float | None, typer.Option(min=0.5, max=0.9999)] = None,
    cluster: str | None = None,
    weight: str | None = None,
    by: str | None = None,
    replies: bool = False,
) -> None:
    """Show every metric of a run.

    Prints all metrics with intervals, and every note, from the stored outcomes. Without options, the level, p of the
    weighted score and the weights are those of the run. Changes nothing.

    Exit status: 0 done, 2 bad input.

    - `files` RUN: Folder of one run, or outcome tables (.csv, .jsonl, .parquet).
    - `column` ROLE=NAME: Name a column of the tables, as in wrong=is_error. Repeatable.
    - `weighted_score_p`: p of the weighted score c - p(1 - r): the share answered right minus p times the share
      answered. [default: that of the run, else 1]
    - `confidence_level`: Confidence level of every interval. [default: 0.95]
    - `by` COLUMN: Instead, show the rates of each topic: 'topic'.
    - `replies`: Instead, list replies that may have been read wrongly, grouped by sentence: unclear ones, refusals
      recognised by their text, and wrong answers that begin alike.
    """
    from refusal_index.data.analysis import Analysis
    from refusal_index.data.outcome_table import Sampling
    from refusal_index.findings.run_results import open_run
    from refusal_index.findings.summary import by_topic
    from refusal_index.render.run import run_blocks
    from refusal_index.render.summary import summary_blocks, topic_blocks
    from refusal_index.runs.scoring import summary_of

    sampling = Sampling(cluster, weight)
    if replies:
        _show_replies(files, sampling, columns_of(column))
        return
    analysis = Analysis(confidence_level or DEFAULT_LEVEL, weighted_score_p, weights_of(truthfulness_weights), sampling)
    if by is not None:
        one_of("--by", by, ["topic"])
        if weighted_score_p is not None or truthfulness_weights is not None:
            raise OptionError(
                "--by topic: shows rates, which do not depend on --weighted-score-p or --truthfulness-weights; leave "
                "these out"
            )
        console.show(topic_blocks(by_topic(_outcomes(files, sampling, columns_of(column)), analysis)))
        return
    folder = only_folder("show", files)
    options = (weighted_score_p, truthfulness_weights, confidence_level, cluster, weight, column or None)
    if folder and all(option is None for option in options):
        console.show(run_blocks(open_run(folder)))
        return
    summary, _ = summary_of(files, analysis, columns_of(column))
    console.show(summary_blocks(summary))


def _outcomes(files: Sequence[Path], sampling: Sampling, columns: Mapping[str, str]) -> pl.DataFrame:
    from refusal_index.data.folder import read_outcomes_of
    from refusal_index.data.outcome_table import read_tables

    folder = only_folder("show", files)
    return read_outcomes_of(folder, sampling) if folder else read_tables(files, sampling, columns)


def _show_replies(files: Sequence[Path], sampling: Sampling, columns: Mapping[str, str]) -> None:
    from refusal_index.findings.reply_groups import groups_by_variant
    from refusal_index.render.replies import replies_blocks

    console.show(replies_blocks(groups_by_variant(_outcomes(files, sampling, columns))))


_PAGE = "report.html"


def report(
    runs: list[Path],
    /,
    out: Annotated[Path | None, output(allowed=_PAGE)] = None,
    weighted_score_p: Annotated[float | None, typer.Option(min=0)] = None,
    truthfulness_weights: str | None = None,
    confidence_level: ConfidenceLevel = 0.95,
    cluster: str | None = None,
    weight: str | None = None,
) -> None:
    """Write an HTML report.

    One file with the index and its uncertainty, the prompts side by side, the effect of other grading decisions, the
    settings, and every question with both replies. It works without a network connection.

    Exit status: 0 done, 1 done without a run that could not be read, 2 bad input, or no readable run.

    - `runs` RUN: Folders of runs or of several runs, or outcome tables (.csv, .jsonl, .parquet).
    - `out` FILE: File to write. [default: report.html in the folder of the run, or next to the table]
    - `weighted_score_p`: p of the weighted score c - p(1 - r): the share answered right minus p times the share
      answered. [default: that of the run, else 1]
    """
    from refusal_index.data.analysis import Analysis
    from refusal_index.data.outcome_table import Sampling
    from refusal_index.errors import NotWrittenError
    from refusal_index.render.report import write_report

    if out is None and len(runs) > 1:
        raise OptionError("report: expected --out FILE, since the report covers several runs, got none; add it")
    path = out or (runs[0] if runs[0].is_dir() else runs[0].parent) / _PAGE
    _refuse_foreign(path)
    analysis = Analysis(confidence_level, weighted_score_p, weights_of(truthfulness_weights), Sampling(cluster, weight))
    readable = readable_runs(runs, analysis)
    try:
        written = write_report(readable.runs, path, left_out=readable.left_out)
    except NotWrittenError:
        raise
    except OSError as error:
        raise OptionError(f"--out: {path} cannot be written ({error.strerror}); choose another place") from error
    extent = f"{written.n_cut:,} texts cut to {written.limit:,} characters" if written.n_cut else "all texts in full"
    extent = extent if written.limit else "without replies, which would make it too large"
    console.say(f"Report: {written.path} ({written.size / 1e6:.1f} MB, {extent})")
    if readable.left_out:
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
    weighted_score_p: Annotated[float | None, typer.Option(min=0)] = None,
    truthfulness_weights: str | None = None,
    confidence_level: ConfidenceLevel = 0.95,
    cluster: str | None = None,
    weight: str | None = None,
    seed: int = 0,
    with_: str | None = None,
    full: bool = False,
    json: bool = False,
) -> None:
    """Compare models on the same questions.

    Two runs: the difference of every metric, the first minus the second, with an interval and a p-value. Three or more:
    a ranking in which runs that share a letter differ within sampling error. Questions are matched by id; runs on
    different questions are compared as independent samples, with a note.

    Go by RI. If every run has repeated samples (run --draws 2), the difference in corrected RI is shown too, with a
    note where the two disagree.

    With --with paper, one run or more is placed among the models of the paper on the same dataset, by RI, with what is
    not comparable and why.

    Exit status: 0 done, 1 done without a run that could not be read, 2 bad input, or fewer than two readable runs.

    - `runs` RUN: Folders of runs or of several runs, or outcome tables (.csv, .jsonl, .parquet); at least two models,
      with --with paper at least one.
    - `variants` NAME: Compare under this prompt only. [default: each prompt that the runs share, and all
      combined]
    - `weighted_score_p`: p of the weighted score c - p(1 - r): the share answered right minus p times the share
      answered. [default: that of the runs, else 1]
    - `metric`: Rank by this metric, even if there are only two runs. [default: RI, for three runs or more]
    - `adjustment`: Adjustment of a ranking for multiple comparisons: 'max-t' or 'holm'.
    - `seed`: Random seed of the simulation for max-t.
    - `with_` SOURCE: 'paper' to show the runs among the values that the paper prints, instead of comparing them with
      each other.
    - `full`: Print every metric, pair and note.
    - `json`: Print everything as JSON and nothing else.
    """
    from refusal_index.data.analysis import Analysis
    from refusal_index.data.outcome_table import Sampling
    from refusal_index.findings.comparison import PairComparison
    from refusal_index.findings.metrics import METRICS
    from refusal_index.findings.published import compare_with_paper
    from refusal_index.render.comparison import pair_blocks, pair_screen, ranking_blocks, ranking_screen
    from refusal_index.render.published import published_screen
    from refusal_index.runs.gate import comparison_of, refuse_ranking_options

    analysis = Analysis(
        variant=variants,
        metric=one_of("--metric", metric, list(METRICS)),
        adjustment="holm" if one_of("--adjustment", adjustment, ["max-t", "holm"]) == "holm" else "max-t",
        weighted_score_p=weighted_score_p,
        truthfulness_weights=weights_of(truthfulness_weights),
        confidence_level=confidence_level,
        seed=seed,
        sampling=Sampling(cluster, weight),
    )
    if with_ is not None:
        one_of("--with", with_, ["paper"])
        refuse_ranking_options(analysis, "--with paper")
    readable = readable_runs(runs, analysis)
    if with_ is None and len(readable.runs) < 2:
        raise OptionError(
            f"compare: expected two models or more, got {readable.runs[0].label} alone; "
            "add the folder or the outcome table of another run, or --with paper"
        )
    if with_ is not None:
        placed = compare_with_paper(readable.runs, analysis)
        document = placed.to_document
        blocks = published_screen(placed, full=full)
    else:
        compared = comparison_of(readable.runs, analysis)
        document = compared.to_document
        if isinstance(compared, PairComparison):
            blocks = (pair_blocks if full else pair_screen)(compared)
        else:
            blocks = (ranking_blocks if full else ranking_screen)(compared)
    if json:
        console.document(document())
    else:
        console.show(blocks)
        if not full:
            what = "all metrics" if with_ else "all metrics, pairs and notes"
            console.show(["", f"Add --full for {what}."])
    if readable.left_out:
        raise typer.Exit(INCOMPLETE)
