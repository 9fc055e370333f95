"""Arguments of a model that runs on this machine: what a reply depends on, and what a run's folder records.

Arguments that only say where and how fast a model runs are no part of the identity of a run, so that it can be resumed
on another machine. All arguments are recorded in ``run.json``. None is ever taken from there: a folder may come from a
stranger, and an argument may name a file or run code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from refusal_index.data.folder import RunFolder
from refusal_index.errors import shortened
from refusal_index.findings.metrics import Statement
from refusal_index.models.functions import is_function_name
from refusal_index.models.requests import provider_of
from refusal_index.models.settings import SettingError
from refusal_index.runs.engines import DIRECT
from refusal_index.runs.settings import Settings

MODEL_ARGS = "model_args"

WHERE_AND_HOW_FAST = frozenset(
    {
        *("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "distributed_executor_backend"),
        *("device", "devices", "device_map", "gpu_memory_utilization", "swap_space", "cpu_offload_gb"),
        *("max_num_seqs", "max_num_batched_tokens", "enforce_eager", "enable_prefix_caching", "batch_size"),
        *("host", "port", "timeout", "client_timeout", "retry_delay", "lazy_init"),
        *("configure_logging", "disable_log_requests", "disable_log_stats", "download_dir", "cache_dir"),
    }
)
"""Arguments on which replies do not depend beyond rounding errors."""


def model_args_identity(settings: Settings) -> dict[str, Any]:
    """Return the arguments on which replies depend, as part of a run's identity; empty if there are none.

    Examples
    --------
    >>> settings = Settings.from_values(model_args={"dtype": "half", "tensor_parallel_size": 4})
    >>> model_args_identity(settings)
    {'model_args': {'dtype': 'half'}}
    """
    arguments = dict(settings.sending.model_args)
    chosen = {name: value for name, value in arguments.items() if name not in WHERE_AND_HOW_FAST}
    return {MODEL_ARGS: chosen} if chosen else {}


def check_model_args(model: str, objects: Mapping[str, object], settings: Settings) -> None:
    """Raise if arguments are given that the client of the model does not take.

    Parameters
    ----------
    model
        The name of the model; empty if none is asked.
    objects
        Models and functions in memory, by name.
    settings
        The settings of the run.

    Raises
    ------
    SettingError
        The message says which models take them.
    """
    if not settings.sending.model_args:
        return
    engine = settings.sending.engine
    at_server = settings.servers.base_url is not None
    is_made_here = not (not model or model in objects or is_function_name(model) or at_server)
    if engine != DIRECT or not is_made_here or provider_of(model)[0] is not None:
        raise SettingError(
            f"{{model_args}}: requires a model of one of Inspect's providers, such as vllm/NAME or hf/NAME, and "
            f"{{engine}} {DIRECT}, got {model or 'none'} and {engine}; leave it out, or choose those"
        )


def check_model_args_before(before: Mapping[str, Any], settings: Settings) -> None:
    """Raise if a run's model would be asked with other arguments than before, on which replies depend.

    Parameters
    ----------
    before
        The settings of the run's folder.
    settings
        The settings with the arguments that the user gives.

    Raises
    ------
    SettingError
        The message names both.
    """
    expected = before.get(MODEL_ARGS) or {}
    given = model_args_identity(settings).get(MODEL_ARGS, {})
    if given != expected:
        raise SettingError(
            f"{{model_args}}: expected those of the run, {_shown(expected)}, got {_shown(given)}; give the same, since "
            "replies depend on them"
        )


def _shown(arguments: Mapping[str, Any]) -> str:
    return shortened(", ".join(f"{name}={value}" for name, value in arguments.items())) if arguments else "none"


def record_model_args(folder: RunFolder, settings: Settings) -> None:
    """Record the arguments with which a run asks its model, after those of earlier commands; hold the folder's lock."""
    earlier, before = _recorded(folder)
    arguments = dict(settings.sending.model_args)
    if arguments != before:
        folder.change_about({MODEL_ARGS: [*earlier, arguments]})


def other_model_args(folder: RunFolder, settings: Settings) -> tuple[Statement, ...]:
    """Return what to say before a run is resumed with other arguments than those that its folder records."""
    if not folder.run_json.exists():
        return ()
    _, before = _recorded(folder)
    now = dict(settings.sending.model_args)
    if before == now:
        return ()
    return (Statement("other_model_args", "note", {"before": before, "now": now}),)


def _recorded(folder: RunFolder) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the arguments of all earlier commands, and those of the last."""
    recorded = folder.read_about().get(MODEL_ARGS)
    entries = [entry for entry in recorded if isinstance(entry, dict)] if isinstance(recorded, list) else []
    return entries, entries[-1] if entries else {}
