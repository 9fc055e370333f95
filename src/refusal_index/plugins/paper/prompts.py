"""The paper's prompt set and grader's prompt, from its LaTeX source, and the two files in which they are written.

The appendix prints the second-pass prompt, the most cautious first-pass prompt, a table with the instruction of every
first-pass prompt and how many of its worked examples are left unanswered, and the grader's prompt. It omits most of the
worked examples and which of them are unanswered; `PaperPrompts.added` lists what stands in their place.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from refusal_index.data.files import write_atomically
from refusal_index.plugins.paper.latex import LatexSource, PaperError
from refusal_index.protocol import FORCED, GraderPrompt, PromptSet, load_grader_prompt, load_prompt_set
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


PROMPTS_COMMENT = """
# The prompts of the paper, made by 'refusal-index build paper-prompts' from its LaTeX source.
# The text is the paper's: mind its licence before you pass this file on.
#
# As printed: the form of the prompts, the instructions, and the worked examples {printed}. The most cautious prompt
# and the forced pass are printed in full; the instructions of the others are those of the paper's table, which it calls
# a summary. The titles of the listings are left out.
#
# Not the paper's: it omits the worked examples {added}, in whose place stand those of the default prompt set of
# refusal-index. It prints how many examples each prompt leaves UNANSWERED, but only of the most cautious one which, in
# part: these come first, then the omitted ones, every other one first.
"""

NOTHING_ADDED = """
# Not the paper's: it prints how many examples each prompt leaves UNANSWERED, but not which.
"""

GRADER_COMMENT = """
# The grader's prompt of the paper, made by 'refusal-index build paper-prompts' from its LaTeX source.
# The text is the paper's: mind its licence before you pass this file on.
#
# The placeholders have other names than in the paper. The paper has no prompt for questions without a right answer:
# for these, the grader is asked what refusal-index asks by default.
"""


UNESCAPED = {"n": "\n", '"': '"'}
"""What needs no escape in a string on several lines."""


def write_files(paper: Path, out: Path) -> Iterator[str]:
    """Write both files into a folder, and yield lines that say what they contain.

    Parameters
    ----------
    paper
        The paper's source: a file or a folder.
    out
        The folder; it is made if it does not exist.

    Raises
    ------
    PaperError
        If the source cannot be used, or the folder cannot be written or holds one of the files already.
    """
    made = paper_prompts(read_source(paper))
    grader_text = f"{GRADER_COMMENT.strip()}\n\ngold = {toml_text(made.grader.gold)}\n"
    files = {out / "paper-prompts.toml": prompts_toml(made), out / "paper-grader.toml": grader_text}
    for path in files:
        if path.exists():
            raise PaperError(f"{path} already exists; choose another folder, or remove it")
    try:
        out.mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            write_atomically(path, text.encode())
    except OSError as error:
        raise PaperError(f"{error.filename or out} cannot be written: {error.strerror}") from error
    prompts_path, grader_path = files
    prompts = load_prompt_set(prompts_path)
    load_grader_prompt(grader_path)
    yield f"{prompts_path}: the prompts {', '.join(prompts.variants)} and the forced pass"
    if made.added:
        yield (
            f"  {len(made.added)} of its {len(prompts.examples)} worked examples are not the paper's, which omits "
            f"them: {numbers_in_words(made.added)}"
        )
    yield f"{grader_path}: the grader's prompt"
    both = ["--prompts", str(prompts_path), "--grader-prompt", str(grader_path)]
    yield f"Options of 'refusal-index run' for both, with a grading model: {shlex.join(both)}"


def prompts_toml(made: PaperPrompts) -> str:
    """Return the prompt set as TOML.

    Examples
    --------
    >>> numbers_in_words([1, 2, 3, 7, 9, 10])
    '1 to 3, 7, 9 and 10'
    """
    prompts = made.prompts
    printed = [number for number in range(1, len(prompts.examples) + 1) if number not in made.added]
    comment = PROMPTS_COMMENT if made.added else PROMPTS_COMMENT.partition("# Not the paper's")[0] + NOTHING_ADDED[1:]
    lines = [
        *comment.strip().format(printed=numbers_in_words(printed), added=numbers_in_words(made.added)).split("\n"),
        "",
        f"name = {toml_text(prompts.name)}",
        f"preamble = {toml_text(prompts.preamble)}",
        f"question = {toml_text(prompts.question)}",
        f"example = {toml_text(prompts.example)}",
    ]
    for name, variant in prompts.variants.items():
        lines += ["", f"[variants.{name}]", *_variant_lines(variant)]
    lines += ["", "[forced]", *_variant_lines(prompts.forced)]
    for number, example in enumerate(prompts.examples, start=1):
        origin = " # not the paper's" if number in made.added else ""
        table = f"[[examples]]{origin}"
        lines += ["", table, f"question = {toml_text(example.question)}", f"answer = {toml_text(example.answer)}"]
    return "\n".join([*lines, ""])


def _variant_lines(variant: Variant) -> Iterator[str]:
    yield f"instruction = {toml_text(variant.instruction)}"
    yield f"unanswered = {list(variant.unanswered)}"


def toml_text(text: str) -> str:
    r"""Return a text as a string of TOML, on several lines if it has them.

    Examples
    --------
    >>> toml_text('a "b"')
    '"a \\"b\\""'
    """
    one_line = json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
    if "\n" not in text:
        return one_line
    lines = re.sub(r"\\(.)", lambda found: UNESCAPED.get(found[1], found[0]), one_line[1:-1])
    lines = re.sub(r'""(?=")|"\Z', lambda found: found[0][:-1] + r"\"", lines)
    return f'"""\n{lines}"""'


def numbers_in_words(numbers: Sequence[int]) -> str:
    """Return numbers in increasing order as a list in which three or more in a row are a range."""
    groups: list[list[int]] = []
    for number in numbers:
        if groups and groups[-1][-1] == number - 1:
            groups[-1].append(number)
        else:
            groups.append([number])
    parts: list[str] = []
    for group in groups:
        parts += [f"{group[0]} to {group[-1]}"] if len(group) > 2 else map(str, group)
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))
