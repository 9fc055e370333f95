"""The first line of a gate says what to do and why: true for every verdict and reason, and the same in every output."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from junitparser import JUnitXml
from tests.findings.test_gate import N, draws_of, guard, recorded, run_of, without

from refusal_index.findings.gate import GateResult, decide, unjudged
from refusal_index.findings.gate_policy import COARSE, MARGINS, Policy
from refusal_index.findings.gate_reasons import next_step
from refusal_index.findings.metrics import METRICS
from refusal_index.findings.run_results import RunResults
from refusal_index.render.gate import gate_document, to_junit, to_markdown
from refusal_index.render.sentences import sentences

WIDEST = Policy(margins=dict.fromkeys(MARGINS, 1.0))


@pytest.fixture(scope="module")
def base() -> RunResults:
    return run_of(*draws_of(0.6, 1), "v1")


def v2(rho: float = 0.6, **changed: float) -> RunResults:
    return run_of(*draws_of(rho, 3, **changed), "v2")


def reasons(found: GateResult) -> list[tuple[str, list[str]]]:
    return [(reason.code, reason.values.get("metrics", [])) for reason in found.statements[0].values["reasons"]]


def test_passing_candidate_may_be_shipped(base):
    found = decide(v2(), base, WIDEST)
    assert found.statements[0].code == "gate_passes"
    assert found.why == "You may ship v2: it is not worse than v1 by more than the limits allow (95% confidence)."
    bounds = {"at_least": {"correct_rate": 0.0}}
    assert (
        "v1 by more than the limits allow, and within its bounds (95%"
        in decide(v2(), base, WIDEST.changed(**bounds)).why
    )
    assert decide(v2(), None, Policy(**bounds)).why == "You may ship v2: it is within its bounds (95% confidence)."


def test_failing_candidate_is_not_to_be_shipped_for_the_reasons_of_its_failing_guards(base):
    found = decide(v2(-0.3, error=-1.2), base, Policy())
    failed = [one.guard.name for one in found.guards if one.test.verdict == "fail"]
    assert failed == ["refusal_index", "correct_rate", "correct_given_attempted"]
    assert reasons(found) == [("guard_beyond", failed)]
    assert found.why == (
        "Do not ship v2: it refuses less sensibly, answers fewer questions correctly and is wrong more often when it "
        "answers."
    )
    more = decide(v2(refusal=-0.6), base, Policy())
    assert "refuses more often" in more.why
    assert guard(more, "refusal_rate").test.verdict == "fail"


@pytest.mark.parametrize(("refuses", "word"), [(False, "no"), (True, "every")])
def test_candidate_that_refuses_nothing_or_everything_is_said_to(base, refuses, word):
    _, wrong = draws_of(0.6, 3)
    found = decide(run_of(np.full_like(wrong, refuses), wrong, "v2"), base, Policy())
    assert ("guard_undefined", ["refusal_index"]) in reasons(found)
    assert f"it refused {word} question, so RI is undefined" in found.why


def test_fixed_bounds_are_named_by_what_they_bound(base):
    found = decide(v2(), None, Policy(at_least={"correct_rate": 0.9}, at_most={"refusal_rate": 0.01}))
    assert "answers fewer questions correctly and refuses more often than their bounds allow" in found.why
    assert {reason.values["against"] for reason in found.statements[0].values["reasons"]} == {"bound"}
    reverse = decide(v2(), None, Policy(at_least={"refusal_rate": 0.9}))
    assert [reason.values["against"] for reason in reverse.statements[0].values["reasons"]] == ["reverse_bound"]
    assert reverse.why == "Do not ship v2: it breaks the bound on the refusal rate."


def test_too_few_questions_ask_for_more(base):
    found = decide(v2(), base, Policy())
    assert (found.statements[0].code, found.statements[0].values["step"]) == ("gate_undecided", "ask_more")
    assert found.why.startswith("Ask more questions before you ship v2: it is uncertain whether it ")
    worse = decide(v2(0.42), base, Policy(margins={**dict.fromkeys(MARGINS, 1.0), "refusal_index": 0.1}))
    assert reasons(worse) == [("guard_looks_beyond", ["refusal_index"])]
    assert "so far it refuses less sensibly, by more than the limit, which may be chance" in worse.why


def test_questions_that_would_not_help_are_not_asked_for(base):
    found = decide(
        base,
        None,
        Policy(
            at_least={
                "correct_rate": float((~base.tables["normal"]["wrong"] & ~base.tables["normal"]["refused"]).mean())
            }
        ),
    )
    assert (found.verdict, found.more_questions) == ("inconclusive", None)
    assert found.why.startswith("Let a person decide before you ship v1: ")


def test_incomplete_candidate_is_to_be_completed(base):
    found = decide(recorded(without(base, 20)), recorded(base), WIDEST)
    assert (reasons(found), found.statements[0].values["step"]) == ([("too_many_missing", [])], "complete")
    assert found.why.startswith("Complete the answers before you ship ")


def test_gate_that_was_interrupted_is_to_be_run_again(base):
    found = unjudged(v2(), base, Policy(), "normal", "the server is gone")
    assert (reasons(found), found.statements[0].values["step"]) == ([("unasked", [])], "resume")
    assert found.why.startswith("Run the same command again before you ship v2: ")
    assert "the server is gone" in found.why


@pytest.mark.parametrize(
    ("codes", "more", "missing", "step"),
    [
        (["guard_may_be_beyond", "guard_refused_again"], True, False, "force_answers"),
        (["guard_not_sampled_twice"], False, False, "sample_twice"),
        (["guard_imputed"], False, True, "complete"),
        (["guard_imputed"], False, False, "force_answers"),
        (["guard_imputed", "guard_looks_beyond"], True, True, "ask_more"),
        (["guard_unjudged"], False, False, "decide"),
        (["between_looks"], False, True, "resume"),
        (["too_few_shared"], False, True, "complete"),
    ],
)
def test_next_step_follows_from_the_reasons(codes, more, missing, step):
    assert next_step(codes, more_would_help=more, is_missing=missing) == step
    assert step in sentences()["next_step"]


def test_settings_that_differ_and_equal_runs_stand_in_the_first_line(base):
    hot = replace(recorded(v2()), settings={**recorded(v2()).settings, "decoding": {"temperature": 1.0}})
    found = decide(hot, recorded(base), WIDEST)
    assert found.verdict == "pass"
    assert found.why.endswith(
        " But the runs also used different settings (temperature, top-p or maximum tokens), which may be the reason."
    )
    assert decide(base, base, WIDEST).why.endswith(
        " But both are the same run, or copies of it, so no models are compared."
    )


def test_two_runs_of_one_name_are_told_apart(base):
    found = decide(run_of(*draws_of(0.6, 3), "v1"), base, WIDEST)
    assert found.why.startswith("You may ship v1 (candidate): it is not worse than the baseline by more ")


def test_every_metric_has_words_for_being_worse():
    assert set(sentences()["worse"]) == set(METRICS)


@pytest.mark.parametrize("policy", [Policy(), WIDEST, Policy(margins=COARSE, at_most={"refusal_rate": 0.01})], ids=str)
def test_first_line_is_the_same_in_every_output(base, policy):
    found = decide(v2(0.5), base, policy)
    text = " ".join(str(found).split())
    assert text.startswith(f"{found.verdict.upper()}. {found.why} ")
    assert gate_document(found)["why"] == found.why
    assert to_markdown(found).replace("\\", "").splitlines()[2] == found.why
    (suite,) = JUnitXml.fromstring(to_junit(found))
    case = next(case for case in suite if case.name == "verdict")
    assert [result.message for result in case.result] == ([] if found.verdict == "pass" else [found.why])
    assert json.loads(json.dumps(found.to_document()))["conclusion"]["code"] == found.statements[0].code


def test_table_shows_wrong_answers_as_one_minus_right_ones(base):
    found = decide(v2(0.5), base, Policy(at_least={"correct_given_attempted": 0.4}))
    rows = [line.split() for line in str(found).splitlines() if line.startswith("wrong")]
    margin, bound = (one for one in found.guards if one.guard.name == "correct_given_attempted")
    assert rows[0][1:4] == [
        f"{1 - margin.baseline:.3f}",
        f"{1 - margin.candidate:.3f}",
        f"{-margin.guard.estimate:+.3f}",
    ]
    assert rows[0][4:6] == [f"[{-margin.test.best:.3f},", f"{-margin.test.worst:.3f}]"]
    assert rows[0][6] == "+0.05"
    assert rows[1][1] == f"{1 - bound.candidate:.3f}"
    assert rows[1][4:6] == ["<=", "0.6"]


@settings(max_examples=25, deadline=None)
@given(st.floats(-0.9, 0.9), st.floats(-1.0, 1.0), st.floats(-1.0, 1.0), st.sampled_from([60, 300, N]))
def test_reasons_agree_with_the_guards_property(rho, refusal, error, n):
    baseline = run_of(*draws_of(0.6, 1, n=n), "v1")
    found = decide(run_of(*draws_of(rho, 3, n=n, refusal=refusal, error=error), "v2"), baseline, Policy())
    if found.verdict == "pass":
        assert {one.test.verdict for one in found.guards} == {"pass"}
        return
    named = {metric: code for code, metrics in reasons(found) for metric in metrics}
    assert set(named) == {one.guard.name for one in found.guards if one.test.verdict == found.verdict}
    for one in found.guards:
        code = named.get(one.guard.name)
        if code in ("guard_beyond", "guard_looks_beyond"):
            assert one.guard.distance(one.guard.estimate) < 0
        elif code == "guard_may_be_beyond":
            assert one.guard.distance(one.guard.estimate) >= -1e-12
        elif code is not None:
            assert one.guard.estimate is None or one.test.worst is None
