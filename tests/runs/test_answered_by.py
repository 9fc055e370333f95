"""Which model answered: stored with each reply, counted in the run's folder, and compared between runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

import refusal_index as ri
from refusal_index.cli import console
from refusal_index.data.outcome import Question
from refusal_index.findings.metrics import Statement
from refusal_index.protocol import AUXILIARY, Completion, Pass, Reply, Role
from refusal_index.render.format import to_text
from refusal_index.render.summary import first_screen, summary_blocks
from refusal_index.runs.events import Event, Opened, Replied
from refusal_index.runs.open_run import ALL_STORED
from refusal_index.runs.store import ReplyStore, open_store
from tests.cli.test_score_and_report import summary
from tests.models.provider_server import QUESTIONS
from tests.served import at, is_served

HOW = {"variants": "normal", "grader": "exact", "max_retries": 0, "max_connections": 1}
CLIENTS = ("m", "together/m")


def evaluate(model: str, out: str, **settings: object) -> ri.RunResults:
    servers = at() if is_served(model) else {}
    return ri.evaluate(model, "own", data="q.csv", out=out, **{**HOW, **servers, **settings})


def codes(statements: object) -> list[str]:
    return [statement.code for statement in statements]


@pytest.mark.parametrize("model", CLIENTS)
def test_end_to_end_a_model_that_changes_is_counted_and_a_serious_caveat(provider_server, model):
    provider_server.model = lambda number: "m-0601" if number <= 7 else "m-0711"
    run = evaluate(model, "r")
    assert run.folder.read_about()["answered_by"] == {"model": {"m-0601": 7, "m-0711": QUESTIONS - 7}}
    with open_store(run.folder) as store:
        assert [reply.answered_by for reply in store.replies()] == ["m-0601"] * 7 + ["m-0711"] * 5
    for result in (run, ri.open_run("r")):
        (caveat,) = (caveat for caveat in result.summary.variants[0].caveats if caveat.code == "model_changed")
        assert (caveat.severity, caveat.values["replies"]) == ("serious", [("m-0601", 7), ("m-0711", 5)])
    assert "m-0601 gave 7 replies, m-0711 gave 5" in " ".join(to_text(first_screen(run.summary)).split())


@pytest.mark.parametrize("model", CLIENTS)
def test_end_to_end_an_alias_that_is_resolved_to_one_version_is_no_caveat(provider_server, model):
    provider_server.model = lambda number: "m" if number % 2 else "m-2026-06-01"
    run = evaluate(model, "r")
    assert "model_changed" not in codes(run.summary.variants[0].caveats)
    assert run.folder.read_about()["answered_by"] == {"model": {"m": 6, "m-2026-06-01": 6}}


def test_end_to_end_comparisons_rankings_and_gates_name_runs_that_other_models_answered(provider_server):
    runs = []
    for name, version in (("a", "m-0601"), ("b", "m-0711"), ("c", "m-0711")):
        provider_server.model = lambda _number, version=version: version
        runs.append(evaluate("m", name, seed=ord(name)))
    differing, same, ranked = ri.compare(*runs[:2]), ri.compare(*runs[1:]), ri.rank(runs)
    gated = ri.gate(runs[0], runs[1], {"at_least": {"correct_rate": 0.0}})
    assert "other_models_answered" in codes(differing.statements)
    assert "other_models_answered" not in codes(same.statements)
    assert "other_models_answered" in codes(ranked.statements)
    assert "other_models_answered" in codes(gated.statements)
    for result in (differing, ranked, gated):
        assert "m-0711" in str(result)


def test_end_to_end_replies_without_the_requested_log_probabilities_are_counted(provider_server):
    run = evaluate("m", "r", logprobs=True)
    counted = {"replies": QUESTIONS, "missing": QUESTIONS}
    assert run.folder.read_about()["logprobs"] == counted
    assert "without_logprobs" in codes(run.summary.variants[0].caveats)
    repeated = evaluate("m", "r", logprobs=True)
    assert repeated.folder.read_about()["logprobs"] == counted, "a repeated run sends nothing"
    assert "logprobs" not in evaluate("m", "s").folder.read_about()


def test_end_to_end_a_repeated_run_says_that_no_request_is_sent(provider_server):
    evaluate("m", "r")
    events: list[Event] = []
    evaluate("m", "r", progress=events.append)
    (opened,) = (event for event in events if isinstance(event, Opened))
    assert opened.note == ALL_STORED
    assert not any(isinstance(event, Replied) for event in events)


def test_theory_a_store_counts_replies_that_count_by_role_and_name():
    def completion(name: str | None, draw: int, variant: str = "low", role: Role = Role.MODEL) -> Completion:
        return Completion("q1", variant, draw, Reply(Pass.FIRST, role, "x"), answered_by=name)

    with ReplyStore(None) as store:
        store.require("low", {Question("q1", "?", "x"): 9})
        store.put([completion("b", 0), completion("a", 1), completion("a", 2), completion(None, 3)])
        store.put([completion("a", 4, f"{AUXILIARY}p-true"), completion("judge", 0, role=Role.GRADER)])
        old = completion("old", 5)
        store.put([old])
        store.retire([old])
        assert store.answered_by() == {"model": {"b": 1, "a": 2}, "grader": {"judge": 1}}
        assert list(store.answered_by()["model"]) == ["b", "a"]


CHANGED = {
    "role": "model",
    "asked": "openai/gpt-x",
    "replies": [("gpt-x-2026-06-01", 212), ("gpt-x-2026-07-11", 88)],
}
CAVEATS = (
    Statement("model_changed", "serious", CHANGED),
    Statement("few_repeated", "serious", {"questions": 12, "limit": 50}),
    Statement("incomplete_draws", "serious", {"missing": 9, "asked": 99, "reasons": {"empty": 9}}),
)


@pytest.mark.parametrize("count", range(len(CAVEATS) + 1))
def test_property_the_first_screen_keeps_its_lines_and_counts_the_caveats_that_it_leaves_out(
    count, capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "80")
    found = summary(normal=(300, 20, 280, 400))
    found = replace(found, variants=(replace(found.variants[0], caveats=CAVEATS[:count]),))
    console.show(first_screen(found))
    screen = capsys.readouterr().out
    assert screen.count("Caveat") == min(count, 1)
    assert screen.count("Different models") == min(count, 1), "the first caveat is the most serious one"
    assert (f"Caveat 1 of {count}: " in screen) is (count > 1)
    assert len(screen.splitlines()) <= 20 - 6
    assert (
        sum(to_text(summary_blocks(found)).count(text) for text in ("Different models", "Only 12", "9 of 99")) == count
    )
