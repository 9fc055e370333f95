"""Does a language model know what it does not know? The Refusal Index, measured in two passes.

`evaluate` measures a model; `refusal_index` computes the index from a 2x2 table. Modules are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from refusal_index.errors import RefusalIndexError

if TYPE_CHECKING:
    from refusal_index import stats
    from refusal_index.findings.run_results import RunResults, open_run
    from refusal_index.plugins.confidence.rule import load_rule
    from refusal_index.plugins.confidence.scores import confidence_scores
    from refusal_index.plugins.confidence.threshold import threshold
    from refusal_index.plugins.studies.api import study
    from refusal_index.plugins.trackers.tracker import export
    from refusal_index.plugins.training.callback import RefusalIndexCallback
    from refusal_index.plugins.training.reward import abstention_reward
    from refusal_index.protocol.prompts import load_prompt_set
    from refusal_index.replies import grade_reply, read_reply
    from refusal_index.runs.api import dry_run, evaluate, evaluate_async
    from refusal_index.runs.gate import compare, gate, rank
    from refusal_index.runs.planning import plan
    from refusal_index.runs.scoring import score
    from refusal_index.runs.sensitivity import sensitivity
    from refusal_index.stats import (
        ConfidenceInterval,
        ContingencyTable,
        RefusalIndexResult,
        refusal_index,
        refusal_index_many,
    )

    __version__: str

__all__ = [
    "ConfidenceInterval",
    "ContingencyTable",
    "RefusalIndexCallback",
    "RefusalIndexError",
    "RefusalIndexResult",
    "RunResults",
    "__version__",
    "abstention_reward",
    "compare",
    "confidence_scores",
    "dry_run",
    "evaluate",
    "evaluate_async",
    "export",
    "gate",
    "grade_reply",
    "load_prompt_set",
    "load_rule",
    "open_run",
    "plan",
    "rank",
    "read_reply",
    "refusal_index",
    "refusal_index_many",
    "score",
    "sensitivity",
    "stats",
    "study",
    "threshold",
]

_PLACES = {
    "protocol.prompts": ("load_prompt_set",),
    "replies": ("grade_reply", "read_reply"),
    "runs.api": ("dry_run", "evaluate", "evaluate_async"),
    "runs.gate": ("compare", "gate", "rank"),
    "runs.planning": ("plan",),
    "runs.scoring": ("score",),
    "runs.sensitivity": ("sensitivity",),
    "findings.run_results": ("RunResults", "open_run"),
    "plugins.confidence.rule": ("load_rule",),
    "plugins.confidence.scores": ("confidence_scores",),
    "plugins.confidence.threshold": ("threshold",),
    "plugins.studies.api": ("study",),
    "plugins.trackers.tracker": ("export",),
    "plugins.training.callback": ("RefusalIndexCallback",),
    "plugins.training.reward": ("abstention_reward",),
    "stats": ("ConfidenceInterval", "ContingencyTable", "RefusalIndexResult", "refusal_index", "refusal_index_many"),
}
_PLACE_OF = {name: module for module, names in _PLACES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "stats":
        return import_module("refusal_index.stats")
    if name == "__version__":
        return import_module("refusal_index.entry_points").package_version()
    if name not in _PLACE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"refusal_index.{_PLACE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
