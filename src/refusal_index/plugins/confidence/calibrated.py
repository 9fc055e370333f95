"""The likelihood of the answer, brought to the scale of a probability on held-out folds.

The order of the answers is the model's own but for what differs from fold to fold; what is learned is how often an
answer of such a likelihood is right. These scores remain the model's own, with a trained scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
from scipy import special

from refusal_index.data.confidence import Score
from refusal_index.plugins.confidence.folds import EXTRA, PACKAGES, FloatArray, folds_of, logistic_fit, logistic_predict
from refusal_index.plugins.confidence.likelihood import likelihood
from refusal_index.plugins.confidence.method import Evidence, Method, Need

Calibrator = Callable[[FloatArray, FloatArray, FloatArray], FloatArray]
"""From scores and whether right, and the scores held out, to the probability that the latter are right."""

NEAREST = 1e-6
"""How near to 0 or 1 a likelihood counts: beyond it, a difference in the logit says nothing of the answer."""

UNPENALISED = 1e6
"""Strength at which a penalty cannot be told from none, and a fit to answers that a cut separates still ends."""


def calibrated(evidence: Evidence, name: str, calibrator: Calibrator) -> Iterable[Score]:
    """Yield the probability of each answer, as the others with such a likelihood were right.

    Parameters
    ----------
    evidence, name
        Whose answers, and the method.
    calibrator
        Fitted to the likelihoods of the other folds.
    """
    raw = {one.question_id: one.confidence for one in likelihood(evidence, "likelihood", math.fsum)}
    folds = folds_of(evidence, name)
    scores = np.array([raw.get(one) for one in folds.ids], np.float64)  # NaN where there is none
    right = folds.right
    return folds.scores(
        name, lambda train, held_out: calibrator(scores[train], right[train], scores[held_out]), ~np.isnan(scores)
    )


def platt(scores: FloatArray, right: FloatArray, held_out: FloatArray) -> FloatArray:
    """Platt's scaling: a logistic regression on the logit of the score.

    Parameters
    ----------
    scores, right
        Shape (n,): scores in [0, 1], and 1 or 0.
    held_out
        Shape (m,): scores to bring to scale.

    Returns
    -------
    ndarray, shape (m,)
        ``1 / (1 + exp(-(a logit(s) + b)))``, with scores no nearer than 1e-6 to 0 and 1, and Platt's targets, which
        are drawn in by one answer of each kind.

    References
    ----------
    Platt (1999). Probabilistic outputs for support vector machines and comparisons to regularized likelihood methods.
    Niculescu-Mizil and Caruana (2005). Predicting good probabilities with supervised learning.
    :doi:`10.1145/1102351.1102430`

    Examples
    --------
    >>> scores = np.array([0.9] * 4 + [0.6] * 4)
    >>> right = np.array([1, 1, 1, 0, 1, 0, 0, 0.0])
    >>> platt(scores, right, np.array([0.6, 0.9])).round(2).tolist()  # .25 and .75, drawn in
    [0.33, 0.67]
    """
    n_right = right.sum()
    targets = np.where(right > 0, (n_right + 1) / (n_right + 2), 1 / (right.size - n_right + 2))
    return logistic_predict(logistic_fit(_logit(scores), targets, UNPENALISED), _logit(held_out))


def isotonic(scores: FloatArray, right: FloatArray, held_out: FloatArray) -> FloatArray:
    """Isotonic regression: the share of right answers as a step function that nowhere falls.

    Parameters
    ----------
    scores, right, held_out
        As for `platt`.

    Returns
    -------
    ndarray, shape (m,)
        Between two scores that were seen, on the line between their values. 0 and 1 are given where the least or the
        highest scores were all wrong or all right.

    References
    ----------
    Zadrozny and Elkan (2002). Transforming classifier scores into accurate multiclass probability estimates.
    :doi:`10.1145/775047.775151`

    Examples
    --------
    >>> isotonic(np.array([0.2, 0.4, 0.6, 0.8]), np.array([0, 1, 0, 1.0]), np.array([0.1, 0.5, 0.9])).tolist()
    [0.0, 0.5, 1.0]
    """
    from sklearn.isotonic import IsotonicRegression  # noqa: PLC0415 - of an extra, and slow to load

    fitted = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(scores, right)
    return np.asarray(fitted.predict(held_out), np.float64)


def _logit(scores: FloatArray) -> FloatArray:
    return np.asarray(special.logit(np.clip(scores, NEAREST, 1 - NEAREST)))[:, None]


_CALIBRATORS: dict[str, tuple[Calibrator, str]] = {
    "likelihood-platt": (platt, "the likelihood, scaled by a logistic regression on the other folds"),
    "likelihood-isotonic": (isotonic, "the likelihood, scaled by isotonic regression on the other folds"),
}

METHODS = tuple(
    Method(
        name,
        about,
        partial(calibrated, name=name, calibrator=calibrator),
        frozenset({Need.LOGPROBS, Need.TRAINING}),
        packages=PACKAGES,
        extra=EXTRA,
    )
    for name, (calibrator, about) in _CALIBRATORS.items()
)
