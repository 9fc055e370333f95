"""Folds: nothing is scored by what saw it, or its group; the same seed gives the same ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusal_index.data.outcome_table import ConfidenceError
from refusal_index.plugins.confidence.method import Method, TrainingError
from refusal_index.plugins.confidence.trained import N_FOLDS, groups_or_own, out_of_fold, shortage
from tests.confidence.made_up import evidence_of


def half_right(size: int) -> list[bool | None]:
    return [number % 2 == 0 for number in range(size)]


def constant(value: float):
    return lambda _train, _right, held_out: np.full(len(held_out), value)


def folds_of(evidence):
    return out_of_fold(evidence, constant(0.5))


@given(
    grades=st.lists(st.sampled_from([True, False, None]), min_size=30, max_size=80),
    n_groups=st.integers(8, 40),
    seed=st.integers(0, 2**40),
)
def test_no_question_is_scored_by_what_saw_it_or_its_group(grades, n_groups, seed):
    grades = [True, False] * 10 + grades
    evidence = evidence_of(grades, seed=seed)
    groups = {one: f"g{place % n_groups}" for place, one in enumerate(evidence.answers) if place % 7}
    evidence = replace(evidence, groups=groups)
    group, fold = groups_or_own(evidence.answers, groups), folds_of(evidence)["fold"].to_numpy()
    seen = []

    def spy(train, right, held_out):
        assert [grades[one] for one in train] == right.tolist(), "an answer that nobody graded teaches nothing"
        assert not {group[one] for one in train} & {group[one] for one in held_out}
        assert set(fold[held_out]) == {fold[held_out[0]]}
        assert not set(train) & set(held_out)
        seen.extend(held_out)
        return np.full(len(held_out), 0.5)

    scores = out_of_fold(evidence, spy)
    assert sorted(seen) == list(range(len(grades))), "each is held out once"
    assert scores["question_id"].to_list() == sorted(evidence.answers)
    assert scores["fold"].to_list() == fold.tolist()
    assert set(scores["confidence"]) == {0.5}


def test_folds_follow_from_the_seed_and_not_from_the_order_of_the_questions():
    evidence = evidence_of(half_right(60))
    turned = replace(evidence, answers=dict(reversed(evidence.answers.items())))
    first, again, other = (folds_of(one) for one in (evidence, turned, replace(evidence, seed=1)))
    assert first.equals(again)
    assert first["fold"].to_list() != other["fold"].to_list()
    assert set(first["fold"]) == set(range(N_FOLDS))


def test_each_fold_has_about_as_many_right_answers():
    fold = folds_of(evidence_of([number < 20 for number in range(200)]))["fold"]
    assert fold[:20].value_counts()["count"].to_list() == [4] * 5


def test_a_question_without_a_group_is_not_in_the_group_that_is_called_as_it_is():
    first, second, third, _ = groups_or_own(["q0", "q1", "q2", "q3"], {"q1": "q0", "q2": "q0"})
    assert second == third != first


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
    found = shortage(*counts)
    assert (found is None) == (said is None)
    if found is not None:
        with pytest.raises(AssertionError, match=said):
            raise AssertionError(found)


def test_too_few_answers_end_before_anything_is_trained():
    method = Method("p-ik", "", folds_of)
    with pytest.raises(TrainingError, match=r"p-ik: needs 5 right and 5 wrong .* there are 2 right and 38 wrong"):
        method.scores(evidence_of([True, True, None] + [False] * 38))


def test_a_training_part_of_one_kind_is_named():
    # All right answers are about one thing, so with its fold held out only wrong ones are left.
    evidence = evidence_of([True] * 10 + [False] * 30)
    groups = dict.fromkeys(list(evidence.answers)[:10], "known")
    with pytest.raises(TrainingError, match=r"with fold \d held out all \d+ others are wrong"):
        folds_of(replace(evidence, groups=groups))


def test_what_cannot_be_used_has_no_score_and_teaches_nothing():
    taught = []

    def spy(train, _right, held_out):
        taught.extend(train)
        return np.ones(len(held_out))

    found = out_of_fold(evidence_of(half_right(40)), spy, np.arange(40) >= 4)
    assert found["confidence"].to_list() == [None] * 4 + [1.0] * 36
    assert min(taught) == 4


def test_a_prediction_that_is_no_probability_is_not_made_one():
    method = Method("any", "", lambda evidence: out_of_fold(evidence, constant(1.01)))
    with pytest.raises(ConfidenceError, match=r"any, row 1, .* expected a number in \[0, 1\], got 1.01"):
        method.scores(evidence_of(half_right(20)))


def test_a_prediction_just_outside_is_brought_into_the_unit_interval():
    assert set(out_of_fold(evidence_of(half_right(20)), constant(1 + 1e-12))["confidence"]) == {1.0}
