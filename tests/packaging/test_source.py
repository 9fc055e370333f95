"""The shape of the source: statements one to a line, one analysis, one run with its results, short modules."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "refusal_index"
FILES = sorted(SOURCE.rglob("*.py"))
PAIRS = 10
"""Assignments such as ``low, high = -high, -low`` in the whole package: of values that change together."""


@cache
def tree(path: Path) -> ast.Module:
    """Parse a module, when the first test asks for it: every worker imports this file, one runs most of its tests."""
    return ast.parse(path.read_text())


def packed(path: Path) -> Iterator[int]:
    """Yield the lines of assignments that hold several targets and as many values."""
    for node in ast.walk(tree(path)):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
            continue
        target = node.targets[0]
        if isinstance(target, ast.Tuple) and len(target.elts) == len(node.value.elts) > 1:
            yield node.lineno


def test_assignments_are_written_one_to_a_line():
    found = [f"{path.relative_to(SOURCE)}:{line}" for path in FILES for line in packed(path)]
    assert len(found) <= PAIRS, found


def test_no_formatting_is_switched_off():
    found = [in_package(path) for path in FILES if re.search("# fmt: (off|skip)", path.read_text())]
    assert not found


def in_package(path: Path) -> str:
    """Return the path of a module inside the package."""
    return path.relative_to(SOURCE).as_posix()


# --- How results are computed is carried whole

LOOSE = ("confidence_level", "payoffs", "weighted_score_p", "truthfulness_weights")
"""What an `Analysis` carries, and no other function or class takes on its own."""

STATISTICS = ("plugins/studies/curves.py", "plugins/training/steps.py")
"""Modules of plugins that are statistics, as `refusal_index.stats` is: they use nothing else of the package."""

MAKES_ANALYSIS = (
    "data/analysis.py",  # the class itself
    "runs/arguments.py",  # the settings of a run, of which its folder records what answers are worth
    "runs/settings.py",
    "plugins/confidence/threshold.py",  # the options of a threshold, whose bound has a default level of its own
)
"""Modules that state what an `Analysis` is made of, besides the commands."""


def takes_loose(path: Path) -> bool:
    """Whether a module may take parts of an `Analysis` on their own."""
    name = in_package(path)
    is_command = name.startswith("cli/") or path.name == "commands.py"
    return name.startswith("stats/") or is_command or name in (*STATISTICS, *MAKES_ANALYSIS)


def loose(parsed: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of parameters and of fields of classes that an `Analysis` carries."""
    for node in ast.walk(parsed):
        if isinstance(node, ast.arg) and node.arg in LOOSE:
            yield node.lineno, node.arg
        if isinstance(node, ast.ClassDef):
            for item in node.body:
                if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and item.target.id in LOOSE:
                    yield item.lineno, item.target.id


@pytest.mark.parametrize(
    "source",
    [
        "def score(table, *, confidence_level=0.95): ...",
        "weighted = lambda payoffs: payoffs",
        "class Options:\n    truthfulness_weights: tuple[float, ...] = ()",
    ],
)
def test_loose_parameters_and_fields_are_found(source):
    assert len(list(loose(ast.parse(source)))) == 1


def test_how_results_are_computed_is_carried_whole():
    found = [
        f"{in_package(path)}:{line} {name}"
        for path in FILES
        if not takes_loose(path)
        for line, name in loose(tree(path))
    ]
    assert not found, f"take the Analysis (or the options that carry one) instead of a part of it: {found}"


@pytest.mark.parametrize("name", STATISTICS)
def test_statistics_of_plugins_use_nothing_else_of_the_package(name):
    imported = re.findall(r"^\s*(?:from|import) (refusal_index\S*)", (SOURCE / name).read_text(), re.MULTILINE)
    others = [module for module in imported if not module.startswith("refusal_index.stats")]
    assert imported
    assert not others, f"{name} is statistics; move what needs {others} to the module that calls it"


# --- One run with its results

REPLACED = ("Run", "ComparedRun", "ReportRun", "RunOnPage", "ExportedRun", "CellResult", "Gated", "CompareOptions")
"""Earlier forms of a run with its results, which `RunResults` and `RunView` replaced."""


def carried(node: ast.ClassDef) -> set[str]:
    """Return the names in the types of the fields and properties of a class."""
    types = [item.annotation for item in node.body if isinstance(item, ast.AnnAssign)]
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.returns is not None:
            decorators = {ast.unparse(decorator) for decorator in item.decorator_list}
            if decorators & {"property", "cached_property"}:
                types.append(item.returns)
    return {name for annotation in types for name in re.findall(r"\w+", ast.unparse(annotation))}


def classes() -> Iterator[tuple[Path, ast.ClassDef]]:
    """Yield every class of the package, with its module."""
    for path in FILES:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef):
                yield path, node


def test_only_a_run_and_its_page_carry_outcomes_with_a_summary():
    found = {
        node.name
        for _, node in classes()
        if "Summary" in carried(node) and carried(node) & {"DataFrame", "LazyFrame", "OutcomeMatrix"}
    }
    assert found == {"RunResults", "RunView"}, "carry a RunResults (or, on a page, a RunView) instead of its parts"


def test_no_earlier_form_of_a_run_is_back():
    found = [f"{in_package(path)}: {node.name}" for path, node in classes() if node.name in REPLACED]
    assert not found, f"use RunResults (for a page RunView, for how results are computed Analysis) instead: {found}"


# --- Short modules

MOST_LINES = 500
"""Largest number of lines of code in a module."""

NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def code_lines(text: str) -> int:
    """Return the number of lines with a token other than comments and docstrings, those of attributes included."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        body = getattr(node, "body", None)
        for index, item in enumerate(body if isinstance(body, list) else []):
            first = index == 0 and isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
            of_attribute = index > 0 and isinstance(body[index - 1], (ast.Assign, ast.AnnAssign))
            is_text = isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant)
            if is_text and isinstance(item.value.value, str) and (first or of_attribute):
                lines.difference_update(range(item.lineno, item.end_lineno + 1))
    return len(lines)


def test_lines_of_code_are_counted_without_comments_and_docstrings():
    text = '"""Module.\n\nMore.\n"""\n\n# comment\nX = 1\n"""Of X."""\n\n'
    text += 'def f(a):\n    """F."""\n    return (\n        a\n    )\n'
    assert code_lines(text) == 5


def test_modules_are_short():
    texts = {in_package(path): path.read_text() for path in FILES}
    long = {name: text for name, text in texts.items() if len(text.splitlines()) > MOST_LINES}
    found = [f"{name}: {lines}" for name, text in long.items() if (lines := code_lines(text)) > MOST_LINES]
    assert not found, f"{MOST_LINES} lines of code at most: move one of the subjects of {found} to a module"


# --- No import for its effect


def for_effect(text: str) -> Iterator[int]:
    """Yield the lines that import a module whose name is not used: marked so, or by a bare call of `import_module`."""
    for number, line in enumerate(text.splitlines(), start=1):
        if re.search(r"noqa:.*\bF401\b", line):
            yield number
    for node in ast.walk(ast.parse(text)):
        called = node.value.func if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) else None
        if called is not None and ast.unparse(called).endswith(("import_module", "__import__")):
            yield node.lineno


CORE = [path for path in FILES if not in_package(path).startswith("plugins/")]


@pytest.mark.parametrize("source", ["import a.b  # noqa: F401 - shows runs", "import_module('a.b')"])
def test_imports_for_their_effect_are_found(source):
    assert list(for_effect(source)) == [1]


def test_the_core_imports_no_module_for_its_effect():
    found = [f"{in_package(path)}:{line}" for path in CORE for line in for_effect(path.read_text())]
    assert not found, f"{found}: call or pass what the module provides, or register it as an entry point"
