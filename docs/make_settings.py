"""Write what is made of the settings: ``.venv/bin/python docs/make_settings.py``, a second.

The fields of `refusal_index.runs.settings` and `refusal_index.models.settings` declare the settings. From them come the
keyword arguments of `ri.evaluate` with their types, in `refusal_index.runs.arguments`, and the page of settings. Both
files are committed.
"""

from __future__ import annotations

import ast
import builtins
import inspect
from collections.abc import Iterator
from pathlib import Path

from refusal_index.cli import metavar_of
from refusal_index.models import settings as request_settings
from refusal_index.models.settings import Setting
from refusal_index.runs import settings as run_settings
from refusal_index.runs.api import evaluate
from refusal_index.runs.settings import GROUPS, SETTINGS

ROOT = Path(__file__).parents[1]
ARGUMENTS = ROOT / "src/refusal_index/runs/arguments.py"
PAGE = ROOT / "docs/reference/settings.md"

OF_PYTHON = {
    "Any": "typing",
    "Callable": "collections.abc",
    "Literal": "typing",
    "Mapping": "collections.abc",
    "Path": "pathlib",
    "Sequence": "collections.abc",
}
"""Modules of the standard library in which the names in types of arguments are."""

INTRODUCTION = """\
<!-- Written by docs/make_settings.py from the fields in runs/settings.py and models/settings.py: change these. -->

# Settings

Each setting of a run is an option of `refusal-index run`, with dashes (`--top-p`), and with underscores a key of a \
[configuration](../configurations.md) and an argument of `ri.evaluate` ([Python](../python.md)). In Python, the model, \
the dataset and the grader may also be objects.

- *table* is the table of a configuration that the setting belongs to: `[[models]]`, `[[datasets]]`, or `[defaults]` \
alone.
- *another run*: with another value, the run has another folder, because replies or grades depend on it; of a file, \
the content counts and not the path. All other settings may be changed when a run is resumed.
"""

HEAD = """
| setting | value | table | another run | what it does |
|---|---|---|---|---|
"""

TABLES = {
    "model": "`[[models]]`",
    "dataset": "`[[datasets]]`",
    "run": "`[[datasets]]`, `[[models]]`",
    "set": "`[defaults]`",
}
WORDS = {int: "whole number", float: "number"}


def arguments() -> str:
    """Return the module with the settings as typed keyword arguments; those that `evaluate` declares are left out."""
    declared = inspect.signature(evaluate).parameters
    lines = [f"    {name}: {setting.argument}" for name, setting in SETTINGS.items() if name not in declared]
    imports = "".join(f"{line}\n" for line in _imports(lines))
    return (
        '"""The settings as typed keyword arguments; written by ``python docs/make_settings.py``, not by hand."""\n'
        f"\nfrom __future__ import annotations\n\n{imports}\n\n"
        "class SettingArguments(TypedDict, total=False):\n"
        '    """The settings of `refusal_index.runs.settings`, which describes them, as typed keyword arguments."""\n\n'
        + "".join(f"{line}\n" for line in lines)
    )


def _imports(lines: list[str]) -> Iterator[str]:
    """Yield the imports that the annotations need: modules, the standard library's names, and our own types."""
    trees = [ast.parse(line.strip()) for line in lines]
    annotations = [tree.body[0].annotation for tree in trees if isinstance(tree.body[0], ast.AnnAssign)]
    names = {node.id for annotation in annotations for node in ast.walk(annotation) if isinstance(node, ast.Name)}
    by_module: dict[str, set[str]] = {"typing": {"TypedDict"}}
    for name in names - set(vars(builtins)) - {"re"}:
        own = next((one.__name__ for one in (request_settings, run_settings) if hasattr(one, name)), None)
        by_module.setdefault(OF_PYTHON.get(name) or str(own), set()).add(name)
    if "re" in names:
        yield "import re"
    ours = {module for module in by_module if module.startswith("refusal_index.")}
    for modules in (by_module.keys() - ours, ours):
        if modules is ours and ours:
            yield ""
        for module in sorted(modules):
            yield f"from {module} import {', '.join(sorted(by_module[module]))}"


def page() -> str:
    """Return the page with a line for each setting, by group."""
    parts = [INTRODUCTION]
    for group, title in GROUPS.items():
        rows = [_row(setting) for setting in SETTINGS.values() if setting.group == group]
        parts += [f"\n## {title}\n{HEAD}", *rows]
    return "".join(parts)


def _row(setting: Setting) -> str:
    cells = (
        f"`{setting.name}`",
        _value(setting),
        TABLES[setting.scope],
        "no" if setting.identity == "no" else "yes",
        setting.help,
    )
    return f"| {' | '.join(cell.replace('|', '&#124;').replace('<', '&lt;') for cell in cells)} |\n"


def _value(setting: Setting) -> str:
    """Return what a setting accepts, in a few words."""
    if setting.choices:
        return ", ".join(f"`{choice}`" for choice in setting.choices)
    if setting.kind is bool:
        return "`true` or `false`"
    if setting.kind in WORDS:
        ends = [f"{word} {end:,}" for word, end in (("from", setting.low), ("to", setting.high)) if end is not None]
        return " ".join([WORDS[setting.kind], *ends])
    return f"`{setting.metavar or metavar_of(setting.kind)}`"


FILES = {ARGUMENTS: arguments, PAGE: page}


def main() -> None:
    """Write the files."""
    for path, made in FILES.items():
        path.write_text(made(), encoding="utf-8")


if __name__ == "__main__":
    main()
