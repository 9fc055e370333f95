"""Which tests the fast tier holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest


def one_fast(names: str | Sequence[str], values: Iterable[Any], **options: Any) -> pytest.MarkDecorator:
    """Parametrize a test of which `make test` runs the first values only, and `make test-all` the others too."""
    first, *others = values
    slow = [pytest.param(*([value] if isinstance(names, str) else value), marks=pytest.mark.slow) for value in others]
    return pytest.mark.parametrize(names, [first, *slow], **options)
