"""The two files that are made from the paper's source, as TOML with comments on what is the paper's."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from refusal_index.data.files import write_atomically
from refusal_index.plugins.paper.latex import PaperError
from refusal_index.plugins.paper.prompts import PaperPrompts, paper_prompts, read_source
from refusal_index.protocol import load_grader_prompt, load_prompt_set
from refusal_index.protocol.prompts import Variant

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
