"""What a method of confidence is: what it needs, what it asks beside the run, and how it makes scores of the replies.

A method scores the forced answer of the first draw, which every question has whatever a variant made of it, and which
all variants share. Its score is compared with whether that very answer is right.
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
    """What a method needs, in the words that a user reads."""

    FIRST_DRAWS = "several draws of the first pass"
    FORCED_DRAWS = "several draws of the forced pass"
    LOGPROBS = "log probabilities"
    REQUESTS = "requests of its own"
    STATES = "hidden states"
    TOPICS = "topics of the questions"
    TRAINING = "right and wrong answers to train on"
    WEIGHTS = "weights of another model"


@dataclass(frozen=True)
class Prompt:
    """What a method asks beside the run.

    Attributes
    ----------
    name
        Its own: a prompt whose words change gets another one.
    template
        Its words, with the field ``{question}`` and, where it is about an answer that was given, ``{answer}``.
    is_graded
        Whether the reply holds an answer of its own, which the score is for.
    draws
        How often it is asked where no log probabilities come; once where they do.
    """

    name: str
    template: str
    is_graded: bool = False
    draws: int = 1

    @property
    def variant(self) -> str:
        """The variant that its replies are stored under."""
        return f"{AUXILIARY}{self.name}"


@dataclass(frozen=True)
class Answer:
    """An answer to a question.

    Attributes
    ----------
    text, reply
        The answer as it is read, empty where it cannot be, and the reply word for word.
    wrong
        Its grade; None while it is unscored.
    logprobs
        Of the reply's tokens; None where there are none.
    stop_reason
        Why the reply ended: one that was cut says nothing for certain.
    """

    text: str
    reply: str
    wrong: bool | None
    logprobs: tuple[TokenLogprob, ...] | None = None
    stop_reason: StopReason = StopReason.STOP


@dataclass(frozen=True)
class Evidence:
    """What methods make scores of.

    Attributes
    ----------
    model
        Who was asked.
    questions
        All that were asked, by id.
    answers
        The forced answers that are scored, by question id; a question without one is not there.
    further
        Forced answers of further draws, by question id.
    refusals
        Whether further draws of the first pass refused, by variant and question id.
    probes
        Replies to the methods' own prompts, by prompt and question id.
    groups
        By question id, what lies in one fold; a question that is not there is a group of its own.
    states
        Hidden states before the answer, of the questions with these ids: shape (n, layers + 1, size), those before
        the first layer and after each.
    layer
        Which of them a probe reads; None is the middle one.
    n_folds, seed
        Of trained methods.
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
    """What a method says of one answer.

    Attributes
    ----------
    question_id, method
        Of which question, and by which method.
    confidence
        In [0, 1]; None where the method was asked for it and gave none.
    wrong
        Whether the answer is wrong; None while it is unscored.
    variant
        None where the score belongs to all.
    draw, of
        Of the answer: its repetition, and its pass.
    fold
        Which part of the questions it lies in, of a method that was trained on the others.
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
    """A way to a score.

    Attributes
    ----------
    name
        As options and columns have it.
    about
        What it is, in a line.
    score
        Makes the scores; a question for which it has none, though it was asked, gets one whose confidence is None.
    needs
        All that it needs beside the forced answers.
    prompts
        What it asks.
    is_of_model
        Whether the score is the model's own; else it is that of another predictor, which was trained on its answers.
    packages
        What must be installed for it, as it is imported, and the extra that brings it.
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
        """The packages that it needs and that are not installed."""
        return lacking(self.packages)


def lacking(packages: Iterable[str]) -> tuple[str, ...]:
    """Return those of some packages that are not installed.

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
        The answers by question id, and the method.
    confidence
        Of a question id and its answer.
    """
    for question_id, answer in sorted(answers.items()):
        yield Score(question_id, name, confidence(question_id, answer), answer.wrong)
