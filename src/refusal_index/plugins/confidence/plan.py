"""The plan of confidence methods: what they need of a run, and what is asked for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

import polars as pl

from refusal_index.data.errors import RunFolderError
from refusal_index.data.files import check_folder
from refusal_index.data.folder import RunFolder
from refusal_index.data.outcome import Question
from refusal_index.data.run_json import Prices
from refusal_index.models.settings import SettingError
from refusal_index.plugins.almanac import ALMANAC
from refusal_index.plugins.batches.wave import refuse_in_flight
from refusal_index.plugins.confidence.method import Answer, Evidence, Method, Need, Prompt, lacking
from refusal_index.plugins.confidence.record import (
    DRAWN_AGAIN,
    OWN,
    Sources,
    States,
    current,
    further_refusals,
    states_of,
    training_shortage,
)
from refusal_index.plugins.confidence.record import FILE as STATES
from refusal_index.plugins.confidence.registry import METHODS
from refusal_index.plugins.confidence.transformers_states import EXTRA as STATES_EXTRA
from refusal_index.protocol import (
    FORCED,
    Completion,
    Conversation,
    ForcedPass,
    GraderKind,
    Pass,
    Placement,
    Probing,
    Procedure,
    PromptSet,
    Protocol,
    Role,
    Step,
    next_requests,
)
from refusal_index.runs.budget import Budget
from refusal_index.runs.carrying import Wave, ask_waves
from refusal_index.runs.checks import check_code
from refusal_index.runs.dry_run import request_tokens
from refusal_index.runs.engine import Opened, Progress
from refusal_index.runs.plan import open_store
from refusal_index.runs.registry import BATCH, engine_of, note_on
from refusal_index.runs.settings import Settings
from refusal_index.runs.store import ReplyStore

GIVES_LOGPROBS = frozenset(
    {"almanac", "openai", "openai-api", "azureai", "google", "vertex", "grok", "together", "fireworks", "openrouter"}
    | {"hf", "vllm", "sglang", "llama-cpp-python"}
)
"""Providers through which log probabilities come, as far as known."""

HAS_STATES = frozenset({"almanac", "hf"})
"""Providers whose weights are here, so that hidden states can be read."""


STATES_PACKAGES = ("torch", "transformers")
"""What reads the hidden states of ``hf/...``."""


@dataclass(frozen=True)
class ConfidencePlan:
    """Scores that only need to be made.

    Attributes
    ----------
    folder
        The run's.
    settings
        Those of the run, and how the rest is sent.
    methods
        What is wanted.
    grader, graders
        Who grades, and the names of those that are asked for it.
    prompts
        The run's prompt set.
    questions
        All that the run asks, by id.
    outcomes
        Its outcome table.
    objects
        Models and functions that are in memory, by the name that the run knows them by.
    given
        The names that did not come from the folder alone.
    groups, layer
        Of trained methods: by question id, what lies in one fold; and which hidden states a probe reads.
    """

    folder: RunFolder
    settings: Settings
    methods: tuple[Method, ...]
    grader: GraderKind
    graders: tuple[str, ...]
    prompts: PromptSet
    questions: Mapping[str, Question]
    outcomes: pl.DataFrame
    objects: Mapping[str, object] = field(default_factory=dict)
    given: frozenset[str] = frozenset()
    groups: Mapping[str, str] = field(default_factory=dict)
    layer: int | None = None

    @property
    def names(self) -> dict[Role, str]:
        """Whom it asks, the model first."""
        graders = dict(zip((Role.GRADER, Role.SECOND_GRADER), self.graders, strict=False))
        return {Role.MODEL: self.settings.model, **graders}

    @property
    def prices(self) -> Prices:
        """What its models cost."""
        return self.settings.accounts.prices

    @cached_property
    def needs(self) -> frozenset[Need]:
        """All that its methods need."""
        return frozenset(need for method in self.methods for need in method.needs)

    @property
    def own_prompts(self) -> tuple[Prompt, ...]:
        """What its methods ask."""
        return tuple(dict.fromkeys(prompt for method in self.methods for prompt in method.prompts))

    def own_store(self, *, made: bool = True) -> ReplyStore:
        """Open the replies that confidence asked for."""
        path = RunFolder(self.folder.path / OWN).replies
        try:
            check_folder(path.parent)  # what is written there would else go elsewhere
            if made:
                path.parent.mkdir(exist_ok=True)
        except OSError as error:
            raise RunFolderError(
                f"{path.parent} cannot be used ({error.strerror}); remove it, and run again"
            ) from error
        return ReplyStore(path if made or path.exists() else None)

    def waves(self, sources: Sources) -> Iterator[Wave]:
        """Yield what is still to be asked, each wave when the replies to those before it are there."""
        answers = self.missing_answers(sources)
        tries = self.takes_logprobs and not self.settings.model.startswith(f"{ALMANAC}/")
        if Need.LOGPROBS in self.needs and tries:
            yield FORCED, answers[:1]  # whether log probabilities come is seen on one question
            _check_logprobs(self, sources, answers[:1])
        yield FORCED, answers
        for prompt in self.own_prompts:
            if prompt.draws > 1 and tries:
                yield prompt.name, self.probes(prompt, sources)[:1]
            yield prompt.name, self.probes(prompt, sources)

    def missing_answers(self, sources: Sources) -> list[Conversation]:
        """Return the questions whose forced answer is still to be asked or graded."""
        procedure = ForcedPass(self.grader, self.wording)
        return [
            Conversation(question, FORCED, procedure)
            for question in self.questions.values()
            if question.gold is not None and self._lacks_answer(question, sources)
        ]

    def _lacks_answer(self, question: Question, sources: Sources) -> bool:
        if sources.own.completions(question.question_id, FORCED):
            return True  # asked for before; that it may be finished is seen by whoever carries it
        there = sources.forced(question).get(0)
        return there is None or (Need.LOGPROBS in self.needs and there.logprobs is None)

    def current(self, conversation: Conversation, own: ReplyStore) -> list[Completion]:
        """Return what was said in a conversation to the very requests that it asks now; nothing where they were others.

        A forced answer without log probabilities is none where a method needs these.
        """
        said = current(self.settings, conversation, own)
        lacking_logprobs = any(one.logprobs is None for one in said if one.reply.role is Role.MODEL)
        if Need.LOGPROBS in self.needs and conversation.variant == FORCED and lacking_logprobs:
            return []
        return said

    @property
    def wording(self) -> Protocol:
        """The words of the forced pass."""
        variant = next(iter(self.prompts.variants))
        prompting = self.settings.prompting
        return Protocol(self.prompts, variant, self.grader, Placement(prompting.placement), prompting.think)

    def probing(self, prompt: Prompt, answers: Mapping[str, str]) -> Procedure:
        """Return the procedure of a method's prompt, about the answers that it is asked of."""
        think = self.settings.prompting.think
        return Probing(self.grader, prompt.template, self.prompts, answers, prompt.is_graded, think)

    def probes(self, prompt: Prompt, sources: Sources) -> list[Conversation]:
        """Return the conversations of a method's prompt: of every question, or of those that have an answer."""
        found = {one: sources.answer(question) for one, question in self.questions.items()}
        answers = {one: answer.text for one, answer in found.items() if answer is not None and answer.text}
        asked = [question for one, question in self.questions.items() if prompt.is_graded or one in answers]
        return self.probed(prompt, asked, sources, answers)

    def probed(
        self,
        prompt: Prompt,
        questions: Iterable[Question],
        sources: Sources,
        answers: Mapping[str, str] = MappingProxyType({}),
    ) -> list[Conversation]:
        """Return the conversations of a prompt about some questions, and the answers that they have."""
        once = self.gives_logprobs and sources.came_with_logprobs(prompt.name)
        procedure, draws = self.probing(prompt, answers), 1 if once else prompt.draws
        return [Conversation(question, prompt.name, procedure, draws) for question in questions]

    @property
    def gives_logprobs(self) -> bool:
        """Whether log probabilities come from the model's provider, as far as known."""
        return self.settings.model.partition("/")[0] in GIVES_LOGPROBS

    @property
    def takes_logprobs(self) -> bool:
        """Whether log probabilities are asked for: only where a method makes use of them, since some models refuse."""
        sampled = any(prompt.draws > 1 for prompt in self.own_prompts)
        return Need.LOGPROBS in self.needs or (sampled and self.gives_logprobs)

    def evidence(self, sources: Sources) -> Evidence:
        """Return all that the methods make scores of."""
        answers = {one: sources.answer(question) for one, question in self.questions.items()}
        known = {one: answer for one, answer in answers.items() if answer is not None}
        further = {one: _further(sources.forced(question)) for one, question in self.questions.items()}
        return Evidence(
            self.settings.model,
            self.questions,
            known,
            further={one: answers for one, answers in further.items() if answers},
            refusals=further_refusals(self.outcomes),
            probes={
                prompt.name: {
                    talk.question.question_id: sources.probed(talk, self.current(talk, sources.own))
                    for talk in self.probes(prompt, sources)
                }
                for prompt in self.own_prompts
            },
            groups=self.groups,
            states=self.states,
            layer=self.layer,
            seed=self.settings.seed,
        )

    def states(self, ids: Sequence[str]) -> States:
        """Return hidden states at the end of the forced prompt, shape (n, layers + 1, size), from the run's folder."""
        procedure, step = ForcedPass(self.grader, self.wording), Step(Pass.FORCED, Role.MODEL)
        talks = {one: procedure.request(step, question).messages for one, question in self.questions.items()}
        return states_of(self.settings.model, talks, self.folder.path / OWN / STATES, ids)


def _further(forced: Mapping[int, Answer]) -> list[Answer]:
    return [answer for draw, answer in sorted(forced.items()) if draw > 0]


def unmet(plan: ConfidencePlan, method: Method) -> str | None:
    """Say what a method lacks in a run; None where it lacks nothing."""
    return next(_unmet(plan, method), None)


def _unmet(plan: ConfidencePlan, method: Method) -> Iterator[str]:
    model, needs = plan.settings.model, method.needs
    if method.lacks:
        yield f"needs {', '.join(method.lacks)}; pip install 'refusal-index[{method.extra}]'"
    if {Need.FIRST_DRAWS, Need.FORCED_DRAWS} & needs and plan.outcomes.filter(DRAWN_AGAIN).is_empty():
        yield "needs several draws, and every question was drawn once; the run's own command with --draws 5 adds them"
    if Need.LOGPROBS in needs and not plan.gives_logprobs:
        yield f"needs log probabilities, and {model} gives none"
    if Need.STATES in needs and model.partition("/")[0] not in HAS_STATES:
        yield f"needs hidden states, which {model} does not show; almanac/... and hf/... do"
    if Need.STATES in needs and model.startswith("hf/") and lacking(STATES_PACKAGES):
        yield f"needs {', '.join(lacking(STATES_PACKAGES))}; pip install 'refusal-index[{STATES_EXTRA}]'"
    if Need.TOPICS in needs and not any(one.topic for one in plan.questions.values()):
        yield "needs topics, and no question of this run has one"
    if Need.TRAINING in needs and (short := training_shortage(plan.outcomes, plan.groups)) is not None:
        yield short


def _check_logprobs(plan: ConfidencePlan, sources: Sources, asked: Sequence[Conversation]) -> None:
    for one in asked:
        answer = sources.answer(one.question)
        if answer is not None and answer.logprobs is None:
            without = (method for method in METHODS.values() if Need.LOGPROBS not in method.needs)
            left = ", ".join(method.name for method in without if unmet(plan, method) is None)
            raise SettingError(
                f"{plan.settings.model} gave no log probabilities with its reply to {one.question.question_id}; "
                f"without them this run allows {left or 'none'}"
            )


@dataclass(frozen=True)
class Pending:
    """What is still to be asked under one name.

    Attributes
    ----------
    name, questions
        Of a prompt, or the forced pass, and how many questions.
    requests, most
        Requests to the model; the most are sent where no log probabilities come, or answers come out otherwise.
    input_tokens
        About how many, of the least.
    """

    name: str
    questions: int
    requests: int
    most: int
    input_tokens: int


def pending(plan: ConfidencePlan) -> list[Pending]:
    """Return what is still to be asked of a run, wave by wave; nothing is sent or written.

    Requests to a model that grades are not counted: each answer takes one, or two where its verdict cannot be read.
    """
    with open_store(plan.folder, made=False) as store, plan.own_store(made=False) as own:
        sources = Sources(store, own, plan.grader)
        answers = _still(plan, plan.missing_answers(sources), own)
        found = [_pending(plan, FORCED, answers, (), own)]
        for prompt in plan.own_prompts:
            talks = plan.probes(prompt, sources)
            there = {one.question.question_id for one in talks}
            new = plan.probed(
                prompt, [one.question for one in answers if one.question.question_id not in there], sources
            )
            due_now = [*_still(plan, talks, own), *new]
            renewed = {one.question.question_id for one in answers} & there - {
                one.question.question_id for one in due_now
            }
            anew = () if prompt.is_graded else [one for one in talks if one.question.question_id in renewed]
            found.append(_pending(plan, prompt.name, due_now, anew, own, prompt.draws))
    return [one for one in found if one.most]


def _pending(
    plan: ConfidencePlan,
    name: str,
    talks: Sequence[Conversation],
    anew: Sequence[Conversation],
    own: ReplyStore,
    draws: int = 1,
) -> Pending:
    asks = [(talk, one) for talk in talks for one in next_requests(talk, plan.current(talk, own))]
    own_asks = [(talk, one) for talk, one in asks if one.step.role is Role.MODEL]
    tokens = sum(
        one.n * request_tokens(plan.settings.model, talk.procedure.request(one.step, talk.question))
        for talk, one in own_asks
    )
    requests, embedded = sum(one.n for _, one in own_asks), plan.settings.model.startswith(f"{ALMANAC}/")
    each = 1 if embedded else draws
    most = sum(one.n if one.n > 1 else each for _, one in own_asks) + each * len(anew)
    return Pending(name, len(talks) + len(anew), requests, most, tokens)


def _still(plan: ConfidencePlan, talks: Sequence[Conversation], own: ReplyStore) -> list[Conversation]:
    return [one for one in talks if next_requests(one, plan.current(one, own))]


async def ask(plan: ConfidencePlan, sources: Sources, progress: Progress, budget: Budget) -> str | None:
    """Ask what is missing, if anything is, and return why it ended before that, as it was told to."""
    if not any(_taken_down(plan, wave, sources.own)[1] for wave in plan.waves(sources)):
        return None
    check_code(plan.names, plan.given, plan.folder.path)
    own = RunFolder(plan.folder.path / OWN)
    if plan.settings.sending.engine != BATCH:
        if plan.settings.sending.forget:
            from refusal_index.plugins.batches.batch_executor import give_up  # noqa: PLC0415 - of one engine only

            await give_up(plan.settings, plan.names, plan.objects, own)
        refuse_in_flight(own, sources.own)
    engine = engine_of(plan.settings.sending.engine)(plan.settings, plan.names, plan.objects)
    progress(Opened(0, note_on(plan.settings.sending)))
    waves = (_taken_down(plan, wave, sources.own) for wave in plan.waves(sources))
    return await ask_waves(waves, plan.settings, own, engine, sources.own, progress, budget)


def _taken_down(plan: ConfidencePlan, wave: Wave, own: ReplyStore) -> Wave:
    """Have the store know the questions of a wave, set aside what is of other requests, and leave what is to be asked.

    What was replied about another answer than the one that is scored now is no judgement on this one.
    """
    variant, talks = wave
    own.require(variant, {one.question: one.draws for one in talks})
    for talk in talks:
        kept, passes = set(plan.current(talk, own)), talk.procedure.passes
        said = own.completions(talk.question.question_id, variant)
        own.retire([one for one in said if one.reply.pass_ in passes and one not in kept])
    return variant, _still(plan, talks, own)
