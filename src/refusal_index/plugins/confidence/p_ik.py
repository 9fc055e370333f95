"""P(IK), "I know": a linear probe on the model's hidden states before it answers.

The probe reads the model's states and is trained on its answers: what it tells is what can be read off, which the model
need not use. So it counts as an estimate of the model, by a predictor that is not.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from refusal_index.data.confidence import Score
from refusal_index.plugins.confidence.folds import (
    EXTRA,
    PACKAGES,
    FloatArray,
    TrainingError,
    folds_of,
    logistic_fit,
    logistic_predict,
)
from refusal_index.plugins.confidence.method import Evidence, Method, Need

NAME = "p-ik"


def p_ik(evidence: Evidence) -> Iterable[Score]:
    """P(IK): the probability of a right answer by a linear probe on the states at the end of the forced prompt.

    Parameters
    ----------
    evidence
        Its `states` are read at one layer, `layer`; by default the middle one. It is fixed beforehand, for a layer that
        was chosen by how well it does on the questions that are scored would be chosen on what it is tested by.

    Raises
    ------
    TrainingError
        If the model has no such layer, or there is too little to train on.

    References
    ----------
    Kadavath et al. (2022). Language models (mostly) know what they know. :arxiv:`2207.05221`. There a value head is
    trained along with the whole model, on the share of right answers among 30 samples of each question; here the model
    stays as it is, and the probe learns whether the one answer given is right.
    """
    assert evidence.states is not None, "the model shows its hidden states"  # noqa: S101 - checked by who plans
    folds = folds_of(evidence, NAME)
    states = _layer(evidence.states(folds.ids), evidence.layer)
    right = folds.right
    return folds.scores(NAME, lambda train, held_out: probe(states[train], right[train], states[held_out]))


def probe(states: NDArray[np.float32], right: FloatArray, held_out: NDArray[np.float32]) -> FloatArray:
    """Fit a logistic regression to states of unit variance, and return the probability of a right answer.

    Its penalty is that of a prior with variance 1 / size of each coefficient: so the logit of a typical state has the
    prior variance 1, however large the model.

    Parameters
    ----------
    states, right
        Shape (n, size) and (n,).
    held_out
        Shape (m, size).

    Returns
    -------
    ndarray, shape (m,)

    Examples
    --------
    >>> states = np.array([[0.0, 5.0], [0.1, 5.0], [1.0, 5.0], [1.1, 5.0]], np.float32)
    >>> probe(states, np.array([0.0, 0.0, 1.0, 1.0]), states[[0, 3]]).round(1).tolist()
    [0.3, 0.7]
    """
    from sklearn.preprocessing import StandardScaler  # noqa: PLC0415 - of an extra, and slow to load

    scale = StandardScaler().fit(states.astype(np.float64))
    fitted = logistic_fit(scale.transform(states), right, 1 / states.shape[1])
    return logistic_predict(fitted, scale.transform(held_out))


def _layer(states: NDArray[np.float32], layer: int | None) -> NDArray[np.float32]:
    """Return the states of one layer, of shape (n, layers + 1, size) those before the first layer and after each."""
    depth = states.shape[1] - 1
    chosen = (depth + 1) // 2 if layer is None else layer
    if not 0 <= chosen <= depth:
        raise TrainingError(
            f"{NAME}: expected a layer from 0, before the first, to {depth}, after the last, got {layer}"
        )
    return states[:, chosen]


METHODS = (
    Method(
        NAME,
        "linear probe, trained on the other folds, on the model's hidden states before the answer",
        p_ik,
        frozenset({Need.STATES, Need.TRAINING}),
        packages=PACKAGES,
        extra=EXTRA,
    ),
)
