"""Plan the requests of confidence methods for a run; their replies go into the run's store like all others.

The module contains the methods by name, the parsing of stored replies as answers, and the plan of pending requests.
"""

from __future__ import annotations

import sys
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import ClassVar

import polars as pl

from refusal_index import entry_points
from refusal_index.data.outcome import Grade, Outcome, Question
from refusal_index.data.outcome_table import ConfidenceError
from refusal_index.errors import suggestion
from refusal_index.findings.dry_run import Assumptions, Load
from refusal_index.models.accounts import plugin_of
from refusal_index.models.requests import ModelProvider, model_request, provider_of
from refusal_index.models.settings import SettingError
from refusal_index.plugins.confidence import hidden_states, model_scores, trained
from refusal_index.plugins.confidence.method import (
    SAMPLED_AGAIN,
    Answer,
    Evidence,
    Method,
    Need,
    Prompt,
    missing_packages,
)
from refusal_index.plugins.confidence.trained import training_shortage
from refusal_index.protocol import (
    AUXILIARY,
    FORCED,
    Completion,
    Conversation,
    ForcedPass,
    GraderKind,
    GraderPrompt,
    Message,
    Pass,
    PendingRequest,
    Procedure,
    Protocol,
    Reply,
    Request,
    Role,
    Step,
    next_requests,
    read_logprobs,
)
from refusal_index.protocol.conversation import replies_by_draw
from refusal_index.protocol.procedure import to_request
from refusal_index.protocol.refusals import RefusalRule
from refusal_index.protocol.steps import pass_outcome
from refusal_index.runs.budget import Budget, UsageCounter
from refusal_index.runs.dry_run import request_tokens
from refusal_index.runs.engines import engine_of, note_on
from refusal_index.runs.events import Opened, Progress
from refusal_index.runs.made_with import check_code
from refusal_index.runs.model_args import check_model_args_before
from refusal_index.runs.open_run import Round, execute_rounds
from refusal_index.runs.outstanding import settle_outstanding
from refusal_index.runs.plan import Plan
from refusal_index.runs.servers import check_addresses, record_addresses
from refusal_index.runs.simulation import count_requests
from refusal_index.runs.store import ReplyStore, StoreError, open_store

METHODS: dict[str, Method] = {method.name: method for method in (*model_scores.METHODS, *trained.METHODS)}
"""All methods by name, in the order in which they are listed; `method_of` adds those of other packages."""


def method_of(name: str) -> Method | None:
    """Return a method by name, None if unknown; the entry-point group is ``refusal_index.confidence_methods``."""
    if name not in METHODS and (plugin := entry_points.find("confidence_methods", name)) is not None:
        METHODS[name] = entry_points.load(plugin)
    return METHODS.get(name)


def all_methods() -> tuple[Method, ...]:
    """Return every installed method, those of this package first."""
    for name in entry_points.installed("confidence_methods"):
        method_of(name)
    return tuple(METHODS.values())


def methods_of(names: Iterable[str]) -> tuple[Method, ...]:
    """Return methods by name, in the order in which they are listed.

    Raises
    ------
    ConfidenceError
        If a name is unknown; the message suggests the closest one.

    Examples
    --------
    >>> [one.name for one in methods_of(["likelihood", "p-answering"])]
    ['p-answering', 'likelihood']
    """
    requested = set(names)
    if not requested:
        raise ConfidenceError(f"method: expected some of {', '.join(METHODS)}, got none")
    for name in requested:
        if method_of(name) is None:
            all_names = [*METHODS, *(entry_points.installed("confidence_methods").keys() - METHODS.keys())]
            raise ConfidenceError(
                f"method: expected some of {', '.join(all_names)}, got {name!r}{suggestion(name, all_names)}"
            )
    return tuple(method for name, method in METHODS.items() if name in requested)


FORCED_ANSWER = f"{AUXILIARY}{FORCED}"
"""Variant of forced answers requested for methods because the run has none, or none with log probabilities."""


@dataclass(frozen=True)
class Replies:
    """Reads answers from the stored replies of a run.

    Attributes
    ----------
    store
        The run's store.
    grader, refusals
        The grader of the answers, and how replies are read.
    """

    store: ReplyStore
    grader: GraderKind
    refusals: RefusalRule | None = None

    def forced(self, question: Question, variant: str = FORCED) -> dict[int, Answer]:
        """Return the forced answers to a question by draw: the run's own by default."""
        completions = self.store.effective_completions(question.question_id, variant)
        forced = [completion for completion in completions if completion.reply.pass_ is Pass.FORCED]
        return answers_of(
            Conversation(question, variant, ForcedPass(self.grader, refusals=self.refusals), sys.maxsize), forced
        )

    def scored(self, question: Question) -> Answer | None:
        """Return the forced answer to score: the one requested for methods, or else the run's own."""
        return self.forced(question, FORCED_ANSWER).get(0) or self.forced(question).get(0)


def answers_of(conversation: Conversation, completions: Sequence[Completion]) -> dict[int, Answer]:
    """Return the answers by draw; `wrong` is None if a verdict is missing."""
    by_draw = {completion.draw: completion for completion in completions if completion.reply.role is Role.MODEL}
    answers = {}
    for draw, replies in replies_by_draw(conversation, completions).items():
        outcome = conversation.procedure.step(conversation.question, replies)
        wrong = outcome.wrong if isinstance(outcome, Outcome) else None
        answers[draw] = _answer(by_draw[draw], wrong, conversation)
    return answers


def _answer(completion: Completion, wrong: bool | None, conversation: Conversation) -> Answer:
    # No method uses the log probabilities of further forced answers.
    has_logprobs = completion.draw == 0 or completion.reply.pass_ is not Pass.FORCED
    try:
        logprobs = read_logprobs(completion.logprobs) if has_logprobs else None
    except ValueError as error:
        raise StoreError(
            f"question {completion.question_id}: {error}; restore the store of replies from a copy"
        ) from error
    reading = conversation.procedure.read(conversation.question, completion.reply)
    return Answer(reading.answer, completion.reply.text, wrong, logprobs, completion.reply.stop_reason)


GIVES_LOGPROBS = {
    *("openai", "azureai", "google", "vertex", "grok", "together", "fireworks", "openrouter"),
    *("hf", "vllm", "sglang", "llama-cpp-python"),
}
"""Providers, in addition to embedded models, that are known to return log probabilities."""


@dataclass(frozen=True)
class Probing(Procedure):
    """A single prompt, asked for each question in each draw.

    Attributes
    ----------
    grader
        The grader of the answer in the reply, if there is one.
    prompt
        The prompt.
    wording
        The prompt set that formats the question, its context and its choices, and the end of each request.
    answers
        The answer that the prompt is about, by question id; empty if it is about none.
    grader_prompt
        What a grading model is asked; None for the default.

    Examples
    --------
    >>> from refusal_index.protocol import load_prompt_set
    >>> wording = Protocol(load_prompt_set("default"), "normal", GraderKind.EXACT)
    >>> probing = Probing(GraderKind.EXACT, Prompt("judge", "{question} {answer}: true or false?"), wording, {"q": "5"})
    >>> question = Question("q", "How much is 2 + 2?", "4")
    >>> probing.request(probing.step(question, []), question).messages[0].content
    'Question: How much is 2 + 2? 5: true or false?'
    """

    prompt: Prompt
    wording: Protocol
    answers: Mapping[str, str] = field(default_factory=dict)
    grader_prompt: GraderPrompt | None = None
    asks_first: ClassVar[bool] = False
    passes: ClassVar[tuple[Pass, ...]] = (Pass.PROBE,)

    def step(self, question: Question, replies: Sequence[Reply], *, force_answered: bool = False) -> Step | Outcome:  # noqa: ARG002 - of the interface
        """Return the next step, or an outcome, which has no grade unless the answer is graded."""
        step = pass_outcome(Pass.PROBE, question, replies, self.grader, self.wording.refusals)
        if self.prompt.is_graded or not replies:
            return step
        return Outcome(None, None, Grade.UNSCORED)

    def request(self, step: Step, question: Question) -> Request:
        """Build the request of a step."""
        if step.role is not Role.MODEL:
            return to_request(step, question, None, self.grader_prompt)
        text_asked = self.wording.prompts.render_question(question.text, question.context, question.choices)
        think = self.wording.think
        text = self.prompt.template.format(question=text_asked, answer=self.answers.get(question.question_id, ""))
        return Request(step.pass_, step.role, (Message("user", f"{text}\n\n{think}" if think else text),))


@dataclass(frozen=True, kw_only=True)
class ConfidencePlan(Plan):
    """Plan to score the answers of a run: its folder, settings, questions and models, and its forced pass.

    Attributes
    ----------
    wording
        Prompts and grading of the run's forced pass.
    outcomes
        The run's outcome table.
    methods
        The requested methods.
    given
        Names of models and graders given by the user; only functions with these names may be called.
    groups, layer
        For trained methods: the fold group of each question, by id, and the layer whose hidden states a probe reads.
    weights, are_weights_given
        The model on this machine whose hidden states are read, None for the run's own model; and whether the user
        named it. If only the folder does, states that are stored are read, and no weights are loaded.
    grader_prompt
        What the run's grading models are asked; None for the default.
    """

    wording: Protocol
    outcomes: pl.DataFrame
    methods: tuple[Method, ...] = ()
    given: frozenset[str] = frozenset()
    groups: Mapping[str, str] = field(default_factory=dict)
    layer: int | None = None
    weights: str | None = None
    are_weights_given: bool = False
    grader_prompt: GraderPrompt | None = None

    @property
    def plugin(self) -> tuple[ModelProvider | None, str]:
        """The plugin of the model, None if it has none, and the plugin's name for it."""
        return plugin_of(self.settings.servers, Role.MODEL, self.settings.model)

    @property
    def model_of_states(self) -> str:
        """The model whose hidden states are read."""
        return self.weights or self.settings.model

    @property
    def is_embedded(self) -> bool:
        """Whether the model runs in this process; such models always return log probabilities."""
        provider, _ = self.plugin
        return provider is not None and provider.is_embedded

    @property
    def is_free(self) -> bool:
        """Whether requests cost nothing: the model is embedded and there is no model grader."""
        return self.is_embedded and not self.graders

    @property
    def gives_logprobs(self) -> bool:
        """Whether the model is known to return log probabilities."""
        at_server = self.settings.servers.base_url is not None
        return self.is_embedded or at_server or self.settings.model.partition("/")[0] in GIVES_LOGPROBS

    @cached_property
    def questions(self) -> dict[str, Question]:
        """The run's questions by id."""
        return {question.question_id: question for question in self.dataset.questions}

    @cached_property
    def needs(self) -> frozenset[Need]:
        """The combined requirements of all methods."""
        return frozenset(need for method in self.methods for need in method.needs)

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """The distinct prompts of all methods."""
        return tuple(dict.fromkeys(prompt for method in self.methods for prompt in method.prompts))

    @property
    def takes_logprobs(self) -> bool:
        """Whether to request log probabilities: only if a method uses them, since some models reject the request."""
        sampled = any(prompt.draws > 1 for prompt in self.prompts)
        return Need.LOGPROBS in self.needs or (sampled and self.gives_logprobs)

    def replies(self, store: ReplyStore) -> Replies:
        """Return a reader of answers from the run's store."""
        return Replies(store, self.wording.grader, self.wording.refusals)

    def rounds(self, replies: Replies) -> Iterator[Round]:
        """Yield rounds of conversations; a round is computed after the replies to earlier ones are stored.

        If the model might not return log probabilities, a round with a single question comes first.
        """
        answers = self.missing_answers(replies)
        first = self.takes_logprobs and not self.is_embedded
        if Need.LOGPROBS in self.needs and first and answers:
            yield FORCED, answers[:1]
            question = answers[0].question
            answer = replies.forced(question, FORCED_ANSWER).get(0)  # none if the request failed
            if answer is not None and answer.logprobs is None:
                without = [method for method in METHODS.values() if Need.LOGPROBS not in method.needs]
                left = ", ".join(method.name for method in without if unmet(self, method) is None)
                raise SettingError(
                    f"{self.settings.model} returned no log probabilities with its reply to {question.question_id}; "
                    f"without them this run allows {left or 'none'}"
                )
        yield FORCED, answers
        for prompt in self.prompts:
            if prompt.draws > 1 and first:
                yield prompt.name, self.probes(prompt, replies)[:1]
            yield prompt.name, self.probes(prompt, replies)

    def missing_answers(self, replies: Replies) -> list[Conversation]:
        """Return the forced passes that are needed because the run's own answers are missing or unsuitable."""
        conversations = []
        for question in (candidate for candidate in self.questions.values() if candidate.gold is not None):
            reply = replies.forced(question).get(0)
            lacks_answer = reply is None or (Need.LOGPROBS in self.needs and reply.logprobs is None)
            # The grade of an answer that was requested earlier may be missing.
            if lacks_answer or replies.store.completions(question.question_id, FORCED_ANSWER):
                conversations.append(Conversation(question, FORCED_ANSWER, self.procedures[FORCED]))
        return conversations

    def answers(self, replies: Replies) -> dict[str, Answer]:
        """Return the forced answers to score, by question id."""
        answers = {question_id: replies.scored(question) for question_id, question in self.questions.items()}
        return {question_id: answer for question_id, answer in answers.items() if answer is not None}

    def probes(self, prompt: Prompt, replies: Replies, to_come: Container[str] = ()) -> list[Conversation]:
        """Return the conversations for a method's prompt: about every question, or about those with an answer.

        - `to_come`: ids of questions without an answer to include, since their answers are pending.
        """
        answers = {question_id: answer.text for question_id, answer in self.answers(replies).items() if answer.text}
        procedure = Probing(self.wording.grader, prompt, self.wording, answers, self.grader_prompt)
        completions = (
            completion for name in self.questions for completion in replies.store.completions(name, prompt.variant)
        )
        is_reported = all(
            completion.logprobs is not None for completion in completions if completion.reply.role is Role.MODEL
        )
        draws = 1 if self.gives_logprobs and is_reported else prompt.draws
        return [
            Conversation(question, prompt.variant, procedure, draws)
            for question_id, question in self.questions.items()
            if prompt.is_graded or question_id in answers or question_id in to_come
        ]

    def current(self, conversation: Conversation, store: ReplyStore) -> list[Completion]:
        """Return the stored replies of a conversation if they are to its current requests, else an empty list.

        A judgement of a different answer, or in reply to a different wording, is outdated. So is a forced answer
        without log probabilities if a method needs them.
        """
        completions = store.completions(conversation.question.question_id, conversation.variant)
        own_replies = [completion for completion in completions if completion.reply.role is Role.MODEL]
        if conversation.variant == FORCED_ANSWER:
            is_current = Need.LOGPROBS not in self.needs or all(
                completion.logprobs is not None for completion in own_replies
            )
        else:
            is_current = all(self._is_reply_to(conversation, completion, store) for completion in own_replies)
        return completions if is_current else []

    def _is_reply_to(self, conversation: Conversation, completion: Completion, store: ReplyStore) -> bool:
        key = (completion.question_id, completion.variant, Pass.PROBE, Role.MODEL)
        step = Step(Pass.PROBE, Role.MODEL)

        def sha256_of(draw: int) -> str:
            n_retired = store.times_retired(*key, draw)
            return model_request(self.settings, conversation, PendingRequest(step, draw), n_retired).sha256

        # A reply that was one of several choices of a response has the request of an earlier draw.
        return completion.request_sha256 is None or completion.request_sha256 in map(
            sha256_of, (completion.draw, *range(completion.draw))
        )

    def unfinished(self, conversations: Iterable[Conversation], store: ReplyStore) -> list[Conversation]:
        """Return the conversations with pending requests."""
        return [
            conversation
            for conversation in conversations
            if next_requests(conversation, self.current(conversation, store))
        ]

    def evidence(self, replies: Replies) -> Evidence:
        """Return the data from which the methods compute scores."""
        forced = {question_id: replies.forced(question) for question_id, question in self.questions.items()}
        further = {
            question_id: [answer for draw, answer in answers.items() if draw] for question_id, answers in forced.items()
        }
        probes = {
            prompt.name: {
                conversation.question.question_id: list(
                    answers_of(conversation, self.current(conversation, replies.store)).values()
                )
                for conversation in self.probes(prompt, replies)
            }
            for prompt in self.prompts
        }
        return Evidence(
            self.questions,
            self.answers(replies),
            further=further,
            outcomes=self.outcomes,
            probes=probes,
            groups=self.groups,
            states=self.states,
            layer=self.layer,
            seed=self.settings.seed,
        )

    def states(self, ids: Sequence[str]) -> hidden_states.States:
        """Return the hidden states at the end of the forced prompt, shape (n, layers + 1, size)."""
        path = self.folder.path / hidden_states.FILE
        return hidden_states.states_of(self.model_of_states, self._forced_prompts, path, ids)

    @property
    def lacks_weights(self) -> bool:
        """Whether weights that only the folder names would have to be loaded."""
        if self.weights is None or self.are_weights_given:
            return False
        path = self.folder.path / hidden_states.FILE
        return not hidden_states.are_stored(self.weights, self._forced_prompts, path)

    @property
    def _forced_prompts(self) -> hidden_states.Conversations:
        procedure = self.procedures[FORCED]
        step = Step(Pass.FORCED, Role.MODEL)
        return {
            question_id: procedure.request(step, question).messages for question_id, question in self.questions.items()
        }


def unmet(plan: ConfidencePlan, method: Method) -> str | None:
    """Return the first unmet requirement of a method as text; None if all are met."""
    return next(_unmet(plan, method), None)


def _unmet(plan: ConfidencePlan, method: Method) -> Iterator[str]:
    model = plan.settings.model
    needs = method.needs
    if missing := missing_packages(method.packages):
        yield f"needs {', '.join(missing)}; pip install 'refusal-index[{method.extra}]'"
    if {Need.FIRST_DRAWS, Need.FORCED_DRAWS} & needs and plan.outcomes.filter(SAMPLED_AGAIN).is_empty():
        yield "needs several samples, but each question has one; the run's own command with --draws 5 adds them"
    if Need.LOGPROBS in needs and not plan.gives_logprobs:
        yield f"needs log probabilities, but {model} returns none"
    if Need.STATES in needs:
        at_server = plan.settings.servers.base_url is not None and plan.weights is None
        if at_server or not hidden_states.has_states(plan.model_of_states):
            yield (
                f"needs hidden states, which {'a server' if at_server else model} does not provide; almanac/... and "
                "hf/... do: name the same weights on this machine with --weights hf/NAME"
            )
        elif plan.lacks_weights:
            yield f"needs hidden states: name the weights again, with --weights {plan.weights}"
        elif provider_of(plan.model_of_states)[0] is None and (missing := missing_packages(hidden_states.PACKAGES)):
            yield f"needs {', '.join(missing)}; pip install 'refusal-index[{hidden_states.EXTRA}]'"
    if Need.TOPICS in needs and not any(question.topic for question in plan.questions.values()):
        yield "needs topics, but no question of this run has one"
    if Need.TRAINING in needs and (short := training_shortage(plan.outcomes, plan.groups)) is not None:
        yield short


@dataclass(frozen=True)
class PendingRequests:
    """Pending requests of one prompt or of the forced pass.

    Attributes
    ----------
    name, questions
        Name of the prompt or the pass, and the number of questions.
    requests, most
        Minimum and maximum number of requests to the model; the maximum applies if the model returns no log
        probabilities or if answers change.
    input_tokens
        Approximate input tokens of the minimum number of requests.
    grading
        Requests to grading models about the replies, and their tokens.
    """

    name: str
    questions: int
    requests: int
    most: int
    input_tokens: int
    grading: Load


def pending(plan: ConfidencePlan) -> list[PendingRequests]:
    """Return the pending requests of a plan by round, without sending or writing anything."""
    with open_store(plan.folder, made=False) as store:
        replies = plan.replies(store)
        answers = plan.unfinished(plan.missing_answers(replies), store)
        to_come = {conversation.question.question_id for conversation in answers}
        requests = [_pending(plan, FORCED, answers, 0, 1, store)]
        for prompt in plan.prompts:
            probes = plan.probes(prompt, replies, to_come)
            open_probes = plan.unfinished(probes, store)
            settled = {probe.question.question_id for probe in probes} - {
                probe.question.question_id for probe in open_probes
            }
            n_again = 0 if prompt.is_graded else len(settled & to_come)
            requests.append(_pending(plan, prompt.name, open_probes, n_again, prompt.draws, store))
    return [request for request in requests if request.most]


def _pending(
    plan: ConfidencePlan, name: str, conversations: Sequence[Conversation], n_again: int, draws: int, store: ReplyStore
) -> PendingRequests:
    """Count the requests of the conversations, and of `n_again` further ones in case their answers change."""
    per_conversation = 1 if plan.is_embedded else draws
    sizes = [
        (
            request.n,
            request_tokens(plan, conversation.procedure.request(request.step, conversation.question)),
        )
        for conversation in conversations
        for request in next_requests(conversation, plan.current(conversation, store))
        if request.step.role is Role.MODEL
    ]
    requests, tokens = (sum(amounts) for amounts in ([n for n, _ in sizes], [n * size for n, size in sizes]))
    n_most = sum(n if n > 1 else per_conversation for n, _ in sizes) + per_conversation * n_again
    grading = Load()
    if plan.graders:
        counted = count_requests(
            conversations,
            lambda request: request_tokens(plan, request),
            Assumptions(),
            lambda conversation: plan.current(conversation, store),
        )
        grading = counted.grading
    return PendingRequests(name, len(conversations) + n_again, requests, n_most, tokens, grading)


def check_amount(plan: ConfidencePlan, requests: Iterable[PendingRequests]) -> None:
    """Raise SettingError if there are more pending requests than the run itself sent, unless they are free."""
    n_most = sum(request.most for request in requests)
    if plan.is_free or not n_most:
        return
    check_code(plan.names, plan.given, plan.folder.path)
    check_addresses(plan.settings, plan.names)
    with open_store(plan.folder, made=False) as store:
        n_of_run = UsageCounter(store.paid()).usage(plan.prices).requests
    if n_most > n_of_run:
        raise SettingError(
            f"{{method}}: up to {n_most:,} requests to {plan.settings.model}, more than the {n_of_run:,} of the run "
            "itself; "
            "add {yes} to send them, or choose fewer methods ({dry_run} counts their requests)"
        )


async def ask(plan: ConfidencePlan, store: ReplyStore, progress: Progress, budget: Budget) -> str | None:
    """Send all pending requests; return why sending ended early, None if it did not."""
    rounds = _pending_rounds(plan, store)
    first = next(rounds, None)
    if first is None:
        return None
    check_code(plan.names, plan.given, plan.folder.path)
    check_model_args_before(plan.identity, plan.settings)
    settle_outstanding(plan.folder, store, plan.settings, plan.names, plan.objects)
    engine = engine_of(plan.settings.sending.engine).make(plan.settings, plan.names, plan.objects)
    record_addresses(plan.folder, store, plan.settings, plan.names)
    progress(Opened(0, note_on(plan.settings.sending)))
    return await execute_rounds(chain([first], rounds), plan.settings, plan.folder, engine, store, progress, budget)


def _pending_rounds(plan: ConfidencePlan, store: ReplyStore) -> Iterator[Round]:
    """Retire the outdated replies of each round, and yield the unfinished conversations."""
    for name, conversations in plan.rounds(plan.replies(store)):
        for conversation in conversations:
            completions = store.completions(conversation.question.question_id, conversation.variant)
            if completions and not plan.current(conversation, store):
                store.retire(completions)
        if unfinished := plan.unfinished(conversations, store):
            yield name, unfinished
