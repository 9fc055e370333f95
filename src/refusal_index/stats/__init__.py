"""Numbers in, numbers out: the Refusal Index, its intervals and the metrics it is compared with."""

from refusal_index.stats.baseline import (
    METRIC_NAMES,
    MetricEstimate,
    correct_given_attempted,
    f_score,
    metrics,
    weighted_score,
)
from refusal_index.stats.bivariate_normal import density, upper_orthant
from refusal_index.stats.contingency import CELL_NAMES, ContingencyTable
from refusal_index.stats.influence import influence_function
from refusal_index.stats.intervals import ConfidenceInterval, IntervalMethod
from refusal_index.stats.refusal_index import RefusalIndexResult, Status, refusal_index, refusal_index_many
from refusal_index.stats.tetrachoric import tetrachoric

__all__ = [
    "CELL_NAMES",
    "METRIC_NAMES",
    "ConfidenceInterval",
    "ContingencyTable",
    "IntervalMethod",
    "MetricEstimate",
    "RefusalIndexResult",
    "Status",
    "correct_given_attempted",
    "density",
    "f_score",
    "influence_function",
    "metrics",
    "refusal_index",
    "refusal_index_many",
    "tetrachoric",
    "upper_orthant",
    "weighted_score",
]
