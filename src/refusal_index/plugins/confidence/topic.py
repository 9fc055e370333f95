"""The topic-only baseline, which stands beside every trained method: what is known without a look at the question."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from refusal_index.data.confidence import Score
from refusal_index.plugins.confidence.folds import EXTRA, PACKAGES, FloatArray, IntArray, folds_of
from refusal_index.plugins.confidence.method import Evidence, Method, Need

NAME = "topic"


def topic(evidence: Evidence) -> Iterable[Score]:
    """Yield for each answer the share of right answers to the other folds' questions of its topic.

    A trained method that does not order answers better than this has learned which topics are hard, and nothing of the
    question. Where topics are the groups of the folds, no topic is in two folds, and this says nothing by construction.
    """
    folds = folds_of(evidence, NAME)
    topics = [evidence.questions[one].topic for one in folds.ids]
    right = folds.right

    def shares(train: IntArray, held_out: IntArray) -> FloatArray:
        return topic_shares([topics[one] for one in train], right[train], [topics[one] for one in held_out])

    return folds.scores(NAME, shares)


def topic_shares(topics: Sequence[str | None], right: FloatArray, held_out: Sequence[str | None]) -> FloatArray:
    """Return the share of right answers of each topic held out; the share of all where a topic is not there, or none.

    Parameters
    ----------
    topics, right
        Of the answers that are known, shape (n,).
    held_out
        Topics, shape (m,).

    Examples
    --------
    >>> topic_shares(["a", "a", "b"], np.array([1.0, 0.0, 1.0]), ["a", "b", "c"]).round(3).tolist()
    [0.5, 1.0, 0.667]
    """
    named = np.array([one or "" for one in topics])
    shares = {one: float(right[named == one].mean()) for one in set(named.tolist()) - {""}}
    return np.array([shares.get(one or "", float(right.mean())) for one in held_out])


TOPIC = Method(
    NAME,
    "share of right answers to the other folds' questions of the same topic: the baseline of all that is trained",
    topic,
    frozenset({Need.TOPICS, Need.TRAINING}),
    is_of_model=False,
    packages=PACKAGES,
    extra=EXTRA,
)
METHODS = (TOPIC,)
