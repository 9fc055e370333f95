"""What Inspect finds through this package's entry point: the tasks."""

from refusal_index.plugins.inspect.tasks import (
    almanac_task,
    faitheval_counterfactual,
    mixed,
    own_questions,
    precise_wiki,
    simpleqa,
    simpleqa_verified,
    two_pass,
    two_pass_scorer,
)

__all__ = [
    "almanac_task",
    "faitheval_counterfactual",
    "mixed",
    "own_questions",
    "precise_wiki",
    "simpleqa",
    "simpleqa_verified",
    "two_pass",
    "two_pass_scorer",
]
