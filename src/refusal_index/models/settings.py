"""Settings of decoding and of requests, how settings are declared, and their errors.

A setting is a field in a tree of frozen dataclasses, declared with `setting`. `settings_in` lists a tree's settings;
command-line options, TOML keys and Python arguments are generated from that list.
"""

from __future__ import annotations

import inspect
import math
import re
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from refusal_index.errors import RefusalIndexError, shortened, suggestion

NAMED = re.compile(r"\{([a-z_]+)\}|\{(\{[a-z_]+\})\}")
KINDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false", Path: "a path"}


ENTRY = re.compile(r"^- `(\w+)`(?: (\S+))?: (.*(?:\n +.*)*)\n?", re.MULTILINE)
"""An entry at the end of the docstring of a command or settings class, which becomes the help of an option.

Without and with a placeholder for the value: ``- `size`: How many answers to draw.``, ``- `data` FILE: A local file.``.
"""


class Described(NamedTuple):
    """What a docstring says about a parameter: its help, and the placeholder for its value."""

    text: str
    metavar: str | None


def described_parameters(documented: object) -> tuple[str, dict[str, Described]]:
    """Return the docstring of a function or class without its entries, and the entries by name.

    >>> def audit(size: int) -> None:
    ...     '''Draw answers.
    ...
    ...     - `size` N: How many
    ...       to draw.
    ...     '''
    >>> described_parameters(audit)
    ('Draw answers.', {'size': Described(text='How many to draw.', metavar='N')})
    """
    docstring = inspect.getdoc(documented) or ""
    entries = {
        name: Described(" ".join(text.split()), metavar or None) for name, metavar, text in ENTRY.findall(docstring)
    }
    return ENTRY.sub("", docstring).strip(), entries


class SettingError(RefusalIndexError, ValueError):
    """A setting with an unusable value.

    The message may name settings in braces, as in ``{draws}``, which the command line shows as options. Text in double
    braces, as in ``{{draws}}``, is shown in single braces.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return self.shown(lambda name: name)

    def shown(self, name: Callable[[str], str]) -> str:
        """Return the message, with the names of settings replaced by what `name` returns for them."""
        return NAMED.sub(lambda match: match[2] or name(match[1]), self.message)


@dataclass(frozen=True)
class Setting:
    """A setting's name, type, range and description.

    Attributes
    ----------
    name, group
        Its name, and the name of its branch of the tree; None at the root.
    kind, optional
        Type of a single value; whether None is allowed.
    default, description, metavar
        Its default; the help of its option, to which a single default value is added; and the placeholder for its value
        in the help, None for one derived from the type.
    is_repeatable, is_common
        Whether its option may be repeated; whether ``--help`` shows it, not only ``--help-all``.
    low, high
        Inclusive bounds; None for no bound.
    scope
        The table of a configuration file that it belongs to: ``"model"``, ``"dataset"`` or ``"set"``.
    choices, reader
        The allowed values, if limited, and a function that reads a value in place of its type.
    """

    name: str
    group: str | None
    kind: type
    optional: bool
    default: Any
    description: str
    metavar: str | None
    is_repeatable: bool = False
    is_common: bool = False
    low: float | None = None
    high: float | None = None
    scope: str = "model"
    choices: tuple[str, ...] = ()
    reader: Reader | None = None

    def read(self, value: Any) -> Any:
        """Check a value, and return it as stored in the tree.

        Raises
        ------
        SettingError
            If it has another type or is out of range; the message says what was expected and what was given.

        Examples
        --------
        >>> from refusal_index.runs.settings import SETTINGS
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
        low, high = (-math.inf if self.low is None else self.low), (math.inf if self.high is None else self.high)
        if self.kind in (int, float) and not (math.isfinite(value) and low <= value <= high):
            ends = [f"{word} {end:g}" for word, end in (("from", self.low), ("to", self.high)) if end is not None]
            raise SettingError(
                f"{{{self.name}}}: expected {KINDS[self.kind]} {' '.join(ends) or 'that is finite'}, got {value}"
            )
        if self.choices and value not in self.choices:
            raise unknown(self.name, value, self.choices)
        return self.kind(value)


Reader = Callable[[Any, str], Any]
"""Reads a value, given the name of the setting; raises SettingError."""


def setting(default: Any, **more: Any) -> Any:
    """Declare a setting; its class's docstring describes it, and `more` sets further fields of `Setting`."""
    return field(default=default, metadata=more)


def settings_in(tree: type, group: str | None = None) -> dict[str, Setting]:
    """Return the settings of a tree by name, those of base classes last."""
    hints = get_type_hints(tree)
    settings: dict[str, Setting] = {}
    for base in filter(is_dataclass, tree.__mro__):
        described = described_parameters(base)[1]
        for leaf in (leaf for leaf in fields(base) if leaf.name in base.__annotations__):
            hint = hints[leaf.name]
            if leaf.default is MISSING:
                settings |= settings_in(hint, leaf.name)
                continue
            parts = get_args(hint) if get_origin(hint) in (types.UnionType, Union) else (hint,)
            value = next(part for part in parts if part is not types.NoneType)
            kind = get_args(value)[0] if get_origin(value) is tuple else value
            settings[leaf.name] = Setting(
                leaf.name,
                group,
                kind if kind in KINDS else str,
                types.NoneType in parts,
                leaf.default,
                *described.get(leaf.name, Described("", None)),
                is_repeatable=get_origin(value) is tuple and leaf.metadata.get("reader") is not read_texts,
                choices=get_args(value) if get_origin(value) is Literal else (),
                **leaf.metadata,
            )
    return settings


def read_texts(value: Any, name: str) -> tuple[str, ...]:
    """Read one text or several, each with parts separated by commas."""
    parts = (part.strip() for text in _several(value, name, str) for part in text.split(","))
    return tuple(filter(None, parts))


def read_paths(value: Any, name: str) -> tuple[Path, ...]:
    """Read one path, or several."""
    return tuple(map(Path, _several(value, name, str, Path)))


def _several(value: Any, name: str, *kinds: type) -> Sequence[Any]:
    """Return a value, or an array of values, of the given types as a sequence."""
    values = value if isinstance(value, Sequence) and not isinstance(value, kinds) else [value]
    for entry in values:
        if not isinstance(entry, kinds):
            raise SettingError(f"{{{name}}}: expected text or an array of them, got {shortened(entry)}")
    return values


def reads_pairs(expected: str) -> Reader:
    """Return a reader of pairs, given as texts such as ``NAME=VALUE`` or as a mapping from name to value."""

    def pair(entry: Any, name: str) -> tuple[str, str]:
        if isinstance(entry, tuple | list) and len(entry) == 2:
            return str(entry[0]), str(entry[1])
        if not isinstance(entry, str):
            raise SettingError(f"{{{name}}}: expected text or an array of them, got {shortened(entry)}")
        left, equals, right = entry.partition("=")
        if not (left and equals and right):
            raise SettingError(f"{{{name}}}: expected {expected}, got {entry!r}")
        return left, right

    def read(value: Any, name: str) -> tuple[tuple[str, str], ...]:
        if isinstance(value, Mapping) and all(isinstance(text, str) for pair in value.items() for text in pair):
            return tuple(value.items())
        entries = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
        return tuple(pair(entry, name) for entry in entries)

    return read


def parses(kind: Any, expected: str) -> Reader:
    """Return a reader that calls the method `parse` of a class."""

    def read(value: Any, name: str) -> Any:
        try:
            return kind.parse(value)
        except (AttributeError, TypeError, ValueError):
            raise SettingError(f"{{{name}}}: expected {expected}, got {shortened(value)}") from None

    return read


def unknown(name: str, value: str, expected: Sequence[str]) -> SettingError:
    """Return the error for a value that is not an expected one; it lists these, and suggests the nearest."""
    return SettingError(
        f"{{{name}}}: expected one of {', '.join(expected)}, got {value!r}{suggestion(value, expected)}"
    )


ReasoningEffort = Literal["none", "minimal", "low", "medium", "high"]


FORGET = "forget"
"""The engine option, of any engine, that gives up a batch."""


@dataclass(frozen=True)
class Decoding:
    """How the model under evaluation generates; the defaults are the paper's, without a reasoning effort.

    - `temperature`: Sampling temperature of the model.
    - `top_p`: Top-p (nucleus) sampling of the model.
    - `max_tokens`: Maximum length of a reply, in tokens.
    - `reasoning_effort`: Effort of reasoning models: none, minimal, low, medium or high.
    """

    temperature: float = setting(0.7, low=0, is_common=True)
    top_p: float = setting(0.95, low=0, high=1)
    max_tokens: int = setting(4096, low=1)
    reasoning_effort: ReasoningEffort | None = setting(None)


@dataclass(frozen=True)
class Sending:
    """How requests are sent.

    - `engine`: How requests are sent: 'direct' (one request at a time per connection), 'batch' (the provider's batch
      API, usually at half the price), 'command' (a program such as vllm run-batch), 'ray' (a cluster) or 'files'
      (request files that you submit yourself).
    - `max_connections`: Maximum number of concurrent requests. [default: 64 for embedded models and functions, else up
      to 100]
    - `max_retries`: Maximum number of retries of a failed request.
    - `attempt_timeout`: Seconds to wait for a response; raise it for models that take long to reason.
    - `max_choices`: Maximum number of samples to request at once, where the provider supports several.
    - `logprobs`: Request log probabilities, which some methods of the command 'confidence' need.
    - `retry`: Ask unscored questions again: 'unscored' for all of them, or some by reason, as in
      first_truncated,forced_empty.
    - `detach`: With --engine batch: exit once the batches are submitted; run the same command again to collect them.
    - `command`: With --engine command: a program that answers the file {requests} into the file {replies}, as in 'vllm
      run-batch -i {requests} -o {replies} --model {model}'; it is not run by a shell.
    - `ray_address`: With --engine ray: address of the cluster. [default: a local one]
    - `engine_option` NAME=VALUE: Option of the engine 'batch' or 'ray', as in poll=5. Repeatable.
    """

    engine: str = setting("direct", is_common=True)
    max_connections: int | None = setting(None, low=1, is_common=True)
    max_retries: int = setting(5, low=0)
    attempt_timeout: int = setting(60, low=1)
    max_choices: int = setting(100, low=1)
    logprobs: bool = setting(False)
    retry: tuple[str, ...] = setting((), reader=read_texts)
    detach: bool = setting(False)
    command: str | None = setting(None)
    ray_address: str | None = setting(None)
    engine_option: tuple[tuple[str, str], ...] = setting((), reader=reads_pairs("NAME=VALUE, for instance poll=30"))

    @property
    def is_in_batches(self) -> bool:
        """Whether requests are sent in a provider's batches."""
        return self.engine in ("batch", "files")

    @property
    def forget(self) -> frozenset[str]:
        """Batches to give up, by our key or the provider's name, so that their requests are sent again."""
        return frozenset(value for name, value in self.engine_option if name == FORGET)

    @property
    def own_options(self) -> tuple[tuple[str, str], ...]:
        """The options for the engine itself."""
        return tuple((name, value) for name, value in self.engine_option if name != FORGET)


@dataclass(frozen=True)
class RequestSettings:
    """Settings of a request.

    - `seed`: Random seed of the sample of questions and of every request.
    """

    seed: int = setting(0, scope="dataset")
    decoding: Decoding = field(default_factory=Decoding)
    sending: Sending = field(default_factory=Sending)
