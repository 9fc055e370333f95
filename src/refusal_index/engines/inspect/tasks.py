"""The tasks that ``inspect eval refusal_index/...`` finds.

Their replies stay in Inspect's own cache without expiry, so that variants share forced answers: the same task with the
same seed is answered from there. Another ``-T seed=...`` draws anew, as does another folder in INSPECT_CACHE_DIR.
"""

from __future__ import annotations

from inspect_ai import Task, task

from refusal_index.datasets import Dataset, load_dataset, sample
from refusal_index.engines.inspect.task import Asking, Decoding, two_pass_task
from refusal_index.protocol import GraderKind, Placement, check_gradable


@task
def simpleqa(
    variant: str = "normal",
    data: str | None = None,
    limit: int | None = None,
    grader: str = "model",
    prompts: str = "default",
    placement: str = "user",
    seed: int = 0,
) -> Task:
    """Ask SimpleQA in two passes.

    Parameters
    ----------
    variant
        First-pass variant of the prompt set: ``low``, ``normal``, ``high`` or ``highest``.
    data
        A local copy of the dataset; downloaded and checked where it is not given.
    limit
        Size of a seeded sample of the questions.
    grader
        ``"model"`` for the model in the role ``grader`` (openai/gpt-4o-mini unless set); ``"agree"`` for that one and
        another in the role ``second_grader``; or ``"exact"``, ``"choice"`` or ``"regex"``.
    prompts, placement, seed
        Prompt set, where its instruction stands, and the seed of the run.
    """
    return _task(load_dataset("simpleqa", data=data), variant, limit, grader, prompts, placement, seed)


@task
def simpleqa_verified(
    variant: str = "normal",
    data: str | None = None,
    limit: int | None = None,
    grader: str = "model",
    prompts: str = "default",
    placement: str = "user",
    seed: int = 0,
) -> Task:
    """Ask SimpleQA Verified in two passes; takes the same arguments as `simpleqa`."""
    return _task(load_dataset("simpleqa_verified", data=data), variant, limit, grader, prompts, placement, seed)


@task(name="almanac")
def almanac_task(
    variant: str = "normal",
    limit: int | None = None,
    grader: str = "exact",
    prompts: str = "default",
    placement: str = "user",
    seed: int = 0,
) -> Task:
    """Ask the embedded models' own questions in two passes; takes the same arguments as `simpleqa`, without a file."""
    return _task(load_dataset("almanac"), variant, limit, grader, prompts, placement, seed)


@task
def precise_wiki(
    data: str,
    variant: str = "normal",
    limit: int | None = None,
    grader: str = "model",
    prompts: str = "default",
    placement: str = "user",
    seed: int = 0,
) -> Task:
    """Ask a set of PreciseWikiQA in two passes; takes the same arguments as `simpleqa`."""
    return _task(load_dataset("precise_wiki", data=data), variant, limit, grader, prompts, placement, seed)


@task
def faitheval_counterfactual(
    data: str | None = None,
    variant: str = "normal",
    limit: int | None = None,
    grader: str = "choice",
    prompts: str = "default",
    placement: str = "user",
    seed: int = 0,
) -> Task:
    """Ask FaithEval's counterfactual questions in two passes; takes the same arguments as `simpleqa`."""
    return _task(load_dataset("faitheval_counterfactual", data=data), variant, limit, grader, prompts, placement, seed)


@task
def mixed(
    datasets: str,
    data: str | list[str] | None = None,
    variant: str = "normal",
    limit: int | None = None,
    grader: str = "model",
    prompts: str = "default",
    placement: str = "user",
    seed: int = 0,
) -> Task:
    """Ask as many questions of each of several datasets in two passes.

    The questions of FaithEval without a right answer are asked in this way only: alone, they leave the index undefined.

    Parameters
    ----------
    datasets
        Their names, joined by ``+``, as in ``faitheval_unanswerable+precise_wiki``.
    data
        Local files of those that need one, or of all, in their order, separated by commas.
    variant, limit, grader, prompts, placement, seed
        As for `simpleqa`.
    """
    files = data.split(",") if isinstance(data, str) else data
    chosen = load_dataset(datasets, data=files, mix_seed=seed)
    return _task(chosen, variant, limit, grader, prompts, placement, seed)


@task(name="own")
def own_questions(
    data: str,
    variant: str = "normal",
    limit: int | None = None,
    grader: str = "model",
    prompts: str = "default",
    placement: str = "user",
    seed: int = 0,
) -> Task:
    """Ask a file of questions in two passes; takes the same arguments as `simpleqa`."""
    return _task(load_dataset("own", data=data), variant, limit, grader, prompts, placement, seed)


def _task(
    dataset: Dataset, variant: str, limit: int | None, grader: str, prompts: str, placement: str, seed: int
) -> Task:
    chosen = dataset if limit is None else sample(dataset, limit, seed)
    check_gradable(chosen.questions, GraderKind(grader))
    asking = Asking(prompts, GraderKind(grader), Placement(placement), seed)
    return two_pass_task(chosen, variant, asking, Decoding())
