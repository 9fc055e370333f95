"""The engine that sends requests with Inspect, and the tasks for ``inspect eval refusal_index/...``."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import zipfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from inspect_ai import Epochs, Task, eval_async, task
from inspect_ai._util.error import PrerequisiteError
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.log import EvalLog
from inspect_ai.model import GenerateConfig, Model, ModelOutput, get_model
from inspect_ai.scorer import Metric, SampleScore, Score, Scorer, Target, Value, metric, scorer
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.util import display_type
from inspect_ai.util._display import init_display_type

from refusal_index.datasets import load_dataset, sample
from refusal_index.engines.asks import CARRIED, from_metadata, to_metadata
from refusal_index.engines.engine import Assignment, ModelError, RunFailedError, converse, seldom_collecting
from refusal_index.engines.failures import RESUMES, Failure, Kind, RequestFailedError, error_line, failure_of, told
from refusal_index.engines.functions import (
    PATIENCE,
    RETRIES,
    AnsweringFunction,
    FunctionError,
    GradingFunction,
    checked,
    function_failure,
    is_function_name,
    load_function,
    plain_ask,
    unanswered,
)
from refusal_index.engines.inspect.guard import (
    GRADER_ROLE,
    NO_RETRIES,
    SECOND_GRADER_ROLE,
    Session,
    chat_messages,
    clean_logs,
    current_session,
    guarded,
    model_asked,
    send,
    working_for,
)
from refusal_index.engines.inspect.provider import function_model, resolve_model, to_config
from refusal_index.engines.settings import COMPARABILITY_VERSION, Settings
from refusal_index.engines.store import ReplyStore
from refusal_index.outcomes.files import opened_file
from refusal_index.outcomes.outcome import Grade, Outcome, Question
from refusal_index.protocol import (
    Asked,
    Completion,
    Conversation,
    GraderKind,
    Placement,
    Procedure,
    Protocol,
    TwoPass,
    check_gradable,
    load_prompt_set,
    outcomes,
    taken,
)
from refusal_index.stats import ContingencyTable, refusal_index

NO_GOLD = "no_gold"
"""Marks the sample of a question without a right answer: Inspect wants a target of every sample."""


def to_dataset(name: str, conversations: Iterable[Conversation]) -> MemoryDataset:
    """Return the questions of conversations as an Inspect dataset."""
    return MemoryDataset([to_sample(one.question, one.draws) for one in conversations], name=name)


def to_sample(question: Question, draws: int = 1) -> Sample:
    """Return a question as a sample of Inspect's."""
    known: dict[str, Any] = {
        "topic": question.topic,
        "aliases": list(question.aliases),
        "context": question.context,
        "choices": list(question.choices),
        "pattern": question.pattern,
        NO_GOLD: question.gold is None,
        "draws": draws if draws > 1 else None,
    }
    return Sample(
        id=question.question_id,
        input=question.text,
        target=question.gold or "",
        metadata={key: value for key, value in known.items() if value},
    )


def to_question(sample_id: object, text: str, gold: str, metadata: Mapping[str, Any]) -> Question:
    """Return the question of a sample, from its parts as the task state and the log both hold them."""
    return Question(
        str(sample_id),
        text,
        None if metadata.get(NO_GOLD) else gold,
        tuple(metadata.get("aliases", ())),
        metadata.get("topic"),
        metadata.get("context"),
        tuple(metadata.get("choices", ())),
        metadata.get("pattern"),
    )


CELLS = {
    (True, True): "refused_wrong",
    (True, False): "refused_right",
    (False, True): "answered_wrong",
    (False, False): "answered_right",
}


def task_of(assignment: Assignment) -> Task:
    """Return the task that carries an assignment."""
    settings, first = assignment.settings, next(iter(assignment.conversations), None)
    shared = {
        "variant": assignment.variant,
        "prompts": settings.prompting.prompts,
        "grader": str(first.procedure.grader) if first else str(GraderKind.EXACT),
        "placement": settings.prompting.placement,
        "think": settings.prompting.think,
    }
    draws = max((one.draws for one in assignment.conversations), default=1)
    return two_pass_task(assignment.dataset, assignment.conversations, settings, shared, {"draws": draws})


def two_pass_task(
    dataset: str,
    conversations: Sequence[Conversation],
    settings: Settings,
    shared: Mapping[str, str],
    metadata: Mapping[str, Any],
) -> Task:
    """Return the task that asks questions in two passes.

    Parameters
    ----------
    dataset, conversations, settings
        What is asked, and how.
    shared
        Arguments of the solver, also shown in the log's header.
    metadata
        What else the header shows.
    """
    return Task(
        dataset=to_dataset(dataset, conversations),
        solver=two_pass(**shared, seed=settings.seed),
        scorer=two_pass_scorer(shared["grader"]),
        config=to_config(settings.decoding),
        epochs=Epochs(1, "mode"),  # the default reducer would take the cells for numbers
        metadata={**shared, "dataset": dataset, **metadata},
        name=f"{dataset}-{shared['variant']}",
        version=COMPARABILITY_VERSION,
    )


@solver
def two_pass(
    variant: str = "normal",
    prompts: str = "default",
    grader: str = GraderKind.EXACT,
    placement: str = Placement.USER,
    think: str = "",
    seed: int = 0,
) -> Solver:
    """Ask each question in two passes, as the protocol says.

    Parameters
    ----------
    variant, prompts
        First-pass variant, and name or path of the prompt set.
    grader
        ``"exact"``, ``"choice"`` or ``"regex"``; ``"model"`` for the model in the role ``grader``; ``"agree"`` for that
        one and another in the role ``second_grader``, whose verdicts must agree.
    placement
        Whether the instruction stands in the ``"user"`` message or a ``"system"`` message.
    think
        A switch for models that know one, such as ``"/no_think"``, which ends what the model is asked.
    seed
        Seed of the run; each request's seed is derived from it.
    """
    session = current_session()
    protocol = None
    if session is None:  # under `inspect eval` the sample is all there is
        protocol = Protocol(load_prompt_set(prompts), variant, GraderKind(grader), Placement(placement), think)
        settings = Settings.of(seed=seed, max_retries=0)  # Inspect's own --max-retries says how often
        session = Session(Assignment("", variant, (), settings, ReplyStore(None)), {})
    assignment = session.assignment

    async def solve(state: TaskState, generate: Generate) -> TaskState:  # noqa: ARG001 - Inspect's signature
        known = session.conversations.get(str(state.sample_id))
        conversation = known or _conversation(state, variant, TwoPass(GraderKind(grader), protocol))
        try:
            await converse(assignment, conversation, send, explain)
        except (
            RequestFailedError
        ) as error:  # said in one line: Inspect takes a third of a second to draw what led to it
            raise error.with_traceback(None) from None
        said = taken(conversation, assignment.store.said(conversation.question.question_id, conversation.variant))
        state.output = ModelOutput.from_content(str(get_model()), said[0].reply.text if said else "")
        state.metadata[CARRIED] = to_metadata(said)
        return state

    return solve


def _conversation(state: TaskState, variant: str, procedure: Procedure) -> Conversation:
    question = to_question(state.sample_id, state.input_text, state.target.text, state.metadata)
    return Conversation(question, variant, procedure, int(state.metadata.get("draws", 1)))


def explain(error: Exception, asked: Asked) -> Failure:
    """Say what an error comes down to that a provider raised, or a function."""
    if isinstance(error, FunctionError):
        return function_failure(error)
    model = model_asked(asked)
    if isinstance(error, PrerequisiteError):  # a package that is not installed, a key that is not set
        return Failure(told(error), str(model), Kind.LASTING, f"provide what it names; {RESUMES}")
    names = model.api.api_key_vars
    known = [name for name in names if os.environ.get(name)] or names
    return failure_of(error, told(error), str(model), " or ".join(known) or "the key")


def cell_of(outcome: Outcome) -> str:
    """Return the cell of the 2x2 table that an outcome falls into, or ``"unscored"``."""
    if outcome.refused is None or outcome.wrong is None:
        return str(Grade.UNSCORED)
    return CELLS[outcome.refused, outcome.wrong]


@metric
def two_pass_metrics() -> Metric:
    """Refusal Index with its standard error, the rates it rests on, and the share unscored; NaN where undefined."""

    def compute(scores: list[SampleScore]) -> Value:
        return _metrics(Counter(str(score.score.value) for score in scores))

    return compute


def _metrics(counts: Counter[str]) -> dict[str, float]:
    table = ContingencyTable(**{cell: counts[cell] for cell in CELLS.values()})
    result = refusal_index(table)
    asked = counts.total()
    return {
        "refusal_index": _or_nan(result.estimate),
        "standard_error": _or_nan(result.standard_error),
        "correct_rate": table.correct_rate,
        "refusal_rate": table.refusal_rate,
        "error_rate": table.error_rate,
        "unscored": counts[Grade.UNSCORED] / asked if asked else float("nan"),
    }


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else value


@scorer(metrics=[two_pass_metrics()])
def two_pass_scorer(grader: str = GraderKind.EXACT) -> Scorer:
    """Turn replies into the cell of the 2x2 table; of a question drawn repeatedly the first draw counts.

    Parameters
    ----------
    grader
        As for the solver.
    """
    kind, session = GraderKind(grader), current_session()

    async def score(state: TaskState, target: Target) -> Score | None:  # noqa: ARG001 - Inspect's signature
        known = session.conversations.get(str(state.sample_id)) if session else None
        conversation = known or _conversation(state, "", TwoPass(kind))
        said = from_metadata(state.metadata[CARRIED], conversation.question.question_id, conversation.variant)
        became = outcomes(conversation, said)
        if became is None:
            return None
        return Score(value=cell_of(became[0]), answer=became[0].first_reply, explanation=_explanation(became[0]))

    return score


def _explanation(outcome: Outcome) -> str:
    forced = "" if outcome.forced_reply is None else f"\n\nforced to answer: {outcome.forced_reply}"
    reason = f"\n\nunscored: {outcome.unscored_reason}" if outcome.unscored_reason else ""
    return f"first pass: {outcome.first_reply}{forced}{reason}"


def _task_of(name: str, default_grader: GraderKind = GraderKind.MODEL) -> Callable[..., Task]:
    """Return the task that asks a dataset; of ``mixed``, the datasets are an argument."""

    @task(name=name)
    def ask(
        variant: str = "normal",
        data: str | None = None,
        limit: int | None = None,
        grader: str = default_grader,
        prompts: str = "default",
        placement: str = "user",
        think: str = "",
        draws: int = 1,
        seed: int = 0,
        datasets: str = name,
    ) -> Task:
        """Ask a dataset in two passes.

        Parameters
        ----------
        variant
            First-pass variant of the prompt set: ``low``, ``normal``, ``high`` or ``highest``.
        data
            A local copy of the dataset, downloaded and checked where it is not given; of a mix, one for each that needs
            one, separated by commas.
        limit
            Size of a seeded sample of the questions.
        grader
            ``"model"`` for the model in the role ``grader`` (openai/gpt-4o-mini unless set); ``"agree"`` for that one
            and another in the role ``second_grader``; or ``"exact"``, ``"choice"`` or ``"regex"``.
        prompts, placement, think
            Prompt set, where its instruction stands, and a switch that ends what the model is asked.
        draws, seed
            How often each question is drawn, and the seed of the run.
        datasets
            Of a mix, its datasets, joined by ``+``.
        """
        files = data.split(",") if isinstance(data, str) else data
        dataset = load_dataset(datasets, data=files, mix_seed=seed)
        dataset = dataset if limit is None else sample(dataset, limit, seed)
        kind = GraderKind(grader)
        check_gradable(dataset.questions, kind)
        procedure = TwoPass(kind, Protocol(load_prompt_set(prompts), variant, kind, Placement(placement), think))
        shared = {"variant": variant, "prompts": prompts, "grader": grader, "placement": placement, "think": think}
        conversations = [Conversation(question, variant, procedure, draws) for question in dataset.questions]
        return two_pass_task(dataset.name, conversations, Settings.of(seed=seed), shared, {"draws": draws})

    return ask


simpleqa = _task_of("simpleqa")
simpleqa_verified = _task_of("simpleqa_verified")
almanac_task = _task_of("almanac", GraderKind.EXACT)
precise_wiki = _task_of("precise_wiki")
faitheval_counterfactual = _task_of("faitheval_counterfactual", GraderKind.CHOICE)
mixed = _task_of("mixed")
own_questions = _task_of("own")


async def check_grader(grader: Model, asked: Asked) -> Completion:
    """Have the grader grade a plain case, and return its reply, which is about no question of the run.

    Raises
    ------
    ModelError
        If its key, its name or its verdict is not right.
    """
    config = GenerateConfig(max_retries=RETRIES, attempt_timeout=PATIENCE)
    try:
        output = await grader.generate(chat_messages(plain_ask(asked).request), config=config)
    except Exception as error:  # whatever the provider raises
        raise unanswered(str(grader), told(error)) from error
    usage = output.usage
    tokens = (usage.input_tokens, usage.output_tokens) if usage else (0, 0)
    return checked(str(grader), asked, output.completion, *tokens)


WAIT = 0.05  # seconds between looks whether another thread is done
LOG_BUFFER = 100  # questions between writes of the log: what a kill loses of it is in the store
NO_MODEL = "none/none"  # Inspect's own for a task that asks nobody
HEADER, START = "header.json", "_journal/start.json"  # a log has the second one only until it is complete
MAX_HEADER = 64 << 20  # bytes
UNREADABLE = object()
ROLES = {Asked.GRADER: GRADER_ROLE, Asked.SECOND_GRADER: SECOND_GRADER_ROLE}

_turn = threading.Lock()
"""Inspect runs one evaluation a process at a time; those of other threads wait for their turn."""


class InspectEngine:
    """Carries requests through Inspect.

    Parameters
    ----------
    settings
        Those of the run.
    names
        Whom it asks; without a model where only grades are asked for.
    objects
        Models of Inspect's and functions, by the name that stands for them.

    Raises
    ------
    ModelError
        If one of them cannot be asked.
    """

    together = False

    def __init__(self, settings: Settings, names: Mapping[Asked, str], objects: Mapping[str, object]) -> None:
        self._settings = settings
        self._own: list[Model] = []  # a user's own models stay open
        self._functions: dict[Asked, GradingFunction] = {}
        self._graders: dict[Asked, Model] = {}
        once = GenerateConfig(max_retries=NO_RETRIES)
        for asked in ROLES:
            if asked in names:
                self._add_grader(asked, names[asked], objects, once)
        stand_in = next(iter(self._graders.values()), None)
        if Asked.MODEL in names:
            self._model = self._resolved(names[Asked.MODEL], objects, None, "model")
        else:
            self._model = stand_in or get_model(NO_MODEL, memoize=False)

    def _add_grader(self, asked: Asked, name: str, objects: Mapping[str, object], config: GenerateConfig) -> None:
        given: Any = objects.get(name)
        if is_function_name(name) or (callable(given) and not isinstance(given, Model)):
            self._functions[asked] = GradingFunction(given or load_function(name, "grader"), name)
            return
        try:
            self._graders[asked] = self._resolved(name, objects, config, "grader")
        except ModelError as error:
            raise ModelError(
                f"grader: {error.args[0].rstrip('.')}; choose another one, or {{grader}} exact, which asks nobody"
            ) from error

    def _resolved(self, name: str, objects: Mapping[str, object], config: GenerateConfig | None, role: str) -> Model:
        given: Any = objects.get(name)
        if isinstance(given, Model):
            return guarded(given)
        if is_function_name(name) or given is not None:
            function = given or load_function(name, role)
            model = function_model(AnsweringFunction(function, name), config)
        else:
            greedy = role == "model" and self._settings.decoding.temperature == 0
            model = resolve_model(name, config, greedy=greedy)
        self._own.append(model)
        return model

    @asynccontextmanager
    async def open(self, store: ReplyStore | None = None) -> AsyncIterator[None]:
        """Check the graders that have not replied before, and close all models at the end.

        Raises
        ------
        ModelError
            If a grader does not grade a plain case rightly.
        """
        async with AsyncExitStack() as stack:
            for model in self._own:
                await stack.enter_async_context(model)
            for asked, grader in self._graders.items():
                if store is None or not store.has_heard(asked):
                    checked = await check_grader(grader, asked)
                    if store is not None:
                        store.put([checked])
            yield

    async def carry(self, assignment: Assignment) -> None:
        """Run one evaluation of Inspect's; beside what the store holds, its log comes of it."""
        async with _in_turn():
            superseded = _logs_of(assignment)
            with at_work(), clean_logs(), working_for(self._session(assignment)):
                await self._evaluate(task_of(assignment), assignment)
        for path in superseded if assignment.breaker.reason is None else ():
            path.unlink()  # the new log shows all that it did

    def _session(self, assignment: Assignment) -> Session:
        conversations = {one.question.question_id: one for one in assignment.conversations}
        return Session(assignment, conversations, self._functions)

    async def _evaluate(self, task: Task, assignment: Assignment) -> None:
        # In a task of its own: Inspect takes a cancellation of the one that it runs in for an interruption.
        running, ours = asyncio.create_task(self._eval(task, assignment)), asyncio.current_task()
        ending = asyncio.create_task(_cancel_at_end(running, assignment))
        try:
            logs = await running
        except asyncio.CancelledError:
            if assignment.breaker.reason is None or (ours and ours.cancelling()):
                raise
            logs = []
        finally:
            ending.cancel()
        if ours and ours.cancelling():
            raise asyncio.CancelledError  # Inspect keeps a cancellation to itself
        if assignment.breaker.reason is not None:
            return
        if not logs or logs[0].status == "cancelled":
            raise KeyboardInterrupt
        if logs[0].status != "success":
            said = logs[0].error.message if logs[0].error else "no reason given"
            raise RunFailedError(f"{task.name}: Inspect ended with status {logs[0].status!r}: {error_line(said)}")

    async def _eval(self, task: Task, assignment: Assignment) -> list[EvalLog]:
        sending, folder = self._settings.sending, assignment.folder
        return await eval_async(
            task,
            model=self._model,
            model_roles={ROLES[asked]: model for asked, model in self._graders.items()},
            log_dir=str(folder.logs) if folder else None,
            log_level="error",
            log_level_transcript="error",
            score_display=False,
            log_realtime=False,
            log_buffer=LOG_BUFFER,
            log_header_only=True,
            log_model_api=False,
            acp_server=False,
            ctl_server=False,
            fail_on_error=False,
            continue_on_fail=True,
            max_retries=NO_RETRIES,
            max_connections=sending.max_connections,
        )


async def _cancel_at_end(running: asyncio.Task[Any], assignment: Assignment) -> None:
    """Keep Inspect from going through every question that is left, to ask nothing."""
    await assignment.ended()
    running.cancel()


@asynccontextmanager
async def _in_turn() -> AsyncIterator[None]:
    while not _turn.acquire(blocking=False):
        await asyncio.sleep(WAIT)
    try:
        yield
    finally:
        _turn.release()


def _logs_of(assignment: Assignment) -> list[Path]:
    """Return the logs that a variant has so far, and those that cannot be read, as a kill leaves them."""
    paths = assignment.folder.logs.glob("*.eval") if assignment.folder else ()
    return [path for path in paths if _variant_in(path) in (assignment.variant, UNREADABLE)]


def _variant_in(path: Path) -> object:
    """Return the variant that the header of a log names, None in a log of another task, or `UNREADABLE`."""
    try:
        with opened_file(path) as file, zipfile.ZipFile(file) as archive:
            with archive.open(HEADER if HEADER in archive.namelist() else START) as part:
                document = json.loads(part.read(MAX_HEADER))
            return (document["eval"].get("metadata") or {}).get("variant")
    except Exception:  # whatever readers of archives and JSON raise
        return UNREADABLE


@contextmanager
def at_work() -> Iterator[None]:
    """Let Inspect show nothing, and collect garbage rarely, while the block runs."""
    shown = display_type()
    init_display_type("none")
    try:
        with seldom_collecting():
            yield
    finally:
        init_display_type(shown)
