"""What a run's folder has paid for: replies looked up in its cache, and nothing sent.

Inspect names a reply in its cache by all that was asked. So it is Inspect that is asked, for models that cannot answer:
what comes back was there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from typing import Any, NoReturn

from inspect_ai.model import GenerateConfig, Model

from refusal_index.engines.inspect.courier import CACHE, chat_messages, replies_in
from refusal_index.engines.inspect.evaluate import at_work
from refusal_index.engines.inspect.models import resolve_model
from refusal_index.engines.inspect.plan import RunPlan
from refusal_index.outcomes.folder import RunFolder
from refusal_index.protocol import Asked, Reply, Request, request_seed

Look = Callable[[str, str, Request, int, int], Sequence[Reply]]
"""Returns the replies to a request, from its question's id, its variant, itself, a draw and a number of choices."""


class NotPaidError(Exception):
    """A request that was not answered before."""


@contextmanager
def paid_replies(plan: RunPlan, folder: RunFolder) -> Iterator[Look]:
    """Give a function that looks up what `plan` would ask in the cache of `folder`.

    Raises
    ------
    ModelError
        If one of the models cannot be asked: without its key or its address nobody knows under what name replies lie.
    """
    models = _models(plan)
    with at_work(folder), asyncio.Runner() as runner:

        def look(question_id: str, variant: str, request: Request, draw: int, choices: int) -> Sequence[Reply]:
            choices = min(choices, plan.asking.max_choices)
            seed = request_seed(plan.asking.seed, question_id, draw, variant, request)
            config = GenerateConfig(seed=seed, num_choices=choices if choices > 1 else None)
            return runner.run(_fetch(models[request.asked], request, config, choices))

        try:
            yield look
        finally:
            runner.run(_close(models))


def _models(plan: RunPlan) -> Mapping[Asked, Model]:
    names = {Asked.MODEL: plan.model, Asked.GRADER: plan.grader, Asked.SECOND_GRADER: plan.second_grader}
    decoding = {Asked.MODEL: plan.decoding.to_config()}
    models = {asked: resolve_model(name, decoding.get(asked)) for asked, name in names.items() if name}
    for model in models.values():
        setattr(model.api, "generate", _refuse)  # noqa: B010 - as in `guard`
    return models


async def _refuse(*_args: Any, **_kwargs: Any) -> NoReturn:
    raise NotPaidError


async def _fetch(model: Model, request: Request, config: GenerateConfig, choices: int) -> Sequence[Reply]:
    try:
        output = await model.generate(chat_messages(request), config=config, cache=CACHE)
    except NotPaidError:
        return ()
    return replies_in(output, request)[:choices]


async def _close(models: Mapping[Asked, Model]) -> None:
    async with AsyncExitStack() as stack:
        for model in models.values():
            await stack.enter_async_context(model)
