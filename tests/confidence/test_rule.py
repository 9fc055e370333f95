"""Saved rules: the decisions of the run, without SciPy; what they take, and what they refuse."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from sklearn.isotonic import IsotonicRegression

import refusal_index as ri
from refusal_index.data.outcome_table import ConfidenceError, write_outcomes
from refusal_index.errors import RunFolderError
from refusal_index.findings.run_results import open_run
from refusal_index.plugins.confidence.answer_probability import IsotonicFunction, PlattScaling
from refusal_index.plugins.confidence.plan import METHODS
from refusal_index.plugins.confidence.rule import Decision, RuleError, SavedRule, load_rule
from refusal_index.plugins.confidence.scores import evidence_of_run
from refusal_index.protocol import write_logprobs
from refusal_index.protocol.refusals import RefusalRule
from refusal_index.runs.settings import COMPARABILITY_VERSION

TOKENS = [("<answer>", -3.0), ("Li", math.log(0.8)), ("ma", math.log(0.5)), ("</answer>", -3.0)]
REPLY = "<answer>Lima</answer>"
LIKELIHOODS = ("likelihood", "likelihood-mean", "likelihood-min", "likelihood-platt", "likelihood-isotonic")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run with scores; tests must not change it."""
    out = tmp_path_factory.mktemp("scored") / "run"
    made = ri.evaluate("almanac/base", limit=80, variants="high", logprobs=True, out=out)
    ri.confidence_scores(made, [*LIKELIHOODS, "topic"])
    return out


DECIDING = """
import sys
for name in ("scipy", "numpy", "polars"):
    sys.modules[name] = None  # importing it fails
import json, refusal_index as ri
decided = []
for rule, replies in zip(sys.argv[1::2], sys.argv[2::2]):
    loaded = ri.load_rule(rule, model="almanac/base")
    decided.append([not loaded.decide(*reply).answered for reply in json.load(open(replies))])
print(json.dumps(decided))
"""


def test_decisions_on_held_out_questions_are_those_of_the_run(run, tmp_path):
    """With every method and criterion; one process decides, as it takes longer to start than to decide."""
    files, expected = [], []
    for method, criterion in product(LIKELIHOODS, ({"penalty": 1.0}, {"max_error": 0.5})):
        found = ri.threshold(run, method, **criterion)
        assert found.table is not None
        rule, place = (tmp_path / f"{len(expected)}-{name}.json" for name in ("rule", "replies"))
        found.save_rule(rule)
        evidence = evidence_of_run(run, METHODS[method])
        refused = dict(found.table.select("question_id", "refused").iter_rows())
        assert len(set(refused.values())) == 2
        replies = []
        for name in refused:
            answer = evidence.answers[name]
            logprobs = json.loads(write_logprobs(answer.logprobs))
            replies.append([answer.reply, logprobs, evidence.questions[name].text])
        place.write_text(json.dumps(replies))
        files += [str(rule), str(place)]
        expected.append(list(refused.values()))
    done = subprocess.run(
        [sys.executable, "-c", DECIDING, *files], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == expected


@pytest.mark.parametrize(("criterion", "half"), [({"penalty": 1.0}, "first"), ({"max_error": 0.5}, "second")])
def test_calibration_is_that_of_scikit_learn_on_one_half(run, criterion, half):
    found = ri.threshold(run, "likelihood-isotonic", **criterion)
    scores = dict(
        ri.open_run(run).confidence.filter(method="likelihood").select("question_id", "confidence").iter_rows()
    )
    ids = sorted(getattr(found.halves, half))
    right = dict(found.answers.rows.select("question_id", right=~pl.col("wrong")).iter_rows())
    fitted = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
    fitted.fit([scores[name] for name in ids], [float(right[name]) for name in ids])
    names, confidence = found.answers.rows.select("question_id", "confidence")
    np.testing.assert_allclose(confidence.to_numpy(), fitted.predict([scores[name] for name in names]), atol=1e-12)


def test_rule_says_what_it_is_from(run, tmp_path):
    found = ri.threshold(run, "likelihood-platt", max_error=0.5)
    found.save_rule(tmp_path / "rule.json")
    rule = load_rule(tmp_path / "rule.json", method="likelihood-platt")
    assert rule.threshold == found.selected.cut
    assert rule.calibration == found.answers.calibration
    assert rule.provenance["run_id"] == open_run(run).about["run_id"]
    assert rule.provenance["threshold"]["max_error"] == 0.5
    assert rule.provenance["other_half"]["coverage"]["estimate"] == found.points[0].coverage.estimate
    assert "{question}" in rule.provenance["forced_prompt"]


@pytest.mark.parametrize(
    ("method", "expected"), [("likelihood", 0.4), ("likelihood-mean", math.sqrt(0.4)), ("likelihood-min", 0.5)]
)
def test_theory_confidence_is_that_of_the_answers_tokens(method, expected):
    decided = SavedRule(method, "m", 0.45).decide(REPLY, TOKENS)
    assert decided.answer == "Lima"
    assert decided.confidence == pytest.approx(expected, abs=1e-6)  # log probabilities have six decimals, as in a run
    assert decided.answered is (expected > 0.45)


def test_score_on_the_threshold_is_answered():
    assert SavedRule("likelihood", "m", 1.0).decide("Lima", [("Lima", 0.0)]) == Decision(True, 1.0, "Lima")


def test_reply_without_tokens_is_refused():
    assert SavedRule("likelihood", "m", 0.0).decide("Lima", []) == Decision(False, None, "Lima")


def test_forms_of_log_probabilities_are_the_same():
    rule = SavedRule("likelihood", "m", 0.3)
    forms = (
        TOKENS,
        [{"token": token, "logprob": logprob, "bytes": None} for token, logprob in TOKENS],
        (SimpleNamespace(token=token, logprob=np.float64(logprob)) for token, logprob in TOKENS),
    )
    assert len({rule.decide(REPLY, form).confidence for form in forms}) == 1
    assert rule.decide("Lima", [("Lima", -math.inf)]).confidence == 0.0


@pytest.mark.parametrize("logprobs", [None, "text", {"content": []}, 3, [("Lima",)], [("Lima", math.nan)], [None]])
def test_other_log_probabilities_are_an_error(logprobs):
    with pytest.raises(RuleError, match=r"^logprobs: expected "):
        SavedRule("likelihood", "m", 0.3).decide("Lima", logprobs)


def test_theory_platt_scaling_and_isotonic_function():
    scaling = PlattScaling(slope=2.0, intercept=-0.5)
    for score in (0.1, 0.5, 0.8):
        logit = 2.0 * math.log(score / (1 - score)) - 0.5
        assert scaling(score) == pytest.approx(1 / (1 + math.exp(-logit)), rel=1e-12)
    assert PlattScaling(1e3, 0.0)(0.0) == 0.0  # far below what exp can take
    assert scaling(1.0) == scaling(1 - 1e-6)
    function = IsotonicFunction((0.2, 0.4, 0.8), (0.1, 0.5, 0.9))
    assert [function(score) for score in (0.0, 0.2, 0.8, 1.0)] == [0.1, 0.1, 0.9, 0.9]
    assert function(0.3) == pytest.approx(0.3, rel=1e-12)
    assert function(0.7) == pytest.approx(0.8, rel=1e-12)


ANOTHER = "write a rule with 'refusal-index confidence RUN --save FILE'"

DOCUMENT = {
    "rule_version": 1,
    "comparability_version": COMPARABILITY_VERSION,
    "method": "likelihood-isotonic",
    "model": "m",
    "threshold": 0.5,
    "calibration": {"scores": [0.2, 0.4], "probabilities": [0.1, 0.5]},
    "reading": {"by_wording": False, "phrase": "no comment"},
    "provenance": {"run_id": "1"},
}


def test_rule_reads_back(tmp_path):
    (tmp_path / "rule.json").write_text(json.dumps(DOCUMENT))
    calibration = IsotonicFunction((0.2, 0.4), (0.1, 0.5))
    reading = RefusalRule(by_wording=False, phrase="no comment")
    expected = SavedRule("likelihood-isotonic", "m", 0.5, calibration, reading, {"run_id": "1"})
    assert load_rule(str(tmp_path / "rule.json"), model="m", method="likelihood-isotonic") == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rule_version": 0}, "rule_version: expected 1, got 0; write a rule with"),
        ({"comparability_version": 3}, "comparability_version: expected .* got 3"),
        ({"method": "p-true"}, "method: expected likelihood or .* got 'p-true'"),
        ({"method": ["likelihood"]}, "method: expected likelihood or "),
        ({"model": "other"}, "model: expected m, got 'other'"),
        ({"threshold": math.nan}, "threshold nan is no probability"),
        ({"threshold": "0.5"}, "rule.json: '<=' not supported"),
        ({"calibration": None}, ANOTHER),
        (
            {"calibration": {"scores": [], "probabilities": []}},
            ANOTHER,
        ),
        (
            {"calibration": {"slope": 1.0, "intercept": 0.0}},
            ANOTHER,
        ),
        ({"calibration": {"scores": [0.2], "probabilities": [7]}}, "its calibration gives none"),
        ({"reading": {"unknown": 1}}, ANOTHER),
    ],
)
def test_file_for_something_else_is_refused_in_one_line(changes, message, tmp_path):
    (tmp_path / "rule.json").write_text(json.dumps(DOCUMENT | changes))
    with pytest.raises(RuleError, match=message) as refused:
        load_rule(tmp_path / "rule.json", model="m")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("content", ["", "[1]", "{", "null", "{}"])
def test_file_that_is_no_rule_is_refused(content, tmp_path):
    (tmp_path / "rule.json").write_text(content)
    with pytest.raises(RuleError, match=r"rule\.json: "):
        load_rule(tmp_path / "rule.json")
    with pytest.raises(RuleError, match=r"none\.json: No such file or directory; write a rule with"):
        load_rule(tmp_path / "none.json")


def test_what_cannot_be_saved_says_why(run, tmp_path):
    path = tmp_path / "rule.json"
    with pytest.raises(ConfidenceError, match=r"expected a method whose score comes from a reply and .*, got topic"):
        ri.threshold(run, "topic", penalty=0.5).save_rule(path)
    with pytest.raises(ConfidenceError, match="expected a threshold between two scores, got none"):
        ri.threshold(run, "likelihood", penalty=0).save_rule(path)
    scores = pl.read_parquet(run / "confidence.parquet").filter(method="likelihood").select("question_id", "confidence")
    table = pl.read_parquet(run / "outcomes.parquet").join(scores, on="question_id")
    write_outcomes(table, tmp_path / "table.parquet")
    with pytest.raises(RunFolderError, match="expected the folder of a run"):
        ri.threshold(tmp_path / "table.parquet", penalty=1).save_rule(path)
    assert not path.exists()
