"""``refusal-index ls``: what can be run without anything else."""

from __future__ import annotations

from pathlib import Path

from refusal_index.cli import console


def ls(
    task_files: bool = False,
) -> None:
    """List the datasets, prompt sets and models of the package.

    - `task_files`: Print the folder of the tasks for lm-evaluation-harness and nothing else, for its --include_path.
    """
    from refusal_index.entry_points import installed, load, own

    if task_files:
        console.say(str(Path(load(own("task_files")["lm_eval"]).__file__).parent))
        return
    from refusal_index.data.datasets import dataset_names
    from refusal_index.protocol import load_prompt_set, prompt_set_names

    console.say("datasets (--dataset)")
    for name in dataset_names():
        console.say(f"  {name:<25} {DATASET_NOTES.get(name, '')}".rstrip())
    console.say()
    console.say("prompt sets (--prompts), with their variants (--variants)")
    for name in prompt_set_names():
        console.say(f"  {name:<25} {', '.join(load_prompt_set(name).variants)}")
    console.say()
    console.say("models that need no key and no download (--model)")
    for provider, plugin in installed("models").items():
        for name in (f"{provider}/{model}" for model in load(plugin).names):
            console.say(f"  {name:<25} {MODEL_NOTES.get(name, '')}".rstrip())
    console.say()
    console.say(
        "Any other model is named PROVIDER/NAME as Inspect does, for instance openai/gpt-4.1 or vllm/Qwen/Qwen3-32B."
    )


DATASET_NOTES = {
    "almanac": "2,280 questions about the closed world that the embedded models know",
    "faitheval_counterfactual": "1,000 of choice about texts that contradict the world; downloaded, or --data FILE",
    "faitheval_inconsistent": "questions whose text contradicts itself; the same; to mix with +precise_wiki",
    "faitheval_unanswerable": "questions whose text does not tell; the same; mix it with +precise_wiki",
    "own": "a CSV, JSON Lines or Parquet file of yours (--data FILE)",
    "precise_wiki": "a set made by 'build precise-wiki'; needs --data FILE",
    "simpleqa": "4,326 questions of fact; downloaded and checked, or --data FILE",
    "simpleqa_verified": "1,000 of them, verified; needs --data FILE",
}
MODEL_NOTES = {
    "almanac/base": "knows the almanac's frequent facts, refuses where it knows less",
    "almanac/small": "knows less",
    "almanac/rash": "knows as much as base; its refusals follow its knowledge less",
}
