"""Trained methods, and the folds that they are trained in."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import scipy.optimize
import statsmodels.api as sm
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from refusal_index.data.outcome_table import ConfidenceError
from refusal_index.plugins.confidence.method import Evidence, Method, Need, TrainingError
from refusal_index.plugins.confidence.plan import METHODS
from refusal_index.plugins.confidence.trained import (
    N_FOLDS,
    classify,
    cluster_targets,
    groups_or_own,
    isotonic,
    logistic_regression,
    out_of_fold,
    platt,
    probe,
    shortage,
    topic_shares,
)
from refusal_index.stats import AurocResult, auroc
from tests.confidence.made_up import by_topic, evidence_of

# --- Trained methods

TRAINED = [
    method.name for method in METHODS.values() if Need.TRAINING in method.needs and Need.WEIGHTS not in method.needs
]
SEEING_TOPICS = ["topic", "p-ik", "text-classifier"]


def area(method: str, evidence: Evidence) -> AurocResult:
    table = METHODS[method].scores(evidence)
    assert table["fold"].n_unique() == N_FOLDS
    assert set(table["method"]) == {method}
    return auroc(table["confidence"].to_numpy(), ~table["wrong"].to_numpy())


@pytest.fixture(scope="module")
def noise() -> Evidence:
    right = np.random.default_rng(3).uniform(size=500) < 0.5
    return evidence_of(right.tolist(), seed=3)


@pytest.fixture(scope="module")
def leaking() -> Evidence:
    return by_topic(lambda number: 0.9 if number % 2 else 0.1, n_topics=40, each=12, seed=5)


@pytest.mark.parametrize("method", TRAINED)
def test_random_labels_are_not_learned(method, noise):
    low, high = area(method, noise).confidence_interval(0.95)
    assert low < 0.5 < high


def test_random_labels_look_learned_on_the_training_data(noise):
    # What the test above would see if a probe scored the questions it was trained on.
    rng = np.random.default_rng(0)
    states, right = rng.normal(size=(500, 100)).astype(np.float32), rng.integers(0, 2, 500)
    assert auroc(probe(states, right.astype(float), states), right.astype(bool)).estimate > 0.7


@pytest.mark.parametrize("method", TRAINED)
def test_property_scores_trained_on_one_half_do_not_depend_on_grades_of_the_other(method, noise):
    half = {one for number, one in enumerate(sorted(noise.answers)) if number % 2}
    turned = {
        one: answer if one in half else replace(answer, wrong=not answer.wrong) for one, answer in noise.answers.items()
    }
    found = METHODS[method].scores(noise.with_grades_of(half))
    assert found["confidence"].null_count() == 0
    assert found.filter(found["question_id"].is_in(half))["wrong"].null_count() == 0
    assert found.equals(METHODS[method].scores(replace(noise, answers=turned).with_grades_of(half)))
    assert not found["confidence"].equals(METHODS[method].scores(noise)["confidence"])


@pytest.mark.parametrize("method", SEEING_TOPICS)
def test_leaking_topic_is_found_and_removed_by_grouped_folds(method, leaking):
    assert area(method, leaking).estimate > 0.8
    topics = {one: question.topic for one, question in leaking.questions.items()}
    # Which unseen topics look hard is a matter of chance: with 40 topics, the standard deviation is about .09.
    assert abs(area(method, replace(leaking, groups=topics)).estimate - 0.5) < 0.2


@pytest.mark.parametrize("method", TRAINED)
def test_scores_are_reproducible(method):
    score, noise = METHODS[method].score, evidence_of([number % 3 > 0 for number in range(100)], seed=3)
    assert score(noise).equals(score(noise))


@pytest.mark.parametrize("method", ["likelihood-platt", "likelihood-isotonic"])
def test_calibrated_likelihood_matches_the_true_accuracy(method):
    rng = np.random.default_rng(8)
    raw = rng.beta(8, 1, size=2500)  # most scores lie near 1, as those of short answers do
    evidence = evidence_of((rng.uniform(size=raw.size) < raw**3).tolist(), likelihood=raw.tolist())
    found = METHODS[method].score(evidence)["confidence"].to_numpy()
    assert np.mean((found - raw**3) ** 2) < 0.03 * np.mean((raw - raw**3) ** 2)


def test_an_answer_without_a_likelihood_has_no_calibrated_score():
    scores = [None, None, *np.linspace(0.05, 0.95, 60)]
    evidence = evidence_of([number % 3 > 0 for number in range(62)], likelihood=scores)
    found = METHODS["likelihood-platt"].score(evidence)["confidence"].to_list()
    assert found[:2] == [None, None]
    assert None not in found[2:]


def test_ungraded_answer_is_scored_but_not_trained_on():
    grades = [number % 3 > 0 for number in range(60)]
    known = evidence_of([*grades, None, None])
    found = METHODS["text-classifier"].scores(known)
    assert found["wrong"].to_list()[-2:] == [None, None]
    assert found["confidence"].null_count() == 0


def test_platt_against_statsmodels_on_the_targets_of_the_paper():
    rng = np.random.default_rng(1)
    scores = rng.uniform(0.02, 0.999, 300)
    right = (rng.uniform(size=300) < scores**2).astype(float)
    n_right = right.sum()
    targets = np.where(right > 0, (n_right + 1) / (n_right + 2), 1 / (300 - n_right + 2))
    exact = sm.GLM(targets, sm.add_constant(special.logit(scores)), family=sm.families.Binomial()).fit()
    wanted = exact.predict(sm.add_constant(special.logit(scores[:20])))
    np.testing.assert_allclose(list(map(platt(scores, right), scores[:20])), wanted, atol=2e-4)


def test_platt_handles_scores_of_exactly_0_and_1():
    found = platt(np.array([0.0, 0.0, 1.0, 1.0]), np.array([0.0, 0.0, 1.0, 1.0]))
    np.testing.assert_allclose([found(0.0), found(0.5), found(1.0)], [0.25, 0.5, 0.75], atol=1e-3)


def test_isotonic_against_scipy():
    rng = np.random.default_rng(2)
    scores = np.sort(rng.uniform(size=200))
    right = (rng.uniform(size=200) < scores).astype(float)
    fitted = isotonic(scores, right)
    np.testing.assert_allclose(list(map(fitted, scores)), scipy.optimize.isotonic_regression(right).x, atol=1e-12)


def test_soft_targets_against_statsmodels():
    rng = np.random.default_rng(4)
    features, targets = rng.normal(size=(200, 3)), rng.uniform(size=200)
    targets[:20] = 1.0
    exact = sm.GLM(targets, sm.add_constant(features), family=sm.families.Binomial()).fit()
    found = logistic_regression(features, targets, features, 1e6)
    np.testing.assert_allclose(found, exact.predict(sm.add_constant(features)), atol=2e-3)


def test_probe_regularisation_does_not_depend_on_model_width():
    rng = np.random.default_rng(6)
    right = rng.integers(0, 2, 60).astype(float)
    small = (right[:, None] + rng.normal(size=(60, 8))).astype(np.float32)
    wide = np.tile(small, (1, 50))
    np.testing.assert_allclose(probe(small, right, small), probe(wide, right, wide), atol=2e-3)


def test_probe_reads_the_middle_layer_or_the_requested_one():
    rng = np.random.default_rng(7)
    right = rng.integers(0, 2, 200)
    states = rng.normal(size=(200, 5, 6)).astype(np.float32)
    states[:, 2] += 2 * right[:, None]
    evidence = evidence_of((right > 0).tolist(), states=states)
    areas = {layer: area("p-ik", replace(evidence, layer=layer)).estimate for layer in (None, 0, 2, 4)}
    assert areas[None] == areas[2] > 0.95
    assert max(areas[0], areas[4]) < 0.65
    with pytest.raises(TrainingError, match=r"p-ik: expected a layer from 0, .* to 4, after the last, got 5"):
        METHODS["p-ik"].scores(replace(evidence, layer=5))


def test_topic_share_comes_from_the_training_folds():
    found = topic_shares(["a", None, "a", "b"], np.array([1.0, 0.0, 0.0, 1.0]), ["a", None, "new"])
    assert found.tolist() == [0.5, 0.5, 0.5]


def test_clustered_questions_share_their_accuracy():
    rng = np.random.default_rng(0)
    places = np.concatenate([rng.normal(0, 0.01, (10, 2)), rng.normal(5, 0.01, (10, 2)), [[80.0, -60.0]]])
    right = np.array([1.0] * 8 + [0.0] * 2 + [1.0] * 3 + [0.0] * 7 + [1.0])
    np.testing.assert_allclose(cluster_targets(places, right), [0.8] * 10 + [0.3] * 10 + [1.0])


def test_too_few_questions_for_a_cluster_keep_their_own_grades():
    assert cluster_targets(np.eye(2), np.array([1.0, 0.0])).tolist() == [1.0, 0.0]


def test_identical_texts_give_the_base_rate():
    found = classify(["same"] * 4, np.array([1.0, 0.0, 1.0, 1.0]), ["same", "other"])
    np.testing.assert_allclose(found, 0.75, atol=0.05)


def test_methods_with_external_predictors_are_marked():
    foreign = {name for name in METHODS if not METHODS[name].is_of_model}
    assert foreign == {"topic", "text-classifier", "apricot"}


@pytest.mark.slow
def test_scikit_learn_is_not_imported_before_a_method_is_used():
    code = (
        "import sys, refusal_index, refusal_index.plugins.confidence.plan, refusal_index.plugins.confidence.scores;"
        "print(sorted({'sklearn', 'torch', 'transformers', 'sentence_transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# --- Folds


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
def test_questions_are_scored_by_models_not_trained_on_their_group_property(grades, n_groups, seed):
    grades = [True, False] * 10 + grades
    evidence = evidence_of(grades, seed=seed)
    groups = {one: f"g{place % n_groups}" for place, one in enumerate(evidence.answers) if place % 7}
    evidence = replace(evidence, groups=groups)
    group, fold = groups_or_own(evidence.answers, groups), folds_of(evidence)["fold"].to_numpy()
    seen = []

    def spy(train, right, held_out):
        assert [grades[one] for one in train] == right.tolist(), "ungraded answers are not trained on"
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


def test_folds_depend_on_the_seed_not_on_question_order():
    evidence = evidence_of(half_right(60))
    turned = replace(evidence, answers=dict(reversed(evidence.answers.items())))
    first, again, other = (folds_of(one) for one in (evidence, turned, replace(evidence, seed=1)))
    assert first.equals(again)
    assert first["fold"].to_list() != other["fold"].to_list()
    assert set(first["fold"]) == set(range(N_FOLDS))


def test_folds_are_balanced_in_right_answers():
    fold = folds_of(evidence_of([number < 20 for number in range(200)]))["fold"]
    assert fold[:20].value_counts()["count"].to_list() == [4] * 5


def test_ungrouped_question_does_not_join_a_group_named_like_its_id():
    first, second, third, _ = groups_or_own(["q0", "q1", "q2", "q3"], {"q1": "q0", "q2": "q0"})
    assert second == third != first


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ((5, 5, 5), None),
        ((4, 90, 94), "needs 5 right and 5 wrong answers to train on, .* there are 4 right and 90 wrong"),
        ((90, 0, 90), "there are 90 right and 0 wrong"),
        ((9, 9, 4), "needs 5 groups of questions, .* there are 4; group them by something else"),
    ],
)
def test_shortage_message_counts_what_is_missing(counts, message):
    found = shortage(*counts)
    assert (found is None) == (message is None)
    if found is not None:
        with pytest.raises(AssertionError, match=message):
            raise AssertionError(found)


def test_too_few_answers_raise_before_training():
    method = Method("p-ik", "", folds_of)
    with pytest.raises(TrainingError, match=r"p-ik: needs 5 right and 5 wrong .* there are 2 right and 38 wrong"):
        method.scores(evidence_of([True, True, None] + [False] * 38))


def test_single_class_training_fold_raises():
    # All right answers are in one group, so holding out its fold leaves only wrong ones.
    evidence = evidence_of([True] * 10 + [False] * 30)
    groups = dict.fromkeys(list(evidence.answers)[:10], "known")
    with pytest.raises(TrainingError, match=r"with fold \d held out all \d+ others are wrong"):
        folds_of(replace(evidence, groups=groups))


def test_unusable_questions_are_neither_scored_nor_trained_on():
    taught = []

    def spy(train, _right, held_out):
        taught.extend(train)
        return np.ones(len(held_out))

    found = out_of_fold(evidence_of(half_right(40)), spy, np.arange(40) >= 4)
    assert found["confidence"].to_list() == [None] * 4 + [1.0] * 36
    assert min(taught) == 4


def test_prediction_outside_the_unit_interval_raises():
    method = Method("any", "", lambda evidence: out_of_fold(evidence, constant(1.01)))
    with pytest.raises(ConfidenceError, match=r"any, row 1, .* expected a number in \[0, 1\], got 1.01"):
        method.scores(evidence_of(half_right(20)))


def test_prediction_just_outside_the_unit_interval_is_clipped():
    assert set(out_of_fold(evidence_of(half_right(20)), constant(1 + 1e-12))["confidence"]) == {1.0}
