"""Results as JSON holds them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from refusal_index.stats import Estimate


def plain(value: Any) -> Any:
    """Give a result as objects, lists and numbers: floats unrounded, None for what is not a number.

    >>> plain({"auroc": (Estimate(0.8, 0.7, float("nan")),)})["auroc"][0]["high"] is None
    True
    """
    if isinstance(value, Estimate):
        value = value.to_document()
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
