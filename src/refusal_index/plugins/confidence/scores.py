"""Confidence scores for a finished run: what is missing is asked once, the rest follows from replies.

What is asked lies in the run's folder in a store of its own: forced answers where a variant answered in the first pass,
so that nobody forced it, and the methods' own prompts. The run's replies and all that is made of them stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import polars as pl

from refusal_index.data.confidence import (
    ConfidenceError,
    JoinedScores,
    Score,
    confidence_table,
    join_outcomes,
    read_confidence,
    with_scores,
    write_confidence,
)
from refusal_index.data.errors import RunFolderError, listed, shortened
from refusal_index.data.folder import RunFolder
from refusal_index.data.imports.confidence import ReadScores, read_score_table
from refusal_index.data.run_json import UNPRICED, Prices
from refusal_index.errors import RefusalIndexError
from refusal_index.findings.confidence_record import write_record
from refusal_index.findings.summary import Usage
from refusal_index.models.functions import is_function_name
from refusal_index.models.settings import SettingError
from refusal_index.plugins.almanac import ALMANAC
from refusal_index.plugins.almanac.models import layer_count
from refusal_index.plugins.confidence.method import Evidence, Method, Need
from refusal_index.plugins.confidence.plan import ConfidencePlan, Pending, ask, unmet
from refusal_index.plugins.confidence.record import OWN, Measured, Sources, groups_of, record_scores
from refusal_index.plugins.confidence.registry import METHODS, methods_of
from refusal_index.plugins.confidence.topic import TOPIC
from refusal_index.render.blocks import Block, Table
from refusal_index.runs.budget import Budget
from refusal_index.runs.checks import check_name, check_sending
from refusal_index.runs.dry_run import REPLY_TOKENS
from refusal_index.runs.engine import Progress, unwatched
from refusal_index.runs.plan import grader_before, open_store, prompts_before, settings_before
from refusal_index.runs.registry import check_sends
from refusal_index.runs.results import total
from refusal_index.runs.settings import Settings
from refusal_index.runs.writing import ComparabilityError, check_comparable, write_results

ALL = "all"
"""Every method that a run allows."""


@dataclass(frozen=True)
class Confidence:
    """The scores of a run.

    Attributes
    ----------
    folder
        The run's.
    table
        The confidence table, with the scores of earlier methods.
    methods
        What was wanted now.
    usage
        What was sent for it now.
    ended
        Why it ended before all was asked, as it was told to; None where it did not.
    """

    folder: RunFolder
    table: pl.DataFrame
    methods: tuple[Method, ...]
    usage: Usage
    ended: str | None = None


@dataclass(frozen=True)
class Allowed:
    """A method, and why a run does not allow it; None where it does."""

    method: Method
    reason: str | None


def allowed(run: Path, settings: Settings, *, prompts: str | None = None, group: str = "auto") -> list[Allowed]:
    """Return every method with what a run lacks for it; it raises as `prepare_confidence` does."""
    plan = _grouped(_plan(run, (), settings, prompts), group)
    return [Allowed(method, unmet(plan, method)) for method in METHODS.values()]


def prepare_confidence(
    run: Path,
    names: Sequence[str],
    settings: Settings,
    *,
    prompts: str | None = None,
    model: str | None = None,
    grader: str | None = None,
    objects: Mapping[str, object] | None = None,
    group: str = "auto",
    layer: int | None = None,
) -> ConfidencePlan:
    """Read a run and check what the methods need, before anything is asked.

    Parameters
    ----------
    run
        The folder of a finished run.
    names
        Of methods.
    settings
        How requests are sent; all else is the run's.
    prompts
        The file of the run's prompt set, where it is none that is shipped.
    model, grader
        The run's own once more: a function that its folder names is asked only if it is named here.
    objects
        Models and functions that are in memory, by the name that the run knows them by.
    group
        By what questions are kept in one fold of trained methods, as `groups_of` takes it.
    layer
        Of the hidden states that a probe reads; None is the middle one.

    Raises
    ------
    RefusalIndexError
        If the run cannot be used, there is no such method, or one lacks what it needs.
    """
    plan = _plan(run, () if ALL in names else methods_of(names), settings, prompts, objects)
    plan = replace(_grouped(plan, group), layer=layer, given=_given(plan, model, grader))
    if ALL in names:
        # Weights that are fetched, and trained for hours, are used where somebody names the method.
        light = [one for one in METHODS.values() if Need.WEIGHTS not in one.needs]
        plan = replace(plan, methods=tuple(one for one in light if unmet(plan, one) is None))
    for method in plan.methods:
        reason = unmet(plan, method)
        if reason is not None:
            left = ", ".join(one.name for one in METHODS.values() if unmet(plan, one) is None)
            raise SettingError(f"{method.name}: {reason}; this run allows {left or 'none'}")
    plan = _with_baseline(plan)
    _check_layer(plan)
    return replace(plan, settings=plan.settings.changed(logprobs=plan.takes_logprobs))


def _given(plan: ConfidencePlan, model: str | None, grader: str | None) -> frozenset[str]:
    """Return the names that the user gave; raise SettingError for one that is not the run's."""
    graders = ",".join(plan.graders) or str(plan.grader)
    for role, theirs, given in (("model", plan.settings.model, model), ("grader", graders, grader)):
        if given not in (None, theirs):
            raise SettingError(f"{{{role}}}: expected that of the run, {theirs!r}, got {given!r}; leave it out")
    if plan.objects.keys() - {plan.settings.model, *plan.graders}:
        raise SettingError(f"{{grader}}: expected none, as {graders!r} graded this run, got a function; leave it out")
    named = {*([plan.settings.model] if model else []), *(plan.graders if grader else ())}
    return frozenset({*named, *plan.objects})


def _check_layer(plan: ConfidencePlan) -> None:
    """Raise where an embedded model has no such layer; how many others have is seen when they are loaded."""
    provider, _, name = plan.settings.model.partition("/")
    if Need.STATES not in plan.needs or plan.layer is None or provider != ALMANAC:
        return
    most = layer_count(name)
    if not 0 <= plan.layer <= most:
        raise SettingError(
            f"{{layer}}: expected 0, before the first layer, to {most}, after the last, got {plan.layer}"
        )


def _grouped(plan: ConfidencePlan, group: str) -> ConfidencePlan:
    return replace(plan, groups=groups_of(plan.outcomes, plan.questions, group))


def _with_baseline(plan: ConfidencePlan) -> ConfidencePlan:
    """Have the topic-only baseline beside whatever is trained, where topics are known."""
    if Need.TRAINING not in plan.needs or TOPIC in plan.methods or unmet(plan, TOPIC) is not None:
        return plan
    return replace(plan, methods=(*plan.methods, TOPIC))


def _plan(
    run: Path,
    methods: tuple[Method, ...],
    settings: Settings,
    prompts: str | None,
    objects: Mapping[str, object] | None = None,
) -> ConfidencePlan:
    folder = RunFolder(run)
    before = folder.read_complete_settings()
    try:
        check_comparable(folder)
    except ComparabilityError as error:
        raise ComparabilityError(f"{error}; 'refusal-index score {run} --regrade' grades its replies anew") from error
    if "first_pass" in before:
        raise SettingError(
            f"{run}: expected the folder of a run of both passes, got one of a forced pass alone, which shows no first "
            "pass of this model"
        )
    chosen = prompts_before(before, prompts, run)
    grader, graders = grader_before(before)
    settings = settings_before(before, settings)
    check_sending(settings, asks_grader=bool(graders))
    check_sends(settings.sending)
    for name in (settings.model, *graders):
        if not is_function_name(name):  # whose check would import what the folder names
            check_name(name, objects or {})
    if not folder.outcomes.exists():
        raise RunFolderError(f"{run} holds no outcomes yet; finish the run first")
    with open_store(folder, made=False) as store:
        questions = store.questions()
    outcomes = folder.read_outcomes()
    folder.read_confidence()  # a damaged one is told before anything is asked
    return ConfidencePlan(folder, settings, methods, grader, graders, chosen, questions, outcomes, objects or {})


async def measure(plan: ConfidencePlan, progress: Progress = unwatched, budget: Budget | None = None) -> Confidence:
    """Ask what is missing, write the scores into the run's folder, and what is derived of it anew with them.

    Raises
    ------
    RefusalIndexError
        If a model or the folder cannot be used, or not all could be asked: what was answered is kept.
    KeyboardInterrupt
        If it was interrupted; what was answered is kept.
    """
    folder, budget = plan.folder, budget or Budget(plan.settings.limits)
    with folder.lock(), open_store(folder, made=False) as store, plan.own_store() as own:
        plan = replace(plan, questions=store.questions(), outcomes=folder.read_outcomes())  # as they are by now
        sources = Sources(store, own, plan.grader)
        before = {*own.replies(), *own.retired()}
        budget.count_earlier(folder.path / OWN, list(before), plan.prices)
        ended = budget.used_up() or await ask(plan, sources, progress, budget)
        usage = total([one for one in (*own.replies(), *own.retired()) if one not in before], plan.prices)
        earlier = folder.read_confidence()
        every = _with_earlier(plan, earlier)
        evidence = every.evidence(sources)
        scores, failed = _scored(every.methods, evidence, wanted=plan.methods)
        table = _in_order(with_scores(earlier, confidence_table(chain.from_iterable(scores.values()))))
        write_confidence(table, folder.confidence)
        prices = plan.prices.or_those(Prices.read(folder.read_about()))
        record_scores(folder, Measured(sources, evidence, plan.outcomes, prices), scores)
        write_results(folder, store)
    if failed is not None:
        raise failed
    return Confidence(folder, table, plan.methods, usage, ended)


def _with_earlier(plan: ConfidencePlan, earlier: pl.DataFrame | None) -> ConfidencePlan:
    """Have the methods scored too that the folder holds scores of: all are of the same answers and in the same folds.

    One that needs weights, and takes long, is left as it is.
    """
    names = () if earlier is None else earlier["method"].unique().to_list()
    known = [METHODS[name] for name in names if name in METHODS and METHODS[name] not in plan.methods]
    again = (one for one in known if Need.WEIGHTS not in one.needs and unmet(plan, one) is None)
    return replace(plan, methods=(*plan.methods, *again))


def _scored(
    methods: Sequence[Method], evidence: Evidence, wanted: Sequence[Method]
) -> tuple[dict[Method, list[Score]], RefusalIndexError | None]:
    """Return the scores of each method, and why one that is wanted has none: the others are kept nevertheless."""
    scores: dict[Method, list[Score]] = {}
    failed: RefusalIndexError | None = None
    for method in methods:
        try:
            scores[method] = list(method.score(evidence))
        except RefusalIndexError as error:
            failed = failed or (error if method in wanted else None)
    return scores, failed


def _in_order(table: pl.DataFrame) -> pl.DataFrame:
    """Put methods in the order in which they are listed, and those of others behind them."""
    place = {name: number for number, name in enumerate(METHODS)}
    order = table["method"].replace_strict(place, default=len(place), return_dtype=pl.Int64)
    return table.with_columns(order.alias("place")).sort("place", maintain_order=True).drop("place")


def methods_blocks(allowed: Sequence[Allowed]) -> Iterator[Block]:
    """Yield what each method is and needs, and whether the run allows it."""
    rows = [(one.method.name, one.method.about, _needs(one.method), one.reason or "yes") for one in allowed]
    columns = ("method", "what it is", "needs", "allowed")
    yield Table.of(columns, rows, left=columns)


def _needs(method: Method) -> str:
    return ", ".join(sorted(method.needs)) or "nothing more"


def pending_blocks(pending: Sequence[Pending], prices: Prices = UNPRICED) -> Iterator[Block]:
    """Yield what would be sent, and about what that costs where prices say."""
    yield "dry run: nothing is sent"
    yield ""
    rows = [
        (one.name, f"{one.questions:,}", _range(one.requests, one.most), f"{one.input_tokens:,}") for one in pending
    ]
    least, most, tokens = (sum(getattr(one, name) for one in pending) for name in ("requests", "most", "input_tokens"))
    rows.append(("all", "", _range(least, most), f"{tokens:,}"))
    yield Table.of(("asked", "questions", "requests", "about tokens in"), rows, left=("asked",))
    cost = prices.cost((tokens, least * REPLY_TOKENS), (0, 0))
    if cost is not None:
        yield from ("", f"about ${cost:,.2f}, at {REPLY_TOKENS} tokens a reply and without graders")
    if least < most:
        yield ""
        yield (
            "The most are sent where no log probabilities come, so that replies are drawn instead, or where an answer "
            "that was judged comes out otherwise."
        )


def _range(least: int, most: int) -> str:
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def done_blocks(found: Confidence) -> Iterator[Block]:
    """Yield what was sent for the scores, why it ended early, and where they lie."""
    if found.ended is not None:
        yield from ("", f"ended early: {found.ended}; what was not asked yet has no score")
    used = found.usage
    cost = "" if used.cost is None else f", ${used.cost:,.2f}"
    tokens = f"{used.input_tokens:,} tokens in, {used.output_tokens:,} out"
    yield from ("", f"asked now: {used.requests:,} requests, {tokens}{cost}")
    kept = [name for name in found.table["method"].unique(maintain_order=True) if name not in _names(found)]
    beside = f"; scores of {', '.join(kept)} beside these" if kept else ""
    yield f"{found.folder.path}: confidence.parquet, summary.json, report.html{beside}"


def _names(found: Confidence) -> set[str]:
    return {one.name for one in found.methods}


@dataclass(frozen=True)
class AddedScores:
    """Scores that were put into a run's folder.

    Attributes
    ----------
    folder
        The run's.
    outcomes
        Its outcome table.
    joined
        The scores, and which of them are of no answer of the run.
    left_out
        Columns of the file with uncertainties of which no formula makes a confidence.
    replaced
        Methods whose earlier scores gave way to these.
    assumed
        How many scores say neither which answer they are of nor whether it is right.
    """

    folder: RunFolder
    outcomes: pl.DataFrame
    joined: JoinedScores
    left_out: tuple[str, ...]
    replaced: tuple[str, ...]
    assumed: int


def add_scores(
    run: Path, data: object, *, method: str | None = None, columns: Mapping[str, str] | None = None
) -> AddedScores:
    """Put scores beside those that a run's folder holds, in the place of what it holds of the same methods.

    Parameters
    ----------
    run
        The folder of a finished run.
    data, method, columns
        As `read_score_table` takes them.

    Raises
    ------
    RefusalIndexError
        If the run or the scores cannot be used; then the folder stays as it is.
    """
    folder = RunFolder(run)
    folder.read_settings()
    if not folder.outcomes.exists():
        raise RunFolderError(f"{run} holds no outcomes yet; finish the run first")
    read = read_score_table(data, method=method, columns=columns)
    _refuse_our_names(read.scores)
    with folder.lock(), open_store(folder, made=False) as store:
        outcomes = folder.read_outcomes()
        joined = join_outcomes(read.scores, outcomes)
        before = folder.read_confidence()
        write_confidence(with_scores(before, joined.scores), folder.confidence)
        write_results(folder, store)
        write_record(folder, (), set(joined.scores["method"]))  # what their namesakes took says nothing of these
    return AddedScores(folder, outcomes, joined, read.left_out, _shared_methods(before, joined.scores), _assumed(read))


def _refuse_our_names(scores: pl.DataFrame) -> None:
    ours = sorted({*METHODS, ALL} & set(scores["method"]))
    if ours:
        raise ConfidenceError(
            f"method {ours[0]!r}: expected a name of its own, got that of a method of this package; name the scores "
            "otherwise (--name)"
        )


def _shared_methods(before: pl.DataFrame | None, table: pl.DataFrame) -> tuple[str, ...]:
    added = set(table["method"])
    earlier = [] if before is None else before["method"].unique(maintain_order=True).to_list()
    return tuple(one for one in earlier if one in added)


def _assumed(read: ReadScores) -> int:
    return read.scores.filter(pl.col("pass").is_null() & pl.col("wrong").is_null()).height


def export_scores(run: Path, out: Path) -> int:
    """Write all scores of a run's folder into a file, and return how many there are.

    Parameters
    ----------
    run
        The folder of a run.
    out
        The file; its suffix says whether Parquet, CSV or JSON Lines.

    Raises
    ------
    RefusalIndexError
        If the folder is none of a run or holds no scores, or the file cannot be written.
    """
    folder = RunFolder(run)
    folder.read_settings()
    if not folder.confidence.exists():
        raise RunFolderError(
            f"{run} holds no scores; 'refusal-index confidence {run}' makes them with --method, and takes yours with "
            "--add FILE"
        )
    table = read_confidence(folder.confidence)
    write_confidence(table, out)
    return table.height


def added_blocks(added: AddedScores) -> Iterator[Block]:
    """Yield how far the scores cover the run, and what is not among them."""
    rows = [(one.method, f"{one.questions:,}", f"{one.empty:,}", f"{one.of:,}") for one in added.joined.coverage]
    yield Table.of(("method", "questions with a score", "with an empty one", "of the run"), rows, left=("method",))
    for remark in _remarks(added):
        yield from ("", remark)


def _remarks(added: AddedScores) -> Iterator[str]:
    if added.joined.unknown.height:
        yield _unknown(added.joined)
    if added.joined.by_text:
        yield f"{added.joined.by_text:,} questions were found by their text."
    if added.left_out:
        yield (
            f"Left out: {listed(added.left_out)}, uncertainties that no formula makes scores of. Calibrate one on "
            "questions that are held out, and name its column with --column confidence=NAME."
        )
    if added.replaced:
        yield f"Earlier scores of the same methods are replaced: {', '.join(added.replaced)}."
    if added.assumed:
        yield (
            "A score without a pass is taken to be of the answer that counts: the first pass's where that answered, "
            "else the forced one. If it is of another answer, say whether that is right in a column 'correct'."
        )


def _unknown(joined: JoinedScores) -> str:
    row, count = joined.unknown.row(0, named=True), joined.unknown.height
    place = ", ".join(
        f"{name} {shortened(row[name])}" for name in ("question_id", "variant", "draw") if row[name] is not None
    )
    are = "1 score is of an answer" if count == 1 else f"{count:,} scores are of answers"
    return f"{are} that the run does not have, and left out (first: {place})."


def added_document(added: AddedScores) -> dict[str, Any]:
    """Give the same as JSON holds it."""
    return {
        "coverage": [asdict(one) for one in added.joined.coverage],
        "unknown": added.joined.unknown.height,
        "by_text": added.joined.by_text,
        "left_out": list(added.left_out),
        "replaced": list(added.replaced),
    }
