"""Runs among the published models: the printed values, their places, and why a run is not comparable."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from scipy.stats import norm
from tests.render.making import counts_table, rows

from refusal_index.data.analysis import Analysis
from refusal_index.data.datasets import PUBLISHED
from refusal_index.data.published import PublishedModel, hallucination_rows, paper_rows, published_results
from refusal_index.errors import OutcomeTableError
from refusal_index.findings.published import (
    AmongPublished,
    among_published,
    compare_with_paper,
    implied_questions,
    published_name,
    reasons_against,
)
from refusal_index.findings.run_results import RunResults
from refusal_index.render.sentences import sentence
from refusal_index.stats import ContingencyTable, Estimate, refusal_index

PUBLISHED_SIMPLEQA = published_results()["simpleqa"]
WORDING = PUBLISHED_SIMPLEQA.grader_prompt_sha256

AS_IN_THE_PAPER: dict[str, Any] = {
    "model": "m",
    "dataset": {"name": "simpleqa", "sha256": PUBLISHED["simpleqa"].sha256},
    "grader": {"name": "openai/gpt-4o-mini", "second": None, "prompt_sha256": WORDING},
    "prompts": {"name": "paper", "variants": ["low", "normal", "high", "highest"]},
    "decoding": {"temperature": 0.7, "top_p": 0.95, "max_tokens": 4096},
}


def made(table: pl.DataFrame, **settings: Any) -> RunResults:
    """Return the results of a table, with the settings of the paper where none are given."""
    tables = {name: part for (name,), part in table.group_by("variant", maintain_order=True)}
    return RunResults.of_tables("m", Path("m.csv"), "m", table["dataset"][0], tables, {**AS_IN_THE_PAPER, **settings})


@pytest.fixture(scope="module")
def whole() -> RunResults:
    """Return a run of all questions of SimpleQA, measured as in the paper."""
    return made(rows(4326, dataset="simpleqa", length=1))


def codes(run: RunResults, variant: str | None = None) -> list[str]:
    return [reason.code for reason in reasons_against(run, PUBLISHED_SIMPLEQA, variant)]


# --- The printed values


def test_paper_values_have_their_dataset_table_and_decimals():
    results = published_results()
    assert {name: (one.label, len(one.models), one.decimals) for name, one in results.items()} == {
        "simpleqa": ("tab:simpleqa_model_comparison", 16, 2),
        "precise_wiki": ("tab:hallu_model_comparison", 5, 2),
        "faitheval_counterfactual": ("tab:hallu_model_comparison", 5, 2),
        "faitheval_inconsistent+precise_wiki": ("tab:hallu_model_comparison", 5, 2),
        "faitheval_unanswerable+precise_wiki": ("tab:hallu_model_comparison", 5, 2),
    }
    assert results["faitheval_counterfactual"].models[3].index == Estimate(0.70, name="refusal_index")
    gemini = next(model for model in results["simpleqa"].models if model.name == "Gemini-2.5-Flash-Lite")
    assert gemini.metrics["weighted_score"] == Estimate(-0.51, -0.53, -0.49, name="weighted_score")


def test_paper_values_are_those_of_its_tables_averages():
    assert hallucination_rows().drop("model").mean().row(0) == pytest.approx((0.480, 0.560, 0.244, 0.318))
    assert paper_rows()["refusal_index"].mean() == pytest.approx(5.40 / 16)


def test_paper_interval_of_gemma_misses_its_estimate_and_five_are_too_narrow(whole):
    among = AmongPublished((whole,), PUBLISHED_SIMPLEQA, Analysis())
    doubtful = {model.name: [one.code for one in (*model.reasons, *model.remarks)] for model in among.printed}
    narrow = ("Qwen2.5-72B", "Qwen3-32B", "Qwen3-32B-Think", "Qwen3-235B", "Mistral-123B")
    expected = {"Gemma-3-12B": ["interval_misses"], **{name: ["interval_narrow"] for name in narrow}}
    assert {name: found for name, found in doubtful.items() if found} == expected


def test_theory_implied_questions_of_a_known_table():
    table = ContingencyTable(1420, 60, 420, 100)
    estimate = refusal_index(table)
    reach = norm.ppf(0.975) * estimate.standard_error
    index = Estimate(estimate.estimate, estimate.estimate - reach, estimate.estimate + reach)
    metrics = {"correct_rate": Estimate(100 / 2000), "refusal_rate": Estimate(1480 / 2000), "refusal_index": index}
    model = PublishedModel("m", metrics)
    assert implied_questions(model) == pytest.approx(2000, rel=1e-6)
    wider = replace(index, low=index.low - 0.005, high=index.high + 0.005)
    assert implied_questions(model, decimals=2) == pytest.approx(
        implied_questions(PublishedModel("m", {**metrics, "refusal_index": wider})), rel=1e-12
    )


# --- The place of a run


@pytest.mark.parametrize(
    ("index", "above", "below"),
    [(0.12, 0, 15), (0.124, 0, 15), (0.126, 1, 15), (0.34, 8, 6), (0.52, 14, 0), (0.9, 16, 0), (-0.2, 0, 16)],
)
def test_paper_places_at_printed_values_count_neither_above_nor_below(whole, index, above, below):
    among = AmongPublished((whole,), PUBLISHED_SIMPLEQA, Analysis())
    placed = replace(among.placed_runs[0], metrics={"refusal_index": Estimate(index)})
    among.__dict__["placed_runs"] = (placed,)
    place = next(one for one in among.statements if one.code == "published_place")
    assert (place.values["above"], place.values["below"]) == (above, below)


def test_models_are_ordered_by_ri_and_undefined_ones_are_last(whole):
    answers_all = counts_table(0, 0, 300, 700).with_columns(dataset=pl.lit("simpleqa"))
    never = made(answers_all, prompts={"name": "own", "variants": ["normal"]})
    comparison = compare_with_paper([whole, never], Analysis())
    (among,) = comparison.datasets
    indices = [model.index.estimate for model in among.models]
    assert indices[-1] is None
    assert indices[:-1] == sorted(indices[:-1], reverse=True)
    assert [model.source for model in among.models].count("run") == 2
    place = [one for one in among.statements if one.code == "published_place"][1]
    assert (place.values["index"], place.values["above"]) == (None, None)


def test_a_run_measured_as_in_the_paper_is_comparable(whole):
    among = among_published(whole)
    assert codes(whole) == []
    assert among.is_comparable
    assert [remark.code for remark in among.placed_runs[0].remarks] == ["examples_filled_in"]
    assert [model.name for model in among.models if among.is_grey(model)] == ["Gemma-3-12B"]
    (apart,) = (one for one in among.statements if one.code == "published_apart")
    run = among.placed_runs[0].index
    printed = {model.name: model for model in PUBLISHED_SIMPLEQA.models}
    doubtful = {"Gemma-3-12B", "Qwen2.5-72B", "Qwen3-32B", "Qwen3-32B-Think", "Qwen3-235B", "Mistral-123B"}
    for name, model in printed.items():
        assert (name in apart.values["above"]) == (run.low > model.index.high and name not in doubtful)
        assert (name in apart.values["below"]) == (run.high < model.index.low and name not in doubtful)
    assert apart.values["above"]


def test_nothing_is_said_of_intervals_that_are_not_printed():
    settings = {"dataset": {"name": "faitheval_counterfactual"}}
    run = made(rows(1000, dataset="faitheval_counterfactual", variants=("normal",), length=1), **settings)
    among = among_published(run)
    assert among.is_comparable
    assert "published_apart" not in [one.code for one in among.statements]
    scope = next(one for one in among.statements if one.code == "published_scope")
    assert scope.values["intervals"] is False


def test_intervals_of_another_level_are_not_set_against_each_other(whole):
    among = AmongPublished((whole,), PUBLISHED_SIMPLEQA, Analysis(confidence_level=0.9))
    assert "published_apart" not in [one.code for one in among.statements]


# --- Why a run is not comparable


@pytest.mark.parametrize(
    ("settings", "code", "found"),
    [
        ({"prompts": {"name": "default"}}, "other_prompts", "default"),
        (
            {"grader": {"name": "exact", "prompt_sha256": WORDING}},
            "other_grader",
            "exact",
        ),
        (
            {"grader": {"name": "openai/gpt-4o", "prompt_sha256": WORDING}},
            "other_grader",
            "openai/gpt-4o",
        ),
        (
            {
                "grader": {
                    "name": "openai/gpt-4o-mini",
                    "second": "a/b",
                    "prompt_sha256": WORDING,
                }
            },
            "other_grader",
            "openai/gpt-4o-mini and a/b",
        ),
        (
            {"grader": {"name": "openai/gpt-4o-mini-search-preview", "prompt_sha256": WORDING}},
            "other_grader",
            "openai/gpt-4o-mini-search-preview",
        ),
        ({"grader": {"name": "openai/gpt-4o-mini"}}, "other_grader_prompt", None),
        ({"decoding": {"temperature": 0.0, "top_p": 0.95}}, "other_decoding", 0.0),
        ({"decoding": {"temperature": 0.7}}, "other_decoding", None),
        ({"dataset": {"name": "simpleqa", "sha256": "0" * 64}}, "other_file", None),
    ],
)
def test_each_difference_from_the_paper_is_a_reason(whole, settings, code, found):
    run = replace(whole, settings={**AS_IN_THE_PAPER, **settings})
    (reason,) = reasons_against(run, PUBLISHED_SIMPLEQA)
    assert (reason.code, reason.values.get("found")) == (code, found)
    assert not among_published(run).is_comparable


def test_dated_name_of_the_grader_is_the_papers(whole):
    grader = {"name": "openai/gpt-4o-mini-2024-07-18", "prompt_sha256": WORDING}
    assert codes(replace(whole, settings={**AS_IN_THE_PAPER, "grader": grader})) == []


def test_temperature_that_was_not_sent_is_not_that_of_the_paper(whole):
    run = replace(whole, about={"sent": {"model": {"temperature": None, "top_p": 0.95}}})
    assert codes(run) == ["other_decoding"]


def test_fewer_questions_and_fewer_prompts_are_reasons():
    some = made(rows(300, dataset="simpleqa", variants=("low", "high"), length=1))
    assert codes(some) == ["other_variants", "question_sample"]
    values = {reason.code: reason.values for reason in reasons_against(some, PUBLISHED_SIMPLEQA)}
    assert values["other_variants"]["found"] == ["low", "high"]
    assert (values["question_sample"]["found"], values["question_sample"]["expected"]) == (300, 4326)


def test_answers_without_a_grade_are_not_questions_that_were_left_out():
    table = rows(4326, dataset="simpleqa", length=1)
    ungraded = pl.when(pl.int_range(pl.len()).over("variant") < 40).then(None).otherwise(pl.col("wrong"))
    assert "question_sample" not in codes(made(table.with_columns(wrong=ungraded)))


def test_one_chosen_prompt_is_a_reason(whole):
    assert codes(whole, "low") == ["other_variants"]
    (among,) = compare_with_paper([whole], Analysis(variant="low")).datasets
    assert among.placed_runs[0].index == whole.summary.variants[0].index
    with pytest.raises(OutcomeTableError, match=r"variants: expected a prompt of m .*got 'lo'.*did you mean 'low'"):
        compare_with_paper([whole], Analysis(variant="lo"))


def test_outcome_table_records_no_settings(whole):
    assert codes(replace(whole, settings={})) == ["settings_not_recorded"]


@pytest.mark.parametrize(
    ("dataset", "name"),
    [
        ("precise_wiki+faitheval_unanswerable", "faitheval_unanswerable+precise_wiki"),
        ("faitheval_unanswerable", None),
        ("simpleqa_verified", None),
        ("almanac", None),
        (None, None),
    ],
)
def test_only_datasets_of_the_paper_have_published_values(dataset, name):
    assert published_name(dataset) == name


def test_own_questions_of_precise_wiki_are_a_reason():
    table = rows(2000, dataset="precise_wiki", variants=("normal",), length=1)
    run = made(table, dataset={"name": "precise_wiki"})
    assert [reason.code for reason in reasons_against(run, published_results()["precise_wiki"])] == ["own_questions"]


def test_run_on_another_dataset_has_nothing_to_be_compared_with():
    comparison = compare_with_paper([made(rows(60))], Analysis())
    assert comparison.datasets == ()
    (statement,) = comparison.statements
    assert (statement.code, statement.values["dataset"]) == ("published_elsewhere", "d")
    assert "on its dataset (d)" in sentence(statement)


def test_document_holds_every_printed_value_and_reason(whole):
    run = replace(whole, settings={**AS_IN_THE_PAPER, "prompts": {"name": "default"}})
    document = json.loads(json.dumps(compare_with_paper([run], Analysis()).to_document()))
    (among,) = document["datasets"]
    assert (document["with"], among["table"], among["protocol"]["questions"]) == (
        "paper",
        "tab:simpleqa_model_comparison",
        4326,
    )
    by_name = {model["model"]: model for model in among["models"]}
    assert len(by_name) == 17
    assert by_name["Gemma-3-12B"]["comparable"] is False
    assert by_name["GLM-4.5"]["weighted_score"]["low"] == -0.16
    assert by_name["m"]["not_comparable"] == [{"code": "other_prompts", "severity": "serious", "found": "default"}]
    assert by_name["m"]["refusal_index"]["estimate"] == run.summary.index.estimate
    assert among["weighted_score_p"] == {"paper": 1.0, "run": 1.0}


def test_rates_of_several_prompts_are_means(whole):
    placed = among_published(whole).placed_runs[0]
    for name in ("correct_rate", "refusal_rate", "weighted_score"):
        each = [variant.metric(name).estimate for variant in whole.summary.variants]
        assert placed.metrics[name].estimate == pytest.approx(sum(each) / 4)
        assert placed.metrics[name].low is None
    assert placed.index == whole.summary.index
