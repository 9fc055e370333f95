"""The engine against a scripted server: what is sent, what is shared, what becomes of faults."""

from __future__ import annotations

import json
import shutil

import pytest
from aiohttp import web

from refusal_index.runs.store import StoreError
from tests.models.conftest import OVER_INSPECT, VARIANTS, both_clients, cells, run
from tests.models.fake_api import FakeApi, is_forced, is_grading, question_of
from tests.tiers import others_nightly


def sums(message: str) -> str:
    """Refuse odd numbers unless forced; forced answers are right for multiples of 3."""
    number = int(question_of(message).split()[2])
    if number % 2 and not is_forced(message):
        return "<answer>UNANSWERED</answer>"
    right = number % 3 == 0 if is_forced(message) else number % 4 == 0
    return f"<answer>{2 * number if right else 'none'}</answer>"


def test_each_request_is_one_user_message_with_a_seed_of_its_own(plan_for):
    with FakeApi(sums) as api:
        run(plan_for(api.url, count=8, variants=list(VARIANTS)))
    assert all([message["role"] for message in body["messages"]] == ["user"] for body in api.answered)
    seeds = [body["seed"] for body in api.answered]
    assert len(set(seeds)) == len(seeds)
    assert {body["temperature"] for body in api.answered} == {0.7}
    assert {body["top_p"] for body in api.answered} == {0.95}


def error(status: int, message: str = "no") -> web.Response:
    return web.json_response({"error": {"message": message, "type": "t", "code": None}}, status=status)


def truncated_json() -> web.Response:
    return web.Response(text='{"id": "x", "choi', content_type="application/json")


def no_choices() -> web.Response:
    return web.json_response({"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": []})


TRANSIENT = {
    "429": lambda: error(429),
    "500": lambda: error(500),
    "html": lambda: web.Response(status=502, text="<html>bad gateway</html>", content_type="text/html"),
    "truncated JSON": truncated_json,
    "no choices": no_choices,
    "nothing at all": lambda: 30.0,
}


@pytest.mark.slow
@others_nightly("fault", TRANSIENT)
def test_a_fault_that_passes_changes_nothing_through_inspect(fault, plan_for):
    def first_time_of_q3(message: str, sent_before: int) -> web.StreamResponse | float | None:
        return TRANSIENT[fault]() if "3 plus 3" in question_of(message) and sent_before == 0 else None

    with FakeApi(sums, first_time_of_q3) as api:
        derived = run(plan_for(api.url, model=OVER_INSPECT))
    assert not derived.missing
    assert ("q3", True, False) in cells(derived)


@pytest.mark.slow
@both_clients
def test_a_permanent_400_is_named_and_the_rest_counts(plan_for, model):
    def always_q3(message: str, sent_before: int) -> web.StreamResponse | None:
        return error(400, "this question breaks the server") if "3 plus 3" in question_of(message) else None

    with FakeApi(sums, always_q3) as api:
        derived = run(plan_for(api.url, model=model))
        assert [(missing.variant, missing.question_id) for missing in derived.missing] == [("normal", "q3")]
        assert "breaks the server" in derived.missing[0].error
        assert cells(derived)[3] == ("q3", None, None)
        assert derived.outcomes["unscored_reason"].to_list()[3] == "request_failed"
        assert derived.outcomes["refused"].null_count() == 1
        sent = len(api.answered)
        api._fault = None
        mended = run(plan_for(api.url, model=model))
        assert len(api.answered) == sent + 2, "only the missing question is asked, in both passes"
    assert not mended.missing


@both_clients
def test_a_reply_cut_or_filtered_is_unscored_and_never_refused(plan_for, model):
    def cut(message: str) -> str:
        number = int(question_of(message).split()[2])
        return {0: "<answer>UNANSWERED</answer>[length]", 1: "I will not[content_filter]"}.get(number, sums(message))

    with FakeApi(cut) as api:
        derived = run(plan_for(api.url, count=4, model=model))
    assert cells(derived)[:2] == [("q0", None, None), ("q1", None, None)]
    assert derived.outcomes["unscored_reason"].to_list()[:2] == ["first_truncated", "first_content_filter"]


def grading(message: str) -> str:
    """Answer in words; as the grader, find 0, 4, ... right, 2 not attempted, and 6 unreadable at first."""
    if not is_grading(message):
        return sums(message).replace("<answer>none</answer>", "It is none.")
    if "capital of France" in message:
        return "A"
    number = int(message.split("What is ")[1].split(maxsplit=1)[0])
    return {0: "A", 2: "C", 4: "CORRECT", 6: "hm"}.get(number, "B")


@both_clients
def test_a_model_grades_and_an_unreadable_grade_is_asked_once_more(plan_for, model):
    with FakeApi(grading) as api:
        plan = plan_for(api.url, model=model, grader=model.replace("any", "grader"))
        derived = run(plan)
    by_id = {row["question_id"]: row for row in derived.outcomes.iter_rows(named=True)}
    assert (by_id["q0"]["refused"], by_id["q0"]["wrong"]) == (False, False)
    assert (by_id["q2"]["refused"], by_id["q2"]["first_grade"]) == (True, "refused")
    assert by_id["q2"]["forced_reply"] is not None
    assert by_id["q2"]["forced_grade"] == "refused", "NOT_ATTEMPTED when forced"
    assert by_id["q2"]["wrong"] is True
    assert (by_id["q6"]["refused"], by_id["q6"]["unscored_reason"]) == (None, "first_grade_unreadable")
    asked_about_6 = [m for m in api.messages() if is_grading(m) and "What is 6" in m]
    assert len(asked_about_6) == 2
    assert is_grading(api.messages()[0]), "the grader is checked before the first question"
    graders = [body for body in api.answered if is_grading(body["messages"][-1]["content"])]
    assert all("temperature" not in body for body in graders), "the grader keeps its provider's settings"


@both_clients
def test_a_key_is_in_no_file_of_the_run_even_if_the_server_echoes_it(plan_for, model):
    def echo(message: str, sent_before: int) -> web.StreamResponse | None:
        return error(400, "bad key sk-very-secret") if "3 plus 3" in question_of(message) else None

    with FakeApi(sums, echo) as api:
        plan = plan_for(api.url, count=4, model=model)
        derived = run(plan)
    assert "sk-very-secret" not in json.dumps([missing.error for missing in derived.missing])
    assert "[key]" in derived.missing[0].error
    assert not any(b"sk-very-secret" in path.read_bytes() for path in plan.folder.path.rglob("*") if path.is_file())


def test_the_store_of_another_run_is_refused_before_anything_is_asked(plan_for):
    """Its questions were counted among those of the run."""
    with FakeApi(sums) as api:
        run(plan_for(api.url, count=3))
        run(plan_for(api.url, count=6, out="other"))
        ours, sent = plan_for(api.url, count=3), sum(api.received.values())
        shutil.copy(ours.folder.path.parent / "other/replies.sqlite", ours.folder.replies)
        with pytest.raises(StoreError, match="holds 3 questions that this run does not ask, such as 'q3'"):
            run(ours)
        assert sum(api.received.values()) == sent
