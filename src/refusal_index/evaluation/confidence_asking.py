"""What is still to be asked for scores: counted beforehand, and asked wave by wave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from refusal_index.almanac import ALMANAC
from refusal_index.engines.budget import Budget
from refusal_index.engines.events import Opened, Progress
from refusal_index.engines.registry import BATCH, engine_of, note_on
from refusal_index.engines.store import ReplyStore
from refusal_index.engines.waves.in_flight import refuse_in_flight
from refusal_index.evaluation.confidence_evidence import OWN, Sources
from refusal_index.evaluation.confidence_plan import ConfidencePlan
from refusal_index.evaluation.dry_run import request_tokens
from refusal_index.evaluation.stores import open_store
from refusal_index.evaluation.waves import Wave, ask_waves
from refusal_index.outcomes.folder import RunFolder
from refusal_index.protocol import FORCED, Asked, Conversation, due


@dataclass(frozen=True)
class Pending:
    """What is still to be asked under one name.

    Attributes
    ----------
    name, questions
        Of a prompt, or the forced pass, and how many questions.
    requests, most
        Requests to the model; the most are sent where no log probabilities come, or answers come out otherwise.
    input_tokens
        About how many, of the least.
    """

    name: str
    questions: int
    requests: int
    most: int
    input_tokens: int


def pending(plan: ConfidencePlan) -> list[Pending]:
    """Return what is still to be asked of a run, wave by wave; nothing is sent or written.

    Requests to a model that grades are not counted: each answer takes one, or two where its verdict cannot be read.
    """
    with open_store(plan.folder, made=False) as store, plan.own_store(made=False) as own:
        sources = Sources(store, own, plan.grader)
        answers = _still(plan, plan.missing_answers(sources), own)
        found = [_pending(plan, FORCED, answers, (), own)]
        for prompt in plan.own_prompts:
            talks = plan.probes(prompt, sources)
            there = {one.question.question_id for one in talks}
            new = plan.probed(
                prompt, [one.question for one in answers if one.question.question_id not in there], sources
            )
            due_now = [*_still(plan, talks, own), *new]
            renewed = {one.question.question_id for one in answers} & there - {
                one.question.question_id for one in due_now
            }
            anew = () if prompt.is_graded else [one for one in talks if one.question.question_id in renewed]
            found.append(_pending(plan, prompt.name, due_now, anew, own, prompt.draws))
    return [one for one in found if one.most]


def _pending(
    plan: ConfidencePlan,
    name: str,
    talks: Sequence[Conversation],
    anew: Sequence[Conversation],
    own: ReplyStore,
    draws: int = 1,
) -> Pending:
    asks = [(talk, one) for talk in talks for one in due(talk, plan.current(talk, own))]
    own_asks = [(talk, one) for talk, one in asks if one.step.asked is Asked.MODEL]
    tokens = sum(
        one.choices * request_tokens(plan.settings.model, talk.procedure.request(one.step, talk.question))
        for talk, one in own_asks
    )
    requests, embedded = sum(one.choices for _, one in own_asks), plan.settings.model.startswith(f"{ALMANAC}/")
    each = 1 if embedded else draws
    most = sum(one.choices if one.choices > 1 else each for _, one in own_asks) + each * len(anew)
    return Pending(name, len(talks) + len(anew), requests, most, tokens)


def _still(plan: ConfidencePlan, talks: Sequence[Conversation], own: ReplyStore) -> list[Conversation]:
    return [one for one in talks if due(one, plan.current(one, own))]


async def ask(plan: ConfidencePlan, sources: Sources, progress: Progress, budget: Budget) -> str | None:
    """Ask what is missing, if anything is, and return why it ended before that, as it was told to."""
    if not any(_taken_down(plan, wave, sources.own)[1] for wave in plan.waves(sources)):
        return None
    own = RunFolder(plan.folder.path / OWN)
    if plan.settings.sending.engine != BATCH:
        if plan.settings.sending.forget:
            from refusal_index.engines.waves.batch import give_up  # noqa: PLC0415 - of one engine only

            await give_up(plan.settings, plan.names, plan.objects, own)
        refuse_in_flight(own, sources.own)
    engine = engine_of(plan.settings.sending.engine)(plan.settings, plan.names, plan.objects)
    progress(Opened(0, note_on(plan.settings.sending)))
    waves = (_taken_down(plan, wave, sources.own) for wave in plan.waves(sources))
    return await ask_waves(waves, plan.settings, own, engine, sources.own, progress, budget)


def _taken_down(plan: ConfidencePlan, wave: Wave, own: ReplyStore) -> Wave:
    """Have the store know the questions of a wave, set aside what is of other requests, and leave what is to be asked.

    What was replied about another answer than the one that is scored now is no judgement on this one.
    """
    variant, talks = wave
    own.ask(variant, {one.question: one.draws for one in talks})
    for talk in talks:
        kept, passes = set(plan.current(talk, own)), talk.procedure.passes
        said = own.said(talk.question.question_id, variant)
        own.retire([one for one in said if one.reply.of in passes and one not in kept])
    return variant, _still(plan, talks, own)
