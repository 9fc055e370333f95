"""Who is asked in a PreciseWikiQA build, how, and what: each request as a conversation that any engine carries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from refusal_index.datasets.precise_wiki_build import Asked
from refusal_index.engines.settings import Decoding, Sending, Settings
from refusal_index.outcomes.grade import Grade
from refusal_index.outcomes.outcome import Outcome
from refusal_index.outcomes.question import Question
from refusal_index.protocol import Asked as Role
from refusal_index.protocol import GraderKind, Message, Pass, Reply, Request, Step

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
        return Request(step.of, step.asked, (Message("user", self.message),))
