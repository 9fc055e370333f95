"""The engines by name."""

from __future__ import annotations

from importlib import import_module

from refusal_index.engines.engine import MakeEngine
from refusal_index.engines.setting import unknown

ENGINES = {
    "inspect": "refusal_index.engines.inspect.engine:InspectEngine",
    "local": "refusal_index.engines.local.engine:LocalEngine",
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
