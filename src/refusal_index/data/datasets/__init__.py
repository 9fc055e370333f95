"""The questions, from their official sources or from a file, checked by checksum; here the datasets by name.

- `published`: SimpleQA, FaithEval and sets of PreciseWikiQA, downloaded or read from a copy;
- `own`: any CSV, JSON Lines or Parquet file of questions and answers;
- `dataset`: what a dataset is, a sample of it, and a mix of several.

Plugins register further datasets, such as the almanac.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from refusal_index import entry_points
from refusal_index.data.datasets import own
from refusal_index.data.datasets.dataset import SIGN, Dataset, DatasetError, GraderName, mix, sample
from refusal_index.data.datasets.published import PUBLISHED
from refusal_index.data.errors import shortened, suggestion
from refusal_index.data.tables import is_in_memory

__all__ = ["Dataset", "DatasetError", "GraderName", "dataset_names", "load_dataset", "mix", "sample"]

ALMANAC = "almanac"
"""The dataset that is asked where none is named; a plugin of this package registers it."""


class Loader(Protocol):
    """Loads a dataset; a plugin registers one in the group ``refusal_index.datasets``."""

    def __call__(self, data: Path | None, /) -> Dataset:
        """Load it from a file of the user's, or from where it comes from if there is none."""


_LOADERS: Mapping[str, Loader] = {
    "own": own.load,
    **{dataset.name: dataset.load for dataset in PUBLISHED.values()},
}

_FROM_FILES_ONLY = {"own", *(dataset.name for dataset in PUBLISHED.values() if dataset.address is None)}


def dataset_names() -> tuple[str, ...]:
    """Give the names that `load_dataset` knows, in alphabetical order.

    >>> dataset_names()[:2]
    ('almanac', 'faitheval_counterfactual')
    """
    return tuple(sorted({*_LOADERS, *entry_points.installed("datasets")}))


def load_dataset(
    name: str,
    *,
    data: Any = None,
    columns: Mapping[str, str] | None = None,
    mix_seed: int = 0,
    limit: int | None = None,
) -> Dataset:
    """Load a dataset by name and check all of it.

    Raises DatasetError if the name is not known, an argument does not go with it, or the source cannot be read or does
    not hold what it should.

    - `name`: one of `dataset_names`, or several of them joined by ``+`` for a mix of as many questions of each.
    - `data`: a local file: the questions of ``own``, or a copy of a dataset; for ``own`` also a data frame or
      dictionaries, as `own.questions_from` takes. For a mix, one for each part that needs one, or for each that can
      take one, in their order.
    - `columns`: for ``own`` only: column name by role, as `own.load` tells.
    - `mix_seed`: of the draw from the larger parts of a mix, and of that of `limit` questions.
    - `limit`: how many questions to draw, as `sample` does; None for all of them.
    - returned: with unique question ids.
    """
    names = name.split(SIGN)
    for part in names:
        _loader(part)
    if columns is not None and "own" not in names:
        raise DatasetError(
            f"columns: {name!r} has columns of its own; leave columns out, or choose 'own' for a file of your own"
        )
    files = _files(names, data)
    if names == ["own"] and limit is not None:
        return own.load(files[0], columns, limit, mix_seed)
    parts = []
    for part, file in zip(names, files, strict=True):
        if part != "own" and is_in_memory(file):
            raise DatasetError(
                f"data: {part!r} is read from a file, got {shortened(file)}; choose 'own' for questions in memory"
            )
        parts.append(own.load(file, columns) if part == "own" else _loader(part)(file))
    whole = parts[0] if len(parts) == 1 else mix(parts, mix_seed)
    return whole if limit is None else sample(whole, limit, mix_seed)


def _loader(name: str) -> Loader:
    """Return what loads a dataset; raises DatasetError where there is none of this name."""
    if name in _LOADERS:
        return _LOADERS[name]
    plugin = entry_points.find("datasets", name)
    if plugin is None:
        advice = suggestion(name, dataset_names()) or "; for a file of your own choose 'own' and give it as data"
        raise DatasetError(f"dataset: expected one of {', '.join(dataset_names())}, got {name!r}{advice}")
    load: Loader = entry_points.load(plugin)
    return load


def _files(names: Sequence[str], data: Any) -> list[Any]:
    """Give each dataset its file, in the order of those that need one, or else of those that can take one."""
    given = [data] if isinstance(data, str | Path) or is_in_memory(data) else list(data or ())
    if not given:
        return [None] * len(names)
    required = [name for name in names if name in _FROM_FILES_ONLY]
    accepting = [name for name in names if name != ALMANAC] or list(names)
    takers = next((group for group in (required, accepting) if len(group) == len(given)), None)
    if takers is None:
        counts = {len(group): ", ".join(group) for group in (accepting, required) if group}
        expected = " or ".join(f"{_files_in_words(count)} ({group})" for count, group in counts.items())
        raise DatasetError(f"data: expected {expected}, in this order, got {_files_in_words(len(given))}")
    files = iter(Path(file) if isinstance(file, str) else file for file in given)
    return [next(files) if name in takers else None for name in names]


def _files_in_words(count: int) -> str:
    return f"{count} file{'s' if count > 1 else ''}"
