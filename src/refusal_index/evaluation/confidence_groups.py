"""Which questions of a run lie in one fold of a method that is trained, and whether there are answers enough."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from refusal_index.confidence.folds import shortage
from refusal_index.datasets.almanac import entity_of
from refusal_index.engines.setting import SettingError
from refusal_index.outcomes.errors import suggestion
from refusal_index.outcomes.question import Question

GROUPINGS = ("auto", "cluster", "entity", "topic", "none")
"""By what questions are kept in one fold."""

KNOWN = ("cluster", "entity", "topic")
"""What `auto` goes by: the first that is known."""


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
        ``"topic"``: so that it is seen what is left for topics that nobody trained on; the topic-only baseline then
        says nothing, by construction. ``"none"``: every question by itself. ``"auto"``: the first of cluster, entity
        and topic that is known and makes as many groups as there are folds.
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
    found = {name: _known(name, outcomes, questions) for name in (KNOWN if by == "auto" else (by,))}
    if by == "auto":
        return next((groups for groups in found.values() if len(set(groups.values())) >= n_folds), {})
    if not found[by]:
        raise SettingError(f"{{group}}: expected questions whose {by} is known, and it is known of none of these")
    return found[by]


def _known(by: str, outcomes: pl.DataFrame, questions: Mapping[str, Question]) -> dict[str, str]:
    if by == "cluster":
        filled = outcomes.drop_nulls("cluster") if "cluster" in outcomes.columns else outcomes.clear()
        return dict(filled.select("question_id", "cluster").iter_rows()) if filled.height else {}
    if by == "entity":
        named = {one: entity_of(one) for one in questions}
    else:
        named = {one: question.topic for one, question in questions.items()}
    return {one: group for one, group in named.items() if group}


def training_shortage(outcomes: pl.DataFrame, groups: Mapping[str, str], n_folds: int = 5) -> str | None:
    """Say, before anything is asked, what a run has too little of to train on; None where it seems to have enough.

    A question counts as right, or wrong, where any of its answers was: another that is still to be asked for may turn
    out otherwise, which is seen when it is there.

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
    units = {groups.get(one, f"\0{one}") for one in outcomes["question_id"]}
    return shortage(right, wrong, len(units), n_folds)
