"""Settings of decoding and of requests, how settings are declared, and their errors.

A setting is a field in a tree of frozen dataclasses, declared with `setting`. `settings_in` lists a tree's settings.
Command-line options, TOML keys, Python arguments, the identity of a run and the page of settings are made from that
list.
"""

from __future__ import annotations

import inspect
import json
import math
import re
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

from refusal_index.data.run_json import NAMED_BY_SERVER
from refusal_index.errors import RefusalIndexError, shortened, suggestion
from refusal_index.redaction import holds_secret, redacted_error, remember, secrets_in_url

if TYPE_CHECKING:
    from refusal_index.protocol import Role

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

    def shown(self, named: Callable[[str, Sequence[str]], str]) -> str:
        """Return the message, with the names of settings replaced by what `named` returns for them."""
        return NAMED.sub(lambda match: match[2] or named(match[1], ()), super().shown(named))


Reader = Callable[[Any, str], Any]
"""Reads a value, given the name of the setting; raises SettingError."""

Identity = Literal["no", "always", "if_set", "derived"]
"""How a setting belongs to the identity of a run, which ``run.json`` records under ``settings``.

- ``no``: no reply or grade depends on it, so a run can be resumed with another value.
- ``always``: its value is recorded for every run.
- ``if_set``: its value is recorded unless it is the default. New settings take this one: earlier runs stay valid.
- ``derived``: `refusal_index.runs.identity.identity` records what follows from it, such as a hash of the questions.
"""

Scope = Literal["model", "dataset", "run", "set"]
"""The table of a configuration file that a setting belongs to: of each model, of each dataset, of either, where that of
the model takes precedence, or of the whole set."""

DECODING = "decoding"
"""The group whose settings ``run.json`` records together, under this name."""


@dataclass(frozen=True)
class Setting:
    """A setting's name, type, range and description.

    Attributes
    ----------
    name, group
        Its name, and the name of its branch of the tree; None at the root.
    kind, optional
        Type of a single value; whether None is allowed.
    argument
        Type of its argument in Python, as source code.
    default, description
        Its default; the help of its option, to which a single default value is added.
    identity
        How it belongs to the identity of a run.
    metavar
        The placeholder for its value in the help; None for one derived from the type.
    is_repeatable, is_common
        Whether its option may be repeated; whether ``--help`` shows it, not only ``--help-all``.
    low, high
        Inclusive bounds; None for no bound.
    scope
        The table of a configuration file that it belongs to.
    is_one_models_own
        Whether it only makes sense for a single model, so that its option cannot be combined with a configuration.
    not_in
        Commands that evaluate models, but do not take it: ``"gate"`` or ``"watch"``.
    choices, reader
        The allowed values, if limited, and a function that reads a value in place of its type.
    to_json
        A function from a value to what ``run.json`` records of it; by default the value itself.
    recorded_as
        Its name in ``run.json``, if a value cannot be restored from what is recorded; None for its own name.
    """

    name: str
    group: str | None
    kind: type
    optional: bool
    argument: str
    default: Any
    description: str
    identity: Identity
    metavar: str | None = None
    is_repeatable: bool = False
    is_common: bool = False
    low: float | None = None
    high: float | None = None
    scope: Scope = "model"
    is_one_models_own: bool = False
    not_in: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    reader: Reader | None = None
    to_json: Callable[[Any], Any] | None = None
    recorded_as: str | None = None

    @property
    def help(self) -> str:
        """The help of its option: its description, and its default if that is a single value.

        Examples
        --------
        >>> from refusal_index.runs.settings import SETTINGS
        >>> SETTINGS["temperature"].help
        'Sampling temperature of the model. [default: 0.7]'
        """
        if self.optional or self.kind is bool or self.default in ("", ()):
            return self.description
        default = ",".join(self.default) if type(self.default) is tuple else self.default
        return f"{self.description} [default: {default}]"

    def record(self, document: dict[str, Any], value: Any) -> None:
        """Add what ``run.json`` records of a value to a document; nothing if it is not recorded."""
        if self.identity == "always" or (self.identity == "if_set" and value != self.default):
            place = document.setdefault(DECODING, {}) if self.group == DECODING else document
            place[self.recorded_as or self.name] = value if self.to_json is None else self.to_json(value)

    def restore(self, document: Mapping[str, Any]) -> Any:
        """Return the value that a document records, the default for null or if it lacks the setting."""
        place = document.get(DECODING) or {} if self.group == DECODING else document
        value = place.get(self.name)
        return self.default if value is None else value

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
        low = -math.inf if self.low is None else self.low
        high = math.inf if self.high is None else self.high
        if self.kind in (int, float) and not (math.isfinite(value) and low <= value <= high):
            ends = [f"{word} {end:g}" for word, end in (("from", self.low), ("to", self.high)) if end is not None]
            raise SettingError(
                f"{{{self.name}}}: expected {KINDS[self.kind]} {' '.join(ends) or 'that is finite'}, got {value}"
            )
        if self.choices and value not in self.choices:
            raise unknown(self.name, value, self.choices)
        return self.kind(value)


def setting(
    default: Any,
    description: str = "",
    *,
    identity: Identity | None = None,
    argument: str | None = None,
    metavar: str | None = None,
    is_common: bool = False,
    low: float | None = None,
    high: float | None = None,
    scope: Scope = "model",
    is_one_models_own: bool = False,
    not_in: tuple[str, ...] = (),
    reader: Reader | None = None,
    to_json: Callable[[Any], Any] | None = None,
    recorded_as: str | None = None,
) -> Any:
    """Declare a setting; `Setting` describes the arguments. A description and `identity` are required."""
    return field(default=default, metadata={name: value for name, value in locals().items() if name != "default"})


def settings_in(tree: type, group: str | None = None) -> dict[str, Setting]:
    """Return the settings of a tree by name, those of base classes last.

    Raises
    ------
    TypeError
        If a field is not declared as a setting, or lacks what a setting needs; the message says what to add.
    """
    hints = get_type_hints(tree)
    settings: dict[str, Setting] = {}
    for base in filter(is_dataclass, tree.__mro__):
        for leaf in (leaf for leaf in fields(base) if leaf.name in base.__annotations__):
            hint = hints[leaf.name]
            if isinstance(hint, type) and is_dataclass(hint) and leaf.default is MISSING:
                settings |= settings_in(hint, leaf.name)
            else:
                settings[leaf.name] = _setting_of(leaf, hint, group, f"{base.__name__}.{leaf.name}")
    return settings


def _setting_of(leaf: Field[Any], hint: Any, group: str | None, place: str) -> Setting:
    """Return the setting that a field declares; `place` names the field in messages."""
    parts = get_args(hint) if get_origin(hint) in (types.UnionType, Union) else (hint,)
    value = next(part for part in parts if part is not types.NoneType)
    is_tuple = get_origin(value) is tuple
    kind = get_args(value)[0] if is_tuple else value
    declared = dict(leaf.metadata)
    needed = {"description": "its description", "identity": 'its identity ("no" or "if_set")'}
    lacking = [words for name, words in needed.items() if not declared.get(name)]
    if declared.get("reader") is None and value not in KINDS and get_origin(value) is not Literal:
        lacking.append(f"its reader, because no value of the command line is a {shortened(value)}")
    elif declared.get("reader") is not None and not declared.get("argument"):
        lacking.append("its argument, the type that ri.evaluate takes, because it has a reader")
    if lacking:
        raise TypeError(
            f"{place}: expected a setting, declared as setting(default, description, identity=...), got a field "
            f"without {' and '.join(lacking)}; add that; 'Where to make a change' in CONTRIBUTING.md explains how"
        )
    argument = declared.pop("argument") or str(leaf.type).replace("'", '"')
    return Setting(
        leaf.name,
        group,
        kind if kind in KINDS else str,
        types.NoneType in parts,
        argument,
        leaf.default,
        is_repeatable=is_tuple and declared["reader"] is not read_texts,
        choices=get_args(value) if get_origin(value) is Literal else (),
        **declared,
    )


def read_texts(value: Any, name: str) -> tuple[str, ...]:
    """Read one text or several, each with parts separated by commas."""
    parts = (part.strip() for text in _several(value, name, str) for part in text.split(","))
    return tuple(filter(None, parts))


def read_path(value: Any, name: str) -> Path:
    """Read one path."""
    if not isinstance(value, str | Path):
        raise SettingError(f"{{{name}}}: expected a path, got {shortened(value)}")
    return Path(value)


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


HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
FROM_ENVIRONMENT = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)")
FIELDS_OF_OPTIONS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "max_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "reasoning_effort": "reasoning_effort",
}
"""Fields of a request's body that a setting decides."""


def read_headers(value: Any, name: str) -> tuple[tuple[str, str], ...]:
    """Read headers as pairs of a name and an environment variable; no message shows a value, which may be a key."""
    entries = list(value.items()) if isinstance(value, Mapping) else value
    entries = entries if isinstance(entries, Sequence) and not isinstance(entries, str) else [entries]
    headers: dict[str, tuple[str, str]] = {}
    for entry in entries:
        pair = entry.partition("=")[::2] if isinstance(entry, str) else entry
        match pair:
            case str(header), str(source) if HEADER_NAME.fullmatch(header):
                variable = FROM_ENVIRONMENT.fullmatch(source)
            case _:
                raise SettingError(f"{{{name}}}: expected NAME=env:VAR, for instance X-Api-Key=env:GATEWAY_KEY")
        if variable is None:
            raise SettingError(
                f"{{{name}}} {header}: expected env:VAR, the name of the environment variable that holds the value, "
                "got something else; a value itself is not accepted, since it may be a key"
            )
        if (
            header.lower() in ("content-length", "content-type", "host", "transfer-encoding")
            or header.lower() in headers
        ):
            problem = "is given twice" if header.lower() in headers else "is set by the client"
            raise SettingError(f"{{{name}}}: {header} {problem}; leave it out")
        headers[header.lower()] = (header, variable[1])
    return tuple(headers.values())


def read_extra_body(value: Any, name: str) -> str:
    """Read a JSON object as canonical JSON."""
    try:
        fields = json.loads(value) if isinstance(value, str) else value
        text = json.dumps(fields, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        fields = None
        text = ""
    if not isinstance(fields, Mapping) or not fields:
        raise SettingError(f"{{{name}}}: expected a JSON object, as in '{{\"top_k\": 20}}', got {shortened(value)}")
    for field_name in fields:
        if field_name in FIELDS_OF_OPTIONS:
            option = FIELDS_OF_OPTIONS[field_name]
            raise SettingError(f"{{{name}}}: {field_name} has an option of its own; use {{{option}}}")
        if field_name in ("model", "messages", "n", "stream", "stream_options", "seed", "logprobs", "top_logprobs"):
            raise SettingError(f"{{{name}}}: {field_name} is set by the run; leave it out")
    return text


CHAT_PATH = "/chat/completions"
"""Path of the chat API below a base URL."""

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def read_base_url(value: Any, name: str) -> str:
    """Read the base URL of a server."""
    return checked_base_url(value, f"{{{name}}}")


def checked_base_url(value: Any, place: str) -> str:
    """Return the base URL of a server; no message shows a password or a key in it.

    Raises
    ------
    SettingError
        If it is none; the message begins with `place`.
    """
    expected = (
        f"{place}: expected a URL that begins with http:// or https:// and has a port from 1 to 65535 or none, as in "
        "http://127.0.0.1:8000/v1, got "
    )
    if not isinstance(value, str):
        raise SettingError(f"{expected}{shortened(value)}")
    try:
        parts = urlsplit(value)
        is_one = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_one = False
    if not is_one or value != value.strip() or not value.isprintable():
        raise SettingError(f"{expected}{redacted_error(value)[:80]!r}")
    if parts.path.rstrip("/").endswith(CHAT_PATH):
        raise SettingError(f"{place}: expected a base URL, got one that ends in {CHAT_PATH}; leave that out")
    remember(*secrets_in_url(value))
    return value


def read_variable(value: Any, name: str) -> str:
    """Read the name of an environment variable; no message shows the value, which may be a key by mistake."""
    if not isinstance(value, str) or VARIABLE.fullmatch(value) is None:
        raise SettingError(
            f"{{{name}}}: expected the name of an environment variable that holds the key, for instance MY_API_KEY, "
            "got something else; a key itself is not accepted"
        )
    return value


def read_model_args(value: Any, name: str) -> tuple[tuple[str, Any], ...]:
    """Read arguments of a model as pairs of a name and a typed value; no message shows a value, which may be a key.

    Examples
    --------
    >>> read_model_args(["tensor-parallel-size=4", "devices=0,1"], "model_args")
    (('tensor_parallel_size', 4), ('devices', ['0', '1']))
    >>> read_model_args({"enforce_eager": True}, "model_args")
    (('enforce_eager', True),)
    """
    if isinstance(value, Mapping):
        pairs = list(value.items())
    else:
        entries = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
        pairs = [_model_arg(entry, name) for entry in entries]
    arguments: dict[str, Any] = {}
    for argument, entry in pairs:
        where = f"{{{name}}} {argument}"
        if not isinstance(argument, str) or not argument.isidentifier():
            raise SettingError(f"{{{name}}}: expected the name of an argument, got {shortened(argument)}")
        if argument in arguments:
            raise SettingError(f"{where}: is given twice; leave one out")
        # arguments of a model of Inspect that the run sets
        if argument in ("base_url", "config", "default", "http_client", "memoize", "model", "model_name", "role"):
            raise SettingError(f"{where}: is set by the run; leave it out")
        try:
            text = json.dumps({argument: entry}, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            raise SettingError(f"{where}: expected a value that JSON can hold, got another") from None
        if holds_secret({argument: entry}) or redacted_error(text) != text:
            raise SettingError(
                f"{where}: holds a key or a password, which run.json would record; leave it out, and set the "
                "environment variable of the provider"
            )
        arguments[argument] = entry
    return tuple(arguments.items())


def _model_arg(entry: Any, name: str) -> tuple[str, Any]:
    """Read ``NAME=VALUE`` as Inspect's option ``-M``: a value of YAML, and several values separated by commas."""
    argument, equals, written = entry.partition("=") if isinstance(entry, str) else ("", "", "")
    if not (argument and equals):
        raise SettingError(f"{{{name}}}: expected NAME=VALUE, for instance tensor_parallel_size=4")
    argument = argument.replace("-", "_")
    try:
        import yaml  # noqa: PLC0415 - part of the extra that Inspect is in

        value = yaml.safe_load(written)
    except ImportError:
        raise SettingError(f"{{{name}}}: needs PyYAML: pip install 'refusal-index[eval]'") from None
    except yaml.YAMLError:
        raise SettingError(f"{{{name}}} {argument}: expected a value of YAML, such as a number or true") from None
    if isinstance(value, str) and "," in value:
        return argument, value.split(",")
    return argument, value


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
    """How the model under evaluation generates; the defaults are the paper's, without a reasoning effort."""

    temperature: float = setting(0.7, "Sampling temperature of the model.", identity="always", low=0, is_common=True)
    top_p: float = setting(0.95, "Top-p (nucleus) sampling of the model.", identity="always", low=0, high=1)
    max_tokens: int = setting(4096, "Maximum length of a reply, in tokens.", identity="always", low=1)
    reasoning_effort: ReasoningEffort | None = setting(
        None,
        "Effort of reasoning models: none, minimal, low, medium or high.",
        identity="always",
        is_one_models_own=True,
    )


@dataclass(frozen=True)
class Sending:
    """How requests are sent."""

    engine: str = setting(
        "direct",
        "How requests are sent: 'direct' (one request at a time per connection), 'batch' (the provider's batch API, "
        "usually at half the price), 'command' (a program such as vllm run-batch), 'ray' (a cluster) or 'files' "
        "(request files that you submit yourself).",
        identity="no",
        is_common=True,
    )
    max_connections: int | None = setting(
        None,
        "Maximum number of concurrent requests. [default: 64 for embedded models and functions, else up to 100]",
        identity="no",
        low=1,
        is_common=True,
    )
    max_retries: int = setting(5, "Maximum number of retries of a failed request.", identity="no", low=0)
    attempt_timeout: int = setting(
        60,
        "Seconds to wait for a response or for a function; raise it for models that take long to reason.",
        identity="no",
        low=1,
    )
    max_choices: int = setting(
        100, "Maximum number of samples to request at once, where the provider supports several.", identity="no", low=1
    )
    logprobs: bool = setting(
        False, "Request log probabilities, which some methods of the command 'confidence' need.", identity="no"
    )
    retry: tuple[str, ...] = setting(
        (),
        "Ask unscored questions again: 'unscored' for all of them, or some by reason, as in "
        "first_truncated,forced_empty.",
        identity="no",
        argument="str | Sequence[str]",
        reader=read_texts,
    )
    detach: bool = setting(
        False,
        "With --engine batch: exit once the batches are submitted; run the same command again to collect them.",
        identity="no",
        not_in=("gate",),
    )
    command: str | None = setting(
        None,
        "With --engine command: a program that answers the file {requests} into the file {replies}, as in 'vllm "
        "run-batch -i {requests} -o {replies} --model {model}'; it is not run by a shell.",
        identity="no",
    )
    ray_address: str | None = setting(
        None, "With --engine ray: address of the cluster. [default: a local one]", identity="no"
    )
    engine_option: tuple[tuple[str, str], ...] = setting(
        (),
        "Option of the engine 'batch' or 'ray', as in poll=5. Repeatable.",
        identity="no",
        argument="Mapping[str, str] | str | Sequence[str]",
        metavar="NAME=VALUE",
        reader=reads_pairs("NAME=VALUE, for instance poll=30"),
    )
    header: tuple[tuple[str, str], ...] = setting(
        (),
        "With --base-url: HTTP header to send, with the value of an environment variable. Repeatable.",
        identity="if_set",
        argument="Mapping[str, str] | str | Sequence[str]",
        metavar="NAME=env:VAR",
        reader=read_headers,
        to_json=lambda headers: sorted(header.lower() for header, _ in headers),
        recorded_as="headers",
    )
    extra_body: str | None = setting(
        None,
        "With --base-url: object to merge into the body of each request to the model.",
        identity="if_set",
        argument="Mapping[str, Any] | str | None",
        metavar="JSON",
        reader=read_extra_body,
        to_json=json.loads,
    )

    model_args: tuple[tuple[str, Any], ...] = setting(
        (),
        "Argument of the model for its provider in Inspect, as in tensor_parallel_size=4 for a vllm/ model that runs "
        "on this machine (-M of 'inspect eval'). Repeatable.",
        identity="derived",
        argument="Mapping[str, Any] | str | Sequence[str]",
        metavar="NAME=VALUE",
        is_one_models_own=True,
        reader=read_model_args,
    )

    @property
    def forget(self) -> frozenset[str]:
        """Batches to give up, by our key or the provider's name, so that their requests are sent again."""
        return frozenset(value for name, value in self.engine_option if name == FORGET)

    @property
    def own_options(self) -> tuple[tuple[str, str], ...]:
        """The options for the engine itself."""
        return tuple((name, value) for name, value in self.engine_option if name != FORGET)


class Server(NamedTuple):
    """Where a model is asked.

    Attributes
    ----------
    base_url
        The base URL of an OpenAI-compatible server; None for a model that is asked by its provider's name.
    api_key_env
        The environment variable that holds the server's key; None if none is named.
    """

    base_url: str | None
    api_key_env: str | None


ADDRESS_NOT_GIVEN = ""
"""Stands for the base URL of a model of which a run's folder says that a server named it."""


@dataclass(frozen=True)
class Servers:
    """The OpenAI-compatible servers that the models are asked at."""

    base_url: str | None = setting(
        None,
        "Base URL of an OpenAI-compatible server, as in http://127.0.0.1:8000/v1; --model is then the server's own "
        "name for the model.",
        identity="if_set",
        metavar="URL",
        is_common=True,
        argument="str | None",
        reader=read_base_url,
        to_json=lambda _: True,
        recorded_as=NAMED_BY_SERVER,
    )
    api_key_env: str | None = setting(
        None,
        "With --base-url: environment variable that holds the server's key. [default: OPENAI_API_KEY at "
        "https://api.openai.com, else no key]",
        identity="no",
        metavar="VAR",
        is_common=True,
        argument="str | None",
        reader=read_variable,
    )
    grader_base_url: str | None = setting(
        None,
        "Base URL of an OpenAI-compatible server for the grading model; --grader is then the server's own name for it.",
        identity="derived",
        metavar="URL",
        is_common=True,
        argument="str | None",
        scope="dataset",
        reader=read_base_url,
    )
    grader_api_key_env: str | None = setting(
        None,
        "With --grader-base-url: environment variable that holds the server's key.",
        identity="no",
        metavar="VAR",
        argument="str | None",
        scope="dataset",
        reader=read_variable,
    )

    def of_role(self, role: Role) -> Server:
        """Return where the model in a role is asked; two graders share a server."""
        if role == "model":
            return Server(self.base_url, self.api_key_env)
        return Server(self.grader_base_url, self.grader_api_key_env)


@dataclass(frozen=True)
class RequestSettings:
    """Settings of a request."""

    seed: int = setting(
        0, "Random seed of the sample of questions and of every request.", identity="always", scope="dataset"
    )
    servers: Servers = field(default_factory=Servers, repr=False)  # a URL may hold a password
    decoding: Decoding = field(default_factory=Decoding)
    sending: Sending = field(default_factory=Sending)
