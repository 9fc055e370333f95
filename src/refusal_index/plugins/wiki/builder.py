"""Building questions in rounds of sections, with any engine.

A round sends requests about all of its sections to the writer, then about those with a question to the answerer. The
next round depends only on the seed and on all earlier replies, not on their timing, so a build that was killed and
resumed tries the same sections and ends with the same questions. All replies are in the build's store.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import count, islice
from typing import ClassVar

from refusal_index.data.folder import RunFolder
from refusal_index.data.outcome import Grade, Outcome, Question
from refusal_index.models.failures import CircuitBreaker
from refusal_index.plugins.wiki.questions import (
    ANSWERER,
    MAX_DETAIL,
    TAGS,
    Ask,
    Candidate,
    Reason,
    Tried,
    next_ask,
    normalised,
    request_seed,
)
from refusal_index.protocol import (
    Completion,
    Conversation,
    GraderKind,
    Message,
    Pass,
    Procedure,
    Reply,
    Request,
    Role,
    Step,
    next_requests,
)
from refusal_index.runs.budget import UsageCounter
from refusal_index.runs.engine import Assignment, Engine, RunFailedError, WaitingError
from refusal_index.runs.engines import engine_of
from refusal_index.runs.events import Event, Finished, Progress, Replied, Underway
from refusal_index.runs.settings import Settings
from refusal_index.runs.store import ReplyStore

FIRST_ROUND = 50
MAX_ROUND = 500
MIN_YIELD = 0.1
"""Lower bound on the assumed yield, so a round has at most ten sections for each missing question."""

STALLED_AFTER = 100
"""Number of consecutive sections without a question after which the build stops."""

NAME = "precise-wiki"
FEW_FAILURES = 10  # fewer failed requests in a round do not stop the build


class BuildState:
    """The state of a build: the sections tried so far, by difficulty.

    Parameters
    ----------
    order
        The candidates of each difficulty, in the order in which they are sampled.
    n_wanted
        Number of questions to build. Each difficulty contributes an equal share; if one runs out of sections, the
        others make up for it.

    >>> sections = [Candidate(f"pw-{number}", "Ulm", str(number), "...") for number in range(3)]
    >>> state = BuildState({None: iter(sections)}, n_wanted=1)
    >>> (first,) = state.next_round()
    >>> state.take([Tried(first, "How tall is Ulm Minster?", "161.5 metres")])
    >>> state.next_round(), [one.answer for one in state.taken()]
    ([], ['161.5 metres'])
    """

    def __init__(self, order: Mapping[str | None, Iterator[Candidate]], n_wanted: int) -> None:
        self._order = order
        self._n_wanted = n_wanted
        self._good: dict[str | None, list[Tried]] = {difficulty: [] for difficulty in order}
        self._open = list(order)
        self._questions: set[str] = set()
        self.tried: list[Tried] = []

    def next_round(self) -> list[Candidate]:
        """Return the sections of the next round; none if there are enough questions or no more sections."""
        candidates: list[Candidate] = []
        while not candidates:
            shares = self._shares()
            lacking = {name: missing for name in self._open if (missing := shares[name] - len(self._good[name])) > 0}
            if not lacking:
                break
            n_good = sum(map(len, self._good.values()))
            rate = max(n_good / len(self.tried), MIN_YIELD) if self.tried else 1.0
            limit = max((MAX_ROUND if n_good else FIRST_ROUND) // len(lacking), 1)
            for difficulty, missing in lacking.items():
                number = min(math.ceil(missing / rate), limit)
                new = list(islice(self._order[difficulty], number))
                if len(new) < number:
                    self._open.remove(difficulty)
                candidates += new
        return candidates

    def take(self, tried: Sequence[Tried]) -> None:
        """Record the results of the sections of a round, in the order in which they were sampled."""
        for result in tried:
            words = normalised(result.question)
            if result.reason is None and words in self._questions:
                result = Tried(result.candidate, result.question, result.answer, Reason.DUPLICATE)  # noqa: PLW2901
            if result.reason is None:
                self._questions.add(words)
                self._good[result.candidate.difficulty].append(result)
            self.tried.append(result)

    def taken(self) -> list[Tried]:
        """Return the questions of the set, by difficulty and in the order in which they were sampled."""
        shares = self._shares()
        return [result for difficulty, good in self._good.items() for result in good[: shares[difficulty]]]

    def reasons(self) -> Counter[str]:
        """Return the number of rejected sections, by reason."""
        return Counter(str(result.reason) for result in self.tried if result.reason is not None)

    @property
    def not_needed(self) -> int:
        """Number of good questions beyond those wanted."""
        return sum(result.reason is None for result in self.tried) - len(self.taken())

    @property
    def has_stalled(self) -> bool:
        """Whether none of the last `STALLED_AFTER` sections yielded a question."""
        last = self.tried[-STALLED_AFTER:]
        return len(last) == STALLED_AFTER and all(result.reason is not None for result in last)

    def _shares(self) -> dict[str | None, int]:
        """Return how many questions each difficulty contributes: an equal share, or all it has if it is used up."""
        used_up = sorted(set(self._good) - set(self._open), key=lambda name: (len(self._good[name]), name or ""))
        shares: dict[str | None, int] = {}
        for number, name in enumerate([*used_up, *self._open]):
            fair = math.ceil((self._n_wanted - sum(shares.values())) / (len(self._good) - number))
            shares[name] = fair if name in self._open else min(fair, len(self._good[name]))
        return shares


@dataclass(frozen=True)
class SingleMessage(Procedure):
    """The procedure of sending a single message to a model."""

    message: str
    passes: ClassVar[tuple[Pass, ...]] = (Pass.FIRST,)

    def step(self, question: Question, replies: Sequence[Reply], *, force_answered: bool = False) -> Step | Outcome:  # noqa: ARG002 - required by the interface
        """Return the only step, or once it has a reply an unscored outcome, which ends the conversation."""
        return Outcome(None, None, Grade.UNSCORED) if replies else Step(Pass.FIRST, Role.MODEL)

    def request(self, step: Step, question: Question) -> Request:  # noqa: ARG002 - required by the interface
        """Return the request of the step."""
        return Request(step.pass_, step.role, (Message("user", self.message),))


class BuildStoppedError(RunFailedError):
    """A build that stopped because requests fail or yield no questions; replies are kept, so it can be resumed."""


def build_engines(settings: Mapping[str, Settings]) -> dict[str, Engine]:
    """Return the engine of each role; roles with the same model share an engine.

    Raises
    ------
    RefusalIndexError
        If the engine does not exist or cannot use one of the models.
    """
    by_model = {setting.model: setting for setting in settings.values()}
    engines = {
        name: engine_of(setting.sending.engine).make(setting, {Role.MODEL: name}, {})
        for name, setting in by_model.items()
    }
    return {role: engines[setting.model] for role, setting in settings.items()}


class Builder:
    """Tries sections until there are enough questions, and counts usage.

    Parameters
    ----------
    settings, engines
        The settings and the engine of each role; the builder opens and closes the engines.
    store, progress
        The store of replies, and a function that is called for each reply, each question, and notes about requests in
        flight.
    folder
        The folder in which an engine may keep files, such as the journal of batches.

    Attributes
    ----------
    usage
        The usage of each role, including that of earlier commands.
    """

    def __init__(
        self,
        settings: Mapping[str, Settings],
        engines: Mapping[str, Engine],
        store: ReplyStore,
        progress: Progress,
        folder: RunFolder,
    ) -> None:
        self._settings = settings
        self._engines = engines
        self._store = store
        self._progress = progress
        self._folder = folder
        self._breakers = {role: CircuitBreaker() for role in TAGS}
        self._candidates: dict[str, Candidate] = {}
        self._shown: set[str] = set()
        self.usage = {role: UsageCounter() for role in TAGS}

    async def build(self, state: BuildState) -> None:
        """Try sections until `state` has enough questions or no more sections.

        Raises
        ------
        BuildStoppedError
            If most requests fail or too many sections yield no question; `state` holds the results so far.
        WaitingError
            If the engine ended as planned before all requests were answered.
        """
        async with AsyncExitStack() as stack:
            for engine in dict.fromkeys(self._engines.values()):
                await stack.enter_async_context(engine.open(self._store))
            for number in count(1):
                candidates = state.next_round()
                if not candidates:
                    return
                tried = await self._try(candidates, number)
                state.take(tried)
                if (stopped := self._stopped) is not None:
                    raise (WaitingError if stopped.planned else BuildStoppedError)(stopped.reason)
                _check_round(tried, state)

    @property
    def _stopped(self) -> CircuitBreaker | None:
        return next((breaker for breaker in self._breakers.values() if breaker.reason is not None), None)

    async def _try(self, candidates: Sequence[Candidate], number: int) -> list[Tried]:
        """Send the missing requests about the sections of a round, and return the result of each section."""
        self._candidates = {candidate.candidate_id: candidate for candidate in candidates}
        for completion in (reply for candidate in candidates for reply in self._completions(candidate)):
            self._count(completion)
        for role in TAGS:
            await self._ask(role, number)
        return [self._show(self._result(candidate)) for candidate in candidates]

    async def _ask(self, role: str, number: int) -> None:
        """Send the requests of a round to one role."""
        conversations = [
            conversation
            for candidate in self._candidates.values()
            for conversation in self._conversation(candidate, role)
        ]
        if self._stopped is None and any(
            next_requests(conversation, self._store.completions(conversation.question.question_id, role))
            for conversation in conversations
        ):
            assignment = Assignment(
                NAME,
                f"{role}-{number}",
                conversations,
                self._settings[role],
                self._store,
                self._folder,
                self._watch,
                self._breakers[role],
            )
            await self._engines[role].execute(assignment)

    def _conversation(self, candidate: Candidate, role: str) -> Iterator[Conversation]:
        """Yield the conversation of a role about a section, answered or not; nothing if the role is not needed."""
        before = list(self._completions(candidate))[: list(TAGS).index(role)]
        request = next_ask(candidate, [completion.reply for completion in before])
        if isinstance(request, Ask) and request.role == role:
            settings = self._settings[role]
            question = Question(candidate.candidate_id, request.message, None)
            seed = request_seed(settings.seed, candidate.candidate_id, TAGS[role])
            yield Conversation(question, role, SingleMessage(GraderKind.EXACT, request.message), seed=seed)

    def _completions(self, candidate: Candidate) -> Iterator[Completion]:
        """Yield the reply of each role about a section, in the order of the roles."""
        for role in TAGS:
            completions = self._store.completions(candidate.candidate_id, role)
            yield from islice((completion for completion in completions if completion.variant == role), 1)

    def _next(self, candidate: Candidate) -> Ask | Tried:
        return next_ask(candidate, [completion.reply for completion in self._completions(candidate)])

    def _watch(self, event: Event) -> None:
        if isinstance(event, Underway):
            self._progress(event)
        elif isinstance(event, Replied):
            self._count(event.completion)
            result = self._next(self._candidates[event.completion.question_id])
            if isinstance(result, Tried):
                self._show(result)

    def _count(self, completion: Completion) -> None:
        self.usage[completion.variant].add(completion)
        self._progress(Replied(completion))

    def _show(self, result: Tried) -> Tried:
        if result.candidate.candidate_id not in self._shown:
            self._shown.add(result.candidate.candidate_id)
            if result.reason is None:
                self._progress(Finished(ANSWERER, result.candidate.candidate_id))
        return result

    def _result(self, candidate: Candidate) -> Tried:
        """Return the result of a section; if a request is still pending, it failed."""
        result = self._next(candidate)
        if isinstance(result, Tried):
            return result
        failure = self._store.failures().get((result.role, candidate.candidate_id))
        error = failure or str(self._stopped and self._stopped.reason)
        return Tried(candidate, reason=Reason.REQUEST_FAILED, detail=error[:MAX_DETAIL])


def _check_round(tried: Sequence[Tried], state: BuildState) -> None:
    """Raise BuildStoppedError if most requests of a round failed or it has stalled."""
    failed = Counter(result.detail for result in tried if result.reason is Reason.REQUEST_FAILED)
    if failed.total() >= FEW_FAILURES and 2 * failed.total() > len(tried):
        raise BuildStoppedError(
            f"{failed.total()} of the last {len(tried)} sections failed, most often with: "
            f"{failed.most_common(1)[0][0]}; run the same command again to resume: no reply is paid for twice"
        )
    if state.has_stalled:
        reasons = ", ".join(f"{reason} {count}" for reason, count in state.reasons().most_common())
        raise BuildStoppedError(
            f"none of the last {STALLED_AFTER} sections yielded a question, out of {len(state.tried)} tried "
            f"({reasons}); choose another --writer or --answerer, or other pages"
        )
