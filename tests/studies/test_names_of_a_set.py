"""Runs that a set calls otherwise: shown and told apart by these names, looked up by those of their outcomes."""

from __future__ import annotations

from dataclasses import replace

from tests.data.test_run_sets import make_run, write_summary
from tests.studies.made import made_run
from tests.tiers import one_fast

from refusal_index.data.folder import RunFolder
from refusal_index.findings.summary import Usage, summarise
from refusal_index.plugins.studies.cost import cost_table
from refusal_index.plugins.studies.inputs import chosen_runs, display_names, paper_context
from refusal_index.plugins.studies.regression import index_and_accuracy, index_and_size
from refusal_index.plugins.studies.results import hallucination_table, results_table, truth_of
from refusal_index.plugins.studies.study import StudyOptions
from refusal_index.render.report import read_report_runs
from refusal_index.render.summary import summary_document
from refusal_index.runs.writing import as_json

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


def test_the_paper_stands_beside_simpleqa_whatever_it_is_called():
    assert paper_context([named("acme/x", "X")]).height == 16
    assert paper_context([named("acme/x", "X", dataset="d", called="simpleqa")]).height == 0


def test_size_and_family_are_those_of_the_model_unless_a_table_has_the_name(tmp_path):
    runs = [named("almanac/base", "Base", dataset="d"), named("almanac/small", "Small", dataset="d", seed=1)]
    plain = index_and_size.make(runs, OPTIONS).frame.filter(source="run")
    assert dict(zip(plain["model"], plain["parameters_billion"], strict=True)).keys() == {"Base", "Small"}
    assert plain["family"].unique().to_list() == ["almanac"]
    (tmp_path / "models.csv").write_text("model,family,parameters_billion\nBase,mine,7\n")
    told = index_and_size.make(runs, replace(OPTIONS, models=tmp_path / "models.csv")).frame.filter(model="Base")
    assert told.select("family", "parameters_billion").row(0) == ("mine", 7)
    three = [*runs, named("almanac/rash", "Rash", dataset="d", seed=2)]
    families = index_and_accuracy.make(three, OPTIONS).frame.filter(source="run")["family"]
    assert families.unique().to_list() == ["almanac"]


def test_whether_the_truth_is_to_be_had_is_told_by_the_dataset_itself():
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
def test_what_a_run_took_is_found_under_any_name(tmp_path, name):
    folder = RunFolder(make_run(tmp_path / "one", "acme/one"))
    write_summary(tmp_path, {"one": (name, "Ours")})
    usage = {variant: Usage(100, 7, 5, None) for variant in ("low", "normal", "high", "highest")}
    ((found,), _) = read_report_runs([tmp_path])
    folder.write_summary(as_json(summary_document(summarise(found.shown, usage=usage))))
    ((found,), _) = read_report_runs([tmp_path])
    assert found.run.label == name
    assert [variant.usage for variant in found.variants] == list(usage.values())
    frame = cost_table.make([found.run], OPTIONS).frame
    assert frame.filter(variant="low")["input_tokens"].to_list() == [usage["low"].input_tokens]
