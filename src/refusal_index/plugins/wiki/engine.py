"""The requests of a PreciseWikiQA build to its two models, with any engine.

A round of sections is two waves of requests: the writer is asked about all of them, then the answerer about those that
yielded a question. What comes next depends on all that was said before; every reply stays in the build's store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from itertools import count, islice
from typing import Protocol

from refusal_index.data.folder import RunFolder
from refusal_index.data.outcome import Grade, Outcome, Question
from refusal_index.models.failures import CircuitBreaker
from refusal_index.models.settings import Decoding, Sending
from refusal_index.plugins.wiki.candidates import Candidate, request_seed
from refusal_index.plugins.wiki.drawing import HOPELESS, Drawing
from refusal_index.plugins.wiki.frozen import Usage
from refusal_index.plugins.wiki.verdicts import LONGEST_DETAIL, Ask, Asked, BuildPrompts, Reason, Said, Tried, next_ask
from refusal_index.protocol import (
    Completion,
    Conversation,
    GraderKind,
    Message,
    Pass,
    Reply,
    Request,
    Role,
    Step,
    StopReason,
    next_requests,
)
from refusal_index.protocol.replies import without_reasoning
from refusal_index.runs.engine import (
    Assignment,
    Engine,
    Event,
    Replied,
    RunFailedError,
    Underway,
    WaitingError,
    engine_of,
    note_on,
)
from refusal_index.runs.settings import Settings
from refusal_index.runs.store import ReplyStore

WRITING, ANSWERING = Decoding(temperature=0.7, top_p=0.9), Decoding(temperature=0.3, top_p=0.9)
"""Questions should vary; answers should not."""

ROLES = {Asked.QUESTION: "writer", Asked.ANSWER: "answerer"}
"""Whom each of the two requests about a section goes to; the store knows the replies by it."""


@dataclass(frozen=True)
class BuildPlan:
    """Who is asked, and how.

    Attributes
    ----------
    writer, answerer
        Names of the models; they may be the same.
    writing, answering
        How each of them generates.
    seed
        Each request's seed is derived from it.
    sending
        Who carries requests, and how.
    """

    writer: str
    answerer: str
    writing: Decoding = WRITING
    answering: Decoding = ANSWERING
    seed: int = 0
    sending: Sending = field(default_factory=Sending)

    def settings(self, asked: Asked) -> Settings:
        """Return the settings by which an engine makes one of the two requests."""
        writes = asked is Asked.QUESTION
        known = Settings(model=self.writer if writes else self.answerer, seed=self.seed, sending=self.sending)
        return replace(known, decoding=self.writing if writes else self.answering)


@dataclass(frozen=True)
class Telling:
    """One message to a model, and what it replies, as the procedure of a conversation."""

    message: str
    grader: GraderKind = GraderKind.EXACT
    asks_first: bool = True
    asks_model: bool = True
    passes: tuple[Pass, ...] = (Pass.FIRST,)

    def step(self, question: Question, replies: Sequence[Reply], *, force_answered: bool = False) -> Step | Outcome:  # noqa: ARG002 - of the interface
        """Return what is next; an outcome says no more than that nothing is."""
        return Outcome(None, None, Grade.UNSCORED) if replies else Step(Pass.FIRST, Role.MODEL)

    def request(self, step: Step, question: Question) -> Request:  # noqa: ARG002 - of the interface
        """Put the step into words."""
        return Request(step.pass_, step.role, (Message("user", self.message),))


NAME = "precise-wiki"
TROUBLES = {StopReason.LENGTH: Reason.CUT_SHORT, StopReason.CONTENT_FILTER: Reason.CONTENT_FILTER}
FEW_FAILURES = 10  # so many failed requests in a round may be accidents


class Watcher(Protocol):
    """Is told how a build goes on."""

    def noted(self, note: str) -> None:
        """Take note of what must be said before anything is asked."""

    def replied(self, usage: Usage) -> None:
        """Take note of one reply."""

    def tried(self, one: Tried) -> None:
        """Take note of what came of one section."""

    def underway(self, note: str) -> None:
        """Take note of how requests stand that are in flight in a wave."""


class BuildStoppedError(RunFailedError):
    """The models do not do what a build needs; what was answered is kept, and the same command resumes."""


def build_engines(plan: BuildPlan) -> dict[str, Engine]:
    """Return an engine for each model of `plan` by its name; one for both where they are the same.

    Raises
    ------
    RefusalIndexError
        If there is no such engine, or it cannot ask one of them.
    """
    make = engine_of(plan.sending.engine)
    wanted = {one.model: one for one in map(plan.settings, ROLES)}
    return {name: make(settings, {Role.MODEL: name}, {}) for name, settings in wanted.items()}


class Builder:
    """Tries sections until there are enough questions, and counts what that uses.

    Parameters
    ----------
    plan, engines
        Who is asked and how, and who carries the requests to each model; the engines are opened and closed here.
    prompts, store, watcher
        The wording, the replies so far, which are not asked for again, and who is told how it goes on.
    folder
        Where an engine may leave files of its own, such as a journal of batches.

    Attributes
    ----------
    usage
        What was used by each role, whenever it was asked for.
    """

    def __init__(
        self,
        plan: BuildPlan,
        engines: Mapping[str, Engine],
        prompts: BuildPrompts,
        store: ReplyStore,
        watcher: Watcher,
        folder: RunFolder,
    ) -> None:
        self._plan, self._engines, self._prompts, self._store = plan, engines, prompts, store
        self._watcher, self._folder = watcher, folder
        self._breakers = {role: CircuitBreaker() for role in ROLES.values()}
        self._candidates: dict[str, Candidate] = {}
        self._told: set[str] = set()
        self.usage = dict.fromkeys(ROLES.values(), Usage())

    async def build(self, drawing: Drawing) -> None:
        """Try sections until `drawing` has enough questions or no more sections.

        Raises
        ------
        BuildStoppedError
            If most requests fail, or section after section yields nothing; `drawing` holds what was tried.
        WaitingError
            If it ended as it was told to, before all was asked.
        """
        if note := note_on(self._plan.sending):
            self._watcher.noted(note)
        async with AsyncExitStack() as opened:
            for engine in self._engines.values():
                await opened.enter_async_context(engine.open(self._store))
            for number in count(1):
                candidates = drawing.next_round()
                if not candidates:
                    return
                tried = await self._try(candidates, number)
                drawing.take(tried)
                if self._stopped is not None:
                    raise (WaitingError if self._stopped.planned else BuildStoppedError)(self._stopped.reason)
                _refuse_failures(tried)
                if drawing.is_hopeless:
                    raise BuildStoppedError(_hopeless(drawing))

    @property
    def _stopped(self) -> CircuitBreaker | None:
        return next((one for one in self._breakers.values() if one.reason is not None), None)

    async def _try(self, candidates: Sequence[Candidate], number: int) -> list[Tried]:
        """Ask about the sections of a round what was not asked before, and return what came of each."""
        self._candidates = {one.candidate_id: one for one in candidates}
        for candidate in candidates:
            for one in self._replies(candidate):
                self._count(one)
        for asked in ROLES:
            await self._ask(asked, number)
        return [self._tell(one, self._tried(one)) for one in candidates]

    async def _ask(self, asked: Asked, number: int) -> None:
        """Have the engine ask one role about all sections of a round that it is to be asked about."""
        settings, role = self._plan.settings(asked), ROLES[asked]
        talks = [one for candidate in self._candidates.values() for one in self._conversation(candidate, asked)]
        if self._stopped is None and any(
            next_requests(one, self._store.completions(one.question.question_id, role)) for one in talks
        ):
            assignment = Assignment(
                NAME,
                f"{role}-{number}",
                talks,
                settings,
                self._store,
                self._folder,
                self._progress,
                self._breakers[role],
            )
            await self._engines[settings.model].execute(assignment)

    def _conversation(self, candidate: Candidate, asked: Asked) -> Iterator[Conversation]:
        """Yield what one role is asked about a section, answered or not; nothing where it is not to be asked."""
        before = list(islice(self._replies(candidate), list(ROLES).index(asked)))
        step = next_ask(candidate, list(map(_said, before)), self._prompts)
        if isinstance(step, Ask) and step.asked is asked:
            question = Question(candidate.candidate_id, step.message, None)
            seed = request_seed(self._plan.seed, candidate.candidate_id, asked)
            yield Conversation(question, ROLES[asked], Telling(step.message), seed=seed)

    def _replies(self, candidate: Candidate) -> Iterator[Completion]:
        """Yield what the roles said about a section, in their order."""
        for role in ROLES.values():
            said = self._store.completions(candidate.candidate_id, role)
            yield from islice((one for one in said if one.variant == role), 1)

    def _progress(self, event: Event) -> None:
        if isinstance(event, Underway):
            self._watcher.underway(event.note)
        elif isinstance(event, Replied):
            self._count(event.completion)
            candidate = self._candidates[event.completion.question_id]
            became = self._became(candidate)
            if isinstance(became, Tried):
                self._tell(candidate, became)

    def _count(self, reply: Completion) -> None:
        one = Usage(1, reply.input_tokens, reply.output_tokens)
        self.usage[reply.variant] += one
        self._watcher.replied(one)

    def _tell(self, candidate: Candidate, one: Tried) -> Tried:
        if candidate.candidate_id not in self._told:
            self._told.add(candidate.candidate_id)
            self._watcher.tried(one)
        return one

    def _became(self, candidate: Candidate) -> Ask | Tried:
        return next_ask(candidate, list(map(_said, self._replies(candidate))), self._prompts)

    def _tried(self, candidate: Candidate) -> Tried:
        """Return what came of a section; where something is still to be asked, its request failed."""
        became = self._became(candidate)
        if isinstance(became, Tried):
            return became
        failed = self._store.failures().get((ROLES[became.asked], candidate.candidate_id))
        error = failed or str(self._stopped and self._stopped.reason)
        return Tried(candidate, reason=Reason.REQUEST_FAILED, detail=error[:LONGEST_DETAIL])


def _said(reply: Completion) -> Said:
    return Said(without_reasoning(reply.reply.text), TROUBLES.get(reply.reply.stop_reason))


def _refuse_failures(tried: Sequence[Tried]) -> None:
    failed = [one for one in tried if one.reason is Reason.REQUEST_FAILED]
    if len(failed) >= FEW_FAILURES and 2 * len(failed) > len(tried):
        detail = Counter(one.detail for one in failed).most_common(1)[0][0]
        raise BuildStoppedError(
            f"{len(failed)} of the last {len(tried)} sections failed, most often with: {detail}; "
            "the same command resumes and pays for no reply twice"
        )


def _hopeless(drawing: Drawing) -> str:
    reasons = ", ".join(f"{reason} {count}" for reason, count in drawing.reasons().most_common())
    return (
        f"no question came of the last {HOPELESS} sections or more, out of {len(drawing.tried)} tried ({reasons}); "
        "choose another --writer or --answerer, or other pages"
    )
