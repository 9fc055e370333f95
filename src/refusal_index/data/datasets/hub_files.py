"""Which files of a dataset's repository on the Hugging Face Hub belong to which configuration and split.

The card of a dataset may declare them. Otherwise they follow from the names of folders and files, as in the Hub's own
rules: ``data/train-00000-of-00002.parquet`` is a part of ``train``, and ``geo/test.jsonl`` is ``test`` of ``geo``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from refusal_index.data.tables import SUFFIXES

Files = dict[str, dict[str, list[str]]]
"""The files by configuration and split."""

DEFAULT = "default"
"""Name of the only configuration of most datasets."""

SPLITS = {
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
    **dict.fromkeys(("validation", "valid", "val", "dev"), "validation"),
    **dict.fromkeys(("train", "training"), "train"),
}
"""Usual splits by the words for them in names of files; the first one that a dataset has is the default."""

DATA_SUFFIXES = (*SUFFIXES, ".tsv", ".json", *(f"{suffix}.gz" for suffix in (".csv", ".tsv", ".jsonl", ".ndjson")))
"""Ends of the names of files that can be read."""

METADATA = ("dataset_infos.json", "dataset_info.json", "dataset_dict.json", "state.json")
"""Files of the library `datasets` that hold no questions."""

SHARD = re.compile(r"-\d+-of-\d+$")


def is_data(path: str) -> bool:
    """Whether a file can be read and its path stays within a folder.

    >>> is_data("data/test.parquet"), is_data("../test.parquet"), is_data("load.py")
    (True, False, False)
    """
    parts = path.split("/")
    is_safe = path.isprintable() and not {":", "\\"}.intersection(path)
    stays = is_safe and not any(part == "" or part.startswith(".") for part in parts)
    return stays and path.lower().endswith(DATA_SUFFIXES) and parts[-1] not in METADATA


def files_of(paths: Iterable[str], declared: Any = None) -> Files:
    """Return the readable files by configuration and split.

    - `paths`: all files of the repository.
    - `declared`: the `configs` of the dataset's card, which anybody may have written.
    """
    readable = sorted(filter(is_data, paths))
    placed = list(dict.fromkeys(_declared(readable, declared))) or [(*_place(path), path) for path in readable]
    files: Files = {}
    for config, split, path in placed:
        files.setdefault(config, {}).setdefault(split, []).append(path)
    return files


def default_split(splits: Iterable[str]) -> str | None:
    """Return the split to ask: test, validation, train, or the only one; None if that is not clear."""
    names = list(splits)
    usual = [split for split in SPLITS.values() if split in names]
    return usual[0] if usual else names[0] if len(names) == 1 else None


def _declared(readable: Sequence[str], declared: Any) -> Iterator[tuple[str, str, str]]:
    """Yield configuration, split and path of the files that a card declares by patterns."""
    for config in declared if isinstance(declared, list) else ():
        patterns = config.get("data_files") if isinstance(config, Mapping) else None
        for entry in patterns if isinstance(patterns, list) else [patterns]:
            split, paths = (entry.get("split"), entry.get("path")) if isinstance(entry, Mapping) else ("train", entry)
            wanted = [path for path in (paths if isinstance(paths, list) else [paths]) if isinstance(path, str)]
            for path in readable:
                if any(_matches(path, pattern.removeprefix("./")) for pattern in wanted):
                    yield str(config.get("config_name", DEFAULT)), str(split), path


def _matches(path: str, pattern: str) -> bool:
    """Whether a path matches a pattern, in which only ``**`` matches several folders."""
    if "**" in pattern:
        return fnmatchcase(path, pattern) or fnmatchcase(path, pattern.replace("**/", ""))
    return path.count("/") == pattern.count("/") and fnmatchcase(path, pattern)


def _place(path: str) -> tuple[str, str]:
    """Return the configuration and the split of a file by its path.

    >>> _place("squad_v2/validation-00000-of-00001.parquet"), _place("geo/test/0000.parquet"), _place("all.jsonl")
    (('squad_v2', 'validation'), ('geo', 'test'), ('default', 'all'))
    """
    *folders, name = path.split("/")
    suffix = max((suffix for suffix in DATA_SUFFIXES if name.lower().endswith(suffix)), key=len)
    stem = name[: -len(suffix)]
    whole = SHARD.sub("", stem)
    words = [whole] if whole != stem else re.split(r"[^a-z0-9]+", stem.lower())
    named = [SPLITS[word] for word in (*words, *map(str.lower, reversed(folders))) if word in SPLITS]
    config = next((folder for folder in folders if folder != "data" and folder.lower() not in SPLITS), DEFAULT)
    return config, named[0] if named else whole
