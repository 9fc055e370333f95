"""Record of how each confidence method's scores were made, and their cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from refusal_index.data.files import read_json
from refusal_index.data.folder import RunFolder
from refusal_index.data.outcome_table import ConfidenceError
from refusal_index.findings.run_results import RunResults
from refusal_index.findings.summary import Usage, usage_of

RECORD_VERSION = 1
"""Version of the JSON document."""


@dataclass(frozen=True)
class MethodRecord:
    """How the scores of one method were made, for one variant if they differ between variants.

    Attributes
    ----------
    method, variant
        Whose scores; the variant is None where they belong to all.
    questions
        How many answers the method was asked to score.
    generations
        Replies of the model that the scores rest on, whether the run asked for them or the method did.
    usage
        What these replies took, with those of a model that grades, where the scores rest on grades.
    own_requests
        How many of the requests were made for scores, beside the run.
    seconds
        From requests to responses, added up; None where the time of one is not known.
    draws, own_replies
        Replies to one question at most: draws of the run's passes, and replies to the method's own prompts.
    is_of_model
        Whether the score is the model's own; else it is that of another predictor.
    needs
        What the method needs, in words.
    training_examples, n_folds, seed, grouped_by, groups
        Of a method that was trained: graded answers, of which each fold's predictor saw those of the others; and by
        what questions were kept in one fold, and how many groups that made. None where it was not trained.
    states, state_size, layer, weights
        Hidden states that were read, the numbers in each, and the layer that was asked for, None for the middle one;
        and the weights that gave them, if the user named others than the run's model.
    versions
        Of the packages that made the scores.
    """

    method: str
    variant: str | None
    questions: int
    generations: int
    usage: Usage
    own_requests: int
    seconds: float | None
    draws: int
    own_replies: int
    is_of_model: bool
    needs: tuple[str, ...] = ()
    training_examples: int | None = None
    n_folds: int | None = None
    seed: int | None = None
    grouped_by: str | None = None
    groups: int | None = None
    states: int | None = None
    state_size: int | None = None
    layer: int | None = None
    weights: str | None = None
    versions: Mapping[str, str] | None = None


def read_record(path: Path) -> tuple[MethodRecord, ...]:
    """Read the record of a run's confidence scores.

    Raises
    ------
    ConfidenceError
        If it cannot be read, or is not such a record.
    """
    try:
        document = read_json(path)
        version = document["record_version"]
        if version != RECORD_VERSION:
            raise ValueError(f"expected record_version {RECORD_VERSION}, got {version!r}")
        return tuple(_record(name, entry) for name, entries in document["methods"].items() for entry in entries)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ConfidenceError(f"{path} cannot be read ({lines[0]}); remove it, and run the methods again") from error


def recorded_methods(run: RunResults) -> dict[tuple[str, str | None], MethodRecord]:
    """Return a run's records by method and variant; empty if there are none."""
    path = RunFolder(run.source).confidence_record
    try:
        records = read_record(path) if run.source.is_dir() and path.exists() else ()
    except ConfidenceError:
        return {}
    return {(record.method, record.variant): record for record in records}


def _record(method: str, document: Mapping[str, Any]) -> MethodRecord:
    """Read a record; raises TypeError if a value has the wrong type."""
    record = MethodRecord(**{**document, "method": method, "usage": usage_of(document["usage"])})
    for field_ in fields(record):
        value = getattr(record, field_.name)
        is_negative = isinstance(value, int) and value < 0 and field_.name != "seed"
        if is_negative or not any(_IS[kind](value) for kind in str(field_.type).split(" | ")):
            raise TypeError(f"{field_.name} of {method} cannot be {value!r}")
    return replace(record, needs=tuple(record.needs))


_IS: Mapping[str, Callable[[Any], bool]] = {
    "None": lambda value: value is None,
    "str": lambda value: isinstance(value, str),
    "bool": lambda value: isinstance(value, bool),
    "int": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "float": lambda value: isinstance(value, int | float),
    "Usage": lambda value: isinstance(value, Usage),
    "tuple[str, ...]": lambda value: isinstance(value, list) and all(isinstance(item, str) for item in value),
    "Mapping[str, str]": lambda value: (
        isinstance(value, dict) and all(isinstance(item, str) for item in value.values())
    ),
}
"""Whether a value of a JSON document is one of a field of this type."""
