"""Running the code of a page: commands by bash, Python in its own namespace, all in one empty folder."""

from __future__ import annotations

import ast
import contextlib
import doctest
import io
import math
import os
import re
import shlex
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.core import TyperGroup
from typer.main import get_command

from refusal_index.cli import app

NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?")

HARMLESS = frozenset(
    {
        *("bash", "cd", "cp", "curl", "echo", "export", "git", "inspect", "jq", "ls", "make", "mkdir", "pip"),
        *("lm_eval", "python", "python3", "source"),
    }
)
"""Commands of others that a page may show without running them."""

_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def run_bash(text: str, folder: Path) -> str:
    """Run commands as a reader would, without keys, and return what they print; a failure is an error."""
    kept = {name: value for name, value in os.environ.items() if not name.endswith(("_API_KEY", "_BASE_URL"))}
    binaries = Path(sys.executable).parent
    env = kept | {"PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1", "HOME": str(folder)}
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text.replace(".venv/bin/", "")],
        check=False,
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert ran.returncode == 0, f"exit status {ran.returncode} of\n{text}\n{ran.stdout}\n{ran.stderr}"
    return ran.stdout


def run_python(text: str, namespace: dict[str, Any]) -> str:
    """Execute a block, check the values that it states, and return what it prints."""
    comments = _comments(text)
    printed = io.StringIO()
    for statement in ast.parse(text).body:
        expected = comments.get(statement.end_lineno or 0)
        before = printed.tell()
        with contextlib.redirect_stdout(printed):
            value = _execute(statement, namespace)
        if expected is not None and isinstance(statement, ast.Expr):
            found = repr(value) if value is not None else printed.getvalue()[before:].strip() or "None"
            assert agrees(expected, found), f"line {statement.lineno}: expected {expected}, found {found}"
    return printed.getvalue()


def _execute(statement: ast.stmt, namespace: dict[str, Any]) -> object:
    if isinstance(statement, ast.Expr):
        return eval(compile(ast.Expression(statement.value), "<page>", "eval"), namespace)  # noqa: S307 - our own pages
    exec(compile(ast.Module([statement], []), "<page>", "exec"), namespace)  # noqa: S102 - our own pages
    return None


def _comments(text: str) -> dict[int, str]:
    """Return the comments that stand behind code, by line."""
    found = {}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and token.line[: token.start[1]].strip():
            found[token.start[0]] = token.string.lstrip("# ")
    return found


def agrees(expected: str, found: str) -> bool:
    """Whether an output is the one shown, where ``...`` stands for anything and white space does not count."""
    return doctest.OutputChecker().check_output(expected + "\n", found + "\n", _FLAGS)


def nearly_agrees(expected: str, found: str) -> bool:
    """Whether all words agree and figures are close: another machine may sample different replies."""
    if not agrees(NUMBER.sub("#", expected), NUMBER.sub("#", found)):
        return False
    # Figures after the first "..." have no known counterpart.
    pairs = zip(_numbers(expected.partition("...")[0]), _numbers(found), strict=False)
    return all(math.isclose(one, other, rel_tol=0.25, abs_tol=0.15) for one, other in pairs)


def _numbers(text: str) -> list[float]:
    return [float(number.replace(",", "")) for number in NUMBER.findall(text)]


def has_part(expected: str, found: str) -> bool:
    """Whether the lines occur in the output in this order, ignoring white space."""
    lines = iter(" ".join(line.split()) for line in found.splitlines())
    return all(any(agrees(" ".join(one.split()), line) for line in lines) for one in expected.splitlines())


def command_lines(text: str) -> Iterator[list[str]]:
    """Yield the words of each command in a shell block, without the commands it is piped into."""
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] in (["for"], ["done"]):
            continue
        for stop in ("|", "||", "&&", ";", ">"):
            words = words[: words.index(stop)] if stop in words else words
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words = words[1:]
        if words:
            yield [words[0].removeprefix(".venv/bin/"), *words[1:]]


def problem_with(words: list[str]) -> str | None:
    """Return what is wrong with a command that cannot be run here, or None."""
    if words[0] != "refusal-index":
        return None if words[0] in HARMLESS else f"{words[0]} is a command that the tests do not know"
    command, rest = get_command(app), words[1:]
    while isinstance(command, TyperGroup):
        if rest and rest[0] in {"--help", "--version"}:
            return None
        if not rest or rest[0] not in command.commands:
            return f"no such command: {' '.join(words)}"
        command, rest = command.commands[rest[0]], rest[1:]
    try:
        context = command.make_context(words[0], [], resilient_parsing=True)
        given, extra, _ = command.make_parser(context).parse_args(list(rest))
    except Exception as error:
        return f"{' '.join(words)}: {error}"
    needed = [param.name for param in command.params if param.required and not given.get(param.name)]
    return f"{' '.join(words)}: missing {needed}, unknown {extra}" if needed or extra else None
