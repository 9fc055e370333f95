"""What an embedded model will say, learnt by asking it: nothing is sent, nothing is paid, and nothing is written.

A request's seed decides an embedded model's reply, so what it says now is what it says in the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from inspect_ai.model import GenerateConfig, Model, ModelOutput

from refusal_index.engines.inspect.courier import chat_messages, replies_in
from refusal_index.engines.inspect.environment import environment
from refusal_index.engines.inspect.evaluate import rare_collections
from refusal_index.engines.inspect.models import resolve_model
from refusal_index.engines.inspect.plan import RunPlan
from refusal_index.protocol import Request
from refusal_index.protocol.estimate import Foreseen

FirstPass = tuple[str, str]
"""A first pass, by its question's id and its variant."""


def foreseen_replies(
    plan: RunPlan, requests: Mapping[FirstPass, tuple[int, Request]], replied: Callable[[], None]
) -> dict[FirstPass, Foreseen]:
    """Return what the model of `plan` will reply.

    Parameters
    ----------
    plan
        The run; its model is an embedded one.
    requests
        What it will be asked, each with its seed.
    replied
        Called with every reply, for a progress bar.
    """
    with environment(INSPECT_DISPLAY="none"), rare_collections():
        return asyncio.run(_ask(plan, requests, replied))


async def _ask(
    plan: RunPlan, requests: Mapping[FirstPass, tuple[int, Request]], replied: Callable[[], None]
) -> dict[FirstPass, Foreseen]:
    async with resolve_model(plan.model, plan.decoding.to_config()) as model:

        async def reply(seed: int, request: Request) -> Foreseen:
            output = await _generate(model, seed, request)
            replied()
            return Foreseen(replies_in(output, request)[0], output.usage.output_tokens if output.usage else 0)

        said = await asyncio.gather(*(reply(*asked) for asked in requests.values()))
    return dict(zip(requests, said, strict=True))


async def _generate(model: Model, seed: int, request: Request) -> ModelOutput:
    return await model.generate(chat_messages(request), config=GenerateConfig(seed=seed))
