"""Interface of confidence methods: what a method needs, the prompts that it sends, and how it computes scores.

A method scores the forced answer of the first draw, which every question has under every variant and which all variants
share. The score is compared with whether this answer is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.util import find_spec

import numpy as np
import polars as pl
from numpy.typing import NDArray

from refusal_index.data.outcome import Question
from refusal_index.protocol import AUXILIARY, StopReason, TokenLogprob

SAMPLED_AGAIN = (pl.col("draw") > 0) & pl.col("first_reply").is_not_null()
"""Whether a row of a run's outcome table is a further draw with a reply."""


class Need(StrEnum):
    """Requirements of methods; the values are shown to users."""

    FIRST_DRAWS = "several samples of the first pass"
    FORCED_DRAWS = "several samples of the forced pass"
    LOGPROBS = "log probabilities"
    REQUESTS = "requests of its own"
    STATES = "hidden states"
    TOPICS = "topics of the questions"
    TRAINING = "right and wrong answers to train on"
    WEIGHTS = "weights of another model"


@dataclass(frozen=True)
class Prompt:
    """A prompt that a method sends in addition to those of the run.

    Attributes
    ----------
    name
        Unique name; a prompt whose wording changes gets a new name.
    template
        The wording, with the field ``{question}`` and, if the prompt is about an earlier answer, ``{answer}``.
    is_graded
        Whether the reply contains its own answer, which is graded and to which the score refers.
    draws
        Number of samples if the model returns no log probabilities; otherwise one.
    """

    name: str
    template: str
    is_graded: bool = False
    draws: int = 1

    @property
    def variant(self) -> str:
        """Variant under which the replies are stored."""
        return f"{AUXILIARY}{self.name}"


@dataclass(frozen=True)
class Answer:
    """An answer to a question.

    Attributes
    ----------
    text, reply
        The parsed answer, empty if the reply cannot be parsed, and the full reply.
    wrong
        Whether the answer is wrong; None while it is unscored.
    logprobs
        Log probabilities of the reply's tokens; None if there are none.
    stop_reason
        Why the reply ended; truncated replies are not reliable.
    """

    text: str
    reply: str
    wrong: bool | None
    logprobs: tuple[TokenLogprob, ...] | None = None
    stop_reason: StopReason = StopReason.STOP


@dataclass(frozen=True)
class Evidence:
    """The data from which methods compute scores.

    Attributes
    ----------
    model
        Name of the model.
    questions
        All questions of the run, by id.
    answers
        The forced answers to score, by question id; questions without one are missing.
    further
        Forced answers of further draws, by question id.
    refusals
        Whether further draws of the first pass refused, by variant and question id.
    probes
        Replies to the methods' own prompts, by prompt and question id.
    groups
        Group of a question, by id; a group is kept in one fold. Missing questions are groups of their own.
    states
        Returns the hidden states before the answer for question ids, shape (n, layers + 1, size): those before the
        first layer and after each layer.
    layer
        The layer that a probe reads; None for the middle one.
    n_folds, seed
        Number of folds of trained methods, and their seed.
    """

    model: str
    questions: Mapping[str, Question]
    answers: Mapping[str, Answer]
    further: Mapping[str, Sequence[Answer]] = field(default_factory=dict)
    refusals: Mapping[str, Mapping[str, Sequence[bool]]] = field(default_factory=dict)
    probes: Mapping[str, Mapping[str, Sequence[Answer]]] = field(default_factory=dict)
    groups: Mapping[str, str] = field(default_factory=dict)
    states: Callable[[Sequence[str]], NDArray[np.float32]] | None = None
    layer: int | None = None
    n_folds: int = 5
    seed: int = 0


@dataclass(frozen=True)
class Score:
    """The score of one answer by one method.

    Attributes
    ----------
    question_id, method
        The question, and the name of the method.
    confidence
        Confidence in [0, 1]; None if the method produced no score.
    wrong
        Whether the answer is wrong; None while it is unscored.
    variant
        The variant of the score; None if it applies to all variants.
    draw, of
        Draw and pass of the answer.
    fold
        The fold of the question, for methods that are trained on the other folds.
    """

    question_id: str
    method: str
    confidence: float | None
    wrong: bool | None
    variant: str | None = None
    draw: int = 0
    of: str | None = "forced"
    fold: int | None = None


@dataclass(frozen=True)
class Method:
    """A confidence method.

    Attributes
    ----------
    name
        Name in options and columns.
    about
        One-line description.
    score
        Computes the scores; an answer that the method cannot score gets a score whose confidence is None.
    needs
        Requirements in addition to the forced answers.
    prompts
        Prompts of the method.
    is_of_model
        Whether the score is the model's own rather than that of another predictor, trained on the model's answers.
    packages, extra
        Import names of the packages that the method needs, and the extra that installs them.
    """

    name: str
    about: str
    score: Callable[[Evidence], Iterable[Score]]
    needs: frozenset[Need] = frozenset()
    prompts: tuple[Prompt, ...] = ()
    is_of_model: bool = True
    packages: tuple[str, ...] = ()
    extra: str = ""

    @property
    def lacks(self) -> tuple[str, ...]:
        """Required packages that are not installed."""
        return lacking(self.packages)


def lacking(packages: Iterable[str]) -> tuple[str, ...]:
    """Return the packages that are not installed.

    Examples
    --------
    >>> lacking(["numpy", "no_such_package"])
    ('no_such_package',)
    """
    return tuple(name for name in packages if find_spec(name) is None)


def score_each(
    answers: Mapping[str, Answer], name: str, confidence: Callable[[str, Answer], float | None]
) -> Iterable[Score]:
    """Yield a score for every answer, in the order of the questions' ids.

    Parameters
    ----------
    answers, name
        The answers by question id, and the name of the method.
    confidence
        Returns the confidence for a question id and its answer.
    """
    for question_id, answer in sorted(answers.items()):
        yield Score(question_id, name, confidence(question_id, answer), answer.wrong)
