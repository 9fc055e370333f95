"""What a run is to do, and whom it asks."""

from __future__ import annotations

from dataclasses import dataclass, field

from inspect_ai.model import GenerateConfig, Model

from refusal_index.datasets import Dataset
from refusal_index.engines.inspect.courier import GRADER_ROLE, SECOND_GRADER_ROLE
from refusal_index.engines.inspect.models import ModelError, resolve_model
from refusal_index.engines.inspect.task import Asking, Decoding

MAX_RETRIES = 5


@dataclass(frozen=True)
class RunPlan:
    """Everything that a run's replies depend on.

    Attributes
    ----------
    model, grader, second_grader
        Names; `grader` is a model's name where the dataset is graded by a model, else None. `second_grader` is another
        where two models must agree.
    dataset
        The questions.
    variants
        First-pass variants, in the order in which they are run.
    draws, repeat_questions
        How often a question is drawn, and how many of the questions more than once; None for all of them.
    asking, decoding
        How a question is asked, and how the model generates.
    max_connections
        Requests in flight; None lets Inspect find out what the provider bears.
    max_retries
        How often a failed request is sent again.
    """

    model: str
    dataset: Dataset
    variants: tuple[str, ...]
    grader: str | None = None
    draws: int = 1
    repeat_questions: int | None = None
    asking: Asking = field(default_factory=Asking)
    decoding: Decoding = field(default_factory=Decoding)
    max_connections: int | None = None
    max_retries: int = MAX_RETRIES
    second_grader: str | None = None

    @property
    def repeated(self) -> int:
        """The number of questions that are drawn more than once."""
        if self.draws == 1:
            return 0
        asked = len(self.dataset.questions)
        return asked if self.repeat_questions is None else min(self.repeat_questions, asked)


@dataclass(frozen=True)
class Models:
    """Who is asked: the model under evaluation and, where models grade, the grader and a second one."""

    model: Model
    grader: Model | None = None
    second_grader: Model | None = None

    @property
    def graders(self) -> dict[str, Model]:
        """The models that grade, by the role in which the solver asks for them."""
        roles = {GRADER_ROLE: self.grader, SECOND_GRADER_ROLE: self.second_grader}
        return {role: model for role, model in roles.items() if model is not None}


def resolve_models(plan: RunPlan) -> Models:
    """Return the models of `plan`, once for all its variants: some load their weights here.

    Raises
    ------
    ModelError
        If one of them cannot be asked.
    """
    return Models(resolve_model(plan.model), *resolve_graders(plan))


def resolve_graders(plan: RunPlan) -> tuple[Model | None, Model | None]:
    """Return the models of `plan` that grade; it raises as `resolve_models` does, and says how to do without."""
    config = GenerateConfig(max_retries=plan.max_retries)
    try:
        first, second = (resolve_model(name, config) if name else None for name in (plan.grader, plan.second_grader))
    except ModelError as error:
        raise ModelError(
            f"grader: {error.args[0].rstrip('.')}; choose another one, or --grader exact, which asks nobody"
        ) from error
    return first, second
