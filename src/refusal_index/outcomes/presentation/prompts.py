"""How far several prompts lie apart, as a sentence."""

from __future__ import annotations

from refusal_index.outcomes.pooled import PooledSummary


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
        f". Between prompts RI has a standard deviation of {between.estimate:.2f} [{between.low:.2f}, "
        f"{between.high:.2f}]: one more prompt like these would show between {new.low:.2f} and {new.high:.2f}"
    )
