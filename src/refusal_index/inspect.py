"""For tasks of Inspect: the solver `two_pass`, and metrics of the samples that it ran."""

from refusal_index.plugins.inspect.outcomes import outcome, over_refusal, refusal_index, refusal_precision
from refusal_index.plugins.inspect.two_pass import TwoPassError, two_pass

__all__ = ["TwoPassError", "outcome", "over_refusal", "refusal_index", "refusal_precision", "two_pass"]
