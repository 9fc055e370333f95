"""The Refusal Index in plain words.

The words for its size are fixed by the estimate, and say so; the share of pairs told apart is computed. Of two
questions, one that the model gets wrong and one that it gets right, it is more inclined to refuse the wrong one with
the probability that `refusal_index.stats.latent_auroc` gives: one half for a coin, 1 for perfect self-knowledge.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from refusal_index.report.text import percent
from refusal_index.stats import Estimate, latent_auroc, rho_from_refusal_index

STEPS = ((0.2, "barely"), (0.4, "loosely"), (0.6, "moderately well"), (0.8, "closely"), (1.01, "very closely"))
"""Up to which estimate which word is used, where the interval lies above 0."""

MEANINGLESS = frozenset({"boundary", "next_to_no_knowledge"})
"""Cautions under which no sentence may be made of the number."""


@dataclass(frozen=True)
class Finding:
    """The number that a report is about, and what decides how it may be put into words."""

    index: Estimate  # the Refusal Index with its interval
    error_rate: float | None  # mean share of wrong answers under forced answering; None where nothing was scored
    codes: frozenset[str] = frozenset()  # codes of the cautions that hold for all of it
    hidden_by_chance: bool = False  # whether repeated draws show, by an interval above 0, what single draws do not


def verdict(found: Finding) -> str:
    """Say in one clause how well the refusals follow the knowledge.

    Examples
    --------
    >>> verdict(Finding(Estimate(0.27, 0.2, 0.34), error_rate=0.49))
    'Its refusals follow its knowledge loosely.'
    >>> verdict(Finding(Estimate(0.05, -0.1, 0.2), error_rate=0.49))
    'There is no sign that its refusals follow its knowledge: they may be no better than a coin.'
    """
    index = found.index
    if index.estimate is None:
        return "How well its refusals follow its knowledge cannot be said."
    if found.codes & MEANINGLESS or index.low is None or index.high is None:
        return "How well its refusals follow its knowledge cannot be said from this number."
    if index.low <= 0 <= index.high and found.hidden_by_chance:
        return "One reply a question gives no sign that its refusals follow its knowledge; repeated draws do."
    if index.low <= 0 <= index.high:
        return "There is no sign that its refusals follow its knowledge: they may be no better than a coin."
    if index.estimate < 0:
        return "Its refusals run against its knowledge: it refuses what it knows rather than what it does not."
    word = next(word for end, word in STEPS if index.estimate < end)
    return f"Its refusals follow its knowledge {word}."


def pairs_sentence(found: Finding) -> str | None:
    """Say what the index means for two questions, one got wrong and one got right; None where it means nothing."""
    shares = pair_shares(found)
    if shares is None or found.codes & MEANINGLESS:
        return None
    estimate, low, high = (percent(share) for share in shares)
    bare = low.removesuffix("\u00a0%")
    return (
        f"Of two questions, one that it gets wrong and one that it gets right, it leans more towards refusing the "
        f"wrong one in {estimate} of cases ({bare} to {high}); a coin would in 50\u00a0%, a model that "
        "knows exactly what it does not know in all."
    )


def pair_shares(found: Finding) -> tuple[float, float, float] | None:
    """Share of such pairs told apart at the estimate and at both ends of its interval."""
    ends = (found.index.estimate, found.index.low, found.index.high)
    if found.error_rate is None or not 0 < found.error_rate < 1 or None in ends:
        return None
    at_estimate, at_low, at_high = latent_auroc(
        rho_from_refusal_index(np.array(ends, float)), found.error_rate
    ).tolist()
    return at_estimate, at_low, at_high
