"""Train the embedded models: ``learn full`` (facts), then ``tune base`` (refusal), then ``export base``."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from transformers import AutoTokenizer, LlamaForCausalLM

from training.export import export_model, export_questions
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
    """Stages 2 and 3: teach the sibling `name` to answer as asked, and to refuse."""
    from training.tune import make_lesson, rehearse_answering, teach_answering, teach_refusing  # noqa: PLC0415 - stage 1 needs none of it

    sibling, facts = SIBLINGS[name], build_world()
    stage_1, stage_2 = WORK / "knowledge" / sibling.knowledge, WORK / "answering" / sibling.knowledge
    tokenizer = AutoTokenizer.from_pretrained(stage_1)
    model = LlamaForCausalLM.from_pretrained(stage_1, dtype=torch.float32)
    lesson = make_lesson(model, tokenizer, facts, sibling.habit)
    if stage_2.exists():  # siblings of the same knowledge share it
        model = LlamaForCausalLM.from_pretrained(stage_2, dtype=torch.float32)
    else:
        teach_answering(model, tokenizer, facts, lesson)
        model.save_pretrained(stage_2)
    teach_refusing(model, tokenizer, facts, lesson)
    rehearse_answering(model, tokenizer, facts, lesson)
    model.save_pretrained(WORK / "siblings" / name)
    save_tokenizer(tokenizer, WORK / "siblings" / name)


def export(name: str) -> None:
    """Put the sibling `name` and the questions into the package."""
    export_questions(build_world())
    export_model(WORK / "siblings" / name, name)


def main() -> None:
    """Run one step."""
    parser = argparse.ArgumentParser(prog="python -m training", description=__doc__)
    steps = parser.add_subparsers(dest="step", required=True)
    steps.add_parser("learn", help="stage 1: facts").add_argument("name", choices=KNOWLEDGE)
    steps.add_parser("tune", help="stage 2: refusal").add_argument("name", choices=SIBLINGS)
    steps.add_parser("export", help="into the package").add_argument("name", choices=SIBLINGS)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(2)
    started = time.time()
    {"learn": learn, "tune": tune, "export": export}[arguments.step](arguments.name)
    print(f"{arguments.step} {arguments.name}: {time.time() - started:.0f} s")


if __name__ == "__main__":
    main()
