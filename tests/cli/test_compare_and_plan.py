"""``compare`` and ``plan``: printed output, notes on unlike runs, and rejected input."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from refusal_index.data import Grade, Outcome, Question
from refusal_index.data.folder import RunFolder
from refusal_index.data.outcome_table import Identification, outcome_table, write_outcomes
from refusal_index.findings.planning import scenarios_of
from refusal_index.findings.run_results import read_runs
from refusal_index.stats import (
    PlanningScenario,
    expected_half_width,
    power_to_tell_apart,
    questions_for_half_width,
    questions_to_tell_apart,
    repeats_half_width,
    split_budget,
)
from tests.studies.made import made_run

N = 500
THRESHOLDS = {"low": 0.8, "high": -0.3}
INDICES = {"good": 0.8, "fair": 0.5, "poor": 0.0}


def table_of(model: str, rho: float, variants=("low", "high"), ids=range(N)) -> pl.DataFrame:
    error = np.random.default_rng(99).standard_normal(3 * N)[list(ids)]
    noise = np.random.default_rng(len(model) + int(100 * rho)).standard_normal(len(error))
    refusal = rho * error + math.sqrt(1 - rho * rho) * noise
    return outcome_table(
        (
            Identification(model, "d", variant),
            Question(f"q{question}", f"question {question}", "!"),
            Outcome(bool(refusal[i] > THRESHOLDS.get(variant, 0)), bool(error[i] > -0.3)),
        )
        for variant in variants
        for i, question in enumerate(ids)
    )


@pytest.fixture
def runs(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for model, rho in INDICES.items():
        write_outcomes(table_of(model, rho), Path(f"{model}.parquet"))
    return tmp_path


def test_two_runs_are_compared_metric_by_metric(command, runs):
    done = command("compare", "good.parquet", "poor.parquet", "--full")
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0] == "Differences: good minus poor"
    assert "low: 500 questions matched." in lines
    combined = next(line for line in lines if line.startswith("RI ") and "combined" in line)
    assert "<.0001" in combined
    assert sum(line.startswith("C/A") for line in lines) == 2


@pytest.mark.parametrize("names", [["good", "poor"], ["good", "fair", "poor"]], ids=["pair", "ranking"])
def test_first_screen_matches_json_within_80_columns_and_20_lines(command, runs, monkeypatch, names):
    monkeypatch.setenv("COLUMNS", "200")
    files = [f"{name}.parquet" for name in names]
    lines = command("compare", *files).stdout.splitlines()
    assert len(lines) <= 20
    assert max(map(len, lines)) <= 80
    document = json.loads(command("compare", *files, "--json").stdout)
    cells = {line.split()[0]: " ".join(line.split()[1:]) for line in lines if line}
    if len(names) == 2:
        index, refused, _, errors, over = (
            document["variants"][0]["metrics"][name]
            for name in (
                "refusal_index",
                "refusal_rate",
                "refusal_precision",
                "correct_given_attempted",
                "over_refusal",
            )
        )
        assert cells["low"].startswith(f"{index['first']:.2f} / {index['second']:.2f}")
        assert f"{refused['first']:.0%} / {refused['second']:.0%}" in cells["low"]
        assert f"{1 - errors['first']:.0%} / {1 - errors['second']:.0%}" in cells["low"]
        assert f"{over['first']:.0%} / {over['second']:.0%}" in cells["low"]
        assert f"{document['joint']['refusal_index']['estimate']:.2f}" in lines[1] + lines[2]
    else:
        for run in document["runs"]:
            assert cells[run["run"]].startswith(f"{run['estimate']:.2f} [{run['low']:.2f}, {run['high']:.2f}]")


def test_json_has_the_unrounded_values_of_the_table(command, runs):
    document = json.loads(command("compare", "good.parquet", "poor.parquet", "--json").stdout)
    joint = document["joint"]["refusal_index"]
    assert document["joint"]["corrected_refusal_index"] is None
    assert joint["estimate"] == joint["first"] - joint["second"]
    assert joint["low"] < joint["estimate"] < joint["high"]
    (low, high) = document["variants"]
    assert (low["variant"], low["questions"], low["paired"]) == ("low", N, True)
    assert set(high["metrics"]) >= {"refusal_index", "f_score"}


def test_three_runs_are_ranked_with_letters_for_ties(command, runs):
    done = command("compare", "fair.parquet", "poor.parquet", "good.parquet", "--full")
    lines = done.stdout.splitlines()
    ranked = [line.split() for line in lines if line.startswith(("good ", "fair ", "poor ")) and " - " not in line]
    assert [cells[0] for cells in ranked] == ["good", "fair", "poor"]
    assert [cells[-1] for cells in ranked] == ["a", "b", "c"]
    assert any("share a letter do not differ significantly" in line for line in lines)
    assert sum(" - " in line for line in lines) == 3


def test_ranking_is_deterministic_and_supports_holm(command, runs):
    files = ("good.parquet", "fair.parquet", "poor.parquet")
    assert command("compare", *files, "--json").stdout == command("compare", *files, "--json").stdout
    document = json.loads(command("compare", *files, "--adjustment", "holm", "--variants", "low", "--json").stdout)
    assert (document["adjustment"], document["variant"]) == ("holm", "low")


@pytest.fixture
def repeated(tmp_path, monkeypatch) -> Path:
    """Two draws each of three models with equal index: one steady, one random, one that never refuses."""
    monkeypatch.chdir(tmp_path)
    for seed, (model, slope, shift) in enumerate((("steady", 4, 0), ("random", 0.8, 0), ("never", 1, -99))):
        x, noise = np.random.default_rng(99).standard_normal((2, 2 * N))
        draws = np.random.default_rng(seed).standard_normal((2, 2, 2 * N))
        refused, wrong = (np.stack([x + shift, 0.6 * x + 0.8 * noise])[:, np.newaxis] * slope + draws) > 0
        rows = (
            (
                Identification(model, "d", "low", draw),
                Question(f"q{i}", f"question {i}", "!"),
                Outcome(bool(r), bool(w), forced_grade=Grade.INCORRECT if w else Grade.CORRECT),
            )
            for draw in range(2)
            for i, (r, w) in enumerate(zip(refused[draw], wrong[draw], strict=True))
        )
        write_outcomes(outcome_table(rows), Path(f"{model}.parquet"))
    return tmp_path


def test_repeated_draws_are_compared_by_corrected_ri_without_sampling_noise(command, repeated):
    arguments = ("compare", "steady.parquet", "random.parquet", "--full")
    output = command(*arguments).stdout
    index, corrected = (next(x for x in output.splitlines() if x.startswith(name)) for name in ("RI ", "corrected RI"))
    assert "<.0001" in index
    assert "<.0001" not in corrected
    assert "or at temperature 0: 1,000." in output
    assert "RI and corrected RI disagree" in output
    assert "The models differ in how random they are" in output
    assert "RI is the primary comparison" in " ".join(output.split())
    (variant,) = json.loads(command(*arguments, "--json").stdout)["variants"]
    found = variant["metrics"]["corrected_refusal_index"]
    assert f"{found['estimate']:.3f}" in corrected
    assert f"{variant['metrics']['refusal_index']['estimate']:.3f}" in index
    assert found["low"] < found["estimate"] == found["first"] - found["second"] < found["high"]
    assert (found["pvalue"] > 0.05, found["status"], found["questions_shared"]) == (True, "ok", 2 * N)


def test_ranking_uses_ri_unless_corrected_index_is_requested(command, repeated):
    arguments = ("compare", "steady.parquet", "random.parquet", "never.parquet")
    corrected = ("--metric", "corrected_refusal_index")
    output = command(*arguments).stdout
    assert "orrected RI" not in output
    assert "never is not ranked: undefined (no refusals)." in output
    assert "corrected RI" in command(*arguments, *corrected).stdout
    document = json.loads(command(*arguments, "--json").stdout)
    assert document["metric"] == "refusal_index"
    assert [(run["run"], run["letters"]) for run in document["runs"]] == [("steady", "a"), ("random", "b")]
    document = json.loads(command(*arguments, *corrected, "--json").stdout)
    assert document["metric"] == "corrected_refusal_index"
    assert [run["letters"] for run in document["runs"]] == ["a", "a"]


def test_compare_shows_only_ri_without_repeated_draws(command, runs):
    output = command("compare", "good.parquet", "poor.parquet", "--full").stdout
    assert any(line.startswith("RI ") for line in output.splitlines())
    assert "orrected RI" not in output
    ranked = " ".join(command("compare", *(f"{name}.parquet" for name in INDICES), "--full").stdout.split())
    assert "RI, combined" in ranked
    done = command("compare", *(f"{name}.parquet" for name in INDICES), "--metric", "corrected_refusal_index")
    assert done.exit_code == 2
    assert "expected questions sampled more than once in every run" in " ".join(done.stderr.split())


def test_different_questions_are_compared_unpaired_with_a_note(command, runs):
    write_outcomes(table_of("other", 0.5, ids=range(N, 2 * N)), Path("other.parquet"))
    done = command("compare", "good.parquet", "other.parquet")
    assert "Compared unpaired, on different questions" in done.stdout.replace("\n", " ")


def test_unmatched_questions_are_counted(command, runs):
    write_outcomes(table_of("more", 0.5, ids=range(100, N + 100)), Path("more.parquet"))
    done = command("compare", "good.parquet", "more.parquet", "--variants", "low")
    output = " ".join(done.stdout.split())
    assert "400 questions matched" in output
    assert "100 of good, 100 of more" in output


def test_different_settings_of_compared_runs_are_reported(command, runs):
    for name, temperature in (("one", 0.7), ("two", 1.0)):
        folder = RunFolder(Path(name))
        with folder.lock():
            folder.create_or_resume({"model": name, "decoding": {"temperature": temperature}})
            write_outcomes(table_of(name, 0.5), folder.outcomes)
    assert "used different settings (temperature, top-p or maximum tokens)" in " ".join(
        command("compare", "one", "two").stdout.split()
    )


def test_run_without_refusals_is_undefined_not_zero(command, runs):
    never = table_of("never", 0.5).with_columns(refused=pl.lit(value=False), first_grade=pl.lit(None, pl.String))
    write_outcomes(never, Path("never.parquet"))
    done = command("compare", "good.parquet", "never.parquet", "--variants", "low", "--full")
    assert done.exit_code == 0
    row = next(line for line in done.stdout.splitlines() if line.startswith("RI "))
    assert row.split()[-1] == "undefined"
    assert "RI: undefined (never: no refusals)" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["good.parquet"], "expected two models or more, got good alone"),
        (["good.parquet", "missing.parquet"], "missing.parquet cannot be read"),
        (["good.parquet", "poor.parquet", "--metric", "fscore"], "--metric: expected one of .*did you mean 'f_score'"),
        (["good.parquet", "poor.parquet", "--variants", "lwo"], "has no prompt 'lwo'.*did you mean 'low'"),
        (["good.parquet", "fair.parquet", "poor.parquet", "--metric", "f_score"], "name one prompt: low, high"),
        (["good.parquet", "fair.parquet", "--metric", "single_draw_refusal_index"], "did you mean 'refusal_index'"),
        (["good.parquet", "poor.parquet", "--adjustment", "tukey"], "--adjustment: expected one of max-t, holm"),
    ],
)
def test_incomparable_input_is_rejected_in_one_line(command, runs, arguments, says):
    done = command("compare", *arguments)
    assert done.exit_code == 2
    assert done.stderr.startswith("error: ")
    import re

    assert re.search(says, done.stderr)


def test_prompt_to_compare_is_an_error_that_says_what_to_do_if_the_tables_name_none(command):
    for name in ("one", "two"):
        Path(f"{name}.csv").write_text("question_id,refused,wrong\na,1,1\nb,1,0\nc,0,1\nd,0,0\n")
    done = command("compare", "one.csv", "two.csv", "--variants", "normal")
    assert done.exit_code == 2
    assert done.stderr.startswith("error: one names no prompt, got 'normal' to compare; leave the option out")


def test_rows_without_ids_are_never_matched(command, runs):
    for name in ("one", "two"):
        Path(f"{name}.csv").write_text("refused,wrong\n" + "1,1\n1,0\n0,1\n0,0\n" * 30)
    assert "Compared unpaired, on different questions" in command("compare", "one.csv", "two.csv").stdout.replace(
        "\n", " "
    )


def test_boundary_run_shows_its_value_next_to_the_ranking(command, runs):
    table = table_of("edge", 0.5, variants=["low"]).filter(~(pl.col("refused") & ~pl.col("wrong")))
    write_outcomes(table, Path("edge.parquet"))
    done = command("compare", "good.parquet", "fair.parquet", "edge.parquet", "--variants", "low")
    assert "edge is not ranked: 1.000 [" in done.stdout


def test_plan_handles_runs_without_shared_questions_or_an_index(command, runs):
    write_outcomes(table_of("other", 0.5, ids=range(N, 2 * N)), Path("other.parquet"))
    never = table_of("never", 0.5).with_columns(refused=pl.lit(value=False), first_grade=pl.lit(None, pl.String))
    write_outcomes(never, Path("never.parquet"))
    assert command("plan", "fair.parquet", "other.parquet").exit_code == 0
    done = command("plan", "fair.parquet", "never.parquet")
    assert done.exit_code == 0
    assert "no refusals" in done.stdout


def test_plan_prints_power_for_a_given_number_of_questions(command):
    rates = ("--refusal-rate", ".5", "--error-rate", ".7", "--refusal-index", ".4")
    output = command("plan", *rates, "-n", "300", "--difference", ".2").stdout
    expected = power_to_tell_apart(PlanningScenario(0.5, 0.7, 0.4), PlanningScenario(0.5, 0.7, 0.2), 300)
    assert f"With 300 questions each, the chance is {100 * expected.power:.0f}%" in output


def test_plan_from_rates_matches_stats(command):
    rates = ("--refusal-rate", ".74", "--error-rate", ".92", "--refusal-index", ".48")
    done = command("plan", *rates, "--half-width", ".1")
    assert done.exit_code == 0
    expected = questions_for_half_width(PlanningScenario(0.74, 0.92, 0.48), 0.1)
    assert f"{expected.n:,}" in done.stdout
    wide = command("plan", *rates, "-n", "150").stdout
    assert "fewer than 5 expected in a cell" in wide
    assert "0.302" in wide


def test_plan_from_run_has_blocks_per_variant_and_difference(command, runs):
    done = command("plan", "fair.parquet", "--difference", "0.2", "--full")
    lines = done.stdout.splitlines()
    assert [line for line in lines if line in THRESHOLDS] == ["low", "high"]
    for name, scenario in scenarios_of(read_runs([Path("fair.parquet")])[0]).items():
        lower = replace(scenario, refusal_index=scenario.refusal_index - 0.2)
        (row,) = (line.split() for line in lines if line.startswith(f"{name} "))
        assert row[-1] == f"{questions_to_tell_apart(scenario, lower).n:,}"


def test_plan_reports_missing_grades_of_its_run(command, tmp_path):
    """Answers without a grade may bias every rate that a plan assumes."""
    run = pl.concat(made_run(n=60, unscored=20, variants=["low"]).tables.values())
    write_outcomes(run, tmp_path / "a.parquet")
    output = " ".join(command("plan", str(tmp_path / "a.parquet")).stdout.split())
    assert output.startswith("Incomplete: m ")
    assert "low 20 of 60 (RI " in output


def test_plan_for_two_runs_uses_their_observed_correlation(command, runs):
    arguments = ("plan", "good.parquet", "fair.parquet", "--variants", "low")
    row, with_500 = (
        next(line.split() for line in command(*arguments, *more).stdout.splitlines() if line.startswith("low"))
        for more in ((), ("-n", "500"))
    )
    assert -1 < float(row[4]) < 1
    assert with_500[4] == "100%"


def test_plan_for_two_runs_covers_the_interval_of_their_difference(command, runs):
    done = command("plan", "good.parquet", "fair.parquet", "--variants", "low")
    row = next(line for line in done.stdout.splitlines() if line.startswith("low")).split()
    low, high = float(row[2].strip("[,")), float(row[3].strip("],"))
    assert low < float(row[1]) < high
    fewest, needed = (int(row[place].replace(",", "")) for place in (6, 5))
    assert fewest == pytest.approx(needed * (float(row[1]) / max(abs(low), abs(high))) ** 2, rel=0.05)
    assert "post-hoc power" in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["four.parquet"],
        ["four.parquet", "--difference", ".1", "-n", "400"],
        ["four.parquet", "--corrected"],
        ["four.parquet", "--corrected", "--budget-requests", "3000", "--request-cost", ".01"],
        ["four.parquet", "other.parquet", "-n", "400"],
    ],
)
def test_the_first_screen_of_a_plan_fits_80_columns_and_20_lines(command, runs, monkeypatch, arguments):
    monkeypatch.setenv("COLUMNS", "200")
    variants = ("low", "normal", "high", "a variant with a long name")
    for seed, name in enumerate(("four", "other")):
        write_outcomes(table_of(name, 0.2 + 0.5 * seed, variants=variants), Path(f"{name}.parquet"))
    lines = command("plan", *arguments).stdout.splitlines()
    assert len(lines) <= 20
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("a va... name ") for line in lines)


def test_first_sentence_of_plan_covers_every_prompt_and_counts_requests(command, runs):
    scenarios = scenarios_of(read_runs([Path("fair.parquet")])[0]).values()
    needed = [questions_for_half_width(scenario, 0.1).n for scenario in scenarios]
    n = max(needed)
    requests = sum(n * (1 + scenario.refusal_rate) for scenario in scenarios)
    output = command("plan", "fair.parquet", "--request-cost", ".5").stdout
    assert output.startswith(f"{n:,} questions are needed to measure RI to within +-0.100")
    assert f"at most {requests:,.0f} requests for all 2 prompts" in output
    assert f"${requests / 2:,.2f}" in output
    for name, questions in zip(("low", "high"), needed, strict=True):
        (row,) = (line.split() for line in output.splitlines() if line.startswith(f"{name} "))
        assert row[-2] == f"{questions:,}"


RATES = ("--refusal-rate", ".4", "--error-rate", ".6", "--refusal-index", ".5")
SCENARIO = PlanningScenario(0.4, 0.6, 0.5)


def row_of(plan: str) -> list[str]:
    """Return the cells of a plan's only row."""
    lines = plan.splitlines()
    return lines[next(n for n, line in enumerate(lines) if line.startswith("questions")) + 1].split()


def test_budget_plan_splits_questions_and_repeats_for_corrected_index(command, runs):
    of_ri = command("plan", *RATES, "--budget-requests", "4000", "--full").stdout
    n = int(4000 / 1.4)
    assert [f"{n:,}", f"{expected_half_width(SCENARIO, n).half_width:.3f}"] == row_of(of_ri)[:2]
    slopes = ("--corrected", "--refusal-slope", "3", "--full")
    plan = split_budget(SCENARIO, 4000, refusal_slope=3)
    by_requests = command("plan", *RATES, "--budget-requests", "4000", *slopes).stdout
    cells = [f"{plan.n:,}", f"{plan.repeated:,}", f"{plan.requests:,.0f}", f"{plan.half_width:.3f}"]
    assert row_of(by_requests) == cells
    assert f"run --limit {plan.n} --draws 2 --repeat-questions {plan.repeated}" in " ".join(by_requests.split())
    by_cost = command("plan", *RATES, "--budget-cost", "8", "--request-cost", ".002", *slopes).stdout
    assert row_of(by_cost) == cells
    assert "$8.00" in by_cost
    from_run = command(
        "plan", "fair.parquet", "--variants", "low", "--budget-requests", "3000", "--corrected", "--full"
    )
    assert "With 3,000 requests, " in from_run.stdout
    noisy = command("plan", "good.parquet", "--corrected", "--refusal-slope", ".2", "--error-slope", ".2")
    assert noisy.exit_code == 2
    assert "plan with higher slopes" in noisy.stderr


def test_plan_for_corrected_index_samples_every_question_twice(command):
    plan = repeats_half_width(SCENARIO, 700, 700, refusal_slope=2, error_slope=2)
    output = command("plan", *RATES, "--corrected", "-n", "700", "--full").stdout
    assert row_of(output) == ["700", "700", "2,800", f"{plan.half_width:.3f}"]
    assert "run --limit 700 --draws 2" in output
    narrow = row_of(command("plan", *RATES, "--corrected", "--half-width", ".1", "--full").stdout)
    assert float(narrow[-1]) == pytest.approx(0.1, abs=0.0006)


def test_undefined_index_has_no_plan_but_a_reason(command, runs):
    never = table_of("never", 0.5).with_columns(refused=pl.lit(value=False), first_grade=pl.lit(None, pl.String))
    write_outcomes(never, Path("never.parquet"))
    assert "no plan: undefined (no refusals)" in command("plan", "never.parquet").stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "expected a run to plan from, or --refusal-rate"),
        (["good.parquet", "--budget-cost", "3"], "--budget-cost needs --request-cost"),
        (["good.parquet", "--budget-requests", "3", "--budget-cost", "3", "--request-cost", "1"], "got both"),
        (["good.parquet", "--budget-requests", "-3"], "--budget-requests: expected a number above 0"),
        (["good.parquet", "--corrected", "--error-slope", "0"], "--error-slope: expected a number above 0"),
        (
            ["good.parquet", "--budget-requests", "3", "--error-slope", "1"],
            "require --corrected, which is missing",
        ),
        (["good.parquet", "--corrected", "--difference", ".2"], "--corrected: plans for one model"),
        (["good.parquet", "fair.parquet", "--corrected"], "--corrected: plans for one model"),
        (["--refusal-rate", ".5"], "--error-rate and --refusal-index together"),
        (["good.parquet", "--refusal-rate", ".5"], "got both"),
        (["good.parquet", "--half-width", "0"], "--half-width: expected a number above 0"),
        (["good.parquet", "--difference", "nan"], "--difference: expected a number above 0"),
        (["good.parquet", "--half-width", ".1", "-n", "300"], "--half-width or --questions, got both"),
        (["good.parquet", "--difference", ".2", "--power", ".05"], "--power: expected more than 0.05"),
        (
            ["good.parquet", "fair.parquet", "--difference", ".2"],
            "two runs are planned for by the difference",
        ),
        (["--variants", "low", "--refusal-rate", ".5"], "--variants: expected a run"),
        (["good.parquet", "fair.parquet", "poor.parquet"], "expected one or two models, got 3"),
    ],
)
def test_invalid_plan_input_is_rejected_in_one_line(command, runs, arguments, says):
    done = command("plan", *arguments)
    assert done.exit_code == 2
    assert says in done.stderr
