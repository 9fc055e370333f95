"""``ri.gate`` on models that are asked: functions, and the embedded ones against themselves and each other."""

from __future__ import annotations

import math
from typing import Any

import polars as pl
import pytest
from scipy.stats import binom, norm

import refusal_index as ri
from refusal_index.data.folder import ComparedRun, read_runs
from refusal_index.findings.gate import GateResult, decide
from refusal_index.findings.gate_policy import Policy, PolicyError
from refusal_index.plugins.confidence.scored_answers import scored_answers, virtual_run
from tests.runs.models import LOCAL, number_in

ROWS = [{"id": f"q{n}", "question": f"What is {n} plus {n}?", "answer": str(2 * n)} for n in range(120)]


def model_of(refuses: Any, knows: Any) -> Any:
    def answer(messages: list[dict[str, str]]) -> str:
        message = messages[-1]["content"]
        number, forced = number_in(message), "leaving the question open is not allowed" in message
        if refuses(number) and not forced:
            return "<answer>UNANSWERED</answer>"
        return f"<answer>{2 * number if knows(number) else 'none'}</answer>"

    return answer


MODELS = {
    "base": model_of(lambda n: n % 5 in {0, 1} or n % 7 == 0, lambda n: n % 5 != 0 and n % 3 != 0),
    "answers": model_of(lambda _: False, lambda n: n % 5 != 0 and n % 3 != 0),
    "refuses": model_of(lambda _: True, lambda n: n % 5 != 0 and n % 3 != 0),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, ri.Run]:
    return {
        name: ri.evaluate(model, ROWS, model_name=name, out=tmp_path_factory.mktemp(name) / "r", **LOCAL)
        for name, model in MODELS.items()
    }


def failed(found: GateResult) -> set[str]:
    return {one.guard.name for one in found.guards if one.test.verdict == "fail"}


def test_a_model_that_always_answers_and_one_that_always_refuses_fail_by_name(runs):
    answers, refuses = (ri.gate(runs[name], runs["base"]) for name in ("answers", "refuses"))
    assert answers.verdict == refuses.verdict == "fail"
    assert failed(answers) >= {"refusal_index"}
    assert failed(refuses) == {"refusal_index", "correct_rate", "refusal_rate"}
    assert "candidate refused nothing" in answers.why
    assert "candidate refused everything" in refuses.why


def test_runs_folders_and_documents_are_taken_alike(runs, tmp_path):
    base = runs["base"]
    (tmp_path / "gate.toml").write_text("[margins]\ncorrect_rate = 0.2\n")
    policies = {"margins": {"correct_rate": 0.2}}, Policy(margins={"correct_rate": 0.2}), tmp_path / "gate.toml"
    found = [ri.gate(base.path, str(base.path), policy).to_document() for policy in policies]
    assert found[0] == found[1] == found[2]
    assert found[0]["policy"]["margins"]["correct_rate"] == 0.2
    with pytest.raises(PolicyError, match="policy: expected keys"):
        ri.gate(base, base, {"margin": 3})
    with pytest.raises(PolicyError, match="got neither"):
        ri.gate(base)


BLOCK, BLOCKS = 200, 6
WIDE = Policy(margins={"refusal_index": 0.3, "correct_rate": 0.1, "correct_given_attempted": 0.15, "refusal_rate": 0.1})
"""Margins at which so few questions sometimes suffice."""


@pytest.fixture(scope="module")
def asked(tmp_path_factory) -> dict[str, ComparedRun]:
    """Ask the embedded models the same questions: base four times, which makes two runs of it, and rash twice."""
    made = {}
    for name, draws in (("base", 4), ("rash", 2)):
        out = tmp_path_factory.mktemp(name) / "r"
        run = ri.evaluate(f"almanac/{name}", limit=BLOCKS * BLOCK, draws=draws, variants="normal", out=out)
        if name == "base":
            ri.confidence_scores(run, ["likelihood"])
        (made[name],) = read_runs([out])
    return made


def part_of(run: ComparedRun, draws: tuple[int, ...], block: int | None = None) -> ComparedRun:
    rows = run.variants["normal"].filter(pl.col("draw").is_in(draws))
    if block is not None:
        ids = run.variants["normal"]["question_id"].unique(maintain_order=True)
        rows = rows.filter(pl.col("question_id").is_in(ids[block * BLOCK : (block + 1) * BLOCK].to_list()))
    return ComparedRun(run.label, run.source, run.model, run.dataset, {"normal": rows})


def planned(found: GateResult) -> list[float]:
    """Return the chance with which each guard passes a model that is as good, by its standard error here."""
    z = norm.ppf(0.95)
    errors = [abs(one.guard.estimate - one.test.worst) / z for one in found.guards]
    return [float(norm.sf(z - abs(one.guard.limit) / error)) for one, error in zip(found.guards, errors, strict=True)]


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_base_against_itself_passes_at_the_planned_rate_and_never_fails(asked):
    assert decide(*(part_of(asked["base"], draws) for draws in ((0, 1), (2, 3))), Policy()).verdict != "fail"
    found = [
        decide(*(part_of(asked["base"], draws, block) for draws in ((0, 1), (2, 3))), WIDE) for block in range(BLOCKS)
    ]
    assert all(one.verdict != "fail" for one in found)
    passed = sum(one.verdict == "pass" for one in found)
    least = sum(math.prod(planned(one)) for one in found) / BLOCKS
    most = sum(min(planned(one)) for one in found) / BLOCKS
    assert 0.2 < least < 0.98
    assert binom.ppf(0.005, BLOCKS, least) <= passed <= binom.ppf(0.995, BLOCKS, most)


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_rash_fails_against_base_by_the_index_or_by_its_errors(asked):
    found = decide(asked["rash"], part_of(asked["base"], (0, 1)), Policy())
    assert found.verdict == "fail"
    assert failed(found) & {"refusal_index", "correct_given_attempted"}


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_virtual_models_that_answer_all_and_refuse_all_fail_by_the_named_guard(asked):
    base = asked["base"]
    scores = scored_answers(base, "likelihood", None)
    ids = frozenset(base.variants["normal"]["question_id"])
    virtual = {
        cut: ComparedRun("virtual", base.source, "virtual", base.dataset, {None: virtual_run(base, scores, cut, ids)})
        for cut in (-math.inf, math.inf)
    }
    answers, refuses = (decide(one, part_of(base, (0, 1)), Policy()) for one in virtual.values())
    assert answers.verdict == refuses.verdict == "fail"
    assert "refusal_index" in failed(answers)
    assert "candidate refused nothing" in answers.why
    assert {"refusal_index", "correct_rate", "refusal_rate"} <= failed(refuses)
