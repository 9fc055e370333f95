"""Evidence for the hidden states: against transformers, against the model's own replies, and against company."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.almanac.make_fixtures import CONVERSATIONS, DATA

from refusal_index.data.datasets import load_dataset
from refusal_index.plugins.almanac import ContextLengthError, RequestError
from refusal_index.plugins.almanac import runtime as states
from refusal_index.plugins.almanac.llama import Llama
from refusal_index.plugins.almanac.runtime import Runtime, hidden_states, shared_runtime
from refusal_index.protocol import Message, load_prompt_set

TOLERANCE = 1e-5
SHARED = "the mayor of the town of Bramwick was born in the year 1871 and "


def conversation(*texts: str) -> list[Message]:
    return [Message("user", text) for text in texts]


def asked(count: int, *variants: str) -> list[list[Message]]:
    prompts, questions = load_prompt_set("default"), load_dataset("almanac").questions[:count]
    return [conversation("\n\n".join(prompts.render(name, one.text))) for one in questions for name in variants]


def test_against_transformers_in_every_layer(folder):
    """`make_fixtures.py` wrote what transformers gives as ``output_hidden_states``."""
    talks = [[Message(**message) for message in one] for one in CONVERSATIONS]
    expected = np.load(folder / "states.npy")
    runtime = Runtime(folder)
    found = hidden_states(runtime, talks)
    alone = np.concatenate([hidden_states(runtime, [one]) for one in talks])
    assert found.dtype == np.float32
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=TOLERANCE)
    np.testing.assert_allclose(alone, expected, atol=TOLERANCE)


@pytest.mark.parametrize("name", ["base", "small"])
def test_the_last_one_says_which_token_comes_next_as_the_model_does(name):
    """The embedded models' head is their embedding, to which the last state is what transformers' would be."""
    runtime, (talk,) = shared_runtime(name), asked(1, "normal")
    (reply,) = asyncio.run(runtime.complete(talk, max_tokens=1, top_logprobs=20))
    scores = hidden_states(name, [talk])[0, -1].astype(float) @ runtime.model.weights.embedding.T
    logs = np.sort(scores - np.log(np.exp(scores - scores.max()).sum()) - scores.max())[::-1]
    told = [logprob for _, logprob in reply.logprobs[0].alternatives]
    np.testing.assert_allclose(logs[:20], told, atol=1e-4)


def test_beginnings_that_conversations_share_are_computed_once(monkeypatch):
    ran, forward = [], Llama.forward
    monkeypatch.setattr(
        Llama, "forward", lambda self, tokens, *rest: ran.append(len(tokens)) or forward(self, tokens, *rest)
    )
    talks = asked(60, "low", "highest")
    together = hidden_states("base", talks)
    encode = shared_runtime("base").tokenizer.encode
    assert sum(ran) < 0.2 * sum(len(encode(talk)) for talk in talks)
    some = range(0, len(talks), 17)
    alone = np.concatenate([hidden_states("base", [talks[place]]) for place in some])
    np.testing.assert_allclose(together[some], alone, atol=1e-4)


@pytest.fixture(scope="module")
def tiny():
    return Runtime(DATA / "grouped")


TALKS = st.lists(st.tuples(st.booleans(), st.text("abc ", max_size=12)), max_size=12)


@pytest.mark.nightly
@given(TALKS, st.integers(1, 5), st.sampled_from([1, 60, 2560]))
def test_company_order_and_the_size_of_a_batch_make_no_difference(tiny, drawn, together, most):
    talks = [conversation(SHARED * shares + text) for shares, text in drawn]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(states, "_BATCH_SIZE", together)
        patch.setattr(states, "_MAX_TOKENS", most)
        found = hidden_states(tiny, talks)
    assert found.shape == (len(talks), 3, 24)
    for one, talk in zip(found, talks, strict=True):
        np.testing.assert_allclose(one, hidden_states(tiny, [talk])[0], atol=TOLERANCE)


def test_a_prompt_may_fill_the_context_and_no_more(tiny):
    context, bare = tiny.model.config.context, len(tiny.tokenizer.encode(conversation("")))
    assert hidden_states(tiny, [conversation("\n" * (context - bare))]).shape == (1, 3, 24)
    with pytest.raises(ContextLengthError, match=f"at least {context + 1} tokens"):
        hidden_states(tiny, [conversation("fine"), conversation("\n" * (context - bare + 1))])


def test_what_cannot_be_read_is_refused(tiny):
    with pytest.raises(RequestError, match="unknown role 'judge'"):
        hidden_states(tiny, [[Message("judge", "Who?")]])
    with pytest.raises(RequestError, match="'messages' is empty"):
        hidden_states(tiny, [[]])
