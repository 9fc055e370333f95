"""How a model generates and how requests are sent: settings, how they are declared, and their errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from refusal_index.data.errors import shortened, suggestion
from refusal_index.errors import RefusalIndexError

NAMED = re.compile(r"\{([a-z_]+)\}|\{(\{[a-z_]+\})\}")


class SettingError(RefusalIndexError, ValueError):
    """A setting that cannot be used as given.

    The message may name settings in braces, as in ``{draws}``: a command line shows them as options. Text in double
    braces, as in ``{{draws}}``, is shown in braces.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return self.shown(lambda name: name)

    def shown(self, name: Callable[[str], str]) -> str:
        """Return the message, every setting that it names called as `name` says."""
        return NAMED.sub(lambda found: found[2] or name(found[1]), self.message)


def setting(default: Any, *, low: float | None = None, high: float | None = None, **more: Any) -> Any:
    """Declare a setting.

    Parameters
    ----------
    default
        What it is unless given.
    low, high
        Ends of its range, both included; None for no end.
    more
        ``affects_replies``, False where replies under other values are comparable; ``read``, which reads a value in
        place of its type; ``scope``, the table of a configuration that holds it: ``"model"`` (the default),
        ``"dataset"`` or ``"set"``.
    """
    return field(default=default, metadata={"low": low, "high": high, **more})


def read_texts(value: Any, name: str) -> tuple[str, ...]:
    """Read one text, its parts separated by commas, or several."""
    given = several(value, name, str)
    return tuple(part.strip() for one in given for part in one.split(",") if part.strip())


def several(value: Any, name: str, *kinds: type) -> Sequence[Any]:
    """Return a value of one of some types, or an array of them, as a sequence."""
    given = [value] if isinstance(value, kinds) else value
    found = given if isinstance(given, Sequence) else [given]
    for one in found:
        if not isinstance(one, kinds):
            raise SettingError(f"{{{name}}}: expected text or an array of them, got {shortened(one)}")
    return found


def read_pairs(value: Any, name: str) -> tuple[tuple[str, str], ...]:
    """Read ``NAME=VALUE`` texts, or a mapping from name to value."""
    return split_pairs(value, name, "NAME=VALUE, for instance poll=30")


def split_pairs(value: Any, name: str, expected: str) -> tuple[tuple[str, str], ...]:
    """Split texts at their equals sign, or take the items of a mapping."""
    if isinstance(value, Mapping) and all(isinstance(text, str) for pair in value.items() for text in pair):
        return tuple(value.items())
    listed = isinstance(value, Sequence) and not isinstance(value, str)
    return tuple(_pair(entry, name, expected) for entry in (value if listed else [value]))


def _pair(entry: Any, name: str, expected: str) -> tuple[str, str]:
    if isinstance(entry, tuple | list) and len(entry) == 2:
        return str(entry[0]), str(entry[1])
    if not isinstance(entry, str):
        raise SettingError(f"{{{name}}}: expected text or an array of them, got {shortened(entry)}")
    left, equals, right = entry.partition("=")
    if not (left and equals and right):
        raise SettingError(f"{{{name}}}: expected {expected}, got {entry!r}")
    return left, right


def unknown(name: str, given: str, known: Sequence[str]) -> SettingError:
    """Return the error of a setting whose value is none of the known ones; it names them, and the nearest."""
    return SettingError(f"{{{name}}}: expected one of {', '.join(known)}, got {given!r}{suggestion(given, known)}")


ReasoningEffort = Literal["none", "minimal", "low", "medium", "high"]


FORGET = "forget"
"""The engine option that gives a batch up, whichever engine goes on."""


@dataclass(frozen=True)
class Decoding:
    """How the model under evaluation generates; the defaults are the paper's, and no reasoning effort is asked for."""

    temperature: float = setting(0.7, low=0)
    top_p: float = setting(0.95, low=0, high=1)
    max_tokens: int = setting(4096, low=1)
    reasoning_effort: ReasoningEffort | None = setting(None)


@dataclass(frozen=True)
class Sending:
    """How requests are carried.

    Attributes
    ----------
    engine
        Who carries them, by its name in `engines.registry`.
    max_connections
        Requests in flight; None for as many as the provider bears.
    max_retries, attempt_timeout
        How often a failed request is sent again at most, and after how many seconds one without a response failed.
    max_choices
        Most draws to ask for in one request.
    logprobs
        Whether the model reports the log probabilities of its replies' tokens, which the store then keeps.
    retry
        Why questions are unscored that are asked again: ``"unscored"`` for any reason, or reasons by name.
    detach
        Whether the batch engine ends once its batches are submitted; the same command collects them later.
    command
        The program that answers files of requests for the engine ``command``, with its options.
    ray_address
        Of the cluster that the Ray engine uses; None for one on this machine.
    engine_option
        Options of the engines ``batch`` and ``ray``, by name; and ``forget``, which any engine takes.
    """

    engine: str = setting("direct", affects_replies=False)
    max_connections: int | None = setting(None, low=1, affects_replies=False)
    max_retries: int = setting(5, low=0, affects_replies=False)
    attempt_timeout: int = setting(60, low=1, affects_replies=False)
    max_choices: int = setting(100, low=1, affects_replies=False)
    logprobs: bool = setting(False, affects_replies=False)
    retry: tuple[str, ...] = setting((), read=read_texts, affects_replies=False)
    detach: bool = setting(False, affects_replies=False)
    command: str | None = setting(None, affects_replies=False)
    ray_address: str | None = setting(None, affects_replies=False)
    engine_option: tuple[tuple[str, str], ...] = setting((), read=read_pairs, affects_replies=False)

    @property
    def is_in_batches(self) -> bool:
        """Whether requests go out in a provider's batches."""
        return self.engine in ("batch", "files")

    @property
    def forget(self) -> frozenset[str]:
        """Batches that are given up, by our key or the provider's name, so that their requests are asked again."""
        return frozenset(value for name, value in self.engine_option if name == FORGET)

    @property
    def own_options(self) -> tuple[tuple[str, str], ...]:
        """The options of the engine itself."""
        return tuple((name, value) for name, value in self.engine_option if name != FORGET)


@dataclass(frozen=True)
class RequestSettings:
    """All that a request is made with.

    Attributes
    ----------
    seed
        Of the sample of questions and of every request.
    decoding, sending
        How the model generates, and how requests are sent.
    """

    seed: int = setting(0, scope="dataset")
    decoding: Decoding = field(default_factory=Decoding)
    sending: Sending = field(default_factory=Sending)
