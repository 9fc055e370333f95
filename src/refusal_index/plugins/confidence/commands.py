"""``refusal-index confidence``: scores of a run's answers, and the threshold from which to answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refusal_index.cli import console
from refusal_index.cli.console import INCOMPLETE, OptionError
from refusal_index.cli.shared_options import check_new_file, check_place, columns_of, output, takes_settings
from refusal_index.render.format import Block, Table

if TYPE_CHECKING:
    from refusal_index.data.run_json import Prices
    from refusal_index.findings.metrics import Statement
    from refusal_index.plugins.confidence.method import Method
    from refusal_index.plugins.confidence.plan import ConfidencePlan, PendingRequests
    from refusal_index.plugins.confidence.scores import AddedScores, Confidence
    from refusal_index.plugins.confidence.summary import MethodSummary


@takes_settings(
    *("max_connections", "max_retries", "attempt_timeout", "max_requests", "max_cost", "max_time"),
    *("engine", "detach", "command", "ray_address", "engine_option", "price", "grader_price", "batch_rate", "header"),
    *("base_url", "api_key_env", "grader_base_url", "grader_api_key_env"),
    "model_args",
    max_requests="Stop once this many requests have been sent for scores of this run in total.",
    max_cost="Stop before these requests cost more than this many dollars; requires --price.",
)
def confidence(
    run: Path,
    /,
    method: str | None = None,
    list_: bool = False,
    yes: bool = False,
    dry_run: bool = False,
    full: bool = False,
    json: bool = False,
    penalty: Annotated[float | None, typer.Option(min=0)] = None,
    max_error: Annotated[float | None, typer.Option(min=0.0001, max=0.9999)] = None,
    confidence_level: Annotated[float | None, typer.Option(min=0.5, max=0.9999)] = None,
    variants: str | None = None,
    out: Annotated[Path | None, output()] = None,
    save: Annotated[Path | None, output()] = None,
    cluster: str | None = None,
    weight: str | None = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    add: Path | None = None,
    column: list[str] | None = None,
    name: str | None = None,
    model: str | None = None,
    grader: str | None = None,
    refusal: str | None = None,
    prompts: str | None = None,
    group: str = "auto",
    layer: Annotated[int | None, typer.Option(min=0)] = None,
    weights: str | None = None,
    *,
    values: Mapping[str, Any],
) -> None:
    """Score how likely a run's answers are right, and choose a threshold.

    Without --method, scores the answers by every method that costs nothing: for an embedded model all methods, else
    those that need no further requests. Other methods send only the requests that are missing: forced answers where the
    first pass answered, and prompts of their own. Running the same command again resumes and never pays for a reply
    twice. Scores are kept in the run's folder, in confidence.parquet; score, report and compare show them.

    With --penalty or --max-error, sends nothing: it chooses a threshold on one half of the questions, and compares
    answering above it with the model's own refusals and with answering everything on the other half. With --max-error,
    the share of wrong answers on questions like these stays within the limit, at the given confidence level. If several
    methods are named, or none, one is chosen on the half that does not set the threshold (--max-error) or together with
    the threshold (--penalty); name one only if you did not choose it by these grades.

    Exit status: 0 done, 1 incomplete or failed, or no threshold meets the limit, 2 bad input, 130 interrupted.

    - `run` RUN: Folder of a finished run; with --penalty or --max-error also an outcome table with a column confidence.
    - `method`: Comma-separated methods, or 'all' for all that are possible. [default: those that cost nothing]
    - `list_`: List the methods that this run allows, and why it does not allow the others.
    - `yes`: Send the requests even if there are more of them than the run itself sent.
    - `dry_run`: Send nothing; print the expected requests.
    - `full`: Print every measure, the comparison with the refusals of each prompt, and confidence targets.
    - `json`: Print the results as JSON and nothing else.
    - `penalty`: Choose the threshold with the highest utility if a wrong answer costs as much as this many right ones.
    - `max_error`: Choose the threshold that answers the most questions with at most this share of wrong answers.
    - `confidence_level`: Confidence level of the bound of --max-error, and of every interval. [default: 0.9 and 0.95]
    - `variants` NAME: Prompt to choose a threshold for, if scores differ between prompts.
    - `out` FILE: Write all scores of the run (.csv, .jsonl, .parquet); with --penalty or --max-error, the other half
      of the questions as a run that refuses below the threshold, for compare, report, study and score.
    - `save` FILE: Write method, calibration and threshold as a JSON file, which load_rule reads where the model is
      deployed; for scores from the reply and its log probabilities, with --penalty or --max-error.
    - `seed`: Random seed of the split into halves.
    - `add` FILE: Add scores from a table (.csv, .jsonl, .json, .parquet; columns question_id and confidence suffice,
      or a table of UQLM or lm-polygraph); sends nothing.
    - `column` ROLE=NAME: Name a column of that table, as in confidence=score. Repeatable.
    - `name`: Name of the scores of that table. [default: its own, or the file's name]
    - `model`: Model of the run, if it is your own function: a function that the folder names is called only if you name
      it too.
    - `grader`: Grader of the run, if it is your own function.
    - `refusal`: Setting --refusal of the run, if it is your own function.
    - `prompts` FILE: Prompt set of the run, if it is your own file.
    - `group`: Questions that trained methods keep in the same fold: those of a 'cluster' (the column), of an 'entity'
      (of the almanac), of a 'topic' (so that test topics are new), 'none', or 'auto', the first of these that is known.
    - `layer`: Layer whose hidden states the method p-ik reads; 0 is before the first layer. [default: middle]
    - `weights` hf/NAME: Weights of the run's model on this machine, a folder or a repository of the Hub, whose hidden
      states p-ik reads; for a run over HTTP. [default: the run's model]
    """
    names = None if method is None else [part.strip() for part in method.split(",") if part.strip()]
    if penalty is not None or max_error is not None or save is not None:
        refused = {"--list": list_, "--dry-run": dry_run, "--yes": yes, "--add": add is not None}
        refused["--weights"] = weights is not None
        if wrong := next((option for option, is_given in refused.items() if is_given), None):
            raise OptionError(f"{wrong}: --penalty and --max-error choose a threshold and send nothing; leave it out")
        chosen = (None if method == "all" else names, variants, penalty, max_error, confidence_level, seed, prompts)
        _choose_threshold(run, chosen, (cluster, weight), out, save, as_json=json, full=full)
        return
    if add is not None or out is not None or column or name is not None:
        if method is not None or list_ or dry_run:
            raise OptionError(
                "--add and --out send nothing, so --method, --list and --dry-run do not apply; leave them out"
            )
        _add_and_export(run, add, column or [], name, out, as_json=json, full=full)
        return
    import polars as pl

    from refusal_index.cli.runs import execute_with_progress
    from refusal_index.data.files import plain
    from refusal_index.plugins.confidence.plan import check_amount, pending
    from refusal_index.plugins.confidence.scores import allowed, measure, prepare_confidence
    from refusal_index.plugins.confidence.summary import summarise_confidence
    from refusal_index.runs.engines import prices_as_sent
    from refusal_index.runs.settings import Settings

    settings = Settings.from_values(**values)
    if list_:
        console.show(_methods(allowed(run, settings, prompts=prompts, refusal=refusal, group=group, weights=weights)))
        return
    plan = prepare_confidence(
        run,
        names,
        settings,
        prompts=prompts,
        model=model,
        grader=grader,
        refusal=refusal,
        group=group,
        layer=layer,
        weights=weights,
    )
    requests = pending(plan)
    if dry_run:
        console.show(_pending(requests, prices_as_sent(plan.settings)))
        return
    if not yes:
        check_amount(plan, requests)
    scored = execute_with_progress(plan, partial(measure, plan), sum(request.questions for request in requests))
    names_made = [scorer.name for scorer in plan.methods]
    summary = summarise_confidence(scored.table.filter(pl.col("method").is_in(names_made)), plan.outcomes)
    if json:
        console.document(plain(summary))
    else:
        _show(summary, full=full)
        console.show(_result_blocks(plan, scored))
    if scored.ended is not None:
        raise typer.Exit(INCOMPLETE)


def _show(summary: Sequence[MethodSummary], *, full: bool) -> None:
    from refusal_index.plugins.confidence.section import confidence_blocks, confidence_screen

    console.show((confidence_blocks if full else confidence_screen)(summary))


def _methods(allowed: Mapping[Method, str | None]) -> Iterator[Block]:
    """Yield the methods that the run allows, and why it does not allow the others."""
    from refusal_index.plugins.confidence.method import Need

    yield "This run allows:"
    for method, reason in allowed.items():
        if reason is None:
            yield f"{method.name}: {method.about}{' (sends requests)' if Need.REQUESTS in method.needs else ''}"
    for reason in dict.fromkeys(filter(None, allowed.values())):
        names = ", ".join(method.name for method, why in allowed.items() if why == reason)
        yield from ("", f"This run does not allow {names}: {reason}.")


def _pending(pending: Sequence[PendingRequests], prices: Prices) -> Iterator[Block]:
    """Yield the requests that would be sent, and their approximate cost if prices are known."""
    from refusal_index.findings.dry_run import Load
    from refusal_index.findings.metrics import Statement
    from refusal_index.runs.dry_run import REPLY_TOKENS

    def amount(lowest: int, highest: int) -> str:
        return f"{lowest:,}" if lowest == highest else f"{lowest:,} to {highest:,}"

    n_least, n_most, tokens = (
        sum(getattr(request, name) for request in pending) for name in ("requests", "most", "input_tokens")
    )
    rows = [
        (
            load.name,
            f"{load.questions:,}",
            amount(load.requests, load.most),
            f"{load.input_tokens + load.grading.input_tokens.expected:,.0f}",
            f"{load.grading.requests.expected:,.0f}",
        )
        for load in pending
    ]
    grading = sum((load.grading for load in pending), Load())
    judged = (round(grading.input_tokens.expected), round(grading.output_tokens.expected))
    rows.append(("total", "", amount(n_least, n_most), f"{tokens + judged[0]:,}", f"{grading.requests.expected:,.0f}"))
    yield from ("Dry run: nothing is sent.", "")
    yield Table.from_rows(("for", "questions", "requests", "about tokens in", "about grading"), rows, left=("for",))
    cost = prices.cost((tokens, n_least * REPLY_TOKENS), judged)
    without_graders = any(judged) and prices.grader is None
    yield from _paragraphs(
        Statement(
            "scores_cost",
            "scope",
            {"cost": cost, "tokens": REPLY_TOKENS, "several": n_least < n_most, "without_graders": without_graders},
        )
    )


def _result_blocks(plan: ConfidencePlan, scored: Confidence) -> Iterator[Block]:
    """Yield the requests sent for the scores, why the run ended early if it did, and the files with the scores."""
    from refusal_index.findings.metrics import Statement
    from refusal_index.plugins.confidence.method import Need

    if scored.ended is not None:
        yield from _paragraphs(Statement("scores_ended", "serious", {"ended": scored.ended}))
    used = scored.usage
    if used.requests:
        cost = "" if used.cost is None else f", ${used.cost:,.2f}"
        yield f"Sent: {used.requests:,} requests, {used.input_tokens:,} tokens in, {used.output_tokens:,} out{cost}"
    made = {method.name for method in plan.methods}
    others = [name for name in scored.table["method"].unique(maintain_order=True) if name not in made]
    further = f"; also contains scores of {', '.join(others)}" if others else ""
    if plan.weights is not None and Need.STATES in plan.needs:
        yield from _paragraphs(
            Statement("other_weights", "note", {"weights": plan.weights, "model": plan.settings.model})
        )
    yield f"{plan.folder.path}: confidence.parquet, summary.json, report.html{further}"


def _paragraphs(statement: Statement) -> Iterator[Block]:
    """Yield the paragraphs of a statement, each after an empty line."""
    from refusal_index.render.sentences import add_sentences, sentence

    add_sentences(__package__)
    for line in sentence(statement).splitlines():
        if line:
            yield from ("", line)


def _choose_threshold(
    run: Path,
    options: tuple[Any, ...],
    sampling: tuple[str | None, str | None],
    out: Path | None,
    save: Path | None,
    *,
    as_json: bool,
    full: bool,
) -> None:
    from refusal_index.data.analysis import Analysis
    from refusal_index.data.outcome_table import Sampling
    from refusal_index.errors import listed
    from refusal_index.findings.run_results import read_runs
    from refusal_index.plugins.confidence import threshold

    chosen = threshold.ThresholdOptions(*options)
    if out is not None:
        check_place(out)
    if save is not None:
        check_new_file(save, "--save")
    runs = read_runs([run], Analysis(sampling=Sampling(*sampling)))
    if len(runs) != 1:
        raise OptionError(
            f"expected one model on one dataset, got {len(runs)} in {run}: "
            f"{listed(compared.label for compared in runs)}; name one run, or split the table"
        )
    chosen_threshold = threshold.find_threshold(runs[0], chosen)
    if as_json:
        console.document(chosen_threshold.to_document())
    else:
        console.show((threshold.threshold_blocks if full else threshold.threshold_screen)(chosen_threshold))
    if chosen_threshold.table is None:
        raise typer.Exit(INCOMPLETE)
    if out is not None:
        chosen_threshold.write(out)
        console.note(f"{out}: {chosen_threshold.table.height:,} questions, for compare, report, study and score")
    if save is not None:
        chosen_threshold.save_rule(save)
        console.note(f"{save}: a rule for load_rule")


def _add_and_export(
    run: Path, add: Path | None, column: Sequence[str], name: str | None, out: Path | None, *, as_json: bool, full: bool
) -> None:
    """Add scores to a run, then write all of its scores; invalid input leaves the folder unchanged."""
    from refusal_index.data.files import plain
    from refusal_index.plugins.confidence.scores import add_scores, export_scores
    from refusal_index.plugins.confidence.summary import summarise_confidence

    if add is None and (column or name is not None):
        raise OptionError(
            f"{'--column' if column else '--name'}: expected --add FILE, whose scores it describes, got none"
        )
    if name is not None and not name.strip():
        raise OptionError("--name: expected a name for the scores, got nothing")
    if out is not None:
        if add is not None and add.resolve() == out.resolve():
            raise OptionError(f"--out: {out} is the file to add; choose another name")
        check_place(out)  # before the folder is changed
    document: dict[str, Any] = {}
    if add is not None:
        added = add_scores(run, add, method=name, columns=columns_of(column))
        summary = summarise_confidence(added.scores, added.outcomes)
        document = {
            "coverage": added.coverage.to_dicts(),
            "unknown": added.unknown.height,
            "by_text": added.by_text,
            "left_out": list(added.left_out),
            "replaced": list(added.replaced),
            "methods": plain(summary),
        }
        if not as_json:
            console.show(_added_blocks(added))
            console.say()
            _show(summary, full=full)
    if out is not None:
        rows = export_scores(run, out)
        document |= {"out": str(out), "rows": rows}
        if not as_json:
            console.say(f"{out}: {rows:,} scores")
    if as_json:
        console.document(document)


def _added_blocks(added: AddedScores) -> Iterator[Block]:
    """Yield how many questions of the run the added scores cover, and what was left out."""
    from refusal_index.data.outcome_table import place_of
    from refusal_index.errors import listed
    from refusal_index.findings.metrics import Statement

    rows = ((method, *(f"{count:,}" for count in counts)) for method, *counts in added.coverage.iter_rows())
    yield Table.from_rows(
        ("method", "questions with a score", "with an empty one", "of the run"), rows, left=("method",)
    )
    yield from _paragraphs(
        Statement(
            "scores_added",
            "scope",
            {
                "unknown": added.unknown.height,
                "first": next(map(place_of, added.unknown.iter_rows(named=True)), None),
                "by_text": added.by_text,
                "left_out": listed(added.left_out) if added.left_out else "",
                "replaced": ", ".join(added.replaced),
                "assumed": added.assumed,
            },
        )
    )
