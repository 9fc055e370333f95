"""Interface of confidence methods: what a method needs, the prompts that it sends, and how it computes scores.

A method scores the forced answer of the first draw, which every question has under every variant and which all variants
share. The score is compared with whether this answer is right. Scores are rows of a confidence table, with the columns
of `CONFIDENCE_SCHEMA`, from the method to the summary.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial

import numpy as np
import polars as pl
from numpy.typing import NDArray

from refusal_index.data.outcome import Question
from refusal_index.data.outcome_table import CONFIDENCE_SCHEMA, SCHEMA, check_scores
from refusal_index.errors import RefusalIndexError
from refusal_index.protocol import AUXILIARY, StopReason, TokenLogprob
from refusal_index.runs.identity import versions

SAMPLED_AGAIN = (pl.col("draw") > 0) & pl.col("first_reply").is_not_null()
"""Whether a row of a run's outcome table is a further draw with a reply."""


class Need(StrEnum):
    """Requirements of methods."""

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
    questions
        All questions of the run, by id.
    answers
        The forced answers to score, by question id; questions without one are missing.
    further
        Forced answers of further draws, by question id.
    outcomes
        The run's outcome table.
    probes
        Replies to the methods' own prompts, by prompt and question id.
    groups
        Group of a question, by id; a group is kept in one fold. Missing questions are groups of their own.
    states
        Returns the hidden states before the answer for question ids, shape (n, layers + 1, size): those before the
        first layer and after each layer.
    layer
        The layer that a probe reads; None for the middle one.
    seed
        Seed of the folds of trained methods.
    """

    questions: Mapping[str, Question]
    answers: Mapping[str, Answer]
    further: Mapping[str, Sequence[Answer]] = field(default_factory=dict)
    outcomes: pl.DataFrame = field(default_factory=partial(pl.DataFrame, schema=dict(SCHEMA)))
    probes: Mapping[str, Mapping[str, Sequence[Answer]]] = field(default_factory=dict)
    groups: Mapping[str, str] = field(default_factory=dict)
    states: Callable[[Sequence[str]], NDArray[np.float32]] | None = None
    layer: int | None = None
    seed: int = 0

    def with_grades_of(self, question_ids: Collection[str]) -> Evidence:
        """Return the evidence with the grades of these questions only.

        Examples
        --------
        >>> answers = {name: Answer("Lima", "Lima", wrong=False) for name in ("a", "b")}
        >>> [answer.wrong for answer in Evidence({}, answers).with_grades_of({"a"}).answers.values()]
        [False, None]
        """

        def kept(question_id: str, answer: Answer) -> Answer:
            return answer if question_id in question_ids else replace(answer, wrong=None)

        def all_kept(answers: Mapping[str, Sequence[Answer]]) -> dict[str, list[Answer]]:
            return {name: [kept(name, answer) for answer in several] for name, several in answers.items()}

        is_kept = pl.col("question_id").is_in(list(question_ids))
        return replace(
            self,
            answers={name: kept(name, answer) for name, answer in self.answers.items()},
            further=all_kept(self.further),
            outcomes=self.outcomes.with_columns(wrong=pl.when(is_kept).then("wrong")),
            probes={prompt: all_kept(answers) for prompt, answers in self.probes.items()},
        )


class TrainingError(RefusalIndexError, ValueError):
    """Answers on which a confidence method cannot be trained; the message says what is missing."""


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
        Returns a frame with `question_id` and `confidence`, null for an answer that the method cannot score. Further
        columns of `CONFIDENCE_SCHEMA` are filled in as for the forced answers if they are missing.
    needs
        Requirements in addition to the forced answers.
    prompts
        Prompts of the method.
    is_of_model
        Whether the score is the model's own rather than that of another predictor, trained on the model's answers.
    packages, extra
        Names of the packages that the method needs, as on PyPI, and the extra that installs them.
    """

    name: str
    about: str
    score: Callable[[Evidence], pl.DataFrame]
    needs: frozenset[Need] = frozenset()
    prompts: tuple[Prompt, ...] = ()
    is_of_model: bool = True
    packages: tuple[str, ...] = ()
    extra: str = ""

    def scores(self, evidence: Evidence) -> pl.DataFrame:
        """Return the confidence table of the method.

        Raises
        ------
        ConfidenceError
            If a score is outside [0, 1] or occurs twice.
        TrainingError
            If the answers are not enough to train on.
        """
        try:
            scores = self.score(evidence)
        except TrainingError as error:
            raise TrainingError(f"{self.name}: {error}") from error
        grades = {
            "question_id": list(evidence.answers),
            "wrong": [answer.wrong for answer in evidence.answers.values()],
        }
        if "wrong" not in scores.columns:
            scores = scores.join(
                pl.DataFrame(grades, schema_overrides=CONFIDENCE_SCHEMA),
                on="question_id",
                how="left",
                maintain_order="left",
            )
        usual = {"method": self.name, "variant": None, "draw": 0, "pass": "forced", "fold": None}
        added = (pl.lit(value).alias(name) for name, value in usual.items() if name not in scores.columns)
        table = scores.with_columns(added).select(pl.col(name).cast(kind) for name, kind in CONFIDENCE_SCHEMA.items())
        check_scores(table, self.name)
        return table


def missing_packages(packages: Iterable[str]) -> tuple[str, ...]:
    """Return the packages that are not installed.

    Examples
    --------
    >>> missing_packages(["numpy", "no-such-package"])
    ('no-such-package',)
    """
    return tuple(name for name in packages if name not in versions(packages))


def score_each(answers: Mapping[str, Answer], confidence: Callable[[str, Answer], float | None]) -> pl.DataFrame:
    """Return the confidence in every answer and whether it is wrong, in the order of the questions' ids.

    Parameters
    ----------
    answers
        The answers by question id.
    confidence
        Returns the confidence for a question id and its answer.

    Examples
    --------
    >>> score_each({"q1": Answer("Lima", "Lima", wrong=False)}, lambda question_id, answer: 0.5).rows()
    [('q1', 0.5, False)]
    """
    rows = [
        (question_id, confidence(question_id, answer), answer.wrong) for question_id, answer in sorted(answers.items())
    ]
    columns = {name: CONFIDENCE_SCHEMA[name] for name in ("question_id", "confidence", "wrong")}
    return pl.DataFrame(rows, schema=columns, orient="row")
