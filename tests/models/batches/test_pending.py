"""Waves: all that is due, each request once, with an id that says what it is; and the same end as one by one."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from refusal_index.models.requests import Response, model_request
from refusal_index.plugins.batches.formats import RequestResult
from refusal_index.plugins.batches.rounds import Pending, QuestionState, ResultMerger, custom_id, question_states
from refusal_index.protocol import Completion, Conversation, GraderKind, Pass, Reply, Role, StopReason, next_requests
from refusal_index.runs.settings import Settings
from refusal_index.runs.store import ReplyStore
from tests.models.batches.answering import (
    NAMES,
    SETTINGS,
    Script,
    became,
    conversed,
    kept,
    pending_of,
    store_of,
    talks,
)

REFUSED, ANSWERED = "<answer>UNANSWERED</answer>", "<answer>4</answer>"


def wave_of(
    conversations: list[Conversation], store: ReplyStore, settings: Settings = SETTINGS, *, singly: bool = False
) -> list[Pending]:
    return pending_of(question_states(conversations, store, settings, NAMES), singly=singly)


def first(question_id: str, variant: str, text: str, draw: int = 0) -> Completion:
    return Completion(question_id, variant, draw, Reply(Pass.FIRST, Role.MODEL, text))


def id_of(
    settings: Settings = SETTINGS,
    names: dict[Role, str] = NAMES,
    talk: Conversation | None = None,
    said: tuple[Completion, ...] = (),
) -> str:
    talk = talk or talks(1)[0]
    (one,) = pending_of([QuestionState([talk], settings, names, said)])
    return one.custom_id


def test_an_id_is_the_same_in_any_process_and_what_every_provider_takes():
    """Written down: a release that makes others could not find what an earlier one has in flight."""
    assert custom_id("openai/gpt-4.1", "0" * 64) == "ri-4702eb08b83b0376d5b5be6f0319472f64418c7b"
    assert id_of() == id_of()
    store = store_of(talks(20, GraderKind.MODEL, 2))
    for one in wave_of(talks(20, GraderKind.MODEL, 2), store):
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", one.custom_id)


def test_an_id_tells_all_that_is_asked_and_whom():
    question = talks(1)[0].question
    refused = (first("q0", "low", REFUSED),)
    ids = {
        "as it is": id_of(),
        "another pass": id_of(said=refused),
        "another question": id_of(talk=talks(2)[2]),
        "other words": id_of(talk=replace(talks(1)[0], question=replace(question, text="Who?"))),
        "another variant": id_of(talk=talks(1)[1]),
        "another model": id_of(names=NAMES | {Role.MODEL: "openai/gpt-4.2"}),
        "another temperature": id_of(SETTINGS.changed(temperature=0.6)),
        "another top-p": id_of(SETTINGS.changed(top_p=0.5)),
        "another limit": id_of(SETTINGS.changed(max_tokens=5)),
        "another effort": id_of(SETTINGS.changed(reasoning_effort="low")),
        "another seed": id_of(SETTINGS.changed(seed=1)),
    }
    twice = replace(talks(1)[0], draws=2)
    _, ids["another draw"], *_ = (
        one.custom_id for one in pending_of([QuestionState([twice], SETTINGS, NAMES)], singly=True)
    )
    aside = [first("q0", "low", "cut")]
    (again,) = pending_of([QuestionState([talks(1)[0]], SETTINGS, NAMES, (), aside)])
    ids["asked again"] = again.custom_id
    assert len(set(ids.values())) == len(ids), ids


def test_a_second_attempt_of_a_grader_has_an_id_of_its_own():
    talk, said = talks(1, GraderKind.MODEL)[0], [first("q0", "low", ANSWERED)]
    unread = Completion("q0", "low", 0, Reply(Pass.FIRST, Role.GRADER, "who knows"))
    once, again = id_of(talk=talk, said=tuple(said)), id_of(talk=talk, said=(*said, unread))
    assert once != again


@given(st.integers(2, 300), st.integers(1, 120))
def test_ids_do_not_depend_on_how_many_draws_go_into_one_request(draws, most):
    talk = replace(talks(1)[0], draws=draws)
    one_each = [one.custom_id for one in pending_of([QuestionState([talk], SETTINGS, NAMES)], singly=True)]
    together = pending_of([QuestionState([talk], SETTINGS.changed(max_choices=most), NAMES)])
    assert len(one_each) == 2 * draws, "both passes, in every draw"
    assert {one.custom_id for one in together} <= set(one_each)
    assert sum(one.ask.n for one in together) == 2 * draws, "all of them go out at once"
    assert max(one.ask.n for one in together) == min(most, draws)


def test_requests_of_many_draws_are_those_that_other_engines_send():
    settings = SETTINGS.changed(max_choices=2)
    conversations, script = talks(2, draws=5), Script()
    conversed(conversations, script, settings)
    asked = {(one.sha256, one.n) for one in script.asked}
    waved = {(one.ask.sha256, one.ask.n) for one in wave_of(conversations, store_of(conversations), settings)}
    assert waved == asked


def test_a_request_is_the_one_that_every_engine_sends():
    for talk in talks(2):
        (each,) = next_requests(talk, [])
        (one,) = pending_of([QuestionState([talk], SETTINGS, NAMES)])
        assert one.ask == model_request(SETTINGS, talk, each)


def test_what_several_variants_share_is_asked_once():
    conversations = talks(2)
    store = store_of(conversations)
    store.put([first(f"q{n}", variant, REFUSED) for n in range(2) for variant in ("low", "high")])
    assert [one.ask.request.pass_ for one in wave_of(conversations, store)] == [Pass.FORCED] * 2
    assert len(wave_of(talks(2, draws=3), store_of([]), singly=True)) == 2 * (2 * 3 + 3)


def test_a_reply_that_was_set_aside_is_asked_for_with_another_seed():
    conversations = talks(1)
    store = store_of(conversations)
    before = wave_of(conversations, store)
    store.put([first("q0", "low", "cut")])
    store.retire(list(store.replies()))
    low, high = wave_of(conversations, store)
    assert high == before[1]
    assert (low.custom_id, low.ask.seed) != (before[0].custom_id, before[0].ask.seed)


def test_talks_hold_a_forced_answer_once_however_many_variants_share_it():
    conversations = talks(2)
    store = store_of(conversations)
    forced = Completion("q0", "", 0, Reply(Pass.FORCED, Role.MODEL, ANSWERED))
    store.put([forced, first("q0", "low", REFUSED), first("q1", "low", REFUSED)])
    one, two = question_states(conversations, store, SETTINGS, NAMES)
    assert sorted(each.variant for each in one.completions) == ["", "low"]
    assert [each.variant for each in two.completions] == ["low"]
    assert [each.variant for each in one.conversations] == ["low", "high"]


WAVES = {GraderKind.EXACT: 2, GraderKind.MODEL: 6, GraderKind.AGREE: 10}
"""At most: the two passes, and two attempts of each grader in each of them; four where a grader is read at once."""


@example(0, GraderKind.MODEL, 1, False)
@given(st.integers(0, 10**6), st.sampled_from(list(WAVES)), st.integers(1, 3), st.booleans())
def test_a_few_waves_come_to_the_same_end_as_one_request_after_the_other(salt, kind, draws, singly):
    conversations, script = talks(3, kind, draws), Script(salt)
    expected = conversed(conversations, Script(salt))
    names = NAMES if kind.models else {Role.MODEL: NAMES[Role.MODEL]}
    store, waves = store_of(conversations), 0
    while pending := pending_of(question_states(conversations, store, SETTINGS, names), singly=singly):
        waves += 1
        assert waves <= WAVES[kind]
        assert len({one.custom_id for one in pending}) == len(pending)
        results = {one.custom_id: RequestResult(one.custom_id, script.response(one.ask)) for one in pending}
        taken = ResultMerger(results, store).merge(question_states(conversations, store, SETTINGS, names))
        assert (taken.replies, taken.failed, taken.differing) == (sum(one.ask.n for one in pending), 0, 0)
    assert became(conversations, store) == became(conversations, expected)
    ours, theirs = kept(store), kept(expected)
    assert ours.keys() == theirs.keys()
    assert all(one.reply == theirs[place].reply for place, one in ours.items())
    if not singly:
        assert ours == {place: replace(one, seconds=None) for place, one in theirs.items()}


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        (GraderKind.EXACT, [REFUSED, ANSWERED]),
        (GraderKind.MODEL, [REFUSED, ANSWERED, "A"]),
        (GraderKind.MODEL, [ANSWERED, "C", ANSWERED, "A"]),
        (GraderKind.MODEL, [ANSWERED, "who knows", "C", ANSWERED, "who knows", "A"]),
        (GraderKind.AGREE, [ANSWERED, "?", "C", "?", "C", ANSWERED, "?", "A", "?", "A"]),
    ],
)
def test_the_longest_way_takes_as_many_waves_as_are_told(kind, texts):
    conversations = talks(1, kind, variants=("low",))
    store = store_of(conversations)
    for text in texts:
        (one,) = wave_of(conversations, store)
        results = {one.custom_id: RequestResult(one.custom_id, Response([(text, StopReason.STOP)]))}
        ResultMerger(results, store).merge(question_states(conversations, store, SETTINGS, NAMES))
    assert not wave_of(conversations, store)


@pytest.mark.parametrize("count", [0, 1])
def test_a_question_of_which_nothing_is_due_has_no_request(count):
    conversations = talks(count)
    store = store_of(conversations)
    store.put([first(f"q{n}", variant, ANSWERED) for n in range(count) for variant in ("low", "high")])
    assert not wave_of(conversations, store)
