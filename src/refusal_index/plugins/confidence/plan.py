"""What confidence methods need of a run, and what is asked for them: into the run's store, as its own requests are.

The methods by name come first, then the replies in the store as answers, then the plan of what is still to be asked.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain
from typing import ClassVar

import polars as pl

from refusal_index import entry_points
from refusal_index.data.errors import suggestion
from refusal_index.data.outcome import Grade, Outcome, Question
from refusal_index.data.outcome_table import ConfidenceError
from refusal_index.models.requests import model_request, provider_of
from refusal_index.models.settings import SettingError
from refusal_index.plugins.confidence import hidden_states, model_scores, trained
from refusal_index.plugins.confidence.method import SAMPLED_AGAIN, Answer, Evidence, Method, Need, Prompt, lacking
from refusal_index.plugins.confidence.trained import training_shortage
from refusal_index.protocol import (
    AUXILIARY,
    FORCED,
    Completion,
    Conversation,
    ForcedPass,
    GraderKind,
    Message,
    Pass,
    PendingRequest,
    Procedure,
    PromptSet,
    Protocol,
    Reply,
    Request,
    Role,
    Step,
    next_requests,
    read_logprobs,
    read_reply,
)
from refusal_index.protocol.procedure import pass_outcome, to_request
from refusal_index.runs.budget import Budget
from refusal_index.runs.dry_run import request_tokens
from refusal_index.runs.engine import Opened, Progress, engine_of, note_on
from refusal_index.runs.execute import Round, execute_rounds, outstanding
from refusal_index.runs.plan import Plan, check_code, open_store
from refusal_index.runs.results import total
from refusal_index.runs.settings import Settings
from refusal_index.runs.store import ReplyStore, StoreError

METHODS: dict[str, Method] = {one.name: one for one in (*model_scores.METHODS, *trained.METHODS)}
"""Every method by its name, in the order in which they are listed; `method_of` adds those of other distributions."""


def method_of(name: str) -> Method | None:
    """Find a method by name; other distributions register theirs in the group ``refusal_index.confidence_methods``."""
    if name not in METHODS and (plugin := entry_points.find("confidence_methods", name)) is not None:
        METHODS[name] = entry_points.load(plugin)
    return METHODS.get(name)


def all_methods() -> tuple[Method, ...]:
    """Return every method that is installed, ours first."""
    for name in entry_points.installed("confidence_methods"):
        method_of(name)
    return tuple(METHODS.values())


def methods_of(names: Iterable[str]) -> tuple[Method, ...]:
    """Return methods by their names, in the order of the list.

    Raises
    ------
    ConfidenceError
        If there is none of a name; the message names the nearest.

    Examples
    --------
    >>> [one.name for one in methods_of(["likelihood", "p-answering"])]
    ['p-answering', 'likelihood']
    """
    wanted = set(names)
    if not wanted:
        raise ConfidenceError(f"method: expected some of {', '.join(METHODS)}, got none")
    for name in wanted:
        if method_of(name) is None:
            known = [*METHODS, *(entry_points.installed("confidence_methods").keys() - METHODS.keys())]
            raise ConfidenceError(f"method: expected some of {', '.join(known)}, got {name!r}{suggestion(name, known)}")
    return tuple(method for name, method in METHODS.items() if name in wanted)


FORCED_ANSWER = f"{AUXILIARY}{FORCED}"
"""The variant of forced answers that methods asked for, since the run has none or none with log probabilities."""


@dataclass(frozen=True)
class Replies:
    """Reads answers from the replies of a run.

    Attributes
    ----------
    store
        The run's.
    grader
        Who grades the answers.
    """

    store: ReplyStore
    grader: GraderKind

    def forced(self, question: Question, variant: str = FORCED) -> dict[int, Answer]:
        """Return the forced answers to a question by draw: the run's own, unless `variant` is `FORCED_ANSWER`."""
        completions = self.store.effective_completions(question.question_id, variant)
        forced = [one for one in completions if one.reply.pass_ is Pass.FORCED]
        return self.answers(question, ForcedPass(self.grader), forced)

    def scored(self, question: Question) -> Answer | None:
        """Return the forced answer that is scored: one that methods asked for, or else the run's own."""
        return self.forced(question, FORCED_ANSWER).get(0) or self.forced(question).get(0)

    def answers(self, question: Question, procedure: Procedure, completions: Sequence[Completion]) -> dict[int, Answer]:
        """Return answers by draw, without a grade while a verdict is missing."""
        own = {one.draw: one for one in completions if one.reply.role is Role.MODEL}
        verdicts = [one for one in completions if one.reply.role is not Role.MODEL]
        judged = {one.draw for one in verdicts}
        graded: dict[Reply, int] = {}  # the same reply in several draws is graded in one of them
        for draw in sorted(own, key=lambda draw: (draw not in judged, draw)):
            graded.setdefault(own[draw].reply, draw)
        found = {}
        for draw, one in sorted(own.items()):
            on_it = [verdict.reply for verdict in verdicts if verdict.draw == graded[one.reply]]
            outcome = procedure.step(question, [one.reply, *on_it])
            found[draw] = _answer(one, outcome.wrong if isinstance(outcome, Outcome) else None)
        return found


def _answer(one: Completion, wrong: bool | None) -> Answer:
    # No method reads the log probabilities of further forced answers.
    has_logprobs = one.draw == 0 or one.reply.pass_ is not Pass.FORCED
    try:
        logprobs = read_logprobs(one.logprobs) if has_logprobs else None
    except ValueError as error:
        raise StoreError(f"question {one.question_id}: {error}; restore the store of replies from a copy") from error
    text = read_reply(one.reply.text, one.reply.stop_reason).answer
    return Answer(text, one.reply.text, wrong, logprobs, one.reply.stop_reason)


GIVES_LOGPROBS = {
    *("openai", "openai-api", "azureai", "google", "vertex", "grok", "together", "fireworks", "openrouter"),
    *("hf", "vllm", "sglang", "llama-cpp-python"),
}
"""Providers, besides the embedded models, that give log probabilities, as far as known."""

TRANSFORMERS = "hf"
"""The provider whose hidden states are computed here, with transformers."""


@dataclass(frozen=True)
class Probing(Procedure):
    """A single prompt, asked for each question in each draw.

    Attributes
    ----------
    grader
        The grader of the answer in the reply, if there is one.
    template
        The prompt, with the field ``{question}`` and, if it is about an answer, ``{answer}``.
    prompts
        The prompt set that formats the question, its context and its choices.
    answers
        The answer that the prompt is about, by question id; empty if it is about none.
    is_graded
        Whether the reply contains an answer of its own, to be graded.
    think
        A switch of the model's chat template, at the end of each request to the model.

    Examples
    --------
    >>> from refusal_index.protocol import load_prompt_set
    >>> prompts = load_prompt_set("default")
    >>> probing = Probing(GraderKind.EXACT, "{question} {answer}: true or false?", prompts, {"q": "5"})
    >>> question = Question("q", "How much is 2 + 2?", "4")
    >>> probing.request(probing.step(question, []), question).messages[0].content
    'Question: How much is 2 + 2? 5: true or false?'
    """

    template: str
    prompts: PromptSet
    answers: Mapping[str, str] = field(default_factory=dict)
    is_graded: bool = False
    think: str = ""
    asks_first: ClassVar[bool] = False
    passes: ClassVar[tuple[Pass, ...]] = (Pass.PROBE,)

    def step(self, question: Question, replies: Sequence[Reply], *, force_answered: bool = False) -> Step | Outcome:  # noqa: ARG002 - of the interface
        """Return the next step, or an outcome, which has no grade unless the answer is graded."""
        found = pass_outcome(Pass.PROBE, question, replies, self.grader)
        if self.is_graded or not replies:
            return found
        return Outcome(None, None, Grade.UNSCORED)

    def request(self, step: Step, question: Question) -> Request:
        """Build the request of a step."""
        if step.role is not Role.MODEL:
            return to_request(step, question, None)
        asked = self.prompts.asked(question.text, question.context, question.choices)
        text = self.template.format(question=asked, answer=self.answers.get(question.question_id, ""))
        return Request(step.pass_, step.role, (Message("user", f"{text}\n\n{self.think}" if self.think else text),))


@dataclass(frozen=True)
class ConfidencePlan:
    """Scores to be made for a run.

    Attributes
    ----------
    run
        The run: its folder, settings, questions and models, with the forced pass as its procedure.
    methods
        Which scores are wanted.
    wording
        The words of the run's forced pass.
    outcomes
        The run's outcome table.
    given
        Names of models and graders that the user gave, so that functions of these names may be called.
    groups, layer
        Of trained methods: the fold group of each question, by id, and the layer whose hidden states a probe reads.
    """

    run: Plan
    methods: tuple[Method, ...]
    wording: Protocol
    outcomes: pl.DataFrame
    given: frozenset[str] = frozenset()
    groups: Mapping[str, str] = field(default_factory=dict)
    layer: int | None = None

    @property
    def settings(self) -> Settings:
        """Those of the run, and how requests are sent now."""
        return self.run.settings

    @property
    def is_embedded(self) -> bool:
        """Whether the model runs in this process, and always gives log probabilities."""
        provider, _ = provider_of(self.settings.model)
        return provider is not None and provider.is_embedded

    @property
    def is_free(self) -> bool:
        """Whether its requests cost nothing: the model is embedded, and no other model grades."""
        return self.is_embedded and not self.run.graders

    @property
    def gives_logprobs(self) -> bool:
        """Whether the model gives log probabilities, as far as known."""
        return self.is_embedded or self.settings.model.partition("/")[0] in GIVES_LOGPROBS

    @cached_property
    def questions(self) -> dict[str, Question]:
        """Every question of the run by id."""
        return {one.question_id: one for one in self.run.dataset.questions}

    @cached_property
    def needs(self) -> frozenset[Need]:
        """All that its methods need."""
        return frozenset(need for method in self.methods for need in method.needs)

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """The prompts of its methods."""
        return tuple(dict.fromkeys(prompt for method in self.methods for prompt in method.prompts))

    @property
    def takes_logprobs(self) -> bool:
        """Whether log probabilities are asked for: only where a method uses them, since some models refuse."""
        sampled = any(prompt.draws > 1 for prompt in self.prompts)
        return Need.LOGPROBS in self.needs or (sampled and self.gives_logprobs)

    def replies(self, store: ReplyStore) -> Replies:
        """Return the replies in the run's store as answers."""
        return Replies(store, self.wording.grader)

    def rounds(self, replies: Replies) -> Iterator[Round]:
        """Yield what the methods ask, each round once the replies to those before it are stored.

        Where log probabilities may not come, one question is asked first.
        """
        answers, first = self.missing_answers(replies), self.takes_logprobs and not self.is_embedded
        if Need.LOGPROBS in self.needs and first and answers:
            yield FORCED, answers[:1]
            question = answers[0].question
            answer = replies.scored(question)
            if answer is not None and answer.logprobs is None:
                without = [one for one in METHODS.values() if Need.LOGPROBS not in one.needs]
                left = ", ".join(one.name for one in without if unmet(self, one) is None)
                raise SettingError(
                    f"{self.settings.model} gave no log probabilities with its reply to {question.question_id}; "
                    f"without them this run allows {left or 'none'}"
                )
        yield FORCED, answers
        for prompt in self.prompts:
            if prompt.draws > 1 and first:
                yield prompt.name, self.probes(prompt, replies)[:1]
            yield prompt.name, self.probes(prompt, replies)

    def missing_answers(self, replies: Replies) -> list[Conversation]:
        """Return the forced passes that methods ask for, where the run's own do not do."""
        return [
            Conversation(question, FORCED_ANSWER, self.run.procedures[FORCED])
            for question in self.questions.values()
            if question.gold is not None and self._lacks_answer(question, replies)
        ]

    def _lacks_answer(self, question: Question, replies: Replies) -> bool:
        if replies.store.completions(question.question_id, FORCED_ANSWER):
            return True  # it was asked for before: its grade may be missing
        own = replies.forced(question).get(0)
        return own is None or (Need.LOGPROBS in self.needs and own.logprobs is None)

    def answers(self, replies: Replies) -> dict[str, Answer]:
        """Return the forced answers that are scored, by question id."""
        found = {one: replies.scored(question) for one, question in self.questions.items()}
        return {one: answer for one, answer in found.items() if answer is not None}

    def probes(self, prompt: Prompt, replies: Replies, to_come: Container[str] = ()) -> list[Conversation]:
        """Return the conversations of a method's prompt: about every question, or about those that have an answer.

        - `to_come`: questions that are yet to be answered, and are taken in.
        """
        answers = {one: answer.text for one, answer in self.answers(replies).items() if answer.text}
        wording = self.wording
        procedure = Probing(wording.grader, prompt.template, wording.prompts, answers, prompt.is_graded, wording.think)
        came = (one for name in self.questions for one in replies.store.completions(name, prompt.variant))
        is_reported = all(one.logprobs is not None for one in came if one.reply.role is Role.MODEL)
        draws = 1 if self.gives_logprobs and is_reported else prompt.draws
        return [
            Conversation(question, prompt.variant, procedure, draws)
            for one, question in self.questions.items()
            if prompt.is_graded or one in answers or one in to_come
        ]

    def current(self, conversation: Conversation, store: ReplyStore) -> list[Completion]:
        """Return the replies to the very requests that a conversation asks now; none where those were others.

        A judgement on another answer than the one that is scored now is none on this one, nor is one that was asked
        for in other words; and a forced answer without log probabilities is none where a method needs these.
        """
        completions = store.completions(conversation.question.question_id, conversation.variant)
        own = [one for one in completions if one.reply.role is Role.MODEL]
        if conversation.variant == FORCED_ANSWER:
            is_current = Need.LOGPROBS not in self.needs or all(one.logprobs is not None for one in own)
        else:
            is_current = all(self._is_reply_to(conversation, one, store) for one in own)
        return completions if is_current else []

    def _is_reply_to(self, conversation: Conversation, one: Completion, store: ReplyStore) -> bool:
        place, step = (one.question_id, one.variant, Pass.PROBE, Role.MODEL), Step(Pass.PROBE, Role.MODEL)

        def asked(draw: int) -> str:
            again = store.times_retired(*place, draw)
            return model_request(self.settings, conversation, PendingRequest(step, draw), again).sha256

        # What came as a choice of a response has the request of the first.
        return one.request_sha256 is None or one.request_sha256 in map(asked, (one.draw, *range(one.draw)))

    def unfinished(self, conversations: Iterable[Conversation], store: ReplyStore) -> list[Conversation]:
        """Return the conversations in which something is still to be asked."""
        return [one for one in conversations if next_requests(one, self.current(one, store))]

    def evidence(self, replies: Replies) -> Evidence:
        """Return all that the methods make scores of."""
        forced = {one: replies.forced(question) for one, question in self.questions.items()}
        further = {one: [found[draw] for draw in found if draw > 0] for one, found in forced.items()}
        drawn = self.outcomes.filter(pl.col("draw") > 0).drop_nulls("refused").sort("draw", maintain_order=True)
        refusals: dict[str, dict[str, list[bool]]] = {}
        for variant, question_id, refused in drawn.select("variant", "question_id", "refused").iter_rows():
            refusals.setdefault(variant, {}).setdefault(question_id, []).append(refused)
        probes: dict[str, dict[str, list[Answer]]] = {prompt.name: {} for prompt in self.prompts}
        for prompt in self.prompts:
            for one in self.probes(prompt, replies):
                found = replies.answers(one.question, one.procedure, self.current(one, replies.store))
                probes[prompt.name][one.question.question_id] = list(found.values())
        return Evidence(
            self.settings.model,
            self.questions,
            self.answers(replies),
            further={one: answers for one, answers in further.items() if answers},
            refusals=refusals,
            probes=probes,
            groups=self.groups,
            states=self.states,
            layer=self.layer,
            seed=self.settings.seed,
        )

    def states(self, ids: Sequence[str]) -> hidden_states.States:
        """Return hidden states at the end of the forced prompt, shape (n, layers + 1, size)."""
        procedure, step = self.run.procedures[FORCED], Step(Pass.FORCED, Role.MODEL)
        prompts = {one: procedure.request(step, question).messages for one, question in self.questions.items()}
        path = self.run.folder.path / hidden_states.FILE
        return hidden_states.states_of(self.settings.model, prompts, path, ids)


def unmet(plan: ConfidencePlan, method: Method) -> str | None:
    """Return what a method lacks in a run, in words; None where it lacks nothing."""
    return next(_unmet(plan, method), None)


def _unmet(plan: ConfidencePlan, method: Method) -> Iterator[str]:
    model, needs = plan.settings.model, method.needs
    if method.lacks:
        yield f"needs {', '.join(method.lacks)}; pip install 'refusal-index[{method.extra}]'"
    if {Need.FIRST_DRAWS, Need.FORCED_DRAWS} & needs and plan.outcomes.filter(SAMPLED_AGAIN).is_empty():
        yield "needs several draws, and every question was drawn once; the run's own command with --draws 5 adds them"
    if Need.LOGPROBS in needs and not plan.gives_logprobs:
        yield f"needs log probabilities, and {model} gives none"
    if Need.STATES in needs:
        provider, name = provider_of(model)
        if provider is None and model.partition("/")[0] == TRANSFORMERS:
            if lacks := lacking(hidden_states.PACKAGES):
                yield f"needs {', '.join(lacks)}; pip install 'refusal-index[{hidden_states.EXTRA}]'"
        elif provider is None or provider.layers(name) is None:
            yield f"needs hidden states, which {model} does not show; almanac/... and hf/... do"
    if Need.TOPICS in needs and not any(one.topic for one in plan.questions.values()):
        yield "needs topics, and no question of this run has one"
    if Need.TRAINING in needs and (short := training_shortage(plan.outcomes, plan.groups)) is not None:
        yield short


@dataclass(frozen=True)
class PendingRequests:
    """What is still to be asked under one name.

    Attributes
    ----------
    name, questions
        Of a prompt, or the forced pass, and how many questions.
    requests, most
        Requests to the model; the most are sent where no log probabilities come, or where answers change.
    input_tokens
        About how many, of the fewest requests.
    """

    name: str
    questions: int
    requests: int
    most: int
    input_tokens: int


def pending(plan: ConfidencePlan) -> list[PendingRequests]:
    """Return what is still to be asked for a run, round by round; nothing is sent or written.

    Requests to a model that grades are not counted: each answer takes one, or two where its verdict cannot be read.
    """
    with open_store(plan.run.folder, made=False) as store:
        replies = plan.replies(store)
        answers = plan.unfinished(plan.missing_answers(replies), store)
        to_come = {one.question.question_id for one in answers}
        found = [_pending(plan, FORCED, answers, 0, 1, store)]
        for prompt in plan.prompts:
            probes = plan.probes(prompt, replies, to_come)
            now = plan.unfinished(probes, store)
            settled = {one.question.question_id for one in probes} - {one.question.question_id for one in now}
            again = 0 if prompt.is_graded else len(settled & to_come)
            found.append(_pending(plan, prompt.name, now, again, prompt.draws, store))
    return [one for one in found if one.most]


def _pending(
    plan: ConfidencePlan, name: str, conversations: Sequence[Conversation], again: int, draws: int, store: ReplyStore
) -> PendingRequests:
    """Count the requests of some conversations, and of those that are asked again where their answers change."""
    requests = most = tokens = 0
    each = 1 if plan.is_embedded else draws
    for conversation in conversations:
        for one in next_requests(conversation, plan.current(conversation, store)):
            if one.step.role is Role.MODEL:
                request = conversation.procedure.request(one.step, conversation.question)
                requests += one.n
                most += one.n if one.n > 1 else each
                tokens += one.n * request_tokens(plan.settings.model, request)
    return PendingRequests(name, len(conversations) + again, requests, most + each * again, tokens)


def check_amount(plan: ConfidencePlan, requests: Iterable[PendingRequests]) -> None:
    """Raise SettingError if more requests would be sent than the run itself took, unless they are free."""
    most = sum(one.most for one in requests)
    if plan.is_free or not most:
        return
    check_code(plan.run.names, plan.given, plan.run.folder.path)
    with open_store(plan.run.folder, made=False) as store:
        own = total(store.paid(), plan.run.prices).requests
    if most > own:
        raise SettingError(
            f"{{method}}: up to {most:,} requests to {plan.settings.model}, more than the {own:,} of the run itself; "
            "add {yes} to send them, or name fewer methods ({dry_run} counts their requests)"
        )


async def ask(plan: ConfidencePlan, store: ReplyStore, progress: Progress, budget: Budget) -> str | None:
    """Ask what is missing, if anything is, and return why asking ended before that, as it was told to."""
    rounds = (each for each in map(partial(_set_aside, plan, store), plan.rounds(plan.replies(store))) if each[1])
    first = next(rounds, None)
    if first is None:
        return None
    run = plan.run
    check_code(run.names, plan.given, run.folder.path)
    outstanding().check(run, store)
    engine = engine_of(run.settings.sending.engine)(run.settings, run.names, run.objects)
    progress(Opened(0, note_on(run.settings.sending)))
    return await execute_rounds(chain([first], rounds), run.settings, run.folder, engine, store, progress, budget)


def _set_aside(plan: ConfidencePlan, store: ReplyStore, pending: Round) -> Round:
    """Set aside the replies of a round that are to other requests than it has now, and keep what is to be asked."""
    name, conversations = pending
    for one in conversations:
        completions = store.completions(one.question.question_id, one.variant)
        if completions and not plan.current(one, store):
            store.retire(completions)
    return name, plan.unfinished(conversations, store)
