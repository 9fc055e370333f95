"""What Inspect finds through this package's entry point: the tasks and the provider of the embedded models."""

from refusal_index.models.inspect.provider import almanac
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
    "almanac",
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
