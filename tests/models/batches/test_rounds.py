"""Rounds of requests: what is due, and results in any order."""

from __future__ import annotations

import random
import re
import tempfile
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from refusal_index import redaction
from refusal_index.models.failures import Failure
from refusal_index.models.requests import Response, model_request
from refusal_index.plugins.batches import rounds
from refusal_index.plugins.batches.formats import FORMATS, RequestResult
from refusal_index.plugins.batches.request_files import StagedResults
from refusal_index.plugins.batches.rounds import (
    MergeCounts,
    Pending,
    QuestionState,
    ResultMerger,
    Results,
    custom_id,
    question_states,
)
from refusal_index.protocol import Completion, Conversation, GraderKind, Pass, Reply, Role, StopReason, next_requests
from refusal_index.runs.events import Event, Finished, Replied
from refusal_index.runs.settings import Settings
from refusal_index.runs.store import ReplyStore, StoreError
from tests.models.batches.answering import (
    LINES,
    NAMES,
    SETTINGS,
    Script,
    answered_in_sequence,
    dumped,
    failed_line,
    make_conversations,
    outcomes_of,
    pending_of,
    replies_by_key,
    store_of,
)
from tests.tiers import reduced_examples

# --- Rounds of requests

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
    conversation: Conversation | None = None,
    known: tuple[Completion, ...] = (),
) -> str:
    conversation = conversation or make_conversations(1)[0]
    (one,) = pending_of([QuestionState([conversation], settings, names, known)])
    return one.custom_id


def test_custom_id_is_stable_and_accepted_by_every_provider():
    """Pinned: a release with other ids could not find batches that an earlier one has in flight."""
    assert custom_id("openai/gpt-4.1", "0" * 64) == "ri-4702eb08b83b0376d5b5be6f0319472f64418c7b"
    assert id_of() == id_of()
    store = store_of(make_conversations(20, GraderKind.MODEL, 2))
    for one in wave_of(make_conversations(20, GraderKind.MODEL, 2), store):
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", one.custom_id)


def test_custom_id_depends_on_everything_in_the_request():
    question = make_conversations(1)[0].question
    refused = (first("q0", "low", REFUSED),)
    ids = {
        "as it is": id_of(),
        "another pass": id_of(known=refused),
        "another question": id_of(conversation=make_conversations(2)[2]),
        "other words": id_of(conversation=replace(make_conversations(1)[0], question=replace(question, text="Who?"))),
        "another variant": id_of(conversation=make_conversations(1)[1]),
        "another model": id_of(names=NAMES | {Role.MODEL: "openai/gpt-4.2"}),
        "another temperature": id_of(SETTINGS.changed(temperature=0.6)),
        "another top-p": id_of(SETTINGS.changed(top_p=0.5)),
        "another limit": id_of(SETTINGS.changed(max_tokens=5)),
        "another effort": id_of(SETTINGS.changed(reasoning_effort="low")),
        "another seed": id_of(SETTINGS.changed(seed=1)),
    }
    twice = replace(make_conversations(1)[0], draws=2)
    _, ids["another draw"], *_ = (
        one.custom_id for one in pending_of([QuestionState([twice], SETTINGS, NAMES)], singly=True)
    )
    aside = [first("q0", "low", "cut")]
    (again,) = pending_of([QuestionState([make_conversations(1)[0]], SETTINGS, NAMES, (), aside)])
    ids["asked again"] = again.custom_id
    assert len(set(ids.values())) == len(ids), ids


def test_second_grader_attempt_has_another_id():
    conversation, replies = make_conversations(1, GraderKind.MODEL)[0], [first("q0", "low", ANSWERED)]
    unread = Completion("q0", "low", 0, Reply(Pass.FIRST, Role.GRADER, "who knows"))
    once, again = (
        id_of(conversation=conversation, known=tuple(replies)),
        id_of(conversation=conversation, known=(*replies, unread)),
    )
    assert once != again


@given(st.integers(2, 300), st.integers(1, 120))
def test_ids_do_not_depend_on_draws_per_request_property(draws, most):
    conversation = replace(make_conversations(1)[0], draws=draws)
    one_each = [one.custom_id for one in pending_of([QuestionState([conversation], SETTINGS, NAMES)], singly=True)]
    together = pending_of([QuestionState([conversation], SETTINGS.changed(max_choices=most), NAMES)])
    assert len(one_each) == 2 * draws, "both passes, in every draw"
    assert {one.custom_id for one in together} <= set(one_each)
    assert sum(one.ask.n for one in together) == 2 * draws, "all of them go out at once"
    assert max(one.ask.n for one in together) == min(most, draws)


def test_requests_with_many_draws_match_other_engines():
    settings = SETTINGS.changed(max_choices=2)
    conversations, script = make_conversations(2, draws=5), Script()
    answered_in_sequence(conversations, script, settings)
    asked = {(request.sha256, request.n) for request in script.requests}
    waved = {(one.ask.sha256, one.ask.n) for one in wave_of(conversations, store_of(conversations), settings)}
    assert waved == asked


def test_requests_match_those_of_every_engine():
    for conversation in make_conversations(2):
        (each,) = next_requests(conversation, [])
        (one,) = pending_of([QuestionState([conversation], SETTINGS, NAMES)])
        assert one.ask == model_request(SETTINGS, conversation, each)


def test_request_shared_by_variants_is_sent_once():
    conversations = make_conversations(2)
    store = store_of(conversations)
    store.put([first(f"q{n}", variant, REFUSED) for n in range(2) for variant in ("low", "high")])
    assert [one.ask.request.pass_ for one in wave_of(conversations, store)] == [Pass.FORCED] * 2
    assert len(wave_of(make_conversations(2, draws=3), store_of([]), singly=True)) == 2 * (2 * 3 + 3)


def test_retired_reply_is_requested_with_another_seed():
    conversations = make_conversations(1)
    store = store_of(conversations)
    before = wave_of(conversations, store)
    store.put([first("q0", "low", "cut")])
    store.retire(list(store.replies()))
    low, high = wave_of(conversations, store)
    assert high == before[1]
    assert (low.custom_id, low.ask.seed) != (before[0].custom_id, before[0].ask.seed)


def test_shared_forced_answer_is_held_once_per_question():
    conversations = make_conversations(2)
    store = store_of(conversations)
    forced = Completion("q0", "", 0, Reply(Pass.FORCED, Role.MODEL, ANSWERED))
    store.put([forced, first("q0", "low", REFUSED), first("q1", "low", REFUSED)])
    one, two = question_states(conversations, store, SETTINGS, NAMES)
    assert sorted(each.variant for each in one.completions) == ["", "low"]
    assert [each.variant for each in two.completions] == ["low"]
    assert [each.variant for each in one.conversations] == ["low", "high"]


ROUNDS = {GraderKind.EXACT: 2, GraderKind.MODEL: 6, GraderKind.AGREE: 10}
"""The most rounds: the two passes, and two attempts of each grader in each pass."""


@example(0, GraderKind.MODEL, 1, False)
@given(st.integers(0, 10**6), st.sampled_from(list(ROUNDS)), st.integers(1, 3), st.booleans())
def test_rounds_match_sequential_requests_property(salt, kind, draws, singly):
    conversations, script = make_conversations(3, kind, draws), Script(salt)
    expected = answered_in_sequence(conversations, Script(salt))
    names = NAMES if kind.models else {Role.MODEL: NAMES[Role.MODEL]}
    store, rounds = store_of(conversations), 0
    while pending := pending_of(question_states(conversations, store, SETTINGS, names), singly=singly):
        rounds += 1
        assert rounds <= ROUNDS[kind]
        assert len({one.custom_id for one in pending}) == len(pending)
        results = {one.custom_id: RequestResult(one.custom_id, script.response(one.ask)) for one in pending}
        taken = ResultMerger(results, store).merge(question_states(conversations, store, SETTINGS, names))
        assert (taken.replies, taken.failed, taken.differing) == (sum(one.ask.n for one in pending), 0, 0)
    assert outcomes_of(conversations, store) == outcomes_of(conversations, expected)
    ours, theirs = replies_by_key(store), replies_by_key(expected)
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
def test_longest_sequence_takes_the_stated_number_of_rounds(kind, texts):
    conversations = make_conversations(1, kind, variants=("low",))
    store = store_of(conversations)
    for text in texts:
        (one,) = wave_of(conversations, store)
        results = {one.custom_id: RequestResult(one.custom_id, Response([(text, StopReason.STOP)]))}
        ResultMerger(results, store).merge(question_states(conversations, store, SETTINGS, NAMES))
    assert not wave_of(conversations, store)


@pytest.mark.parametrize("count", [0, 1])
def test_finished_question_has_no_request(count):
    conversations = make_conversations(count)
    store = store_of(conversations)
    store.put([first(f"q{n}", variant, ANSWERED) for n in range(count) for variant in ("low", "high")])
    assert not wave_of(conversations, store)


# --- Results in any order, repeated or missing

REFUSED_REPLY, ANSWERED_REPLY = (
    ("<answer>UNANSWERED</answer>", StopReason.STOP),
    ("<answer>4</answer>", StopReason.STOP),
)


def due_now(conversations: list[Conversation], store: ReplyStore, *, singly: bool = False) -> list[Pending]:
    return pending_of(question_states(conversations, store, SETTINGS, NAMES), singly=singly)


def taken(
    conversations: list[Conversation], store: ReplyStore, results: Results, **watch: Callable[..., object]
) -> MergeCounts:
    found = ResultMerger(results, store, **watch).merge(question_states(conversations, store, SETTINGS, NAMES))
    assert found.pending == len(due_now(conversations, store))
    return found


def answered(pending: list[Pending], *replies: tuple[str, StopReason] | None) -> dict[str, RequestResult]:
    return {one.custom_id: RequestResult(one.custom_id, Response(list(replies))) for one in pending}


@reduced_examples(0.4)  # each merges dozens of files
@given(
    st.integers(0, 10**6),
    st.sampled_from([GraderKind.EXACT, GraderKind.MODEL, GraderKind.AGREE]),
    st.integers(1, 3),
    st.sampled_from(list(FORMATS)),
)
def test_merging_does_not_depend_on_order_files_or_repeats_property(salt, kind, draws, style):
    conversations, script, chance = make_conversations(3, kind, draws), Script(salt), random.Random(salt)
    expected, store = answered_in_sequence(conversations, Script(salt)), store_of(conversations)
    singly = not FORMATS[style].gives_choices or chance.random() < 0.3
    earlier: list[Path] = []
    with tempfile.TemporaryDirectory() as folder:
        for number in count():
            pending = due_now(conversations, store, singly=singly)
            if not pending:
                break
            assert number < 60
            lines = []
            for one in pending:
                fate = chance.random() if number < 20 else 1
                if fate < 0.2:
                    lines.append(failed_line(one.custom_id, style))
                if fate >= 0.1:
                    response = script.response(one.ask)
                    lines += [LINES[style](one.custom_id, response.replies)] * chance.choice((1, 1, 2))
            chance.shuffle(lines)
            parts = [Path(folder, f"{number}-{part}.jsonl") for part in range(3)]
            for part, path in enumerate(parts):
                path.write_bytes(dumped(lines[part::3]))
            earlier += parts
            given_now = [*parts, *chance.sample(earlier, min(2, len(earlier)))]
            chance.shuffle(given_now)
            with StagedResults() as staged:
                for path in given_now:
                    staged.read(path)
                found = taken(conversations, store, staged)
                assert found.differing == 0
                assert (staged.contradicting.count, staged.unreadable.count, staged.unused().count) == (0, 0, 0)
        assert outcomes_of(conversations, store) == outcomes_of(conversations, expected)
        with StagedResults() as staged:
            for path in earlier:
                staged.read(path)
            again = taken(conversations, store, staged)
            assert (again.replies, again.differing, staged.unused().count) == (0, 0, 0)
            assert again.stored > 0


@given(st.integers(0, 10**6), st.sampled_from([GraderKind.EXACT, GraderKind.MODEL]), st.integers(1, 3))
def test_merging_all_rounds_at_once_reproduces_the_run_property(salt, kind, draws):
    """Even if a reply is stored with changes: its grading request contains the stored text."""
    conversations, script = make_conversations(3, kind, draws), Script(salt)
    store, results = store_of(conversations), {}
    while pending := due_now(conversations, store):
        results |= {one.custom_id: RequestResult(one.custom_id, script.response(one.ask)) for one in pending}
        taken(conversations, store, results)
    copy = store_of(conversations)
    found = taken(conversations, copy, results)
    assert replies_by_key(copy) == replies_by_key(store)
    assert found.replies == len(replies_by_key(store))
    assert not due_now(conversations, copy)


def test_keys_in_replies_are_redacted_before_grading(monkeypatch):
    monkeypatch.setattr(redaction, "_remembered", {"very-secret-value-1"})
    conversations = make_conversations(1, GraderKind.MODEL, variants=("low",))
    store = store_of(conversations)
    first = answered(due_now(conversations, store), ("<answer>very-secret-value-1</answer>", StopReason.STOP))
    taken(conversations, store, first)
    grade = answered(due_now(conversations, store), ("B", StopReason.STOP))
    copy = store_of(conversations)
    assert taken(conversations, copy, first | grade).replies == 2
    assert not any("very-secret" in reply.reply.text for reply in copy.replies())


def test_choices_and_single_replies_fill_the_same_draws():
    conversations, script = make_conversations(2, draws=4), Script(5)
    expected = outcomes_of(conversations, answered_in_sequence(conversations, Script(5)))
    for singly in (False, True):
        store = store_of(conversations)
        pending = due_now(conversations, store, singly=singly)
        assert len(pending) == (2 * 3, 2 * 3 * 4)[singly]
        taken(
            conversations,
            store,
            {one.custom_id: RequestResult(one.custom_id, script.response(one.ask)) for one in pending},
        )
        assert outcomes_of(conversations, store) == expected
        requests = [reply.requests for reply in store.replies()]
        assert (len(requests), sum(requests)) == (24, (6, 24)[singly]), "extra choices cost no request"


def test_missing_choices_stay_due():
    conversations, script = make_conversations(1, draws=4, variants=("low",)), Script(5)
    store = store_of(conversations)
    for draws in ([0, 0], [2, 2]):
        pending = due_now(conversations, store)
        assert [one.ask.pending.draw for one in pending] == draws
        two_each = {one.custom_id: RequestResult(one.custom_id, script.response(one.ask, 2)) for one in pending}
        taken(conversations, store, two_each)
    assert not due_now(conversations, store)
    assert outcomes_of(conversations, store) == outcomes_of(
        conversations, answered_in_sequence(conversations, Script(5))
    )


def test_empty_choice_is_requested_again_and_extra_choices_are_ignored():
    conversations = make_conversations(1, draws=3, variants=("low",))
    store = store_of(conversations)
    first = [one for one in due_now(conversations, store) if one.ask.request.pass_ is Pass.FIRST]
    found = taken(
        conversations, store, answered(first, ANSWERED_REPLY, None, REFUSED_REPLY, ANSWERED_REPLY, ANSWERED_REPLY)
    )
    assert found.replies == 2
    assert [reply.draw for reply in store.replies()] == [0, 2]
    (again, _) = due_now(conversations, store)
    assert (again.ask.pending.draw, again.ask.n) == (1, 1)


def test_extra_draw_is_kept_and_a_later_result_is_compared():
    conversations = make_conversations(1, draws=2, variants=("low",))
    store = store_of(conversations)
    one_each = [one for one in due_now(conversations, store, singly=True) if one.ask.request.pass_ is Pass.FIRST]
    results = answered(one_each[:1], ANSWERED_REPLY, REFUSED_REPLY) | answered(one_each[1:], ANSWERED_REPLY)
    named: list[str] = []
    found = taken(conversations, store, results, differs=named.append)
    assert (found.replies, found.differing, named) == (2, 1, [one_each[1].custom_id])
    assert [reply.reply.text for reply in store.replies()] == [ANSWERED_REPLY[0], REFUSED_REPLY[0]]


@pytest.mark.parametrize("others", [("<answer>5</answer>", StopReason.STOP), (ANSWERED_REPLY[0], StopReason.LENGTH)])
def test_first_reply_is_kept_and_a_different_one_is_reported(others):
    conversations = make_conversations(1, variants=("low",))
    store, (pending,) = store_of(conversations), due_now(conversations, store_of(conversations))
    taken(conversations, store, answered([pending], ANSWERED_REPLY))
    before, named = replies_by_key(store), []
    assert taken(conversations, store, answered([pending], ANSWERED_REPLY), differs=named.append) == MergeCounts(
        stored=1
    )
    assert taken(conversations, store, answered([pending], others), differs=named.append) == MergeCounts(differing=1)
    assert named == [pending.custom_id]
    assert replies_by_key(store) == before


@pytest.mark.parametrize("place", [0, 1, 2])
def test_every_choice_is_compared(place):
    conversations = make_conversations(1, draws=3, variants=("low",))
    store = store_of(conversations)
    pending = [one for one in due_now(conversations, store) if one.ask.request.pass_ is Pass.FIRST]
    replies = [ANSWERED_REPLY, REFUSED_REPLY, ANSWERED_REPLY]
    taken(conversations, store, answered(pending, *replies))
    replies[place] = ("<answer>no</answer>", StopReason.STOP)
    assert taken(conversations, store, answered(pending, *replies)).differing == 1


def test_choices_after_an_empty_one_are_compared_with_their_draws():
    conversations = make_conversations(1, draws=3, variants=("low",))
    store = store_of(conversations)
    pending = [one for one in due_now(conversations, store) if one.ask.request.pass_ is Pass.FIRST]
    taken(conversations, store, answered(pending, None, ANSWERED_REPLY, REFUSED_REPLY))
    assert taken(conversations, store, answered(pending, None, ANSWERED_REPLY, REFUSED_REPLY)) == MergeCounts(
        stored=1, failed=1, pending=2
    )
    assert taken(conversations, store, answered(pending, None, REFUSED_REPLY, ANSWERED_REPLY)).differing == 1


def test_draw_is_stored_once_even_if_several_responses_hold_it():
    conversations = make_conversations(1, draws=3, variants=("low",))
    store = store_of(conversations)
    one_each = [one for one in due_now(conversations, store, singly=True) if one.ask.request.pass_ is Pass.FIRST]
    results = answered(one_each[:1], ANSWERED_REPLY, None, REFUSED_REPLY) | answered(
        one_each[1:2], ANSWERED_REPLY, ANSWERED_REPLY
    )
    assert taken(conversations, store, results).replies == 3
    assert [kept_one.reply.text for _, kept_one in sorted(replies_by_key(store).items())] == [
        ANSWERED_REPLY[0],
        ANSWERED_REPLY[0],
        REFUSED_REPLY[0],
    ]


def test_verdict_counts_after_an_earlier_draw_gave_the_same_answer():
    conversations = make_conversations(1, GraderKind.MODEL, draws=2, variants=("low",))
    store = store_of(conversations)
    first, second, *_ = due_now(conversations, store, singly=True)
    taken(conversations, store, answered([second], ANSWERED_REPLY))
    (grading,) = (one for one in due_now(conversations, store) if one.ask.request.role is Role.GRADER)
    taken(conversations, store, answered([first], ANSWERED_REPLY))
    assert grading.custom_id not in {one.custom_id for one in due_now(conversations, store)}
    assert taken(conversations, store, answered([grading], ("A", StopReason.STOP))).replies == 1
    assert not [one for one in due_now(conversations, store) if one.ask.request.role is Role.GRADER]


def test_failure_of_a_stored_reply_is_ignored():
    conversations = make_conversations(1, variants=("low",))
    store, (pending,) = store_of(conversations), due_now(conversations, store_of(conversations))
    taken(conversations, store, answered([pending], ANSWERED_REPLY))
    late = {pending.custom_id: RequestResult(pending.custom_id, failure=Failure("late", "openai/any"))}
    assert taken(conversations, store, late) == MergeCounts()


def test_retired_reply_is_recognised_and_not_stored_again():
    conversations = make_conversations(1, variants=("low",))
    store, (pending,) = store_of(conversations), due_now(conversations, store_of(conversations))
    taken(conversations, store, answered([pending], ("", StopReason.LENGTH)))
    store.retire(list(store.replies()))
    assert taken(conversations, store, answered([pending], ("", StopReason.LENGTH))) == MergeCounts(stored=1, pending=1)
    assert len(due_now(conversations, store)) == 1


def test_shared_answer_finishes_a_question_once_per_variant():
    conversations, told = make_conversations(2), list[Event]()
    store = store_of(conversations)
    taken(conversations, store, answered(due_now(conversations, store), REFUSED_REPLY), progress=told.append)
    assert not [one for one in told if isinstance(one, Finished)]
    taken(conversations, store, answered(due_now(conversations, store), ANSWERED_REPLY), progress=told.append)
    finished = [(one.variant, one.question_id) for one in told if isinstance(one, Finished)]
    assert finished == [("low", "q0"), ("high", "q0"), ("low", "q1"), ("high", "q1")]
    assert sum(isinstance(one, Replied) for one in told) == 6
    taken(conversations, store, {}, progress=told.append)
    assert len([one for one in told if isinstance(one, Finished)]) == 4


def test_failed_shared_request_is_reported_per_variant_and_counted_once():
    conversations, told = make_conversations(1), []
    store = store_of(conversations)
    taken(conversations, store, answered(due_now(conversations, store), REFUSED_REPLY))
    (forced,) = due_now(conversations, store)
    results = {forced.custom_id: RequestResult(forced.custom_id, failure=Failure("late", "openai/any"))}

    def tell(pending: Pending, failure: Failure) -> None:
        told.append((pending.ask.conversation.variant, failure.message))

    assert taken(conversations, store, results, failed=tell) == MergeCounts(failed=1, pending=1)
    assert told == [("low", "late"), ("high", "late")]


def test_failed_draw_is_reported_once_while_others_arrive():
    conversations, told = make_conversations(1, draws=3, variants=("low",)), []
    store = store_of(conversations)
    pending = due_now(conversations, store, singly=True)
    results = answered(pending, ANSWERED_REPLY)
    results[pending[1].custom_id] = RequestResult(pending[1].custom_id, failure=Failure("late", "openai/any"))
    found = taken(conversations, store, results, failed=lambda one, _: told.append(one.custom_id))
    assert (found.replies, found.failed, told) == (5, 1, [pending[1].custom_id])


def test_response_without_an_answer_is_a_retryable_failure():
    conversations, told = make_conversations(1, variants=("low",)), []
    store = store_of(conversations)
    pending = due_now(conversations, store)
    found = taken(conversations, store, answered(pending, None), failed=lambda _, why: told.append(why))
    assert (found, len(list(store.replies()))) == (MergeCounts(failed=1, pending=1), 0)
    assert told[0].kind.is_sent_again
    assert "holds no answer" in told[0].message


def test_results_of_other_requests_change_nothing():
    conversations = make_conversations(1)
    store = store_of(conversations)
    assert taken(
        conversations, store, answered(due_now(make_conversations(2)[2:], store), ANSWERED_REPLY)
    ) == MergeCounts(pending=2)
    assert not replies_by_key(store)


def test_replies_are_stored_before_they_are_reported(monkeypatch):
    monkeypatch.setattr(rounds, "STORED_TOGETHER", 3)
    conversations = make_conversations(4)
    store = store_of(conversations)
    held: list[int] = []

    def watch(event: Event) -> None:
        if isinstance(event, Replied):
            held.append(len(list(store.replies())))

    taken(conversations, store, answered(due_now(conversations, store), ANSWERED_REPLY), progress=watch)
    assert held == [4, 4, 4, 4, 8, 8, 8, 8], "a question's replies are stored together, a few questions at a time"


def test_unwritable_store_raises_before_any_event(tmp_path):
    conversations, told = make_conversations(1), list[Event]()
    store = store_of(conversations, tmp_path / "replies.sqlite")
    results = answered(due_now(conversations, store), ANSWERED_REPLY)
    store._connection.execute("PRAGMA query_only = ON")
    with pytest.raises(StoreError):
        taken(conversations, store, results, progress=told.append)
    assert not told


def test_absurd_token_counts_are_stored_as_zero():
    conversations = make_conversations(1, variants=("low",))
    store = store_of(conversations)
    (pending,) = due_now(conversations, store)
    response = Response([ANSWERED_REPLY], input_tokens=-5, output_tokens=10**30)
    taken(conversations, store, {pending.custom_id: RequestResult(pending.custom_id, response)})
    (one,) = store.replies()
    assert (one.input_tokens, one.output_tokens, one.requests) == (0, 0, 1)
