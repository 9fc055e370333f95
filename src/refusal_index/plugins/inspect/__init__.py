"""Inspect: its model providers as clients, tasks for its command line, and its logs.

All private names of Inspect are imported here, since another release may lack them.
"""

from __future__ import annotations

from importlib.metadata import requires, version

import inspect_ai  # noqa: F401 - so that a missing package raises ModuleNotFoundError, not IncompatibleError

from refusal_index.errors import RefusalIndexError

__all__ = [
    "IncompatibleError",
    "OpenAICompatibleAPI",
    "PrerequisiteError",
    "hooks",
    "registry_find",
    "registry_unqualified_name",
    "task_scorers",
    "use_model_event_sink",
]


class IncompatibleError(RefusalIndexError, RuntimeError):
    """An installed release of Inspect that is not supported."""


try:
    from inspect_ai._util.error import PrerequisiteError
    from inspect_ai._util.registry import registry_find, registry_unqualified_name
    from inspect_ai.model._model import use_model_event_sink
    from inspect_ai.model._providers.openai_compatible import OpenAICompatibleAPI
    from inspect_ai.model._providers.util import hooks
    from inspect_ai.scorer._score import _scorers as task_scorers
except ImportError as error:
    _tested = next(
        requirement for requirement in requires("refusal-index") or () if requirement.startswith("inspect-ai")
    ).partition(";")[0]
    raise IncompatibleError(
        f"inspect-ai {version('inspect-ai')} lacks a name that this package uses ({error}); expected {_tested}: "
        f"pip install '{_tested}'"
    ) from error
