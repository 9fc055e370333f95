"""What studies read: the paper's published rows, and runs under the names of their set."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest
from scipy.stats import linregress
from tests.data.test_folder import make_run, write_summary
from tests.studies.made import made_run
from tests.tiers import one_fast

from refusal_index.data.files import json_text
from refusal_index.data.folder import RunFolder
from refusal_index.data.published import paper_rows
from refusal_index.findings.run_results import read_runs
from refusal_index.findings.summary import Usage, summarise
from refusal_index.plugins.studies.cost import cost_table
from refusal_index.plugins.studies.inputs import (
    ModelTableError,
    chosen_runs,
    display_names,
    family_of,
    find_model,
    known_models,
    paper_context,
)
from refusal_index.plugins.studies.regression import index_and_accuracy, index_and_size
from refusal_index.plugins.studies.results import hallucination_table, results_table, truth_of
from refusal_index.plugins.studies.study import StudyOptions
from refusal_index.render.summary import summary_document

# --- The paper's tables are consistent

ROWS = paper_rows()


def test_there_are_sixteen_models_of_nine_families():
    assert ROWS.height == 16
    assert ROWS["family"].n_unique() == 9
    assert ROWS.filter("think")["model"].to_list() == ["Qwen3-32B-Think"]


@pytest.mark.parametrize(("metric", "expected"), [("correct_rate", 0.010), ("correct_given_attempted", 0.232)])
def test_r_squared_of_the_papers_regressions(metric, expected):
    assert linregress(ROWS[metric], ROWS["refusal_index"]).rvalue ** 2 == pytest.approx(expected, abs=5e-4)
    study = index_and_accuracy.make([made_run(dataset="simpleqa", n=80)], StudyOptions())
    row = study.frame.filter(pl.col("source") == "paper", pl.col("metric") == metric).row(0, named=True)
    assert row["r_squared"] == pytest.approx(expected, abs=5e-4)
    assert row["points"] == 16
    assert any(f"R squared {expected:.3f} over 16 models" in note for note in study.notes)


def test_the_papers_rows_are_context_for_simpleqa_only():
    assert paper_context([made_run(dataset="simpleqa", n=5)], StudyOptions()).height == 16
    for dataset in ("simpleqa_verified", "almanac", None):
        assert paper_context([made_run(dataset=dataset, n=5)], StudyOptions()).height == 0
    assert paper_context([made_run(dataset="simpleqa", n=5), made_run(dataset="d", n=5)], StudyOptions()).height == 0


def test_models_are_found_by_name_and_without_their_provider(tmp_path):
    known = known_models(None)
    assert find_model("together/qwen2.5-72b", known)["parameters_billion"] == 72
    assert find_model("almanac/base", known)["parameters_billion"] == 0.0026
    assert find_model("acme/unknown", known) is None
    assert family_of("anthropic/claude-9", known) == "Claude"
    assert family_of("acme/unknown", known) == "acme"


def test_user_table_of_models_takes_precedence(tmp_path):
    path = tmp_path / "models.csv"
    path.write_text("model,family,parameters_billion\nqwen2.5-72b,Mine,99\nacme/x,Acme,\n")
    known = known_models(path)
    assert find_model("qwen2.5-72B", known)["parameters_billion"] == 99
    assert find_model("acme/x", known)["parameters_billion"] is None


@pytest.mark.parametrize(
    ("content", "message"),
    [("model,size\nx,1\n", "add 'family'"), ("model,family,parameters_billion\nx,y,big\n", "could not be read")],
)
def test_invalid_table_of_models_raises(tmp_path, content, message):
    path = tmp_path / "models.csv"
    path.write_text(content)
    with pytest.raises(ModelTableError, match=message):
        known_models(path)
    with pytest.raises(ModelTableError, match="could not be read"):
        known_models(tmp_path / "none.csv")


# --- Names of runs in a set

OPTIONS = StudyOptions()


def named(model: str, name: str, dataset: str = "simpleqa", called: str = "Ours", **made):
    return replace(made_run(model, dataset=dataset, n=120, **made), label=name, model=name, dataset=called)


def test_one_model_under_two_names_is_two_models():
    runs = [named("acme/x", "X"), named("acme/x", "X, thinking", seed=1)]
    assert chosen_runs(runs) == (tuple(runs), ())
    assert display_names(runs) == ("X", "X, thinking")
    frame = results_table.make(runs, OPTIONS).frame
    assert frame.filter(source="run")["model"].unique(maintain_order=True).to_list() == ["X", "X, thinking"]
    assert frame.filter(source="run")["dataset"].unique().to_list() == ["Ours"]


def test_paper_context_appears_for_a_renamed_simpleqa():
    assert paper_context([named("acme/x", "X")], StudyOptions()).height == 16
    assert paper_context([named("acme/x", "X", dataset="d", called="simpleqa")], StudyOptions()).height == 0


def test_size_and_family_come_from_the_model_unless_a_table_has_the_name(tmp_path):
    runs = [named("almanac/base", "Base", dataset="d"), named("almanac/small", "Small", dataset="d", seed=1)]
    plain = index_and_size.make(runs, OPTIONS).frame.filter(source="run")
    assert dict(zip(plain["model"], plain["parameters_billion"], strict=True)).keys() == {"Base", "Small"}
    assert plain["family"].unique().to_list() == ["almanac"]
    (tmp_path / "models.csv").write_text("model,family,parameters_billion\nBase,mine,7\n")
    frame = index_and_size.make(runs, replace(OPTIONS, models=tmp_path / "models.csv")).frame.filter(model="Base")
    assert frame.select("family", "parameters_billion").row(0) == ("mine", 7)
    three = [*runs, named("almanac/rash", "Rash", dataset="d", seed=2)]
    families = index_and_accuracy.make(three, OPTIONS).frame.filter(source="run")["family"]
    assert families.unique().to_list() == ["almanac"]


def test_truth_availability_depends_on_the_original_dataset():
    runs = [
        named("acme/x", "X", dataset="faitheval_unanswerable", called="No answer"),
        named("acme/x", "X", dataset="faitheval_counterfactual", called="Other world"),
    ]
    frame = hallucination_table.make(runs, OPTIONS).frame.filter(statistic="refusal_index")
    truths = [truth_of(run.dataset_id) for run in runs]
    assert frame["dataset"].to_list() == ["No answer", "Other world"]
    assert frame["truth"].to_list() == truths
    assert None not in truths


@one_fast("name", ["Large", "acme/one"])
def test_usage_of_a_run_is_found_under_any_name(tmp_path, name):
    folder = RunFolder(make_run(tmp_path / "one", "acme/one"))
    write_summary(tmp_path, {"one": (name, "Ours")})
    usage = {variant: Usage(100, 7, 5, None) for variant in ("low", "normal", "high", "highest")}
    (found,) = read_runs([tmp_path])
    folder.write_summary(json_text(summary_document(summarise(found.outcomes, usage=usage))))
    (found,) = read_runs([tmp_path])
    assert found.label == name
    assert [variant.usage for variant in found.summary.variants] == list(usage.values())
    frame = cost_table.make([found], OPTIONS).frame
    assert frame.filter(variant="low")["input_tokens"].to_list() == [usage["low"].input_tokens]
