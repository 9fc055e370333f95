"""Which of several cases, and how many examples, each tier of the tests runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import settings


def reduced_examples(share: float, **options: Any) -> settings:
    """Run an expensive property test with a share of the examples that its tier normally uses."""
    return settings(max_examples=max(1, round(share * settings().max_examples)), **options)


def one_fast(names: str | Sequence[str], values: Iterable[Any], **options: Any) -> pytest.MarkDecorator:
    """Parametrize a test of which `make test` runs the first values only, and `make test-all` the others too."""
    return _first_sooner(names, values, pytest.mark.slow, **options)


def others_nightly(names: str | Sequence[str], values: Iterable[Any], **options: Any) -> pytest.MarkDecorator:
    """Parametrize a test of which only `make nightly` runs more than the first values."""
    return _first_sooner(names, values, pytest.mark.nightly, **options)


def _first_sooner(
    names: str | Sequence[str], values: Iterable[Any], mark: pytest.MarkDecorator, **options: Any
) -> pytest.MarkDecorator:
    first, *others = values
    later = [pytest.param(*([value] if isinstance(names, str) else value), marks=mark) for value in others]
    return pytest.mark.parametrize(names, [first, *later], **options)
