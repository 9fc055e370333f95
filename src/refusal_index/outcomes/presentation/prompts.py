"""What several prompts say together, as sentences: how far they lie apart, and whether one copula is behind them."""

from __future__ import annotations

from refusal_index.outcomes.pooled import PooledSummary
from refusal_index.outcomes.presentation.blocks import percent

HARD_TO_TELL = 0.7
"""Error rate from which the test finds a Gumbel copula in about one run of ten: .05 to .15 with four prompts and 4,326
questions at error rates of .75 and above, .87 at .5."""


def spread_sentence(pooled: PooledSummary) -> str:
    """Say how far the prompts lie apart beyond chance, and where one more would lie."""
    between, new = pooled.between_prompts, pooled.new_prompt
    if between.estimate is None:
        return ""
    if not between.estimate:
        return (
            f". The prompts lie no farther apart than chance makes them (standard deviation up to {between.high:.2f})"
        )
    return (
        f". Between prompts single-draw RI has a standard deviation of {between.estimate:.2f} [{between.low:.2f}, "
        f"{between.high:.2f}]: one more prompt like these would show between {new.low:.2f} and {new.high:.2f}"
    )


def copula_sentence(pooled: PooledSummary, alpha: float) -> str:
    """Say whether one Gaussian copula may be behind all variants, and how little it means that it is not refuted."""
    gaussian = pooled.gaussian
    if gaussian.pvalue is None:
        return ""
    left = [
        fit.family.replace("_", " ")
        for fit in pooled.copulas
        if (fit.pvalue or 0) >= alpha and fit.family != gaussian.family
    ]
    if gaussian.pvalue >= alpha:
        others = f"; neither is {_listed(left)}, so this says little" if left else ""
        return (
            f". One Gaussian copula behind all variants is not refuted (p = {gaussian.pvalue:.2g}){others}"
            f"{_little_power(pooled)}"
        )
    return (
        f". One Gaussian copula behind all variants is refuted (p = {gaussian.pvalue:.2g}): either the "
        "prompts change how refusals follow errors, or the index depends on the refusal rate; "
        f"{'not refuted: ' + ', '.join(left) if left else 'no other of seven copulas fits either'}"
    )


def _little_power(pooled: PooledSummary) -> str:
    """Say it where even a run of thousands of questions seldom finds another copula."""
    tables = pooled.gaussian.tables
    wrong = sum(table.refused_wrong + table.answered_wrong for table in tables) / sum(table.n for table in tables)
    if wrong < HARD_TO_TELL:
        return ""
    return (
        f": with {percent(round(wrong, 2))} of the answers wrong the test finds a Gumbel copula in one run of "
        "ten, even with thousands of questions"
    )


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
