"""Waves on a cluster of Ray's, in shards: the engine by its name, without Ray where it is not installed."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

from refusal_index.models.functions import asked_by_name
from refusal_index.models.requests import ModelError
from refusal_index.plugins.batches.engine import WaveEngine
from refusal_index.protocol import Role
from refusal_index.runs.settings import Settings

EXTRA, NEEDED = "ray", ("ray", "pyarrow", "pandas", "fsspec")


def ray_engine(settings: Settings, names: Mapping[Role, str], objects: Mapping[str, object]) -> WaveEngine:
    """Return an engine that has waves answered on a cluster; it takes what any engine takes.

    Raises
    ------
    ModelError
        If Ray is not installed, or a model cannot be asked.
    """
    lacking = [one for one in NEEDED if find_spec(one) is None]
    if lacking:
        raise ModelError(f"{{engine}} ray needs {', '.join(lacking)}; pip install 'refusal-index[{EXTRA}]'")
    # Of an extra, and slow to import.
    from refusal_index.plugins.batches.ray_executor import RayExecutor  # noqa: PLC0415

    return WaveEngine(settings, names, objects, RayExecutor(settings, asked_by_name(names, objects)))
