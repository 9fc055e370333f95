"""Compact letter display."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refusal_index.stats.ranking import compact_letters


def matrix(k: int, pairs) -> np.ndarray:
    """Build the symmetric matrix in which the given pairs differ."""
    differs = np.zeros((k, k), bool)
    for i, j in pairs:
        differs[i, j] = differs[j, i] = True
    return differs


@st.composite
def significance(draw, largest: int = 9) -> np.ndarray:
    k = draw(st.integers(0, largest))
    pairs = list(combinations(range(k), 2))
    return matrix(k, [pair for pair in pairs if draw(st.booleans())])


def letter_sets(differs: np.ndarray) -> list[set[str]]:
    return [set(letters.split() if " " in letters else letters) for letters in compact_letters(differs)]


@settings(deadline=None)
@given(significance())
def test_two_share_a_letter_exactly_if_they_do_not_differ(differs: np.ndarray) -> None:
    letters = letter_sets(differs)
    for i, j in combinations(range(len(differs)), 2):
        assert bool(letters[i] & letters[j]) == (not differs[i, j])
    assert all(letters)


@settings(deadline=None)
@given(significance(largest=6))
def test_letters_against_brute_force_over_all_sets_of_ties(differs: np.ndarray) -> None:
    k = len(differs)
    every = [set(group) for size in range(1, k + 1) for group in combinations(range(k), size)]
    ties = [group for group in every if not differs[np.ix_(sorted(group), sorted(group))].any()]
    maximal = sorted(sorted(group) for group in ties if not any(group < other for other in ties))
    letters = letter_sets(differs)
    used = sorted(set().union(*letters))
    assert [[i for i in range(k) if letter in letters[i]] for letter in used] == maximal


@settings(deadline=None)
@given(st.lists(st.floats(0, 10), max_size=12))
def test_ordered_values_that_differ_beyond_a_distance_need_no_more_letters_than_items(values) -> None:
    ordered = np.sort(values)
    letters = compact_letters(np.abs(ordered[:, None] - ordered) > 1)
    assert len(set("".join(letters))) <= len(values)
    # Each item's letters follow one another without a gap, and begin no earlier than those of the item before.
    assert all(word in "abcdefghijkl" for word in letters)
    assert list(letters) == sorted(letters, key=lambda word: (word[0], word[-1]))


@pytest.mark.parametrize(
    ("k", "pairs", "letters"),
    [
        (0, [], ()),
        (1, [], ("a",)),
        (3, [], ("a", "a", "a")),
        (3, [(0, 1), (0, 2), (1, 2)], ("a", "b", "c")),
        (4, [(0, 2), (0, 3), (1, 3)], ("a", "ab", "bc", "c")),
        (4, [(0, 1), (2, 3)], ("ab", "cd", "ac", "bd")),
    ],
)
def test_letters_of_small_cases(k: int, pairs, letters: tuple[str, ...]) -> None:
    assert compact_letters(matrix(k, pairs)) == letters


def test_letters_beyond_z_have_two_characters_and_stand_apart() -> None:
    letters = compact_letters(~np.eye(28, dtype=bool))
    assert letters[25:] == ("z", "aa", "ab")
    chain = compact_letters(np.abs(np.subtract.outer(np.arange(29), np.arange(29))) > 1)
    assert chain[26:] == ("z aa", "aa ab", "ab")


@pytest.mark.parametrize(
    "differs",
    [np.zeros((2, 3), bool), np.triu(np.ones((3, 3), bool), 1), np.ones((2, 2), bool), np.zeros((2, 2)), [True]],
)
def test_errors_say_what_the_matrix_must_be(differs) -> None:
    with pytest.raises(ValueError, match=r"^differs must be a symmetric matrix of truth values.*matrix of p-values"):
        compact_letters(differs)
