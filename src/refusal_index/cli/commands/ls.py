"""``refusal-index ls``: datasets, prompt sets and models that come with the package."""

from __future__ import annotations

from pathlib import Path

from refusal_index.cli import console


def ls(
    task_files: bool = False,
) -> None:
    """List datasets, prompt sets and embedded models.

    - `task_files`: Print only the folder of the lm-evaluation-harness tasks, for its option --include_path.
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
    console.say("models without an API key or a download (--model)")
    for provider, plugin in installed("models").items():
        for name in (f"{provider}/{model}" for model in load(plugin).names):
            console.say(f"  {name:<25} {MODEL_NOTES.get(name, '')}".rstrip())
    console.say()
    console.say("Other models are named PROVIDER/NAME, as in Inspect: openai/gpt-4.1 or vllm/Qwen/Qwen3-32B.")


DATASET_NOTES = {
    "almanac": "2,280 questions about the fictional world that the embedded models know",
    "faitheval_counterfactual": "1,000 multiple-choice questions on texts with false facts; downloaded, or --data FILE",
    "faitheval_inconsistent": "questions on texts that contradict themselves; likewise; mix with +precise_wiki",
    "faitheval_unanswerable": "questions that their text does not answer; likewise; mix with +precise_wiki",
    "own": "your own CSV, JSON Lines or Parquet file (--data FILE)",
    "precise_wiki": "a set made by 'refusal-index build precise-wiki'; needs --data FILE",
    "simpleqa": "4,326 factual questions; downloaded and verified, or --data FILE",
    "simpleqa_verified": "1,000 verified questions of SimpleQA; needs --data FILE",
}
MODEL_NOTES = {
    "almanac/base": "knows the frequent facts of the almanac and refuses where it knows less",
    "almanac/small": "knows less",
    "almanac/rash": "knows as much as base, but refuses less selectively",
}
