"""The identity of a run folder: every setting is part of it or says why not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import refusal_index as ri
from refusal_index.data.analysis import Analysis
from refusal_index.data.datasets import load_dataset, sample
from refusal_index.data.datasets.dataset import questions_from
from refusal_index.data.run_json import as_json
from refusal_index.errors import RunFolderError
from refusal_index.models.settings import Setting
from refusal_index.plugins.trackers import tracker
from refusal_index.protocol import GraderPrompt
from refusal_index.runs import identity
from refusal_index.runs.plan import Plan, prepare
from refusal_index.runs.rebuild import ComparabilityError, rebuild
from refusal_index.runs.reuse import prepare_force
from refusal_index.runs.settings import COMPARABILITY_VERSION, SETTINGS, Settings
from tests.runs import models
from tests.runs.models import LOCAL, ROWS

VALUES: dict[str, Any] = {
    "model": "almanac/base",
    "grader": "openai/gpt-4o-mini",
    "grader_prompt": "grader.toml",
    "refusal": "tag",
    "reasoning": r"\[\[.*?\]\]",
    "dataset": "own",
    "data": ("again/own.csv",),
    "column": {"question": "question"},
    "encoding": "latin-1",
    "limit": 5,
    "prompts": "paraphrases",
    "variants": "low,high",
    "draws": 3,
    "repeat_questions": 4,
    "engine": "batch",
    "retry": "first_empty",
    "command": "true {requests} {replies}",
    "engine_option": {"poll": "1"},
    "base_url": "http://127.0.0.1:8000/v1",
    "grader_base_url": "http://127.0.0.1:9000/v1",
    "header": {"X-Gateway": "env:GATEWAY_KEY"},
    "extra_body": {"top_k": 20},
    "model_args": {"dtype": "half"},
    "price": "1,2",
    "grader_price": "3,4",
    "truthfulness_weights": (1.0, 0.5, 2.0),
    "log_to": "wandb",
}
"""Values other than the default, for settings of which not every text or number of their range can be used."""


def other_value(setting: Setting) -> Any:
    """Return a value other than the default."""
    if setting.name in VALUES:
        return VALUES[setting.name]
    candidates: list[Any] = [*setting.choices, not setting.default] if setting.kind is bool else [*setting.choices]
    if setting.kind in (int, float):
        candidates += [end for end in ((setting.default or 0) + 1, setting.low, setting.high) if end is not None]
    elif setting.kind is str:
        candidates.append("other")
    for value in candidates:
        try:
            read = setting.read(value)
        except ri.RefusalIndexError:
            continue
        if read != setting.default:
            return value
    return pytest.fail(f"{setting.name}: add a value other than its default to VALUES in {Path(__file__).name}")


OTHER = {name: other_value(setting) for name, setting in SETTINGS.items()}
IDENTIFYING = {name for name, setting in SETTINGS.items() if setting.identity != "no"}
SERVED = {"model": "any", "base_url": "http://127.0.0.1:7000/v1"}
SERVED_ONLY = {"header", "extra_body", "api_key_env"}
GRADER_SERVED = {"grader": "openai/any", "grader_base_url": "http://127.0.0.1:7000/v1"}
GRADER_SERVED_ONLY = {"grader_api_key_env", "grader_prompt"}
GRADER_PROMPT = """gold = '<q>{question}</q> <g>{gold}</g> <p>{prediction}</p> A, B or C?'"""


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


OWN_FILES = {"dataset", "data", "column", "encoding"}


def needed_by(name: str) -> dict[str, str]:
    """Return the settings that a setting requires."""
    own = {"grader_base_url": {"grader": "openai/any"}, "model_args": {"model": "mockllm/model"}}
    if name in own:
        return own[name]
    return SERVED if name in SERVED_ONLY else GRADER_SERVED if name in GRADER_SERVED_ONLY else {}


@pytest.mark.parametrize("name", sorted(IDENTIFYING - OWN_FILES))
def test_settings_that_change_replies_change_the_identity(name):
    Path("grader.toml").write_text(GRADER_PROMPT)
    one, other = planned(**needed_by(name)), planned(**needed_by(name), **{name: OTHER[name]})
    assert one.settings.value(name) != other.settings.value(name)
    assert as_json(one.identity) != as_json(other.identity)
    assert one.folder.path != other.folder.path


ENGINE_SETTINGS = {"detach": "batch", "ray_address": "ray", "command": "command", "engine_option": "ray"}


@pytest.mark.parametrize("name", sorted(SETTINGS.keys() - IDENTIFYING - ENGINE_SETTINGS.keys()))
def test_harmless_settings_keep_the_folder(name):
    one, other = planned(**needed_by(name)), planned(**needed_by(name), **{name: OTHER[name]})
    assert one.settings.value(name) != other.settings.value(name)
    assert as_json(one.identity) == as_json(other.identity)
    assert one.folder.path == other.folder.path


RECORDED = (
    '{"placement": "user", "think": null, "decoding": {"temperature": 0.7, "top_p": 0.95, "max_tokens": 4096, '
    '"reasoning_effort": null}, "model": "almanac/base", "seed": 0}'
)
RECORDED_IF_SET = (
    '{"named_by_server": true, "placement": "system", "think": "/no_think", "answered_only": true, '
    '"decoding": {"temperature": 0.0, "top_p": 1.0, "max_tokens": 10, "reasoning_effort": "low"}, '
    '"headers": ["x-gateway"], '
    '"extra_body": {"top_k": 20}, "model": "any", "seed": 1}'
)


def test_folders_record_the_settings_as_they_did_in_earlier_versions():
    """If one differs, no earlier run can be resumed: a setting that is new takes ``identity="if_set"``."""
    assert json.dumps(Settings().recorded()) == RECORDED
    decoding = {"temperature": 0, "top_p": 1, "max_tokens": 10, "reasoning_effort": "low"}
    prompting = {"placement": "system", "think": "/no_think", "answered_only": True, "seed": 1}
    wire = {**SERVED, "header": {"X-Gateway": "env:KEY"}, "extra_body": '{"top_k":20}'}
    assert json.dumps(Settings.from_values(**decoding, **prompting, **wire).recorded()) == RECORDED_IF_SET


NOT_RESTORED = {"header", "base_url"}
"""Whose values, the name of an environment variable and an address, are not recorded."""


def test_what_a_folder_records_restores_the_settings():
    recorded_by_value = {name for name in SETTINGS if SETTINGS[name].identity in ("always", "if_set")}
    for values in ({}, {name: OTHER[name] for name in recorded_by_value}):
        settings = Settings.from_values(**values)
        restored = Settings.from_values(max_retries=9).restored(json.loads(json.dumps(settings.recorded())))
        for name in recorded_by_value - NOT_RESTORED:
            assert restored.value(name) == settings.value(name), name
        assert restored.sending.max_retries == 9


def test_identity_depends_on_own_questions_not_on_their_path():
    here, there, others = questions("here"), questions("there"), questions("others", "What is {n} and {n}?")
    own = {"grader": "exact", "limit": None}
    one = planned(data=here, **own)
    assert one.folder.path != planned(grader="exact").folder.path
    explicit = [{"dataset": "own"}, {"column": OTHER["column"]}, {"encoding": OTHER["encoding"]}]
    for same in ({"data": there}, *({"data": here, **values} for values in explicit)):
        assert as_json(planned(**same, **own).identity) == as_json(one.identity)
    for different in ({"data": others}, {"data": here, "column": {"answer": "question"}}):
        assert planned(**different, **own).folder.path != one.folder.path


NEED_ANOTHER = {"grader_base_url", "model_args", *SERVED_ONLY, *GRADER_SERVED_ONLY, *ENGINE_SETTINGS}
COMMON_SETTINGS = SETTINGS.keys() - OWN_FILES - NEED_ANOTHER
CHANGES = st.sets(st.sampled_from(sorted(COMMON_SETTINGS)))


@pytest.mark.parametrize(("name", "engine"), ENGINE_SETTINGS.items())
def test_engine_settings_are_harmless_and_rejected_by_other_engines(name, engine):
    own = planned(**{name: OTHER[name], "engine": engine})
    assert as_json(own.identity) == as_json(planned().identity)
    with pytest.raises(ri.RefusalIndexError, match=f"{name}: requires engine .*{engine}"):
        planned(**{name: OTHER[name], "engine": "direct"})


@settings(max_examples=10)  # each loads a dataset
@given(CHANGES)
def test_folder_is_kept_exactly_if_all_changes_are_harmless_property(names):
    same = as_json(planned(**{name: OTHER[name] for name in names}).identity) == as_json(planned().identity)
    assert same is not bool(names & IDENTIFYING)


@given(CHANGES, st.randoms())
def test_order_of_settings_does_not_matter_property(names, random):
    order = sorted(names)
    random.shuffle(order)
    assert Settings.from_values(**{name: OTHER[name] for name in order}) == Settings.from_values(
        **{name: OTHER[name] for name in sorted(names)}
    )


def test_the_same_settings_always_name_the_same_folder():
    plan = prepare(Settings.from_values(model="almanac/small", limit=12))
    assert plan.folder.path.name == "almanac-small-almanac-a5997b2b"


def test_every_field_of_a_question_counts():
    base = {"id": "q", "question": "Which?", "answer": "B", "choices": "A|B", "context": "c", "topic": "t"}
    base |= {"aliases": "x|xx", "pattern": ".+"}
    found = {questions_from([base]).questions_sha256}
    for name, value in {
        "id": "r",
        "question": "What?",
        "answer": "A",
        "choices": "A|B|C",
        "context": "d",
        "topic": "u",
        "aliases": "x",
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
    monkeypatch.setattr(identity, "COMPARABILITY_VERSION", COMPARABILITY_VERSION + 1)
    assert planned().folder.path != before.folder.path


@pytest.mark.parametrize("grader", ["exact", "includes", "regex"])
def test_runs_of_all_rules_have_one_comparability_version(grader):
    rows = [{**row, "pattern": ".*"} for row in ROWS]
    run = ri.evaluate(models.answer, rows, out="run", **{**LOCAL, "grader": grader})
    assert COMPARABILITY_VERSION == 4
    assert run.folder.read_settings()["comparability_version"] == COMPARABILITY_VERSION
    run.folder.change_settings({"comparability_version": 3})
    with pytest.raises(ComparabilityError, match="this release grades by version 4"):
        rebuild(Path("run"))
    anew = rebuild(Path("run"), regrade=True)
    assert anew.folder.read_settings()["comparability_version"] == COMPARABILITY_VERSION


def test_edited_file_of_phrases_is_another_run(tmp_path):
    phrases = tmp_path / "phrases.txt"
    phrases.write_text("no comment\n# ours\n")
    one = planned(grader="exact", refusal=f"@{phrases}")
    assert one.identity["grader"]["refusal"] == "+(?:no comment)"
    (tmp_path / "copy.txt").write_text("# a copy\nno comment")
    assert planned(grader="exact", refusal=f"@{tmp_path / 'copy.txt'}").folder.path == one.folder.path
    phrases.write_text("no comment\nask legal\n")
    assert planned(grader="exact", refusal=f"@{phrases}").folder.path != one.folder.path


def test_model_that_recognises_refusals_and_its_prompt_are_part_of_the_identity(monkeypatch):
    by_model = {"grader": "exact", "refusal": "model:mockllm/model"}
    one = planned(**by_model)
    grader = one.identity["grader"]
    assert (grader["name"], grader["refusal"]) == ("exact", "model:mockllm/model")
    assert len(grader["refusal_prompt_sha256"]) == 64
    assert one.graders == ("mockllm/model",)
    assert planned(**by_model | {"refusal": "model:mockllm/other"}).folder.path != one.folder.path
    monkeypatch.setattr(identity, "default_grader_prompt", lambda: GraderPrompt("{question}", "another wording"))
    assert planned(**by_model).folder.path != one.folder.path


@pytest.fixture
def other_version_run() -> ri.RunResults:
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
    again = rebuild(Path("run"), Analysis(weighted_score_p=2.0))
    assert again.outcomes.equals(run.outcomes)
    assert again.summary != run.summary
    assert not models.ASKED
    with pytest.raises(RunFolderError):
        rebuild(Path("nowhere"))
    assert not Path("nowhere").exists()


@pytest.mark.parametrize("header", ["grade", "grade,forced_grade"])
def test_first_pass_digest_ignores_other_columns(tmp_path, header):
    """The digest of the first pass is the same whether or not the file has forced grades."""
    path, further = tmp_path / "m1.csv", ",A" * header.count(",")
    rows = "".join(f"{row}{further}\n" for row in ("a,Who?,I,no idea,C", "b,What?,It,that,B"))
    path.write_text(f"id,problem,target,predicted_answer,{header}\n{rows}")
    plan = prepare_force(path, Settings.from_values(model="mockllm/model", grader="exact"), out=tmp_path / "x")
    digest = "f4f3ac8c379bd2b92d582123fc7d3b330a857b32b1005ee7ec3b992f9eafe62c"
    assert plan.identity["first_pass"]["answers_sha256"] == digest
