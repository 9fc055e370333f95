"""Files are read back with the Hub's own client."""

from __future__ import annotations

import polars as pl
import pytest

yaml = pytest.importorskip("yaml", reason="needs the extra 'eval'")
hub = pytest.importorskip("huggingface_hub", reason="needs the extra 'eval'")

from refusal_index.plugins.trackers.tracker import export_runs  # noqa: E402 - after what may not be there


def defined(summary):
    return {
        f"{variant['variant']}/{name}": value["estimate"]
        for variant in summary["variants"]
        for name, value in variant["metrics"].items()
        if value["estimate"] is not None
    }


def test_hub_client_reads_folder_entries(run, summary, tmp_path):
    export_runs([run.path], "hf-eval-results", tmp_path)
    entries = hub.parse_eval_result_entries(yaml.safe_load((tmp_path / ".eval_results" / "sums.yaml").read_text()))
    found = {entry.task_id: entry.value for entry in entries}
    assert {name: found[name] for name in defined(summary)} == defined(summary)
    assert {entry.dataset_id for entry in entries} == {"sums"}
    assert {name for name in found if "pooled" not in name} == set(defined(summary))
    (rate,) = (entry for entry in entries if entry.task_id == "low/correct_rate")
    low, high = (summary["variants"][0]["metrics"]["correct_rate"][end] for end in ("low", "high"))
    assert rate.notes.endswith(f"(prompt low, 40 questions, 95% interval {low:g} to {high:g})")


def test_hub_client_reads_model_index(run, summary, tmp_path):
    from huggingface_hub.repocard_data import model_index_to_eval_results

    export_runs([run.path], "hf-eval-results", tmp_path)
    index = yaml.safe_load((tmp_path / "sums.model-index.yaml").read_text())["model-index"]
    name, results = model_index_to_eval_results(index)
    assert name == "python:team/sums"
    found = {result.metric_name: result.metric_value for result in results}
    assert {name: found[name] for name in defined(summary)} == defined(summary)
    assert {result.dataset_name for result in results} == {"sums"}


def test_numbers_of_an_incomplete_variant_are_marked(incomplete, tmp_path):
    export_runs([incomplete], "hf-eval-results", tmp_path)
    entries = hub.parse_eval_result_entries(yaml.safe_load((tmp_path / ".eval_results" / "sums.yaml").read_text()))
    lacks = "incomplete: 10 of 40 questions not scored)"
    assert {entry.task_id for entry in entries if entry.notes.endswith(f"; {lacks}")} == {
        entry.task_id for entry in entries if not entry.task_id.startswith("low/") and "pooled" not in entry.task_id
    }
    (result,) = yaml.safe_load((tmp_path / "sums.model-index.yaml").read_text())["model-index"][0]["results"]
    assert f"high/correct_rate ({lacks}" in [metric["name"] for metric in result["metrics"]]


def test_several_runs_are_written_to_separate_files(run, drawn, tmp_path):
    export_runs([run.path, drawn.path, run.folder.outcomes], "hf-eval-results", tmp_path)
    assert len(list((tmp_path / ".eval_results").iterdir())) == 3


def test_variant_named_pooled_is_not_mistaken_for_pooled_estimates(run, tmp_path):
    table = run.outcomes.filter(pl.col("variant") == "low").with_columns(variant=pl.lit("pooled"))
    table.write_parquet(tmp_path / "o.parquet")
    export_runs([tmp_path / "o.parquet"], "hf-eval-results", tmp_path / "out")
    (path,) = (tmp_path / "out" / ".eval_results").iterdir()
    assert all("prompt pooled, 40 questions" in one["notes"] for one in yaml.safe_load(path.read_text()))
