"""With MLflow itself on an SQLite database; stored values are read back with its own client."""

from __future__ import annotations

import json
import math
import os
import shutil
from dataclasses import replace

import pytest

from refusal_index.plugins.trackers.tracker import (
    Subject,
    TrackerError,
    export_runs,
    read_exported,
    tracker_class,
)
from refusal_index.render.summary import numbers
from tests.exporters.conftest import leaves

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_trackers", "mlflow")]


@pytest.fixture(scope="session")
def mlflow():
    """MLflow itself, which takes seconds to import: no worker does so unless it runs a test of it."""
    pytest.importorskip("sqlalchemy", reason="needs the extra 'mlflow'")
    return pytest.importorskip("mlflow", reason="needs the extra 'mlflow'")


@pytest.fixture(scope="session")
def database(mlflow, tmp_path_factory):
    """Create the database tables once, which takes seconds."""
    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    mlflow.MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def client(mlflow, database, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{shutil.copy(database, tmp_path)}")
    return mlflow.MlflowClient()


def runs_of(client, name="refusal-index"):
    return client.search_runs([client.get_experiment_by_name(name).experiment_id])


def test_every_summary_number_is_stored_in_mlflow(drawn, client):
    (said,) = export_runs([drawn.path], "mlflow")
    (found,) = runs_of(client)
    document = json.loads(drawn.folder.summary.read_text())
    assert found.data.metrics == numbers(document)
    assert sorted(found.data.metrics.values()) == sorted(leaves(document))
    assert found.info.run_name == "python:team/sums on sums"
    assert found.info.status == "FINISHED"
    assert said.endswith(f"experiment refusal-index, run {found.info.run_id}")


@pytest.mark.nightly
def test_parameters_table_and_files_are_logged(drawn, mlflow, client):
    export_runs([drawn.path], "mlflow")
    (found,) = runs_of(client)
    assert found.data.params["decoding.temperature"] == "0.7"
    assert found.data.params["model"] == "python:team/sums"
    files = {artifact.path for artifact in client.list_artifacts(found.info.run_id, "run")}
    assert {"run/report.html", "run/summary.json", "run/outcomes.parquet", "run/replies.sqlite"} <= files
    table = mlflow.artifacts.load_dict(f"{found.info.artifact_uri}/outcomes.json")
    assert table["columns"] == drawn.outcomes.columns
    assert [tuple(row) for row in table["data"]] == drawn.outcomes.rows()


def test_texts_statuses_and_caveats_are_artifacts_and_undefined_metrics_are_not_numbers(drawn, mlflow, client):
    export_runs([drawn.path], "mlflow")
    (found,) = runs_of(client)
    prompts = drawn.folder.read_about()["prompt_set"]
    texts = {f"about.prompt_set.{name}": text for name, text in prompts.items()}
    assert not set(texts) & set(found.data.params)
    for name, text in texts.items():
        assert mlflow.artifacts.load_text(f"{found.info.artifact_uri}/texts/{name}.txt") == text
    table = mlflow.artifacts.load_dict(f"{found.info.artifact_uri}/metrics.json")
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]
    assert len(rows) == drawn.metrics.height
    undefined = [row for row in rows if row["status"] == "undefined"]
    assert undefined
    assert all(row["estimate"] is None and row["reason"] for row in undefined)
    assert not {f"{row['variant']}/{row['metric']}" for row in undefined} & set(found.data.metrics)
    caveats = mlflow.artifacts.load_text(f"{found.info.artifact_uri}/caveats.txt").splitlines()
    assert len(caveats) == sum(len(variant["caveats"]) for variant in drawn.document["variants"])


@pytest.mark.nightly
def test_mlflow_loads_the_outcome_table(drawn, mlflow, client, monkeypatch):
    pytest.importorskip("pandas")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "refusal-index")
    export_runs([drawn.path], "mlflow")
    frame = mlflow.load_table("outcomes.json", run_ids=[runs_of(client)[0].info.run_id])
    assert frame["question_id"].tolist() == drawn.outcomes["question_id"].to_list()


@pytest.mark.nightly
def test_exporting_again_updates_the_same_run(drawn, client):
    export_runs([drawn.path], "mlflow")
    export_runs([drawn.path], "mlflow")
    (found,) = runs_of(client)
    assert found.data.metrics == numbers(json.loads(drawn.folder.summary.read_text()))


@pytest.mark.nightly
def test_later_values_replace_earlier_ones_and_undefined_becomes_nan(drawn, client):
    (run,) = read_exported([drawn.path])
    before = {**run.document, "weighted_score_p": 7.0, "low": {"no_longer_defined": 3.0}}
    tracker = tracker_class("mlflow")(Subject(run.key, "logged as it goes"))
    for questions in range(3):
        tracker.count({"progress/questions": float(questions)})
    tracker.log(replace(run, written=before))
    export_runs([drawn.path], "mlflow")
    (found,) = runs_of(client)
    metrics = {name: value for name, value in found.data.metrics.items() if not math.isnan(value)}
    assert metrics == {**numbers(run.document), "progress/questions": 2.0}
    assert math.isnan(found.data.metrics["low/no_longer_defined"])


@pytest.mark.nightly
def test_status_tag_is_updated_when_the_run_completes(drawn, incomplete, client):
    (run,) = read_exported([incomplete])
    for one, said in (
        (run, "incomplete: high, 10 of 40 questions not scored"),
        (read_exported([drawn.path])[0], "complete"),
    ):
        tracker_class("mlflow")(Subject("0123456789abcdef", "the same run")).log(one)
        (found,) = runs_of(client)
        assert found.data.tags["refusal_index.status"] == said


@pytest.mark.nightly
def test_waiting_run_is_scheduled_and_resumes_as_the_same_run(drawn, client):
    (run,) = read_exported([drawn.path])
    tracker_class("mlflow")(Subject(run.key, "waits")).wait()
    assert [one.info.status for one in runs_of(client)] == ["SCHEDULED"]
    export_runs([drawn.path], "mlflow")
    assert [one.info.status for one in runs_of(client)] == ["FINISHED"]


@pytest.mark.nightly
def test_experiment_name_comes_from_mlflow_settings(drawn, client, monkeypatch):
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "of mine")
    export_runs([drawn.path], "mlflow")
    assert len(runs_of(client, "of mine")) == 1


def test_unreachable_server_error_is_one_line_without_the_password(drawn, monkeypatch):
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:hush-hush@127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(TrackerError, match=r"^mlflow: http://127\.0\.0\.1:9 cannot be reached \(connection refused\)$"):
        export_runs([drawn.path], "mlflow")


@pytest.mark.nightly
def test_retries_are_few_unless_mlflow_settings_ask_for_more(drawn, monkeypatch):
    from mlflow.utils import rest_utils

    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    tried = []

    def refused(*_args, **given):
        names = ("MAX_RETRIES", "TIMEOUT")
        tried.append([os.environ.get(f"MLFLOW_HTTP_REQUEST_{name}") for name in names])
        raise ConnectionError("Connection refused")

    monkeypatch.setattr(rest_utils, "_get_http_response_with_retries", refused)
    for own, known in ((None, "2"), ("5", "5")):
        if own is not None:
            monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", own)
        with pytest.raises(TrackerError, match="cannot be reached"):
            export_runs([drawn.path], "mlflow")
        assert tried.pop() == [known, "20"]
        assert os.environ.get("MLFLOW_HTTP_REQUEST_MAX_RETRIES") == own  # restored afterwards


@pytest.mark.nightly
def test_run_that_fails_while_logging_is_marked_failed(drawn, mlflow, client, monkeypatch):
    def full(*_args):
        raise OSError("No space left on device")

    monkeypatch.setattr(mlflow.MlflowClient, "log_artifact", full)
    with pytest.raises(TrackerError, match="mlflow: OSError: No space left on device"):
        export_runs([drawn.path], "mlflow")
    assert [one.info.status for one in runs_of(client)] == ["FAILED"]


@pytest.mark.nightly
def test_hostile_variant_names_become_valid_metric_names(drawn, client, tmp_path):
    import polars as pl

    drawn.outcomes.with_columns(variant=pl.concat_str(pl.lit("../a;b\n/"), pl.col("variant"))).write_parquet(
        tmp_path / "hostile.parquet"
    )
    export_runs([tmp_path / "hostile.parquet"], "mlflow")
    (found,) = runs_of(client)
    assert "_a_b_low/correct_rate" in found.data.metrics
