"""The datasets by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from refusal_index.datasets import almanac, own, simpleqa, simpleqa_verified
from refusal_index.datasets.dataset import Dataset, DatasetError
from refusal_index.outcomes.errors import nearest

_LOADERS: Mapping[str, Callable[[Path | None], Dataset]] = {
    "almanac": almanac.load,
    "own": own.load,
    "simpleqa": simpleqa.load,
    "simpleqa_verified": simpleqa_verified.load,
}


def dataset_names() -> tuple[str, ...]:
    """Give the names that `load_dataset` knows, in alphabetical order.

    Examples
    --------
    >>> dataset_names()
    ('almanac', 'own', 'simpleqa', 'simpleqa_verified')
    """
    return tuple(sorted(_LOADERS))


def load_dataset(name: str, *, data: str | Path | None = None, columns: Mapping[str, str] | None = None) -> Dataset:
    """Load a dataset by name and check all of it.

    Parameters
    ----------
    name
        One of `dataset_names`.
    data
        A local file: the questions of ``own``, or a copy of a dataset that is otherwise downloaded.
    columns
        For ``own`` only: the names of the columns that hold the `question`, the `answer` and, where there are such,
        the `question_id`, the `aliases` and the `topic`.

    Returns
    -------
    Dataset
        With unique question ids and no gold answer missing.

    Raises
    ------
    DatasetError
        If the name is not known, an argument does not go with it, or the source cannot be read or does not hold what
        it should.
    """
    if name not in _LOADERS:
        guess = nearest(name, _LOADERS)
        advice = f"did you mean {guess!r}?" if guess else "for a file of your own choose 'own' and give it as data"
        raise DatasetError(f"dataset: expected one of {', '.join(dataset_names())}, got {name!r}; {advice}")
    path = None if data is None else Path(data)
    if name == "own":
        return own.load(path, columns)
    if columns is not None:
        raise DatasetError(
            f"columns: {name!r} has columns of its own; leave columns out, or choose 'own' for a file of your own"
        )
    return _LOADERS[name](path)
