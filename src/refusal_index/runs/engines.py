"""Engines by name, and what depends on the needs that they declare.

The direct engine is part of the core; plugins register the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

from refusal_index import entry_points
from refusal_index.data.run_json import Prices
from refusal_index.models.functions import is_function_name
from refusal_index.models.settings import Sending, SettingError, unknown
from refusal_index.runs.direct import DirectEngine
from refusal_index.runs.engine import EngineKind
from refusal_index.runs.settings import Settings

DIRECT = "direct"
"""The engine that sends requests one by one."""

_DIRECT = EngineKind(DirectEngine, settings=frozenset(), tests_graders=True)

ENGINES_OWN = ("detach", "command", "ray_address", "engine_option")
"""Settings that only some engines use; the others would silently ignore them."""


def engine_names() -> list[str]:
    """Return the names of all engines: the direct one, then those of plugins in ``refusal_index.executors``."""
    return [DIRECT, *sorted(entry_points.installed("executors"))]


def engine_of(name: str) -> EngineKind:
    """Return an engine as it is registered.

    Raises
    ------
    SettingError
        If there is none of that name.

    Examples
    --------
    >>> engine_of("direct").make.__name__
    'DirectEngine'
    """
    check_engine(name)
    plugin = None if name == DIRECT else entry_points.find("executors", name)
    if plugin is None:
        return _DIRECT
    registered = entry_points.load(plugin)
    return registered if isinstance(registered, EngineKind) else EngineKind(registered)


def engines() -> Mapping[str, EngineKind]:
    """Return all engines by name; those of other distributions that cannot be loaded are left out."""
    found = {}
    for name in engine_names():
        with suppress(entry_points.PluginError):
            found[name] = engine_of(name)
    return found


def check_engine(name: str) -> None:
    """Raise if there is no engine of that name.

    Raises
    ------
    SettingError
        The message names the known ones.
    """
    if name != DIRECT and entry_points.find("executors", name) is None:
        raise unknown("engine", name, engine_names())


def check_engines_own(sending: Sending) -> None:
    """Raise if a setting is given that the engine does not use.

    Raises
    ------
    SettingError
        The message names the engines that use it.

    Examples
    --------
    >>> check_engines_own(Sending(engine="direct", detach=True))
    Traceback (most recent call last):
    refusal_index.models.settings.SettingError: detach: requires engine batch, got direct; ...
    """
    used = engine_of(sending.engine).settings
    if used is None:
        return
    for name in ENGINES_OWN:
        is_given = sending.own_options if name == "engine_option" else getattr(sending, name)
        if is_given and name not in used:
            others = [other for other, kind in engines().items() if name in (kind.settings or ())]
            raise SettingError(
                f"{{{name}}}: requires {{engine}} {' or '.join(others)}, got {sending.engine}; leave it out, or "
                "choose that engine"
            )


def check_sends(sending: Sending) -> None:
    """Raise if the engine sends nothing itself where requests must really be sent.

    Raises
    ------
    SettingError
        The message names the other engines.
    """
    if not engine_of(sending.engine).sends:
        others = ", ".join(name for name, kind in engines().items() if kind.sends)
        raise SettingError(
            f"{{engine}}: expected an engine that sends requests, got {sending.engine}; choose one of {others}"
        )


def check_wire_settings(model: str, settings: Settings) -> None:
    """Raise if a header or a field of the body is given that would not be sent; `model` is empty if none is asked.

    Raises
    ------
    SettingError
        The message names what sends them.

    Examples
    --------
    >>> check_wire_settings("almanac/base", Settings.from_values(extra_body='{"top_k": 20}'))
    Traceback (most recent call last):
    refusal_index.models.settings.SettingError: extra_body: requires base_url and engine direct, got almanac/base ...
    """
    engine = settings.sending.engine
    address = "at a server" if settings.servers.base_url is not None else "without an address"
    for name in ("header", "extra_body"):
        is_sent = engine == DIRECT and model and settings.servers.base_url is not None
        if getattr(settings.sending, name) and not is_sent:
            raise SettingError(
                f"{{{name}}}: requires {{base_url}} and {{engine}} {DIRECT}, got "
                f"{f'{model} {address}' if model else 'no model to ask'} and {engine}; leave it out, or choose those"
            )


def check_limits(settings: Settings) -> None:
    """Raise if a budget is given with an engine that sends nothing.

    Raises
    ------
    SettingError
        The message says how to ask fewer questions instead.
    """
    limits = [name for name, value in vars(settings.limits).items() if value is not None]
    engine = settings.sending.engine
    if limits and not engine_of(engine).sends:
        raise SettingError(
            f"{{{limits[0]}}}: {{engine}} {engine} sends nothing itself, so it has nothing to limit; leave it out: "
            "have as many of its requests answered as you like; the others stay pending"
        )


UNTRIED = (
    "note: unlike --engine direct, this engine does not first test the grader on a simple answer: a faulty grader is "
    "noticed only after its first round"
)


def note_on(sending: Sending, graders: Iterable[str] = ()) -> str | None:
    """Return a note on how requests are sent and graded; None if there is nothing to say."""
    if engine_of(sending.engine).tests_graders is False and not all(map(is_function_name, graders)):
        return UNTRIED
    return None


def prices_as_sent(settings: Settings) -> Prices:
    """Return the prices of the model and the graders for the chosen engine: in batches, multiplied by the batch rate.

    Examples
    --------
    >>> prices_as_sent(Settings.from_values(engine="batch", price="2,8", batch_rate=0.5)).model
    Price(input=1.0, output=4.0)
    """
    prices = settings.accounts.prices
    return prices.in_batches if engine_of(settings.sending.engine).in_batches else prices
