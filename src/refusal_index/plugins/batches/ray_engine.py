"""The engine for a Ray cluster, by its name: this module needs no Ray, so that it can say that Ray is missing."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

from refusal_index.models.functions import asked_by_name
from refusal_index.models.requests import ModelError
from refusal_index.plugins.batches.engine import BatchEngine
from refusal_index.protocol import Role
from refusal_index.runs.settings import Settings

EXTRA, NEEDED = "ray", ("ray", "pyarrow", "pandas", "fsspec")


def ray_engine(settings: Settings, names: Mapping[Role, str], objects: Mapping[str, object]) -> BatchEngine:
    """Return an engine whose requests a cluster answers.

    Raises
    ------
    ModelError
        If Ray is not installed, or a model cannot be asked.
    """
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise ModelError(f"{{engine}} ray needs {', '.join(missing)}; pip install 'refusal-index[{EXTRA}]'")
    from refusal_index.plugins.batches.ray_executor import RayExecutor  # noqa: PLC0415 - of an extra, and slow

    return BatchEngine(settings, names, objects, RayExecutor(settings, asked_by_name(names, objects)))
