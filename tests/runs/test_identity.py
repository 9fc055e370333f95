"""The identity of a run folder: every setting is part of it or says why not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import refusal_index as ri
from refusal_index.data.datasets import load_dataset, sample
from refusal_index.data.datasets.dataset import questions_from
from refusal_index.data.run_json import as_json
from refusal_index.errors import RunFolderError
from refusal_index.plugins.trackers import tracker
from refusal_index.runs import plan
from refusal_index.runs.plan import Plan, prepare
from refusal_index.runs.reuse import prepare_force
from refusal_index.runs.settings import COMPARABILITY_VERSION, SETTINGS, Settings
from refusal_index.runs.writing import ComparabilityError, rebuild
from tests.runs import models
from tests.runs.models import LOCAL, ROWS

HARMFUL = {
    "model": "almanac/base",
    "grader": "openai/gpt-4o-mini",
    "refusal": "tag",
    "seed": 1,
    "dataset": "own",
    "limit": 5,
    "prompts": "paraphrases",
    "placement": "system",
    "answered_only": True,
    "think": "/no_think",
    "temperature": 0.0,
    "top_p": 1.0,
    "max_tokens": 10,
    "reasoning_effort": "low",
}
HARMLESS = {
    "data": ("again/own.csv",),
    "column": {"question": "question"},
    "variants": "low,high",
    "draws": 3,
    "repeat_questions": 4,
    "engine": "batch",
    "max_connections": 3,
    "max_retries": 0,
    "attempt_timeout": 9,
    "max_choices": 2,
    "logprobs": True,
    "price": "1,2",
    "grader_price": "3,4",
    "retry": "first_empty",
    "detach": True,
    "ray_address": "auto",
    "command": "true {requests} {replies}",
    "engine_option": {"poll": "1"},
    "batch_rate": 0.5,
    "max_requests": 10,
    "max_cost": 1.0,
    "max_time": 60.0,
    "half_width": 0.1,
    "looks": 3,
    "penalty": 2.0,
    "truthfulness_weights": (1.0, 0.5, 2.0),
    "log_to": "wandb",
    "assume_refusal": 0.1,
    "reply_tokens": 7,
    "seconds_per_request": 1.0,
}
"""A value other than the default for every setting."""


@pytest.fixture(autouse=True)
def every_tracker_is_installed(monkeypatch):
    monkeypatch.setattr(tracker, "find_spec", lambda _name: True)


def planned(**values: Any) -> Plan:
    if "max_cost" in values:
        values = {"price": (1.0, 2.0), "grader_price": (1.0, 2.0), **values}
    if "repeat_questions" in values:
        values["draws"] = 3
    return prepare(Settings.from_values(**{"model": "almanac/small", "limit": 6, **values}))


def questions(folder: str, text: str = "What is {n} plus {n}?") -> list[str]:
    path = Path(folder)
    path.mkdir(exist_ok=True)
    rows = [{"question": text.format(n=n), "answer": str(2 * n)} for n in range(8)]
    (path / "own.csv").write_text("question,answer\n" + "".join(f"{row['question']},{row['answer']}\n" for row in rows))
    return [str(path / "own.csv")]


def test_every_setting_is_classified_by_its_effect_on_identity():
    assert sorted([*HARMFUL, *HARMLESS]) == sorted(SETTINGS)


@pytest.mark.parametrize("name", [name for name in HARMFUL if name != "dataset"])
def test_settings_that_change_replies_change_the_identity(name):
    one, other = planned(), planned(**{name: HARMFUL[name]})
    assert one.settings.value(name) != other.settings.value(name)
    assert as_json(one.identity) != as_json(other.identity)
    assert one.folder.path != other.folder.path


ENGINE_SETTINGS = {"detach": "batch", "ray_address": "ray", "command": "command", "engine_option": "ray"}


@pytest.mark.parametrize("name", [name for name in HARMLESS if name not in {"data", "column", *ENGINE_SETTINGS}])
def test_harmless_settings_keep_the_folder(name):
    one, other = planned(), planned(**{name: HARMLESS[name]})
    assert one.settings.value(name) != other.settings.value(name)
    assert as_json(one.identity) == as_json(other.identity)
    assert one.folder.path == other.folder.path


def test_identity_depends_on_own_questions_not_on_their_path():
    here, there, others = questions("here"), questions("there"), questions("others", "What is {n} and {n}?")
    own = {"grader": "exact", "limit": None}
    one = planned(data=here, **own)
    assert one.folder.path != planned(grader="exact").folder.path
    for same in ({"data": there}, {"data": here, "dataset": "own"}, {"data": here, "column": HARMLESS["column"]}):
        assert as_json(planned(**same, **own).identity) == as_json(one.identity)
    for different in ({"data": others}, {"data": here, "column": {"answer": "question"}}):
        assert planned(**different, **own).folder.path != one.folder.path


COMMON_SETTINGS = (HARMFUL.keys() | HARMLESS.keys()) - {"data", "column", "dataset"} - ENGINE_SETTINGS.keys()
CHANGES = st.sets(st.sampled_from(sorted(COMMON_SETTINGS)))


@pytest.mark.parametrize(("name", "engine"), ENGINE_SETTINGS.items())
def test_engine_settings_are_harmless_and_rejected_by_other_engines(name, engine):
    own = planned(**{name: HARMLESS[name], "engine": engine})
    assert as_json(own.identity) == as_json(planned().identity)
    with pytest.raises(ri.RefusalIndexError, match=f"{name}: requires engine .*{engine}"):
        planned(**{name: HARMLESS[name], "engine": "direct"})


@settings(max_examples=10)  # each loads a dataset
@given(CHANGES)
def test_folder_is_kept_exactly_if_all_changes_are_harmless_property(names):
    values = HARMFUL | HARMLESS
    same = as_json(planned(**{name: values[name] for name in names}).identity) == as_json(planned().identity)
    assert same is not bool(names & HARMFUL.keys())


@given(CHANGES, st.randoms())
def test_order_of_settings_does_not_matter_property(names, random):
    values, order = HARMFUL | HARMLESS, sorted(names)
    random.shuffle(order)
    assert Settings.from_values(**{name: values[name] for name in order}) == Settings.from_values(
        **{name: values[name] for name in sorted(names)}
    )


def test_the_same_settings_always_name_the_same_folder():
    plan = prepare(Settings.from_values(model="almanac/small", limit=12))
    assert plan.folder.path.name == "almanac-small-almanac-8c1e6286"


def test_every_field_of_a_question_counts():
    base = {"id": "q", "question": "Which?", "answer": "B", "choices": "A|B", "context": "c", "topic": "t"}
    base |= {"aliases": "b|bb", "pattern": ".+"}
    found = {questions_from([base]).questions_sha256}
    for name, value in {
        "id": "r",
        "question": "What?",
        "answer": "A",
        "choices": "A|B|C",
        "context": "d",
        "topic": "u",
        "aliases": "b",
        "pattern": "[AB]",
    }.items():
        found.add(questions_from([base | {name: value}]).questions_sha256)
    assert len(found) == 1 + len(base)


def test_samples_are_nested_and_depend_on_the_seed():
    dataset = load_dataset("almanac")
    small, large = (set(sample(dataset, size, 0).questions) for size in (5, 50))
    assert small < large
    assert planned(seed=1).dataset.questions_sha256 != planned().dataset.questions_sha256


def test_comparability_version_is_part_of_the_identity(monkeypatch):
    before = planned()
    monkeypatch.setattr(plan, "COMPARABILITY_VERSION", COMPARABILITY_VERSION + 1)
    assert planned().folder.path != before.folder.path


def test_regex_graded_runs_have_a_higher_comparability_version():
    """Their patterns use the syntax of `regex`; formerly they used that of `re`."""
    rows = [{**row, "pattern": ".*"} for row in ROWS]
    run = ri.evaluate(models.answer, rows, out="run", **{**LOCAL, "grader": "regex"})
    assert run.folder.read_settings()["comparability_version"] == COMPARABILITY_VERSION + 1
    run.folder.change_settings({"comparability_version": COMPARABILITY_VERSION})
    with pytest.raises(ComparabilityError, match=f"this release grades by version {COMPARABILITY_VERSION + 1}"):
        rebuild(Path("run"))
    anew = rebuild(Path("run"), regrade=True)
    assert anew.folder.read_settings()["comparability_version"] == COMPARABILITY_VERSION + 1


@pytest.fixture
def other_version_run() -> ri.Run:
    """Return a run whose folder says that it was graded by other rules, with results that reveal an overwrite."""
    run = ri.evaluate(models.answer, ROWS, out="run", **LOCAL)
    document = json.loads(run.folder.run_json.read_text())
    document["settings"]["comparability_version"] = 0
    run.folder.run_json.write_text(json.dumps(document))
    run.folder.write_summary("as it was")
    return run


def test_folder_graded_by_other_rules_is_left_unchanged(other_version_run):
    before = {path: path.read_bytes() for path in Path("run").rglob("*") if path.is_file()}
    with pytest.raises(ComparabilityError, match=r"run was made under comparability version 0.*kept as they are"):
        rebuild(Path("run"))
    assert {path: path.read_bytes() for path in Path("run").rglob("*") if path.is_file()} == before
    with pytest.raises(RunFolderError, match=f"comparability_version: 0 before, {COMPARABILITY_VERSION} now"):
        ri.evaluate(models.answer, ROWS, out="run", **LOCAL)


def test_regrading_on_request_updates_the_comparability_version(other_version_run):
    models.ASKED.clear()
    run = rebuild(Path("run"), regrade=True)
    assert run.outcomes.equals(other_version_run.outcomes)
    assert run.folder.read_settings()["comparability_version"] == COMPARABILITY_VERSION
    assert ri.evaluate(models.answer, ROWS, out="run", **LOCAL).outcomes.equals(run.outcomes)
    assert not models.ASKED


def test_rebuilding_needs_no_model_and_creates_no_folder():
    run = ri.evaluate(models.answer, ROWS, out="run", **LOCAL)
    models.ASKED.clear()
    for path in (run.folder.outcomes, run.folder.summary, run.folder.report):
        path.unlink()
    again = rebuild(Path("run"), penalty=2.0)
    assert again.outcomes.equals(run.outcomes)
    assert again.summary != run.summary
    assert not models.ASKED
    with pytest.raises(RunFolderError):
        rebuild(Path("nowhere"))
    assert not Path("nowhere").exists()


@pytest.mark.parametrize("header", ["grade", "grade,forced_grade"])
def test_first_pass_digest_ignores_other_columns(tmp_path, header):
    """The digest of the first pass: folders made before files could hold both passes can still be resumed."""
    path, further = tmp_path / "m1.csv", ",A" * header.count(",")
    rows = "".join(f"{row}{further}\n" for row in ("a,Who?,I,no idea,C", "b,What?,It,that,B"))
    path.write_text(f"id,problem,target,predicted_answer,{header}\n{rows}")
    plan = prepare_force(path, Settings.from_values(model="mockllm/model", grader="exact"), out=tmp_path / "x")
    digest = "ed8fe55f0577152289093afe20229e1c1b711eaaefa27547f2168867eb3fe40d"
    assert plan.identity["first_pass"]["answers_sha256"] == digest
