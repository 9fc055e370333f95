"""The studies response_to_penalty and thinking."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtri
from tests.studies.made import HOSTILE as HOSTILE_NAME
from tests.studies.made import made_run
from tests.studies.outcomes_made import HOSTILE, check_files
from tests.studies.scores_made import with_scores

from refusal_index.data import Grade, Outcome, Question
from refusal_index.data.outcome_table import Identification, outcome_table
from refusal_index.data.rates import outcome_matrix
from refusal_index.findings.run_results import RunResults
from refusal_index.plugins.studies.curves import best_refusal_rate
from refusal_index.plugins.studies.responses import (
    printed_response,
    response_to_penalty,
    targets_of,
    thinking,
    thinking_of,
)
from refusal_index.plugins.studies.study import NotPossibleError, StudyOptions
from refusal_index.stats import compare_joint, compare_metrics, utility_threshold

# --- Responses of a run

OPTIONS = StudyOptions()
NAMES = {"t0": 0.0, "t50": 0.5, "t75": 0.75, "t90": 0.9}


def run_at(rates, *, model: str = "m", n: int = 2000, rho: float = 0.6, error_rate: float = 0.6, seed: int = 3):
    """Return a run whose variants refuse at the given rates from one latent score."""
    refusal, noise = np.random.default_rng(seed).standard_normal((2, n))
    wrong = rho * refusal + math.sqrt(1 - rho**2) * noise > -ndtri(error_rate)
    tables = {}
    for name, rate in zip(NAMES, rates, strict=True):
        rows = []
        for i in range(n):
            refused = bool(refusal[i] > -ndtri(rate))
            grade = Grade.INCORRECT if wrong[i] else Grade.CORRECT
            outcome = Outcome(refused, bool(wrong[i]), Grade.REFUSED if refused else grade, grade)
            rows.append((Identification(model, "d", name), Question(f"q{i}", f"question {i}", "!"), outcome))
        tables[name] = outcome_table(rows)
    return RunResults.of_tables(model, Path(f"{model}.csv"), model, "d", tables)


@pytest.fixture(scope="module")
def study():
    best = [float(best_refusal_rate(0.6, 0.6, target / (1 - target))) for target in NAMES.values()]
    return response_to_penalty.make([run_at(best, model="obeys"), run_at([0.4] * 4, model="ignores")], OPTIONS)


def verdicts(study, model: str) -> list[str]:
    return study.frame.filter(model=model, part="target")["verdict"].to_list()


def test_verdicts_distinguish_following_from_ignoring_the_penalty(study):
    assert verdicts(study, "obeys") == ["no difference shown"] * 4
    assert verdicts(study, "ignores") == ["too much", "too little", "too little", "too little"]
    first, second = study.notes
    assert first.startswith("obeys: from t = 0 to t = 0.9 the refusal rate changes by 0.9")
    assert "no significant difference" in first
    assert "changes by 0.00" in second
    assert "it changes too little. There is no significant response." in second


def test_utility_uses_the_stated_penalty(study):
    row = study.frame.filter(model="ignores", variant="t75").row(0, named=True)
    table = run_at([0.4] * 4).tables["t75"]
    answered = table.filter(~table["refused"])
    wrong = answered["wrong"].sum()
    assert row["utility"] == pytest.approx((answered.height - wrong - 3 * wrong) / 2000)
    assert row["utility_low"] < row["utility"] < row["best_utility"]
    assert f", {row['utility']:.2f} at 0.75, " in study.notes[1], "and the command, which prints no table, says so"
    assert f", {row['best_utility']:.2f}, " in study.notes[1].partition("; at best ")[2]


def test_targets_come_from_settings_or_else_from_names():
    run = run_at([0.4] * 4, n=20)
    assert targets_of(run) == NAMES
    stated = {"prompts": {"targets": {"t0": 0.2, "t50": 0.6, "gone": 0.7, "t75": "high", "t90": 1.5}}}
    assert targets_of(dataclasses.replace(run, settings=stated)) == {"t0": 0.2, "t50": 0.6}
    assert targets_of(made_run("other", n=20)) == {}


def test_confidence_scores_show_the_utility_of_their_best_threshold():
    run = with_scores(run_at([0.4] * 4, n=300), {"likelihood": 3.0})
    study = response_to_penalty.make([run], OPTIONS)
    cuts = study.frame.filter(part="threshold")
    assert cuts["variant"].to_list() == list(NAMES)
    scores = run.confidence.drop_nulls(["confidence", "wrong"])
    expected = utility_threshold(scores["confidence"].to_numpy(), ~scores["wrong"].to_numpy(), 3)
    assert cuts.filter(variant="t75")["best_utility"].item() == expected.utility
    assert "Dotted lines" in study.caption
    assert "likelihood: best" in printed_response(study.frame).columns


def test_a_model_on_two_datasets_has_a_panel_a_row_and_a_sentence_for_each():
    first, second = (
        with_scores(run_at([0.4] * 4, n=300, seed=seed), {"likelihood": strength})
        for seed, strength in ((3, 3.0), (4, 0.5))
    )
    runs = [
        dataclasses.replace(run, dataset=name, label=f"m, {name}") for run, name in ((first, "one"), (second, "two"))
    ]
    study, alone = response_to_penalty.make(runs, OPTIONS), [response_to_penalty.make([run], OPTIONS) for run in runs]
    assert [title for axes in study.figure().axes if (title := axes.get_title("left"))] == ["m\none", "m\ntwo"]
    assert [note.split(":")[0] for note in study.notes] == ["m, one", "m, two"]
    printed = printed_response(study.frame)
    assert printed["dataset"].to_list() == ["one"] * 4 + ["two"] * 4
    best = [text for each in alone for text in printed_response(each.frame)["likelihood: best"]]
    assert printed["likelihood: best"].to_list() == best
    assert best[:4] != best[4:]


def test_model_that_never_refuses_has_no_curve_and_a_sentence_says_so():
    study = response_to_penalty.make([run_at([0.0] * 4, n=200)], OPTIONS)
    assert verdicts(study, "m") == ["not known"] * 4
    assert "the best change is undefined (no refusals). A question earns " in study.notes[0]
    assert "at best" not in study.notes[0]
    study.figure()


def test_fewer_than_two_targets_raise():
    with pytest.raises(NotPossibleError, match="under two confidence targets or more"):
        response_to_penalty.make([made_run("m", n=50)], OPTIONS)


def test_files_and_hostile_names():
    runs = [run_at([0.2, 0.3, 0.4, 0.5], model=name, n=150) for name in (HOSTILE, "b", "c", "d")]
    check_files(response_to_penalty.make(runs, OPTIONS))


def test_first_variant_with_a_repeated_target_counts_and_others_are_named():
    run = run_at([0.1, 0.3, 0.5, 0.7], n=200)
    stated = {"prompts": {"targets": {"t0": 0.5, "t50": 0.5, "t75": 0.9, "t90": 0.5}}}
    alike = dataclasses.replace(run, settings=stated)
    found = response_to_penalty.make([alike], OPTIONS)
    assert found.frame.filter(part="target")["variant"].to_list() == ["t0", "t75"]
    assert found.notes[0].endswith(" Left out because another prompt states the same target: t50, t90.")


def test_single_repeated_target_raises():
    run = run_at([0.1, 0.3, 0.5, 0.7], n=50)
    with pytest.raises(NotPossibleError):
        response_to_penalty.make(
            [dataclasses.replace(run, settings={"prompts": {"targets": dict.fromkeys(NAMES, 0.5)}})], OPTIONS
        )


# --- Pairs of runs


def thinking_run(switch="", effort=None, *, label=None, grader="exact", max_tokens=4096, model="m", **given):
    settings = {
        "model": model,
        "dataset": {"name": "d"},
        "grader": grader,
        "think": switch or None,
        "decoding": {"temperature": 0.7, "max_tokens": max_tokens, "reasoning_effort": effort},
    }
    run = made_run(model, **given)
    return dataclasses.replace(run, settings=settings, label=label or f"{model} {switch} {effort}")


@pytest.fixture(scope="module")
def pair():
    return [
        thinking_run("/think", rho=0.8, seed=1, n=250, max_tokens=32_000),
        thinking_run("/no_think", rho=0.3, seed=1, n=250),
    ]


def test_difference_matches_compare_joint_over_shared_questions(pair):
    study = thinking.make(pair, OPTIONS)
    row = study.frame.filter(metric="refusal_index").row(0, named=True)
    more, less = (outcome_matrix(list(run.tables.values())).arrays for run in pair)
    expected = compare_joint(*(np.stack(both) for both in zip(more, less, strict=True)))
    low, high = expected.confidence_interval()
    assert (row["less"], row["more"], row["questions"]) == ("/no_think", "/think", 250)
    assert row["estimate"] == pytest.approx(expected.estimate)
    assert (row["low"], row["high"], row["pvalue"]) == pytest.approx((low, high, expected.pvalue))


def test_other_metrics_of_one_variant_match_compare_metrics():
    runs = [
        thinking_run(effort=effort, rho=0.5, seed=seed, n=200, variants=["normal"])
        for seed, effort in enumerate(("high", "low"))
    ]
    frame = thinking.make(runs, OPTIONS).frame
    matrix = outcome_matrix([run.tables["normal"] for run in runs])
    expected = compare_metrics(*matrix.arrays)
    for row in frame.iter_rows(named=True):
        one = expected[row["metric"]]
        assert row["estimate"] == pytest.approx(one.estimate, abs=1e-12)
        assert row["pvalue"] == pytest.approx(one.pvalue)
    assert set(frame["less"]) == {"effort low"}


def test_runs_are_ordered_by_effort_and_switch():
    order = [thinking_run(*what) for what in (("/no_think",), ("",), ("/think",), ("", "low"), ("", "high"))]
    assert [thinking_of(run)[:2] for run in order] == sorted({thinking_of(run)[:2] for run in order})
    assert [thinking_of(run)[2] for run in order[:4]] == ["/no_think", "as it is", "/think", "effort low"]


def test_only_otherwise_identical_runs_form_pairs(pair):
    other_grader = thinking_run("/think", grader="other", label="g")
    other_model = thinking_run("/think", model="n", label="n")
    without_settings = made_run("m")
    with pytest.raises(NotPossibleError, match="no such pair"):
        thinking.make([pair[1], other_grader, other_model, without_settings], OPTIONS)
    with pytest.raises(NotPossibleError, match="no such pair"):
        thinking.make([pair[1], dataclasses.replace(pair[1], label="again")], OPTIONS)
    assert thinking.make([*pair, other_grader], OPTIONS).frame.height == 6
    three = thinking.make([*pair, thinking_run(seed=3, n=250)], OPTIONS).frame.filter(metric="refusal_index")
    assert three.select("less", "more").rows() == [("/no_think", "as it is"), ("/no_think", "/think")]


def test_pairs_have_the_names_of_the_models_in_their_configuration(pair):
    renamed = [dataclasses.replace(run, model=name) for run, name in zip(pair, ("Thinker", "Plain"), strict=True)]
    study = thinking.make(renamed, OPTIONS)
    assert study.frame.select("other_model", "model").unique().rows() == [("Plain", "Thinker")]
    assert set(study.printed(study.frame)["Model"]) == {"Plain, Thinker"}
    labels = [label.get_text() for label in study.figure().axes[0].get_yticklabels()]
    assert labels == ["Plain to\nThinker\n/no_think to /think"]
    alike = thinking.make(pair, OPTIONS)
    assert set(alike.printed(alike.frame)["Model"]) == {"m"}


def test_an_index_at_the_boundary_has_a_difference_without_an_interval():
    runs = [
        thinking_run("/think", rho=0.9999, right=0.1, n=40, variants=["low"]),
        thinking_run("/no_think", n=200, variants=["low"]),
    ]
    row = thinking.make(runs, OPTIONS).frame.filter(metric="refusal_index").row(0, named=True)
    assert row["reason"] == "no_standard_error"
    assert row["low"] is None


def test_hostile_names_are_drawn_and_printed_safely(pair):
    hostile = [
        thinking_run(switch, model=HOSTILE_NAME, n=120, seed=4) for switch in ("/think", HOSTILE_NAME + "no_think")
    ]
    check_files(thinking.make([*pair, *hostile], OPTIONS))
