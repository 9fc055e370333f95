"""A key that is refused again and again ends a run early, says which, and is no obstacle to resuming."""

from __future__ import annotations

import pytest
from aiohttp import web
from refusal_index.engines.inspect.derive import derive
from refusal_index.engines.inspect.fuse import QUESTIONS_IN_A_ROW, Fuse, is_key_refused
from refusal_index.engines.inspect.run import RunFailedError, pending_variants, resolve_models, run_variants

from refusal_index.engines.inspect.models import resolve_model
from tests.engines.fake_api import FakeApi
from tests.engines.test_run import sums

COUNT = 60


class HttpError(RuntimeError):
    def __init__(self, status_code: int) -> None:
        super().__init__("no")
        self.status_code = status_code


def wrapped(error: Exception) -> Exception:
    outer = RuntimeError("outer")
    outer.__cause__ = error
    return outer


def test_it_blows_once_after_so_many_different_questions_in_a_row(monkeypatch):
    monkeypatch.setenv("FAKE_API_KEY", "sk-very-secret")
    model, blown, fuse = resolve_model("almanac/base"), [], Fuse()
    fuse.on_blown = lambda: blown.append(True)
    for number in range(QUESTIONS_IN_A_ROW - 1):
        for _ in range(3):  # tried again
            fuse.failed(model, f"q{number}", HttpError(401))
    assert not blown
    fuse.worked(model)
    for number in range(QUESTIONS_IN_A_ROW + 5):
        fuse.failed(model, f"q{number}", wrapped(HttpError(403)))
    assert blown == [True]
    assert "20 questions in a row" in fuse.reason


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (HttpError(401), True),
        (wrapped(wrapped(HttpError(403))), True),
        (HttpError(429), False),
        (HttpError(400), False),
        (RuntimeError("401"), False),
        (None, False),
    ],
)
def test_only_a_refused_key_counts(error, expected):
    assert is_key_refused(error) is expected


def refuse(status: int) -> web.Response:
    return web.json_response({"error": {"message": "bad key sk-very-secret", "type": "t", "code": None}}, status=status)


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_ends_the_run_before_all_is_sent_and_the_next_run_resumes(plan_for, folder, status):
    with FakeApi(sums, lambda *_: refuse(status)) as api:
        plan = plan_for(api.url, count=COUNT, variants=("low", "high"))
        with pytest.raises(RunFailedError) as caught:
            run_variants(plan, resolve_models(plan), folder, pending_variants(plan, folder))
        said = str(caught.value)
        assert "openai-api/fake/any refused the key for 20 questions in a row" in said
        assert str(status) in said
        assert "check FAKE_API_KEY; the same command resumes" in said
        assert "sk-very-secret" not in said
        assert "\n" not in said
        assert len(api.received) < COUNT, "not every question was tried, and only one variant"
        api._fault = None
        run_variants(plan, resolve_models(plan), folder, pending_variants(plan, folder))
        derived = derive(folder)
    assert not derived.missing
    assert derived.outcomes.height == 2 * COUNT
    assert len(list(folder.logs.glob("*.eval"))) == 2


def test_a_key_that_is_refused_here_and_there_ends_nothing(plan_for, folder):
    def some(message: str, _: int) -> web.StreamResponse | None:
        return refuse(403) if "What is 3 plus" in message else None

    with FakeApi(sums, some) as api:
        plan = plan_for(api.url, count=COUNT)
        run_variants(plan, resolve_models(plan), folder, pending_variants(plan, folder))
    assert [missing.question_id for missing in derive(folder).missing] == ["q3"]
