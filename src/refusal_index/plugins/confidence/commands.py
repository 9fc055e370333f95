"""``refusal-index confidence`` and ``threshold``: scores of a run's answers, and where to cut them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from refusal_index.cli import console
from refusal_index.cli.console import INCOMPLETE, OptionError
from refusal_index.cli.shared_options import check_place, columns_of, output, takes_settings

Add = Annotated[
    Path | None,
    typer.Option(
        help="Add scores from a table (.csv, .jsonl, .json, .parquet; columns question_id and confidence are enough, "
        "or a table of UQLM or lm-polygraph); send nothing.",
        metavar="FILE",
    ),
]
ScoreColumn = Annotated[
    list[str] | None,
    typer.Option(
        "--column", help="Name a column of that table, as in confidence=score; may be repeated.", metavar="ROLE=NAME"
    ),
]
Out = Annotated[
    Path | None,
    output("Write all scores of the run: .csv, .jsonl or .parquet; send nothing.", metavar="FILE"),
]
Name = Annotated[
    str | None, typer.Option(help="What to call the scores of that table. [default: its own, or its name]")
]


def add_and_export(
    run: Path, add: Path | None, column: Sequence[str], name: str | None, out: Path | None, *, as_json: bool
) -> None:
    """Add scores to a run, then write all of its scores, and say how many answers they cover.

    Raises
    ------
    RefusalIndexError
        If the run, a file or an option cannot be used; then the run's folder stays as it is.
    """
    from refusal_index.data.files import plain
    from refusal_index.plugins.confidence.scores import add_scores, export_scores
    from refusal_index.plugins.confidence.summary import summarise_confidence
    from refusal_index.plugins.confidence.text import confidence_blocks
    from refusal_index.plugins.confidence.words import added_blocks, added_document

    _check(add, column, name, out)
    if out is not None:
        check_place(out)  # told before anything is changed
    document: dict[str, Any] = {}
    if add is not None:
        added = add_scores(run, add, method=name, columns=columns_of(column))
        summary = summarise_confidence(added.joined.scores, added.outcomes)
        document = added_document(added) | {"methods": plain(summary)}
        if not as_json:
            console.show(added_blocks(added))
            console.say()
            console.show(confidence_blocks(summary))
    if out is not None:
        rows = export_scores(run, out)
        document |= {"out": str(out), "rows": rows}
        if not as_json:
            console.say(f"{out}: {rows:,} scores")
    if as_json:
        console.document(document)


def _check(add: Path | None, column: Sequence[str], name: str | None, out: Path | None) -> None:
    if add is None:
        for option in (["--column"] if column else []) + (["--name"] if name is not None else []):
            raise OptionError(f"{option}: expected --add FILE beside it, whose scores it is about, got none")
    if name is not None and not name.strip():
        raise OptionError("--name: expected what to call the scores, got nothing")
    if add is not None and out is not None and add.resolve() == out.resolve():
        raise OptionError(f"--out: {out} is the file to add; choose another name")


@takes_settings(
    *("max_connections", "max_retries", "attempt_timeout", "max_requests", "max_cost", "max_time"),
    *("engine", "detach", "command", "ray_address", "engine_option", "price", "grader_price", "batch_rate"),
    max_requests="End in order after so many requests for scores of this run in all; resumable.",
    max_cost="End in order before these requests cost more dollars than this; needs --price.",
)
def confidence(
    run: Path,
    /,
    method: str | None = None,
    list_: bool = False,
    model: str | None = None,
    grader: str | None = None,
    prompts: str | None = None,
    group: str = "auto",
    layer: Annotated[int | None, typer.Option(min=0)] = None,
    dry_run: bool = False,
    add: Add = None,
    column: ScoreColumn = None,
    name: Name = None,
    out: Out = None,
    json: bool = False,
    *,
    values: Mapping[str, Any],
) -> None:
    """Score how likely a run's answers are right, and compare the scores with its refusals.

    Asks only what is missing: forced answers where the first pass answered, and the methods' own prompts. The same
    command again resumes and pays for no reply twice. The scores lie in the run's folder, in confidence.parquet; score,
    report and compare show them. --add puts scores of others beside them, --out writes all of them. Exit status: 0
    done, 1 incomplete or failed, 2 bad input, 130 interrupted.

    - `run` RUN: The folder of a finished run.
    - `method`: Methods, separated by commas, or 'all' that this run allows; --list names them.
    - `list_`: Say what each method needs, and which this run allows; send nothing.
    - `model`: The run's own, where that is a function: one that a folder names is asked only if named.
    - `grader`: The same of those that grade.
    - `prompts`: The file of the run's prompt set, where it is not part of the package.
    - `group`: What trained methods keep in one fold: 'cluster' (the column), 'entity' (of the almanac), 'topic' (how
      well they do on topics that are new, where the topic alone says nothing), 'none', or 'auto', the first of these
      that is known.
    - `layer`: The hidden states that p-ik reads, 0 before the first layer. [default: middle]
    - `dry_run`: Send nothing; say what would be sent.
    - `json`: Print the numbers as JSON and nothing else.
    """
    from functools import partial

    from refusal_index.cli.runs import execute_with_progress
    from refusal_index.data.files import plain
    from refusal_index.plugins.confidence.plan import pending
    from refusal_index.plugins.confidence.scores import allowed, measure, prepare_confidence
    from refusal_index.plugins.confidence.summary import summarise_confidence
    from refusal_index.plugins.confidence.text import confidence_blocks
    from refusal_index.plugins.confidence.words import done_blocks, methods_blocks, pending_blocks
    from refusal_index.runs.settings import Settings

    if add is not None or out is not None or column or name is not None:
        if method is not None or list_ or dry_run:
            raise OptionError("--add and --out send nothing; leave out --method, --list and --dry-run beside them")
        add_and_export(run, add, column or [], name, out, as_json=json)
        return
    settings = Settings.of(**values)
    if list_:
        console.show(methods_blocks(allowed(run, settings, prompts=prompts, group=group)))
        return
    if method is None:
        raise OptionError("--method: expected methods separated by commas, or 'all', got nothing; --list names them")
    names = [one.strip() for one in method.split(",") if one.strip()]
    plan = prepare_confidence(
        run, names, settings, prompts=prompts, model=model, grader=grader, group=group, layer=layer
    )
    if dry_run:
        console.show(pending_blocks(pending(plan), plan.settings.prices_as_sent))
        return
    found = execute_with_progress(plan.run, partial(measure, plan), sum(one.questions for one in pending(plan)))
    wanted = [one.name for one in found.methods]
    summary = [one for one in summarise_confidence(found.table, plan.outcomes) if one.method in wanted]
    if json:
        console.document(plain(summary))
    else:
        console.show(confidence_blocks(summary))
        console.show(done_blocks(found))
    if found.ended is not None:
        raise typer.Exit(INCOMPLETE)


def threshold(
    run: Path,
    /,
    method: str | None = None,
    penalty: Annotated[float | None, typer.Option(min=0)] = None,
    max_error: Annotated[float | None, typer.Option(min=0.0001, max=0.9999)] = None,
    confidence_level: Annotated[float | None, typer.Option(min=0.5, max=0.9999)] = None,
    variants: str | None = None,
    out: Annotated[Path | None, output()] = None,
    cluster: str | None = None,
    weight: str | None = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    json: bool = False,
) -> None:
    """Choose from which score on to answer.

    The cut is chosen on one half of the questions and judged on the other, beside the model's own refusals under each
    variant and beside answering all: how much is answered, how much of that is wrong, and what it is worth.

    With --max-error no larger share of the answers is wrong, but for a chance of one minus the confidence level, for
    questions like these. Where no cut is known to hold, that is said and nothing is written.

    Exit status: 0 done, 1 no cut does what is asked, 2 bad input.

    - `run` RUN: A run's folder with scores, or an outcome table with a column confidence.
    - `method`: Whose scores, as 'refusal-index confidence' calls them. [default: the only one]
    - `penalty`: Choose the cut that is worth most where a wrong answer costs so many right ones.
    - `max_error`: Choose the cut that answers most with no larger share of the answers wrong.
    - `confidence_level`: Of the bound of --max-error, and of every interval. [default: 0.9 and 0.95]
    - `variants` NAME: Prompt variant to choose for, where scores differ between variants.
    - `out` FILE: Write the other half as a run that refuses below the cut, an outcome table (.parquet, .csv, .jsonl)
      for compare, report, study and score.
    - `seed`: Of the split into halves.
    - `json`: Print everything as JSON and nothing else.
    """
    from refusal_index.data.errors import listed
    from refusal_index.data.runs import read_runs
    from refusal_index.data.sampling import Sampling
    from refusal_index.plugins.confidence.threshold import ThresholdOptions, find_threshold, threshold_blocks

    if (penalty is None) == (max_error is None):
        got = "neither" if penalty is None else "both"
        raise OptionError(
            f"threshold: expected --penalty or --max-error, got {got}; the first sets a price for wrong answers, the "
            "second bounds their share"
        )
    options = ThresholdOptions(method, variants, penalty, max_error, confidence_level, seed)
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
