"""Scores of confidence for a finished run: what is missing is asked, once, and everything else follows from replies.

What is asked lies in the run's folder in a store of its own: forced answers where a variant answered in the first pass,
so that nobody forced it, and the methods' own prompts. The run's replies and all that is made of them stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any

import polars as pl

from refusal_index.almanac.models import layer_count
from refusal_index.confidence.method import Answer, Evidence, Method, Need, Prompt, lacking
from refusal_index.confidence.registry import METHODS, methods_of
from refusal_index.confidence.topic import TOPIC
from refusal_index.confidence.transformers_states import EXTRA as STATES_EXTRA
from refusal_index.engines.budget import Budget
from refusal_index.engines.engine import Opened, Progress, unwatched
from refusal_index.engines.registry import check_engine, engine_of
from refusal_index.engines.setting import SettingError
from refusal_index.engines.settings import Settings
from refusal_index.engines.store import ReplyStore
from refusal_index.errors import RefusalIndexError
from refusal_index.evaluation.confidence_evidence import OWN, Sources, current, further_refusals
from refusal_index.evaluation.confidence_groups import groups_of, training_shortage
from refusal_index.evaluation.confidence_record import Measured, record_scores
from refusal_index.evaluation.confidence_states import FILE as STATES
from refusal_index.evaluation.confidence_states import States, states_of
from refusal_index.evaluation.dry_run import request_tokens
from refusal_index.evaluation.plan import ALMANAC, check_name, check_sending
from refusal_index.evaluation.results import procedure_of, total
from refusal_index.evaluation.run import (
    ComparabilityError,
    Wave,
    ask_waves,
    check_comparable,
    open_store,
    write_results,
)
from refusal_index.outcomes.confidence import Score, confidence_table, with_scores, write_confidence
from refusal_index.outcomes.errors import RunFolderError
from refusal_index.outcomes.files import check_folder
from refusal_index.outcomes.folder import RunFolder
from refusal_index.outcomes.price import Prices
from refusal_index.outcomes.question import Question
from refusal_index.outcomes.summary import Usage
from refusal_index.protocol import (
    FORCED,
    Asked,
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
    Step,
    due,
    load_prompt_set,
    prompt_set_names,
)

ALL = "all"
"""Every method that a run allows."""

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
    groups: Mapping[str, str] = field(default_factory=dict)
    layer: int | None = None

    @property
    def names(self) -> dict[Asked, str]:
        """Whom it asks, the model first."""
        graders = dict(zip((Asked.GRADER, Asked.SECOND_GRADER), self.graders, strict=False))
        return {Asked.MODEL: self.settings.model, **graders}

    @property
    def prices(self) -> Prices:
        """What its models cost."""
        return Prices(self.settings.accounts.price, self.settings.accounts.grader_price)

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
        if sources.own.said(question.question_id, FORCED):
            return True  # asked for before; that it may be finished is seen by whoever carries it
        there = sources.forced(question).get(0)
        return there is None or (Need.LOGPROBS in self.needs and there.logprobs is None)

    def current(self, conversation: Conversation, own: ReplyStore) -> list[Completion]:
        """Return what was said in a conversation to the very requests that it asks now; nothing where they were others.

        A forced answer without log probabilities is none where a method needs these.
        """
        said = current(self.settings, conversation, own)
        lacking_logprobs = any(one.logprobs is None for one in said if one.reply.asked is Asked.MODEL)
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
        procedure, step = ForcedPass(self.grader, self.wording), Step(Pass.FORCED, Asked.MODEL)
        talks = {one: procedure.request(step, question).messages for one, question in self.questions.items()}
        return states_of(self.settings.model, talks, self.folder.path / OWN / STATES, ids)


def _further(forced: Mapping[int, Answer]) -> list[Answer]:
    return [answer for draw, answer in sorted(forced.items()) if draw > 0]


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
    plan = replace(_grouped(plan, group), layer=layer)
    if ALL in names:
        # Weights that are fetched, and trained for hours, are used where somebody names the method.
        light = [one for one in METHODS.values() if Need.WEIGHTS not in one.needs]
        plan = replace(plan, methods=tuple(one for one in light if unmet(plan, one) is None))
    for method in plan.methods:
        reason = unmet(plan, method)
        if reason is not None:
            left = [one.name for one in METHODS.values() if unmet(plan, one) is None]
            raise SettingError(f"{method.name}: {reason}; this run allows {', '.join(left) or 'none'}")
    plan = _with_baseline(plan)
    _check_layer(plan)
    return replace(plan, settings=plan.settings.changed(logprobs=plan.takes_logprobs))


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
    chosen = load_prompt_set(prompts or _shipped(before["prompts"]["name"], run))
    if chosen.hash != before["prompts"].get("sha256"):
        raise SettingError(
            f"{{prompts}}: expected the prompt set that {run} was asked with, got {chosen.name!r}, whose words differ"
        )
    grader, graders = _grader(before)
    settings = settings.changed(model=before["model"], seed=before["seed"], **before.get("decoding", {}))
    settings = settings.changed(placement=before.get("placement") or "user", think=before.get("think") or "")
    check_engine(settings.sending.engine)
    check_sending(settings, asks_grader=bool(graders))
    for name in (settings.model, *graders):
        check_name(name, objects or {})
    if not folder.outcomes.exists():
        raise RunFolderError(f"{run} holds no outcomes yet; finish the run first")
    with open_store(folder, made=False) as store:
        questions = store.questions()
    outcomes = folder.read_outcomes()
    folder.read_confidence()  # a damaged one is told before anything is asked
    return ConfidencePlan(folder, settings, methods, grader, graders, chosen, questions, outcomes, objects or {})


def _shipped(name: str, run: Path) -> str:
    if name not in prompt_set_names():
        raise SettingError(
            f"{{prompts}}: expected the file of the prompt set {name!r}, with which {run} was made, got nothing; it is "
            "none of the package's"
        )
    return name


def _grader(settings: Mapping[str, Any]) -> tuple[GraderKind, tuple[str, ...]]:
    kind = procedure_of(settings).grader
    known = settings.get("grader") or {}
    return kind, tuple(known[name] for name in ("name", "second") if kind.models and known.get(name))


def unmet(plan: ConfidencePlan, method: Method) -> str | None:
    """Say what a method lacks in a run; None where it lacks nothing."""
    return next(_unmet(plan, method), None)


def _unmet(plan: ConfidencePlan, method: Method) -> Iterator[str]:
    model, needs = plan.settings.model, method.needs
    if method.lacks:
        yield f"needs {', '.join(method.lacks)}; pip install 'refusal-index[{method.extra}]'"
    if {Need.FIRST_DRAWS, Need.FORCED_DRAWS} & needs and not (plan.outcomes["draw"] > 0).any():
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
    asks = [(talk, one) for talk in talks for one in due(talk, plan.current(talk, own))]
    own_asks = [(talk, one) for talk, one in asks if one.step.asked is Asked.MODEL]
    tokens = sum(
        one.choices * request_tokens(plan.settings.model, talk.procedure.request(one.step, talk.question))
        for talk, one in own_asks
    )
    requests, embedded = sum(one.choices for _, one in own_asks), plan.settings.model.startswith(f"{ALMANAC}/")
    each = 1 if embedded else draws
    most = sum(one.choices if one.choices > 1 else each for _, one in own_asks) + each * len(anew)
    return Pending(name, len(talks) + len(anew), requests, most, tokens)


def _still(plan: ConfidencePlan, talks: Sequence[Conversation], own: ReplyStore) -> list[Conversation]:
    return [one for one in talks if due(one, plan.current(one, own))]


def _check_logprobs(plan: ConfidencePlan, sources: Sources, asked: Sequence[Conversation]) -> None:
    for one in asked:
        answer = sources.answer(one.question)
        if answer is not None and answer.logprobs is None:
            left = [method.name for method in METHODS.values() if Need.LOGPROBS not in method.needs]
            raise SettingError(
                f"{plan.settings.model} gave no log probabilities with its reply to {one.question.question_id}; "
                f"without them: {', '.join(left)}"
            )


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
        ended = budget.used_up() or await _ask(plan, sources, progress, budget)
        usage = total([one for one in (*own.replies(), *own.retired()) if one not in before], plan.prices)
        earlier = folder.read_confidence()
        evidence = _with_earlier(plan, earlier).evidence(sources)
        scores, failed = _scored(plan, evidence, earlier)
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
    plan: ConfidencePlan, evidence: Evidence, earlier: pl.DataFrame | None
) -> tuple[dict[Method, list[Score]], RefusalIndexError | None]:
    """Return the scores of each method, and why one that is wanted has none: the others are kept nevertheless."""
    scores: dict[Method, list[Score]] = {}
    failed: RefusalIndexError | None = None
    for method in _with_earlier(plan, earlier).methods:
        try:
            scores[method] = list(method.score(evidence))
        except RefusalIndexError as error:
            failed = failed or (error if method in plan.methods else None)
    return scores, failed


async def _ask(plan: ConfidencePlan, sources: Sources, progress: Progress, budget: Budget) -> str | None:
    """Ask what is missing, if anything is, and return why it ended before that, as it was told to."""
    if not any(_taken_down(plan, wave, sources.own)[1] for wave in plan.waves(sources)):
        return None
    engine = engine_of(plan.settings.sending.engine)(plan.settings, plan.names, plan.objects)
    progress(Opened(0))
    waves = (_taken_down(plan, wave, sources.own) for wave in plan.waves(sources))
    return await ask_waves(
        waves, plan.settings, RunFolder(plan.folder.path / OWN), engine, sources.own, progress, budget
    )


def _taken_down(plan: ConfidencePlan, wave: Wave, own: ReplyStore) -> Wave:
    """Have the store know the questions of a wave, set aside what is of other requests, and leave what is to be asked.

    What was replied about another answer than the one that is scored now is no judgement on this one.
    """
    variant, talks = wave
    own.ask(variant, {one.question: one.draws for one in talks})
    for talk in talks:
        kept, passes = set(plan.current(talk, own)), talk.procedure.passes
        said = own.said(talk.question.question_id, variant)
        own.retire([one for one in said if one.reply.of in passes and one not in kept])
    return variant, _still(plan, talks, own)


def _in_order(table: pl.DataFrame) -> pl.DataFrame:
    """Put methods in the order in which they are listed, and those of others behind them."""
    place = {name: number for number, name in enumerate(METHODS)}
    order = table["method"].replace_strict(place, default=len(place), return_dtype=pl.Int64)
    return table.with_columns(order.alias("place")).sort("place", maintain_order=True).drop("place")
