"""Candidates that are judged while they are asked, and `ri.gate`."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest
from scipy.special import ndtri
from scipy.stats import binom, norm

import refusal_index as ri
from refusal_index.errors import OutcomeTableError, RunFolderError
from refusal_index.findings.conclusions import stopped
from refusal_index.findings.gate import GateResult, decide
from refusal_index.findings.gate_policy import Policy, PolicyError, look_of
from refusal_index.findings.run_results import RunResults, read_runs
from refusal_index.models.settings import SettingError
from refusal_index.plugins.confidence.scored_answers import scored_answers, virtual_run
from refusal_index.render.gate import gate_document, not_asked
from refusal_index.render.sentences import sentence
from refusal_index.runs.api import plan_of
from refusal_index.runs.event_loop import run_to_completion
from refusal_index.runs.gate import gate, gate_while_asking, read_run, variant_to_ask
from refusal_index.runs.plan import Plan, prepare
from refusal_index.runs.settings import Settings
from refusal_index.stats import GroupSequential
from tests.runs.models import ASKED, LOCAL, number_in

# --- Gates that evaluate the candidate

ROWS = [{"id": f"q{n}", "question": f"What is {n} plus {n}?", "answer": str(2 * n)} for n in range(400)]
SETTINGS: dict[str, Any] = {
    "variants": "normal",
    "grader": "exact",
    "max_retries": 0,
    "temperature": 0.0,
}
TOLERANT = Policy(margins={"correct_rate": 0.2, "correct_given_attempted": 0.3, "refusal_index": 0.4})


def model(wrong_of_seven: int, refused: tuple[int, ...] = (0, 1, 6)):
    """Answer ``wrong_of_seven`` of seven numbers wrongly and refuse some."""

    def sums(messages: list[dict[str, str]]) -> str:
        message = messages[-1]["content"]
        ASKED[message] += 1
        number, forced = number_in(message), "leaving the question open is not allowed" in message
        if number % 7 in refused and not forced:
            return "<answer>UNANSWERED</answer>"
        return f"<answer>{'none' if number % 7 < wrong_of_seven else 2 * number}</answer>"

    return sums


BASE = model(3)


def plan(function: Any = BASE, name: str = "candidate", **settings: Any) -> Plan:
    return plan_of(function, ROWS, model_name=name, out=name, **SETTINGS | settings)


@pytest.fixture(scope="module")
def asked_base(tmp_path_factory):
    """Return the folder of a run of the base model, which no test changes."""
    return ri.evaluate(BASE, ROWS, model_name="base", out=tmp_path_factory.mktemp("asked") / "base", **SETTINGS).path


@pytest.fixture
def baseline(asked_base):
    return read_run(ri.open_run(shutil.copytree(asked_base, "base")), "baseline")


class Gated(NamedTuple):
    """The results of a candidate that was judged while it was asked, and the verdict."""

    run: RunResults | None
    verdict: GateResult


def failed(found: Gated) -> set[str]:
    return {guard.guard.name for guard in found.verdict.guards if guard.test.verdict == "fail"}


def judged(of: Plan, baseline: Any, policy: Policy = TOLERANT, **options: Any) -> Gated:
    return Gated(*run_to_completion(gate_while_asking(of, baseline, policy, **options)))


def test_identical_model_passes_before_all_questions_are_asked(baseline):
    found = judged(plan(), baseline)
    assert found.verdict.verdict == "pass"
    assert found.run.stopped.asked == found.verdict.questions < 400
    assert "the gate's verdict is pass" in found.run.stopped.why
    assert gate_document(found.verdict)["looked"].startswith(
        f"Look {found.run.stopped.look} of 5, after {found.run.stopped.asked}"
    )
    assert gate(found.run, "base", TOLERANT).to_document() == found.verdict.to_document()


KNOWS = TOLERANT.changed(margins={"correct_rate": 0.1})


def test_worse_model_fails_the_named_guard_at_the_first_look(baseline):
    found = judged(plan(model(6)), baseline, KNOWS)
    assert found.verdict.verdict == "fail"
    assert found.run.stopped.look == 1
    assert failed(found) == {"correct_rate"}


@pytest.mark.parametrize("refused", [(), tuple(range(7))], ids=["answers everything", "refuses everything"])
def test_model_without_ri_never_passes_at_any_look(baseline, refused):
    found = judged(plan(model(3, refused)), baseline, Policy(margins={"refusal_rate": 0.99}))
    assert found.verdict.verdict == "fail"
    assert failed(found)
    assert found.run.stopped.asked < 400


def test_undecided_candidate_is_asked_everything_and_inconclusive(baseline):
    found = judged(plan(), baseline, Policy(margins={"refusal_index": 0.001}))
    assert found.verdict.verdict == "inconclusive"
    assert found.run.stopped is None
    assert found.run.outcomes.height == 400


@pytest.mark.slow
def test_undecided_candidate_is_not_retested_at_full_alpha(baseline):
    strict = TOLERANT.changed(margins={"refusal_index": 0.001})
    found = judged(plan(), baseline, strict)
    alone = gate("candidate", "base", strict)
    assert alone.to_document() == found.verdict.to_document()
    assert alone.level_at_look < 0.05
    assert gate_document(alone)["looked"].startswith("Look 5 of 5, after 400 of 400 questions")


def test_full_alpha_after_the_last_look_inflates_error_against_theory():
    rng, n = np.random.default_rng(0), 40_000
    paths = rng.standard_normal((n, 5)).cumsum(axis=1) / np.sqrt(np.arange(1, 6))
    planned = GroupSequential.planned(2000)
    looked = (paths > [planned.critical_value(size) for size in planned.sizes]).any(axis=1)
    last = look_of({"gate_looks": {"questions": 2000, "looks": 5}}, 0.05)
    again = paths[:, -1] > -ndtri(last.level)
    error = np.sqrt(0.05 * 0.95 / n)
    assert (looked | again).mean() == pytest.approx(0.05, abs=3 * error)
    assert (looked | (paths[:, -1] > -ndtri(0.05))).mean() > 0.05 + 3 * error


@pytest.mark.slow
def test_outcome_table_in_a_run_folder_represents_the_run(baseline):
    found = judged(plan(), baseline)
    alone = gate(found.run.folder.outcomes, "base/outcomes.parquet", TOLERANT)
    assert alone.to_document() == found.verdict.to_document()
    Path("elsewhere.parquet").write_bytes(found.run.folder.outcomes.read_bytes())
    assert gate("elsewhere.parquet", "base", TOLERANT).level_at_look is None


@pytest.mark.slow
def test_gate_run_finished_by_another_command_uses_the_last_look(baseline):
    judged(plan(max_requests=60), baseline)
    within = gate("candidate", "base", TOLERANT.changed(max_missing=0.99))
    assert (within.verdict, within.obstacle.code) == ("inconclusive", "between_looks")
    whole = ri.evaluate(BASE, ROWS, model_name="candidate", out="candidate", **SETTINGS)
    assert whole.outcomes.height == 400
    design = GroupSequential.planned(400)
    assert gate(whole, "base", TOLERANT).level_at_look == pytest.approx(ri.stats.AtLook(design, 400).level)


def test_replanned_looks_raise_before_any_request(baseline):
    judged(plan(max_requests=60), baseline)
    ASKED.clear()
    with pytest.raises(SettingError, match=r"looks: expected 5 looks, as planned before .* got"):
        judged(plan(looks=1), baseline)
    assert not ASKED


@pytest.mark.slow
def test_unreachable_candidate_is_inconclusive_with_a_reason(baseline):
    def broken(messages: list[dict[str, str]]) -> str:
        if len(ASKED) >= 150:
            raise ConnectionError("the line is dead")
        return BASE(messages)

    ASKED.clear()
    strict = TOLERANT.changed(margins={"refusal_index": 0.001})
    found = judged(plan(broken, max_connections=1), baseline, strict)
    assert found.run is None
    assert ["the line is dead" in note for note in not_asked(*found)] == [True]
    document = gate_document(found.verdict)
    assert (document["verdict"], document["guards"], document["more_questions"]) == ("inconclusive", [], None)
    assert "not all questions up to the next look could be asked" in document["why"]
    assert "the line is dead" in document["why"]
    assert "Run the same command again" in found.verdict.why


def test_level_of_each_look_matches_the_design(baseline):
    found = judged(plan(looks=4), baseline)
    design = GroupSequential.planned(400, 4)
    look = found.run.stopped.look
    level = ri.stats.AtLook(design, design.sizes[look - 1]).level
    assert found.verdict.level_at_look == pytest.approx(level)
    assert gate("candidate", "base", TOLERANT).level_at_look == pytest.approx(level)


def test_fixed_bounds_need_no_baseline():
    found = judged(plan(), None, Policy(at_most={"refusal_rate": 0.7}, at_least={"correct_rate": 0.1}))
    assert found.verdict.verdict == "pass"
    assert found.run.stopped.asked < 400


def test_budget_end_between_looks_is_inconclusive(baseline):
    found = judged(plan(max_requests=60), baseline)
    assert found.run.ended
    assert found.verdict.verdict == "inconclusive"
    assert "the run ended before its next look" in found.verdict.why
    assert judged(plan(), baseline).verdict.verdict == "pass"


def test_gate_gives_no_verdict_between_looks_however_clear(baseline):
    clear = judged(plan(model(6)), baseline, KNOWS)
    assert (clear.verdict.verdict, clear.run.stopped.look) == ("fail", 1)
    lenient = KNOWS.changed(max_missing=0.9)
    found = judged(plan(model(6), "again", max_requests=clear.verdict.questions), baseline, lenient)
    assert found.run.ended
    assert found.verdict.verdict == "inconclusive"
    assert (found.verdict.guards, found.verdict.changed, found.verdict.look) == ((), (), None)
    assert found.verdict.more_questions is None


def stopping_at(requests: int):
    """Interrupt the process with a signal after ``requests`` requests."""

    async def sums(messages: list[dict[str, str]]) -> str:
        if ASKED.total() == requests:
            os.kill(os.getpid(), signal.SIGINT)
        return BASE(messages)

    return sums


def test_run_interrupted_in_its_second_look_does_not_pass_by_its_first(baseline):
    ASKED.clear()
    strict = TOLERANT.changed(margins={"refusal_rate": 0.03})
    with pytest.raises(KeyboardInterrupt):
        judged(plan(stopping_at(150), max_connections=1), baseline, strict)
    folder = ri.open_run("candidate").folder
    assert folder.read_outcomes().height == 80
    found = gate("candidate", "base", TOLERANT)
    assert found.missing["candidate"] == pytest.approx(0.8)
    assert (found.verdict, found.guards) == ("inconclusive", ())
    alone = gate("candidate", None, Policy(at_least={"correct_rate": 0}))  # its own folder knows how many are missing
    assert (alone.verdict, alone.missing["candidate"]) == ("inconclusive", pytest.approx(0.8))
    Path("elsewhere.parquet").write_bytes(folder.outcomes.read_bytes())
    elsewhere = gate("elsewhere.parquet", "base", TOLERANT)  # the baseline's folder says how many there should be
    assert (elsewhere.verdict, elsewhere.missing["candidate"]) == ("inconclusive", pytest.approx(0.8))
    assert "80% of the candidate's questions" in elsewhere.why
    folder.replies.unlink()  # run.json alone knows it too
    assert gate("candidate", "base", TOLERANT).verdict == "inconclusive"


@pytest.mark.slow
def test_gate_counts_unfinished_further_draws_as_missing(baseline):
    warm = {"temperature": 0.7, "draws": 2, "repeat_questions": 100, "max_connections": 1}
    whole = ri.evaluate(BASE, ROWS, model_name="twice", out="twice", **SETTINGS | warm)
    assert gate(whole, whole, TOLERANT).missing == {"candidate": 0, "baseline": 0}
    once = warm | {"draws": 1, "repeat_questions": None}
    run = ri.evaluate(BASE, ROWS, model_name="once", out="once", **SETTINGS | once)
    assert gate(run, run, TOLERANT).verdict == "pass"
    requests = run.document["variants"][0]["usage"]["requests"]
    ri.evaluate(BASE, ROWS, model_name="once", out="once", **SETTINGS | warm, max_requests=requests + 3)
    found = gate("once", "once", TOLERANT)
    assert found.missing["candidate"] > 0.9
    assert found.verdict == "inconclusive"


def test_early_stopped_run_is_judged_at_its_stopping_look(baseline):
    asked = judged(plan(), baseline)
    alone = gate("candidate", "base", TOLERANT)
    assert alone.to_document() == asked.verdict.to_document()
    ri.evaluate(BASE, ROWS, model_name="narrow", out="narrow", half_width=0.3, **SETTINGS)
    found = gate("narrow", "base", TOLERANT)
    stop = ri.open_run("narrow").stopped
    design = GroupSequential.planned(400)
    assert found.level_at_look == pytest.approx(ri.stats.AtLook(design, stop.asked).level)
    assert gate_document(found)["looked"].startswith(f"Look {stop.look} of 5")
    assert f"Baseline: {sentence(stopped(stop))}" in " ".join(str(gate("base", "narrow", TOLERANT)).split())


@pytest.mark.parametrize(
    ("tampered", "message"),
    [
        ({"questions": 400, "looks": 1000000}, "expected where a look was planned, got 1000000 looks"),
        ({"questions": 0, "looks": 5}, "expected questions and looks, or null, got"),
        ({"looks": 5}, "expected questions and looks, or null, got"),
    ],
)
def test_tampered_looks_raise(baseline, tampered, message):
    place = Path("base/run.json")
    document = json.loads(place.read_text())
    document["about"]["gate_looks"] = tampered
    place.write_text(json.dumps(document))
    with pytest.raises(RunFolderError, match=f"about, gate_looks: {message}"):
        gate("base", "base", TOLERANT)


def test_stop_at_an_unplanned_look_raises(baseline):
    judged(plan(), baseline)
    place = Path("candidate/run.json")
    before = place.read_text()
    for changed in ({"looks": 1000000}, {"asked": 79}, {"look": 4}):
        document = json.loads(before)
        document["about"]["stopped"] |= changed
        place.write_text(json.dumps(document))
        with pytest.raises(RunFolderError, match="about, stopped: expected where a look was planned"):
            gate("candidate", "base", TOLERANT)


def test_budget_end_before_the_forced_pass_is_not_a_failure():
    asked = {"variants": "normal", "limit": 100, "max_requests": 60}
    run = ri.evaluate("almanac/base", out="some", **asked)
    found = gate(run, None, Policy(at_least={"refusal_rate": 0.3}))
    assert found.guards[0].candidate == run.outcomes["refused"].mean() > 0, (
        "of those asked, with or without forced answer"
    )
    assert found.missing == {"candidate": 1 - run.outcomes["refused"].count() / 100}
    assert found.verdict == "inconclusive"
    assert " of the candidate's questions" in found.why


def test_guard_scores_use_p_and_weights_of_the_run(baseline):
    dear = ri.evaluate(BASE, ROWS, model_name="dear", out="dear", weighted_score_p=3.0, **SETTINGS)
    bounds = {"weighted_score": -2.5, "truthfulness_score": -1.0}
    found = gate(dear, "base", Policy(at_least=bounds))
    rate = {metric.name: metric.estimate for metric in dear.summary.variants[0].metrics}
    (one,) = (guard for guard in found.guards if guard.guard.name == "weighted_score")
    assert one.candidate == pytest.approx(rate["weighted_score"])
    assert one.candidate == pytest.approx(rate["correct_rate"] - 3 * (1 - rate["refusal_rate"]))
    margins = {"weighted_score": 0.1}
    with pytest.raises(
        OutcomeTableError, match=r"weighted_score_p: expected the same .* weighted_score, got 3.0 and 1.0"
    ):
        gate(dear, "base", Policy(margins=margins))
    (one,) = (guard for guard in gate(dear, dear, Policy(margins=margins)).guards if guard.guard.name in margins)
    assert one.baseline == pytest.approx(rate["weighted_score"])


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ({"at_least": {"weighted_score": -20}}, "at_least, weighted_score: expected a number from -3 to 0, which is"),
        ({"at_most": {"truthfulness_score": 1.5}}, "at_most, truthfulness_score: expected a number from -1 to 1,"),
        ({"margins": {"weighted_score": 10}}, "margins, weighted_score: expected a number from 0 to 3, which is"),
    ],
)
def test_limit_outside_the_range_of_a_score_raises(limit, message):
    dear = ri.evaluate(BASE, ROWS[:50], model_name="dear", out="dear", weighted_score_p=3.0, **SETTINGS)
    with pytest.raises(PolicyError, match=message):
        gate(dear, dear, Policy(**limit))
    ASKED.clear()
    with pytest.raises(
        PolicyError, match="expected a number from -1 to 0, which is what it can be with the run's weighted_score_p"
    ):
        judged(plan(), None, Policy(at_least={"weighted_score": -20}))
    assert not ASKED


def test_repeated_gate_requests_nothing_and_agrees(baseline):
    first = judged(plan(), baseline)
    ASKED.clear()
    again = judged(plan(), baseline)
    assert not ASKED
    assert again.verdict.to_document() == first.verdict.to_document()


def test_questions_other_than_the_baselines_raise_before_any_request(baseline):
    ASKED.clear()
    others = [{**row, "id": f"other{row['id']}"} for row in ROWS]
    of = plan_of(BASE, others, model_name="candidate", out="candidate", **SETTINGS)
    with pytest.raises(
        OutcomeTableError, match="at least half of the candidate's 400 questions in it, got 0 of its 400"
    ):
        judged(of, baseline)
    assert not ASKED
    assert not Path("candidate").exists()


def test_prompt_defaults_to_that_of_the_baseline(baseline):
    assert variant_to_ask(Policy(), baseline) == "normal"
    assert variant_to_ask(Policy(variant="high"), None) == "high"
    with pytest.raises(PolicyError, match="expected one prompt to ask with, got none; name it with --variants"):
        variant_to_ask(Policy(), None)


@pytest.mark.nightly
def test_embedded_models_get_the_expected_verdicts():
    asked = {"limit": 1000, "variants": "normal", "temperature": 0}
    base = read_run(ri.evaluate("almanac/base", out="base", **asked), "baseline")
    verdicts = {}
    for name in ("base", "rash", "small"):
        of = prepare(Settings.from_values(model=f"almanac/{name}", **asked), out=Path(name + "-candidate"))
        found = judged(of, base, Policy())
        verdicts[name] = found.verdict.verdict
        assert found.run.stopped.asked < 1000
    assert verdicts == {"base": "pass", "rash": "fail", "small": "fail"}


# --- ri.gate on models

GATE_ROWS = [{"id": f"q{n}", "question": f"What is {n} plus {n}?", "answer": str(2 * n)} for n in range(120)]


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
def runs(tmp_path_factory) -> dict[str, ri.RunResults]:
    return {
        name: ri.evaluate(model, GATE_ROWS, model_name=name, out=tmp_path_factory.mktemp(name) / "r", **LOCAL)
        for name, model in MODELS.items()
    }


def failed_guards(found: GateResult) -> set[str]:
    return {guard.guard.name for guard in found.guards if guard.test.verdict == "fail"}


def test_always_answering_and_always_refusing_models_fail_named_guards(runs):
    answers, refuses = (ri.gate(runs[name], runs["base"]) for name in ("answers", "refuses"))
    assert answers.verdict == refuses.verdict == "fail"
    assert failed_guards(answers) >= {"refusal_index"}
    assert failed_guards(refuses) == {"refusal_index", "correct_rate", "refusal_rate"}
    assert "it refused no question" in answers.why
    assert "it refused every question" in refuses.why


def test_gate_accepts_runs_folders_and_policy_documents(runs, tmp_path):
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
"""Margins wide enough for so few questions to suffice sometimes."""


@pytest.fixture(scope="module")
def compared_runs(tmp_path_factory) -> dict[str, RunResults]:
    """Ask the embedded models the same questions: base four times, which makes two runs, and rash twice."""
    made = {}
    for name, draws in (("base", 4), ("rash", 2)):
        out = tmp_path_factory.mktemp(name) / "r"
        run = ri.evaluate(f"almanac/{name}", limit=BLOCKS * BLOCK, draws=draws, variants="normal", out=out)
        if name == "base":
            ri.confidence_scores(run, ["likelihood"])
        (made[name],) = read_runs([out])
    return made


def part_of(run: RunResults, draws: tuple[int, ...], block: int | None = None) -> RunResults:
    rows = run.tables["normal"].filter(pl.col("draw").is_in(draws))
    if block is not None:
        ids = run.tables["normal"]["question_id"].unique(maintain_order=True)
        rows = rows.filter(pl.col("question_id").is_in(ids[block * BLOCK : (block + 1) * BLOCK].to_list()))
    return RunResults.of_tables(run.label, run.source, run.model, run.dataset, {"normal": rows})


def planned(found: GateResult) -> list[float]:
    """Return the probability that each guard passes an equally good model, from its standard error here."""
    z = norm.ppf(0.95)
    errors = [abs(guard.guard.estimate - guard.test.worst) / z for guard in found.guards]
    return [float(norm.sf(z - abs(one.guard.limit) / error)) for one, error in zip(found.guards, errors, strict=True)]


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_base_against_itself_passes_at_the_planned_rate_and_never_fails(compared_runs):
    assert decide(*(part_of(compared_runs["base"], draws) for draws in ((0, 1), (2, 3))), Policy()).verdict != "fail"
    found = [
        decide(*(part_of(compared_runs["base"], draws, block) for draws in ((0, 1), (2, 3))), WIDE)
        for block in range(BLOCKS)
    ]
    assert all(one.verdict != "fail" for one in found)
    passed = sum(one.verdict == "pass" for one in found)
    least = sum(math.prod(planned(one)) for one in found) / BLOCKS
    most = sum(min(planned(one)) for one in found) / BLOCKS
    assert 0.2 < least < 0.98
    assert binom.ppf(0.005, BLOCKS, least) <= passed <= binom.ppf(0.995, BLOCKS, most)


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_rash_model_fails_against_base(compared_runs):
    found = decide(compared_runs["rash"], part_of(compared_runs["base"], (0, 1)), Policy())
    assert found.verdict == "fail"
    assert failed_guards(found) & {"refusal_index", "correct_given_attempted"}


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_virtual_models_that_answer_or_refuse_all_fail_named_guards(compared_runs):
    base = compared_runs["base"]
    scores = scored_answers(base, "likelihood", None)
    ids = frozenset(base.tables["normal"]["question_id"])
    virtual = {
        cut: RunResults.of_tables(
            "virtual", base.source, "virtual", base.dataset, {None: virtual_run(base, scores, cut, ids)}
        )
        for cut in (-math.inf, math.inf)
    }
    answers, refuses = (decide(one, part_of(base, (0, 1)), Policy()) for one in virtual.values())
    assert answers.verdict == refuses.verdict == "fail"
    assert "refusal_index" in failed_guards(answers)
    assert "it refused no question" in answers.why
    assert {"refusal_index", "correct_rate", "refusal_rate"} <= failed_guards(refuses)
