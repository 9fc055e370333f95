"""Scores from the log probabilities of the answer's tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from refusal_index.data.confidence import Score
from refusal_index.plugins.confidence.method import Answer, Evidence, Method, Need, score_each
from refusal_index.protocol import TokenLogprob, answer_start

Reduce = Callable[[Sequence[float]], float]


def likelihood(evidence: Evidence, name: str, reduce: Reduce) -> Iterable[Score]:
    """Yield the probability of each answer that came with log probabilities of its tokens.

    Parameters
    ----------
    evidence, name
        Whose answers, and the method.
    reduce
        From the tokens' log probabilities to one: their sum, for the probability of the answer as it stands; their
        mean, which does not count its length; or the least, its weakest point.
    """
    reported = {one: answer for one, answer in evidence.answers.items() if answer.logprobs is not None}

    def probability(_question_id: str, answer: Answer) -> float | None:
        tokens = answer_tokens(answer.text, answer.logprobs or ())
        # Providers round, some to a logarithm above 0.
        return min(math.exp(reduce([one.logprob for one in tokens])), 1.0) if tokens else None

    return score_each(replace(evidence, answers=reported), name, probability)


def answer_tokens(answer: str, tokens: Sequence[TokenLogprob]) -> Sequence[TokenLogprob]:
    """Return those of a reply's tokens that its answer lies in: what stands around it, such as tags, says nothing.

    Parameters
    ----------
    answer
        As it was read from the reply; where it is not found there, all tokens count.
    tokens
        Of the whole reply.

    Examples
    --------
    >>> said = [TokenLogprob(text, -1.0) for text in ("<answer>", "Li", "ma", "</answer>")]
    >>> [one.token for one in answer_tokens("Lima", said)]
    ['Li', 'ma']
    """
    start = answer_start("".join(one.token for one in tokens), answer)
    if start is None:
        return tokens
    found, place = [], 0
    for one in tokens:
        ends = place + len(one.token)
        if ends > start and place < start + len(answer):
            found.append(one)
        place = ends
    return found


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


REDUCTIONS: dict[str, tuple[Reduce, str]] = {
    "likelihood": (math.fsum, "probability of the answer: the product over its tokens"),
    "likelihood-mean": (_mean, "geometric mean of the probabilities of the answer's tokens"),
    "likelihood-min": (min, "probability of the answer's least likely token"),
}

METHODS = tuple(
    Method(name, about, partial(likelihood, name=name, reduce=reduce), frozenset({Need.LOGPROBS}))
    for name, (reduce, about) in REDUCTIONS.items()
)
