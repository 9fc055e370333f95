"""Logistic regression on targets between 0 and 1, as several trained methods fit it."""

from __future__ import annotations

from typing import Any

import numpy as np

from refusal_index.confidence.folds import FloatArray


def logistic_fit(features: Any, targets: FloatArray, strength: float) -> Any:
    """Fit a logistic regression to targets between 0 and 1.

    A row with the target t stands in the likelihood as a right answer of weight t and a wrong one of weight 1 - t: so
    the cross entropy of t is what is least.

    Parameters
    ----------
    features
        Shape (n, p), an array or a sparse matrix.
    targets
        Shape (n,).
    strength
        The inverse of the ridge penalty, scikit-learn's C: the prior variance of each coefficient.

    Returns
    -------
    LogisticRegression
        Its `predict_proba` gives the probability of a wrong and a right answer.

    Examples
    --------
    >>> import numpy as np
    >>> fitted = logistic_fit(np.zeros((4, 1)), np.array([0.25, 0.25, 0.5, 1.0]), strength=1.0)
    >>> round(float(fitted.predict_proba(np.zeros((1, 1)))[0, 1]), 3)  # with nothing to tell by, the mean target
    0.5
    """
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415 - of an extra, and slow to load

    above, below = np.flatnonzero(targets > 0), np.flatnonzero(targets < 1)
    rows = np.concatenate([above, below])
    kinds = np.concatenate([np.ones(above.size, np.int64), np.zeros(below.size, np.int64)])
    weights = np.concatenate([targets[above], 1 - targets[below]])
    return LogisticRegression(C=strength, max_iter=1000).fit(features[rows], kinds, sample_weight=weights)


def logistic_predict(fitted: Any, features: Any) -> FloatArray:
    """Return the probability of a right answer for each row, shape (n,)."""
    return np.asarray(fitted.predict_proba(features)[:, 1], np.float64)
