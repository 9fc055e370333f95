"""A light classifier of question and reply, which needs no weights: TF-IDF and logistic regression.

It shares with APRICOT that it is trained on text alone, that clusters of questions give its targets, and that question
and reply are its input. It does not share the models: similarity is that of characters, not of meaning, and nothing was
learned from other text. So it is named as what it is, and its figures are not those of APRICOT.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from refusal_index.data.confidence import Score
from refusal_index.plugins.confidence.folds import (
    EXTRA,
    PACKAGES,
    FloatArray,
    IntArray,
    cluster_targets,
    folds_of,
    logistic_fit,
    logistic_predict,
)
from refusal_index.plugins.confidence.method import Evidence, Method, Need

NAME = "text-classifier"

LONGEST_PART = 4
"""Characters of the longest part of a word that is counted."""

DIMENSIONS = 50
"""Of a question, for clustering: HDBSCAN needs it dense, and finds nothing in thousands."""


def text_classifier(evidence: Evidence) -> Iterable[Score]:
    """Yield the probability of a right answer by the characters of question and reply.

    References
    ----------
    After Ulmer et al. (2024). Calibrating large language models using their generations only. :arxiv:`2403.05973`
    """
    folds = folds_of(evidence, NAME)
    questions = [evidence.questions[one].text for one in folds.ids]
    texts = [f"{question}\n{answer.reply}" for question, answer in zip(questions, folds.answers, strict=True)]
    right = folds.right

    def predict(train: IntArray, held_out: IntArray) -> FloatArray:
        targets = cluster_targets(_places([questions[one] for one in train], evidence.seed), right[train])
        known, asked = [texts[one] for one in train], [texts[one] for one in held_out]
        return classify(known, targets, asked)

    return folds.scores(NAME, predict)


def classify(texts: Sequence[str], targets: FloatArray, held_out: Sequence[str]) -> FloatArray:
    """Fit a logistic regression to the character n-grams of texts, and return its probabilities for others.

    Parameters
    ----------
    texts, targets
        Shape (n,); targets lie between 0 and 1.
    held_out
        Shape (m,).

    Returns
    -------
    ndarray, shape (m,)

    Examples
    --------
    >>> found = classify(["Lima?", "Lima!", "Oslo?", "Oslo!"], np.array([1.0, 1.0, 0.0, 0.0]), ["Lima.", "Oslo."])
    >>> (found > 0.5).tolist()
    [True, False]
    """
    count = _vectoriser()
    fitted = logistic_fit(count.fit_transform(texts), targets, 1.0)
    return logistic_predict(fitted, count.transform(held_out))


def _places(questions: Sequence[str], seed: int) -> FloatArray:
    """Return where questions lie to each other, shape (n, at most 50)."""
    from sklearn.decomposition import TruncatedSVD  # noqa: PLC0415 - of an extra, and slow to load

    counts = _vectoriser().fit_transform(questions)
    if counts.shape[1] <= DIMENSIONS:
        return np.asarray(counts.toarray())
    reduced = TruncatedSVD(DIMENSIONS, random_state=seed % 2**32).fit_transform(counts)
    return np.asarray(reduced, np.float64)


def _vectoriser() -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer  # noqa: PLC0415 - of an extra, and slow to load

    return TfidfVectorizer(analyzer="char_wb", ngram_range=(1, LONGEST_PART), sublinear_tf=True)


METHODS = (
    Method(
        NAME,
        "TF-IDF of question and reply and logistic regression, trained on the other folds; needs no weights",
        text_classifier,
        frozenset({Need.TRAINING}),
        is_of_model=False,
        packages=PACKAGES,
        extra=EXTRA,
    ),
)
