"""A configuration: models and datasets as tables of a file, whose keys are the settings of a run."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from refusal_index.engines.setting import SettingError
from refusal_index.engines.settings import REMOVED, SETTINGS, not_a_setting
from refusal_index.outcomes.errors import shortened, suggestion

FOLDER = "configs"
SUFFIX = ".toml"
NAME = "name"

MODEL_KEYS, DATASET_KEYS, SET_KEYS = (
    tuple(name for name, known in SETTINGS.items() if known.of == kind) for kind in ("model", "dataset", "set")
)
"""Settings of each model, of each dataset, and of the whole set, whose results stand in one table."""

IDENTITY_KEYS = ("model", "dataset", "data", "column")
"""What makes an entry, and has no default."""

DEFAULT_KEYS = tuple(key for key in (*MODEL_KEYS, *DATASET_KEYS, *SET_KEYS) if key not in IDENTITY_KEYS)
TABLES = {"[[models]]": MODEL_KEYS, "[[datasets]]": DATASET_KEYS, "[defaults]": DEFAULT_KEYS}


class ConfigError(SettingError):
    """A configuration that cannot be used; the message names the file, the table and the key."""


@dataclass(frozen=True)
class Entry:
    """One model or one dataset of a configuration.

    Attributes
    ----------
    place
        The file and the table, for messages.
    name
        What to call it; None for what it is.
    values
        Options by name, checked one by one.
    """

    place: str
    name: str | None
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Config:
    """A configuration as it was read.

    Attributes
    ----------
    name
        Names the folder that the set is run in.
    source, sha256
        The file, and what was in it.
    defaults
        Options that hold for all entries that do not say otherwise.
    models, datasets
        Each model answers each dataset.
    """

    name: str
    source: str
    sha256: str
    defaults: Mapping[str, Any]
    models: tuple[Entry, ...]
    datasets: tuple[Entry, ...]


def config_names() -> tuple[str, ...]:
    """Return the names of the configurations that come with the package.

    Examples
    --------
    >>> config_names()[0]
    'paper/all'
    """
    return tuple(sorted(_names(resources.files("refusal_index") / FOLDER)))


def read_config(given: str) -> Config:
    """Read a configuration by its path, or by the name of one that comes with the package.

    A file goes first. Otherwise ``paper/all``, ``paper/all.toml`` and ``configs/paper/all.toml`` name the same one.

    Raises
    ------
    ConfigError
        If there is none, or something in it is not as it should be.

    Examples
    --------
    >>> read_config("paper/gpt-4.1").name
    'paper-gpt-4.1'
    """
    path = Path(given)
    if path.is_file():
        return _parse(_content(path), given, path.name.removesuffix(SUFFIX))
    name = given.removeprefix(f"{FOLDER}/").removesuffix(SUFFIX)
    if name not in config_names():
        raise ConfigError(
            f"config: no file {given!r}, and no configuration of that name comes with the package"
            f"{suggestion(name, config_names())}; those that do are {', '.join(config_names())}"
        )
    content = (resources.files("refusal_index") / FOLDER).joinpath(*f"{name}{SUFFIX}".split("/")).read_bytes()
    return _parse(content, f"{name}{SUFFIX}", name)


def _names(folder: Traversable, prefix: str = "") -> Iterator[str]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _names(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(SUFFIX):
            yield prefix + entry.name.removesuffix(SUFFIX)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"config: {path} cannot be read ({error.strerror})") from error


def _parse(content: bytes, source: str, name: str) -> Config:
    try:
        document = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{source}: not valid TOML: {error}") from error
    if "preamble" in document:
        raise ConfigError(
            f"{source}: expected a configuration of models and datasets, got a prompt set; 'refusal-index prompts "
            f"{source}' shows it, and --prompts {source} asks in its words"
        )
    for key in document:
        if key not in (NAME, "defaults", "models", "datasets"):
            known = (NAME, "[defaults]", "[[models]]", "[[datasets]]")
            raise ConfigError(f"{source}: expected {', '.join(known)}, got {key!r}{_guess(key, _bare(known))}")
    defaults = document.get("defaults", {})
    if not isinstance(defaults, dict):
        raise ConfigError(f"{source}: expected a table [defaults], got {shortened(defaults)}")
    return Config(
        name=_folder_name(document.get(NAME, name), source),
        source=source,
        sha256=hashlib.sha256(content).hexdigest(),
        defaults=_values(defaults, f"{source}, [defaults]", DEFAULT_KEYS),
        models=_entries(document, "models", MODEL_KEYS, ("model",), source),
        datasets=_entries(document, "datasets", DATASET_KEYS, ("dataset", "data"), source),
    )


def _folder_name(name: Any, source: str) -> str:
    if not isinstance(name, str) or not name.strip():
        raise ConfigError(f"{source}: expected a text as {NAME!r}, got {shortened(name)}")
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._") or "unnamed"


def _entries(
    document: Mapping[str, Any], key: str, known: tuple[str, ...], needed: tuple[str, ...], source: str
) -> tuple[Entry, ...]:
    tables = document.get(key)
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        found = "nothing" if tables is None else shortened(tables)
        raise ConfigError(f"{source}: expected at least one table [[{key}]], got {found}")
    return tuple(
        _entry(table, f"{source}, [[{key}]] {number}", known, needed) for number, table in enumerate(tables, 1)
    )


def _entry(table: Mapping[str, Any], place: str, known: tuple[str, ...], needed: tuple[str, ...]) -> Entry:
    name = table.get(NAME)
    if name is not None and (not isinstance(name, str) or not name.strip()):
        raise ConfigError(f"{place}, {NAME}: expected text, got {shortened(name)}")
    values = _values({key: value for key, value in table.items() if key != NAME}, place, known)
    if not any(key in values for key in needed):
        raise ConfigError(f"{place}: expected {' or '.join(map(repr, needed))}, got {_listed(table)}")
    return Entry(place if name is None else f"{place} ({name})", name, values)


def _values(table: Mapping[str, Any], place: str, known: tuple[str, ...]) -> dict[str, Any]:
    return {key: _value(key, value, place, known) for key, value in table.items()}


def _value(key: str, value: Any, place: str, known: tuple[str, ...]) -> Any:
    if key not in known:
        raise ConfigError(f"{place}: {_unknown(key, known)}")
    try:
        return SETTINGS[key].read(value)
    except SettingError as error:
        raise ConfigError(f"{place}, {error}") from error


def _unknown(key: str, known: tuple[str, ...]) -> str:
    if key in REMOVED:
        return str(not_a_setting(key))
    elsewhere = [table for table, keys in TABLES.items() if key in keys]
    if elsewhere:
        return f"{key!r} belongs in {' or '.join(elsewhere)}"
    return f"no option is called {key!r}{_guess(key, (*known, NAME))}; 'refusal-index run --help' lists them"


def _guess(key: str, known: tuple[str, ...]) -> str:
    return suggestion(key, known) or suggestion(key, [key for keys in TABLES.values() for key in keys])


def _bare(tables: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(table.strip("[]") for table in tables)


def _listed(table: Mapping[str, Any]) -> str:
    return ", ".join(map(repr, table)) or "nothing"
