"""Scores of predictors trained on the run's own right and wrong answers, with each answer scored out of fold.

- Calibrated likelihood: the likelihood of the answer, calibrated on the other folds.
- P(IK), "I know": a linear probe on the model's hidden states before the answer. It shows what can be decoded from the
  states, not what the model uses.
- Text classifier: TF-IDF of question and reply, and logistic regression. Like APRICOT, it is trained on text alone,
  with clusters of questions as targets, but it measures similarity by characters rather than with language models.
- APRICOT: another language model, fine-tuned to predict from question and reply how often such questions are answered
  correctly. It needs two sets of weights, and a GPU to train in minutes rather than hours.
- Topic: the baseline for every trained method, which ignores the question.

Each question is scored once, by a predictor trained on the other folds. A group, such as questions about the same
person, is kept in one fold, since a predictor could otherwise learn from related questions. Folds depend only on the
questions, their grades and groups, and the seed, so that all methods of a run are evaluated on the same folds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import special

from refusal_index.data.outcome import Question
from refusal_index.errors import suggestion
from refusal_index.models.settings import SettingError
from refusal_index.plugins.confidence.answer_probability import (
    NEAREST,
    Calibration,
    IsotonicFunction,
    PlattScaling,
)
from refusal_index.plugins.confidence.hidden_states import load_weights
from refusal_index.plugins.confidence.method import Evidence, Method, Need, TrainingError
from refusal_index.plugins.confidence.model_scores import likelihood

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]

Texts = Sequence[tuple[str, str]]
"""Pairs of a question and its reply."""

Predictor = Callable[[IntArray, FloatArray, IntArray], FloatArray]
"""Takes the positions of the training answers, whether each is right (1 or 0), and the positions of the held-out
answers; returns the confidence in the latter.
"""


N_FOLDS = 5
"""Number of folds; each needs at least one right answer, one wrong answer and one group of questions."""


def shortage(right: int, wrong: int, groups: int) -> str | None:
    """Return what is too scarce for training, as text; None if there is enough.

    It needs only counts, so that it can be checked before any request is sent.

    Parameters
    ----------
    right, wrong
        Numbers of right and of wrong answers.
    groups
        Number of groups of questions.

    Examples
    --------
    >>> shortage(right=3, wrong=40, groups=43)
    'needs 5 right and 5 wrong answers to train on, one of each for each of 5 folds, but there are 3 right and 40 wrong'
    """
    if min(right, wrong) < N_FOLDS:
        return (
            f"needs {N_FOLDS} right and {N_FOLDS} wrong answers to train on, one of each for each of {N_FOLDS} folds, "
            f"but there are {right} right and {wrong} wrong"
        )
    if groups < N_FOLDS:
        return (
            f"needs {N_FOLDS} groups of questions, one for each of {N_FOLDS} folds, but there are {groups}; "
            "group them by something else, or not at all"
        )
    return None


RELATIONS = frozenset(
    {"birthplace", "birth-year", "profession", "prize", "author", "publication-year", "genre", "province", "river"}
    | {"founding-year"}
)
"""Relations of the almanac, about persons, books and towns, as in the ids of its questions."""

KNOWN = ("cluster", "entity", "topic")
"""Groupings that `auto` tries, in this order."""

GROUPINGS = ("auto", *KNOWN, "none")
"""Ways to group questions; a group is kept in one fold."""


def entity_of(question_id: str) -> str | None:
    """Return the entity that a question of the almanac is about; None for questions of other datasets.

    Ids consist of the relation and the entity, preceded by the name of the dataset if several are mixed.

    >>> entity_of("birthplace-of-trouchiox-quamosk"), entity_of("almanac/author-of-the-tower-of-glass")
    ('trouchiox-quamosk', 'the-tower-of-glass')
    >>> entity_of("Q17")
    """
    relation, _, entity = question_id.removeprefix("almanac/").partition("-of-")
    return entity if entity and relation in RELATIONS else None


def groups_of(outcomes: pl.DataFrame, questions: Mapping[str, Question], grouping: str = "auto") -> dict[str, str]:
    """Return the group of each question that has one.

    Parameters
    ----------
    outcomes
        The run's outcome table.
    questions
        Questions by id.
    grouping
        ``"cluster"``: the column of that name. ``"entity"``: the entity that a question is about, known for the
        almanac. ``"topic"``: shows how well a method does on topics that it was not trained on; the topic baseline then
        is uninformative by construction. ``"none"``: no groups. ``"auto"``: the first of cluster, entity and topic that
        is known and has at least as many groups as there are folds.

    Raises
    ------
    SettingError
        If `grouping` is not one of these, or is unknown for all questions.

    Examples
    --------
    >>> asked = {one: Question(one, "?", "!", topic="towns") for one in ("river-of-yesesk", "province-of-yesesk")}
    >>> groups_of(pl.DataFrame({"question_id": list(asked)}), asked, "entity")
    {'river-of-yesesk': 'yesesk', 'province-of-yesesk': 'yesesk'}
    """
    if grouping not in GROUPINGS:
        raise SettingError(
            f"{{group}}: expected one of {', '.join(GROUPINGS)}, got {grouping!r}{suggestion(grouping, GROUPINGS)}"
        )
    if grouping == "none":
        return {}
    if grouping == "auto":
        candidates = (known_groups(outcomes, questions, name) for name in KNOWN)
        return next((groups for groups in candidates if len(set(groups.values())) >= N_FOLDS), {})
    groups = known_groups(outcomes, questions, grouping)
    if not groups:
        raise SettingError(
            f"{{group}}: expected questions whose {grouping} is known, but it is unknown for all of them"
        )
    return groups


def known_groups(outcomes: pl.DataFrame, questions: Mapping[str, Question], grouping: str) -> dict[str, str]:
    """Return the cluster, entity or topic of each question for which it is known."""
    if grouping == "cluster":
        filled = outcomes.drop_nulls("cluster") if "cluster" in outcomes.columns else outcomes.clear()
        return dict(filled.select("question_id", "cluster").iter_rows()) if filled.height else {}
    named = {
        question_id: entity_of(question_id) if grouping == "entity" else question.topic
        for question_id, question in questions.items()
    }
    return {question_id: group for question_id, group in named.items() if group}


def training_shortage(outcomes: pl.DataFrame, groups: Mapping[str, str]) -> str | None:
    """Return what is too scarce in a run for training, before requests are sent; None if there seems to be enough.

    A question counts as right, and also as wrong, if any of its answers is: the answer to train on may be pending.

    Parameters
    ----------
    outcomes
        The run's outcome table.
    groups
        Groups of its questions, as returned by `groups_of`.

    Examples
    --------
    >>> few = pl.DataFrame({"question_id": ["a", "b", "c"], "wrong": [True, False, None]})
    >>> training_shortage(few, {})
    'needs 5 right and 5 wrong answers to train on, one of each for each of 5 folds, but there are 1 right and 1 wrong'
    """
    right, wrong = (outcomes.filter(wrong=kind)["question_id"].n_unique() for kind in (False, True))
    return shortage(right, wrong, len(set(groups_or_own(outcomes["question_id"], groups))))


def groups_or_own(question_ids: Iterable[str], groups: Mapping[str, str]) -> list[str]:
    """Return the group of each question; one without a group is a group of its own.

    The null character distinguishes it from a group of the same name.
    """
    return [groups.get(question_id, f"\0{question_id}") for question_id in question_ids]


ROUNDING = 1e-9
"""Tolerance for predictions below 0 or above 1 by rounding; larger deviations are errors."""


def out_of_fold(evidence: Evidence, predict: Predictor, usable: BoolArray | None = None) -> pl.DataFrame:
    """Return a score for every answer, by a predictor trained on the graded answers of the other folds.

    The same evidence gives the same folds, with about equally many right answers. Ungraded answers are in a fold as
    well: they are scored, but not used for training.

    Parameters
    ----------
    evidence
        The n answers, their groups, and the seed.
    predict
        Trains a model and returns its predictions. Positions are those of the question ids in their order.
    usable
        Whether the features of each answer are known, shape (n,); other answers get no score.

    Returns
    -------
    polars.DataFrame
        `question_id`, `confidence` and `fold`, ordered by id.

    Raises
    ------
    TrainingError
        If there are too few right or wrong answers or groups, or a training set has only right or only wrong answers.

    Notes
    -----
    Folds are made by scikit-learn's ``StratifiedGroupKFold``.
    """
    from sklearn.model_selection import StratifiedGroupKFold  # noqa: PLC0415 - an optional dependency, slow to import

    ids = sorted(evidence.answers)
    wrong = np.array([evidence.answers[question_id].wrong for question_id in ids], np.float64)  # None becomes NaN
    groups = groups_or_own(ids, evidence.groups)
    usable = np.ones(len(ids), bool) if usable is None else usable
    graded = usable & ~np.isnan(wrong)
    n_wrong = int(wrong[graded].sum())
    if lacking := shortage(graded.sum() - n_wrong, n_wrong, len(set(groups))):
        raise TrainingError(lacking)
    split = StratifiedGroupKFold(N_FOLDS, shuffle=True, random_state=evidence.seed % 2**32)
    fold = np.empty(len(ids), np.int64)
    scores = np.full(len(ids), np.nan)
    for number, (_, held_out) in enumerate(split.split(ids, wrong == 0, groups)):
        fold[held_out] = number
    for number in range(N_FOLDS):
        train = graded & (fold != number)
        held_out = usable & (fold == number)
        if np.unique(wrong[train]).size < 2:
            kind = "wrong" if wrong[train].all() else "right"
            raise TrainingError(
                f"needs right and wrong answers in every training set, but with fold {number} held out all "
                f"{train.sum()} others are {kind}; group the questions by something else, or not at all"
            )
        if held_out.any():
            scores[held_out] = predict(np.flatnonzero(train), 1 - wrong[train], np.flatnonzero(held_out))
    nearest = np.clip(scores, 0, 1)
    scores = np.where(np.abs(scores - nearest) < ROUNDING, nearest, scores)
    return pl.DataFrame({"question_id": ids, "confidence": pl.Series(scores).fill_nan(None), "fold": fold})


def logistic_regression(features: Any, targets: FloatArray, held_out: Any, strength: float) -> FloatArray:
    """Fit a logistic regression to targets between 0 and 1, and return its predicted probabilities.

    A row with target t enters the likelihood as a right answer with weight t and a wrong one with weight 1 - t, so the
    fit minimises the cross-entropy of the targets.

    Parameters
    ----------
    features, targets
        Features of shape (n, p), an array or a sparse matrix, and targets of shape (n,).
    held_out
        Features to predict from, shape (m, p).
    strength
        The inverse of the ridge penalty, scikit-learn's C: the prior variance of each coefficient.

    Returns
    -------
    ndarray, shape (m,)

    Examples
    --------
    >>> import numpy as np
    >>> targets = np.array([0.25, 0.25, 0.5, 1.0])
    >>> found = logistic_regression(np.zeros((4, 1)), targets, np.zeros((1, 1)), strength=1.0)
    >>> found.round(3).tolist()  # the features are constant, so this is the mean target
    [0.5]
    """
    return np.asarray(_fitted_logistic(features, targets, strength).predict_proba(held_out)[:, 1], np.float64)


def _fitted_logistic(features: Any, targets: FloatArray, strength: float) -> Any:
    """Return scikit-learn's fitted logistic regression."""
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415 - an optional dependency, slow to import

    above = np.flatnonzero(targets > 0)
    below = np.flatnonzero(targets < 1)
    rows = np.concatenate([above, below])
    kinds = np.concatenate([np.ones(above.size, np.int64), np.zeros(below.size, np.int64)])
    weights = np.concatenate([targets[above], 1 - targets[below]])
    return LogisticRegression(C=strength, max_iter=1000).fit(features[rows], kinds, sample_weight=weights)


def cluster_targets(embeddings: Any, right: FloatArray) -> FloatArray:
    """Return for each answer the share of right answers in its question's cluster, or its own value without a cluster.

    Parameters
    ----------
    embeddings
        Embeddings of the questions, shape (n, size).
    right
        1 for a right answer, 0 for a wrong one, shape (n,).

    Returns
    -------
    ndarray, shape (n,)

    References
    ----------
    Ulmer et al. (2024). Calibrating large language models using their generations only. :arxiv:`2403.05973`. As there,
    embeddings are standardised and clustered by HDBSCAN with clusters of at least three. Unlike in its code, held-out
    questions are excluded, since their answers would enter the targets; and the first cluster is treated like the
    others, whereas that code uses each question's own value there.

    Examples
    --------
    >>> places = np.array([[0.0], [0.1], [0.2], [9.0], [9.1], [9.2]])
    >>> cluster_targets(places, np.array([1.0, 1.0, 0.0, 0.0, 0.0, 0.0])).round(2).tolist()
    [0.67, 0.67, 0.67, 0.0, 0.0, 0.0]
    """
    from sklearn.cluster import HDBSCAN  # noqa: PLC0415 - an optional dependency, slow to import

    points = np.asarray(embeddings, np.float64)
    if len(points) < SMALLEST:
        return right.copy()
    spread = points.std(axis=0)
    standardised = (points - points.mean(axis=0)) / np.where(spread > 0, spread, 1)
    labels = HDBSCAN(min_cluster_size=SMALLEST, min_samples=1, copy=True).fit(standardised).labels_
    targets = right.copy()
    for label in set(labels.tolist()) - {NOISE}:
        targets[labels == label] = right[labels == label].mean()
    return targets


SMALLEST = 3
"""Minimum number of questions in a cluster."""

NOISE = -1
"""HDBSCAN's label for questions outside all clusters."""


Fit = Callable[[FloatArray, FloatArray], Calibration]
"""Takes the scores of answers and whether each is right; returns the fitted function of a score."""

UNPENALISED = 1e6
"""Inverse penalty that is practically none but lets the fit converge for perfectly separated answers."""


def calibrated(evidence: Evidence, fit: Fit) -> pl.DataFrame:
    """Return calibrated likelihoods: the probability that an answer with such a likelihood is right.

    Parameters
    ----------
    evidence
        The answers.
    fit
        Fits a function to the likelihoods of the other folds.
    """
    raw = dict(likelihood(evidence).select("question_id", "confidence").iter_rows())
    scores = np.array(
        [raw.get(question_id) for question_id in sorted(evidence.answers)], np.float64
    )  # None becomes NaN
    return out_of_fold(
        evidence,
        lambda train, right, held_out: np.array([*map(fit(scores[train], right), scores[held_out].tolist())]),
        ~np.isnan(scores),
    )


def platt(scores: FloatArray, right: FloatArray) -> PlattScaling:
    """Fit Platt scaling: a logistic regression on the logit of the score.

    Parameters
    ----------
    scores, right
        Scores in [0, 1], and 1 for a right answer or 0 for a wrong one, shape (n,).

    Returns
    -------
    PlattScaling
        Fitted with scores clipped to 1e-6 from 0 and 1, and Platt's targets, which are smoothed by one answer of each
        kind.

    References
    ----------
    Platt (1999). Probabilistic outputs for support vector machines and comparisons to regularized likelihood methods.
    Niculescu-Mizil and Caruana (2005). Predicting good probabilities with supervised learning.
    :doi:`10.1145/1102351.1102430`

    Examples
    --------
    >>> scores = np.array([0.9] * 4 + [0.6] * 4)
    >>> right = np.array([1, 1, 1, 0, 1, 0, 0, 0.0])
    >>> fitted = platt(scores, right)
    >>> round(fitted(0.6), 2), round(fitted(0.9), 2)  # .25 and .75, smoothed
    (0.33, 0.67)
    """
    n_right = right.sum()
    targets = np.where(right > 0, (n_right + 1) / (n_right + 2), 1 / (right.size - n_right + 2))
    logits = special.logit(np.clip(scores, NEAREST, 1 - NEAREST))
    fitted = _fitted_logistic(logits[:, None], targets, UNPENALISED)
    return PlattScaling(float(fitted.coef_[0, 0]), float(fitted.intercept_[0]))


def isotonic(scores: FloatArray, right: FloatArray) -> IsotonicFunction:
    """Fit isotonic regression: the share of right answers as a non-decreasing function of the score.

    Parameters
    ----------
    scores, right
        As for `platt`.

    Returns
    -------
    IsotonicFunction
        Its values are 0 or 1 if the answers with the lowest scores are all wrong, or those with the highest all right.

    References
    ----------
    Zadrozny and Elkan (2002). Transforming classifier scores into accurate multiclass probability estimates.
    :doi:`10.1145/775047.775151`

    Examples
    --------
    >>> fitted = isotonic(np.array([0.2, 0.4, 0.6, 0.8]), np.array([0, 1, 0, 1.0]))
    >>> fitted(0.1), round(fitted(0.5), 9), fitted(0.9)
    (0.0, 0.5, 1.0)
    """
    from sklearn.isotonic import IsotonicRegression  # noqa: PLC0415 - an optional dependency, slow to import

    fitted = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(scores, right)
    return IsotonicFunction(tuple(fitted.X_thresholds_.tolist()), tuple(fitted.y_thresholds_.tolist()))


CALIBRATORS: Mapping[str, Fit] = {"likelihood-platt": platt, "likelihood-isotonic": isotonic}
"""What fits the calibration of each method that calibrates the likelihood."""


def p_ik(evidence: Evidence) -> pl.DataFrame:
    """Return P(IK): the probability of a right answer by a linear probe on the states at the end of the forced prompt.

    Parameters
    ----------
    evidence
        The `states` are read at one layer, `layer`, by default the middle one. It is fixed in advance: choosing the
        layer that does best on the scored questions would select on the test data.

    Raises
    ------
    TrainingError
        If the model has no such layer, or there is too little data for training.

    References
    ----------
    Kadavath et al. (2022). Language models (mostly) know what they know. :arxiv:`2207.05221`. There a value head is
    trained together with the whole model on the share of right answers among 30 samples of each question. Here the
    model is unchanged, and the probe predicts whether the single answer is right.
    """
    assert evidence.states is not None, "the model shows its hidden states"  # noqa: S101 - checked by who plans
    states = evidence.states(sorted(evidence.answers))
    depth = states.shape[1] - 1
    layer = (depth + 1) // 2 if evidence.layer is None else evidence.layer
    if not 0 <= layer <= depth:
        raise TrainingError(f"expected a layer from 0, before the first, to {depth}, after the last, got {layer}")
    states = states[:, layer]
    return out_of_fold(evidence, lambda train, right, held_out: probe(states[train], right, states[held_out]))


def probe(states: NDArray[np.float32], right: FloatArray, held_out: NDArray[np.float32]) -> FloatArray:
    """Fit a logistic regression to standardised states, and return the probability of a right answer.

    The penalty corresponds to a prior variance of 1 / size for each coefficient, so that the logit of a typical state
    has prior variance 1 for any size of model.

    Parameters
    ----------
    states, right
        Hidden states of shape (n, size), and whether the answers are right, shape (n,).
    held_out
        Hidden states to predict from, shape (m, size).

    Returns
    -------
    ndarray, shape (m,)

    Examples
    --------
    >>> states = np.array([[0.0, 5.0], [0.1, 5.0], [1.0, 5.0], [1.1, 5.0]], np.float32)
    >>> probe(states, np.array([0.0, 0.0, 1.0, 1.0]), states[[0, 3]]).round(1).tolist()
    [0.3, 0.7]
    """
    from sklearn.preprocessing import StandardScaler  # noqa: PLC0415 - an optional dependency, slow to import

    scale = StandardScaler().fit(states.astype(np.float64))
    return logistic_regression(scale.transform(states), right, scale.transform(held_out), 1 / states.shape[1])


MAX_PART_LENGTH = 4
"""Maximum length of character n-grams."""

DIMENSIONS = 50
"""Dimensions of a question for clustering: HDBSCAN needs dense vectors and fails in thousands of dimensions."""


def text_classifier(evidence: Evidence) -> pl.DataFrame:
    """Return the probability of a right answer by the character n-grams of question and reply.

    References
    ----------
    After Ulmer et al. (2024). Calibrating large language models using their generations only. :arxiv:`2403.05973`
    """

    def fit(texts: Texts, targets: FloatArray, held_out: Texts) -> FloatArray:
        return classify(list(map("\n".join, texts)), targets, list(map("\n".join, held_out)))

    questions = [evidence.questions[question_id].text for question_id in sorted(evidence.answers)]
    return _scores_by_text(evidence, lambda train: _places([questions[index] for index in train], evidence.seed), fit)


def _scores_by_text(
    evidence: Evidence,
    embed: Callable[[IntArray], FloatArray],
    fit: Callable[[Texts, FloatArray, Texts], FloatArray],
) -> pl.DataFrame:
    """Return the scores of a predictor of question and reply whose targets are shares of right answers in clusters.

    - `evidence`: the answers.
    - `embed`: takes the positions of the training answers, and returns embeddings of their questions for clustering.
    - `fit`: takes training texts, their targets and held-out texts, and returns the predictions for the latter.
    """
    texts = [
        (evidence.questions[question_id].text, answer.reply) for question_id, answer in sorted(evidence.answers.items())
    ]

    def predict(train: IntArray, right: FloatArray, held_out: IntArray) -> FloatArray:
        targets = cluster_targets(embed(train), right)
        return fit([texts[index] for index in train], targets, [texts[index] for index in held_out])

    return out_of_fold(evidence, predict)


def classify(texts: Sequence[str], targets: FloatArray, held_out: Sequence[str]) -> FloatArray:
    """Fit a logistic regression to the character n-grams of texts, and return its predicted probabilities.

    Parameters
    ----------
    texts, targets
        n texts, and their targets in [0, 1].
    held_out
        m texts to predict.

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
    return logistic_regression(count.fit_transform(texts), targets, count.transform(held_out), 1.0)


def _places(questions: Sequence[str], seed: int) -> FloatArray:
    """Return embeddings of questions by their character n-grams, shape (n, at most 50)."""
    from sklearn.decomposition import TruncatedSVD  # noqa: PLC0415 - an optional dependency, slow to import

    counts = _vectoriser().fit_transform(questions)
    if counts.shape[1] <= DIMENSIONS:
        return np.asarray(counts.toarray())
    reduced = TruncatedSVD(DIMENSIONS, random_state=seed % 2**32).fit_transform(counts)
    return np.asarray(reduced, np.float64)


def _vectoriser() -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer  # noqa: PLC0415 - an optional dependency

    return TfidfVectorizer(analyzer="char_wb", ngram_range=(1, MAX_PART_LENGTH), sublinear_tf=True)


def topic(evidence: Evidence) -> pl.DataFrame:
    """Return for each answer the share of right answers to questions of its topic in the other folds.

    A trained method that does not rank answers better than this has learned which topics are hard, but nothing about
    the questions. If folds are grouped by topic, no topic is in two folds, and this baseline is uninformative.
    """
    topics = [evidence.questions[question_id].topic for question_id in sorted(evidence.answers)]
    return out_of_fold(
        evidence,
        lambda train, right, held_out: topic_shares(
            [topics[index] for index in train], right, [topics[index] for index in held_out]
        ),
    )


def topic_shares(topics: Sequence[str | None], right: FloatArray, held_out: Sequence[str | None]) -> FloatArray:
    """Return the share of right answers for each held-out topic; the overall share for an unknown topic or none.

    Parameters
    ----------
    topics, right
        Topics of the training answers, and whether these are right, shape (n,).
    held_out
        Held-out topics, shape (m,).

    Examples
    --------
    >>> topic_shares(["a", "a", "b"], np.array([1.0, 0.0, 1.0]), ["a", "b", "c"]).round(3).tolist()
    [0.5, 1.0, 0.667]
    """
    named = np.array([name or "" for name in topics])
    shares = {name: float(right[named == name].mean()) for name in set(named.tolist()) - {""}}
    return np.array([shares.get(index or "", float(right.mean())) for index in held_out])


APRICOT = "apricot"

EMBEDDER = "sentence-transformers/all-mpnet-base-v2"
"""Default weights for the embeddings of questions, as in the publication."""

PREDICTOR = "microsoft/deberta-v3-base"
"""Default weights to fine-tune, as in the publication."""


@dataclass(frozen=True)
class Recipe:
    """Hyperparameters for fine-tuning the predictor; the defaults are those published for TriviaQA.

    Attributes
    ----------
    steps, batch_size
        Number of batches, and of answers in a batch.
    learning_rate, weight_decay
        Parameters of AdamW; the rate warms up over the first tenth of the steps, at most 100, and then follows a
        cosine.
    largest_norm
        Maximum norm of the gradient, which is clipped.
    longest
        Maximum number of tokens of question and reply together.
    """

    steps: int = 600
    batch_size: int = 32
    learning_rate: float = 3.369e-5
    weight_decay: float = 0.008936
    largest_norm: float = 10.0
    longest: int = 512


PUBLISHED = Recipe()


def apricot(
    evidence: Evidence, embedder: str = EMBEDDER, predictor: str = PREDICTOR, recipe: Recipe = PUBLISHED
) -> pl.DataFrame:
    """Return the confidence of a fine-tuned model in each answer, out of fold.

    Parameters
    ----------
    evidence
        The answers.
    embedder
        Weights for sentence-transformers, a name on the Hub or a local folder. Their embeddings of the questions are
        clustered; the target of an answer is the share of right answers in its cluster.
    predictor
        Weights for transformers, likewise; they are fine-tuned anew for every fold.
    recipe
        Hyperparameters.

    Raises
    ------
    TrainingError
        If there is too little data for training.
    WeightsError
        If weights cannot be loaded.

    References
    ----------
    Ulmer et al. (2024). Calibrating large language models using their generations only. :arxiv:`2403.05973`. As in its
    code, the loss is the mean squared error of the second class's softmax, and the weights of the last step are used.
    Unlike there, targets are computed from the training questions alone (see `cluster_targets`), and each question is
    held out once.
    """
    from sentence_transformers import SentenceTransformer  # noqa: PLC0415 - an optional dependency, slow to import

    @cache
    def embeddings() -> FloatArray:
        encoder = load_weights(APRICOT, embedder, partial(SentenceTransformer, embedder))
        questions = [evidence.questions[question_id].text for question_id in sorted(evidence.answers)]
        return np.asarray(encoder.encode(questions, show_progress_bar=False), np.float64)

    fit = partial(fine_tuned, predictor, recipe=recipe, seed=evidence.seed)
    return _scores_by_text(evidence, lambda train: embeddings()[train], fit)


def fine_tuned(
    predictor: str, texts: Texts, targets: FloatArray, held_out: Texts, recipe: Recipe = PUBLISHED, seed: int = 0
) -> FloatArray:
    """Fine-tune weights on questions with replies, and return the predictions for held-out ones.

    Parameters
    ----------
    predictor
        The pretrained weights.
    texts, targets
        n pairs of question and reply, and their targets in [0, 1].
    held_out
        m pairs to predict.
    recipe, seed
        Hyperparameters, and the seed of the new head's weights, of dropout and of the order of the data.

    Returns
    -------
    ndarray, shape (m,)
    """
    import torch  # noqa: PLC0415 - an optional dependency, slow to import
    from transformers import AutoModelForSequenceClassification, AutoTokenizer  # noqa: PLC0415 - an optional dependency

    def load(*, local_files_only: bool) -> tuple[Any, Any]:
        tokenizer = AutoTokenizer.from_pretrained(predictor, local_files_only=local_files_only)
        # Weights are often stored in half precision, in which AdamW's small steps would be lost.
        model = AutoModelForSequenceClassification.from_pretrained(
            predictor, num_labels=2, dtype=torch.float32, local_files_only=local_files_only
        )
        return tokenizer, model

    with torch.random.fork_rng():  # leaves torch's global generator unchanged
        torch.manual_seed(seed)
        tokenizer, model = load_weights(APRICOT, predictor, load)
        model.to("cuda" if torch.cuda.is_available() else "cpu")
        _train(model, tokenizer, texts, targets, recipe, np.random.default_rng(seed))
        model.eval()
        batches = (held_out[start : start + recipe.batch_size] for start in range(0, len(held_out), recipe.batch_size))
        with torch.no_grad():
            parts = [_probabilities(model, tokenizer, batch, recipe).cpu().numpy() for batch in batches]
    return np.concatenate(parts).astype(np.float64)


def _train(
    model: Any, tokenizer: Any, texts: Texts, targets: FloatArray, recipe: Recipe, rng: np.random.Generator
) -> None:
    import torch  # noqa: PLC0415 - an optional dependency, slow to import
    from transformers import get_cosine_schedule_with_warmup  # noqa: PLC0415 - an optional dependency

    optimiser = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay)
    # The schedule is a tenth longer than the training, so that the learning rate of the last steps is not 0.
    rate = get_cosine_schedule_with_warmup(optimiser, min(recipe.steps // 10, 100), recipe.steps * 11 // 10)
    model.train()
    epochs = -(-recipe.steps * recipe.batch_size // len(texts))
    order = np.concatenate([rng.permutation(len(texts)) for _ in range(epochs)])
    for step in range(recipe.steps):
        batch = order[step * recipe.batch_size : (step + 1) * recipe.batch_size]
        predicted = _probabilities(model, tokenizer, [texts[index] for index in batch], recipe)
        expected = torch.tensor(targets[batch], dtype=predicted.dtype, device=predicted.device)
        torch.nn.functional.mse_loss(predicted, expected).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.largest_norm)
        optimiser.step()
        rate.step()
        optimiser.zero_grad()


def _probabilities(model: Any, tokenizer: Any, texts: Texts, recipe: Recipe) -> Any:
    """Return the predicted probability of the second class for each pair, as a tensor."""
    questions, replies = ([text[part] for text in texts] for part in (0, 1))
    # If the two are too long together, the longer one is truncated, so a long reply does not displace the question.
    longest = min(recipe.longest, tokenizer.model_max_length, model.config.max_position_embeddings)
    tokens = tokenizer(questions, replies, padding=True, truncation=True, max_length=longest, return_tensors="pt")
    return model(**tokens.to(model.device)).logits.softmax(dim=-1)[:, 1]


_trained = partial(Method, packages=("scikit-learn",), extra="confidence")
_CALIBRATION = frozenset({Need.LOGPROBS, Need.TRAINING})

TOPIC = _trained(
    "topic",
    "share of right answers in the topic, in the other folds: the baseline for trained methods",
    topic,
    frozenset({Need.TOPICS, Need.TRAINING}),
    is_of_model=False,
)
METHODS = (
    _trained(
        "likelihood-platt",
        "the likelihood, scaled by a logistic regression on the other folds",
        partial(calibrated, fit=platt),
        _CALIBRATION,
    ),
    _trained(
        "likelihood-isotonic",
        "the likelihood, scaled by isotonic regression on the other folds",
        partial(calibrated, fit=isotonic),
        _CALIBRATION,
    ),
    TOPIC,
    _trained(
        "p-ik",
        "linear probe, trained on the other folds, on the model's hidden states before the answer",
        p_ik,
        frozenset({Need.STATES, Need.TRAINING}),
    ),
    _trained(
        "text-classifier",
        "TF-IDF of question and reply and logistic regression, trained on the other folds; needs no weights",
        text_classifier,
        frozenset({Need.TRAINING}),
        is_of_model=False,
    ),
    Method(
        APRICOT,
        "APRICOT: DeBERTa fine-tuned on question and reply of the other folds; hours without a GPU",
        apricot,
        frozenset({Need.TRAINING, Need.WEIGHTS}),
        is_of_model=False,
        packages=("scikit-learn", "sentence-transformers", "torch", "transformers"),
        extra="confidence,transformers",
    ),
)
