"""What replies took: requests, and tokens by who was asked and how they were carried, which tells what they cost."""

from __future__ import annotations

from refusal_index.outcomes.price import Prices, Tokens
from refusal_index.protocol import Asked, Completion


class Took:
    """Requests and tokens, added up reply by reply.

    Examples
    --------
    >>> from refusal_index.outcomes.price import Price
    >>> from refusal_index.protocol import Pass, Reply
    >>> reply, took = Reply(Pass.FIRST, Asked.MODEL, "Lima"), Took()
    >>> for in_batch in (False, True):
    ...     took.add(Completion("q1", "low", 0, reply, input_tokens=1_000_000, in_batch=in_batch))
    >>> took.requests, took.tokens, took.cost(Prices(Price(2, 8), batch_rate=0.5))
    (2, (2000000, 0), 3.0)
    """

    def __init__(self) -> None:
        self.requests = 0
        self._tokens = {(of_model, in_batch): (0, 0) for of_model in (True, False) for in_batch in (True, False)}

    def add(self, one: Completion) -> None:
        """Add what a reply took."""
        place = one.reply.asked is Asked.MODEL, one.in_batch
        read, written = self._tokens[place]
        self._tokens[place] = read + one.input_tokens, written + one.output_tokens
        self.requests += one.requests

    @property
    def tokens(self) -> Tokens:
        """All tokens."""
        return _sum(*self._tokens.values())

    @property
    def grading_tokens(self) -> Tokens:
        """Those of models that grade."""
        return _sum(self._tokens[False, False], self._tokens[False, True])

    def cost(self, prices: Prices) -> float | None:
        """Return the dollars, as `Prices.cost` has them; what came in batches has the price of batches."""
        singly = prices.cost(self._tokens[True, False], self._tokens[False, False])
        batched = prices.in_batches.cost(self._tokens[True, True], self._tokens[False, True])
        return None if singly is None or batched is None else singly + batched


def _sum(*parts: Tokens) -> Tokens:
    return sum(read for read, _ in parts), sum(written for _, written in parts)
