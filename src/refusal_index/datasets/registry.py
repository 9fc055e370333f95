"""The datasets by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from refusal_index.datasets import almanac, faitheval, own, precise_wiki, simpleqa, simpleqa_verified
from refusal_index.datasets.dataset import Dataset, DatasetError
from refusal_index.datasets.mixing import SIGN, mix
from refusal_index.outcomes.errors import nearest

Data = str | Path | Sequence[str | Path] | None
"""No file, one, or one for each part of a mix."""

_LOADERS: Mapping[str, Callable[[Path | None], Dataset]] = {
    "almanac": almanac.load,
    "faitheval_counterfactual": faitheval.load_counterfactual,
    "faitheval_inconsistent": faitheval.load_inconsistent,
    "faitheval_unanswerable": faitheval.load_unanswerable,
    "own": own.load,
    "precise_wiki": precise_wiki.load,
    "simpleqa": simpleqa.load,
    "simpleqa_verified": simpleqa_verified.load,
}

_FROM_FILES_ONLY = frozenset({"own", "precise_wiki", "simpleqa_verified"})


def dataset_names() -> tuple[str, ...]:
    """Give the names that `load_dataset` knows, in alphabetical order.

    Examples
    --------
    >>> dataset_names()[:2]
    ('almanac', 'faitheval_counterfactual')
    """
    return tuple(sorted(_LOADERS))


def load_dataset(
    name: str, *, data: Data = None, columns: Mapping[str, str] | None = None, mix_seed: int = 0
) -> Dataset:
    """Load a dataset by name and check all of it.

    Parameters
    ----------
    name
        One of `dataset_names`, or several of them joined by ``+`` for a mix of as many questions of each.
    data
        A local file: the questions of ``own``, or a copy of a dataset. For a mix, a file for each part that needs one,
        or for each that can take one, in their order.
    columns
        For ``own`` only: column name by role, as `own.load` tells.
    mix_seed
        Of the draw from the larger parts of a mix.

    Returns
    -------
    Dataset
        With unique question ids.

    Raises
    ------
    DatasetError
        If the name is not known, an argument does not go with it, or the source cannot be read or does not hold what
        it should.
    """
    names = name.split(SIGN)
    for part in names:
        _check_known(part)
    if columns is not None and "own" not in names:
        raise DatasetError(
            f"columns: {name!r} has columns of its own; leave columns out, or choose 'own' for a file of your own"
        )
    files = _files(names, data)
    parts = [_load(part, file, columns) for part, file in zip(names, files, strict=True)]
    return parts[0] if len(parts) == 1 else mix(parts, mix_seed)


def _load(name: str, data: Path | None, columns: Mapping[str, str] | None) -> Dataset:
    return own.load(data, columns) if name == "own" else _LOADERS[name](data)


def _check_known(name: str) -> None:
    if name in _LOADERS:
        return
    guess = nearest(name, _LOADERS)
    advice = f"did you mean {guess!r}?" if guess else "for a file of your own choose 'own' and give it as data"
    raise DatasetError(f"dataset: expected one of {', '.join(dataset_names())}, got {name!r}; {advice}")


def _counted(some: Sequence[object]) -> str:
    return f"{len(some)} file{'s' if len(some) > 1 else ''}"


def _files(names: Sequence[str], data: Data) -> list[Path | None]:
    """Give each dataset its file, in the order of those that need one, or else of those that can take one."""
    given = [Path(data)] if isinstance(data, str | Path) else [Path(file) for file in data or ()]
    if not given:
        return [None] * len(names)
    needing = [name for name in names if name in _FROM_FILES_ONLY]
    taking = [name for name in names if name != "almanac"] or list(names)
    takers = next((some for some in (needing, taking) if len(some) == len(given)), None)
    if takers is None:
        ways = {_counted(some): ", ".join(some) for some in (taking, needing) if some}
        expected = " or ".join(f"{files} ({names})" for files, names in ways.items())
        raise DatasetError(f"data: expected {expected}, in this order, got {_counted(given)}")
    left = iter(given)
    return [next(left) if name in takers else None for name in names]
