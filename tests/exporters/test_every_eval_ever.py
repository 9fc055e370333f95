"""Against the published schemas: those in `schemas`, as the package every-eval-ever 0.3.0 has them (MIT)."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import jsonschema
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusal_index.findings.run_results import RunResults
from refusal_index.plugins.trackers.files import place_of
from refusal_index.plugins.trackers.tracker import export_runs

SCHEMAS = Path(__file__).parent / "schemas"
AGGREGATE, INSTANCE = (
    json.loads((SCHEMAS / name).read_text()) for name in ("eval.schema.json", "instance_level_eval.schema.json")
)


def exported(source: Path, out: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Export one run, validate both files against their schemas and return their contents."""
    export_runs([source], "every-eval-ever", out)
    (path,) = out.rglob("*.json")
    aggregate = json.loads(path.read_text(), parse_constant=pytest.fail)
    lines = path.with_name(f"{path.stem}_samples.jsonl").read_text().splitlines()
    samples = [json.loads(line, parse_constant=pytest.fail) for line in lines]
    jsonschema.validate(aggregate, AGGREGATE)
    validator = jsonschema.Draft7Validator(INSTANCE)
    for sample in samples:
        validator.validate(sample)
    return aggregate, samples


def test_schema_files_match_the_exported_version():
    assert AGGREGATE["version"] == INSTANCE["version"] == "0.3.0"


@pytest.mark.parametrize("name", ["run", "drawn"])
def test_every_defined_score_is_exported_with_its_interval(name, request, tmp_path):
    folder = request.getfixturevalue(name).folder
    aggregate, _ = exported(folder.path, tmp_path)
    found = {result["evaluation_result_id"]: result for result in aggregate["evaluation_results"]}
    undefined = aggregate["source_metadata"]["additional_details"]
    for variant in json.loads(folder.summary.read_text())["variants"]:
        for metric, value in variant["metrics"].items():
            called = f"{variant['variant']}/{metric}"
            if value["estimate"] is None:
                assert called not in found
                assert undefined[f"{called} undefined"] == value["reason"]
                continue
            score = found[called]["score_details"]
            assert score["score"] == value["estimate"]
            interval = score["uncertainty"]["confidence_interval"]
            assert (interval["lower"], interval["upper"]) == (value["low"], value["high"])
            assert (interval["confidence_level"], interval.get("method")) == (0.95, value["method"])
            assert score["uncertainty"]["num_samples"] == variant["n"]
            bounds = found[called]["metric_config"]
            assert bounds["min_score"] <= value["estimate"] <= bounds["max_score"]


def test_an_undefined_index_is_left_out_with_its_reason(run, tmp_path):
    aggregate, _ = exported(run.path, tmp_path)
    details = aggregate["source_metadata"]["additional_details"]
    assert details["low/corrected_refusal_index undefined"] == "no_repeated_questions"


def test_p_sets_the_minimum_of_the_weighted_score(run, tmp_path):
    document = json.loads(run.folder.summary.read_text()) | {"weighted_score_p": 3.0}
    source = tmp_path / "of_p"
    source.mkdir()
    for path in (run.folder.run_json, run.folder.outcomes):
        (source / path.name).write_bytes(path.read_bytes())
    (source / "summary.json").write_text(json.dumps(document))
    aggregate, _ = exported(source, tmp_path / "out")
    (config,) = (
        result["metric_config"]
        for result in aggregate["evaluation_results"]
        if result["evaluation_result_id"] == "low/weighted_score"
    )
    assert (config["min_score"], config["max_score"]) == (-3.0, 0.0)


@pytest.mark.parametrize("name", ["run", "drawn"])
def test_correct_rate_is_the_mean_of_its_samples(name, request, tmp_path):
    aggregate, samples = exported(request.getfixturevalue(name).path, tmp_path)
    for variant in ("low", "high"):
        called = f"{variant}/correct_rate"
        scores = [sample["evaluation"]["score"] for sample in samples if sample.get("evaluation_result_id") == called]
        (result,) = (one for one in aggregate["evaluation_results"] if one["evaluation_result_id"] == called)
        assert len(scores) == 40
        assert sum(scores) / len(scores) == pytest.approx(result["score_details"]["score"], abs=1e-12)


def test_samples_record_pass_and_refusal(run, tmp_path):
    _, samples = exported(run.path, tmp_path)
    high = [sample for sample in samples if sample["metadata"]["variant"] == "high"]
    first, forced = ([one for one in high if one["metadata"]["pass"] == of] for of in ("first", "forced"))
    outcomes = run.outcomes.filter(variant="high")
    assert [one["metadata"]["refused"] == "true" for one in first] == outcomes["refused"].to_list()
    assert [one["sample_id"] for one in forced] == outcomes.filter("refused")["question_id"].to_list()
    assert [one["evaluation"]["is_correct"] for one in forced] == (~outcomes.filter("refused")["wrong"]).to_list()
    assert [one["output"]["raw"] for one in first] == [[reply] for reply in outcomes["first_reply"]]


def test_aggregate_and_sample_files_reference_each_other(run, tmp_path):
    aggregate, samples = exported(run.path, tmp_path)
    details = aggregate["detailed_evaluation_results"]
    content = (tmp_path / details["file_path"]).read_bytes()
    assert hashlib.sha256(content).hexdigest() == details["checksum"]
    assert details["total_rows"] == len(samples)
    assert {sample["evaluation_id"] for sample in samples} == {aggregate["evaluation_id"]}
    assert {sample["model_id"] for sample in samples} == {aggregate["model_info"]["id"]}


def test_exporting_again_replaces_earlier_files(run, tmp_path):
    exported(run.path, tmp_path)
    before = sorted(tmp_path.rglob("*"))
    exported(run.path, tmp_path)
    assert sorted(tmp_path.rglob("*")) == before


def test_ungraded_samples_are_omitted_and_counted(run, tmp_path):
    unscored = pl.col("question_id") == "q4"
    table = run.outcomes.with_columns(
        pl.when(unscored).then(None).otherwise(pl.col("refused")).alias("refused"),
        pl.when(unscored).then(None).otherwise(pl.col("wrong")).alias("wrong"),
        pl.when(unscored).then(pl.lit("unscored")).otherwise(pl.col("first_grade")).alias("first_grade"),
        pl.when(unscored).then(pl.lit("first_truncated")).otherwise(None).alias("unscored_reason"),
        pl.when(unscored).then(None).otherwise(pl.col("forced_grade")).alias("forced_grade"),
    )
    table.write_parquet(tmp_path / "some.parquet")
    aggregate, samples = exported(tmp_path / "some.parquet", tmp_path / "out")
    assert "q4" not in {sample["sample_id"] for sample in samples}
    assert aggregate["detailed_evaluation_results"]["additional_details"] == {"unscored_left_out": "2"}


def test_scores_of_an_incomplete_variant_are_marked_incomplete(incomplete, tmp_path):
    aggregate, _ = exported(incomplete, tmp_path / "out")
    found = {
        result["evaluation_result_id"]: result["score_details"]["details"] for result in aggregate["evaluation_results"]
    }
    high, low = found["high/correct_rate"], found["low/correct_rate"]
    assert (high["status"], high["incomplete"]) == ("incomplete", "10 of 40 questions not scored")
    assert (low["status"], "incomplete" in low) == ("ok", False)


def test_two_column_table_is_sufficient(tmp_path):
    (tmp_path / "own.csv").write_text("refused,wrong\ntrue,true\nfalse,false\nfalse,true\n")
    aggregate, samples = exported(tmp_path / "own.csv", tmp_path / "out")
    assert aggregate["model_info"]["id"] == "all"
    assert [sample["evaluation"]["is_correct"] for sample in samples] == [False, False, True, False]


@given(model=st.text(max_size=200), dataset=st.text(max_size=200))
def test_exported_file_names_stay_inside_the_folder_property(model, dataset):
    run = RunResults("x", Path("x.csv"), model, dataset, pl.LazyFrame())
    for part in place_of(run):
        assert part
        assert not set(part) & set('/\\:*?"<>|\0\n')
        assert part.lower() not in {"", ".", "..", "data", "con", "nul"}
        assert not part.endswith((".", " "))


@pytest.mark.parametrize("model", ["../../etc/passwd", "a\nb/c\x00d", "data", "openrouter/meta/llama:8b", "CON"])
def test_hostile_model_names_pass_the_schemas(model, run, tmp_path):
    run.outcomes.with_columns(model=pl.lit(model), first_reply=pl.lit("\x1b[31m\u202e</script>\x00")).write_parquet(
        tmp_path / "hostile.parquet"
    )
    aggregate, samples = exported(tmp_path / "hostile.parquet", tmp_path / "out")
    assert aggregate["model_info"]["id"] == model
    assert samples[0]["output"]["raw"] == ["\x1b[31m\u202e</script>\x00"]


def test_api_keys_are_redacted_from_samples(run, tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "swordfish-77-of-mine")
    run.outcomes.with_columns(first_reply=pl.lit("it is swordfish-77-of-mine")).write_parquet(tmp_path / "told.parquet")
    _, samples = exported(tmp_path / "told.parquet", tmp_path / "out")
    assert samples[0]["output"]["raw"] == ["it is [key]"]
