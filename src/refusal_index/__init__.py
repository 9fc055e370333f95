"""Does a language model know what it does not know? The Refusal Index, measured in two passes.

`evaluate` measures a model; `refusal_index` computes the index of a table. Nothing heavy is imported before it is used.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from refusal_index.errors import RefusalIndexError
from refusal_index.stats import (
    ConfidenceInterval,
    ContingencyTable,
    RefusalIndexResult,
    refusal_index,
    refusal_index_many,
)

if TYPE_CHECKING:
    from refusal_index.evaluation.api import compare, dry_run, evaluate, evaluate_async, rank, study
    from refusal_index.evaluation.run import Run, open_run

__all__ = [
    "ConfidenceInterval",
    "ContingencyTable",
    "RefusalIndexError",
    "RefusalIndexResult",
    "Run",
    "compare",
    "dry_run",
    "evaluate",
    "evaluate_async",
    "open_run",
    "rank",
    "refusal_index",
    "refusal_index_many",
    "study",
]

__version__ = version("refusal-index")

_PLACES = {
    **dict.fromkeys(("compare", "dry_run", "evaluate", "evaluate_async", "rank", "study"), "evaluation.api"),
    **dict.fromkeys(("Run", "open_run"), "evaluation.run"),
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"refusal_index.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
