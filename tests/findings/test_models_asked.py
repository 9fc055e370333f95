"""What is said of the models that answered, by definition of when two names stand for one model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from refusal_index.findings.models_asked import distinct_models, run_caveats
from refusal_index.findings.run_differences import differing_settings, model_statements
from refusal_index.findings.run_results import RunResults
from refusal_index.render.sentences import sentence

OLD, NEW = "gpt-x-2026-06-01", "gpt-x-2026-07-11"


def run_of(label: str, *names: str, model: str = "openai/gpt-x", **about: object) -> RunResults:
    answered = {"answered_by": {"model": dict.fromkeys(names, 10)}} if names else {}
    return RunResults.of_tables(label, Path(label), model, "d", {}, {"model": model}, about={**answered, **about})


@pytest.mark.parametrize(
    ("asked", "names", "expected"),
    [
        ("openai/gpt-x", [OLD], [OLD]),
        ("openai/gpt-x", [OLD, NEW], [OLD, NEW]),
        ("openai/gpt-x", ["gpt-x", OLD], [OLD]),
        ("openai/gpt-x", ["gpt-x", OLD, NEW], ["gpt-x", OLD, NEW]),
        ("openai/gpt-x", ["gpt-x", "gpt-x-mini"], ["gpt-x", "gpt-x-mini"]),
        ("openai/gpt-x", ["gpt-x", "cheap-fallback-1b"], ["gpt-x", "cheap-fallback-1b"]),
        ("vllm/meta-llama/Llama-3", ["meta-llama/llama-3", "Llama-3"], ["meta-llama/llama-3"]),
        ("vllm/llama-3", ["llama-3", "llama-3-70b"], ["llama-3", "llama-3-70b"]),
        ("google/gemini", ["models/gemini", "gemini-001"], ["gemini-001"]),
        ("anthropic/claude", ["claude-latest", "claude"], ["claude-latest"]),
    ],
)
def test_theory_names_of_one_model_are_counted_once(asked, names, expected):
    assert distinct_models(asked, names) == expected


def test_theory_a_change_is_a_serious_caveat_with_the_counts_of_each_model():
    about = {"answered_by": {"model": {NEW: 88, OLD: 212}, "grader": {"judge-0601": 9, "judge": 3}}}
    settings = {"model": "openai/gpt-x", "grader": {"name": "openai/judge"}}
    (statement,) = run_caveats(settings, about)
    assert (statement.code, statement.severity) == ("model_changed", "serious")
    assert statement.values["replies"] == [(OLD, 212), (NEW, 88)]
    assert f"{OLD} gave 212 replies, {NEW} gave 88" in sentence(statement)


def test_theory_a_grader_that_changes_is_named():
    about = {"answered_by": {"grader": {"judge-0601": 9, "judge-0711": 3}}}
    (statement,) = run_caveats({"model": "m", "grader": {"name": "openai/judge"}}, about)
    assert (statement.values["role"], statement.values["asked"]) == ("grader", "openai/judge")


def test_theory_settings_that_were_not_sent_are_a_note():
    settings = {"model": "a/b", "decoding": {"temperature": 0.7, "top_p": 0.95, "max_tokens": 64}}
    sent = {"temperature": None, "top_p": [0.95, None], "max_tokens": 64, "seed": None}
    (statement,) = run_caveats(settings, {"sent": {"model": sent}})
    assert (statement.code, statement.severity) == ("not_sent", "note")
    assert statement.values["settings"] == ["temperature", "top_p"]
    assert run_caveats(settings, {}) == run_caveats({}, {"sent": {"model": sent}}) == ()


def test_theory_replies_without_requested_log_probabilities_are_counted_in_a_note():
    (statement,) = run_caveats({}, {"logprobs": {"replies": 60, "missing": 7}})
    assert (statement.code, statement.severity) == ("without_logprobs", "note")
    assert statement.values == {"replies": 60, "missing": 7}
    assert run_caveats({}, {"logprobs": {"replies": 60, "missing": 0}}) == ()


@pytest.mark.parametrize(
    ("first", "second", "is_said"),
    [
        ((OLD,), (NEW,), True),
        ((OLD,), (OLD,), False),
        (("gpt-x",), (OLD,), False),
        ((OLD,), (OLD, NEW), True),
        ((OLD, NEW), (NEW, OLD), False),
        ((), (OLD,), False),
    ],
)
def test_theory_runs_of_one_name_that_other_models_answered_are_named(first, second, is_said):
    found = list(model_statements([run_of("a", *first), run_of("b", *second)]))
    assert [statement.code for statement in found] == ["other_models_answered"] * is_said
    assert all(statement.severity == "serious" for statement in found)


def test_theory_runs_of_two_names_may_be_answered_by_two_models():
    assert not [*model_statements([run_of("a", OLD), run_of("b", NEW, model="openai/gpt-y")])]


def test_theory_decoding_differs_if_other_settings_were_sent():
    runs = [replace(run_of(name), settings={"decoding": {"temperature": 0.7}}) for name in ("a", "b")]
    sent = [{"sent": {"model": {"temperature": value}}} for value in (0.7, None)]
    differ = [replace(run, about=about) for run, about in zip(runs, sent, strict=True)]
    assert differing_settings(differ) == ("decoding",)
    assert differing_settings([differ[0], runs[1]]) == differing_settings(runs) == ()
