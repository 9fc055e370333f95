"""What a forced pass adds up to, together with the first pass that it was made for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from refusal_index.datasets.imports import FirstPass, from_outcomes, to_outcomes
from refusal_index.engines.inspect.derive import Derived, Missing, total
from refusal_index.engines.inspect.disagreements import disagreements
from refusal_index.engines.inspect.forced import read_forced
from refusal_index.engines.inspect.logs import LogError
from refusal_index.engines.inspect.run import finished_logs
from refusal_index.outcomes.folder import RunFolder
from refusal_index.outcomes.price import UNPRICED, Prices
from refusal_index.outcomes.table import read_outcomes
from refusal_index.protocol import FORCED


def first_pass_table(folder: RunFolder) -> Path:
    """Return the place in a folder of the first pass that was imported: an outcome table."""
    return folder.path / "first_pass.parquet"


def is_forced_folder(folder: RunFolder) -> bool:
    """Whether a folder holds a forced pass on somebody else's first pass, and no run of both."""
    return "first_pass" in folder.read_settings()


def derive_forced(folder: RunFolder, prices: Prices = UNPRICED) -> Derived:
    """Read the first pass and the log of the forced pass, and return what they add up to.

    Raises
    ------
    LogError
        If the forced pass was not brought to its end.
    """
    logs = finished_logs(folder)
    if FORCED not in logs:
        raise LogError(f"{folder.logs}: the forced pass was not asked to its end; the same command resumes it")
    logged = read_forced(logs[FORCED])
    passes = _named(folder, from_outcomes(read_outcomes(first_pass_table(folder))))
    table = to_outcomes(passes, {one.question.question_id: one.outcome for one in logged})
    paid = [carried for one in logged for carried in one.carried]
    missing = (Missing(FORCED, one.question.question_id, one.error) for one in logged if one.error is not None)
    # All variants share the forced answers, which therefore count for the first of them.
    differing = tuple(disagreements({passes[0].variant: logged}))
    return Derived(table, {passes[0].variant: total(paid, prices)}, tuple(missing), differing)


def _named(folder: RunFolder, passes: Sequence[FirstPass]) -> list[FirstPass]:
    """Give rows that mix two models a name that says so."""
    settings = folder.read_settings()
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
