"""Configurations of sets of runs: TOML files with a table for each model and each dataset, whose keys are settings."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from refusal_index.data.text import parse_toml
from refusal_index.errors import RefusalIndexError, shortened, suggestion
from refusal_index.models.settings import SettingError
from refusal_index.runs.settings import SETTINGS

FOLDER = "configs"
SUFFIX = ".toml"
NAME = "name"
DATASETS = "datasets"
HEADER = "header"

MODEL_KEYS, DATASET_KEYS, SET_KEYS = (
    tuple(name for name, setting in SETTINGS.items() if setting.scope in scopes)
    for scopes in (("model", "run"), ("dataset", "run"), ("set",))
)
"""Settings of each model, of each dataset, and of the whole set."""


# keys that identify an entry, and have no default
DEFAULT_KEYS = tuple(name for name in SETTINGS if name not in ("model", "dataset", "data", "column"))
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
        Its display name; None for its own name.
    values
        Checked settings by name.
    datasets
        For a model, the names of the datasets that it answers; None for all.
    """

    place: str
    name: str | None
    values: Mapping[str, Any]
    datasets: tuple[str, ...] | None = None

    @property
    def names(self) -> set[str]:
        """The names by which a model may choose a dataset: that of the entry, and that of its dataset."""
        return {name for name in (self.name, self.values.get("dataset")) if name is not None}


@dataclass(frozen=True)
class Config:
    """A parsed configuration.

    Attributes
    ----------
    name
        The name of the set, and of its folder.
    source, sha256
        The path of the file, and the hash of its content.
    defaults
        Settings of all entries that do not set their own.
    models, datasets
        Entries; each model answers each dataset, unless it chooses some.
    """

    name: str
    source: str
    sha256: str
    defaults: Mapping[str, Any]
    models: tuple[Entry, ...]
    datasets: tuple[Entry, ...]

    def datasets_of(self, model: Entry) -> tuple[Entry, ...]:
        """Return the datasets that a model answers."""
        chosen = model.datasets
        if chosen is None:
            return self.datasets
        return tuple(dataset for dataset in self.datasets if not dataset.names.isdisjoint(chosen))


def config_names() -> tuple[str, ...]:
    """Return the names of the configurations that come with the package.

    Examples
    --------
    >>> config_names()[0]
    'paper/all'
    """
    return tuple(sorted(_names(resources.files("refusal_index") / FOLDER)))


def read_config(source: str) -> Config:
    """Read a configuration by path, or by name if it comes with the package.

    A file takes precedence. Otherwise ``paper/all``, ``paper/all.toml`` and ``configs/paper/all.toml`` name the same
    one.

    Raises
    ------
    ConfigError
        If there is no such configuration, or it is invalid.

    Examples
    --------
    >>> read_config("paper/gpt-4.1").name
    'paper-gpt-4.1'
    """
    path = Path(source)
    if path.is_file():
        try:
            content = path.read_bytes()
        except OSError as error:
            raise ConfigError(f"config: {path} cannot be read ({error.strerror})") from error
        return _parse(content, source, path.name.removesuffix(SUFFIX))
    name = source.removeprefix(f"{FOLDER}/").removesuffix(SUFFIX)
    if name not in config_names():
        raise ConfigError(
            f"config: {source!r} is neither a file nor a built-in configuration, which are {', '.join(config_names())}"
            f"{suggestion(name, config_names())}"
        )
    content = (resources.files("refusal_index") / FOLDER).joinpath(*f"{name}{SUFFIX}".split("/")).read_bytes()
    return _parse(content, f"{name}{SUFFIX}", name)


def _names(folder: Traversable, prefix: str = "") -> Iterator[str]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _names(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(SUFFIX):
            yield prefix + entry.name.removesuffix(SUFFIX)


def _parse(content: bytes, source: str, name: str) -> Config:
    try:
        document = parse_toml(content)
    except ValueError as error:
        raise ConfigError(f"{source}: not valid TOML: {error}") from error
    if "preamble" in document:
        raise ConfigError(
            f"{source}: expected a configuration of models and datasets, got a prompt set; 'refusal-index prompts "
            f"{source}' shows it, and --prompts {source} uses it"
        )
    for key in document:
        if key not in (NAME, "defaults", "models", "datasets"):
            tables = (NAME, "[defaults]", "[[models]]", "[[datasets]]")
            guess = _guess(key, tuple(table.strip("[]") for table in tables))
            raise ConfigError(f"{source}: expected {', '.join(tables)}, got {key!r}{guess}")
    defaults = document.get("defaults", {})
    if not isinstance(defaults, dict):
        raise ConfigError(f"{source}: expected a table [defaults], got {shortened(defaults)}")
    called = document.get(NAME, name)
    if not isinstance(called, str) or not called.strip():
        raise ConfigError(f"{source}: expected a text as {NAME!r}, got {shortened(called)}")
    models = tuple(_entries(document, "models", MODEL_KEYS, ("model",), source))
    datasets = tuple(_entries(document, DATASETS, DATASET_KEYS, ("dataset", "data"), source))
    for model in models:
        _check_chosen(model, datasets)
    return Config(
        name=re.sub(r"[^A-Za-z0-9._-]+", "-", called).strip("-._") or "unnamed",
        source=source,
        sha256=hashlib.sha256(content).hexdigest(),
        defaults=_values(defaults, f"{source}, [defaults]", DEFAULT_KEYS),
        models=models,
        datasets=datasets,
    )


def _entries(
    document: Mapping[str, Any], key: str, options: tuple[str, ...], needed: tuple[str, ...], source: str
) -> Iterator[Entry]:
    tables = document.get(key)
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        actual = "nothing" if tables is None else shortened(tables)
        raise ConfigError(f"{source}: expected at least one table [[{key}]], got {actual}")
    for position, table in enumerate(tables, 1):
        location = f"{source}, [[{key}]] {position}"
        name = table.get(NAME)
        if name is not None and (not isinstance(name, str) or not name.strip()):
            raise ConfigError(f"{location}, {NAME}: expected text, got {shortened(name)}")
        chosen = _chosen(table[DATASETS], location) if key == "models" and DATASETS in table else None
        others = {NAME} if chosen is None else {NAME, DATASETS}
        values = _values({key: value for key, value in table.items() if key not in others}, location, options)
        if values.keys().isdisjoint(needed):
            listed = ", ".join(map(repr, table)) or "nothing"
            raise ConfigError(f"{location}: expected {' or '.join(map(repr, needed))}, got {listed}")
        yield Entry(location if name is None else f"{location} ({name})", name, values, chosen)


def _chosen(value: Any, location: str) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"{location}, {DATASETS}: expected names of datasets of this file, got {shortened(value)}")
    return tuple(names)


def _check_chosen(model: Entry, datasets: tuple[Entry, ...]) -> None:
    known = list(dict.fromkeys(name for dataset in datasets for name in sorted(dataset.names)))
    for name in model.datasets or ():
        if name not in known:
            raise ConfigError(
                f"{model.place}, {DATASETS}: expected some of {', '.join(known) or 'none, as no dataset has a name'}, "
                f"the 'name' or 'dataset' of a table [[datasets]], got {name!r}{suggestion(name, known)}"
            )


def _values(table: Mapping[str, Any], location: str, options: tuple[str, ...]) -> dict[str, Any]:
    values = {}
    for key, value in table.items():
        if key not in options:
            raise ConfigError(f"{location}: {_unknown(key, options)}")
        try:
            read = SETTINGS[key].read(value)
        except SettingError as error:
            raise ConfigError(f"{location}, {error}") from error
        values[key] = value if key == HEADER else read  # a header as read no longer shows that it names a variable
    return values


def _unknown(key: str, options: tuple[str, ...]) -> str:
    tables = [table for table, keys in TABLES.items() if key in keys]
    if tables:
        return f"{key!r} belongs in {' or '.join(tables)}"
    return f"no option is called {key!r}{_guess(key, (*options, NAME))}; 'refusal-index run --help' lists them"


def _guess(key: str, options: tuple[str, ...]) -> str:
    return suggestion(key, options) or suggestion(key, [key for keys in TABLES.values() for key in keys])


def merged(*tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of several tables, those of later ones in the place of earlier ones.

    An address replaces an earlier one together with its keys, which belong to the other server.

    >>> merged({"base_url": "http://a/v1", "api_key_env": "A"}, {"base_url": "http://b/v1"})
    {'base_url': 'http://b/v1'}
    """
    values: dict[str, Any] = {}
    for table in tables:
        # settings that may hold a key of the server at an address
        for address, keys in {"base_url": ("api_key_env", HEADER), "grader_base_url": ("grader_api_key_env",)}.items():
            if address in table and address in values:
                for key in keys:
                    values.pop(key, None)
        values |= table
    return values


@contextmanager
def prefixing_errors(location: str) -> Iterator[None]:
    """Prefix input errors raised inside the block with the place in the configuration."""
    try:
        yield
    except RefusalIndexError as error:
        raise ConfigError(f"{location}: {error.message if isinstance(error, SettingError) else error}") from error
