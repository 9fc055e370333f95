"""The confidence scores in a run's folder: compute, update after regrading, add from tables, and export them.

A record of what the scores are based on is stored with them. A method is based on replies of the model: forced answers,
repeated draws of a pass, and replies to its own prompts. Replies of a model grader are included only if grades affect
the score: if it depends on whether a first pass counts as refused, or a predictor is trained.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import polars as pl

from refusal_index.data.datasets import Dataset
from refusal_index.data.files import write_atomically
from refusal_index.data.folder import RunFolder, read_outcomes_of
from refusal_index.data.outcome_table import CONFIDENCE_SCHEMA, PLACE, ConfidenceError, is_trained
from refusal_index.data.run_json import Prices, refusal_setting
from refusal_index.data.written_tables import write_table
from refusal_index.errors import OutcomeTableError, RefusalIndexError, RunFolderError, checked_path
from refusal_index.findings.confidence_record import RECORD_VERSION, MethodRecord, read_record
from refusal_index.findings.run_results import RunResults
from refusal_index.findings.summary import Usage
from refusal_index.models.functions import is_function_name
from refusal_index.models.settings import SettingError
from refusal_index.plugins.confidence.hidden_states import PACKAGES, TRANSFORMERS, check_layer, check_weights
from refusal_index.plugins.confidence.method import SAMPLED_AGAIN, Evidence, Method, Need
from refusal_index.plugins.confidence.plan import (
    FORCED_ANSWER,
    METHODS,
    ConfidencePlan,
    Replies,
    all_methods,
    ask,
    method_of,
    methods_of,
    pending,
    unmet,
)
from refusal_index.plugins.confidence.score_tables import (
    JoinedScores,
    join_outcomes,
    read_score_table,
    with_scores,
)
from refusal_index.plugins.confidence.trained import KNOWN, TOPIC, groups_of, groups_or_own, known_groups
from refusal_index.protocol import (
    FORCED,
    Completion,
    ForcedPass,
    Pass,
    Placement,
    Protocol,
    Role,
    TwoPass,
    is_auxiliary,
)
from refusal_index.runs.budget import Budget, UsageCounter
from refusal_index.runs.engine import RunFailedError
from refusal_index.runs.engines import check_sends
from refusal_index.runs.event_loop import run_to_completion
from refusal_index.runs.events import Progress, ignore_events
from refusal_index.runs.identity import versions
from refusal_index.runs.made_with import detector_before, grader_before, grader_prompt_before, prompts_before
from refusal_index.runs.plan import checked
from refusal_index.runs.rebuild import ComparabilityError, check_comparable
from refusal_index.runs.results import procedure_of
from refusal_index.runs.servers import as_in_folder
from refusal_index.runs.settings import Settings
from refusal_index.runs.store import ReplyStore, open_store
from refusal_index.runs.writing import write_results

ALL = "all"
"""Selects every method that a run allows."""


def allowed(
    run: Path,
    settings: Settings,
    *,
    prompts: str | None = None,
    refusal: str | None = None,
    group: str = "auto",
    weights: str | None = None,
) -> dict[Method, str | None]:
    """Return the unmet requirement of each method, None if there is none; raises as `prepare_confidence` does."""
    plan = _plan(run, settings, prompts, {}, group, refusal, weights)
    return {method: unmet(plan, method) for method in all_methods()}


def prepare_confidence(
    run: Path,
    names: Sequence[str] | None,
    settings: Settings,
    *,
    prompts: str | None = None,
    model: str | None = None,
    grader: str | None = None,
    refusal: str | None = None,
    objects: Mapping[str, object] | None = None,
    group: str = "auto",
    layer: int | None = None,
    weights: str | None = None,
) -> ConfidencePlan:
    """Return the plan to score a run, after checking the requirements of the methods; no requests are sent.

    Parameters
    ----------
    run
        The folder of a finished run.
    names
        Names of methods; None for those that cost nothing.
    settings
        Settings for sending requests; all others are the run's.
    prompts
        The file of the run's prompt set, unless it is a set of this package.
    model, grader, refusal
        The names of the run's own model, grader and function that recognises refusals; a function named in the folder
        is called only if it is named here.
    objects
        Models and functions in memory, by their names in the run.
    group
        How questions are grouped into folds of trained methods, as for `groups_of`.
    layer
        The layer whose hidden states a probe reads; None for the middle one.
    weights
        The model on this machine whose hidden states a probe reads, with the weights of the run's model; None for
        the run's model itself, or for the states that an earlier command computed from such weights.

    Raises
    ------
    RefusalIndexError
        If the run cannot be used, a method is unknown, or a requirement is not met.
    """
    requested = None if names is None or ALL in names else methods_of(names)
    plan = _plan(run, settings, prompts, objects or {}, group, refusal, weights)
    plan = replace(plan, layer=layer, given=_user_models(plan, model, grader, refusal))
    usable = [
        method for method in (all_methods() if requested is None else METHODS.values()) if unmet(plan, method) is None
    ]
    if requested is None:
        # Methods that download weights and train them for hours are used only if named explicitly.
        usable = [method for method in usable if Need.WEIGHTS not in method.needs]
        requested = tuple(usable) if names else free_methods(plan, usable)
    for method in requested:
        if method not in usable:
            left = ", ".join(method.name for method in usable) or "none"
            raise SettingError(f"{method.name}: {unmet(plan, method)}; this run allows {left}")
    if TOPIC in usable and TOPIC not in requested and any(Need.TRAINING in method.needs for method in requested):
        requested = (*requested, TOPIC)  # the baseline for trained methods
    plan = replace(plan, methods=requested)
    if Need.STATES in plan.needs:
        check_layer(plan.model_of_states, layer)
    elif weights is not None:
        raise SettingError("{weights}: only the method p-ik reads weights; add it with {method}, or leave them out")
    return replace(plan, settings=plan.settings.changed(logprobs=plan.takes_logprobs))


def free_methods(plan: ConfidencePlan, usable: Sequence[Method]) -> tuple[Method, ...]:
    """Return the methods that cost nothing: all if requests are free, else those without pending requests.

    Raises
    ------
    SettingError
        If there is none; the message states the number of requests of each method.
    """
    if plan.is_free:
        return tuple(usable)
    amounts = {method: sum(request.most for request in pending(replace(plan, methods=(method,)))) for method in usable}
    free = tuple(method for method, requests in amounts.items() if not requests)
    if not free:
        shown = ", ".join(
            f"{method.name} ({requests:,})" for method, requests in sorted(amounts.items(), key=itemgetter(1))
        )
        raise SettingError(
            f"{{method}}: every method sends requests to {plan.settings.model}: {shown}; choose some, or 'all'; "
            "'refusal-index show' prints scores that the run already has"
        )
    return free


def _user_models(run: ConfidencePlan, model: str | None, grader: str | None, refusal: str | None) -> frozenset[str]:
    """Return the names of models given by the user; raises SettingError for a name that is not the run's."""
    graders = ",".join(run.graders) or str(run.wording.grader)
    for role, expected, value in (("model", run.settings.model, model), ("grader", graders, grader)):
        if value not in (None, expected):
            raise SettingError(f"{{{role}}}: expected that of the run, {expected!r}, got {value!r}; leave it out")
    if run.objects.keys() - {run.settings.model, *run.graders, refusal}:
        raise SettingError(
            f"{{grader}}: expected none, since {graders!r} graded this run, got a function; leave it out"
        )
    return frozenset({*([run.settings.model] if model else ()), *(run.graders if grader else ()), *run.objects})


def _plan(
    run: Path,
    settings: Settings,
    prompts: str | None,
    objects: Mapping[str, object],
    group: str,
    refusal: str | None = None,
    weights: str | None = None,
) -> ConfidencePlan:
    if weights is not None:
        check_weights(weights)
    folder = RunFolder(run)
    before = folder.read_complete_settings()
    try:
        check_comparable(folder)
    except ComparabilityError as error:
        raise ComparabilityError(f"{error}; 'refusal-index score {run} --regrade' grades its replies again") from error
    if "first_pass" in before:
        raise SettingError(
            f"{run}: expected the folder of a run of both passes, got one of the forced pass only, which has no first "
            "pass of this model"
        )
    chosen = prompts_before(before, prompts, run)
    kind, graders = grader_before(before)
    settings = as_in_folder(settings.restored(before), before)
    check_sends(settings.sending)
    outcomes = read_outcomes_of(run)
    with open_store(folder, made=False) as store:
        questions = store.questions()
    folder.read_confidence()  # detects a damaged table before any request is sent
    named = before["dataset"]
    prompting = settings.prompting
    dataset = Dataset(named["name"], tuple(questions.values()), named["sha256"], str(run), "exact", "that of the run")
    rule = procedure_of(before, detector_before(before, refusal, objects)).rule
    first = next(iter(chosen.variants))
    wording = Protocol(chosen, first, kind, Placement(prompting.placement), prompting.think, rule)
    title = (settings.model, dataset.name)
    grader_prompt = grader_prompt_before(before, folder.read_about(), run)
    passes = {FORCED: ForcedPass(kind, wording, rule, grader_prompt)}
    common = (settings, dataset, graders, folder, before)
    groups = groups_of(outcomes, questions, group)
    plan = ConfidencePlan(
        *common,
        {},
        passes,
        {},
        objects,
        title,
        wording=wording,
        outcomes=outcomes,
        groups=groups,
        weights=weights or _weights_before(folder),
        are_weights_given=weights is not None,
        grader_prompt=grader_prompt,
    )
    return checked(plan, imports=False)  # importing functions would run code named in the folder


def _weights_before(folder: RunFolder) -> str | None:
    """Return the weights that an earlier command named; None if none did."""
    if not folder.confidence_record.exists():
        return None
    with suppress(ConfidenceError):
        return next((record.weights for record in read_record(folder.confidence_record) if record.weights), None)
    return None


def evidence_of_run(run: Path, method: Method, prompts: str | None = None) -> Evidence:
    """Return the data from which a method of a run computes scores; no requests are sent.

    Raises
    ------
    RefusalIndexError
        If the run cannot be used, or a requirement of the method is not met.
    """
    plan = replace(_plan(run, Settings(), prompts, {}, "none"), methods=(method,))
    if (reason := unmet(plan, method)) is not None:
        raise SettingError(f"{method.name}: {reason}")
    with open_store(plan.folder, made=False) as store:
        return plan.evidence(plan.replies(store))


@dataclass(frozen=True)
class Confidence:
    """The scores of a run.

    Attributes
    ----------
    table
        The confidence table, including scores of earlier commands.
    usage
        Usage of the requests sent for the scores.
    ended
        Why sending requests ended early; None if it did not.
    """

    table: pl.DataFrame
    usage: Usage
    ended: str | None = None


async def measure(plan: ConfidencePlan, progress: Progress = ignore_events, budget: Budget | None = None) -> Confidence:
    """Send the pending requests, write the scores into the run's folder, and rebuild its results with them.

    Raises
    ------
    RefusalIndexError
        If a model or the folder cannot be used, or some requests failed; replies received so far are kept.
    KeyboardInterrupt
        If the user interrupts it; replies received so far are kept.
    """
    folder = plan.folder
    prices = plan.prices
    budget = budget or Budget(plan.settings.limits)
    with folder.lock(), open_store(folder) as store:
        plan = replace(plan, outcomes=folder.read_outcomes())  # may have changed before the folder was locked
        before = set(store.paid(auxiliary=True))
        budget.count_earlier(folder.path, before, prices)
        ended = budget.used_up() or await ask(plan, store, progress, budget)
        replies = (completion for completion in store.paid(auxiliary=True) if completion not in before)
        usage = UsageCounter(replies).usage(prices)
        earlier = folder.read_confidence()
        every = _with_earlier(plan, earlier)
        evidence = every.evidence(plan.replies(store))
        scores = dict[Method, pl.DataFrame]()
        failed = None
        for method in every.methods:  # if one fails, the scores of the others are kept
            try:
                scores[method] = method.scores(evidence)
            except RefusalIndexError as error:
                failed = failed or (error if method in plan.methods else None)
        none = pl.DataFrame(schema=dict(CONFIDENCE_SCHEMA))
        order = pl.col("method").replace_strict(list(METHODS), range(len(METHODS)), default=len(METHODS))
        table = with_scores(earlier, pl.concat([none, *scores.values()])).sort(order, maintain_order=True)
        write_table(table, folder.confidence)
        prices = prices.filled_from(Prices.read(folder.read_about()))
        records = method_records(every, scores, evidence, store, prices)
        write_record(folder, records, {method.name for method, rows in scores.items() if rows.height})
        write_results(folder, store, detector=plan.detector)
    if failed is not None:
        raise failed
    return Confidence(table, usage, ended)


def _with_earlier(plan: ConfidencePlan, earlier: pl.DataFrame | None) -> ConfidencePlan:
    """Add the methods that already have scores in the folder, so that all use the same answers and folds.

    Methods that need weights are not added, since they take long.
    """
    names = () if earlier is None else earlier["method"].unique(maintain_order=True)
    stored = [method for name in names if (method := method_of(name)) is not None and method not in plan.methods]
    to_repeat = (method for method in stored if Need.WEIGHTS not in method.needs and unmet(plan, method) is None)
    return replace(plan, methods=(*plan.methods, *to_repeat))


def method_records(
    plan: ConfidencePlan,
    scores: Mapping[Method, pl.DataFrame],
    evidence: Evidence,
    store: ReplyStore,
    prices: Prices,
) -> Iterator[MethodRecord]:
    """Yield records of what the scores are based on, one for each method, or for each variant of its scores.

    Parameters
    ----------
    plan
        The plan to score the run.
    scores, evidence
        Scores by method, and the data from which they were computed.
    store, prices
        The run's replies, and the prices of its models.
    """
    grouping = (name for name in KNOWN if known_groups(plan.outcomes, plan.questions, name) == plan.groups)
    grouped_by = next(grouping, None) if plan.groups else None
    for method, rows in scores.items():
        is_of_hf = Need.STATES in method.needs and plan.model_of_states.startswith(f"{TRANSFORMERS}/")
        packages = sorted({*method.packages, *(PACKAGES if is_of_hf else ())})
        for (variant,), variant_rows in rows.group_by("variant", maintain_order=True):
            ids = variant_rows["question_id"].unique(maintain_order=True).to_list()
            is_graded = bool(method.needs & {Need.FIRST_DRAWS, Need.TRAINING})
            replies = _replies(store, method, variant, ids)
            entering = [reply for reply in replies if is_graded or reply.reply.role is Role.MODEL]
            model = [reply for reply in entering if reply.reply.role is Role.MODEL]
            seconds = [reply.seconds for reply in entering if reply.requests]
            more: dict[str, Any] = {}
            if is_trained(variant_rows):
                more |= {
                    "training_examples": variant_rows.drop_nulls(["wrong", "confidence"]).height,
                    "n_folds": variant_rows["fold"].n_unique(),
                    "seed": evidence.seed,
                    "grouped_by": grouped_by,
                    "groups": len(set(groups_or_own(variant_rows["question_id"], evidence.groups))),
                }
            if Need.STATES in method.needs and evidence.states is not None:
                more |= {
                    "states": len(ids),
                    "state_size": evidence.states(ids[:1]).shape[2],
                    "layer": evidence.layer,
                    "weights": plan.weights,
                }
            yield MethodRecord(
                method=method.name,
                variant=variant,
                questions=variant_rows.height,
                generations=len(model),
                usage=UsageCounter(entering).usage(prices),
                own_requests=sum(reply.requests for reply in entering if is_auxiliary(reply.variant)),
                seconds=None if None in seconds else sum(duration for duration in seconds if duration is not None),
                draws=_most(reply for reply in model if reply.reply.pass_ is not Pass.PROBE),
                own_replies=_most(reply for reply in model if reply.reply.pass_ is Pass.PROBE),
                is_of_model=method.is_of_model,
                needs=tuple(sorted(method.needs)),
                versions=versions(["refusal-index", *packages]),
                **more,
            )


def write_record(folder: RunFolder, records: Iterable[MethodRecord], methods: Collection[str]) -> None:
    """Write records into a run's folder, replacing those of the same methods; the folder must be locked.

    Earlier records that cannot be read are dropped; scoring again writes new ones.

    Parameters
    ----------
    folder
        The run's folder.
    records
        Records of newly computed scores.
    methods
        Methods whose earlier records are outdated: those of the records, and those whose scores were added from tables.
    """
    path = folder.confidence_record
    earlier = []
    if path.exists():
        with suppress(ConfidenceError):
            earlier = [record for record in read_record(path) if record.method not in methods]
    by_method: dict[str, list[dict[str, Any]]] = {}
    for record in map(asdict, (*earlier, *records)):
        by_method.setdefault(record.pop("method"), []).append(record)
    if by_method or path.exists():
        document = {"record_version": RECORD_VERSION, "methods": by_method}
        write_atomically(path, (json.dumps(document, indent=2, allow_nan=False) + "\n").encode())


def _replies(store: ReplyStore, method: Method, variant: str | None, questions: Sequence[str]) -> Iterator[Completion]:
    """Yield the replies on which a method's scores are based, with those of graders."""
    needs = method.needs
    answers_itself = bool(method.prompts) and all(prompt.is_graded for prompt in method.prompts)
    is_about_answers = Need.FIRST_DRAWS not in needs and not answers_itself
    for question in questions:
        if Need.FIRST_DRAWS in needs and variant is not None:
            completions = store.effective_completions(question, variant)
            yield from (completion for completion in completions if completion.reply.pass_ is Pass.FIRST)
        forced_answers = store.effective_completions(question, FORCED_ANSWER) if is_about_answers else []
        yield from forced_answers
        for completion in store.effective_completions(question, FORCED):
            if Need.FORCED_DRAWS in needs or (is_about_answers and not forced_answers and completion.draw == 0):
                yield completion
        for prompt in method.prompts:
            yield from store.completions(question, prompt.variant)


def _most(completions: Iterable[Completion]) -> int:
    """Return the largest number of replies to one question."""
    samples = {(completion.question_id, completion.reply.pass_, completion.draw) for completion in completions}
    return max(Counter(question for question, *_ in samples).values(), default=0)


def refresh_scores(folder: RunFolder, store: ReplyStore, procedure: TwoPass, outcomes: pl.LazyFrame) -> tuple[str, ...]:
    """Update the grades in a folder's confidence table before its outcome table is replaced.

    Scores of this package's methods depend on answers, on repeated draws and, for trained methods, on grades. If a
    grade changed or draws were added, they are removed; the replies are stored, so scoring again sends no requests.
    Other scores keep the grades that came with them; grades taken from the run's outcomes are updated.

    Parameters
    ----------
    folder, store, procedure
        The run's folder and store, and what interprets its replies.
    outcomes
        The outcome table that is about to be written.

    Returns
    -------
    tuple of str
        The methods whose scores were removed.
    """
    table = folder.read_confidence()
    if table is None:
        return ()
    replies = Replies(store, procedure.grader, procedure.rule)
    questions = store.questions()
    answers = {
        question_id: replies.scored(questions[question_id])
        for question_id in set(table["question_id"]) & questions.keys()
    }
    grades = {"question_id": list(answers), "now": [answer and answer.wrong for answer in answers.values()]}
    current = pl.DataFrame(grades, schema={"question_id": pl.String, "now": pl.Boolean})
    forced = table.filter(pl.col("pass") == "forced", pl.col("draw") == 0).join(current, on="question_id", how="left")
    changed = set(forced.filter(pl.col("wrong").ne_missing(pl.col("now")))["method"])
    before = None
    with suppress(OutcomeTableError):
        before = folder.read_outcomes()
    counts_again = [
        rows.lazy().select(SAMPLED_AGAIN.sum()).collect().item() for rows in (before, outcomes) if rows is not None
    ]
    redrawn = len(set(counts_again)) > 1
    groups_kept = []
    outdated = []
    for group in table.partition_by("method", maintain_order=True):
        name = group["method"][0]
        method = method_of(name)
        if method is None or not group["pass"].is_in(["forced", "probe"]).all():
            groups_kept.append(_regraded(group, before, outcomes))
        elif name in changed or (redrawn and method.needs & {Need.FIRST_DRAWS, Need.FORCED_DRAWS}):
            outdated.append(name)
        else:
            groups_kept.append(group)
    updated = pl.concat(groups_kept) if groups_kept else table.clear()
    if not updated.equals(table):
        write_table(updated, folder.confidence)
    return tuple(outdated)


def _regraded(group: pl.DataFrame, before: pl.DataFrame | None, outcomes: pl.LazyFrame) -> pl.DataFrame:
    """Return added scores with the grades of the new outcomes, if their grades came from the earlier outcomes."""
    if before is not None:
        blank = group.with_columns(wrong=pl.lit(None, pl.Boolean))
        with suppress(ConfidenceError):  # raised if the scores are for none of the run's questions
            earlier, regraded = (join_outcomes(blank, table).scores for table in (before, outcomes.collect()))
            if earlier.sort(PLACE).equals(group.sort(PLACE)) and regraded.height == group.height:
                return regraded
    return group


@dataclass(frozen=True)
class AddedScores(JoinedScores):
    """Scores that were added to a run's folder.

    Attributes
    ----------
    outcomes
        The run's outcome table.
    left_out
        Columns of the file with uncertainties that cannot be converted to confidences.
    replaced
        Methods whose earlier scores were replaced.
    assumed
        Number of scores that name neither the pass of their answer nor whether it is right.
    """

    outcomes: pl.DataFrame
    left_out: tuple[str, ...]
    replaced: tuple[str, ...]
    assumed: int


def add_scores(
    run: Path, data: object, *, method: str | None = None, columns: Mapping[str, str] | None = None
) -> AddedScores:
    """Add scores to a run's folder, replacing earlier ones of the same methods.

    Parameters
    ----------
    run
        The folder of a finished run.
    data, method, columns
        As for `read_score_table`.

    Raises
    ------
    RefusalIndexError
        If the run or the scores cannot be used; the folder is then unchanged.
    """
    folder = RunFolder(run)
    folder.read_settings()
    scores, left_out = read_score_table(data, method=method, columns=columns)
    reserved = sorted({*METHODS, ALL} & set(scores["method"]))
    if reserved:
        raise ConfidenceError(
            f"method {reserved[0]!r}: expected a new name, got that of a method of this package; choose another name "
            "for the scores (--name)"
        )
    with folder.lock(), open_store(folder, made=False) as store:
        outcomes = read_outcomes_of(run)
        joined = join_outcomes(scores, outcomes)
        before = folder.read_confidence()
        added = set(joined.scores["method"])
        write_table(with_scores(before, joined.scores), folder.confidence)
        write_results(folder, store)
        write_record(folder, (), added)  # records of earlier scores with these names no longer apply
    earlier = () if before is None else before["method"].unique(maintain_order=True).to_list()
    assumed = scores.filter(pl.col("pass").is_null() & pl.col("wrong").is_null()).height
    replaced = tuple(method_name for method_name in earlier if method_name in added)
    return AddedScores(**vars(joined), outcomes=outcomes, left_out=left_out, replaced=replaced, assumed=assumed)


def export_scores(run: Path, out: Path) -> int:
    """Write all scores in a run's folder to a file and return their number.

    Parameters
    ----------
    run
        The folder of a run.
    out
        The file; its suffix selects Parquet, CSV or JSON Lines.

    Raises
    ------
    RefusalIndexError
        If the folder is not that of a run or has no scores, or the file cannot be written.
    """
    folder = RunFolder(run)
    folder.read_settings()
    table = folder.read_confidence()
    if table is None:
        raise RunFolderError(
            f"{run} has no scores; 'refusal-index confidence {run}' computes them, or adds yours with --add FILE"
        )
    write_table(table, out)
    return table.height


def confidence_scores(
    run: RunResults | str | Path,
    methods: str | Sequence[str] | None = None,
    *,
    model: Any = None,
    grader: Any = None,
    refusal: Any = None,
    group: str = "auto",
    layer: int | None = None,
    weights: str | None = None,
    progress: Progress = ignore_events,
    **settings: Any,
) -> pl.DataFrame:
    """Score how likely the answers of a run are right, and return the confidence table of its folder.

    Only missing requests are sent: forced answers to questions that the first pass answered, and the methods' prompts.

    Parameters
    ----------
    run
        A finished run, or its folder.
    methods
        Names of methods, as listed by ``refusal-index confidence RUN --list``; ``["all"]`` for every method that the
        run allows; None for those that cost nothing: all for an embedded model, else those that send no requests.
    model, grader, refusal
        The run's own model, grader or setting `refusal` if it is a function: the function itself or its name. Code
        named in a folder is run only if it is also named here.
    group
        What trained methods keep in one fold: ``"cluster"``, the column of that name; ``"entity"``, known for the
        almanac; ``"topic"``; ``"none"``; or ``"auto"``, the first of these that is known.
    layer
        The layer whose hidden states ``p-ik`` reads, 0 before the first layer; None for the middle one.
    weights
        The weights of the run's model on this machine, as ``hf/NAME``, whose hidden states ``p-ik`` reads if the run's
        model shows none, as over HTTP.
    progress
        Called with every `Event`.
    settings
        Settings for sending requests: ``engine``, ``max_connections``, ``max_requests`` and the like; for a model that
        was asked at a server, also ``base_url``, since none is taken from the folder.

    Returns
    -------
    polars.DataFrame
        A row for each answer and method: ``question_id``, ``method``, ``confidence`` in [0, 1], null without a score,
        ``wrong``, null without a grade, ``variant``, ``draw``, ``pass`` and ``fold``.

    Raises
    ------
    RefusalIndexError
        If the run cannot be used, a requirement of a method is not met, or some requests failed; replies received so
        far are kept.

    Examples
    --------
    >>> import tempfile
    >>> from refusal_index import evaluate
    >>> run = evaluate("almanac/small", limit=5, variants="high", out=tempfile.mkdtemp())
    >>> confidence_scores(run, ["likelihood"]).columns[:4]
    ['question_id', 'method', 'confidence', 'wrong']
    """
    folder = run.path if isinstance(run, RunResults) else checked_path(run, "run")
    own = (("model", model), ("grader", grader), ("refusal", refusal))
    objects_given = {role: value for role, value in own if value is not None}
    names = {role: value for role, value in objects_given.items() if isinstance(value, str)}
    before = RunFolder(folder).read_complete_settings() if len(names) < len(objects_given) else {}
    names_of_run = {
        "model": before.get("model"),
        "grader": (before.get("grader") or {}).get("name"),
        "refusal": refusal_setting(before),
    }
    objects = {str(names_of_run[role]): value for role, value in objects_given.items() if role not in names}
    if "refusal" in objects_given and "refusal" not in names:
        recorded = names_of_run["refusal"]
        if recorded is None or not is_function_name(recorded):
            raise SettingError(
                "{refusal}: expected none, since no function recognised refusals in this run; leave it out"
            )
        names["refusal"] = recorded
    methods = [methods] if isinstance(methods, str) else methods
    sending = Settings.from_values(**settings)
    plan = prepare_confidence(
        folder, methods, sending, **names, objects=objects, group=group, layer=layer, weights=weights
    )
    scored = run_to_completion(measure(plan, progress))
    if scored.ended is not None:
        raise RunFailedError(f"ended early: {scored.ended}; replies are kept, and the same call resumes")
    return scored.table
