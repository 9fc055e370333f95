"""Whether enough of a run is there."""

from __future__ import annotations

from refusal_index.outcomes.cautions import MISSING_LIMIT
from refusal_index.outcomes.summary import Summary


def is_complete(summary: Summary) -> bool:
    """Whether no variant lacks more than the tolerated share of its questions."""
    shares = [variant.completeness.missing_share for variant in summary.variants]
    return bool(shares) and all(share is not None and share <= MISSING_LIMIT for share in shares)
