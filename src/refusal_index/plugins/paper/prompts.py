"""The paper's prompt set and grader's prompt, from its LaTeX source.

The appendix prints the second-pass prompt, the most cautious first-pass prompt, a table with the instruction of every
first-pass prompt and how many of its worked examples are left unanswered, and the grader's prompt. It omits most of the
worked examples and which of them are unanswered; `PaperPrompts.added` lists what stands in their place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from refusal_index.plugins.paper.latex import LatexSource, PaperError
from refusal_index.protocol import FORCED, GraderPrompt, PromptSet, load_prompt_set
from refusal_index.protocol.prompts import UNANSWERED, Example, Variant

FORCED_LABEL = "fig:second_pass_prompt"
HIGHEST_LABEL = "fig:first_pass_prompt_highest"
VARIANTS_LABEL = "tab:first_pass_prompt_variants"
GRADER_LABEL = "fig:llm_grader_prompt"

VARIANTS = ("low", "normal", "high", "highest")
NAME = "paper"
EXAMPLE = re.compile(
    r"(?P<head>[^\d\n]*)(?P<number>\d+)[^\S\n]*\n"
    r"(?P<asks>[^:\n]+:[^\S\n]*)(?P<question>[^\n]+)\n"
    r"(?P<replies>[^:\n]+:[^\S\n]*)<answer>(?P<answer>[^\n]*)</answer>\s*"
)
GRADER_PLACEHOLDERS = {"question": "question", "answer": "gold", "predicted_answer": "prediction"}
"""The placeholders of the paper's grader, and ours."""


@dataclass(frozen=True)
class PrintedPrompt:
    """A prompt as a listing prints it.

    Attributes
    ----------
    example
        The template of its worked examples.
    examples
        The worked examples that are printed, by number.
    instruction, question
        The paragraph after the examples, and the last one, a template with ``{question}``.
    """

    example: str
    examples: Mapping[int, Example]
    instruction: str
    question: str


@dataclass(frozen=True)
class PaperPrompts:
    """What was made from the paper's source.

    Attributes
    ----------
    prompts, grader
        The prompt set and the grader's prompt.
    added
        The numbers of the worked examples that the paper omits, which are those of the default prompt set.
    """

    prompts: PromptSet
    grader: GraderPrompt
    added: tuple[int, ...]


def read_source(path: Path) -> LatexSource:
    """Read a LaTeX file, or all LaTeX files in a folder.

    Raises
    ------
    PaperError
        If there is none, or one cannot be read.
    """
    files = sorted(path.rglob("*.tex")) if path.is_dir() else [path]
    if not files:
        raise PaperError(f"{path}: expected the LaTeX source of the paper, found a folder without a .tex file")
    try:
        return LatexSource("\n".join(file.read_text(encoding="utf-8") for file in files), str(path))
    except OSError as error:
        raise PaperError(f"{path}: the LaTeX source of the paper cannot be read from it: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise PaperError(f"{path}: expected LaTeX in UTF-8, found other bytes ({error}); convert the file") from error


def paper_prompts(source: LatexSource) -> PaperPrompts:
    """Return the prompt set and the grader's prompt that the paper's source prints.

    Raises
    ------
    PaperError
        If a listing or the table cannot be found, or has another form than in the paper.
    """
    forced = printed_prompt(source, FORCED_LABEL, "the second-pass prompt")
    highest = printed_prompt(source, HIGHEST_LABEL, "the most cautious first-pass prompt")
    common = _common_start(source, forced.instruction, highest.instruction)
    instructions, counts, n_examples = _variants(source)
    instructions |= {"highest": highest.instruction[len(common) :], FORCED: forced.instruction[len(common) :]}
    examples = _all_examples(source, forced, n_examples)
    added = tuple(number for number in range(1, n_examples + 1) if number not in forced.examples)
    order = _order_of_unanswered(highest, added, n_examples)
    variants = {name: Variant(instructions[name], tuple(sorted(order[: counts[name]]))) for name in VARIANTS}
    prompts = PromptSet(
        name=NAME,
        preamble=f"{{examples}}\n\n{_with_braces_doubled(common)}{{instruction}}",
        question=forced.question,
        example=forced.example,
        examples=examples,
        variants=variants,
        forced=Variant(instructions[FORCED]),
    )
    return PaperPrompts(prompts, _grader(source), added)


def printed_prompt(source: LatexSource, label: str, what: str) -> PrintedPrompt:
    """Return the prompt in a listing: a title, worked examples, an instruction and the question.

    Raises
    ------
    PaperError
        If the listing cannot be found, or has another form.
    """
    listing = source.listing(label, what)
    paragraphs = [paragraph.strip("\n") for paragraph in re.split(r"\n\s*\n", listing)]
    found = {place: example for place, text in enumerate(paragraphs) if (example := EXAMPLE.fullmatch(text))}
    after = paragraphs[max(found, default=0) + 1 :]
    if not found or len(after) != 2 or "{question}" not in after[1]:
        raise PaperError(
            f"{source.name}: expected in the listing {label} worked examples with <answer>...</answer>, an instruction "
            f"and a paragraph with {{question}}, found {len(found)} examples and {len(after)} paragraphs after them"
        )
    templates = {_example_template(example) for example in found.values()}
    if len(templates) > 1:
        raise PaperError(
            f"{source.name}: expected worked examples of one form in {label}, found {len(templates)} forms"
        )
    examples = {int(found["number"]): Example(found["question"], found["answer"]) for found in found.values()}
    return PrintedPrompt(templates.pop(), examples, after[0], _template(after[1], {"question": "question"}))


def _example_template(example: re.Match[str]) -> str:
    head, asks, replies = (_with_braces_doubled(example[part]) for part in ("head", "asks", "replies"))
    return f"{head}{{number}}\n{asks}{{question}}\n{replies}<answer>{{answer}}</answer>"


def _common_start(source: LatexSource, *instructions: str) -> str:
    """Return the sentences with which all instructions begin, with the space after them."""
    sentences = [re.split(r"(?<=[.!?])(?=\s)", instruction) for instruction in instructions]
    shared = []
    for same in zip(*sentences, strict=False):
        if len(set(same)) > 1:
            break
        shared.append(same[0])
    start = "".join(shared)
    rest = instructions[0][len(start) :]
    if not start or not all(instruction[len(start) :].strip() for instruction in instructions):
        raise PaperError(
            f"{source.name}: expected instructions that begin alike and go on differently in {FORCED_LABEL} and "
            f"{HIGHEST_LABEL}, found other ones"
        )
    return start + rest[: len(rest) - len(rest.lstrip())]


def _variants(source: LatexSource) -> tuple[dict[str, str], dict[str, int], int]:
    """Return the instruction of each first-pass prompt, how many of its examples are unanswered, and their number."""
    instructions: dict[str, str] = {}
    counts: dict[str, int] = {}
    totals: set[int] = set()
    for cells in source.rows(VARIANTS_LABEL, "the first-pass prompts"):
        name = (cells[0].lower().split() or [""])[0]
        ratio = re.fullmatch(r"(\d+) ?/ ?(\d+)", cells[-1])
        if name in VARIANTS and ratio and len(cells) == 3:
            instructions[name] = cells[1]
            counts[name] = int(ratio[1])
            totals.add(int(ratio[2]))
    lacking = [name for name in VARIANTS if name not in instructions]
    if lacking or len(totals) != 1:
        raise PaperError(
            f"{source.name}: expected in the table {VARIANTS_LABEL} the rows {', '.join(VARIANTS)}, each with an "
            f"instruction and a ratio such as 4 / 10 of one total, found none for {', '.join(lacking) or 'one total'}"
        )
    return instructions, counts, totals.pop()


def _all_examples(source: LatexSource, forced: PrintedPrompt, number: int) -> tuple[Example, ...]:
    """Return the worked examples, those that the paper omits from the default prompt set."""
    defaults = load_prompt_set("default").examples
    numbers = range(1, number + 1)
    if forced.examples.keys() - set(numbers) or len(defaults) < number:
        raise PaperError(
            f"{source.name}: expected worked examples 1 to {number} in {FORCED_LABEL}, as the table {VARIANTS_LABEL} "
            f"has it, found {', '.join(map(str, forced.examples))}"
        )
    return tuple(forced.examples.get(place) or defaults[place - 1] for place in numbers)


def _order_of_unanswered(highest: PrintedPrompt, added: Sequence[int], number: int) -> list[int]:
    """Return the numbers of the worked examples in the order in which prompts leave them unanswered.

    First come those that the most cautious prompt prints as unanswered, then those that are omitted, every other one
    first, then the rest. More cautious prompts thus leave the same examples unanswered, and further ones.
    """
    printed = [place for place, example in highest.examples.items() if example.answer == UNANSWERED]
    order = [*printed, *added[::2], *added[1::2], *range(1, number + 1)]
    return list(dict.fromkeys(order))


def _grader(source: LatexSource) -> GraderPrompt:
    gold = _template(source.listing(GRADER_LABEL, "the grader's prompt"), GRADER_PLACEHOLDERS)
    return GraderPrompt.read({"gold": gold}, f"{source.name}, listing {GRADER_LABEL}")


def _template(text: str, names: Mapping[str, str]) -> str:
    """Return a template: placeholders under our names, other braces doubled."""
    parts = re.split(rf"\{{({'|'.join(names)})\}}", text)
    return "".join(
        f"{{{names[part]}}}" if place % 2 else _with_braces_doubled(part) for place, part in enumerate(parts)
    )


def _with_braces_doubled(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
