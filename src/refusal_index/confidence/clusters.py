"""Targets of a classifier of answers: how often the model is right about questions such as this one."""

from __future__ import annotations

from typing import Any

import numpy as np

from refusal_index.confidence.folds import FloatArray


def cluster_targets(embeddings: Any, right: FloatArray) -> FloatArray:
    """Return for each answer the share of right ones among the questions of its cluster, or its own where it has none.

    Parameters
    ----------
    embeddings
        Of the questions, shape (n, size).
    right
        Shape (n,), 1 or 0.

    Returns
    -------
    ndarray, shape (n,)

    References
    ----------
    Ulmer et al. (2024). Calibrating large language models using their generations only. :arxiv:`2403.05973`. As there,
    embeddings are standardised and clustered by HDBSCAN with clusters of three and more. Otherwise than in its code,
    the questions that are held out take no part, for their answers would be in the targets; and the cluster that comes
    first has its share as all have, where that code takes each question's own.

    Examples
    --------
    >>> places = np.array([[0.0], [0.1], [0.2], [9.0], [9.1], [9.2]])
    >>> cluster_targets(places, np.array([1.0, 1.0, 0.0, 0.0, 0.0, 0.0])).round(2).tolist()
    [0.67, 0.67, 0.67, 0.0, 0.0, 0.0]
    """
    from sklearn.cluster import HDBSCAN  # noqa: PLC0415 - of an extra, and slow to load

    places = np.asarray(embeddings, np.float64)
    if len(places) < SMALLEST:
        return right.copy()
    spread = places.std(axis=0)
    standardised = (places - places.mean(axis=0)) / np.where(spread > 0, spread, 1)
    labels = HDBSCAN(min_cluster_size=SMALLEST, min_samples=1, copy=True).fit(standardised).labels_
    targets = right.copy()
    for label in set(labels.tolist()) - {NOISE}:
        targets[labels == label] = right[labels == label].mean()
    return targets


SMALLEST = 3
"""Questions of a cluster at least."""

NOISE = -1
"""What HDBSCAN labels a question with that lies in no cluster."""
