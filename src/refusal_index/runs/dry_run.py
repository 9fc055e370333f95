"""Estimates of the requests, tokens, time and cost of a run, with their assumptions.

The refusal rate is not known before the run. An embedded model is asked for it, since that is free and deterministic;
for any other model it is assumed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext

from refusal_index.data.run_json import MILLION, UNPRICED, Prices
from refusal_index.findings.dry_run import Assumptions, Range, RequestCounts, RunEstimate
from refusal_index.findings.metrics import Statement
from refusal_index.models.functions import PLAIN_CASES, is_function_name
from refusal_index.models.requests import COMPATIBLE, ModelRequest, model_request, provider_of, to_completions
from refusal_index.protocol import (
    Completion,
    Conversation,
    Pass,
    Request,
    Role,
    about_tokens,
    next_requests,
)
from refusal_index.protocol.refusals import MODEL_PREFIX
from refusal_index.runs.direct import IN_PROCESS_CONCURRENCY
from refusal_index.runs.engines import engine_of, prices_as_sent
from refusal_index.runs.plan import Plan
from refusal_index.runs.simulation import count_requests
from refusal_index.runs.store import ReplyStore, open_store

REFUSAL_SHARE = 0.5
REPLY_TOKENS = 50
COMPATIBLE_CONNECTIONS = 100
OTHER_CONNECTIONS = 10  # Inspect's first guess at most providers
SEVERAL_CHOICES = frozenset({"openai", "openai-api", "vllm", "google", "together", "groq", "sagemaker"})
"""Providers known to return several choices per request."""

Counting = Callable[[str, int], AbstractContextManager[Callable[[], None]]]
"""Takes a title and a total, and returns a function that advances a progress bar by one."""


async def estimate_run(plan: Plan, counting: Counting = lambda _title, _size: nullcontext(lambda: None)) -> RunEstimate:
    """Estimate what remains of a run. Its folder is read; nothing is sent or written.

    Parameters
    ----------
    plan
        The run.
    counting
        Reports the progress of asking an embedded model.
    """
    with ReplyStore(None) as store:
        with open_store(plan.folder, made=False) as paid:
            store.copy_from(paid)
        store.retire(plan.replies_to_retire(store))
        pending = plan.pending(store)
        conversations = plan.by_question(pending, store)
        known_replies = await _first_replies(plan, conversations, store, counting)
        assumed = assumptions(plan)
        remaining = count_requests(
            conversations,
            lambda request: request_tokens(plan.names.get(request.role, ""), request),
            assumed,
            lambda conversation: _stored(conversation, store),
            known_replies,
            by_length=not any(map(counts_exactly, plan.names.values())),
        )
        checks = _checks(plan, store) if pending else 0
    cost = _cost(remaining, prices_as_sent(plan.settings))
    connections = _connections(plan)
    basis = _basis(plan, assumed, connections, len(known_replies), is_priced=cost is not None)
    model, dataset = plan.title
    return RunEstimate(
        model=model,
        dataset=dataset,
        folder=str(plan.folder.path),
        questions=len(plan.dataset.questions),
        variants=tuple(plan.procedures),
        pending=tuple(pending),
        assumed=assumed,
        connections=connections,
        known_replies=len(known_replies),
        remaining=remaining,
        checks=checks,
        cost=cost,
        seconds=_seconds(plan, remaining.total.requests + Range.exactly(checks), connections),
        notes=tuple(_notes(plan)),
        basis=tuple(basis) if pending else (),
        caveats=plan.caveats,
    )


def _stored(conversation: Conversation, store: ReplyStore) -> Sequence[Completion]:
    return store.completions(conversation.question.question_id, conversation.variant)


def _checks(plan: Plan, store: ReplyStore) -> int:
    """Return the number of requests that test new graders; functions send none."""
    if not engine_of(plan.settings.sending.engine).tests_graders:
        return 0
    functions = {name for name in plan.graders if is_function_name(name) or callable(plan.objects.get(name))}
    graders = [role for role, name in plan.names.items() if role is not Role.MODEL and name not in functions]
    return len(PLAIN_CASES) * sum(not store.has_reply_from(role) for role in graders)


def _connections(plan: Plan) -> int:
    model = plan.settings.model
    given = plan.settings.sending.max_connections
    if given or is_function_name(model):
        return given or IN_PROCESS_CONCURRENCY
    if model.startswith(f"{COMPATIBLE}/"):
        return COMPATIBLE_CONNECTIONS
    provider, _ = provider_of(model)
    return OTHER_CONNECTIONS if provider is None else provider.concurrency


def _seconds(plan: Plan, requests: Range, connections: int) -> Range:
    """Return the duration of the requests; in batches, each round may take the provider's whole time limit."""
    longest = engine_of(plan.settings.sending.engine).round_seconds
    if longest is not None:
        usual, largest = (longest * rounds if requests.most else 0.0 for rounds in ROUNDS[len(plan.graders)])
        return Range(0, usual, largest)
    return requests * (plan.settings.forecast.seconds_per_request / connections)


ROUNDS = {0: (2, 2), 1: (3, 6), 2: (4, 10)}
"""Rounds by number of grading models: the least, if every verdict can be read, and the most, if every one is asked for
twice.
"""


def assumptions(plan: Plan) -> Assumptions:
    """Return the assumptions about a run's replies, from its settings and from what is known about its provider."""
    forecast = plan.settings.forecast
    max_choices = plan.settings.sending.max_choices
    provider, _ = provider_of(plan.settings.model)
    share = REFUSAL_SHARE if forecast.assume_refusal is None else forecast.assume_refusal
    reply_tokens = forecast.reply_tokens or (REPLY_TOKENS if provider is None else provider.reply_tokens)
    if provider is not None and provider.is_embedded:
        return Assumptions(share, reply_tokens, Range.exactly(max_choices))
    gives_several = plan.settings.model.partition("/")[0] in SEVERAL_CHOICES
    return Assumptions(share, reply_tokens, Range(1, max_choices if gives_several else 1, max_choices))


async def _first_replies(
    plan: Plan, conversations: Iterable[Conversation], store: ReplyStore, counting: Counting
) -> dict[tuple[str, str], Completion]:
    """Ask an embedded model for the first passes that are not stored yet, unless the refusal rate is given."""
    provider, model = provider_of(plan.settings.model)
    is_assumed = plan.settings.forecast.assume_refusal is not None
    if is_assumed or provider is None or not provider.is_embedded:
        return {}
    requests = {
        (conversation.question.question_id, conversation.variant): model_request(plan.settings, conversation, pending)
        for conversation in conversations
        if conversation.draws == 1
        for pending in next_requests(conversation, _stored(conversation, store))
        if pending.step.pass_ is Pass.FIRST and pending.step.role is Role.MODEL
    }
    if not requests:
        return {}
    send = provider.client(model, plan.settings).send
    with counting(f"asking {plan.settings.model}", len(requests)) as replied:

        async def reply_to(request: ModelRequest) -> Completion:
            completion = to_completions(request, await send(request))[0]
            replied()
            return completion

        replies = await asyncio.gather(*map(reply_to, requests.values()))
    return dict(zip(requests, replies, strict=True))


MANY_FIRST_PASSES = 500
"""Smallest number of first passes of an embedded model before which a dry run says how long they take."""

FIRST_PASSES_PER_SECOND = 70
"""How many of them an ordinary machine runs."""


def first_passes_ahead(passes: int) -> Statement | None:
    """State how long the first passes of an embedded model take; None if they are few."""
    if passes < MANY_FIRST_PASSES:
        return None
    values = {"passes": passes, "seconds": passes / FIRST_PASSES_PER_SECOND}
    return Statement("first_passes_ahead", values=values)


def request_tokens(model: str, request: Request) -> int:
    """Count the tokens of a request with its provider's tokenizer, or estimate them."""
    provider, name = provider_of(model)
    if provider is not None:
        return provider.count_tokens(name, request.messages)
    return sum(about_tokens(message.content) for message in request.messages)


def counts_exactly(model: str) -> bool:
    """Whether tokens can be counted exactly, as for an embedded model."""
    provider, _ = provider_of(model)
    return provider is not None and provider.is_embedded


def _cost(remaining: RequestCounts, prices: Prices) -> Range | None:
    if prices.model is None and remaining.model.requests.most:
        return None
    parts = ((prices.model, remaining.model), (prices.grader, remaining.grading))
    costs = [
        (load.input_tokens * price.input + load.output_tokens * price.output) * (1 / MILLION)
        for price, load in parts
        if price is not None
    ]
    return sum(costs, Range()) if costs else None


def _notes(plan: Plan) -> Iterator[Statement]:
    """State the price and the time limit of batches, and which earlier replies are not counted."""
    settings = plan.settings
    engine = engine_of(settings.sending.engine)
    if engine.in_batches and settings.accounts.prices != UNPRICED:
        yield Statement("batch_price", values={"rate": settings.accounts.batch_rate})
    if engine.round_seconds is not None:
        usual, largest = ROUNDS[len(plan.graders)]
        values = {"rounds": usual, "most": largest, "hours": engine.round_seconds / 3600}
        yield Statement("batch_rounds", values=values)
    if "functions" not in plan.identity and any(map(is_function_name, plan.names.values())):
        yield Statement("functions_not_imported")


def _basis(
    plan: Plan, assumed: Assumptions, connections: int, known_replies: int, *, is_priced: bool
) -> Iterator[Statement]:
    """State the assumptions behind the estimate of a run."""
    settings = plan.settings
    forced = {"forced": not settings.repeats.answered_only}
    draws = settings.repeats.draws or 1
    if draws > 1 and settings.decoding.temperature == 0:
        yield Statement("equal_samples", values={**forced, "known": plan.is_deterministic})
    elif draws > 1:
        repeated = settings.repeats.repeat_questions
        samples = {"dataset": plan.title[1], "repeated": repeated, "draws": draws}
        yield Statement("repeated_samples", values={**forced, **samples})
    if known_replies:
        yield Statement("first_passes_run", values={**forced, "passes": known_replies})
    elif forced["forced"] or plan.graders:  # otherwise no request depends on it
        yield Statement("assumed_refusals", values={**forced, "share": assumed.refusal_share})
    is_exact = counts_exactly(settings.model)
    in_rounds = engine_of(settings.sending.engine).round_seconds is not None
    seconds = None if in_rounds else settings.forecast.seconds_per_request
    reply = {"tokens": assumed.reply_tokens, "some_known": known_replies > 0, "exact": is_exact}
    yield Statement("assumed_tokens", values={**reply, "seconds": seconds, "connections": connections})
    if not (is_priced or is_exact or is_function_name(settings.model)):
        yield Statement("unknown_cost")
    if draws > 1 and not assumed.choices.is_exact:
        yield Statement("assumed_choices", values={"choices": assumed.choices.expected})
    if plan.graders:
        attempt = (settings.refusal or "").startswith(MODEL_PREFIX)
        priced = {f"{name}_priced": getattr(plan.prices, name) is not None for name in ("model", "grader")}
        first_only = settings.repeats.answered_only and draws > 1 and not attempt
        values = {"graders": plan.graders, "attempt": attempt, "draws": draws, "first_only": first_only, **priced}
        yield Statement("replies_graded", values=values)
