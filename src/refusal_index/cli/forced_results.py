"""The results of a forced pass's folder: made from its log and the first pass beside it, written, shown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from refusal_index.cli.results import RunResults, as_made, summary_of, write_derived
from refusal_index.engines.inspect.derive_forced import derive_forced, is_same_model
from refusal_index.outcomes.cautions import Caution
from refusal_index.outcomes.folder import RunFolder
from refusal_index.outcomes.price import UNPRICED, Prices
from refusal_index.outcomes.summary import DEFAULT_CONFIDENCE_LEVEL


def write_forced_results(
    folder: RunFolder,
    prices: Prices = UNPRICED,
    *,
    penalty: float | None = None,
    confidence_level: float = DEFAULT_CONFIDENCE_LEVEL,
) -> RunResults:
    """Derive the results of `folder` and write them into it; call it inside the folder's lock.

    Prices and penalty are those that the folder was made with, unless others are given.

    Raises
    ------
    LogError
        If the forced pass was not brought to its end.
    RunFolderError
        If the folder is not one, or cannot be written.
    """
    settings = folder.read_settings()
    prices, penalty = as_made(folder, prices, penalty)
    derived = derive_forced(folder, prices)
    summary = summary_of(derived, prices, penalty, confidence_level)
    said = tuple(mixture(settings["first_pass"]["model"], settings["model"]))
    variants = tuple(replace(variant, warnings=(*said, *variant.warnings)) for variant in summary.variants)
    summary = replace(summary, variants=variants)
    return write_derived(folder, derived, summary)


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
