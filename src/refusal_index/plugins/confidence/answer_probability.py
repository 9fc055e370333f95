"""The probability of an answer from the log probabilities of its tokens, and its calibration.

Saved rules use it where a model is deployed, so it imports neither NumPy nor SciPy.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean

from refusal_index.protocol import TokenLogprob, answer_start

Reduce = Callable[[Sequence[float]], float]
"""Reduces the log probabilities of an answer's tokens to one value."""

REDUCTIONS: Mapping[str, Reduce] = {
    "likelihood": math.fsum,
    "likelihood-mean": fmean,
    "likelihood-min": min,
    "likelihood-platt": math.fsum,
    "likelihood-isotonic": math.fsum,
}
"""How each method reduces the log probabilities: their sum gives the probability of the answer, their mean its
length-normalised probability, and their minimum that of its least likely token.
"""

NEAREST = 1e-6
"""Likelihoods are clipped to this distance from 0 and 1; beyond it, differences in the logit are meaningless."""


def answer_probability(answer: str, tokens: Sequence[TokenLogprob], reduce: Reduce) -> float | None:
    """Return the probability of a reply's answer; None if no token has a log probability.

    Parameters
    ----------
    answer, tokens
        The answer parsed from the reply, and the tokens of the whole reply.
    reduce
        One of `REDUCTIONS`.

    Examples
    --------
    >>> tokens = [TokenLogprob("Li", math.log(0.5)), TokenLogprob("ma", math.log(0.5))]
    >>> round(answer_probability("Lima", tokens, math.fsum), 9)
    0.25
    """
    of_answer = answer_tokens(answer, tokens)
    if not of_answer:
        return None
    # Providers round log probabilities, some of them to values above 0.
    return min(math.exp(reduce([token.logprob for token in of_answer])), 1.0)


def answer_tokens(answer: str, tokens: Sequence[TokenLogprob]) -> Sequence[TokenLogprob]:
    """Return the tokens of a reply that make up its answer, without surrounding ones such as tags.

    Parameters
    ----------
    answer
        The answer parsed from the reply; if the tokens do not contain it, all tokens are returned.
    tokens
        Tokens of the whole reply.

    Examples
    --------
    >>> tokens = [TokenLogprob(text, -1.0) for text in ("<answer>", "Li", "ma", "</answer>")]
    >>> [one.token for one in answer_tokens("Lima", tokens)]
    ['Li', 'ma']
    """
    start = answer_start("".join(token.token for token in tokens), answer)
    if start is None:
        return tokens
    ends = accumulate(len(token.token) for token in tokens)
    stop = start + len(answer)
    return [token for token, end in zip(tokens, ends, strict=True) if end > start and end - len(token.token) < stop]


@dataclass(frozen=True)
class PlattScaling:
    """A fitted Platt scaling: ``1 / (1 + exp(-(slope * logit(score) + intercept)))``.

    Examples
    --------
    >>> PlattScaling(slope=0.0, intercept=0.0)(0.9)
    0.5
    """

    slope: float
    intercept: float

    def __call__(self, score: float) -> float:
        """Return the probability that an answer with this score is right."""
        clipped = min(max(score, NEAREST), 1 - NEAREST)
        logit = self.slope * math.log(clipped / (1 - clipped)) + self.intercept
        return (1 + math.tanh(logit / 2)) / 2  # the logistic function, without overflow


@dataclass(frozen=True)
class IsotonicFunction:
    """A fitted isotonic regression: linear between its points, and constant beyond them.

    Examples
    --------
    >>> fitted = IsotonicFunction(scores=(0.2, 0.4), probabilities=(0.0, 0.5))
    >>> fitted(0.1), round(fitted(0.3), 9), fitted(0.9)
    (0.0, 0.25, 0.5)
    """

    scores: tuple[float, ...]
    probabilities: tuple[float, ...]

    def __call__(self, score: float) -> float:
        """Return the probability that an answer with this score is right."""
        above = bisect_left(self.scores, score)
        if above in (0, len(self.scores)):
            return self.probabilities[0 if above == 0 else -1]
        low, high = self.scores[above - 1 : above + 1]
        before, after = self.probabilities[above - 1 : above + 1]
        return before + (score - low) / (high - low) * (after - before)


Calibration = PlattScaling | IsotonicFunction

CALIBRATIONS: Mapping[str, Callable[..., Calibration]] = {
    "likelihood-platt": PlattScaling,
    "likelihood-isotonic": IsotonicFunction,
}
"""The fitted function of each method that calibrates the likelihood."""
