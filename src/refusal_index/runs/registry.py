"""The engines by name."""

from __future__ import annotations

from collections.abc import Iterable

from refusal_index import entry_points
from refusal_index.models.functions import is_function_name
from refusal_index.models.settings import Sending, SettingError, unknown
from refusal_index.runs.engine import MakeEngine
from refusal_index.runs.settings import Settings

DIRECT = "direct"
"""The engine that sends requests one by one."""

BATCH, FILES = "batch", "files"
"""The engine whose requests outlive a command, and the one that sends none."""

RAY, COMMAND = "ray", "command"
"""The engine whose opening may start a cluster, and the one that runs a program of the user's."""


def engine_names() -> list[str]:
    """Name all engines: the one of the core, then those that plugins register as ``refusal_index.executors``."""
    return [DIRECT, *sorted(entry_points.installed("executors"))]


def engine_of(name: str) -> MakeEngine:
    """Return what makes an engine.

    Raises
    ------
    SettingError
        If there is none of that name.

    Examples
    --------
    >>> engine_of("direct").__name__
    'DirectEngine'
    """
    check_engine(name)
    plugin = None if name == DIRECT else entry_points.find("executors", name)
    if plugin is None:
        from refusal_index.runs.direct import DirectEngine  # noqa: PLC0415 - imported where it is used

        return DirectEngine
    found: MakeEngine = entry_points.load(plugin)
    return found


def check_engine(name: str) -> None:
    """Raise if there is no engine of that name.

    Raises
    ------
    SettingError
        The message names the known ones.
    """
    if name in ("local", "http", "inspect"):
        raise SettingError(f"engine {name!r} is now 'direct', the default: the model's name selects the client")
    if name == "vllm":
        raise SettingError(
            "engine 'vllm' is now 'command': --engine command --command 'vllm run-batch -i {{requests}} -o {{replies}} "
            "--model {{model}}'"
        )
    if name != DIRECT and entry_points.find("executors", name) is None:
        raise unknown("engine", name, engine_names())


ONLY_OF = {"detach": (BATCH,), "command": (COMMAND,), "ray_address": (RAY,), "engine_option": (BATCH, RAY)}
"""Settings that some engines alone know: with another one they would be passed over in silence."""

TRY_NO_GRADER = (BATCH, COMMAND, RAY, FILES)
"""Engines that ask no grader about a plain case first, which would take a wave of its own."""

UNTRIED = (
    "note: this engine does not try the grader on a plain case first, as --engine direct does: what a wrong one says "
    "is seen once its first wave is back"
)


def check_engines_own(sending: Sending) -> None:
    """Raise if a setting is given that the engine does not have.

    Raises
    ------
    SettingError
        The message names the engines that have it.

    Examples
    --------
    >>> check_engines_own(Sending(engine="direct", detach=True))
    Traceback (most recent call last):
    refusal_index.models.settings.SettingError: detach: expected engine batch beside it, got direct, which ...
    """
    check_engine(sending.engine)
    for name, engines in ONLY_OF.items():
        given = sending.own_options if name == "engine_option" else getattr(sending, name)
        if given and sending.engine not in engines:
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
        others = ", ".join(one for one in engine_names() if one != FILES)
        raise SettingError(f"{{engine}}: files carries a run's own requests only; choose one of {others}")


def check_limits(settings: Settings) -> None:
    """Raise if an engine that sends nothing is to keep within a budget.

    Raises
    ------
    SettingError
        The message says how else less is asked.
    """
    given = [name for name, value in vars(settings.limits).items() if value is not None]
    if given and settings.sending.engine == FILES:
        raise SettingError(
            f"{{{given[0]}}}: {{engine}} files sends nothing, and what others send is not known to it; leave it out: "
            "have as many lines of the files answered as you like, the others stay due"
        )


def note_on(sending: Sending, graders: Iterable[str] = ()) -> str | None:
    """Return what must be said of how requests are carried, and of the models that grade; None where nothing must."""
    if sending.engine in TRY_NO_GRADER and not all(map(is_function_name, graders)):
        return UNTRIED
    return None
