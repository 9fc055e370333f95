"""The ranking is that of the joint index over matched questions, and says what it leaves out."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from tests.studies.outcomes_made import HOSTILE, OPTIONS, THRESHOLDS, check_files, make_run, run_of, table_rows

from refusal_index.data.folder import ComparedRun
from refusal_index.findings.comparison import CompareOptions
from refusal_index.findings.ranking import rank
from refusal_index.plugins.studies.inputs import chosen_runs, display_names, reference_variant
from refusal_index.plugins.studies.rankings import MAX_PAIRS, ranking_with_ties
from refusal_index.plugins.studies.study import NotPossibleError
from refusal_index.stats import joint_refusal_index


@pytest.fixture(scope="module")
def models() -> list[ComparedRun]:
    return [
        make_run(name, rho=rho, seed=i + 3) for i, (name, rho) in enumerate({"a": 0.7, "b": 0.65, "c": -0.2}.items())
    ]


def test_estimates_are_the_joint_index_of_each_model_over_its_variants(models):
    frame = ranking_with_ties.make(models, OPTIONS).frame.filter(part="model")
    for run in models:
        refused, wrong = (np.array([rows[name] for rows in run.variants.values()]) for name in ("refused", "wrong"))
        expected = joint_refusal_index(refused, wrong)
        row = frame.filter(model=run.model).row(0, named=True)
        assert row["estimate"] == pytest.approx(expected.estimate, abs=1e-12)
        assert (row["low"], row["high"]) == pytest.approx(expected.confidence_interval(), abs=1e-12)
    assert all(one >= other for one, other in pairwise(frame["estimate"]))


def test_letters_are_shared_by_what_cannot_be_told_apart(models):
    letters = dict(
        ranking_with_ties.make(models, OPTIONS).frame.filter(part="model").select("model", "letters").iter_rows()
    )
    assert set(letters["a"]) & set(letters["b"])
    assert not set(letters["a"]) & set(letters["c"])


def test_differences_are_those_of_the_ranking_and_have_simultaneous_intervals(models):
    pairs = ranking_with_ties.make(models, OPTIONS).frame.filter(part="difference")
    expected = rank(models, CompareOptions(seed=OPTIONS.seed)).ranking.pairs
    assert [tuple(row) for row in pairs.select("estimate", "low", "high", "pvalue_max_t").iter_rows()] == [
        (pair.estimate, *pair.simultaneous_interval, pair.pvalue_max_t) for pair in expected
    ]


def test_many_pairs_are_all_in_the_frame_and_those_with_the_first_are_drawn():
    frame = ranking_with_ties.make([make_run(f"m{i}", rho=0.1 * i, n=120, seed=i) for i in range(7)], OPTIONS).frame
    pairs = frame.filter(part="difference")
    assert pairs.height == 21 > MAX_PAIRS
    first = frame.filter(place=1)["model"][0]
    assert pairs.filter("drawn").height == 6
    assert set(pairs.filter("drawn")["model"]) == {first}


def test_datasets_are_ranked_each_by_itself_and_a_lone_model_is_said(models):
    study = ranking_with_ties.make([*models, make_run("a", dataset="other", rho=0.3)], OPTIONS)
    assert set(study.frame["dataset"]) == {"d"}
    assert any("other is left out" in note for note in study.notes)
    with pytest.raises(NotPossibleError, match="two models or more"):
        ranking_with_ties.make(models[:1], OPTIONS)


def test_models_without_a_variant_in_common_are_said():
    runs = [make_run("a", variants=("low", "normal")), make_run("b", variants=("high",), seed=1)]
    with pytest.raises(NotPossibleError, match="share a prompt"):
        ranking_with_ties.make(runs, OPTIONS)


def test_a_model_that_never_refuses_is_shown_unranked_with_its_reason(models):
    n = 400
    silent = run_of({v: table_rows(np.zeros(n), np.arange(n) % 2, model="z", variant=v) for v in THRESHOLDS}, model="z")
    study = ranking_with_ties.make([*models, silent], OPTIONS)
    row = study.frame.filter(model="z", part="model").row(0, named=True)
    assert (row["place"], row["estimate"], row["status"]) == (None, None, "undefined")
    assert any(note.startswith("z is not ranked") for note in study.notes)
    check_files(study)


def test_of_two_runs_of_a_model_the_one_with_more_graded_questions_stands_for_it():
    few, many = make_run("a", n=50, label="a (few)"), make_run("a", n=80, label="a (many)", seed=1)
    chosen, notes = chosen_runs([few, many, make_run("b")])
    assert [run.label for run in chosen] == ["a (many)", "b"]
    assert len(notes) == 1
    assert notes[0].startswith("a (few) is left out")
    assert display_names([few, many]) == ("a (few)", "a (many)")
    assert (reference_variant(few), reference_variant(make_run("c", variants=("low", "high")))) == ("normal", "low")


def test_names_that_are_code_elsewhere_are_drawn_as_text(models):
    study = ranking_with_ties.make([*models, make_run(HOSTILE, rho=0.2, seed=7)], OPTIONS)
    check_files(study)
    assert HOSTILE in study.frame["model"].to_list()
