"""Cross-validation folds for trained methods, and the models that they fit: logistic regression, clusters.

A question is scored once, by a predictor that was trained on the other folds. What lies in one group, as questions
about one person do, lies in one fold, for else a predictor could know a question's neighbours. Folds follow from the
questions, their grades and groups and the seed alone, so that all methods of a run are held against the same questions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from refusal_index.data.errors import suggestion
from refusal_index.data.outcome import Question
from refusal_index.errors import RefusalIndexError
from refusal_index.models.settings import SettingError
from refusal_index.plugins.confidence.method import Answer, Evidence
from refusal_index.plugins.confidence.score_table import Score

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]

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

GROUPINGS = ("auto", "cluster", "entity", "topic", "none")
"""By what questions are kept in one fold."""

KNOWN = ("cluster", "entity", "topic")
"""What `auto` takes: the first that is known."""


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
            If there are too few answers of a kind, or all that is left to train on is of one kind.
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
