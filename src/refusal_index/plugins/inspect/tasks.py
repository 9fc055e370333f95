"""The tasks for ``inspect eval refusal_index/...``: a solver for the two passes, and a scorer of their outcomes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import GenerateConfig, Model, ModelOutput, get_model
from inspect_ai.solver import Generate, Solver, TaskState, solver

from refusal_index.data.datasets import load_dataset, sample
from refusal_index.data.outcome import Question
from refusal_index.models.failures import Failure, RequestFailedError
from refusal_index.models.requests import ModelRequest, Response
from refusal_index.plugins.inspect.client import classify, generate, guarded, to_config
from refusal_index.plugins.inspect.outcomes import OUTCOME, outcome, outcome_row
from refusal_index.plugins.inspect.two_pass import two_pass  # noqa: F401 - for `--solver refusal_index/two_pass`
from refusal_index.protocol import (
    Conversation,
    GraderKind,
    GraderPrompt,
    Placement,
    Procedure,
    Protocol,
    Role,
    TwoPass,
    check_gradable,
    load_prompt_set,
    outcomes,
    used_completions,
)
from refusal_index.runs.conversing import converse
from refusal_index.runs.engine import Assignment
from refusal_index.runs.graders import grader_prompt_of
from refusal_index.runs.settings import COMPARABILITY_VERSION, DEFAULT_GRADER, Settings
from refusal_index.runs.store import ReplyStore

NO_GOLD = "no_gold"
"""Metadata key of a question without a right answer, since Inspect requires a target for every sample."""


def to_dataset(name: str, conversations: Iterable[Conversation]) -> MemoryDataset:
    """Convert the questions of conversations to an Inspect dataset."""
    return MemoryDataset(
        [to_sample(conversation.question, conversation.draws) for conversation in conversations], name=name
    )


DETAILS = ("topic", "aliases", "context", "choices", "pattern")
"""Fields of a question that are in the metadata of its sample, if they are not empty."""


def to_sample(question: Question, draws: int = 1) -> Sample:
    """Convert a question to an Inspect sample."""
    details = {name: getattr(question, name) for name in DETAILS}
    metadata = {**details, NO_GOLD: question.gold is None, "draws": draws if draws > 1 else None}
    return Sample(
        id=question.question_id,
        input=question.text,
        target=question.gold or "",
        metadata={key: value for key, value in metadata.items() if value},
    )


def to_question(sample_id: object, text: str, gold: str, metadata: Mapping[str, Any]) -> Question:
    """Convert the parts of an Inspect sample, from the task state or a log, to a question."""
    details = {name: metadata[name] for name in DETAILS if name in metadata}
    details |= {name: tuple(details.get(name, ())) for name in ("aliases", "choices")}
    return Question(str(sample_id), text, None if metadata.get(NO_GOLD) else gold, **details)


@solver
def two_pass_questions(
    variant: str = "normal",
    prompts: str = "default",
    grader: str = GraderKind.EXACT,
    placement: str = Placement.USER,
    think: str = "",
    seed: int = 0,
    grader_prompt: str | None = None,
) -> Solver:
    """Ask each question in two passes, and keep its outcome: that of the first draw, if it is sampled more than once.

    Parameters
    ----------
    variant, prompts
        First-pass variant, and name or path of the prompt set.
    grader
        ``"exact"``, ``"includes"``, ``"choice"`` or ``"regex"``; ``"model"`` for the model in the role ``grader``;
        ``"agree"`` for that model and the one in the role ``second_grader``, whose verdicts must agree.
    placement
        Whether the instruction is in the ``"user"`` message or a ``"system"`` message.
    think
        A switch such as ``"/no_think"`` for models that support one, appended to the prompt.
    seed
        Seed of the run; each request's seed is derived from it.
    grader_prompt
        Path of a file with what a grading model is asked.
    """
    kind = GraderKind(grader)
    protocol = Protocol(load_prompt_set(prompts), variant, kind, Placement(placement), think)
    procedure = TwoPass(kind, protocol, grader_prompt=_grader_prompt(grader_prompt, kind))
    settings = Settings.from_values(seed=seed, max_retries=0)  # Inspect retries, according to its --max-retries
    assignment = Assignment("", variant, (), settings, ReplyStore(None))

    async def solve(state: TaskState, generate: Generate) -> TaskState:  # noqa: ARG001 - Inspect's signature
        conversation = _conversation(state, variant, procedure)
        try:
            await converse(assignment, conversation, send, explain)
        except RequestFailedError as error:  # without the traceback, which takes Inspect a third of a second to render
            raise error.with_traceback(None) from None
        stored = assignment.store.completions(conversation.question.question_id, conversation.variant)
        completions = used_completions(conversation, stored)
        state.output = ModelOutput.from_content(str(get_model()), completions[0].reply.text if completions else "")
        graded = outcomes(conversation, completions)
        if graded:
            state.metadata[OUTCOME] = outcome_row(graded[0], variant, state.epoch - 1)
        return state

    return solve


def _grader_prompt(path: str | None, kind: GraderKind) -> GraderPrompt:
    """Return what a grading model is asked; raises SettingError if a file is given for a rule."""
    return grader_prompt_of(Path(path) if path else None, [str(Role.GRADER)] * kind.models)


def _conversation(state: TaskState, variant: str, procedure: Procedure) -> Conversation:
    question = to_question(state.sample_id, state.input_text, state.target.text, state.metadata)
    return Conversation(question, variant, procedure, int(state.metadata.get("draws", 1)))


def model_for(role: Role) -> Model:
    """Return the guarded model that Inspect's command assigns to a role."""
    if role is Role.MODEL:
        return guarded(get_model())
    if role is Role.GRADER:
        return guarded(get_model(role=str(Role.GRADER), default=DEFAULT_GRADER))
    return guarded(get_model(role=str(Role.SECOND_GRADER), required=True))


async def send(request: ModelRequest) -> Response:
    """Send a request to the model of its role."""
    return await generate(model_for(request.request.role), request, GenerateConfig())


def explain(error: Exception, role: Role) -> Failure:
    """Classify the error of a request."""
    return classify(error, model_for(role))


def _task_of(name: str, default_grader: GraderKind = GraderKind.MODEL) -> Callable[..., Task]:
    """Return the task for a dataset; the task ``mixed`` takes the datasets as an argument."""

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
        grader_prompt: str | None = None,
    ) -> Task:
        """Ask the questions of a dataset in two passes.

        Parameters
        ----------
        variant
            First-pass variant of the prompt set: ``low``, ``normal``, ``high`` or ``highest``.
        data
            A local copy of the dataset, which is downloaded and checked otherwise; for a mix, the copies of the
            datasets that need one, separated by commas.
        limit
            Size of a seeded sample of the questions.
        grader
            ``"model"`` for the model in the role ``grader`` (openai/gpt-4o-mini by default); ``"agree"`` for that model
            and the one in the role ``second_grader``; or ``"exact"``, ``"includes"``, ``"choice"`` or
            ``"regex"``.
        prompts, placement, think
            Prompt set, the message that holds its instruction, and a switch that is appended to the prompt.
        draws, seed
            Number of samples per question, and the seed of the run.
        datasets
            The datasets of a mix, joined by ``+``.
        grader_prompt
            Path of a file with what a grading model is asked.
        """
        files = data.split(",") if isinstance(data, str) else data
        dataset = load_dataset(datasets, data=files, mix_seed=seed)
        dataset = dataset if limit is None else sample(dataset, limit, seed)
        kind = GraderKind(grader)
        check_gradable(dataset.questions, kind)
        procedure = TwoPass(kind, Protocol(load_prompt_set(prompts), variant, kind, Placement(placement), think))
        _grader_prompt(grader_prompt, kind)  # raises before a question is asked
        shared = {"variant": variant, "prompts": prompts, "grader": grader, "placement": placement, "think": think}
        conversations = [Conversation(question, variant, procedure, draws) for question in dataset.questions]
        settings = Settings.from_values(seed=seed)
        return Task(
            dataset=to_dataset(dataset.name, conversations),
            solver=two_pass_questions(**shared, seed=settings.seed, grader_prompt=grader_prompt),
            scorer=outcome(),
            config=to_config(settings.decoding),
            metadata={**shared, "grader_prompt": grader_prompt, "dataset": dataset.name, "draws": draws},
            name=f"{dataset.name}-{variant}",
            version=COMPARABILITY_VERSION,
        )

    return ask


simpleqa = _task_of("simpleqa")
simpleqa_verified = _task_of("simpleqa_verified")
almanac_task = _task_of("almanac", GraderKind.EXACT)
precise_wiki = _task_of("precise_wiki")
faitheval_counterfactual = _task_of("faitheval_counterfactual", GraderKind.CHOICE)
mixed = _task_of("mixed")
own_questions = _task_of("own")
