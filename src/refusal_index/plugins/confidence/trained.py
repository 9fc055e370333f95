"""Scores of predictors that are trained on the run's own right and wrong answers, each scored out of fold.

- The likelihood of the answer, calibrated on the other folds: how often an answer of such a likelihood is right.
- P(IK), "I know": a linear probe on the model's hidden states before it answers. It says what can be read off these
  states, which the model need not use: an estimate of the model, by a predictor that is not.
- A classifier of question and reply: TF-IDF and logistic regression. It shares with APRICOT that it is trained on text
  alone and that clusters of questions give its targets, but not the models: similarity is that of characters.
- APRICOT: another language model is taught to tell, from question and reply, how often such a question is answered. It
  needs two sets of weights, and a GPU to be trained in minutes rather than hours.
- The topic alone: the baseline beside every trained method, known without a look at the question.

A question is scored once, by a predictor that was trained on the other folds. What lies in one group, as questions
about one person do, lies in one fold, for else a predictor could know a question's neighbours. Folds follow from the
questions, their grades and groups and the seed alone, so that all methods of a run are held against the same questions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import special

from refusal_index.data.errors import suggestion
from refusal_index.data.outcome import Question
from refusal_index.errors import RefusalIndexError
from refusal_index.models.settings import SettingError
from refusal_index.plugins.confidence.hidden_states import WeightsError, quietly
from refusal_index.plugins.confidence.method import Answer, Evidence, Method, Need, Score
from refusal_index.plugins.confidence.model_scores import likelihood

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]

Texts = Sequence[tuple[str, str]]
"""Questions with their replies."""

Predictor = Callable[[IntArray, IntArray], FloatArray]
"""From the answers to train on and those held out, both as positions, to the confidence in the latter."""


class TrainingError(RefusalIndexError, ValueError):
    """Too few right or wrong answers to train a confidence method; the message counts them."""


def shortage(right: int, wrong: int, groups: int, n_folds: int) -> str | None:
    """Say what there is too little of to train on; None where there is enough.

    It needs counts alone, so that it can be asked before any request is sent.

    Parameters
    ----------
    right, wrong
        Answers of both kinds.
    groups
        Groups of questions.
    n_folds
        Folds, each of which is to hold an answer of both kinds and a group at least.

    Examples
    --------
    >>> shortage(right=3, wrong=40, groups=43, n_folds=5)
    'needs 5 right and 5 wrong answers to train on, one of each for each of 5 folds, and there are 3 right and 40 wrong'
    """
    if min(right, wrong) < n_folds:
        return (
            f"needs {n_folds} right and {n_folds} wrong answers to train on, one of each for each of {n_folds} folds, "
            f"and there are {right} right and {wrong} wrong"
        )
    if groups < n_folds:
        return (
            f"needs {n_folds} groups of questions, one for each of {n_folds} folds, and there are {groups}; "
            "group them otherwise, or not at all"
        )
    return None


RELATIONS = frozenset(
    {"birthplace", "birth-year", "profession", "prize", "author", "publication-year", "genre", "province", "river"}
    | {"founding-year"}
)
"""What the almanac asks about a person, a book or a town, as it stands in the ids of its questions."""

KNOWN = ("cluster", "entity", "topic")
"""What `auto` takes: the first that is known."""

GROUPINGS = ("auto", *KNOWN, "none")
"""By what questions are kept in one fold."""


def entity_of(question_id: str) -> str | None:
    """Return the entity that a question of the almanac is about; None for questions of other datasets.

    Its ids consist of the relation and the entity; in a mix, the name of the dataset comes first.

    >>> entity_of("birthplace-of-trouchiox-quamosk"), entity_of("almanac/author-of-the-tower-of-glass")
    ('trouchiox-quamosk', 'the-tower-of-glass')
    >>> entity_of("Q17")
    """
    relation, _, entity = question_id.removeprefix("almanac/").partition("-of-")
    return entity if entity and relation in RELATIONS else None


def groups_of(
    outcomes: pl.DataFrame, questions: Mapping[str, Question], by: str = "auto", n_folds: int = 5
) -> dict[str, str]:
    """Return the group of each question that has one.

    Parameters
    ----------
    outcomes
        The run's outcome table.
    questions
        By id.
    by
        ``"cluster"``: the column of that name. ``"entity"``: whom a question is about, which is known of the almanac.
        ``"topic"``: shows what is left for topics that nothing was trained on; the topic-only baseline then says
        nothing, by construction. ``"none"``: every question by itself. ``"auto"``: the first of cluster, entity and
        topic that is known and makes as many groups as there are folds.
    n_folds
        How many folds there are to be.

    Raises
    ------
    SettingError
        If `by` is none of these, or is not known of these questions.

    Examples
    --------
    >>> asked = {one: Question(one, "?", "!", topic="towns") for one in ("river-of-yesesk", "province-of-yesesk")}
    >>> groups_of(pl.DataFrame({"question_id": list(asked)}), asked, "entity")
    {'river-of-yesesk': 'yesesk', 'province-of-yesesk': 'yesesk'}
    """
    if by not in GROUPINGS:
        raise SettingError(f"{{group}}: expected one of {', '.join(GROUPINGS)}, got {by!r}{suggestion(by, GROUPINGS)}")
    if by == "none":
        return {}
    if by == "auto":
        known = (known_groups(outcomes, questions, one) for one in KNOWN)
        return next((groups for groups in known if len(set(groups.values())) >= n_folds), {})
    found = known_groups(outcomes, questions, by)
    if not found:
        raise SettingError(f"{{group}}: expected questions whose {by} is known, and it is known of none of these")
    return found


def known_groups(outcomes: pl.DataFrame, questions: Mapping[str, Question], by: str) -> dict[str, str]:
    """Return the cluster, entity or topic of each question of which it is known."""
    if by == "cluster":
        filled = outcomes.drop_nulls("cluster") if "cluster" in outcomes.columns else outcomes.clear()
        return dict(filled.select("question_id", "cluster").iter_rows()) if filled.height else {}
    named = {one: entity_of(one) if by == "entity" else question.topic for one, question in questions.items()}
    return {one: group for one, group in named.items() if group}


def training_shortage(outcomes: pl.DataFrame, groups: Mapping[str, str], n_folds: int = 5) -> str | None:
    """Return what a run has too little of to train on, before anything is asked; None where it seems to have enough.

    A question counts as right, or wrong, where any of its answers was: one that is still to be asked may differ.

    Parameters
    ----------
    outcomes
        The run's outcome table.
    groups
        Of its questions, as `groups_of` gives them.
    n_folds
        How many folds there are to be.

    Examples
    --------
    >>> few = pl.DataFrame({"question_id": ["a", "b", "c"], "wrong": [True, False, None]})
    >>> training_shortage(few, {}, n_folds=2)
    'needs 2 right and 2 wrong answers to train on, one of each for each of 2 folds, and there are 1 right and 1 wrong'
    """
    right, wrong = (outcomes.filter(pl.col("wrong") == kind)["question_id"].n_unique() for kind in (False, True))
    return shortage(right, wrong, len({groups.get(one, f"\0{one}") for one in outcomes["question_id"]}), n_folds)


ROUNDING = 1e-9
"""How far beyond 0 or 1 a prediction may lie by rounding; one that is farther out is an error."""


@dataclass(frozen=True, eq=False)
class Folds:
    """The answers of a run in folds.

    Attributes
    ----------
    ids, answers
        Of the n questions that have an answer, in the order of their ids.
    groups
        What lies in one fold.
    fold
        Shape (n,), in which fold each lies, from 0.
    n_folds
        How many there are.
    """

    ids: tuple[str, ...]
    answers: tuple[Answer, ...]
    groups: tuple[str, ...]
    fold: IntArray
    n_folds: int

    @property
    def right(self) -> FloatArray:
        """Shape (n,): 1 for a right answer, 0 for a wrong one, NaN for one that nobody graded."""
        return np.array([np.nan if one.wrong is None else float(not one.wrong) for one in self.answers])

    def scores(self, method: str, predictor: Predictor, usable: BoolArray | None = None) -> Iterator[Score]:
        """Yield a score for every answer, by a predictor that was trained on the graded answers of the other folds.

        Parameters
        ----------
        method
            Whose scores they are.
        predictor
            Trains and predicts.
        usable
            Shape (n,), of which answers there is something to train on and to predict by; the others have no score.

        Raises
        ------
        TrainingError
            If there are too few right or too few wrong answers, or a training set has only one kind.
        """
        usable = np.ones(len(self.ids), bool) if usable is None else usable
        right, found = self.right, np.full(len(self.ids), np.nan)
        graded = usable & ~np.isnan(right)
        _check(right[graded], len(set(self.groups)), self.n_folds, method)
        for number in range(self.n_folds):
            train, held_out = graded & (self.fold != number), usable & (self.fold == number)
            if np.unique(right[train]).size < 2:
                kind = "right" if right[train].all() else "wrong"
                raise TrainingError(
                    f"{method}: needs right and wrong answers in every training part, and with fold {number} held out "
                    f"all {train.sum()} that are left are {kind}; group the questions otherwise, or not at all"
                )
            if held_out.any():
                found[held_out] = predictor(np.flatnonzero(train), np.flatnonzero(held_out))
        nearest = np.clip(found, 0, 1)
        found = np.where(np.abs(found - nearest) < ROUNDING, nearest, found)
        for question_id, answer, fold, score in zip(self.ids, self.answers, self.fold, found, strict=True):
            confidence = None if np.isnan(score) else float(score)
            yield Score(question_id, method, confidence, answer.wrong, fold=int(fold))


def folds_of(evidence: Evidence, method: str) -> Folds:
    """Lay the answers of a run into folds.

    Parameters
    ----------
    evidence
        Its answers, groups, number of folds and seed.
    method
        Who wants them, for messages.

    Returns
    -------
    Folds
        With about as many right answers in each; the same for the same evidence and seed.

    Raises
    ------
    TrainingError
        If there are too few answers of a kind, or too few groups.

    Notes
    -----
    By scikit-learn's ``StratifiedGroupKFold``. An answer that nobody graded lies in a fold as well, where it is scored
    and nothing is trained on it.
    """
    from sklearn.model_selection import StratifiedGroupKFold  # noqa: PLC0415 - of an extra, and slow to load

    ids = tuple(sorted(evidence.answers))
    answers = tuple(evidence.answers[one] for one in ids)
    # A question without a group is one by itself; the mark keeps it apart from a group of that name.
    groups = tuple(evidence.groups.get(one, f"\0{one}") for one in ids)
    kinds = [one.wrong is False for one in answers]
    graded = np.array([float(not one.wrong) for one in answers if one.wrong is not None])
    _check(graded, len(set(groups)), evidence.n_folds, method)
    split = StratifiedGroupKFold(evidence.n_folds, shuffle=True, random_state=evidence.seed % 2**32)
    fold = np.empty(len(ids), np.int64)
    for number, (_, held_out) in enumerate(split.split(np.zeros(len(ids)), kinds, groups)):
        fold[held_out] = number
    return Folds(ids, answers, groups, fold, evidence.n_folds)


def _check(graded: FloatArray, groups: int, n_folds: int, method: str) -> None:
    right = int(graded.sum())
    lacking = shortage(right, graded.size - right, groups, n_folds)
    if lacking is not None:
        raise TrainingError(f"{method}: {lacking}")


def logistic_regression(features: Any, targets: FloatArray, held_out: Any, strength: float) -> FloatArray:
    """Fit a logistic regression to targets between 0 and 1, and return the probability of a right answer of others.

    A row with the target t stands in the likelihood as a right answer of weight t and a wrong one of weight 1 - t: so
    the cross entropy of t is what is least.

    Parameters
    ----------
    features, targets
        Shape (n, p), an array or a sparse matrix, and (n,).
    held_out
        Shape (m, p).
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
    >>> found.round(3).tolist()  # with nothing to tell by, the mean target
    [0.5]
    """
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415 - of an extra, and slow to load

    above, below = np.flatnonzero(targets > 0), np.flatnonzero(targets < 1)
    rows = np.concatenate([above, below])
    kinds = np.concatenate([np.ones(above.size, np.int64), np.zeros(below.size, np.int64)])
    weights = np.concatenate([targets[above], 1 - targets[below]])
    fitted = LogisticRegression(C=strength, max_iter=1000).fit(features[rows], kinds, sample_weight=weights)
    return np.asarray(fitted.predict_proba(held_out)[:, 1], np.float64)


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
    return logistic_regression(_logit(scores), targets, _logit(held_out), UNPENALISED)


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
    return logistic_regression(scale.transform(states), right, scale.transform(held_out), 1 / states.shape[1])


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

    def places(questions: Sequence[str]) -> Callable[[IntArray], FloatArray]:
        return lambda train: _places([questions[one] for one in train], evidence.seed)

    def fit(texts: Texts, targets: FloatArray, held_out: Texts) -> FloatArray:
        return classify(list(map("\n".join, texts)), targets, list(map("\n".join, held_out)))

    return _scores_by_text(evidence, TEXT_CLASSIFIER, places, fit)


def _scores_by_text(
    evidence: Evidence,
    name: str,
    places: Callable[[Sequence[str]], Callable[[IntArray], FloatArray]],
    fit: Callable[[Texts, FloatArray, Texts], FloatArray],
) -> Iterable[Score]:
    """Yield the scores of a predictor by question and reply, whose targets are the shares right in clusters.

    - `evidence`, `name`: the answers, and the method.
    - `places`: from all questions to what gives the places of those to train on, which are clustered.
    - `fit`: from questions with replies, their targets, and others, to what the predictor gives to the latter.
    """
    folds = folds_of(evidence, name)
    questions = [evidence.questions[one].text for one in folds.ids]
    texts = [(question, answer.reply) for question, answer in zip(questions, folds.answers, strict=True)]
    right, places_of = folds.right, places(questions)

    def predict(train: IntArray, held_out: IntArray) -> FloatArray:
        targets = cluster_targets(places_of(train), right[train])
        return fit([texts[one] for one in train], targets, [texts[one] for one in held_out])

    return folds.scores(name, predict)


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
    return logistic_regression(count.fit_transform(texts), targets, count.transform(held_out), 1.0)


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


APRICOT = "apricot"

EMBEDDER = "sentence-transformers/all-mpnet-base-v2"
"""The published weights that place questions."""

PREDICTOR = "microsoft/deberta-v3-base"
"""The published weights that are fine-tuned."""

HUB_SECONDS = 10
"""How long the hub may take to answer at all."""

Loaded = TypeVar("Loaded")


@dataclass(frozen=True)
class Recipe:
    """How the predictor is fine-tuned; as published for TriviaQA where nothing else is said.

    Attributes
    ----------
    steps, batch_size
        How many batches, of how many answers.
    learning_rate, weight_decay
        Of AdamW; the rate rises in the first tenth of the steps, and falls along a cosine.
    largest_norm
        What the gradient is cut to.
    longest
        Tokens of question and reply at most.
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
) -> Iterable[Score]:
    """Yield the confidence that a fine-tuned model has in each answer, out of fold.

    Parameters
    ----------
    evidence
        The answers.
    embedder
        Weights for sentence-transformers: a name of the hub, or a local folder. They place the questions, which are
        clustered; the share of right answers in a cluster is what its answers are to be given.
    predictor
        Weights for transformers, likewise; they are fine-tuned again for every fold.
    recipe
        How.

    Raises
    ------
    TrainingError
        If there is too little to train on.
    WeightsError
        If weights cannot be loaded.

    References
    ----------
    Ulmer et al. (2024). Calibrating large language models using their generations only. :arxiv:`2403.05973`. As in its
    code, the loss is the mean squared error of the second class's softmax, and the last step counts. Otherwise than
    there, targets are made of the training questions alone (see `cluster_targets`), and each question is held out once.
    """
    from sentence_transformers import SentenceTransformer  # noqa: PLC0415 - of an extra, and slow to load

    def places(questions: Sequence[str]) -> Callable[[IntArray], FloatArray]:
        encoder = _loaded(embedder, partial(SentenceTransformer, embedder))
        return np.asarray(encoder.encode(questions, show_progress_bar=False), np.float64).__getitem__

    return _scores_by_text(evidence, APRICOT, places, partial(fine_tuned, predictor, recipe=recipe, seed=evidence.seed))


def fine_tuned(
    predictor: str, texts: Texts, targets: FloatArray, held_out: Texts, recipe: Recipe = PUBLISHED, seed: int = 0
) -> FloatArray:
    """Fine-tune weights to targets of questions with replies, and return what they give to others.

    Parameters
    ----------
    predictor
        The weights to begin from.
    texts, targets
        n questions with replies, and for each what it is to be given, in [0, 1].
    held_out
        m others.
    recipe, seed
        How, and the seed of the new head's weights, of dropout and of the order.

    Returns
    -------
    ndarray, shape (m,)
    """
    import torch  # noqa: PLC0415 - of an extra, and slow to load
    from transformers import AutoModelForSequenceClassification, AutoTokenizer  # noqa: PLC0415 - of an extra

    def load(*, local_files_only: bool) -> tuple[Any, Any]:
        tokenizer = AutoTokenizer.from_pretrained(predictor, local_files_only=local_files_only)
        # Weights are often kept in half precision, in which AdamW's small steps are lost.
        model = AutoModelForSequenceClassification.from_pretrained(
            predictor, num_labels=2, dtype=torch.float32, local_files_only=local_files_only
        )
        return tokenizer, model

    with torch.random.fork_rng():  # whoever else draws from torch's generator finds it as it was
        torch.manual_seed(seed)
        tokenizer, model = _loaded(predictor, load)
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
    import torch  # noqa: PLC0415 - of an extra, and slow to load
    from transformers import get_cosine_schedule_with_warmup  # noqa: PLC0415 - of an extra

    optimiser = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay)
    # The schedule is a tenth longer than the training, so that the last steps still learn.
    rate = get_cosine_schedule_with_warmup(optimiser, min(recipe.steps // 10, 100), recipe.steps * 11 // 10)
    model.train()
    epochs = -(-recipe.steps * recipe.batch_size // len(texts))
    order = np.concatenate([rng.permutation(len(texts)) for _ in range(epochs)])
    for step in range(recipe.steps):
        batch = order[step * recipe.batch_size : (step + 1) * recipe.batch_size]
        given = _probabilities(model, tokenizer, [texts[one] for one in batch], recipe)
        wanted = torch.tensor(targets[batch], dtype=given.dtype, device=given.device)
        torch.nn.functional.mse_loss(given, wanted).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.largest_norm)
        optimiser.step()
        rate.step()
        optimiser.zero_grad()


def _probabilities(model: Any, tokenizer: Any, texts: Texts, recipe: Recipe) -> Any:
    """Return the second class's probability of each question with its reply, as a tensor."""
    questions, replies = ([one[part] for one in texts] for part in (0, 1))
    # Where the two are too long together, the longer one is cut: the question stays where the reply is long.
    longest = min(recipe.longest, tokenizer.model_max_length, model.config.max_position_embeddings)
    tokens = tokenizer(questions, replies, padding=True, truncation=True, max_length=longest, return_tensors="pt")
    return model(**tokens.to(model.device)).logits.softmax(dim=-1)[:, 1]


def _loaded(name: str, load: Callable[..., Loaded]) -> Loaded:
    """Load what is on this machine; else, after a look whether the hub is there and has it, what the hub has."""
    from huggingface_hub import model_info  # noqa: PLC0415 - of an extra

    try:
        with quietly():
            try:
                return load(local_files_only=True)
            except OSError:
                if Path(name).exists():
                    raise
                model_info(name, timeout=HUB_SECONDS)  # the libraries themselves try for more than a minute
                return load(local_files_only=False)
    except Exception as error:  # whatever else a library has to say of files that it cannot read
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise WeightsError(
            f"{APRICOT}: the weights {name!r} cannot be loaded ({said}); have a local folder that holds them, or a "
            "network"
        ) from error


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
    Method(
        APRICOT,
        "APRICOT: DeBERTa fine-tuned on question and reply of the other folds; hours without a GPU",
        apricot,
        frozenset({Need.TRAINING, Need.WEIGHTS}),
        is_of_model=False,
        packages=("sklearn", "sentence_transformers", "torch", "transformers"),
        extra="confidence,transformers",
    ),
)
