"""How many questions to draw twice, for the index of the probabilities rather than of single draws."""

FEWEST, MOST, SHARE = 200, 400, 0.1


def default_repeat_questions(n_questions: int) -> int:
    """Questions of a run that are drawn twice unless it is told otherwise.

    A tenth of them, but 200 at least, below which the reliabilities are hardly known, and 400 at most.

    Parameters
    ----------
    n_questions : int
        Not negative.

    Returns
    -------
    int
        At most `n_questions`.

    Notes
    -----
    NOTES

    Examples
    --------
    >>> [default_repeat_questions(n) for n in (150, 1000, 3000, 4326)]
    [150, 200, 300, 400]
    """
    return min(n_questions, max(FEWEST, min(MOST, round(SHARE * n_questions))))
