"""Does a language model know what it does not know? The Refusal Index, measured in two passes."""

from importlib.metadata import version

from refusal_index.stats import (
    ConfidenceInterval,
    ContingencyTable,
    RefusalIndexResult,
    refusal_index,
    refusal_index_many,
)

__all__ = ["ConfidenceInterval", "ContingencyTable", "RefusalIndexResult", "refusal_index", "refusal_index_many"]

__version__ = version("refusal-index")
