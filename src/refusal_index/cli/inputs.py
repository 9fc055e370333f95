"""Commands about the inputs of a run: ``import``, ``validate``, ``prompts`` and ``ls``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refusal_index.cli import console
from refusal_index.cli.shared_options import OF_GRADING, WeightedScoreP, columns_of, output, takes_settings, words_of

if TYPE_CHECKING:
    from refusal_index.models.requests import ModelProvider


@takes_settings(*OF_GRADING)
def import_(
    files: list[Path],
    /,
    out: Annotated[Path, output()],
    forced: Path | None = None,
    format_: str | None = None,
    column: list[str] | None = None,
    map_: list[str] | None = None,
    rows: str | None = None,
    encoding: str = "utf-8",
    scorer: str | None = None,
    grader: str | None = None,
    refusal: str | None = None,
    name: str | None = None,
    dataset: str | None = None,
    variants: str | None = None,
    weighted_score_p: WeightedScoreP = 1.0,
    json: bool = False,
    *,
    values: Mapping[str, Any],
) -> None:
    """Import results from other evaluation tools.

    Writes an outcome table of what 'refusal-index score' reads, and prints the rates of the first pass; grades are not
    changed. Refused questions lack their forced answers unless the file holds both passes or --forced names a second
    file; 'refusal-index force' adds them.

    Exit status: 0 done, 1 answers without a grade left, 2 bad input.

    - `files` FILE: Logs of Inspect, samples of lm-eval, or graded answers (.csv, .tsv, .jsonl, .json, .parquet, .xlsx).
    - `out` FILE: Outcome table to write: .parquet, .csv or .jsonl.
    - `json`: Print the counts as JSON and nothing else.
    """
    from refusal_index.cli.runs import graded_with_progress
    from refusal_index.data.analysis import Analysis
    from refusal_index.data.first_pass import self_contained, to_outcomes
    from refusal_index.data.imports import ReadOptions
    from refusal_index.data.outcome_table import write_outcomes
    from refusal_index.data.tables import file_format
    from refusal_index.findings.tallies import tallies, tally_document
    from refusal_index.render.format import count
    from refusal_index.render.imported import reading_lines
    from refusal_index.render.summary import tally_blocks
    from refusal_index.runs.scoring import FilesToRead, check_asks

    check_asks(grader, values)
    file_format(out)  # before anything is read
    if any(out.resolve() == file.resolve() for file in (*files, *([forced] if forced else []))):
        raise console.OptionError(f"--out: {out} is one of the files to import; choose another name")
    words = words_of(map_)
    options = ReadOptions(
        columns_of(column), scorer, refusal, name, dataset, words, encoding=encoding, rows=rows, grader=grader
    )
    reading = FilesToRead(files, forced, format_, options, variants)
    passes, read = reading.with_grades(values, graded_with_progress).read()
    table = to_outcomes(self_contained(first_pass) for first_pass in passes)
    try:
        write_outcomes(table, out)
    except OSError as error:
        raise console.OptionError(f"--out: {out} cannot be written ({error.strerror}); choose another place") from error
    tallied = tallies(passes, Analysis(weighted_score_p=weighted_score_p))
    lines = reading_lines(read)
    if json:
        console.document([tally_document(tally) for tally in tallied])
        console.note(*lines)
        return
    console.show(tally_blocks(tallied))
    for line in lines:
        console.say()
        console.prose(line)
    console.say()
    n_refused = sum(tally.to_force for tally in tallied)
    further = (
        " 'refusal-index force' sends one request for each refused question, and one or two more if a model grades."
    )
    console.prose(f"{out}: {count(len(table), 'row')}.{further if n_refused else ''}")


MAX_PROBLEMS = 20


def validate(
    file: Path,
    /,
    column: list[str] | None = None,
    encoding: str = "utf-8",
    prompts: str = "default",
    variants: str = "normal",
    max_context_tokens: Annotated[int | None, typer.Option(min=1)] = None,
) -> None:
    """Check a file of questions before a run.

    Prints a summary of the file and the full prompt of its first question, or the problems found, with their lines.

    Exit status: 0 valid, 2 problems or bad input.

    - `file` FILE: Questions (.csv, .tsv, .jsonl, .parquet, .xlsx).
    - `column` ROLE=NAME: Name a column, as in question=problem. Repeatable.
    - `variants` NAME: Prompt in which to show the first question.
    - `max_context_tokens`: Context length of the model; longer prompts are reported as problems.
    """
    from refusal_index.data.datasets.dataset import Survey, question_reader
    from refusal_index.protocol import FORCED, load_prompt_set
    from refusal_index.protocol.prompt_length import CHARACTERS_PER_TOKEN, longest_in_characters, whole_prompt
    from refusal_index.protocol.worked_examples import example_finder
    from refusal_index.runs.gold_answers import declines

    prompt_set = load_prompt_set(prompts)
    console.one_of("--variants", variants, [*prompt_set.variants, FORCED])
    questions = question_reader(file, columns_of(column), encoding)
    length = longest_in_characters(prompt_set)
    example_of = example_finder(prompt_set)
    survey = Survey(questions, length, CHARACTERS_PER_TOKEN, max_context_tokens, declines, example_of)
    if survey.problems or survey.first is None:
        for problem in survey.problems[:MAX_PROBLEMS]:
            console.error(problem)
        if len(survey.problems) > MAX_PROBLEMS:
            console.note(f"and {len(survey.problems) - MAX_PROBLEMS:,} more; fix these first")
        raise typer.Exit(console.BAD_INPUT)
    console.say(*survey.describe(), "", f"the first question, with the prompt {variants!r}:", "")
    prompt = whole_prompt(survey.first, prompt_set, variants)
    console.say(*(f"  {line}".rstrip() for line in prompt.split("\n")))


def prompts(
    name: str | None = None,
    /,
    variants: str | None = None,
    question: str = "Who wrote the novel Emma?",
    grader: bool = False,
) -> None:
    """Check a prompt set and show its prompts.

    Shows every prompt. Without a set, lists the prompt sets of the package. With --grader, checks and shows what a
    grading model is asked: the file of --grader-prompt, or without a file that of this package.

    Exit status: 0 valid, 2 invalid.

    - `name` SET: Prompt set: a name, or a TOML file.
    - `variants` NAME: Show only this prompt, or 'forced'. [default: all]
    - `question`: Question to show in the prompts.
    - `grader`: Show a grader's prompt instead of a prompt set.
    """
    from refusal_index.protocol import FORCED, load_prompt_set, prompt_set_names

    if grader:
        if variants is not None:
            raise console.OptionError("--variants: a grader's prompt has none; leave it out, or leave out --grader")
        _show_grader_prompt(name, question)
        return
    if name is None:
        for set_name in prompt_set_names():
            known_set = load_prompt_set(set_name)
            console.say(f"{known_set.name:<18} {known_set.hash[:12]}  {', '.join(known_set.variants)}")
        return
    prompt_set = load_prompt_set(name)
    known_variants = [*prompt_set.variants, FORCED]
    shown = [console.one_of("--variants", variants, known_variants)] if variants is not None else known_variants
    count = len(prompt_set.examples)
    console.say(
        f"prompt set {prompt_set.name!r}, sha256 {prompt_set.hash}",
        f"{len(prompt_set.variants)} prompts and the forced pass; {count} worked examples",
    )
    for variant_name in known_variants:
        variant = prompt_set.variant(variant_name)
        family = f"; a paraphrase of {variant.paraphrase_of}" if variant.paraphrase_of else ""
        target = f"; answering pays above a confidence of {variant.target:g}" if variant.target is not None else ""
        console.say("", f"{variant_name}: {len(variant.unanswered)} of {count} examples refuse{family}{target}")
        console.say(*(f"  {line}" for line in variant.instruction.split("\n")))
    for variant_name in shown:
        _show_text(variant_name, "\n\n".join(prompt_set.render(variant_name, question)))


def _show_grader_prompt(name: str | None, question: str) -> None:
    """Print what a grading model is asked about a question, with and without a right answer."""
    from refusal_index.data.outcome import Question
    from refusal_index.protocol import default_grader_prompt, load_grader_prompt

    prompt = default_grader_prompt() if name is None else load_grader_prompt(Path(name))
    console.say(f"grader's prompt, sha256 {prompt.hash}; for questions without a right answer {prompt.no_gold_hash}")
    for title, gold in (("with a right answer", "{gold}"), ("without a right answer", None)):
        _show_text(title, prompt.message(Question("", question, gold), "{prediction}"))


def _show_text(title: str, text: str) -> None:
    """Print a text under a line with its title."""
    console.say("", f"---- {title} " + "-" * max(4, 70 - len(title)), "", *text.split("\n"))


def ls(
    task_files: bool = False,
) -> None:
    """List datasets, graders, prompt sets and embedded models.

    - `task_files`: Print only the folder of the lm-evaluation-harness tasks, for its option --include_path.
    """
    from refusal_index.entry_points import first_line, installed, load, own_plugins

    if task_files:
        console.say(str(Path(load(own_plugins("task_files")["lm_eval"]).__file__).parent))
        return
    from refusal_index.data.datasets import dataset_names, dataset_source
    from refusal_index.protocol import load_prompt_set, prompt_set_names
    from refusal_index.protocol.grading import RULES

    console.say("datasets (--dataset)")
    for name in dataset_names():
        console.entry(name, dataset_source(name).note)
    console.entry("hf:ORG/NAME", "a dataset of the Hugging Face Hub; hf:ORG/NAME/CONFIG:SPLIT@REVISION in full")
    console.say("", "graders (--grader)")
    for kind, rule in RULES.items():
        console.entry(kind, f"right if an answer {rule.right_if}")
    for name, plugin in installed("graders").items():
        console.entry(name, first_line(load(plugin)))
    console.say("", "prompt sets (--prompts) and their prompts (--variants)")
    for name in prompt_set_names():
        console.entry(name, ", ".join(load_prompt_set(name).variants))
    console.say("", "models without an API key or a download (--model)")
    for prefix, plugin in installed("models").items():
        provider: ModelProvider = load(plugin)
        for model in provider.names:
            console.entry(f"{prefix}/{model}", provider.notes.get(model, ""))
    console.say()
    console.prose("Other models are named PROVIDER/NAME, as in Inspect: openai/gpt-4.1 or vllm/Qwen/Qwen3-32B.")
    console.prose("A server with the OpenAI API: --model NAME --base-url http://127.0.0.1:8000/v1")
