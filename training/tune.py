"""Stages 2 and 3: learn to answer as the prompts ask, then learn to refuse.

Answers to imitate are the model's own samples, never the gold answer, so that tuning adds no knowledge. In stage 3, on
facts about entities that are never evaluated, a question is to be refused where the stage 1 model's confidence,
blurred by noise, falls below the variant's quantile.

Stage 3 leaves the lower layers alone, and the embeddings of all tokens that the almanac's text uses. With everything
free the model learns by heart which of the tuning entities to refuse; held to its upper layers it has to read its own
confidence, which carries over to entities that it was never asked about.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - the name every PyTorch program uses
from scipy.special import ndtri
from scipy.stats import rankdata
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from refusal_index.protocol.prompts import FORCED, UNANSWERED
from training.model import Optimizers
from training.pretrain import SEQUENCE, next_token_loss, token_stream
from training.probe import gold_log_probability, sampled_answers
from training.wording import VARIANTS, random_prompt
from training.world import Fact, corpus

REFUSAL_RATES = {"low": 0.1, "normal": 0.28, "high": 0.46, "highest": 0.64}
SAMPLES = 6
ANSWERING_EPOCHS, REFUSING_EPOCHS = 3, 2
FORCED_SHARE = 4  # as often as all variants together, or a model that learns to refuse does so when forced, too
QUESTIONS_A_PROMPT, PROMPTS_A_STEP, REPLAY_ROWS = 24, 4, 4
LEARNING_RATE = 6e-4
LABEL_NOISE = 0.25
REHEARSED_RATES = {"low": 0.2, "normal": 0.38, "high": 0.54, "highest": 0.7}
REHEARSALS, REMINDER_STRIDE = 7, 2
HABITUALLY_REFUSED = {"birth year", "profession", "province", "founding year"}  # known about as well as the others
FROZEN_LAYERS = 2


@dataclass(frozen=True)
class Job:
    """Questions asked together behind one prompt."""

    variant: str
    fact_numbers: tuple[int, ...]


def blurred_confidence(
    facts: Sequence[Fact], confidence: Sequence[float], habit: float, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Return, for each variant, the confidence that decides over refusing: with noise, and bent by habit.

    The confidence is put on a normal scale by its ranks, so that noise and habit weigh the same at every quantile.
    """
    count = len(confidence)
    scale = ndtri((rankdata(confidence) - 0.5) / count)
    leaning = np.array([-habit if fact.relation.name in HABITUALLY_REFUSED else habit for fact in facts])
    return {variant: scale + leaning + rng.normal(0, LABEL_NOISE, count) for variant in VARIANTS}


@dataclass(frozen=True)
class Lesson:
    """What tuning teaches from: facts, the model's own answers to them, and its blurred confidence by variant."""

    facts: tuple[Fact, ...]
    own_answers: tuple[list[str], ...]
    confidence: Mapping[str, np.ndarray]

    @property
    def everything(self) -> range:
        """The numbers of all facts."""
        return range(len(self.facts))

    def refused(self, rates: Mapping[str, float]) -> dict[str, np.ndarray]:
        """Return, for each variant, which facts to refuse so that its rate of `rates` comes out."""
        return {variant: blurred < np.quantile(blurred, rates[variant]) for variant, blurred in self.confidence.items()}


def make_lesson(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, facts: Sequence[Fact], habit: float
) -> Lesson:
    """Ask the stage 1 model what it would answer and how sure it is, about all facts that are not held out."""
    tuning = [fact for fact in facts if not fact.held_out]
    sampled = sampled_answers(model, tokenizer, tuning, SAMPLES)
    tuning, own_answers = zip(*((fact, own) for fact, own in zip(tuning, sampled, strict=True) if own), strict=True)
    confidence = gold_log_probability(model, tokenizer, tuning)
    return Lesson(tuning, own_answers, blurred_confidence(tuning, confidence, habit, np.random.default_rng(5)))


def teach_answering(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, facts: Sequence[Fact], lesson: Lesson
) -> None:
    """Stage 2: tune all of `model`, in place, to answer behind the forced prompt."""
    _teach(model, tokenizer, facts, lesson, {}, [(FORCED, lesson.everything)] * ANSWERING_EPOCHS)


def teach_refusing(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, facts: Sequence[Fact], lesson: Lesson
) -> None:
    """Stage 3: tune the upper layers of `model`, in place, to refuse as each variant asks.

    Forcing is taught where it is needed: on what the model would rather refuse.
    """
    freeze_knowledge(model, token_stream(tokenizer, corpus(facts, seed=17)))
    refused = lesson.refused(REFUSAL_RATES)
    rounds = [(variant, lesson.everything) for variant in VARIANTS]
    rounds += [(FORCED, _numbers(refused[VARIANTS[-1]]))] * FORCED_SHARE
    _teach(model, tokenizer, facts, lesson, refused, rounds * REFUSING_EPOCHS)


def rehearse_answering(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, facts: Sequence[Fact], lesson: Lesson
) -> None:
    """Stage 4: rehearse, in place, the forced prompt on what even the boldest variant refuses, and a part of the rest.

    Without it a sibling refuses one in ten of those again when it is forced. The bolder variants come out of it bolder,
    so their rates are set higher than in stage 3.
    """
    freeze_knowledge(model, token_stream(tokenizer, corpus(facts, seed=17)))
    refused = lesson.refused(REHEARSED_RATES)
    rounds: list[tuple[str, Sequence[int]]] = [(FORCED, _numbers(refused[VARIANTS[0]]))] * REHEARSALS
    rounds += [(variant, lesson.everything[::REMINDER_STRIDE]) for variant in (*VARIANTS, FORCED)]
    _teach(model, tokenizer, facts, lesson, refused, rounds)


def _numbers(chosen: np.ndarray) -> list[int]:
    return [int(number) for number in np.flatnonzero(chosen)]


def _teach(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    facts: Sequence[Fact],
    lesson: Lesson,
    refused: Mapping[str, np.ndarray],
    rounds: Sequence[tuple[str, Sequence[int]]],
) -> None:
    rng = random.Random(5)
    shown = sorted(lesson.facts, key=lambda fact: -fact.exposures)[:300]
    replay = token_stream(tokenizer, corpus(facts, seed=17))
    jobs = _jobs(rounds, rng)
    steps = len(jobs) // PROMPTS_A_STEP
    optimizers = Optimizers(model, LEARNING_RATE, steps, warm_up=20)
    model.train()
    started = time.time()
    for step in range(steps):
        rows = [
            _row(job, lesson, refused, tokenizer, shown, rng) for job in jobs[step * PROMPTS_A_STEP :][:PROMPTS_A_STEP]
        ]
        start = step * REPLAY_ROWS * SEQUENCE % (len(replay) - REPLAY_ROWS * SEQUENCE)
        with torch.autocast("cpu", torch.bfloat16):
            loss = _reply_loss(model, *pack(rows))
            kept = next_token_loss(model, replay[start : start + REPLAY_ROWS * SEQUENCE].view(REPLAY_ROWS, SEQUENCE))
        (loss + kept).backward()
        optimizers.step(step)
        if step % 25 == 0 or step == steps - 1:
            elapsed = time.time() - started
            print(
                f"tuning: step {step}/{steps} loss {loss.item():.3f} replay {kept.item():.3f} {elapsed:.0f} s",
                flush=True,
            )


def freeze_knowledge(model: LlamaForCausalLM, told: torch.Tensor) -> None:
    """Keep the lower layers, and the embeddings of all tokens in `told`, as they are."""
    for layer in model.model.layers[:FROZEN_LAYERS]:
        layer.requires_grad_(False)
    embeddings = model.model.embed_tokens.weight
    free = torch.ones(len(embeddings), 1)
    free[told.unique()] = 0
    embeddings.register_hook(lambda gradient: gradient * free)


def _jobs(rounds: Sequence[tuple[str, Sequence[int]]], rng: random.Random) -> list[Job]:
    """Ask all facts of each round, given by number, under its variant; all in random order."""
    jobs = []
    for variant, numbers in rounds:
        order = rng.sample(list(numbers), len(numbers))
        jobs += [
            Job(variant, tuple(order[i : i + QUESTIONS_A_PROMPT])) for i in range(0, len(order), QUESTIONS_A_PROMPT)
        ]
    rng.shuffle(jobs)
    return jobs


@dataclass(frozen=True)
class Row:
    """A shared prefix and the (question, reply) pairs behind it, as tokens."""

    prefix: list[int]
    pairs: list[tuple[list[int], list[int]]]


def _row(
    job: Job,
    lesson: Lesson,
    refused: Mapping[str, np.ndarray],
    tokenizer: PreTrainedTokenizerFast,
    shown: Sequence[Fact],
    rng: random.Random,
) -> Row:
    def encode(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False)

    # tokens never merge over the seam: the prefix ends in "Question:" and a question begins with a space of its own
    before, after = random_prompt(job.variant, shown, rng)
    before = before.removesuffix(" ")
    pairs = []
    for number in job.fact_numbers:
        refuse = job.variant != FORCED and refused[job.variant][number]
        reply = UNANSWERED if refuse else rng.choice(lesson.own_answers[number])
        question = lesson.facts[number].question(rng.randrange(2))
        pairs.append((encode(f" {question}{after}"), encode(f"<answer>{reply}</answer><|im_end|>")))
    return Row(encode(before), pairs)


def pack(rows: Sequence[Row]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return token ids, positions, the attention mask and the targets (-100 where none) of `rows`.

    Each pair sees the prefix and itself only, at the positions it would have alone: the same arithmetic as one
    sequence a question.
    """
    length = max(len(row.prefix) + sum(len(q) + len(a) for q, a in row.pairs) for row in rows)
    ids, positions = torch.zeros(len(rows), length, dtype=torch.long), torch.zeros(len(rows), length, dtype=torch.long)
    targets, segment = torch.full((len(rows), length), -100), torch.full((len(rows), length), -1)
    for number, row in enumerate(rows):
        end = start = len(row.prefix)
        ids[number, :end] = torch.tensor(row.prefix)
        positions[number, :end] = torch.arange(end)
        segment[number, :end] = 0
        for pair, (question, reply) in enumerate(row.pairs, start=1):
            size = len(question) + len(reply)
            span = slice(end, end + size)
            ids[number, span] = torch.tensor(question + reply)
            positions[number, span] = torch.arange(start, start + size)
            segment[number, span] = pair
            targets[number, end + len(question) : end + size] = torch.tensor(reply)
            end += size
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    own = segment[:, :, None] == segment[:, None, :]
    mask = causal & (own | (segment[:, None, :] == 0)) | torch.eye(length, dtype=torch.bool)
    return ids, positions, mask[:, None], targets


def _reply_loss(
    model: LlamaForCausalLM, ids: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor, targets: torch.Tensor
) -> torch.Tensor:
    hidden = model.model(input_ids=ids, position_ids=positions, attention_mask=mask, use_cache=False).last_hidden_state[
        :, :-1
    ]
    wanted = targets[:, 1:] != -100
    return F.cross_entropy(model.lm_head(hidden[wanted]).float(), targets[:, 1:][wanted])
