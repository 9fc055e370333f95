"""Log probabilities of replies are the same with every client and are stored with the same replies."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessageAssistant,
    GenerateConfig,
    Logprob,
    Logprobs,
    ModelOutput,
    TopLogprob,
    get_model,
)
from typer.testing import CliRunner

import refusal_index as ri
from refusal_index import redaction
from refusal_index.cli import app
from refusal_index.data.folder import RunFolder
from refusal_index.data.outcome import Question
from refusal_index.models.requests import MAX_TOP_LOGPROBS, ModelRequest, Response, model_request, to_completions
from refusal_index.models.settings import SettingError
from refusal_index.plugins.almanac.models import MODEL_NAMES, model_folder
from refusal_index.plugins.almanac.provider import embedded
from refusal_index.plugins.almanac.server import ModelPool, RequestLog, create_app, listening
from refusal_index.plugins.inspect.client import choices_of, guard, logprobs_of, packed, resolve_model, without_logprobs
from refusal_index.protocol import (
    Completion,
    Conversation,
    GraderKind,
    Pass,
    Protocol,
    Reply,
    Role,
    StopReason,
    TokenLogprob,
    TwoPass,
    load_prompt_set,
    next_requests,
    read_logprobs,
    write_logprobs,
)
from refusal_index.runs import sweep
from refusal_index.runs.settings import Settings
from refusal_index.runs.store import ReplyStore, open_store
from refusal_index.runs.sweep import prepare_sweep
from tests.runs import models
from tests.runs.models import LOCAL, ROWS

EXACT = 1e-4  # float32 sums in another batch: values down to -20 have steps of 2e-6
KEY = "sk-proj-3fGh8jKl2mNp5qRs"
SMALL = {"limit": 5, "variants": "low,high", "draws": 3, "max_choices": 2}


@pytest.fixture(autouse=True)
def run_in_tmp_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def over_http(asking):
    """Return the result of a coroutine that gets the address of the embedded models' server."""

    async def with_server():
        app = create_app(ModelPool(MODEL_NAMES, model_folder), RequestLog(None))
        async with listening(app) as url:
            return await asking(url)

    return asyncio.run(with_server())


def replies_by_key(folder: Path | str) -> dict[tuple[object, ...], Completion]:
    with open_store(RunFolder(Path(folder))) as store:
        return {
            (reply.question_id, reply.variant, reply.reply.pass_, reply.reply.role, reply.draw, reply.attempt): reply
            for reply in store.replies()
        }


def by_name(alternatives: tuple[tuple[str, float], ...]) -> list[tuple[str, float]]:
    """Sort alternatives by name, without those that rounding may move past the last one."""
    least = min((value for _, value in alternatives), default=0.0)
    return sorted(pair for pair in alternatives if pair[1] > least + EXACT)


def check_same(one: str | None, other: str | None) -> None:
    """Check tokens, alternatives and their values; alternatives that differ only by rounding may swap."""
    for ours, theirs in zip(read_logprobs(one) or (), read_logprobs(other) or (), strict=True):
        assert ours.token == theirs.token
        assert ours.logprob == pytest.approx(theirs.logprob, abs=EXACT)
        mine, others = (by_name(each.alternatives) for each in (ours, theirs))
        assert [name for name, _ in mine] == [name for name, _ in others]
        assert [value for _, value in mine] == pytest.approx([value for _, value in others], abs=EXACT)


@pytest.mark.slow
def test_logprobs_are_the_same_in_process_through_inspect_and_over_http():
    local, provided = (
        ri.evaluate(model, "almanac", out=out, logprobs=True, **SMALL).outcomes
        for model, out in (("almanac/base", "local"), (get_model("almanac/base", memoize=False), "inspect"))
    )
    how = {"out": "http", "logprobs": True, **SMALL}
    served = over_http(lambda url: ri.evaluate_async("base", "almanac", base_url=url, **how)).outcomes
    assert local.equals(provided)
    assert local.drop("model").equals(served.drop("model"))
    ours, theirs, https = (replies_by_key(name) for name in ("local", "inspect", "http"))
    assert set(ours) == set(theirs) == set(https)
    assert {completion.draw for completion in ours.values()} == {0, 1, 2}
    for place, one in ours.items():
        assert "".join(each.token for each in read_logprobs(one.logprobs) or ()) == one.reply.text
        for other in (theirs[place], https[place]):
            assert other.reply == one.reply
            check_same(one.logprobs, other.logprobs)


@pytest.mark.slow
def test_logprobs_change_nothing_else_in_the_store():
    asked, plain = (
        ri.evaluate("almanac/small", out=str(logprobs), logprobs=logprobs, **SMALL) for logprobs in (True, False)
    )
    assert asked.outcomes.equals(plain.outcomes)
    with_them, without = replies_by_key("True"), replies_by_key("False")
    assert all(one.logprobs is None for one in without.values())
    assert {place: replace(one, logprobs=None, seconds=None) for place, one in with_them.items()} == {
        place: replace(one, seconds=None) for place, one in without.items()
    }


def make_model_request(of: Pass = Pass.FIRST, asked: Role = Role.MODEL, **settings: object) -> ModelRequest:
    question = Question("q1", "In what year was the bridge of Ostrow opened?", "1871")
    protocol = Protocol(load_prompt_set("default"), "normal", GraderKind.MODEL)
    conversation = Conversation(question, "normal", TwoPass(GraderKind.MODEL, protocol), 4)
    (one,) = (request for request in next_requests(conversation, []) if request.step.pass_ is Pass.FIRST)
    return model_request(
        Settings.from_values(**settings), conversation, replace(one, step=replace(one.step, pass_=of, role=asked))
    )


def test_only_model_requests_ask_for_logprobs_without_alternatives():
    assert make_model_request().top_logprobs is None
    assert [make_model_request(of, logprobs=True).top_logprobs for of in (Pass.FIRST, Pass.FORCED)] == [0, 0]
    assert make_model_request(asked=Role.GRADER, logprobs=True).top_logprobs is None


def test_logprobs_are_not_part_of_the_request_hash():
    assert make_model_request(logprobs=True).sha256 == make_model_request().sha256


def test_alternatives_are_the_same_in_process_through_inspect_and_over_http():
    ask = replace(make_model_request(), top_logprobs=MAX_TOP_LOGPROBS, n=2)
    text = ask.request.messages[0].content
    config = GenerateConfig(temperature=0.7, top_p=0.95, seed=ask.seed, num_choices=2, logprobs=True, top_logprobs=20)

    async def through_inspect(name: str, **arguments: str) -> ModelOutput:
        async with get_model(name, memoize=False, **arguments) as model:
            return await model.generate(text, config=config)

    response = asyncio.run(embedded("base")(ask))
    inside = asyncio.run(through_inspect("almanac/base"))
    outside = over_http(lambda url: through_inspect("together/base", base_url=url, api_key="none"))
    for output in (inside, outside):
        assert choices_of(output) == response.replies
        for pair in zip(response.logprobs, logprobs_of(output), strict=True):
            check_same(*pair)
    for reported in response.logprobs:
        for logprob in read_logprobs(reported):
            assert len(logprob.alternatives) == MAX_TOP_LOGPROBS
            assert logprob.alternatives == tuple(sorted(logprob.alternatives, key=lambda pair: -pair[1]))
            assert logprob.alternatives[0][1] >= logprob.logprob


def test_embedded_provider_reports_logprobs_only_if_asked():
    async def ask(**config: object) -> ModelOutput:
        return await resolve_model("almanac/small").generate("Who?", config=GenerateConfig(max_tokens=3, **config))

    assert asyncio.run(ask()).choices[0].logprobs is None
    assert asyncio.run(ask(top_logprobs=3)).choices[0].logprobs is None
    reported = asyncio.run(ask(logprobs=True)).choices[0].logprobs.content
    assert len(reported) == 3
    assert not any(one.top_logprobs for one in reported)


def test_functions_report_no_logprobs():
    run = ri.evaluate(models.answer, ROWS, out="run", logprobs=True, **LOCAL)
    assert run.outcomes.height == len(ROWS)
    assert all(one.logprobs is None for one in replies_by_key("run").values())


def test_replies_without_logprobs_are_not_requested_again():
    ri.evaluate("almanac/small", out="run", limit=4, variants="low")
    before = replies_by_key("run")
    ri.evaluate("almanac/small", out="run", limit=4, variants="low", logprobs=True)
    assert replies_by_key("run") == before


@pytest.mark.parametrize("logprobs", [False, True])
def test_omitted_logprobs_flag_keeps_the_configuration(logprobs, monkeypatch):
    Path("mine.toml").write_text(
        f"[defaults]\nlogprobs = {str(logprobs).lower()}\n[[models]]\nmodel = 'almanac/small'\n"
        "[[datasets]]\ndataset = 'almanac'\nlimit = 5\n"
    )
    seen = []
    kept = lambda *given, **more: seen.append(prepare_sweep(*given, **more)) or seen[-1]  # noqa: E731
    monkeypatch.setattr(sweep, "prepare_sweep", kept)
    for flags in ((), ("--logprobs",)):
        assert CliRunner().invoke(app, ["run", "--config", "mine.toml", "--dry-run", *flags]).exit_code == 0
    assert [one.plans[0].settings.sending.logprobs for one in seen] == [logprobs, True]


def test_invalid_logprobs_setting_raises():
    with pytest.raises(SettingError, match="logprobs: expected true or false, got 'yes'"):
        Settings.from_values(logprobs="yes")
    Path("mine.toml").write_text(
        "[[models]]\nmodel = 'almanac/small'\nlogprobs = 1\n[[datasets]]\ndataset = 'almanac'\n"
    )
    with pytest.raises(SettingError, match=r"mine.toml, \[\[models\]\] 1, logprobs: expected true or false, got 1"):
        prepare_sweep("mine.toml")


REPORTED = st.none() | st.lists(st.tuples(st.text(max_size=3), st.floats(-50, 0)), max_size=3)
CAME = st.lists(st.tuples(st.sampled_from(["Lima", "Cuzco", ""]), REPORTED), min_size=1, max_size=8)


def choice(text: str, reported: list[tuple[str, float]] | None) -> ChatCompletionChoice:
    content = [
        Logprob(token=token, logprob=logprob, top_logprobs=[TopLogprob(token=token, logprob=logprob)])
        for token, logprob in reported or ()
    ]
    logprobs = None if reported is None else Logprobs(content=content)
    return ChatCompletionChoice(message=ChatMessageAssistant(content=text), logprobs=logprobs)


def written(reported: list[tuple[str, float]] | None) -> str | None:
    if reported is None:
        return None
    return write_logprobs(TokenLogprob(token, logprob, ((token, logprob),)) for token, logprob in reported)


@given(CAME, st.sets(st.integers(0, 7), max_size=3))
def test_packed_choices_keep_their_logprobs_property(came, lost):
    whole = ModelOutput(model="m", choices=[choice(*one) for one in came])
    if lost.issuperset(range(len(came))):
        return
    texts = [None if place in lost else (text, StopReason.STOP) for place, (text, _) in enumerate(came)]
    one = packed(whole, texts)
    again = ModelOutput.model_validate_json(one.model_dump_json())
    expected = [None if place in lost else written(reported) for place, (_, reported) in enumerate(came)]
    assert logprobs_of(one) == logprobs_of(again) == expected
    assert [found and found[0] for found in choices_of(one)] == [
        None if place in lost else text for place, (text, _) in enumerate(came)
    ]
    assert logprobs_of(without_logprobs(again)) == [None] * len(came)
    assert choices_of(without_logprobs(again)) == choices_of(one)


def test_invalid_logprob_drops_the_report_not_the_reply():
    output = ModelOutput(model="m", choices=[choice("Lima", [("Lima", float("nan"))]), choice("Lima", [("Lima", -1)])])
    assert logprobs_of(packed(output)) == [None, written([("Lima", -1)])]
    assert len(choices_of(packed(output))) == 2


@given(st.lists(st.sampled_from(["a", None]), max_size=6))
def test_each_choice_stores_its_own_logprobs_property(reported):
    ask = make_model_request()
    replies = [("Lima", StopReason.STOP), None, ("Cuzco", StopReason.STOP), ("Lima", StopReason.STOP)]
    found = to_completions(ask, Response(replies, logprobs=reported))
    logprobs = [*reported, None, None, None, None]
    assert [(one.draw, one.logprobs) for one in found] == [(0, logprobs[0]), (2, logprobs[2]), (3, logprobs[3])]


@pytest.mark.parametrize("text", [f"the key is {KEY}", "nothing"])
def test_tokens_of_a_reply_with_a_key_are_not_stored(monkeypatch, text):
    monkeypatch.setattr(redaction, "_remembered", {KEY})
    reported = write_logprobs(TokenLogprob(text[place : place + 3], -1) for place in range(0, len(text), 3))
    with ReplyStore(None) as store:
        store.require("low", {Question("q1", "Who?", "I"): 1})
        store.put([Completion("q1", "low", 0, Reply(Pass.FIRST, Role.MODEL, text), logprobs=reported)])
        (kept,) = store.replies()
    assert kept.logprobs == (None if KEY in text else reported)
    assert KEY not in kept.reply.text


def test_numeric_key_alters_no_numbers(monkeypatch):
    monkeypatch.setattr(redaction, "_remembered", {"123456"})
    with ReplyStore(None) as store:
        store.require("low", {Question("q1", "Who?", "I"): 1})
        reported = write_logprobs([TokenLogprob("I", -0.123456)])
        store.put([Completion("q1", "low", 0, Reply(Pass.FIRST, Role.MODEL, "I"), logprobs=reported)])
        (kept,) = store.replies()
    assert (kept.reply.text, kept.logprobs) == ("I", reported)


def test_tokens_with_a_key_are_not_logged(monkeypatch):
    monkeypatch.setattr(redaction, "_remembered", {KEY})

    class Telling:
        def __init__(self) -> None:
            self.api_key, self.base_url = None, None

        async def generate(self) -> ModelOutput:
            pieces = [(KEY[place : place + 3], -1.0) for place in range(0, len(KEY), 3)]
            return ModelOutput(model="m", choices=[choice(KEY, pieces), choice(KEY, pieces)])

    api = Telling()
    guard(api)
    logprobs = json.dumps(asyncio.run(api.generate()).model_dump())
    assert KEY[:3] not in logprobs
