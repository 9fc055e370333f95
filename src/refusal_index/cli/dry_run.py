"""``refusal-index run --dry-run``: what a run would send, take and cost, and on what assumptions.

How often a model refuses is what a run is to find out. An embedded model can be asked beforehand, since that costs
nothing and it will reply the same; of any other model it is assumed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass

from rich.console import Console

from refusal_index.almanac import chat
from refusal_index.almanac.lengths import count_tokens
from refusal_index.almanac.models import model_names
from refusal_index.cli.execution import ALMANAC, Prepared, models_of
from refusal_index.cli.progress import counting
from refusal_index.engines.inspect.foresight import foreseen_replies
from refusal_index.engines.inspect.models import ModelError
from refusal_index.engines.inspect.paid import Look, paid_replies
from refusal_index.engines.inspect.samples import Repetition
from refusal_index.outcomes.folder import RunFolder
from refusal_index.outcomes.price import MILLION, Price, Prices
from refusal_index.protocol import Asked, Protocol, Reply, Request, about_tokens, next_request, request_seed
from refusal_index.protocol.amounts import Estimate, Load, Range
from refusal_index.protocol.estimate import Assumptions, Foreseen, Paid, ToAsk, estimate, nothing_paid

REFUSAL_SHARE = 0.5
REPLY_TOKENS = 50
ALMANAC_REPLY_TOKENS = 8  # as measured
CONNECTIONS = 10  # Inspect's first guess at most providers
ALMANAC_CONNECTIONS = 64
SEVERAL_CHOICES = frozenset({"openai", "openai-api", "vllm", "google", "together", "groq", "sagemaker"})
"""Providers that give several choices for one request, as far as known."""

LATE_ADDRESS = frozenset({"vllm", "sglang"})
"""Providers that start a server, or find it, with the first request."""


@dataclass(frozen=True)
class CellEstimate:
    """What one model on one dataset would take.

    Attributes
    ----------
    prepared, pending
        The run, and the variants that are not finished.
    assumed
        What was assumed of replies.
    foreseen
        First passes whose replies are known, since the embedded model was asked.
    found
        Requests and tokens.
    checks
        Requests that ask each grader for a plain case before the first question; nothing where nothing is pending.
    cost
        In dollars, of the tokens of those whose price is known; None without a price.
    seconds
        All requests, one after the other on each connection.
    connections
        Requests in flight.
    remark
        Why something could not be taken into account; None where nothing.
    """

    prepared: Prepared
    pending: tuple[str, ...]
    assumed: Assumptions
    foreseen: int
    found: Estimate
    checks: int
    cost: Range | None
    seconds: Range
    connections: int
    remark: str | None

    @property
    def requests(self) -> Range:
        """All requests, the checks of graders included."""
        return self.found.total.requests + Range.exactly(self.checks)


def estimate_cell(prepared: Prepared) -> CellEstimate:
    """Work out what is still to be sent of one run; its folder is looked into, and nothing is sent or written."""
    plan = prepared.plan
    pending = prepared.pending()
    assumed = assumptions(prepared)
    asked = list(_to_ask(prepared, pending))
    with _look_up(prepared, pending) as (paid, remark):
        foreseen = _foreseen(prepared, asked, paid)
        found = estimate(asked, _tokens(prepared), assumed, paid, lambda one: foreseen.get(_key(one)))
    connections = plan.max_connections or (ALMANAC_CONNECTIONS if counts_exactly(plan.model) else CONNECTIONS)
    checks = len(models_of(plan)) - 1 if pending else 0
    each = prepared.options.seconds_per_request / connections
    return CellEstimate(
        prepared=prepared,
        pending=tuple(pending),
        assumed=assumed,
        foreseen=len(foreseen),
        found=found,
        checks=checks,
        cost=_cost(found, prepared.prices),
        seconds=(found.total.requests + Range.exactly(checks)).times(each),
        connections=connections,
        remark=remark,
    )


def assumptions(prepared: Prepared) -> Assumptions:
    """Return what is assumed of a run's replies: as its options say, and as is known of its provider."""
    options, plan = prepared.options, prepared.plan
    provider, most = plan.model.partition("/")[0], plan.asking.max_choices
    share = REFUSAL_SHARE if options.assume_refusal is None else options.assume_refusal
    if provider == ALMANAC:
        return Assumptions(share, options.reply_tokens or ALMANAC_REPLY_TOKENS, Range.exactly(most))
    choices = Range(1, most if provider in SEVERAL_CHOICES else 1, most)
    return Assumptions(share, options.reply_tokens or REPLY_TOKENS, choices)


def _to_ask(prepared: Prepared, pending: Mapping[str, Repetition]) -> Iterator[ToAsk]:
    asking = prepared.plan.asking
    for variant, repetition in pending.items():
        protocol = Protocol(prepared.prompts, variant, asking.grader, asking.placement, asking.think)
        for question in prepared.plan.dataset.questions:
            yield ToAsk(protocol, question, repetition.portions(question))


def _foreseen(prepared: Prepared, asked: Iterable[ToAsk], paid: Paid) -> dict[tuple[str, str], Foreseen]:
    """Ask an embedded model for the first passes that nobody paid for, unless the share that it refuses is given."""
    plan = prepared.plan
    if prepared.options.assume_refusal is not None or not counts_exactly(plan.model):
        return {}
    requests = {
        _key(one): (request_seed(plan.asking.seed, one.question.question_id, 0, one.protocol.variant, request), request)
        for one in asked
        if sum(one.portions) == 1
        and isinstance(request := next_request(one.question, (), one.protocol), Request)
        and not paid(one, request, 0, 1)
    }
    if not requests:
        return {}
    with counting(Console(stderr=True), f"asking {plan.model}", len(requests)) as replied:
        return foreseen_replies(plan, requests, replied)


def _key(one: ToAsk) -> tuple[str, str]:
    return one.question.question_id, one.protocol.variant


@contextmanager
def _look_up(prepared: Prepared, pending: Mapping[str, Repetition]) -> Iterator[tuple[Paid, str | None]]:
    """Give what looks up replies that the folder has, and a remark where there are some that cannot be looked up."""
    with ExitStack() as stack:
        look, remark = None, None
        if pending and _anything(prepared.folder):
            try:
                look = stack.enter_context(_opened(prepared))
            except ModelError as error:
                remark = f"what unfinished variants have paid for is not taken off: {error}"
        if look is None:
            yield nothing_paid, remark
            return

        def paid(one: ToAsk, request: Request, draw: int, choices: int) -> Sequence[Reply]:
            return look(one.question.question_id, one.protocol.variant, request, draw, choices)

        yield paid, None


def _opened(prepared: Prepared) -> AbstractContextManager[Look]:
    late = [name for name in models_of(prepared.plan) if name.partition("/")[0] in LATE_ADDRESS]
    if late:
        raise ModelError(f"replies lie under the address of their server, which {late[0]} has only once it runs")
    return paid_replies(prepared.plan, prepared.folder)


def _anything(folder: RunFolder) -> bool:
    return folder.cache.is_dir() and any(folder.cache.iterdir())


def _tokens(prepared: Prepared) -> Callable[[Request], int]:
    """Return what counts a request's tokens: as the embedded model it goes to counts them, else about."""
    plan = prepared.plan
    names = {Asked.MODEL: plan.model, Asked.GRADER: plan.grader or "", Asked.SECOND_GRADER: plan.second_grader or ""}
    return lambda request: _counted(names[request.asked], request)


def _counted(model: str, request: Request) -> int:
    if counts_exactly(model):
        messages = [chat.Message(message.role, message.content) for message in request.messages]
        return count_tokens(model.partition("/")[2], messages)
    return sum(about_tokens(message.content) for message in request.messages)


def counts_exactly(model: str) -> bool:
    """Whether the model is an embedded one, whose tokens can be counted here."""
    provider, _, name = model.partition("/")
    return provider == ALMANAC and name in model_names()


def _cost(found: Estimate, prices: Prices) -> Range | None:
    if prices.model is None and found.model.requests.most:
        return None
    parts = ((prices.model, found.model), (prices.grader, found.grading))
    costs = [_dollars(load, price) for price, load in parts if price is not None]
    return sum(costs, Range()) if costs else None


def _dollars(load: Load, price: Price) -> Range:
    return (load.input_tokens.times(price.input) + load.output_tokens.times(price.output)).times(1 / MILLION)
