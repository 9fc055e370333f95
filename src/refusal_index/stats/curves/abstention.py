"""Abstention metrics: refusing as the detection of questions that would be answered wrongly.

A refusal is a positive call, a wrong answer under forced answering is what should be called. The 2x2 table then has
the precision, the recall and the F1 of any detector, and two shares that say what refusing costs: how many of the
questions that the model would get right it refuses, and how many of its refusals were needless.

All of them move with the refusal rate: refusing more raises the recall and the over-refusal of any model. They
describe one operating point, where the Refusal Index describes the ranking behind it.
"""

from dataclasses import replace

from refusal_index.stats.contingency import ContingencyTable
from refusal_index.stats.estimate import Estimate
from refusal_index.stats.intervals import normal_quantile
from refusal_index.stats.score_interval import proportion


def abstention_metrics(table: ContingencyTable, *, confidence_level: float = 0.95) -> tuple[Estimate, ...]:
    """Estimate every abstention metric of a table, in the order below.

    Parameters
    ----------
    table : ContingencyTable
    confidence_level : float in (0, 1), default: 0.95

    Returns
    -------
    tuple of Estimate
        - ``abstention_precision``: P(wrong | refused);
        - ``abstention_recall``: P(refused | wrong);
        - ``abstention_f1``: their harmonic mean, undefined where one of them is;
        - ``over_refusal_rate``: P(refused | right), the share of what the model knows that it keeps to itself;
        - ``recoverable_accuracy``: P(right | refused), what forcing an answer would gain, 1 less the precision.

        Those undefined say why: ``"no_questions"``, ``"nobody_refused"``, ``"all_right"`` or ``"all_wrong"``.

    Raises
    ------
    ValueError
        If `confidence_level` does not lie strictly between 0 and 1.

    Notes
    -----
    The intervals are Wilson's. F1 depends on the table only through the share of refused-and-wrong questions among
    those that were refused or wrong, J: it is ``2 J / (1 + J)``. So the interval of that share is its interval, on
    another scale.

    References
    ----------
    .. [1] Dice, L. R. (1945). Measures of the amount of ecologic association between species. Ecology, 26, 297-302:
       F1, and its relation to Jaccard's coefficient. :doi:`10.2307/1932409`

    Examples
    --------
    >>> for metric in abstention_metrics(ContingencyTable(710, 30, 210, 50)):
    ...     print(f"{metric.name:20} {metric.estimate:.3f} [{metric.low:.3f}, {metric.high:.3f}]")
    abstention_precision 0.959 [0.943, 0.971]
    abstention_recall    0.772 [0.744, 0.798]
    abstention_f1        0.855 [0.836, 0.873]
    over_refusal_rate    0.375 [0.277, 0.485]
    recoverable_accuracy 0.041 [0.029, 0.057]
    """
    quantile = normal_quantile(confidence_level)
    both, needless, missed, fine = table.counts
    no_data = None if table.n else "no_questions"
    no_refusal = no_data or (None if both + needless else "nobody_refused")
    no_error = no_data or (None if both + missed else "all_right")
    no_success = no_data or (None if needless + fine else "all_wrong")
    return (
        proportion("abstention_precision", both, both + needless, quantile, no_refusal),
        proportion("abstention_recall", both, both + missed, quantile, no_error),
        _f1(proportion("abstention_f1", both, both + needless + missed, quantile, no_refusal or no_error)),
        proportion("over_refusal_rate", needless, needless + fine, quantile, no_success),
        proportion("recoverable_accuracy", needless, both + needless, quantile, no_refusal),
    )


def _f1(jaccard: Estimate) -> Estimate:
    if jaccard.estimate is None or jaccard.low is None or jaccard.high is None:
        return jaccard
    estimate, low, high = (2 * share / (1 + share) for share in (jaccard.estimate, jaccard.low, jaccard.high))
    return replace(jaccard, estimate=estimate, low=low, high=high)
