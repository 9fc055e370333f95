"""Folds: nothing is scored by what saw it, or its group; the same seed gives the same ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusal_index.data.outcome_table import ConfidenceError
from refusal_index.plugins.confidence.score_tables import confidence_table
from refusal_index.plugins.confidence.trained import TrainingError, folds_of, shortage
from tests.confidence.made_up import evidence_of


def half_right(size: int) -> list[bool | None]:
    return [number % 2 == 0 for number in range(size)]


@given(
    grades=st.lists(st.sampled_from([True, False, None]), min_size=30, max_size=80),
    n_groups=st.integers(8, 40),
    n_folds=st.integers(2, 5),
    seed=st.integers(0, 2**40),
)
def test_no_question_is_scored_by_what_saw_it_or_its_group(grades, n_groups, n_folds, seed):
    grades = [True, False] * 10 + grades
    evidence = evidence_of(grades, n_folds=n_folds, seed=seed)
    groups = {one: f"g{place % n_groups}" for place, one in enumerate(evidence.answers) if place % 7}
    folds = folds_of(replace(evidence, groups=groups), "spy")
    seen = []

    def spy(train, held_out):
        assert not np.isnan(folds.right[train]).any(), "an answer that nobody graded teaches nothing"
        assert not {folds.groups[one] for one in train} & {folds.groups[one] for one in held_out}
        assert set(folds.fold[held_out]) == {folds.fold[held_out[0]]}
        assert not set(train) & set(held_out)
        seen.extend(held_out)
        return np.full(len(held_out), 0.5)

    scores = list(folds.scores("spy", spy))
    assert sorted(seen) == list(range(len(grades))), "each is held out once"
    assert [one.question_id for one in scores] == sorted(evidence.answers)
    assert [one.fold for one in scores] == folds.fold.tolist()
    assert {one.confidence for one in scores} == {0.5}


def test_folds_follow_from_the_seed_and_not_from_the_order_of_the_questions():
    evidence = evidence_of(half_right(60))
    turned = replace(evidence, answers=dict(reversed(evidence.answers.items())))
    first, again, other = (folds_of(one, "any") for one in (evidence, turned, replace(evidence, seed=1)))
    assert first.ids == again.ids
    assert first.fold.tolist() == again.fold.tolist()
    assert first.fold.tolist() != other.fold.tolist()
    assert set(first.fold) == set(range(5))


def test_each_fold_has_about_as_many_right_answers():
    folds = folds_of(evidence_of([number < 20 for number in range(200)]), "any")
    counts = [int(folds.right[folds.fold == number].sum()) for number in range(5)]
    assert counts == [4] * 5


def test_a_question_without_a_group_is_not_in_the_group_that_is_called_as_it_is():
    evidence = evidence_of(half_right(40))
    folds = folds_of(replace(evidence, groups={"q0001": "q0000", "q0002": "q0000"}), "any")
    assert folds.groups[1] == folds.groups[2] != folds.groups[0]


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ((5, 5, 5), None),
        ((4, 90, 94), "needs 5 right and 5 wrong answers to train on, .* there are 4 right and 90 wrong"),
        ((90, 0, 90), "there are 90 right and 0 wrong"),
        ((9, 9, 4), "needs 5 groups of questions, .* there are 4; group them by something else"),
    ],
)
def test_what_there_is_too_little_of_is_counted(counts, said):
    found = shortage(*counts, n_folds=5)
    assert (found is None) == (said is None)
    if found is not None:
        with pytest.raises(AssertionError, match=said):
            raise AssertionError(found)


def test_too_few_answers_end_before_anything_is_trained():
    with pytest.raises(TrainingError, match=r"p-ik: needs 5 right and 5 wrong .* there are 2 right and 38 wrong"):
        folds_of(evidence_of([True, True, None] + [False] * 38), "p-ik")


def test_a_training_part_of_one_kind_is_named():
    # All right answers are about one thing, so with its fold held out only wrong ones are left.
    evidence = evidence_of([True] * 10 + [False] * 30)
    groups = dict.fromkeys(list(evidence.answers)[:10], "known")
    folds = folds_of(replace(evidence, groups=groups), "p-ik")
    with pytest.raises(TrainingError, match=r"p-ik: .* with fold \d held out all \d+ others are wrong"):
        list(folds.scores("p-ik", lambda _, held_out: np.zeros(len(held_out))))


def test_what_cannot_be_used_has_no_score_and_teaches_nothing():
    folds = folds_of(evidence_of(half_right(40)), "any")
    usable = np.arange(40) >= 4
    taught = []

    def spy(train, held_out):
        taught.extend(train)
        return np.ones(len(held_out))

    found = [one.confidence for one in folds.scores("any", spy, usable)]
    assert found == [None] * 4 + [1.0] * 36
    assert min(taught) == 4


def test_a_prediction_that_is_no_probability_is_not_made_one():
    folds = folds_of(evidence_of(half_right(20)), "any")
    found = list(folds.scores("any", lambda _, held_out: np.full(len(held_out), 1.01)))
    assert {one.confidence for one in found} == {1.01}
    with pytest.raises(ConfidenceError, match=r"expected a number in \[0, 1\], got 1.01"):
        confidence_table(found)


def test_a_prediction_just_outside_is_brought_into_the_unit_interval():
    folds = folds_of(evidence_of(half_right(20)), "any")
    found = {one.confidence for one in folds.scores("any", lambda _, held_out: np.full(len(held_out), 1 + 1e-12))}
    assert found == {1.0}
