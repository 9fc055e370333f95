"""What `run.json` holds, by type: a stranger may have written it, and everything that reads it relies on this."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from refusal_index.outcomes.errors import RunFolderError, shortened

Holds = Callable[[Any], bool]


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_amount(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0


def _is_object(value: Any) -> bool:
    return isinstance(value, Mapping)


def _is_price(value: Any) -> bool:
    return isinstance(value, Mapping) and value.keys() == {"input", "output"}


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_text, value))


def _is_weights(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(map(_is_amount, value)) and any(value)


def _is_stop(value: Any) -> bool:
    counts = ("asked", "of", "look", "looks")
    if not isinstance(value, Mapping) or value.keys() != {*counts, "why"}:
        return False
    return all(_is_whole(value[name]) and value[name] > 0 for name in counts) and _is_text(value["why"])


def _is_until(value: Any) -> bool:
    if not isinstance(value, Mapping) or value.keys() != {"half_width"}:
        return False
    return _is_amount(value["half_width"]) and 0 < value["half_width"] < 1


def _is_gate_looks(value: Any) -> bool:
    if not isinstance(value, Mapping) or value.keys() != {"of", "looks"}:
        return False
    return all(_is_whole(count) and count > 0 for count in value.values())


def _or_null(holds: Holds) -> Holds:
    return lambda value: value is None or holds(value)


TEXT, WHOLE, OBJECT = ("text", _is_text), ("a whole number", _is_whole), ("an object", _is_object)
AMOUNT = ("a number from 0", _is_amount)
PRICE = ("input and output, or null", _or_null(_is_price))

SETTINGS: Mapping[str, tuple[str, Holds]] = {
    "model": TEXT,
    "dataset": OBJECT,
    "dataset.name": TEXT,
    "dataset.sha256": TEXT,
    "grader": ("an object or null", _or_null(_is_object)),
    "grader.name": TEXT,
    "grader.second": ("text or null", _or_null(_is_text)),
    "prompts": OBJECT,
    "prompts.variants": ("a list of names", _is_names),
    "seed": WHOLE,
    "comparability_version": WHOLE,
    "first_pass": OBJECT,
    "first_pass.model": ("text or null", _or_null(_is_text)),
    "regraded_from": OBJECT,
    "regraded_from.grader": ("an object or null", _or_null(_is_object)),
}
ABOUT: Mapping[str, tuple[str, Holds]] = {
    "run_id": TEXT,
    "penalty": AMOUNT,
    "truthfulness_weights": ("three numbers from 0, not all 0", _is_weights),
    "stopped": ("where it stopped, or null", _or_null(_is_stop)),
    "until": ("a half_width above 0 and below 1, or null", _or_null(_is_until)),
    "gate_looks": ("of and looks, or null", _or_null(_is_gate_looks)),
    "price": PRICE,
    "grader_price": PRICE,
    "batch_rate": ("a number from 0, or null", _or_null(_is_amount)),
    **{f"{price}.{way}": AMOUNT for price in ("price", "grader_price") for way in ("input", "output")},
}
NEEDED = ("model", "dataset.name", "dataset.sha256", "prompts.variants", "seed")
"""What the results of a run cannot be made without."""


def check_types(path: Path, section: str, document: Mapping[str, Any]) -> None:
    """Raise RunFolderError if a value of a section of `run.json` is not of its type; what is missing is not looked for.

    - `path`: of the file.
    - `section`: ``"settings"`` or ``"about"``.
    """
    for key, (expected, holds) in (SETTINGS if section == "settings" else ABOUT).items():
        found, value = _find(document, key)
        if found and not holds(value):
            raise RunFolderError(
                f"{path}: {section}, {key}: expected {expected}, got {shortened(value)}; restore the file"
            )


def check_complete(path: Path, settings: Mapping[str, Any]) -> None:
    """Raise RunFolderError if settings lack what the results of a run cannot be made without."""
    needed = list(NEEDED)
    needed += ["first_pass.model"] if "first_pass" in settings else []
    needed += ["regraded_from.grader"] if "regraded_from" in settings else []
    lacking = [key for key in needed if not _find(settings, key)[0]]
    if lacking:
        raise RunFolderError(f"{path}: settings: expected {', '.join(needed)}, lacks {lacking[0]}; restore the file")


def _find(document: Mapping[str, Any], key: str) -> tuple[bool, Any]:
    """Return whether a key is there, the parts of which name what lies within each other, and its value."""
    value: Any = document
    for part in key.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return False, None
        value = value[part]
    return True, value
