"""Estimates of the requests, tokens, time and cost of a run, with their assumptions.

The refusal rate is not known before the run. An embedded model is asked for it, since that is free and deterministic;
for any other model it is assumed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any

from refusal_index.data.run_json import MILLION, UNPRICED, Prices
from refusal_index.models.functions import is_function_name
from refusal_index.models.requests import COMPATIBLE, ModelRequest, model_request, provider_of, to_completions
from refusal_index.protocol import (
    Pass,
    Reply,
    Request,
    Role,
    about_tokens,
    next_requests,
)
from refusal_index.protocol.cost import (
    NOTHING,
    Assumptions,
    CostEstimate,
    Foreseen,
    Paid,
    Range,
    ToAsk,
    by_itself,
    estimate,
)
from refusal_index.render.format import UNDEFINED, Block, Table, escape
from refusal_index.runs.engine import BATCH, DIRECT, IN_PROCESS_CONCURRENCY
from refusal_index.runs.plan import Plan, open_store
from refusal_index.runs.store import ReplyStore

REFUSAL_SHARE = 0.5
REPLY_TOKENS = 50
COMPATIBLE_CONNECTIONS = 100
OTHER_CONNECTIONS = 10  # Inspect's first guess at most providers
SEVERAL_CHOICES = frozenset({"openai", "openai-api", "vllm", "google", "together", "groq", "sagemaker"})
"""Providers known to return several choices per request."""

WINDOW = 86_400.0
"""Seconds after which a provider lets a batch expire."""

Counting = Callable[[str, int], AbstractContextManager[Callable[[], None]]]
"""Takes a title and a total, and returns a function that advances a progress bar by one."""


@dataclass(frozen=True, repr=False)
class RunEstimate:
    """Estimate for one model on one dataset.

    Attributes
    ----------
    plan, pending
        The run, and its unfinished variants.
    assumed
        Assumptions about the replies.
    foreseen
        First passes whose replies are known because the embedded model was asked.
    found
        Requests and tokens.
    checks
        Requests that test each grader on a plain case before the first question; none if nothing is pending.
    cost
        In dollars, for the tokens of models with a known price; None without a price.
    seconds
        Duration if every connection sends its requests one after the other; in batches, the time after which the
        provider lets them expire.
    connections
        Requests in flight.
    """

    plan: Plan
    pending: tuple[str, ...]
    assumed: Assumptions
    foreseen: int
    found: CostEstimate
    checks: int
    cost: Range | None
    seconds: Range
    connections: int

    @property
    def requests(self) -> Range:
        """All requests, including the tests of graders."""
        return self.found.total.requests + Range.exactly(self.checks)

    def __repr__(self) -> str:
        cost = "" if self.cost is None else f", ${self.cost.expected:,.2f}"
        times = f"{self.requests.expected:,.0f} requests, {self.seconds.expected:,.0f} s{cost}"
        return f"RunEstimate({escape(self.plan.called)}: about {times})"

    def to_document(self) -> dict[str, Any]:
        """Return the estimate as a JSON-serialisable dictionary, each range as least, expected and most."""
        model, dataset = self.plan.title
        return {
            "model": model,
            "dataset": dataset,
            "folder": str(self.plan.folder.path),
            "questions": len(self.plan.dataset.questions),
            "variants": list(self.plan.procedures),
            "pending": list(self.pending),
            "there": self.found.there,
            "foreseen": self.foreseen,
            "first": asdict(self.found.first),
            "forced": asdict(self.found.forced),
            "grading": asdict(self.found.grading),
            "grader_checks": self.checks,
            "requests": asdict(self.requests),
            "cost": None if self.cost is None else asdict(self.cost),
            "seconds": asdict(self.seconds),
            "assumed": {**asdict(self.assumed), "connections": self.connections},
            "remark": "; ".join(remarks(self.plan)) or None,
        }


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
        foreseen = await _foreseen(plan, pending, store, counting)
        assumed = assumptions(plan)
        cost = estimate(
            _asked(plan, pending, store),
            _tokens(plan),
            assumed,
            _paid(store),
            lambda to_ask: foreseen.get((to_ask.question.question_id, to_ask.protocol.variant)),
            _alike(plan, store),
        )
    sending, model = plan.settings.sending, plan.settings.model
    if sending.max_connections or is_function_name(model):
        connections = sending.max_connections or IN_PROCESS_CONCURRENCY
    elif model.startswith(f"{COMPATIBLE}/"):
        connections = COMPATIBLE_CONNECTIONS
    else:
        provider = provider_of(model)[0]
        connections = OTHER_CONNECTIONS if provider is None else provider.concurrency
    is_checked = pending and sending.engine == DIRECT
    models = [name for name in plan.graders if not (is_function_name(name) or callable(plan.objects.get(name)))]
    checks = len(models) if is_checked else 0
    return RunEstimate(
        plan=plan,
        pending=tuple(pending),
        assumed=assumed,
        foreseen=len(foreseen),
        found=cost,
        checks=checks,
        cost=_cost(cost, plan.settings.prices_as_sent),
        seconds=_seconds(plan, cost.total.requests + Range.exactly(checks), connections),
        connections=connections,
    )


def _seconds(plan: Plan, requests: Range, connections: int) -> Range:
    """Return the duration of the requests; in batches, each round may take the provider's whole time limit."""
    if plan.settings.sending.engine == BATCH:
        usual, largest = (WINDOW * rounds if requests.most else 0.0 for rounds in ROUNDS[len(plan.graders)])
        return Range(0, usual, largest)
    return requests * (plan.settings.forecast.seconds_per_request / connections)


ROUNDS = {0: (2, 2), 1: (3, 6), 2: (4, 10)}
"""Rounds by number of grading models: the least, if every verdict can be read, and the most, if every one is asked for
twice.
"""


def remarks(plan: Plan) -> Iterator[str]:
    """Yield remarks on the price and time limit of batches, and on earlier replies that are not counted."""
    settings = plan.settings
    if settings.sending.is_in_batches and settings.accounts.prices != UNPRICED:
        rate = settings.accounts.batch_rate
        if rate is None:
            yield "batches are priced like single requests (set --batch-rate if they cost less)"
        else:
            yield f"batches are priced at {rate:.0%} of the given prices (--batch-rate)"
    if settings.sending.engine == BATCH:
        usual, largest = ROUNDS[len(plan.graders)]
        more = f", {largest} at most" if largest > usual else ""
        yield f"there are {usual} rounds of batches{more}; the time assumes 24 hours for each, the maximum"

    if "functions" not in plan.identity and any(map(is_function_name, plan.names.values())):
        yield "a dry run of a configuration imports no function, so earlier replies of functions are not counted"


def _asked(plan: Plan, variants: Iterable[str], store: ReplyStore) -> Iterator[ToAsk]:
    """Yield the pending conversations, those about one question in succession."""
    before = store.draws()
    procedures: dict[str, Any] = {variant: plan.procedures[variant] for variant in variants}
    for question in plan.dataset.questions:
        for variant, procedure in procedures.items():
            earlier_draws = before.get(variant, {}).get(question.question_id, 1)
            yield ToAsk(procedure.wording, question, max(plan.draws[variant][question], earlier_draws))


def _alike(plan: Plan, store: ReplyStore) -> Callable[[ToAsk], Hashable]:
    """Return a key that is equal for questions with the same estimated requests and tokens.

    Estimated tokens depend on the lengths of a question's parts only.
    """
    if any(map(counts_exactly, plan.names.values())):
        return by_itself
    replied = {reply.question_id for reply in store.replies()}

    def kind(to_ask: ToAsk) -> Hashable:
        question = to_ask.question
        if question.question_id in replied:
            return None
        lengths = len(question.text), len(question.context or ""), len(question.gold or ""), *map(len, question.choices)
        return to_ask.protocol.variant, to_ask.draws, question.context is None, question.gold is None, lengths

    return kind


def assumptions(plan: Plan) -> Assumptions:
    """Return the assumptions about a run's replies, from its settings and from what is known about its provider."""
    forecast, max_choices = plan.settings.forecast, plan.settings.sending.max_choices
    provider, _ = provider_of(plan.settings.model)
    share = REFUSAL_SHARE if forecast.assume_refusal is None else forecast.assume_refusal
    share = 0 if plan.settings.repeats.answered_only else share  # no answer is forced
    reply_tokens = forecast.reply_tokens or (REPLY_TOKENS if provider is None else provider.reply_tokens)
    if provider is not None and provider.is_embedded:
        return Assumptions(share, reply_tokens, Range.exactly(max_choices))
    gives_several = plan.settings.model.partition("/")[0] in SEVERAL_CHOICES
    return Assumptions(share, reply_tokens, Range(1, max_choices if gives_several else 1, max_choices))


async def _foreseen(
    plan: Plan, variants: Iterable[str], store: ReplyStore, counting: Counting
) -> dict[tuple[str, str], Foreseen]:
    """Ask an embedded model for the first passes that are not stored yet, unless the refusal rate is given."""
    provider, model = provider_of(plan.settings.model)
    is_assumed = plan.settings.forecast.assume_refusal is not None or plan.settings.repeats.answered_only
    if is_assumed or provider is None or not provider.is_embedded:
        return {}
    requests = {
        (conversation.question.question_id, variant): model_request(plan.settings, conversation, pending)
        for variant in variants
        for conversation in plan.conversations(variant, store)
        for pending in next_requests(conversation, store.completions(conversation.question.question_id, variant))
        if conversation.draws == 1 and pending.step.pass_ is Pass.FIRST and pending.step.role is Role.MODEL
    }
    if not requests:
        return {}
    send = provider.client(model, plan.settings).send
    with counting(f"asking {plan.settings.model}", len(requests)) as replied:

        async def reply_to(request: ModelRequest) -> Foreseen:
            completion = to_completions(request, await send(request))[0]
            replied()
            return Foreseen(completion.reply, completion.output_tokens)

        replies = await asyncio.gather(*map(reply_to, requests.values()))
    return dict(zip(requests, replies, strict=True))


def _paid(store: ReplyStore) -> Paid:
    """Return a function that looks up stored replies, for as many draws in a row as there are."""

    def look(to_ask: ToAsk, request: Request, draw: int, choices: int) -> Sequence[Reply]:
        replies = {
            reply.draw: reply.reply
            for reply in store.completions(to_ask.question.question_id, to_ask.protocol.variant)
            if (reply.reply.pass_, reply.reply.role, reply.attempt) == (request.pass_, request.role, request.attempt)
        }
        stored: list[Reply] = []
        while len(stored) < choices and draw + len(stored) in replies:
            stored.append(replies[draw + len(stored)])
        return stored

    return look


def _tokens(plan: Plan) -> Callable[[Request], int]:
    """Return a function that counts a request's tokens: exactly for an embedded model, else approximately."""
    names = plan.names
    return lambda request: request_tokens(names.get(request.role, ""), request)


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


def _cost(cost: CostEstimate, prices: Prices) -> Range | None:
    if prices.model is None and cost.model.requests.most:
        return None
    parts = ((prices.model, cost.model), (prices.grader, cost.grading))
    costs = [
        (load.input_tokens * price.input + load.output_tokens * price.output) * (1 / MILLION)
        for price, load in parts
        if price is not None
    ]
    return sum(costs, Range()) if costs else None


DRY_RUN_COLUMNS = ("first pass", "forced pass", "grading", "requests", "tokens in", "tokens out", "cost", "time")
SHOWN = 3


def dry_run_document(estimates: Sequence[RunEstimate]) -> dict[str, Any]:
    """Return estimates as a JSON-serialisable dictionary."""
    return {"dry_run_version": 1, "runs": [run_estimate.to_document() for run_estimate in estimates]}


def dry_run_blocks(estimates: Sequence[RunEstimate]) -> Iterator[Block]:
    """Yield the estimates of runs, and their assumptions."""
    names = ("model", "dataset")
    rows = []
    for run_estimate in estimates:
        variants = len(run_estimate.plan.procedures)
        done = f", {variants - len(run_estimate.pending)} done" if len(run_estimate.pending) < variants else ""
        rows.append(
            (
                *run_estimate.plan.title,
                f"{len(run_estimate.plan.dataset.questions):,}",
                f"{variants}{done}",
                *_numbers([run_estimate]),
            )
        )
    if len(estimates) > 1:
        rows.append(("all", "", "", "", *_numbers(estimates)))
    yield Table.from_rows((*names, "questions", "prompts", *DRY_RUN_COLUMNS), rows, left=names)
    for line in _grouped(estimates):
        yield from ("", line)


def _numbers(estimates: Sequence[RunEstimate]) -> Iterator[str]:
    total = sum((run_estimate.found for run_estimate in estimates), NOTHING)
    checks = Range.exactly(sum(run_estimate.checks for run_estimate in estimates))
    yield from map(_count, (total.first.requests, total.forced.requests, total.grading.requests + checks))
    yield _count(total.total.requests + checks)
    yield from map(_about, (total.total.input_tokens, total.total.output_tokens))
    costs = [run_estimate.cost.expected for run_estimate in estimates if run_estimate.cost is not None]
    yield f"${sum(costs):,.2f}" if len(costs) == len(estimates) else UNDEFINED
    yield _time(sum(run_estimate.seconds.expected for run_estimate in estimates))


def _count(amount: Range) -> str:
    if amount.least == amount.most:
        return f"{amount.most:,.0f}"
    return f"{amount.least:,.0f} to {amount.most:,.0f}, about {amount.expected:,.0f}"


def _about(amount: Range) -> str:
    return f"{amount.expected:,.0f}" if amount.least == amount.most else f"about {amount.expected:,.0f}"


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:,.0f} s"
    return f"{seconds / 60:,.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:,.1f} h"


def _grouped(estimates: Sequence[RunEstimate]) -> Iterator[str]:
    """Yield each remark once, with the models it applies to unless it applies to all."""
    models_by_remark: dict[str, dict[str, None]] = {}
    for run_estimate in estimates:
        for remark in _basis(run_estimate):
            models_by_remark.setdefault(remark, {})[run_estimate.plan.title[0]] = None
    everyone = {run_estimate.plan.title[0] for run_estimate in estimates}
    for remark, models in models_by_remark.items():
        named = list(models)
        more = f" and {len(named) - SHOWN} more" if len(named) > SHOWN else ""
        yield remark if len(named) == len(everyone) else f"{', '.join(named[:SHOWN])}{more}: {remark}"


def _basis(run_estimate: RunEstimate) -> Iterator[str]:
    """Yield the assumptions behind the estimates of a run."""
    settings, assumed, dataset = run_estimate.plan.settings, run_estimate.assumed, run_estimate.plan.title[1]
    if run_estimate.found.there:
        yield f"On {dataset}, {run_estimate.found.there:,} requests of unfinished prompts have already been answered."
    if remark := "; ".join(remarks(run_estimate.plan)):
        yield f"On {dataset}, {remark}."
    if not run_estimate.pending:
        return
    draws, repeated = settings.repeats.draws or 1, settings.repeats.repeat_questions
    if draws > 1 and settings.decoding.temperature == 0:
        yield "At temperature 0, repeated samples should be equal, so corrected RI equals RI."
    elif draws > 1:
        some = "all" if repeated is None else f"{repeated:,}"
        yield f"On {dataset}, {some} of the questions are sampled {draws} times, for corrected RI."
    if run_estimate.foreseen:
        yield (
            f"The embedded model ran {run_estimate.foreseen:,} first passes to see what it refuses; --assume-refusal "
            "assumes a share instead. Each refused question is forced once for all prompts."
        )
    else:
        yield (
            f"Assumed: {assumed.refusal_share:.0%} of the questions are refused, the same ones under every prompt "
            "(--assume-refusal); each is forced once for all prompts."
        )
    kind = "unknown reply" if run_estimate.foreseen else "reply"
    pace = f", {settings.forecast.seconds_per_request:g} s per request (--seconds-per-request)"
    connections = f", {run_estimate.connections} at a time (--max-connections)"
    pace = "" if settings.sending.engine == BATCH else f"{pace}{connections}"
    yield (
        f"Assumed: {assumed.reply_tokens:,} tokens per {kind} (--reply-tokens){pace}. Input tokens are "
        + ("exact." if counts_exactly(settings.model) else "estimated at 4 characters each.")
    )
    if run_estimate.cost is None and not (counts_exactly(settings.model) or is_function_name(settings.model)):
        yield "The cost is unknown: add --price IN,OUT, in dollars per million input and output tokens."
    if draws > 1 and assumed.choices.least < assumed.choices.most:
        yield f"Assumed: one request returns up to {assumed.choices.expected:,.0f} samples of a question."
    if run_estimate.plan.graders:
        assumption = " assuming that all samples differ," if draws > 1 else ""
        graders = " and ".join(run_estimate.plan.graders)
        yield f"Every answer is graded by {graders},{assumption} at most twice{_about_cost(run_estimate.plan.prices)}."


def _about_cost(prices: Prices) -> str:
    """Say which tokens the cost covers, if not all."""
    if prices.model and not prices.grader:
        return "; the cost is that of the model without its graders (--grader-price)"
    if prices.grader and not prices.model:
        return "; the cost of the model is unknown (--price)"
    return ""
