"""Somebody else's first pass in a run's folder: where it lies, and what to call the two passes together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from refusal_index.datasets.imports import FirstPass
from refusal_index.outcomes.cautions import Caution
from refusal_index.outcomes.folder import RunFolder


def first_pass_table(folder: RunFolder) -> Path:
    """Return the place in a folder of the first pass that was imported: an outcome table."""
    return folder.path / "first_pass.parquet"


def named(settings: Mapping[str, Any], passes: Sequence[FirstPass]) -> list[FirstPass]:
    """Give rows that mix two models a name that says so."""
    dataset = settings["dataset"]["name"]
    name = model_name(settings["first_pass"]["model"], settings["model"])
    return [replace(one, model=name, dataset=one.dataset or dataset) for one in passes]


def model_name(first: str | None, forced: str) -> str:
    """Return what to call a first pass and a forced pass together.

    Examples
    --------
    >>> model_name("base", "almanac/base"), model_name("gpt-4o", "almanac/base")
    ('base', 'gpt-4o, forced: almanac/base')
    """
    if first is None:
        return f"(not named), forced: {forced}"
    return first if is_same_model(first, forced) else f"{first}, forced: {forced}"


def is_same_model(one: str, other: str) -> bool:
    """Whether two names are of one model: the shorter is how the longer ends, part by part.

    Examples
    --------
    >>> is_same_model("almanac/base", "openai-api/almanac/base"), is_same_model("gpt-4o", "openai/gpt-4o-mini")
    (True, False)
    """
    parts, others = (name.casefold().split("/") for name in (one, other))
    length = min(len(parts), len(others))
    return parts[-length:] == others[-length:]


def mixture(first: str | None, forced: str) -> Iterator[Caution]:
    """Yield what must be said where the two passes may be of two models."""
    if first is None:
        yield Caution(
            "two_models",
            f"The file does not say whose first pass it is, and {forced} gave the forced answers: unless they are one "
            "model, RI says how well the refusals of one follow the ignorance of the other.",
        )
    elif not is_same_model(first, forced):
        yield Caution(
            "two_models",
            f"The first pass is of {first} and the forced answers are of {forced}: RI mixes two models, and says how "
            "well the refusals of one follow the ignorance of the other.",
        )
