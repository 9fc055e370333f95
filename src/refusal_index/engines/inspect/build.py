"""Carrying the requests of a PreciseWikiQA build to its two models; replies that were paid for stay in the cache.

There is no Inspect task around them: what comes next depends on all that was said before, and what became of each
section is kept in a file of the build's own.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Protocol

from inspect_ai.model import ChatMessageUser, GenerateConfig, Model, ModelOutput

from refusal_index.datasets.precise_wiki_build import (
    Ask,
    Asked,
    BuildPrompts,
    Candidate,
    Drawing,
    Reason,
    Said,
    Tried,
    Usage,
    next_ask,
    request_seed,
)
from refusal_index.datasets.precise_wiki_build.drawing import HOPELESS
from refusal_index.datasets.precise_wiki_build.verdicts import LONGEST_DETAIL
from refusal_index.engines.breaker import CircuitBreaker
from refusal_index.engines.engine import RunFailedError
from refusal_index.engines.error_messages import told
from refusal_index.engines.failures import EndedError, RequestFailedError, failure_of
from refusal_index.engines.inspect.models import resolve_model, to_config
from refusal_index.engines.inspect.multi_choice import choices_of
from refusal_index.engines.inspect.session import NO_RETRIES
from refusal_index.engines.retrying import patiently
from refusal_index.engines.settings import Decoding, Sending
from refusal_index.engines.store import ReplyStore
from refusal_index.protocol import Asked as Role
from refusal_index.protocol import Completion, Pass, Reply, StopReason
from refusal_index.protocol.replies import without_reasoning

WRITING, ANSWERING = Decoding(temperature=0.7, top_p=0.9), Decoding(temperature=0.3, top_p=0.9)
"""Questions should vary; answers should not."""

ROLES = {Asked.QUESTION: "writer", Asked.ANSWER: "answerer"}
TROUBLES = {StopReason.LENGTH: Reason.CUT_SHORT, StopReason.CONTENT_FILTER: Reason.CONTENT_FILTER}
FEW_FAILURES = 10  # so many failed requests in a round may be accidents


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
        How requests are carried.
    """

    writer: str
    answerer: str
    writing: Decoding = WRITING
    answering: Decoding = ANSWERING
    seed: int = 0
    sending: Sending = field(default_factory=Sending)


@dataclass(frozen=True)
class BuildModels:
    """The two models, or the same one twice."""

    writer: Model
    answerer: Model


class Watcher(Protocol):
    """Is told how a build goes on."""

    def replied(self, usage: Usage) -> None:
        """Take note of one reply."""

    def tried(self, one: Tried) -> None:
        """Take note of what came of one section."""


class BuildStoppedError(RunFailedError):
    """The models do not do what a build needs; what was answered is kept, and the same command resumes."""


def resolve_build_models(plan: BuildPlan) -> BuildModels:
    """Return the models of `plan`.

    Raises
    ------
    ModelError
        If one of them cannot be asked.
    """
    config = GenerateConfig(max_connections=plan.sending.max_connections)
    writer = resolve_model(plan.writer, config)
    return BuildModels(writer, writer if plan.answerer == plan.writer else resolve_model(plan.answerer, config))


async def build_questions(
    plan: BuildPlan, models: BuildModels, prompts: BuildPrompts, drawing: Drawing, store: ReplyStore, watcher: Watcher
) -> dict[str, Usage]:
    """Try sections until `drawing` has enough questions or no more sections, and return what was used by each role.

    Replies in `store` are not asked for again, and count as used. The models are closed at the end.

    Raises
    ------
    BuildStoppedError
        If most requests fail, or section after section yields nothing; `drawing` holds what was tried.
    """
    return await _Carrier(plan, models, prompts, store, watcher).carry(drawing)


class _Carrier:
    """Carries requests, and counts what they use."""

    def __init__(
        self, plan: BuildPlan, models: BuildModels, prompts: BuildPrompts, store: ReplyStore, watcher: Watcher
    ) -> None:
        self._plan, self._models, self._prompts, self._store, self._watcher = plan, models, prompts, store, watcher
        self._usage = dict.fromkeys(ROLES.values(), Usage())
        self._breaker = CircuitBreaker()

    async def carry(self, drawing: Drawing) -> dict[str, Usage]:
        async with AsyncExitStack() as opened:
            for model in {id(model): model for model in (self._models.writer, self._models.answerer)}.values():
                await opened.enter_async_context(model)
            while candidates := drawing.next_round():
                tried = await asyncio.gather(*map(self._try, candidates))
                drawing.take(tried)
                if self._breaker.reason is not None:
                    raise BuildStoppedError(self._breaker.reason)
                _refuse_failures(tried)
                if drawing.is_hopeless:
                    raise BuildStoppedError(_hopeless(drawing))
        return self._usage

    async def _try(self, candidate: Candidate) -> Tried:
        said: list[Said] = []
        while isinstance(step := next_ask(candidate, said, self._prompts), Ask):
            try:
                reply = await self._ask(step, candidate)
            except (RequestFailedError, EndedError) as error:
                detail = (str(error) or str(self._breaker.reason))[:LONGEST_DETAIL]
                step = Tried(candidate, reason=Reason.REQUEST_FAILED, detail=detail)
                break
            said.append(Said(without_reasoning(reply.reply.text), TROUBLES.get(reply.reply.stop_reason)))
            self._count(ROLES[step.asked], reply)
        self._watcher.tried(step)
        return step

    async def _ask(self, step: Ask, candidate: Candidate) -> Completion:
        """Return the reply of one role about a section: as the store has it, or as the model gives it now."""
        role = ROLES[step.asked]
        said = (one for one in self._store.said(candidate.candidate_id, role) if one.variant == role)
        found = next(said, None)
        if found is None:
            found = _completion(candidate.candidate_id, role, await self._sent(step, candidate))
            self._store.put([found])
        return found

    async def _sent(self, step: Ask, candidate: Candidate) -> ModelOutput:
        writes = step.asked is Asked.QUESTION
        model = self._models.writer if writes else self._models.answerer
        config = to_config(self._plan.writing if writes else self._plan.answering).merge(
            GenerateConfig(
                seed=request_seed(self._plan.seed, candidate.candidate_id, step.asked),
                max_retries=NO_RETRIES,
                attempt_timeout=self._plan.sending.attempt_timeout,
            )
        )
        return await patiently(
            lambda: model.generate([ChatMessageUser(content=step.message)], config=config),
            lambda error: failure_of(error, told(error), str(model)),
            self._breaker,
            role=ROLES[step.asked],
            about=candidate.candidate_id,
            max_retries=self._plan.sending.max_retries,
        )

    def _count(self, role: str, reply: Completion) -> None:
        one = Usage(1, reply.input_tokens, reply.output_tokens)
        self._usage[role] += one
        self._watcher.replied(one)


def _completion(candidate_id: str, role: str, output: ModelOutput) -> Completion:
    (text, stop_reason), usage = next(filter(None, choices_of(output))), output.usage
    return Completion(
        candidate_id,
        role,
        0,
        Reply(Pass.FIRST, Role.MODEL, text, stop_reason),
        input_tokens=usage.input_tokens if usage else 0,
        output_tokens=usage.output_tokens if usage else 0,
    )


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
