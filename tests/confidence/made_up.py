"""Synthetic evidence: questions whose answers are right by a rule stated in the test."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from refusal_index.data.outcome import Question
from refusal_index.plugins.confidence.method import Answer, Evidence
from refusal_index.protocol import TokenLogprob

LETTERS = "bcdfghjklmnpqrstvwz"


def evidence_of(
    right: Sequence[bool | None],
    topics: Sequence[str] | None = None,
    *,
    likelihood: Sequence[float | None] | None = None,
    states: NDArray[np.float32] | None = None,
    texts: Sequence[str] | None = None,
    seed: int = 0,
    **more: object,
) -> Evidence:
    """Question n is called q000n; anything not given is random noise."""
    rng = np.random.default_rng([seed, 1])
    size = len(right)
    ids = [f"q{number:04}" for number in range(size)]
    named = topics or [f"topic {number % 5}" for number in range(size)]
    words = texts or [word(rng) for _ in range(size)]
    given = likelihood if likelihood is not None else rng.uniform(size=size).tolist()
    known = rng.normal(size=(size, 3, 6)).astype(np.float32) if states is None else states
    questions = {
        one: Question(one, f"{text}?", "yes", topic=topic) for one, text, topic in zip(ids, words, named, strict=True)
    }
    answers = {one: answer_of(word(rng), grade, score) for one, grade, score in zip(ids, right, given, strict=True)}
    places = {one: place for place, one in enumerate(ids)}
    return Evidence(questions, answers, states=lambda asked: known[[places[one] for one in asked]], seed=seed, **more)


def answer_of(text: str, right: bool | None, likelihood: float | None) -> Answer:
    words = None if likelihood is None else (TokenLogprob(text, float(np.log(likelihood))),)
    return Answer(text, f"<answer>{text}</answer>", None if right is None else not right, words)


def word(rng: np.random.Generator) -> str:
    return "".join(rng.choice(list(LETTERS), 6))


def by_topic(leak: Callable[[int], float], n_topics: int, each: int, seed: int) -> Evidence:
    """Answers whose correctness depends only on their topic; states and texts reveal only the topic."""
    rng = np.random.default_rng(seed)
    topics = np.repeat(np.arange(n_topics), each)
    right = rng.uniform(size=topics.size) < [leak(topic) for topic in topics]
    names = [word(rng) for _ in range(n_topics)]
    marks = rng.normal(size=(n_topics, 2 * n_topics))
    states = marks[topics] + 0.1 * rng.normal(size=(topics.size, 2 * n_topics))
    return evidence_of(
        right.tolist(),
        [names[topic] for topic in topics],
        states=np.stack([states] * 3, axis=1).astype(np.float32),
        texts=[f"{names[topic]} {names[topic]}" for topic in topics],
        seed=seed,
    )
