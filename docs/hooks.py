"""What the site has beyond its own pages: files of the repository, the command line, and links from names to pages.

MkDocs calls the functions that begin with ``on_``. Pages are written so that they also read well in the repository:
links lead to files beside them, and what lies outside of `docs/` is brought in here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from refusal_index import __version__
from refusal_index.cli import ALL_OF_RUN, app

ROOT = Path(__file__).parents[1]

BROUGHT_IN = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "index.md",
    "benchmarks/README.md": "benchmarks.md",
    "benchmarks/faults.md": "fault-tests.md",
    "src/refusal_index/plugins/almanac/models/README.md": "embedded-models.md",
}
"""Files of the repository by the page that they are on the site; the README's own place is the home page."""

COMMAND_LINE = "reference/command-line.md"
ERRORS = "reference/errors.md"

_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?(?=\))")
_FENCE = re.compile(r"^(`{3,}).*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"(?<![\[`])`([A-Za-z_]+)`(?!\]|`)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Say on every page which version it tells of."""
    config.copyright = f"refusal-index {__version__}"
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in `docs/`."""
    for source, page in BROUGHT_IN.items():
        if page != "index.md":
            files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    files.append(File.generated(config, COMMAND_LINE, content=command_line()))
    return files


def on_page_markdown(markdown: str, page: Page, **_kwargs: Any) -> str:
    """Point links to files of the repository at their pages, and names of the package at the reference."""
    source = next((PurePosixPath(s) for s, p in BROUGHT_IN.items() if p == page.file.src_uri), None)
    place = source or PurePosixPath("docs") / page.file.src_uri
    if page.file.src_uri == ERRORS:
        markdown = markdown.replace("<!-- errors -->", errors())
    linked = _LINK.sub(lambda link: _on_site(link, place, page.file.src_uri), markdown)
    return _outside_code(linked, _with_names) if page.file.src_uri in NAMES_LINKED else linked


def on_post_page(output: str, page: Page, **_kwargs: Any) -> str:
    """Search on a disk by a script of our own; the theme would fetch one."""
    script = get_relative_url("assets/worker-on-file.js", page.url)
    return output.replace(_FETCHED, f'<script src="{script}"></script>')


def on_post_template(output_content: str, **_kwargs: Any) -> str:
    """Fetch none for the page that stands for what is not found."""
    return output_content.replace(_FETCHED, "")


_FETCHED = '<script src="https://unpkg.com/iframe-worker/shim"></script>'


NAMES_LINKED = ("statistics.md", "reading.md")
"""Pages on which the package's names in code type lead to the reference."""


def _on_site(link: re.Match[str], place: PurePosixPath, page: str) -> str:
    """Return where a link leads on the site; the file's own place tells what it is relative to."""
    target = normpath(str(place.parent / link[1]))
    target = next((t for t in (target, f"{target}/README.md", f"{target}/index.md") if (ROOT / t).is_file()), target)
    landing = BROUGHT_IN.get(target) or (target.removeprefix("docs/") if target.startswith("docs/") else None)
    if landing is None or page == BROUGHT_IN.get(target):
        return link[0]
    return relpath(landing, PurePosixPath(page).parent) + (link[2] or "")


def _outside_code(markdown: str, change: Any) -> str:
    parts, last = [], 0
    for fence in _FENCE.finditer(markdown):
        parts += [change(markdown[last : fence.start()]), fence[0]]
        last = fence.end()
    return "".join([*parts, change(markdown[last:])])


def _with_names(markdown: str) -> str:
    """Link the names of statistical functions to their place in the reference, which lists them."""
    pages = "".join(page.read_text() for page in (ROOT / "docs/reference/python").glob("*.md"))
    listed = re.findall(r"^::: (refusal_index\.(?:stats|plugins\.studies)\.\S+)$", pages, re.MULTILINE)
    known = {path.rpartition(".")[2]: path for path in listed}
    return _NAME.sub(lambda name: f"[{name[0]}][{known[name[1]]}]" if name[1] in known else name[0], markdown)


def errors() -> str:
    """Return the table of the package's errors, made of their docstrings."""
    rows = ["| error | is also | cause |", "|---|---|---|"]
    for path in sorted((ROOT / "src").rglob("*.py")):
        for one in ast.parse(path.read_text()).body:
            if isinstance(one, ast.ClassDef) and one.name.endswith("Error") and one.name != "RefusalIndexError":
                bases = [base.id for base in one.bases if isinstance(base, ast.Name) and base.id != "RefusalIndexError"]
                cause = re.sub(r"; the message.*|\.$", "", (ast.get_docstring(one) or "").splitlines()[0])
                rows.append(f"| `{one.name}` | {', '.join(f'`{base}`' for base in bases)} | {_escaped(cause)} |")
    return "\n".join(rows)


def command_line() -> str:
    """Return the reference of the command line, made of the commands themselves."""
    found = list(commands())
    parts = [
        "# Command line",
        "",
        "Generated from the commands, which print the same with `--help` (all options: `--help-all`). Exit status: 0 "
        "done, 1 incomplete or failed, 2 bad input, 3 inconclusive (`gate` only), 130 interrupted.",
        "",
        "| command | what it does |",
        "|---|---|",
    ]
    parts += [f"| [`{name}`](#{_anchor(name)}) | {_escaped(_lines(command)[0])} |" for name, command in found]
    for name, command in found:
        parts += ["", *_section(name, command)]
    return "\n".join(parts) + "\n"


def commands(group: TyperGroup | None = None, prefix: str = "refusal-index") -> Iterator[tuple[str, TyperCommand]]:
    """Yield every command with its full name, in the order of ``--help``."""
    for name, command in (group or get_command(app)).commands.items():  # type: ignore[union-attr]
        if isinstance(command, TyperGroup):
            yield from commands(command, f"{prefix} {name}")
        elif not command.hidden:
            yield f"{prefix} {name}", command  # type: ignore[misc]


def _section(name: str, command: TyperCommand) -> list[str]:
    context = command.make_context(name, [], resilient_parsing=True)
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    all_of_run = getattr(command.callback, ALL_OF_RUN, False)
    shown: list[Any] = [one for one in command.get_params(context) if not getattr(one, "hidden", False)]
    rows = [_record(one, context) for one in shown if not (all_of_run and one.rich_help_panel)]
    parts = [f"## {name.split(' ', 1)[1]} {{#{_anchor(name)}}}", "", "```text", usage, "```", ""]
    parts += [text for line in _lines(command) for text in (_escaped(line), "")]
    parts += ["| option | meaning | default, range |", "|---|---|---|"]
    parts += [_row(*record) for record in rows if "--help" not in record[0]]
    return parts + (["", "And all options of [`run`](#run)."] if all_of_run else [])


def _record(parameter: Any, context: Any) -> tuple[str, str]:
    """Return how a parameter is written, and its help."""
    is_argument = parameter.param_type_name == "argument"
    return (parameter.metavar, parameter.help or "") if is_argument else parameter.get_help_record(context)


def _anchor(name: str) -> str:
    return name.removeprefix("refusal-index ").replace(" ", "-")


def _row(written: str, meaning: str) -> str:
    """Return one line of the table: how an option is written, what its help says, and what it is otherwise."""
    limits = [found for part in _LIMIT.findall(meaning) for found in part.split("; ")]
    text = " ".join(_LIMIT.sub("", meaning).split())
    otherwise = "; ".join(limits).replace("default: ", "")
    return f"| `{' '.join(written.split())}` | {_escaped(text)} | {_escaped(otherwise)} |"


_LIMIT = re.compile(r"\[((?:default: |required|[-\d.]*<=?x|x[<>]=?)[^\]]*)\]")


def _lines(command: TyperCommand) -> list[str]:
    return [" ".join(part.split()) for part in (command.help or "").split("\n\n")]


def _escaped(text: str) -> str:
    marked = re.sub(r"([\\`*_{}\[\]<>|])", r"\\\1", text)
    return _OPTION.sub(r"`\g<0>`", marked)


_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
