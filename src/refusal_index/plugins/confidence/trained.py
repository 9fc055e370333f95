"""Scores of predictors that are trained on the run's own right and wrong answers, each scored out of fold.

- The likelihood of the answer, calibrated on the other folds: how often an answer of such a likelihood is right.
- P(IK), "I know": a linear probe on the model's hidden states before it answers. It says what can be read off these
  states, which the model need not use: an estimate of the model, by a predictor that is not.
- A classifier of question and reply: TF-IDF and logistic regression. It shares with APRICOT that it is trained on text
  alone and that clusters of questions give its targets, but not the models: similarity is that of characters.
- The topic alone: the baseline beside every trained method, known without a look at the question.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from refusal_index.plugins.confidence.folds import (
    FloatArray,
    IntArray,
    TrainingError,
    cluster_targets,
    folds_of,
    logistic_fit,
    logistic_predict,
)
from refusal_index.plugins.confidence.method import Evidence, Method, Need
from refusal_index.plugins.confidence.model_scores import likelihood
from refusal_index.plugins.confidence.score_table import Score

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
    folds = folds_of(evidence, P_IK)
    states, right = evidence.states(folds.ids), folds.right
    depth = states.shape[1] - 1
    layer = (depth + 1) // 2 if evidence.layer is None else evidence.layer
    if not 0 <= layer <= depth:
        raise TrainingError(
            f"{P_IK}: expected a layer from 0, before the first, to {depth}, after the last, got {layer}"
        )
    states = states[:, layer]
    return folds.scores(P_IK, lambda train, held_out: probe(states[train], right[train], states[held_out]))


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


P_IK, TEXT_CLASSIFIER = "p-ik", "text-classifier"

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
    folds = folds_of(evidence, TEXT_CLASSIFIER)
    questions = [evidence.questions[one].text for one in folds.ids]
    texts = [f"{question}\n{answer.reply}" for question, answer in zip(questions, folds.answers, strict=True)]
    right = folds.right

    def predict(train: IntArray, held_out: IntArray) -> FloatArray:
        targets = cluster_targets(_places([questions[one] for one in train], evidence.seed), right[train])
        known, asked = [texts[one] for one in train], [texts[one] for one in held_out]
        return classify(known, targets, asked)

    return folds.scores(TEXT_CLASSIFIER, predict)


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


def topic(evidence: Evidence) -> Iterable[Score]:
    """Yield for each answer the share of right answers to the other folds' questions of its topic.

    A trained method that does not order answers better than this has learned which topics are hard, and nothing of the
    question. Where topics are the groups of the folds, no topic is in two folds, and this says nothing by construction.
    """
    folds = folds_of(evidence, "topic")
    topics = [evidence.questions[one].topic for one in folds.ids]
    right = folds.right

    def shares(train: IntArray, held_out: IntArray) -> FloatArray:
        return topic_shares([topics[one] for one in train], right[train], [topics[one] for one in held_out])

    return folds.scores("topic", shares)


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


_Trained = partial(Method, packages=("sklearn",), extra="confidence")
_TOPIC = "share of right answers to the other folds' questions of the same topic: the baseline of all that is trained"
_PROBE = "linear probe, trained on the other folds, on the model's hidden states before the answer"
_TEXT = "TF-IDF of question and reply and logistic regression, trained on the other folds; needs no weights"


def _calibrated(name: str, about: str, calibrator: Calibrator) -> Method:
    score = partial(calibrated, name=name, calibrator=calibrator)
    return _Trained(name, about, score, frozenset({Need.LOGPROBS, Need.TRAINING}))


TOPIC = _Trained("topic", _TOPIC, topic, frozenset({Need.TOPICS, Need.TRAINING}), is_of_model=False)
METHODS = (
    _calibrated("likelihood-platt", "the likelihood, scaled by a logistic regression on the other folds", platt),
    _calibrated("likelihood-isotonic", "the likelihood, scaled by isotonic regression on the other folds", isotonic),
    TOPIC,
    _Trained(P_IK, _PROBE, p_ik, frozenset({Need.STATES, Need.TRAINING})),
    _Trained(TEXT_CLASSIFIER, _TEXT, text_classifier, frozenset({Need.TRAINING}), is_of_model=False),
)
