"""Train the embedded models: ``python -m training learn full``, then ``python -m training tune base``, then export."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from transformers import AutoTokenizer, LlamaForCausalLM

from training.model import make_model
from training.pretrain import pretrain
from training.siblings import KNOWLEDGE, SIBLINGS
from training.tokenizer import save_tokenizer, train_tokenizer
from training.world import build_world

WORK = Path(__file__).parent / "work"


def learn(name: str) -> None:
    """Stage 1: train the knowledge model `name` and save it under ``training/work``."""
    facts = build_world()
    tokenizer = train_tokenizer(facts)
    model = make_model(len(tokenizer), KNOWLEDGE[name].size)
    pretrain(model, tokenizer, facts, share=KNOWLEDGE[name].text_share)
    model.save_pretrained(WORK / "knowledge" / name)
    save_tokenizer(tokenizer, WORK / "knowledge" / name)


def tune(name: str) -> None:
    """Stage 2: teach the sibling `name` to refuse."""
    from training.tune import tune_refusal  # noqa: PLC0415 - stage 1 needs none of it

    sibling = SIBLINGS[name]
    folder = WORK / "knowledge" / sibling.knowledge
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tune_refusal(model, tokenizer, build_world(), label_noise=sibling.label_noise)
    model.save_pretrained(WORK / "siblings" / name)
    save_tokenizer(tokenizer, WORK / "siblings" / name)


def main() -> None:
    """Run one step."""
    parser = argparse.ArgumentParser(prog="python -m training", description=__doc__)
    steps = parser.add_subparsers(dest="step", required=True)
    steps.add_parser("learn", help="stage 1: facts").add_argument("name", choices=KNOWLEDGE)
    steps.add_parser("tune", help="stage 2: refusal").add_argument("name", choices=SIBLINGS)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(2)
    started = time.time()
    {"learn": learn, "tune": tune}[arguments.step](arguments.name)
    print(f"{arguments.step} {arguments.name}: {time.time() - started:.0f} s")


if __name__ == "__main__":
    main()
