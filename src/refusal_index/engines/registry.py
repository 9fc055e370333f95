"""The engines by name."""

from __future__ import annotations

from importlib import import_module

from refusal_index.engines.engine import MakeEngine
from refusal_index.engines.setting import SettingError, unknown
from refusal_index.engines.settings import Sending

BATCH, FILES = "batch", "files"
"""The engine whose requests outlive a command, and the one that sends none."""

ENGINES = {
    "inspect": "refusal_index.engines.inspect.engine:InspectEngine",
    "http": "refusal_index.engines.http.engine:HttpEngine",
    "local": "refusal_index.engines.local.engine:LocalEngine",
    BATCH: "refusal_index.engines.waves.batch:batch_engine",
    "vllm": "refusal_index.engines.waves.vllm:vllm_engine",
    "ray": "refusal_index.engines.waves.ray_engine:ray_engine",
    FILES: "refusal_index.engines.waves.by_hand:FilesEngine",
}
"""Where each engine is; none is imported before it is asked for."""


def engine_of(name: str) -> MakeEngine:
    """Return what makes an engine.

    Raises
    ------
    SettingError
        If there is none of that name.

    Examples
    --------
    >>> engine_of("local").__name__
    'LocalEngine'
    """
    check_engine(name)
    module, _, made = ENGINES[name].partition(":")
    found: MakeEngine = getattr(import_module(module), made)
    return found


def check_engine(name: str) -> None:
    """Raise if there is no engine of that name.

    Raises
    ------
    SettingError
        The message names the known ones.
    """
    if name not in ENGINES:
        raise unknown("engine", name, list(ENGINES))


ONLY_OF = {"detach": (BATCH,), "ray_address": ("ray",), "engine_option": (BATCH, "vllm", "ray")}
"""Settings that some engines alone know: with another one they would be passed over in silence."""

IN_MEMORY = (
    "note: Inspect keeps its batches in memory: those on their way when the run is killed are lost, and paid for "
    "twice; --engine batch keeps them. A grader whose provider has no batches is asked one request at a time."
)
"""What must be said before anything is sent in Inspect's batches."""


def check_engines_own(sending: Sending) -> None:
    """Raise if something is wanted of an engine that knows nothing of it, as batches of Inspect's of another one.

    Raises
    ------
    SettingError
        The message names the engine that sends batches of its own.

    Examples
    --------
    >>> check_engines_own(Sending(engine="local", batch=True))
    Traceback (most recent call last):
    refusal_index.engines.setting.SettingError: batch: expected engine inspect beside it, got local; ...
    """
    check_engine(sending.engine)
    if sending.batch and sending.engine != "inspect":
        raise SettingError(
            f"{{batch}}: expected {{engine}} inspect beside it, got {sending.engine}; leave it out: {{engine}} batch "
            "sends batches without it, and keeps those on their way"
        )
    for name, engines in ONLY_OF.items():
        if getattr(sending, name) and sending.engine not in engines:
            raise SettingError(
                f"{{{name}}}: expected {{engine}} {' or '.join(engines)} beside it, got {sending.engine}, which knows "
                "nothing of it; leave it out, or name the engine"
            )


def check_sends(sending: Sending) -> None:
    """Raise if nobody would be asked, where only a run's requests can be written into files.

    Raises
    ------
    SettingError
        The message names the engines that ask.
    """
    if sending.engine == FILES:
        others = ", ".join(one for one in ENGINES if one != FILES)
        raise SettingError(f"{{engine}}: files carries a run's own requests only; choose one of {others}")


def note_on(sending: Sending) -> str | None:
    """Return what must be said of how requests are carried; None where nothing must."""
    return IN_MEMORY if sending.batch else None
