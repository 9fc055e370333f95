"""Does a language model know what it does not know? The Refusal Index, measured in two passes."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from refusal_index.stats import (
        ConfidenceInterval,
        ContingencyTable,
        RefusalIndexResult,
        refusal_index,
        refusal_index_many,
    )

    __version__: str

__all__ = ["ConfidenceInterval", "ContingencyTable", "RefusalIndexResult", "refusal_index", "refusal_index_many"]


def __getattr__(name: str) -> Any:
    """Import what is asked for, and no sooner: the command line's help takes none of it."""
    if name == "__version__":
        return import_module("importlib.metadata").version("refusal-index")
    if name == "stats":
        return import_module("refusal_index.stats")
    if name in __all__:
        return getattr(import_module("refusal_index.stats"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__, "__version__", "stats"]
