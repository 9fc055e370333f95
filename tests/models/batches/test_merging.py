"""Results come in any order, in any files, twice, or not at all: the end is that of asking one after the other."""

from __future__ import annotations

import random
import tempfile
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusal_index.models.failures import Failure
from refusal_index.models.requests import Response
from refusal_index.plugins.batches import rounds
from refusal_index.plugins.batches.formats import FORMATS, RequestResult
from refusal_index.plugins.batches.request_files import StagedResults
from refusal_index.plugins.batches.rounds import Callbacks, MergeCounts, Pending, ResultMerger, Results, question_states
from refusal_index.protocol import Conversation, GraderKind, Pass, Role, StopReason
from refusal_index.runs.engine import Event, Finished, Replied
from refusal_index.runs.store import ReplyStore, StoreError
from tests.models.batches.answering import (
    LINES,
    NAMES,
    SETTINGS,
    Script,
    became,
    conversed,
    dumped,
    failed_line,
    kept,
    pending_of,
    store_of,
    talks,
)

REFUSED, ANSWERED = ("<answer>UNANSWERED</answer>", StopReason.STOP), ("<answer>4</answer>", StopReason.STOP)


def due_now(conversations: list[Conversation], store: ReplyStore, *, singly: bool = False) -> list[Pending]:
    return pending_of(question_states(conversations, store, SETTINGS, NAMES), singly=singly)


def taken(
    conversations: list[Conversation], store: ReplyStore, results: Results, watch: Callbacks | None = None
) -> MergeCounts:
    found = ResultMerger(results, store, watch or Callbacks()).merge(
        question_states(conversations, store, SETTINGS, NAMES)
    )
    assert found.pending == len(due_now(conversations, store))
    return found


def answered(pending: list[Pending], *replies: tuple[str, StopReason] | None) -> dict[str, RequestResult]:
    return {one.custom_id: RequestResult(one.custom_id, Response(list(replies))) for one in pending}


@given(
    st.integers(0, 10**6),
    st.sampled_from([GraderKind.EXACT, GraderKind.MODEL, GraderKind.AGREE]),
    st.integers(1, 3),
    st.sampled_from(list(FORMATS)),
)
def test_any_order_any_files_repeated_and_partly_failed_come_to_the_same_end(salt, kind, draws, style):
    conversations, script, chance = talks(3, kind, draws), Script(salt), random.Random(salt)
    expected, store = conversed(conversations, Script(salt)), store_of(conversations)
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
        assert became(conversations, store) == became(conversations, expected)
        with StagedResults() as staged:
            for path in earlier:
                staged.read(path)
            again = taken(conversations, store, staged)
            assert (again.replies, again.differing, staged.unused().count) == (0, 0, 0)
            assert again.stored > 0


@given(st.integers(0, 10**6), st.sampled_from([GraderKind.EXACT, GraderKind.MODEL]), st.integers(1, 3))
def test_the_results_of_all_waves_at_once_make_the_run_that_they_came_of(salt, kind, draws):
    """Also where a reply is not kept word for word: what grades it was asked about the text that is kept."""
    conversations, script = talks(3, kind, draws), Script(salt)
    store, results = store_of(conversations), {}
    while pending := due_now(conversations, store):
        results |= {one.custom_id: RequestResult(one.custom_id, script.response(one.ask)) for one in pending}
        taken(conversations, store, results)
    copy = store_of(conversations)
    found = taken(conversations, copy, results)
    assert kept(copy) == kept(store)
    assert found.replies == len(kept(store))
    assert not due_now(conversations, copy)


def test_a_key_in_a_reply_is_kept_from_the_grader_too(monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "very-secret-value")
    conversations = talks(1, GraderKind.MODEL, variants=("low",))
    store = store_of(conversations)
    first = answered(due_now(conversations, store), ("<answer>very-secret-value</answer>", StopReason.STOP))
    taken(conversations, store, first)
    grade = answered(due_now(conversations, store), ("B", StopReason.STOP))
    copy = store_of(conversations)
    assert taken(conversations, copy, first | grade).replies == 2
    assert not any("very-secret" in one.reply.text for one in copy.replies())


def test_choices_and_single_replies_fill_the_same_draws():
    conversations, script = talks(2, draws=4), Script(5)
    expected = became(conversations, conversed(conversations, Script(5)))
    for singly in (False, True):
        store = store_of(conversations)
        pending = due_now(conversations, store, singly=singly)
        assert len(pending) == (2 * 3, 2 * 3 * 4)[singly]
        taken(
            conversations,
            store,
            {one.custom_id: RequestResult(one.custom_id, script.response(one.ask)) for one in pending},
        )
        assert became(conversations, store) == expected
        requests = [one.requests for one in store.replies()]
        assert (len(requests), sum(requests)) == (24, (6, 24)[singly]), "what came along cost no request"


def test_fewer_choices_than_asked_leave_the_others_due():
    conversations, script = talks(1, draws=4, variants=("low",)), Script(5)
    store = store_of(conversations)
    for draws in ([0, 0], [2, 2]):
        pending = due_now(conversations, store)
        assert [one.ask.pending.draw for one in pending] == draws
        two_each = {one.custom_id: RequestResult(one.custom_id, script.response(one.ask, 2)) for one in pending}
        taken(conversations, store, two_each)
    assert not due_now(conversations, store)
    assert became(conversations, store) == became(conversations, conversed(conversations, Script(5)))


def test_a_choice_without_an_answer_is_asked_for_again_and_more_than_asked_are_left_out():
    conversations = talks(1, draws=3, variants=("low",))
    store = store_of(conversations)
    first = [one for one in due_now(conversations, store) if one.ask.request.pass_ is Pass.FIRST]
    found = taken(conversations, store, answered(first, ANSWERED, None, REFUSED, ANSWERED, ANSWERED))
    assert found.replies == 2
    assert [one.draw for one in store.replies()] == [0, 2]
    (again, _) = due_now(conversations, store)
    assert (again.ask.pending.draw, again.ask.n) == (1, 1)


def test_a_draw_that_came_along_with_another_is_kept_and_its_own_result_is_compared():
    conversations = talks(1, draws=2, variants=("low",))
    store = store_of(conversations)
    one_each = [one for one in due_now(conversations, store, singly=True) if one.ask.request.pass_ is Pass.FIRST]
    results = answered(one_each[:1], ANSWERED, REFUSED) | answered(one_each[1:], ANSWERED)
    named: list[str] = []
    found = taken(conversations, store, results, Callbacks(differs=named.append))
    assert (found.replies, found.differing, named) == (2, 1, [one_each[1].custom_id])
    assert [one.reply.text for one in store.replies()] == [ANSWERED[0], REFUSED[0]]


@pytest.mark.parametrize("others", [("<answer>5</answer>", StopReason.STOP), (ANSWERED[0], StopReason.LENGTH)])
def test_the_first_reply_stays_and_another_one_is_named(others):
    conversations = talks(1, variants=("low",))
    store, (pending,) = store_of(conversations), due_now(conversations, store_of(conversations))
    taken(conversations, store, answered([pending], ANSWERED))
    before, named = kept(store), []
    watch = Callbacks(differs=named.append)
    assert taken(conversations, store, answered([pending], ANSWERED), watch) == MergeCounts(stored=1)
    assert taken(conversations, store, answered([pending], others), watch) == MergeCounts(differing=1)
    assert named == [pending.custom_id]
    assert kept(store) == before


@pytest.mark.parametrize("place", [0, 1, 2])
def test_every_choice_is_compared(place):
    conversations = talks(1, draws=3, variants=("low",))
    store = store_of(conversations)
    pending = [one for one in due_now(conversations, store) if one.ask.request.pass_ is Pass.FIRST]
    replies = [ANSWERED, REFUSED, ANSWERED]
    taken(conversations, store, answered(pending, *replies))
    replies[place] = ("<answer>no</answer>", StopReason.STOP)
    assert taken(conversations, store, answered(pending, *replies)).differing == 1


def test_choices_behind_one_without_an_answer_are_compared_with_their_own_draws():
    conversations = talks(1, draws=3, variants=("low",))
    store = store_of(conversations)
    pending = [one for one in due_now(conversations, store) if one.ask.request.pass_ is Pass.FIRST]
    taken(conversations, store, answered(pending, None, ANSWERED, REFUSED))
    assert taken(conversations, store, answered(pending, None, ANSWERED, REFUSED)) == MergeCounts(
        stored=1, failed=1, pending=2
    )
    assert taken(conversations, store, answered(pending, None, REFUSED, ANSWERED)).differing == 1


def test_a_draw_is_taken_once_however_many_responses_hold_it():
    conversations = talks(1, draws=3, variants=("low",))
    store = store_of(conversations)
    one_each = [one for one in due_now(conversations, store, singly=True) if one.ask.request.pass_ is Pass.FIRST]
    results = answered(one_each[:1], ANSWERED, None, REFUSED) | answered(one_each[1:2], ANSWERED, ANSWERED)
    assert taken(conversations, store, results).replies == 3
    assert [kept_one.reply.text for _, kept_one in sorted(kept(store).items())] == [
        ANSWERED[0],
        ANSWERED[0],
        REFUSED[0],
    ]


def test_a_verdict_counts_though_a_draw_before_came_out_the_same_since():
    conversations = talks(1, GraderKind.MODEL, draws=2, variants=("low",))
    store = store_of(conversations)
    first, second, *_ = due_now(conversations, store, singly=True)
    taken(conversations, store, answered([second], ANSWERED))
    (grading,) = (one for one in due_now(conversations, store) if one.ask.request.role is Role.GRADER)
    taken(conversations, store, answered([first], ANSWERED))
    assert grading.custom_id not in {one.custom_id for one in due_now(conversations, store)}
    assert taken(conversations, store, answered([grading], ("A", StopReason.STOP))).replies == 1
    assert not [one for one in due_now(conversations, store) if one.ask.request.role is Role.GRADER]


def test_a_failure_of_what_is_kept_is_nothing():
    conversations = talks(1, variants=("low",))
    store, (pending,) = store_of(conversations), due_now(conversations, store_of(conversations))
    taken(conversations, store, answered([pending], ANSWERED))
    late = {pending.custom_id: RequestResult(pending.custom_id, failure=Failure("late", "openai/any"))}
    assert taken(conversations, store, late) == MergeCounts()


def test_a_reply_that_was_set_aside_is_known_and_not_taken_again():
    conversations = talks(1, variants=("low",))
    store, (pending,) = store_of(conversations), due_now(conversations, store_of(conversations))
    taken(conversations, store, answered([pending], ("", StopReason.LENGTH)))
    store.retire(list(store.replies()))
    assert taken(conversations, store, answered([pending], ("", StopReason.LENGTH))) == MergeCounts(stored=1, pending=1)
    assert len(due_now(conversations, store)) == 1


def test_a_question_is_told_to_be_finished_once_under_each_variant_when_a_shared_answer_comes():
    conversations, told = talks(2), list[Event]()
    store, watch = store_of(conversations), Callbacks(told.append)
    taken(conversations, store, answered(due_now(conversations, store), REFUSED), watch)
    assert not [one for one in told if isinstance(one, Finished)]
    taken(conversations, store, answered(due_now(conversations, store), ANSWERED), watch)
    finished = [(one.variant, one.question_id) for one in told if isinstance(one, Finished)]
    assert finished == [("low", "q0"), ("high", "q0"), ("low", "q1"), ("high", "q1")]
    assert sum(isinstance(one, Replied) for one in told) == 6
    taken(conversations, store, {}, watch)
    assert len([one for one in told if isinstance(one, Finished)]) == 4


def test_a_shared_request_that_failed_is_told_of_for_each_variant_and_counted_once():
    conversations, told = talks(1), []
    store = store_of(conversations)
    taken(conversations, store, answered(due_now(conversations, store), REFUSED))
    (forced,) = due_now(conversations, store)
    results = {forced.custom_id: RequestResult(forced.custom_id, failure=Failure("late", "openai/any"))}
    watch = Callbacks(failed=lambda pending, failure: told.append((pending.ask.conversation.variant, failure.message)))
    assert taken(conversations, store, results, watch) == MergeCounts(failed=1, pending=1)
    assert told == [("low", "late"), ("high", "late")]


def test_a_failed_draw_is_told_of_once_while_others_of_its_question_come():
    conversations, told = talks(1, draws=3, variants=("low",)), []
    store = store_of(conversations)
    pending = due_now(conversations, store, singly=True)
    results = answered(pending, ANSWERED)
    results[pending[1].custom_id] = RequestResult(pending[1].custom_id, failure=Failure("late", "openai/any"))
    found = taken(conversations, store, results, Callbacks(failed=lambda one, _: told.append(one.custom_id)))
    assert (found.replies, found.failed, told) == (5, 1, [pending[1].custom_id])


def test_a_response_without_an_answer_is_a_failure_that_may_pass():
    conversations, told = talks(1, variants=("low",)), []
    store = store_of(conversations)
    pending = due_now(conversations, store)
    found = taken(conversations, store, answered(pending, None), Callbacks(failed=lambda _, why: told.append(why)))
    assert (found, len(list(store.replies()))) == (MergeCounts(failed=1, pending=1), 0)
    assert told[0].kind.is_sent_again
    assert "holds no answer" in told[0].message


def test_results_of_others_change_nothing():
    conversations = talks(1)
    store = store_of(conversations)
    assert taken(conversations, store, answered(due_now(talks(2)[2:], store), ANSWERED)) == MergeCounts(pending=2)
    assert not kept(store)


def test_what_is_told_of_is_in_the_store_first(monkeypatch):
    monkeypatch.setattr(rounds, "STORED_TOGETHER", 3)
    conversations = talks(4)
    store = store_of(conversations)
    held: list[int] = []
    watch = Callbacks(lambda event: held.append(len(list(store.replies()))) if isinstance(event, Replied) else None)
    taken(conversations, store, answered(due_now(conversations, store), ANSWERED), watch)
    assert held == [4, 4, 4, 4, 8, 8, 8, 8], "a question's replies go together, few at a time"


def test_a_store_that_cannot_be_written_ends_it_with_nothing_told(tmp_path):
    conversations, told = talks(1), list[Event]()
    store = store_of(conversations, tmp_path / "replies.sqlite")
    results = answered(due_now(conversations, store), ANSWERED)
    store._connection.execute("PRAGMA query_only = ON")
    with pytest.raises(StoreError):
        taken(conversations, store, results, Callbacks(told.append))
    assert not told


def test_absurd_counts_of_tokens_are_none():
    conversations = talks(1, variants=("low",))
    store = store_of(conversations)
    (pending,) = due_now(conversations, store)
    response = Response([ANSWERED], input_tokens=-5, output_tokens=10**30)
    taken(conversations, store, {pending.custom_id: RequestResult(pending.custom_id, response)})
    (one,) = store.replies()
    assert (one.input_tokens, one.output_tokens, one.requests) == (0, 0, 1)
