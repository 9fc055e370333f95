"""Compact letter display: letters that say which of several estimates cannot be told apart.

Two estimates share a letter if and only if they do not differ significantly. Not differing is not transitive (the
middle one of three may differ from neither end while the ends differ), so an estimate can carry several letters.
"""

from itertools import product
from string import ascii_lowercase

import numpy as np
from numpy.typing import ArrayLike

Group = frozenset[int]


def compact_letters(differs: ArrayLike) -> tuple[str, ...]:
    """Letters of the insert-and-absorb algorithm.

    Parameters
    ----------
    differs : array_like of bool, shape (k, k)
        Whether two items differ significantly: symmetric, False on the diagonal. Items come in the order in which they
        are to be shown.

    Returns
    -------
    tuple of str, length k
        Letters of each item, in the order of the alphabet (after ``z`` come ``aa``, ``ab``, ...; letters of more than
        one character are separated by a space). The first letter goes to the group that begins with the first item.

    Raises
    ------
    ValueError
        If the matrix is not square or not symmetric, or says that an item differs from itself.

    References
    ----------
    .. [1] Piepho, H.-P. (2004). An algorithm for a letter-based representation of all-pairwise comparisons. Journal of
       Computational and Graphical Statistics, 13, 456-466. :doi:`10.1198/1061860043515`

    Examples
    --------
    The outer two of three differ, the middle one from neither:

    >>> compact_letters([[False, False, True], [False, False, False], [True, False, False]])
    ('a', 'ab', 'b')
    """
    matrix = np.asarray(differs)
    if matrix.dtype != bool or matrix.ndim != 2 or not np.array_equal(matrix, matrix.T) or matrix.diagonal().any():
        raise ValueError(
            f"differs must be a symmetric matrix of truth values, False on the diagonal, got shape {matrix.shape} of "
            f"{matrix.dtype}; is it a matrix of p-values, or only the pairs above the diagonal?"
        )
    k = len(matrix)
    groups = sorted(_tie_groups(matrix), key=sorted)
    names = [_letter_name(index) for index in range(len(groups))]
    separator = "" if len(groups) <= len(ascii_lowercase) else " "
    return tuple(
        separator.join(name for name, group in zip(names, groups, strict=True) if i in group) for i in range(k)
    )


def _tie_groups(differs: np.ndarray) -> set[Group]:
    """Return the maximal sets of items no two of which differ."""
    k = len(differs)
    groups = {frozenset(range(k))} if k else set()
    for i, j in np.argwhere(np.triu(differs)).tolist():
        torn = {group for group in groups if i in group and j in group}
        halves = {group - {item} for group, item in product(torn, (i, j))}
        groups = _absorb(groups - torn, halves)
    return groups


def _absorb(groups: set[Group], added: set[Group]) -> set[Group]:
    """Insert new groups, except where another group contains them."""
    # Only the new groups can lie inside others: the rest were maximal before and have not shrunk.
    everything = groups | added
    return groups | {group for group in added if not any(group < other for other in everything)}


def _letter_name(index: int) -> str:
    """Return a, b, ..., z, aa, ab, ..., as spreadsheets name their columns."""
    before, last = divmod(index, len(ascii_lowercase))
    return (_letter_name(before - 1) if before else "") + ascii_lowercase[last]
