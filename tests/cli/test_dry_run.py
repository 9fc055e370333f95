"""`--dry-run`: its request and token estimates match a real run, and it writes nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from refusal_index.runs import dry_run
from tests.cli.making import PIPELINE, outcomes, stored, write_sums
from tests.served import ADDRESS
from tests.tiers import others_nightly

LIMIT = 60
SIZE = ("--limit", str(LIMIT))


def estimate(command, *arguments: str) -> dict:
    result = command("run", "--dry-run", "--json", *arguments)
    assert result.exit_code == 0, result.stderr
    (only,) = json.loads(result.stdout)["runs"]
    return only


def usage(command, *arguments: str) -> dict[str, int]:
    """Run into the folder ``r`` and return its usage."""
    result = command("run", "--json", "--out", "r", *arguments)
    assert result.exit_code == 0, result.stderr
    used = [variant["usage"] for variant in json.loads(result.stdout)["variants"]]
    return {key: sum(one[key] for one in used) for key in ("requests", "input_tokens", "output_tokens")}


def exactly(number: float) -> dict[str, float]:
    return {"least": number, "expected": number, "most": number}


@pytest.mark.usefixtures("pipeline")
def test_dry_run_of_a_configuration_does_not_import_its_functions(command, monkeypatch):
    """They are third-party code; only a real run calls them."""
    monkeypatch.syspath_prepend(Path.cwd())
    Path("its_own.py").write_text(
        "from pathlib import Path\nfrom tests.cli.some_pipeline import answer, grade\nPath('mark').touch()\n"
    )
    write_sums("q.csv", 6)
    Path("c.toml").write_text(
        "[[models]]\nmodel = 'python:its_own:answer'\n[[datasets]]\ndata = 'q.csv'\nvariants = ['low']\n"
        "grader = 'python:its_own:grade'\n"
    )
    found = estimate(command, "--config", "c.toml")
    assert found["first"]["requests"] == exactly(6)
    assert (
        found["remark"]
        == "a dry run of a configuration imports no function, so earlier replies of functions are not counted, and a "
        "function that takes no prompt is counted under every prompt, although it is asked once"
    )
    assert not Path("mark").exists()
    assert command("run", "--config", "c.toml").exit_code == 0
    assert Path("mark").exists()


def refused_questions() -> int:
    """How many questions were refused under any variant, in the folder ``r``."""
    return outcomes("r").filter("refused")["question_id"].n_unique()


def tokens(found: dict, which: str) -> float:
    return sum(found[kind][which]["expected"] for kind in ("first", "forced", "grading"))


@others_nightly(("model", "limit"), [("small", 15), ("base", 60), ("small", 60), ("rash", 60)])
def test_almanac_requests_are_exact_and_tokens_within_ten_percent(command, model, limit):
    arguments = ("--model", f"almanac/{model}", "--limit", str(limit))
    found = estimate(command, *arguments)
    assert not Path("runs").exists()
    used = usage(command, *arguments)
    refused = refused_questions()
    assert 0 < refused < limit
    assert found["known_replies"] == 4 * limit
    assert found["first"]["requests"] == exactly(4 * limit)
    assert found["forced"]["requests"] == exactly(refused)
    assert found["requests"] == exactly(used["requests"])
    assert tokens(found, "input_tokens") == used["input_tokens"]
    assert tokens(found, "output_tokens") == pytest.approx(used["output_tokens"], rel=0.1)


@pytest.mark.parametrize("more", [(), ("--placement", "system"), ("--placement", "system", "--think", "/no_think")])
def test_input_tokens_match_embedded_model_for_every_placement(command, more):
    arguments = ("--limit", "8", "--variants", "low", *more)
    assert tokens(estimate(command, *arguments), "input_tokens") == usage(command, *arguments)["input_tokens"]


@pytest.mark.slow
def test_assumed_refusal_share_sends_nothing_and_keeps_first_pass_exact(command):
    used = usage(command, *SIZE)
    refused = refused_questions()
    found = estimate(command, *SIZE, "--assume-refusal", "0.5")
    assert found["known_replies"] == 0
    assert found["first"]["requests"] == exactly(4 * LIMIT)
    assert found["forced"]["requests"] == {"least": 0, "expected": LIMIT / 2, "most": LIMIT}
    for which in ("input_tokens", "output_tokens"):
        assert tokens(found, which) == pytest.approx(used[which], rel=0.1)
    estimated = estimate(command, *SIZE, "--assume-refusal", str(refused / LIMIT))
    assert estimated["requests"]["expected"] == used["requests"]
    assert tokens(estimated, "input_tokens") == pytest.approx(used["input_tokens"], rel=0.001)


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("--repeat-questions", "7"), ("--max-choices", "2"), ("--placement", "system")])
def test_requests_are_exact_with_repeated_draws(command, more):
    arguments = ("--limit", "12", "--draws", "3", "--variants", "low,high", *more)
    found = estimate(command, *arguments)
    used = usage(command, *arguments)
    assert found["known_replies"] == (2 * 5 if "--repeat-questions" in more else 0)
    assert found["requests"] == exactly(used["requests"])
    for which in ("input_tokens", "output_tokens"):
        assert tokens(found, which) == pytest.approx(used[which], rel=0.1)


def test_each_grader_is_checked_by_three_requests(command, monkeypatch):
    monkeypatch.setenv(ADDRESS, "http://127.0.0.1:9/v1")
    monkeypatch.setenv("FAKE_API_KEY", "none")
    graders = "one,two"
    found = estimate(command, "--limit", "5", "--variants", "low", "--grader", graders)
    assert found["grader_checks"] == 2 * 3


@pytest.mark.slow
def test_model_grading_requests_and_three_checks_of_each_grader_are_counted(command):
    """An embedded model grades nothing well, so that only requests can be compared, not grades."""
    half = ("--assume-refusal", "0.5")
    found = estimate(command, "--limit", "5", "--variants", "low", "--grader", "almanac/base,almanac/rash", *half)
    assert found["grader_checks"] == 2 * 3
    assert found["grading"]["requests"] == {"least": 0, "expected": 2 * (2.5 + 2.5), "most": 2 * 2 * (5 + 5)}


def test_dry_run_of_finished_run_counts_only_a_new_variant(command):
    arguments = ("--limit", "10", "--out", "r", "--variants")
    assert command("run", *arguments, "low").exit_code == 0
    low = refused_questions()
    before = {path: path.stat().st_mtime_ns for path in Path("r").rglob("*")}
    done = estimate(command, *arguments, "low")
    assert (done["pending"], done["requests"]["most"]) == ([], 0)
    more = estimate(command, *arguments, "low,highest")
    assert more["pending"] == ["highest"]
    assert more["first"]["requests"]["expected"] == 10
    assert {path: path.stat().st_mtime_ns for path in Path("r").rglob("*")} == before
    assert "4, 1 done" in command("run", "--dry-run", "--limit", "10", "--out", "r").stdout
    assert command("run", *arguments, "low,highest").exit_code == 0
    assert more["forced"]["requests"] == exactly(refused_questions() - low)


def test_dry_run_subtracts_stored_replies_of_a_stopped_run(command, pipeline):
    write_sums("q.csv", 30)
    arguments = (*PIPELINE, "--data", "q.csv", "--grader", "exact", "--variants", "low,highest", "--out", "r")
    pipeline.stops_after, pipeline.stopping = 47, KeyboardInterrupt()
    assert command("run", *arguments).exit_code == 130
    there = stored("r")
    assert len(there) == 47
    left = estimate(command, *arguments, "--assume-refusal", "0")
    assert stored("r") == there
    assert left["stored"] == len(there) - 30, "of the variant that is not finished"
    assert left["pending"] == ["highest"]
    pipeline.__init__()
    assert command("run", *arguments).exit_code == 0
    assert left["requests"]["least"] == len(stored("r")) - len(there) == 60 + 10 - 47


def test_estimate_without_a_key_states_its_assumptions(command, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    Path("q.csv").write_text("question,answer\nWho wrote it?,I\nWho read it?,you\n")
    arguments = ("--model", "openai/gpt-4.1", "--data", "q.csv", "--price", "2,8", "--out", "r")
    fresh = command("run", "--dry-run", *arguments)
    assert fresh.exit_code == 0, fresh.stderr
    assert "$0.0" in fresh.stdout
    for text in ("50%", "--assume-refusal", "--reply-tokens", "4 characters", "openai/gpt-4o-mini", "10 at a time"):
        assert text in " ".join(fresh.stdout.split()), text


@pytest.mark.parametrize(
    ("prices", "message"),
    [
        (("--price", "2,8"), "the cost is that of the model without its graders (--grader-price)"),
        (("--grader-price", "1,4"), "the cost of the model is unknown (--price)"),
        (("--price", "2,8", "--grader-price", "1,4"), "at most twice."),
    ],
)
def test_estimate_says_whose_tokens_the_cost_covers(command, prices, message):
    Path("q.csv").write_text("question,answer\nWho wrote it?,I\n")
    output = command("run", "--dry-run", "--model", "openai/gpt-4.1", "--data", "q.csv", *prices).stdout
    assert message in " ".join(output.split())


def test_dry_run_reports_the_same_errors_as_a_run(command):
    for arguments, expected in (
        (("--model", "opnai/x"), "'opnai'"),
        (("--model", "almanac/bas"), "'base'"),
        (("--variants", "normal+"), "no paraphrases of 'normal'"),
        (("--variants", "nrmal+", "--prompts", "paraphrases"), "did you mean 'normal'"),
        (("--assume-refusal", "2"), "assume-refusal"),
    ):
        result = command("run", "--dry-run", "--limit", "3", *arguments)
        assert result.exit_code == 2
        assert expected in result.stderr
    assert command("run", "--limit", "3", "--variants", "low", "--out", "r").exit_code == 0
    assert "temperature" in command("run", "--dry-run", "--limit", "3", "--out", "r", "--temperature", "1").stderr


def test_many_first_passes_are_announced_before_they_run(command, monkeypatch):
    monkeypatch.setattr(dry_run, "MANY_FIRST_PASSES", 6)
    monkeypatch.setattr(dry_run, "FIRST_PASSES_PER_SECOND", 0.1)
    arguments = ("run", "--dry-run", "--variants", "low", "--limit")
    assert "runs 6 first passes to see what it refuses, which takes about 60 s" in command(*arguments, "6").stderr
    assert "first passes" not in command(*arguments, "5").stderr
    assert "first passes" not in command(*arguments, "6", "--assume-refusal", ".5").stderr


def test_variant_name_with_plus_selects_its_paraphrases(command):
    arguments = ("--limit", "6", "--prompts", "paraphrases", "--variants")
    family = ["normal", "normal-2", "normal-3", "normal-4"]
    assert estimate(command, *arguments, "normal+")["variants"] == family
    assert estimate(command, *arguments, "highest, normal+,low")["variants"] == ["low", *family, "highest"]
    assert estimate(command, *arguments, "normal")["variants"] == ["normal"]
    assert command("run", *arguments, "normal+", "--out", "r").exit_code == 0
    (pooled,) = json.loads(Path("r/summary.json").read_text())["pooled"]
    assert pooled["variants"] == family


def test_grouping_questions_of_equal_length_does_not_change_the_estimate(command, monkeypatch):
    rows = [
        {
            "question": f"What is {n} plus {n}{'?' * (n % 3)}",
            "answer": str(n) * (n % 4),
            "answerable": n % 4 > 0,
            **({"context": f"It is {n}."} if n % 5 else {}),
        }
        for n in range(100)
    ]
    Path("q.jsonl").write_text("\n".join(map(json.dumps, rows)))
    arguments = ("--data", "q.jsonl", *PIPELINE, "--grader", "exact", "--draws", "2")
    together = [estimate(command, *arguments)]
    command("run", *arguments, "--variants", "low", "--max-requests", "60", "--out", "r")
    together.append(estimate(command, *arguments, "--out", "r"))
    monkeypatch.setattr(dry_run, "counts_exactly", lambda *_: True)
    assert [estimate(command, *arguments), estimate(command, *arguments, "--out", "r")] == together
    assert together[1]["stored"] > 0
