"""The scores of a run's folder: made from its replies, kept in step with its grades, added from tables, exported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any

import polars as pl

from refusal_index.data.datasets import Dataset
from refusal_index.data.errors import OutcomeTableError, RunFolderError
from refusal_index.data.folder import RunFolder
from refusal_index.data.outcome_table import PLACE, ConfidenceError, read_confidence
from refusal_index.data.run_json import Prices
from refusal_index.errors import RefusalIndexError
from refusal_index.findings.summary import Usage
from refusal_index.models.settings import SettingError
from refusal_index.plugins.confidence.folds import groups_of
from refusal_index.plugins.confidence.hidden_states import check_layer
from refusal_index.plugins.confidence.method import SAMPLED_AGAIN, Method, Need
from refusal_index.plugins.confidence.plan import ConfidencePlan, ask, pending, unmet
from refusal_index.plugins.confidence.registry import METHODS, all_methods, method_of, methods_of
from refusal_index.plugins.confidence.replies import Replies, method_records, write_record
from refusal_index.plugins.confidence.score_files import read_score_table
from refusal_index.plugins.confidence.score_table import (
    JoinedScores,
    Score,
    confidence_table,
    join_outcomes,
    with_scores,
    write_confidence,
)
from refusal_index.plugins.confidence.trained import TOPIC
from refusal_index.protocol import FORCED, ForcedPass, GraderKind, Placement, Protocol
from refusal_index.runs.budget import Budget
from refusal_index.runs.engine import Progress, check_sends, unwatched
from refusal_index.runs.plan import Plan, checked, grader_before, open_store, prompts_before, settings_before
from refusal_index.runs.results import procedure_of, total
from refusal_index.runs.settings import Settings
from refusal_index.runs.store import ReplyStore
from refusal_index.runs.writing import ComparabilityError, check_comparable, write_results

ALL = "all"
"""Every method that a run allows."""


def allowed(
    run: Path, settings: Settings, *, prompts: str | None = None, group: str = "auto"
) -> dict[Method, str | None]:
    """Return what a run lacks for each method, None for nothing; it raises as `prepare_confidence` does."""
    plan = _plan(run, settings, prompts, {}, group)
    return {method: unmet(plan, method) for method in all_methods()}


def prepare_confidence(
    run: Path,
    names: Sequence[str] | None,
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
        Of methods; None for those that cost nothing.
    settings
        How requests are sent; all else is the run's.
    prompts
        The file of the run's prompt set, where the package has none of its name.
    model, grader
        The run's own, once more: a function that the folder names is called only if it is named here.
    objects
        Models and functions in memory, by the name that the run knows them by.
    group
        By what questions are kept in one fold of trained methods, as `groups_of` takes it.
    layer
        Of the hidden states that a probe reads; None is the middle one.

    Raises
    ------
    RefusalIndexError
        If the run cannot be used, there is no such method, or one lacks what it needs.
    """
    chooses = names is None or ALL in names
    methods = () if chooses else methods_of(names or ())
    plan = _plan(run, settings, prompts, objects or {}, group)
    plan = replace(plan, methods=methods, layer=layer, given=_given(plan.run, plan.wording.grader, model, grader))
    known = all_methods() if chooses else METHODS.values()
    usable = [one for one in known if unmet(plan, one) is None]
    if chooses:
        # Weights that are downloaded, and trained for hours, are used only where the method is named.
        usable = [one for one in usable if Need.WEIGHTS not in one.needs]
        plan = replace(plan, methods=tuple(usable) if names else free_methods(plan, usable))
    for method in plan.methods:
        if method not in usable:
            left = ", ".join(one.name for one in usable) or "none"
            raise SettingError(f"{method.name}: {unmet(plan, method)}; this run allows {left}")
    if Need.TRAINING in plan.needs and TOPIC not in plan.methods and TOPIC in usable:
        plan = replace(plan, methods=(*plan.methods, TOPIC))  # the baseline of whatever is trained
    if Need.STATES in plan.needs:
        check_layer(plan.settings.model, layer)
    return replace(plan, run=replace(plan.run, settings=plan.settings.changed(logprobs=plan.takes_logprobs)))


def free_methods(plan: ConfidencePlan, usable: Sequence[Method]) -> tuple[Method, ...]:
    """Return the methods that cost nothing: all where requests are free, else those that send no further one.

    Raises
    ------
    SettingError
        If there is none; the message says how many requests the others send.
    """
    if plan.is_free:
        return tuple(usable)
    amounts = {one: sum(each.most for each in pending(replace(plan, methods=(one,)))) for one in usable}
    free = tuple(one for one, requests in amounts.items() if not requests)
    if not free:
        shown = ", ".join(f"{one.name} ({requests:,})" for one, requests in sorted(amounts.items(), key=itemgetter(1)))
        raise SettingError(
            f"{{method}}: every method sends further requests to {plan.settings.model}: {shown}; name some, or 'all'"
        )
    return free


def _given(run: Plan, kind: GraderKind, model: str | None, grader: str | None) -> frozenset[str]:
    """Return the names that the user gave; raise SettingError for one that is not the run's."""
    graders = ",".join(run.graders) or str(kind)
    for role, own, given in (("model", run.settings.model, model), ("grader", graders, grader)):
        if given not in (None, own):
            raise SettingError(f"{{{role}}}: expected that of the run, {own!r}, got {given!r}; leave it out")
    if run.objects.keys() - {run.settings.model, *run.graders}:
        raise SettingError(f"{{grader}}: expected none, as {graders!r} graded this run, got a function; leave it out")
    return frozenset({*([run.settings.model] if model else ()), *(run.graders if grader else ()), *run.objects})


def _plan(
    run: Path, settings: Settings, prompts: str | None, objects: Mapping[str, object], group: str
) -> ConfidencePlan:
    folder = RunFolder(run)
    before = folder.read_complete_settings()
    try:
        check_comparable(folder)
    except ComparabilityError as error:
        raise ComparabilityError(f"{error}; 'refusal-index score {run} --regrade' grades its replies again") from error
    if "first_pass" in before:
        raise SettingError(
            f"{run}: expected the folder of a run of both passes, got one of a forced pass alone, which shows no first "
            "pass of this model"
        )
    chosen = prompts_before(before, prompts, run)
    kind, graders = grader_before(before)
    settings = settings_before(before, settings)
    check_sends(settings.sending)
    if not folder.outcomes.exists():
        raise RunFolderError(f"{run} holds no outcomes yet; finish the run first")
    with open_store(folder, made=False) as store:
        questions = store.questions()
    outcomes = folder.read_outcomes()
    folder.read_confidence()  # a damaged table is an error before anything is asked
    named = before["dataset"]
    dataset = Dataset(named["name"], tuple(questions.values()), named["sha256"], str(run), "exact", "that of the run")
    prompting = settings.prompting
    wording = Protocol(chosen, next(iter(chosen.variants)), kind, Placement(prompting.placement), prompting.think)
    title, passes = (settings.model, dataset.name), {FORCED: ForcedPass(kind, wording)}
    plan = Plan(settings, dataset, graders, folder, before, {}, passes, {}, objects, title)
    checked(plan, imports=False)  # a check of functions would import what the folder names
    return ConfidencePlan(plan, (), wording, outcomes, groups=groups_of(outcomes, questions, group))


@dataclass(frozen=True)
class Confidence:
    """The scores of a run.

    Attributes
    ----------
    folder
        The run's.
    table
        The confidence table, with the scores of earlier commands.
    methods
        The methods of this command.
    usage
        What was sent for them.
    ended
        Why asking ended before all was asked, as it was told to; None where it did not.
    """

    folder: RunFolder
    table: pl.DataFrame
    methods: tuple[Method, ...]
    usage: Usage
    ended: str | None = None


async def measure(plan: ConfidencePlan, progress: Progress = unwatched, budget: Budget | None = None) -> Confidence:
    """Ask what is missing, write the scores into the run's folder, and derive its results anew with them.

    Raises
    ------
    RefusalIndexError
        If a model or the folder cannot be used, or not all could be asked: what was answered is kept.
    KeyboardInterrupt
        If it was interrupted; what was answered is kept.
    """
    folder, prices, budget = plan.run.folder, plan.run.prices, budget or Budget(plan.settings.limits)
    with folder.lock(), open_store(folder) as store:
        plan = replace(plan, outcomes=folder.read_outcomes())  # as they are by now
        before = set(store.paid(auxiliary=True))
        budget.count_earlier(folder.path, before, prices)
        ended = budget.used_up() or await ask(plan, store, progress, budget)
        usage = total((one for one in store.paid(auxiliary=True) if one not in before), prices)
        earlier, replies = folder.read_confidence(), plan.replies(store)
        every = _with_earlier(plan, earlier)
        evidence, scores, failed = every.evidence(replies), dict[Method, list[Score]](), None
        for method in every.methods:  # one that fails leaves the scores of the others
            try:
                scores[method] = list(method.score(evidence))
            except RefusalIndexError as error:
                failed = failed or (error if method in plan.methods else None)
        table = _in_order(with_scores(earlier, confidence_table(chain.from_iterable(scores.values()))))
        write_confidence(table, folder.confidence)
        prices = prices.or_those(Prices.read(folder.read_about()))
        made = {method: given for method, given in scores.items() if given}
        records = method_records(made, replies, evidence, plan.outcomes, prices)
        write_record(folder, records, {method.name for method in made})
        write_results(folder, store)
    if failed is not None:
        raise failed
    return Confidence(folder, table, plan.methods, usage, ended)


def _with_earlier(plan: ConfidencePlan, earlier: pl.DataFrame | None) -> ConfidencePlan:
    """Score the methods as well that the folder holds scores of, so that all have the same answers and folds.

    One that needs weights, and takes long, is left as it is.
    """
    names = () if earlier is None else earlier["method"].unique().to_list()
    known = [one for name in names if (one := method_of(name)) is not None and one not in plan.methods]
    again = (one for one in known if Need.WEIGHTS not in one.needs and unmet(plan, one) is None)
    return replace(plan, methods=(*plan.methods, *again))


def _in_order(table: pl.DataFrame) -> pl.DataFrame:
    """Put methods in the order in which they are listed, and those of others behind them."""
    place = {name: number for number, name in enumerate(METHODS)}
    return table.sort(
        pl.col("method").replace_strict(place, default=len(place), return_dtype=pl.Int64), maintain_order=True
    )


def refresh_scores(
    folder: RunFolder, store: ReplyStore, settings: Mapping[str, Any], outcomes: pl.LazyFrame
) -> tuple[str, ...]:
    """Bring the grades in a folder's confidence table up to date, before its outcomes are replaced.

    The scores of this package's methods rest on answers and, where they were trained, on grades, or on repeated draws.
    Where a grade changed, or there are more draws, they are removed: the replies are stored, so that scoring again asks
    nothing. Other scores keep a grade that they came with; one that was found in the run's outcomes follows these.

    Parameters
    ----------
    folder, store, settings
        The run's.
    outcomes
        The table that is about to be written.

    Returns
    -------
    tuple of str
        The methods whose scores were removed.
    """
    table = folder.read_confidence()
    if table is None:
        return ()
    replies, questions = Replies(store, procedure_of(settings).grader), store.questions()
    answers = {one: replies.scored(questions[one]) for one in set(table["question_id"]) & questions.keys()}
    wrong = {one: answer.wrong for one, answer in answers.items() if answer is not None}
    redrawn = _is_redrawn(folder, outcomes)
    kept, outdated = [], []
    for group in table.partition_by("method", maintain_order=True):
        name = group["method"][0]
        method = method_of(name)
        if method is None or not group["pass"].is_in(["forced", "probe"]).all():
            kept.append(_regraded(folder, group, outcomes))
        elif not _agrees(group, wrong) or (redrawn and method.needs & {Need.FIRST_DRAWS, Need.FORCED_DRAWS}):
            outdated.append(name)
        else:
            kept.append(group)
    found = pl.concat(kept) if kept else table.clear()
    if not found.equals(table):
        write_confidence(found, folder.confidence)
    return tuple(outdated)


def _is_redrawn(folder: RunFolder, outcomes: pl.LazyFrame) -> bool:
    """Whether the outcomes that are about to be replaced have another number of further draws."""
    with suppress(OutcomeTableError):
        tables = folder.read_outcomes().lazy(), outcomes
        before, now = (one.select(SAMPLED_AGAIN.sum()).collect().item() for one in tables)
        return bool(before != now)
    return False


def _agrees(group: pl.DataFrame, graded: Mapping[str, bool | None]) -> bool:
    forced = group.filter((pl.col("pass") == "forced") & (pl.col("draw") == 0))
    return all(graded.get(one) is wrong for one, wrong in forced.select("question_id", "wrong").iter_rows())


def _regraded(folder: RunFolder, group: pl.DataFrame, outcomes: pl.LazyFrame) -> pl.DataFrame:
    """Return scores of others with the grades of the new outcomes, if those that they have are the earlier ones'."""
    blank = group.with_columns(wrong=pl.lit(None, pl.Boolean))
    with suppress(OutcomeTableError, ConfidenceError):  # no outcomes before, or of nobody's questions
        before, now = (join_outcomes(blank, one).scores for one in (folder.read_outcomes(), outcomes.collect()))
        if before.sort(PLACE).equals(group.sort(PLACE)) and now.height == group.height:
            return now
    return group


@dataclass(frozen=True)
class AddedScores:
    """Scores that were added to a run's folder.

    Attributes
    ----------
    outcomes
        The run's outcome table.
    joined
        The scores, and which of them are of no answer of the run.
    left_out
        Columns of the file with uncertainties of which no formula makes a confidence.
    replaced
        Methods whose earlier scores these replace.
    assumed
        How many scores say neither which answer they are of nor whether it is right.
    """

    outcomes: pl.DataFrame
    joined: JoinedScores
    left_out: tuple[str, ...]
    replaced: tuple[str, ...]
    assumed: int


def _folder_with(path: Path, needed: str, advice: str) -> RunFolder:
    folder = RunFolder(path)
    folder.read_settings()
    if not getattr(folder, needed).exists():
        raise RunFolderError(f"{path} holds no {advice}")
    return folder


def add_scores(
    run: Path, data: object, *, method: str | None = None, columns: Mapping[str, str] | None = None
) -> AddedScores:
    """Add scores to those of a run's folder, in the place of earlier ones of the same methods.

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
    folder = _folder_with(run, "outcomes", "outcomes yet; finish the run first")
    read = read_score_table(data, method=method, columns=columns)
    ours = sorted({*METHODS, ALL} & set(read.scores["method"]))
    if ours:
        raise ConfidenceError(
            f"method {ours[0]!r}: expected a name of its own, got that of a method of this package; name the scores "
            "otherwise (--name)"
        )
    with folder.lock(), open_store(folder, made=False) as store:
        outcomes = folder.read_outcomes()
        joined, before = join_outcomes(read.scores, outcomes), folder.read_confidence()
        added = set(joined.scores["method"])
        write_confidence(with_scores(before, joined.scores), folder.confidence)
        write_results(folder, store)
        write_record(folder, (), added)  # what earlier scores of these names took says nothing of these
    earlier = () if before is None else before["method"].unique(maintain_order=True).to_list()
    assumed = read.scores.filter(pl.col("pass").is_null() & pl.col("wrong").is_null()).height
    return AddedScores(outcomes, joined, read.left_out, tuple(one for one in earlier if one in added), assumed)


def export_scores(run: Path, out: Path) -> int:
    """Write all scores of a run's folder into a file, and return how many there are.

    Parameters
    ----------
    run
        The folder of a run.
    out
        The file; its suffix selects Parquet, CSV or JSON Lines.

    Raises
    ------
    RefusalIndexError
        If the folder is none of a run or holds no scores, or the file cannot be written.
    """
    advice = f"scores; 'refusal-index confidence {run}' makes them, and takes yours with --add FILE"
    table = read_confidence(_folder_with(run, "confidence", advice).confidence)
    write_confidence(table, out)
    return table.height
