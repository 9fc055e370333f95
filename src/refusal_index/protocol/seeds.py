"""The seed of each request."""

from __future__ import annotations

import hashlib

from refusal_index.protocol.records import Request

SEED_BITS = 31  # what every provider takes


def request_seed(run_seed: int, question_id: str, draw: int, variant: str, request: Request) -> int:
    """Return the seed of `request`, derived from what it asks and nothing else.

    The variant counts in the first pass only: a forced answer belongs to the question and the draw, so that a question
    refused under two variants is forced once and both share the answer.

    Parameters
    ----------
    run_seed
        The seed of the run.
    question_id, draw
        Which question is asked, and for which time, from 0.
    variant
        The first-pass variant.
    request
        The pass, who is asked, and the attempt.

    Examples
    --------
    >>> from refusal_index.protocol.records import Asked, Pass
    >>> forced = Request(Pass.FORCED, Asked.MODEL, ())
    >>> request_seed(0, "q1", 0, "low", forced) == request_seed(0, "q1", 0, "high", forced)
    True
    """
    of_variant = "" if request.of.is_shared else variant
    parts = (run_seed, question_id, draw, of_variant, request.of, request.asked, request.attempt)
    key = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8]) >> (64 - SEED_BITS)
