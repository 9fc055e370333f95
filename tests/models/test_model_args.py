"""Arguments of models that Inspect makes: what is passed on, what is part of the identity, and what is refused."""

from __future__ import annotations

import asyncio
import json

import polars as pl
import pytest

import refusal_index as ri
from refusal_index.data.folder import RunFolder
from refusal_index.models.requests import ModelError
from refusal_index.models.settings import SettingError
from refusal_index.plugins.inspect import client
from refusal_index.protocol import Role
from refusal_index.render.sentences import sentence
from refusal_index.runs.execute import execute
from refusal_index.runs.plan import prepare
from refusal_index.runs.reuse import prepare_regrade
from refusal_index.runs.settings import Settings
from tests.models.conftest import make_dataset

KEY = "sk-proj-3fGh8jKl2mNp5qRs"


def read(*written: str) -> dict[str, object]:
    return dict(Settings.from_values(model_args=list(written)).sending.model_args)


@pytest.mark.parametrize(
    "written",
    ["tensor_parallel_size=4", "gpu-memory-utilization=.9", "enforce_eager=true", "devices=0,1", "name=a=b", "x=null"],
)
def test_options_are_parsed_as_inspect_parses_them(written):
    from inspect_ai._util.config import parse_cli_args

    assert read(written) == parse_cli_args((written,))


def test_values_of_toml_and_python_keep_their_types():
    given = {"tensor_parallel_size": 4, "enforce_eager": True, "rope_scaling": {"factor": 2.0}}
    assert dict(Settings.from_values(model_args=given).sending.model_args) == given


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("tensor_parallel_size", "expected NAME=VALUE"),
        ("=4", "expected NAME=VALUE"),
        (["a=1", "a=2"], "a: is given twice"),
        ("a=[1", "expected a value of YAML"),
        ("base_url=http://127.0.0.1/v1", "base_url: is set by the run"),
        ({"a": object()}, "expected a value that JSON can hold"),
        ({"a": float("nan")}, "expected a value that JSON can hold"),
        ({"a b": 1}, "expected the name of an argument"),
    ],
)
def test_unusable_arguments_are_refused(value, message):
    with pytest.raises(SettingError, match=message):
        Settings.from_values(model_args=value)


@pytest.mark.parametrize(
    "value",
    [f"api_key={KEY}", "hf_token=swordfish", f"note={KEY}", {"default_headers": {"Authorization": "swordfish"}}],
)
def test_keys_are_refused_and_not_shown(value):
    with pytest.raises(SettingError, match="holds a key or a password") as raised:
        Settings.from_values(model_args=value)
    assert KEY not in str(raised.value)
    assert "swordfish" not in str(raised.value)


def test_arguments_reach_the_server_that_vllm_is_started_with(monkeypatch):
    monkeypatch.delenv("VLLM_BASE_URL", raising=False)
    settings = Settings.from_values(model_args=["tensor_parallel_size=4", "enforce_eager=true"])
    made = client.make_client(Role.MODEL, "vllm/some/weights-of-a-test", None, settings)
    assert made.connection.api.server_args == {"tensor_parallel_size": 4, "enforce_eager": True}


@pytest.mark.parametrize(("role", "passed"), [(Role.MODEL, {"tensor_parallel_size": 4}), (Role.GRADER, {})])
def test_arguments_are_those_of_the_model_not_of_its_grader(monkeypatch, role, passed):
    arguments = []
    make = client.get_model

    def get_model(name, *, memoize, **given):
        arguments.append(given)
        return make(name, memoize=memoize, **given)

    monkeypatch.setattr(client, "get_model", get_model)
    client.make_client(role, "mockllm/model", None, Settings.from_values(model_args="tensor_parallel_size=4"))
    assert arguments == [passed]


def test_weights_at_temperature_0_keep_their_own_argument(monkeypatch):
    arguments = []
    monkeypatch.setattr(
        client, "get_model", lambda name, *, memoize, **given: arguments.append(given) or pytest.fail.Exception
    )
    with pytest.raises(AttributeError):  # no model was made
        client.resolve_model("hf/some/weights", {"device_map": "auto"}, greedy=True)
    assert arguments == [{"do_sample": False, "device_map": "auto"}]


def test_arguments_of_a_server_that_already_runs_are_an_error(monkeypatch):
    monkeypatch.setenv("VLLM_BASE_URL", "http://127.0.0.1:9/v1")
    with pytest.raises(ModelError, match="VLLM_BASE_URL names a server that is already running"):
        client.resolve_model("vllm/some/weights", {"tensor_parallel_size": 4})


@pytest.mark.parametrize(
    "given", [{"model": "almanac/small"}, {"model": "mockllm/model", "engine": "files"}], ids=["embedded", "engine"]
)
def test_arguments_that_no_client_takes_are_an_error(tmp_path, given):
    settings = Settings.from_values(**given, grader="exact", model_args="tensor_parallel_size=4")
    with pytest.raises(SettingError, match="model_args: requires a model of one of Inspect's providers"):
        prepare(settings, dataset=make_dataset(4), out=tmp_path / "run")


def answer(question: str) -> str:
    return question


def test_arguments_of_a_function_are_an_error():
    with pytest.raises(SettingError, match="model_args: requires a model of one of Inspect's providers"):
        ri.evaluate(answer, [{"question": "a?", "answer": "b"}], answered_only=True, model_args="a=1")


def planned(tmp_path, **changes):
    common = {"model": "mockllm/model", "grader": "exact", "variants": "normal", "max_retries": 0}
    return prepare(Settings.from_values(**common, **changes), dataset=make_dataset(2), out=tmp_path / "run")


def test_end_to_end_arguments_are_recorded_and_other_hardware_is_a_note(tmp_path):
    arguments = {"tensor_parallel_size": 4, "dtype": "half"}
    first = planned(tmp_path, model_args=arguments)
    assert first.identity["model_args"] == {"dtype": "half"}
    assert first.caveats == ()
    asyncio.run(execute(first))
    about = json.loads((tmp_path / "run" / "run.json").read_text())["about"]
    assert about["model_args"] == [arguments]
    resumed = planned(tmp_path, model_args={**arguments, "tensor_parallel_size": 2}, draws=2)
    assert [caveat.code for caveat in resumed.caveats] == ["other_model_args"]
    said = sentence(resumed.caveats[0])
    assert said.index("tensor_parallel_size=2") < said.index("before") < said.index("tensor_parallel_size=4")
    asyncio.run(execute(resumed))
    about = json.loads((tmp_path / "run" / "run.json").read_text())["about"]
    assert about["model_args"] == [arguments, {**arguments, "tensor_parallel_size": 2}]
    with pytest.raises(ri.RefusalIndexError, match="model_args"):
        planned(tmp_path, model_args={"dtype": "float32"})


def test_run_without_arguments_records_none(tmp_path):
    plan = planned(tmp_path)
    assert "model_args" not in plan.identity
    asyncio.run(execute(plan))
    assert "model_args" not in json.loads((tmp_path / "run" / "run.json").read_text())["about"]


def test_regrading_asks_no_model_so_it_neither_notes_nor_records_arguments(tmp_path):
    arguments = {"tensor_parallel_size": 4}
    asked = Settings.from_values(model="almanac/base", limit=20, variants="low")
    asyncio.run(execute(prepare(asked, out=tmp_path / "run")))
    folder = RunFolder(tmp_path / "run")
    with folder.lock():
        folder.change_about({"model_args": [arguments]})  # an embedded model takes none
    settings = Settings.from_values(grader="python:tests.runs.models:judge", max_retries=0)
    asyncio.run(execute(prepare_regrade(tmp_path / "run", settings, out=tmp_path / "regraded")))
    assert pl.read_parquet(tmp_path / "regraded/outcomes.parquet")["wrong"].null_count() == 0
    about = json.loads((tmp_path / "regraded" / "run.json").read_text())["about"]
    assert about["model_args"] == [arguments], "those with which the replies were made"
    assert prepare_regrade(tmp_path / "run", settings, out=tmp_path / "regraded").caveats == ()
