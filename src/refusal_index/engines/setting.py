"""One setting: what is known of it, and how a value becomes the one that the tree holds."""

from __future__ import annotations

import math
import re
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from refusal_index.errors import RefusalIndexError
from refusal_index.outcomes.errors import shortened, suggestion
from refusal_index.outcomes.price import Price, PriceError
from refusal_index.outcomes.stopping import Until
from refusal_index.outcomes.truthfulness import TruthfulnessWeights

KINDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false", Path: "a path"}
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
        ``harmless``, the reason why it tells no replies apart; ``read``, what reads a value in place of its type;
        ``of``, what a configuration says it of: a ``"model"``, as most are, a ``"dataset"`` or the whole ``"set"``.
    """
    return field(default=default, metadata={"low": low, "high": high, **more})


def read_texts(value: Any, name: str) -> tuple[str, ...]:
    """Read one text, its parts separated by commas, or several."""
    given = _several(value, name, str)
    return tuple(part.strip() for one in given for part in one.split(",") if part.strip())


def read_paths(value: Any, name: str) -> tuple[Path, ...]:
    """Read one path, or several."""
    return tuple(Path(one) for one in _several(value, name, str, Path))


def _several(value: Any, name: str, *kinds: type) -> Sequence[Any]:
    given = [value] if isinstance(value, kinds) else value
    found = given if isinstance(given, Sequence) else [given]
    for one in found:
        if not isinstance(one, kinds):
            raise SettingError(f"{{{name}}}: expected text or an array of them, got {shortened(one)}")
    return found


def read_columns(value: Any, name: str) -> tuple[tuple[str, str], ...]:
    """Read ``ROLE=NAME`` texts, or a mapping from role to name."""
    return _pairs(value, name, "ROLE=NAME, for instance question=problem")


def read_pairs(value: Any, name: str) -> tuple[tuple[str, str], ...]:
    """Read ``NAME=VALUE`` texts, or a mapping from name to value."""
    return _pairs(value, name, "NAME=VALUE, for instance poll=30")


def _pairs(value: Any, name: str, expected: str) -> tuple[tuple[str, str], ...]:
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


def read_weights(value: Any, name: str) -> TruthfulnessWeights:
    """Read weights of the truthfulness score as text, or as three numbers."""
    try:
        return TruthfulnessWeights.parse(value)
    except (TypeError, ValueError):
        raise SettingError(
            f"{{{name}}}: expected three numbers from 0, not all 0, for a right answer, a refusal and, taken off, a "
            f"wrong answer, for instance {TruthfulnessWeights()}, got {shortened(value)}"
        ) from None


def read_until(value: Any, name: str) -> Until | None:
    """Read what ends a run early, as text."""
    if value is None or isinstance(value, Until):
        return value
    try:
        return Until.parse(value)
    except (AttributeError, ValueError):
        raise SettingError(
            f"{{{name}}}: expected half-width=NUMBER with a number above 0 and below 1, for instance half-width=.05, "
            f"got {shortened(value)}"
        ) from None


def read_price(value: Any, name: str) -> Price | None:
    """Read a price as text, or as its two numbers."""
    if value is None or isinstance(value, Price):
        return value
    if isinstance(value, Sequence) and not isinstance(value, str):
        value = ",".join(map(str, value))
    if not isinstance(value, str):
        raise SettingError(f"{{{name}}}: expected text, got {shortened(value)}")
    try:
        return Price.parse(value, f"{{{name}}}")
    except PriceError as error:
        raise SettingError(str(error)) from error


@dataclass(frozen=True)
class Setting:
    """What is known of one setting.

    Attributes
    ----------
    name, group
        Its own, and that of the branch it hangs on; None at the root.
    kind, many, optional
        Of one value; whether it takes several, in a file as an array; whether None is one.
    default
        What it is unless given.
    low, high
        Ends of its range, both included; None for no end.
    harmless
        Why it tells no replies apart; None where it does.
    of
        What a configuration says it of: ``"model"``, ``"dataset"`` or ``"set"``.
    choices, reader
        The values that it may have, where they are few, and what reads a value in place of its type.
    """

    name: str
    group: str | None
    kind: type
    many: bool
    optional: bool
    default: Any
    low: float | None = None
    high: float | None = None
    harmless: str | None = None
    of: str = "model"
    choices: tuple[str, ...] = ()
    reader: Any = None

    def read(self, value: Any) -> Any:
        """Return a value as the tree holds it.

        Raises
        ------
        SettingError
            If it is of another kind or out of range; the message says what was expected and what came.

        Examples
        --------
        >>> from refusal_index.engines.settings import SETTINGS
        >>> SETTINGS["temperature"].read(1)
        1.0
        """
        if value is None and self.optional:
            return None
        if self.reader is not None:
            return self.reader(value, self.name)
        accepted: Any = (int, float) if self.kind is float else self.kind
        if not isinstance(value, accepted) or (isinstance(value, bool) and self.kind is not bool):
            raise SettingError(f"{{{self.name}}}: expected {KINDS[self.kind]}, got {shortened(value)}")
        if self.kind in (int, float) and not self._in_range(value):
            raise SettingError(f"{{{self.name}}}: expected {KINDS[self.kind]} {self._range()}, got {value}")
        if self.choices and value not in self.choices:
            raise unknown(self.name, value, self.choices)
        return self.kind(value)

    def _in_range(self, value: float) -> bool:
        above = self.low is None or value >= self.low
        return math.isfinite(value) and above and (self.high is None or value <= self.high)

    def _range(self) -> str:
        ends = [f"{word} {end:g}" for word, end in (("from", self.low), ("to", self.high)) if end is not None]
        return " ".join(ends) or "that is finite"


def unknown(name: str, given: str, known: Sequence[str]) -> SettingError:
    """Return the error of a setting whose value is none of the known ones; it names them, and the nearest."""
    return SettingError(f"{{{name}}}: expected one of {', '.join(known)}, got {given!r}{suggestion(given, known)}")


def settings_in(tree: type, group: str | None = None) -> dict[str, Setting]:
    """Return every setting of a tree by its name."""
    hints = get_type_hints(tree)
    found: dict[str, Setting] = {}
    for one in fields(tree):
        if is_dataclass(hints[one.name]) and one.default is MISSING:
            found |= settings_in(hints[one.name], one.name)
        else:
            found[one.name] = _leaf(one, hints[one.name], group)
    return found


def _leaf(one: Field[Any], hint: Any, group: str | None) -> Setting:
    parts = get_args(hint) if get_origin(hint) in (types.UnionType, Union) else (hint,)
    base = next(part for part in parts if part is not types.NoneType)
    make = partial(Setting, one.name, group, optional=types.NoneType in parts, default=one.default)
    known = dict(one.metadata)
    reader = known.pop("read", None)
    if get_origin(base) is Literal:
        return make(kind=str, many=False, choices=get_args(base), reader=reader, **known)
    many = get_origin(base) is tuple
    kind = get_args(base)[0] if many else base
    simple = kind if kind in KINDS else str
    return make(kind=simple, many=many, reader=reader, **known)
