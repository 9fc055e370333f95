"""The tasks that ``inspect eval refusal_index/...`` finds: one task, under the name of each dataset.

Whether replies are cached is left to Inspect's own ``--cache``.
"""

from __future__ import annotations

from collections.abc import Callable

from inspect_ai import Task, task

from refusal_index.datasets import load_dataset, sample
from refusal_index.engines.inspect.task import two_pass_task
from refusal_index.engines.settings import Settings
from refusal_index.protocol import (
    Conversation,
    GraderKind,
    Placement,
    Protocol,
    TwoPass,
    check_gradable,
    load_prompt_set,
)


def _task_of(name: str, default_grader: GraderKind = GraderKind.MODEL) -> Callable[..., Task]:
    """Return the task that asks a dataset; of ``mixed``, the datasets are an argument."""

    @task(name=name)
    def ask(
        variant: str = "normal",
        data: str | None = None,
        limit: int | None = None,
        grader: str = default_grader,
        prompts: str = "default",
        placement: str = "user",
        think: str = "",
        draws: int = 1,
        seed: int = 0,
        datasets: str = name,
    ) -> Task:
        """Ask a dataset in two passes.

        Parameters
        ----------
        variant
            First-pass variant of the prompt set: ``low``, ``normal``, ``high`` or ``highest``.
        data
            A local copy of the dataset, downloaded and checked where it is not given; of a mix, one for each that needs
            one, separated by commas.
        limit
            Size of a seeded sample of the questions.
        grader
            ``"model"`` for the model in the role ``grader`` (openai/gpt-4o-mini unless set); ``"agree"`` for that one
            and another in the role ``second_grader``; or ``"exact"``, ``"choice"`` or ``"regex"``.
        prompts, placement, think
            Prompt set, where its instruction stands, and a switch that ends what the model is asked.
        draws, seed
            How often each question is drawn, and the seed of the run.
        datasets
            Of a mix, its datasets, joined by ``+``.
        """
        files = data.split(",") if isinstance(data, str) else data
        dataset = load_dataset(datasets, data=files, mix_seed=seed)
        dataset = dataset if limit is None else sample(dataset, limit, seed)
        kind = GraderKind(grader)
        check_gradable(dataset.questions, kind)
        procedure = TwoPass(kind, Protocol(load_prompt_set(prompts), variant, kind, Placement(placement), think))
        shared = {"variant": variant, "prompts": prompts, "grader": grader, "placement": placement, "think": think}
        conversations = [Conversation(question, variant, procedure, draws) for question in dataset.questions]
        return two_pass_task(dataset.name, conversations, Settings.of(seed=seed), shared, {"draws": draws})

    return ask


simpleqa = _task_of("simpleqa")
simpleqa_verified = _task_of("simpleqa_verified")
almanac_task = _task_of("almanac", GraderKind.EXACT)
precise_wiki = _task_of("precise_wiki")
faitheval_counterfactual = _task_of("faitheval_counterfactual", GraderKind.CHOICE)
mixed = _task_of("mixed")
own_questions = _task_of("own")
