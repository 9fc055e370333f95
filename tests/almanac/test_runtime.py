"""The runtime: replies, and hidden states."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare
from tests.almanac.make_fixtures import CONVERSATIONS, DATA
from threadpoolctl import threadpool_info, threadpool_limits

from refusal_index.data.datasets import load_dataset
from refusal_index.plugins.almanac import ContextLengthError, RequestError, decoding
from refusal_index.plugins.almanac import runtime as states
from refusal_index.plugins.almanac.decoding import Cohort, run
from refusal_index.plugins.almanac.llama import Llama, Sequence, log_probabilities
from refusal_index.plugins.almanac.models import ChatTokenizer
from refusal_index.plugins.almanac.runtime import Runtime, hidden_states, one_blas_thread, shared_runtime
from refusal_index.protocol import Message, load_prompt_set

# --- The runtime

GROUPED = Path(__file__).parent / "data" / "grouped"
SHARED = "the mayor of the town of Bramwick was born in the year 1871 and who wrote the book about the river "


@dataclass(frozen=True)
class Ask:
    """A request as a value."""

    text: str
    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int | None = 8
    stop: tuple[str, ...] = ()
    seed: int | None = 0
    n: int = 1
    top_logprobs: int | None = None

    async def of(self, runtime):
        arguments = asdict(self)
        return await runtime.complete([Message("user", arguments.pop("text"))], **arguments)


def ask(runtime, *requests):
    async def gather():
        return await asyncio.gather(*(request.of(runtime) for request in requests))

    return asyncio.run(gather())


# Seeds whose numbers keep 1e-5 away from the bounds between tokens: float32 sums may round differently in a batch, by
# some 1e-7, and differently on every kind of processor.
MIXED = [
    Ask("Who?", seed=1),
    Ask(SHARED + "one", seed=2, temperature=0.5, top_p=0.9),
    Ask(SHARED + "two and three", seed=3, max_tokens=30),
    Ask("a", seed=4, temperature=0),
    Ask(SHARED * 2, seed=5, top_p=0.3, max_tokens=20),
    Ask(SHARED + "one", seed=6, n=5),
    Ask("b" * 40, seed=37, max_tokens=None),
    Ask("Who?", seed=8, n=3, temperature=2.0),
]


def test_replies_do_not_depend_on_batching_or_order(monkeypatch):
    alone = []
    for request in MIXED:
        alone += ask(Runtime(GROUPED), request)
    runtime = Runtime(GROUPED)
    together = ask(runtime, *MIXED)
    again = ask(runtime, *reversed(MIXED))[::-1]
    monkeypatch.setattr(decoding, "_MAX_ROWS", 2)
    queued = ask(runtime, *MIXED)
    for replies in (together, again, queued):
        assert [[c.text for c in choices] for choices in replies] == [[c.text for c in choices] for choices in alone]


def test_requests_that_join_a_running_batch_get_the_same_replies(runtime):
    async def staggered():
        tasks = []
        for request in MIXED:
            tasks.append(asyncio.create_task(request.of(runtime)))
            await asyncio.sleep(0.002)
        return await asyncio.gather(*tasks)

    assert asyncio.run(staggered()) == ask(runtime, *MIXED)


def test_greedy_replies_match_recomputing_every_step(folder):
    """Greedy replies and reported probabilities, compared with a pass over the whole text for each token."""
    model, tokenizer = Llama.load(folder), ChatTokenizer(folder)
    [[reply]] = ask(Runtime(folder), Ask(SHARED, temperature=0, max_tokens=12, top_logprobs=3))
    text = tokenizer.encode([Message("user", SHARED)])
    for reported in reply.logprobs:
        cohort = Cohort(model.config, None, 1)
        logs = log_probabilities(model.logits(run(model, [cohort], [cohort.begin([text])])[-1:])[0])
        likeliest = np.argsort(-logs)[:3]
        assert reported.token == tokenizer.decode([likeliest[0]])
        assert reported.logprob == pytest.approx(logs.max(), abs=1e-4)
        assert [name for name, _ in reported.alternatives] == [tokenizer.decode([token]) for token in likeliest]
        text = np.append(text, likeliest[0])
    assert reply.text == tokenizer.decode(text[reply.prompt_tokens :])


def test_first_token_frequencies_against_model_probabilities(runtime):
    [choices] = ask(runtime, Ask("Who?", max_tokens=1, n=1500, top_logprobs=20))
    report = choices[0].logprobs[0].alternatives
    expected = {token: np.exp(logprob) for token, logprob in report if "\ufffd" not in token}
    found = [choice.text for choice in choices]
    counts = np.array([found.count(token) for token in expected])
    shares = np.array(list(expected.values()))
    rest = [len(found) - counts.sum()], [1 - shares.sum()]
    expected_counts = np.append(shares, rest[1]) * len(found)
    assert chisquare(np.append(counts, rest[0]), expected_counts).pvalue > 1e-3


def test_seed_reproduces_a_reply_and_no_seed_samples_anew(runtime):
    one, same, other = ask(runtime, Ask("Who?", seed=5), Ask("Who?", seed=5), Ask("Who?", seed=6))
    assert one == same != other
    unseeded = ask(runtime, *[Ask("Who?", seed=None)] * 3)
    assert len({replies[0].text for replies in unseeded}) == 3


def test_choice_i_does_not_depend_on_the_number_of_choices(runtime):
    by_number = {n: ask(runtime, Ask(SHARED, seed=9, n=n))[0] for n in (1, 3, 9)}
    assert by_number[9][:3] == by_number[3]
    assert by_number[3][:1] == by_number[1]
    assert len({choice.text for choice in by_number[9]}) == 9


def test_a_stop_text_ends_the_reply_and_is_left_out(runtime):
    [[whole]] = ask(runtime, Ask("Who?", seed=1, max_tokens=20))
    later, earlier = whole.text[9:11], whole.text[4:6]
    [[cut]] = ask(runtime, Ask("Who?", seed=1, max_tokens=20, stop=(later, earlier, "never there")))
    assert cut.text == whole.text[: min(whole.text.index(later), whole.text.index(earlier))]
    assert cut.finish_reason == "stop"
    assert cut.completion_tokens < whole.completion_tokens


def test_finish_reasons_and_token_counts(runtime):
    [choices] = ask(runtime, Ask("Who?", max_tokens=40, n=60, top_logprobs=0))
    assert {choice.finish_reason for choice in choices} == {"stop", "length"}
    for choice in choices:
        ended = choice.finish_reason == "stop"
        assert choice.completion_tokens <= 40 if ended else choice.completion_tokens == 40
        assert len(choice.logprobs) == choice.completion_tokens - ended


def test_reply_may_fill_the_context_and_prompt_may_leave_one_token(runtime):
    [choices] = ask(runtime, Ask("Who?", max_tokens=10**9, n=30))
    longest = max(choices, key=lambda choice: choice.completion_tokens)
    assert longest.prompt_tokens + longest.completion_tokens == 128
    room = 128 - choices[0].prompt_tokens - 1
    [[last]] = ask(runtime, Ask("Who?" + "\n" * room, temperature=0))
    assert (last.prompt_tokens, last.completion_tokens) == (127, 1)


@pytest.mark.parametrize("length", [130, 10_000_000])
def test_a_prompt_longer_than_the_context_is_refused_at_once(runtime, length):
    with pytest.raises(ContextLengthError, match="context holds 128") as caught:
        ask(runtime, Ask("\n" * length))
    assert (caught.value.param, caught.value.code) == ("messages", "context_length_exceeded")


def test_bad_requests_do_not_affect_others(runtime):
    async def mixed():
        bad = [Ask("x", top_p=7), Ask("\n" * 500), Ask("\ud800")]
        return await asyncio.gather(*(each.of(runtime) for each in [*bad, MIXED[0]]), return_exceptions=True)

    *errors, good = asyncio.run(mixed())
    assert all(isinstance(error, RequestError) for error in errors)
    assert good == ask(runtime, MIXED[0])[0]


def test_cancelling_one_request_frees_its_rows_and_leaves_the_others_alone(runtime):
    endless = Ask("Who?", max_tokens=None, n=100)

    async def cancel_some():
        doomed = [asyncio.create_task(replace(endless, seed=seed).of(runtime)) for seed in range(3)]
        kept = [asyncio.create_task(request.of(runtime)) for request in MIXED]
        await asyncio.sleep(0.03)
        for task in doomed:
            task.cancel()
        results = await asyncio.gather(*doomed, return_exceptions=True)
        return results, await asyncio.gather(*kept)

    cancelled, kept = asyncio.run(cancel_some())
    assert all(isinstance(result, asyncio.CancelledError) for result in cancelled)
    assert kept == ask(runtime, *MIXED)


def test_the_runtime_outlives_event_loops_and_serves_several_at_once(runtime):
    expected = ask(runtime, MIXED[0], MIXED[1])
    assert ask(runtime, MIXED[0], MIXED[1]) == expected
    found = {}
    threads = [
        threading.Thread(target=lambda key=key: found.update({key: ask(runtime, MIXED[0], MIXED[1])})) for key in "abc"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == dict.fromkeys("abc", expected)


def test_closed_event_loop_does_not_break_the_runtime(runtime):
    loop = asyncio.new_event_loop()
    task = loop.create_task(Ask("Who?", max_tokens=None, n=20).of(runtime))
    loop.run_until_complete(asyncio.sleep(0.01))
    task.cancel()
    loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
    loop.close()
    assert ask(runtime, MIXED[0])


def test_the_event_loop_stays_free_while_the_model_runs(runtime):
    async def count_turns():
        reply, turns = asyncio.create_task(Ask("Who?", max_tokens=None, n=128).of(runtime)), 0
        while not reply.done():
            await asyncio.sleep(0.001)
            turns += 1
        return turns

    assert asyncio.run(count_turns()) > 10


def test_the_thread_of_a_runtime_ends_with_it():
    others = set(threading.enumerate())  # other tests of this process may keep a runtime of theirs
    runtime = Runtime(GROUPED)
    ask(runtime, MIXED[0])
    (thread,) = (one for one in threading.enumerate() if one.name.startswith("almanac") and one not in others)
    del runtime
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()


def test_unexpected_failure_reaches_all_requests_and_runtime_recovers(runtime, monkeypatch):
    def fail(*_arguments):
        raise MemoryError("no more")

    with monkeypatch.context() as patch:
        patch.setattr(decoding, "run", fail)
        with pytest.raises(MemoryError, match="no more"):
            ask(runtime, MIXED[0], MIXED[1])
    assert ask(runtime, MIXED[0])


def test_a_reply_that_cannot_be_read_fails_its_batch_and_the_runtime_recovers(runtime, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Sequence, "completion", lambda _self: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            ask(runtime, MIXED[0], MIXED[1])
    assert ask(runtime, MIXED[0])


def test_memory_limits_delay_requests_without_changing_replies(runtime, monkeypatch):
    expected = ask(runtime, *MIXED)
    monkeypatch.setattr(decoding, "_MAX_HELD_TOKENS", 60)
    monkeypatch.setattr(decoding, "_MAX_NEW_TOKENS", 30)
    assert ask(Runtime(GROUPED), *MIXED) == expected


def test_blas_threads_are_one_while_the_model_runs_and_restored_after(monkeypatch):
    def blas_threads():
        return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]

    def watched(*arguments):
        during.append(set(blas_threads()))
        return run(*arguments)

    def is_limited():
        with one_blas_thread._lock:
            return one_blas_thread._users > 0

    def wait_for_threads():  # a thread restores the number a moment after its last reply, also that of an earlier test
        end = time.monotonic() + 60
        while is_limited() and time.monotonic() < end:
            time.sleep(0.01)

    during, run = [], decoding.run
    monkeypatch.setattr(decoding, "run", watched)
    wait_for_threads()
    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        first, second = Runtime(GROUPED), Runtime(GROUPED)
        for runtime in (first, second, first):  # each has its own thread
            ask(runtime, Ask("Who?", max_tokens=5, n=2), Ask("When?", max_tokens=5))
        wait_for_threads()
        assert blas_threads() == before == [2] * len(before)
    assert len(during) >= 3
    assert all(threads == {1} for threads in during)


# --- The hidden states

TOLERANCE = 1e-5
SHARED_START = "the mayor of the town of Bramwick was born in the year 1871 and "


def conversation(*texts: str) -> list[Message]:
    return [Message("user", text) for text in texts]


def conversations_about(count: int, *variants: str) -> list[list[Message]]:
    prompts, questions = load_prompt_set("default"), load_dataset("almanac").questions[:count]
    return [
        conversation("\n\n".join(prompts.render(name, question.text))) for question in questions for name in variants
    ]


def test_hidden_states_match_transformers_in_every_layer(folder):
    """`make_fixtures.py` wrote what transformers gives as ``output_hidden_states``."""
    conversations = [[Message(**message) for message in one] for one in CONVERSATIONS]
    expected = np.load(folder / "states.npy")
    runtime = Runtime(folder)
    found = hidden_states(runtime, conversations)
    alone = np.concatenate([hidden_states(runtime, [one]) for one in conversations])
    assert found.dtype == np.float32
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=TOLERANCE)
    np.testing.assert_allclose(alone, expected, atol=TOLERANCE)


@pytest.mark.parametrize("name", ["base", "small"])
def test_last_hidden_state_gives_the_next_token_probabilities(name):
    """The embedded models' output head is their embedding, applied to the last hidden state as in transformers."""
    runtime, (talk,) = shared_runtime(name), conversations_about(1, "normal")
    (reply,) = asyncio.run(runtime.complete(talk, max_tokens=1, top_logprobs=20))
    scores = hidden_states(name, [talk])[0, -1].astype(float) @ runtime.model.weights.embedding.T
    logs = np.sort(scores - np.log(np.exp(scores - scores.max()).sum()) - scores.max())[::-1]
    logprobs = [logprob for _, logprob in reply.logprobs[0].alternatives]
    np.testing.assert_allclose(logs[:20], logprobs, atol=1e-4)


def test_shared_prefixes_of_conversations_are_computed_once(monkeypatch):
    ran, forward = [], Llama.forward
    monkeypatch.setattr(
        Llama, "forward", lambda self, tokens, *rest: ran.append(len(tokens)) or forward(self, tokens, *rest)
    )
    conversations = conversations_about(60, "low", "highest")
    together = hidden_states("base", conversations)
    encode = shared_runtime("base").tokenizer.encode
    assert sum(ran) < 0.2 * sum(len(encode(conversation)) for conversation in conversations)
    some = range(0, len(conversations), 17)
    alone = np.concatenate([hidden_states("base", [conversations[place]]) for place in some])
    np.testing.assert_allclose(together[some], alone, atol=1e-4)


@pytest.fixture(scope="module")
def tiny():
    return Runtime(DATA / "grouped")


TALKS = st.lists(st.tuples(st.booleans(), st.text("abc ", max_size=12)), max_size=12)


@pytest.mark.nightly
@given(TALKS, st.integers(1, 5), st.sampled_from([1, 60, 2560]))
def test_hidden_states_do_not_depend_on_batching_or_order_property(tiny, drawn, together, most):
    conversations = [conversation(SHARED_START * shares + text) for shares, text in drawn]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(states, "_BATCH_SIZE", together)
        patch.setattr(states, "_MAX_TOKENS", most)
        found = hidden_states(tiny, conversations)
    assert found.shape == (len(conversations), 3, 24)
    for one, talk in zip(found, conversations, strict=True):
        np.testing.assert_allclose(one, hidden_states(tiny, [talk])[0], atol=TOLERANCE)


def test_prompt_may_fill_but_not_exceed_the_context(tiny):
    context, bare = tiny.model.config.context, len(tiny.tokenizer.encode(conversation("")))
    assert hidden_states(tiny, [conversation("\n" * (context - bare))]).shape == (1, 3, 24)
    with pytest.raises(ContextLengthError, match=f"at least {context + 1} tokens"):
        hidden_states(tiny, [conversation("fine"), conversation("\n" * (context - bare + 1))])


def test_unreadable_messages_are_rejected(tiny):
    with pytest.raises(RequestError, match="unknown role 'judge'"):
        hidden_states(tiny, [[Message("judge", "Who?")]])
    with pytest.raises(RequestError, match="'messages' is empty"):
        hidden_states(tiny, [[]])
