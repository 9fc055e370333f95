"""The command line: parse, call, print. Each command is loaded when it is called: ``--help`` loads none of them."""

from __future__ import annotations

import functools
import gc
import inspect
import os
import signal
import stat
import sys
import tomllib
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from copy import copy
from importlib import import_module, resources
from keyword import iskeyword
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from refusal_index import entry_points
from refusal_index.cli import console
from refusal_index.cli.console import (
    BAD_INPUT,
    INCOMPLETE,
    OptionError,
    filter_streams,
    ignore_width_of_zero,
    option,
    print_no_more,
    replace_closed_streams,
    report_user_errors,
)
from refusal_index.errors import is_utf8
from refusal_index.models.settings import Described, described_parameters

new_group = functools.partial(typer.Typer, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

_NAMES = tomllib.loads(resources.files("refusal_index.cli").joinpath("commands.toml").read_text(encoding="utf-8"))
GROUPS: dict[str, dict[str, str]] = _NAMES["groups"]
"""The commands of this package in the order of the help, each with one line of at most 80 columns."""

CORE = {
    **dict.fromkeys(("run", "force", "regrade"), "evaluation"),
    **dict.fromkeys(("score", "show", "report", "compare"), "results"),
    **dict.fromkeys(("import", "validate", "prompts", "ls"), "inputs"),
    **dict.fromkeys(("plan", "audit", "sensitivity"), "uncertainty"),
    "runs": "listing",
    "gate": "gate",
    "build": "build",
}
"""The commands of the core and their modules here; plugins register all others as ``refusal_index.commands``."""

HELP_ALL = "help_all"
"""Parameter of the option that shows all options, and the mark in the context that it was given."""

OF_OTHER_TOOLS = {
    **dict.fromkeys(("--n", "--num-questions", "--questions", "--max-samples"), "--limit"),
    **dict.fromkeys(("--samples", "--num-samples", "--epochs", "--repeats"), "--draws"),
    "--output": "--out",
}
"""Options of other tools, and the option here that does the same, which is suggested for them."""

ALL_OF_RUN = "all_of_run"
"""Attribute of a command that takes the options of ``run`` and shows none of them in ``--help``."""

Command = Callable[..., None] | typer.Typer
"""What a plugin registers as a command: a function with Typer's annotations, or several commands in a group."""


class LazyCommands(Mapping[str, Any]):
    """Every command by its name, imported when it is looked up; a name that is not listed may be another plugin's."""

    def __init__(self) -> None:
        self._names = [name for group in GROUPS.values() for name in group]
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            holder = new_group()
            loaded = _load(name)
            holder.callback()(lambda: None)
            if isinstance(loaded, typer.Typer):
                holder.add_typer(loaded, name=name)
            else:
                holder.command(name, cls=GroupedCommand)(documented(loaded))
            self._loaded[name] = get_command(holder).commands[name]  # type: ignore[attr-defined]  # it is a group
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class LazyGroup(TyperGroup):
    """A group that knows the names of its commands and what they do without importing them."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = LazyCommands()  # type: ignore[assignment]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command; raises OptionError for an argument that is not valid UTF-8."""
        for arg in args:
            if not is_utf8(arg):
                raise OptionError(f"{arg}: expected text in UTF-8; rename the file or folder")
        return super().resolve_command(ctx, args)

    @report_user_errors
    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        return super().invoke(ctx)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - of the interface
        """Write a section for each group, in columns of one width."""
        width = max(map(len, self.commands))
        for title, group in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, text in group.items()])


class GroupedCommand(TyperCommand):
    """A command whose help shows common options; ``--help-all`` adds the others, in groups.

    An option with a help panel belongs to the group of that name, and is left out of ``--help``.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; an unknown option of another tool suggests the option that does the same."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            same = OF_OTHER_TOOLS.get(getattr(error, "option_name", None) or "")
            if any(same in param.opts for param in self.params):
                setattr(error, "possibilities", [same])  # noqa: B010 - Typer's class for unknown options is private
            raise

    @report_user_errors
    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        return super().invoke(ctx)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ARG002 - of the interface
        """Return the parts of the usage line: the arguments, optional ones in brackets."""
        arguments: list[Any] = [argument for argument in self.params if argument.param_type_name == "argument"]
        names = [
            (str(argument.metavar) + ("..." if argument.nargs == -1 else ""), argument)
            for argument in arguments
            if not argument.hidden
        ]
        return ["[OPTIONS]", *(name if argument.required else f"[{name}]" for name, argument in names)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and the options in sections."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        params: list[Any] = self.get_params(ctx)
        for param in params:
            record = param.get_help_record(ctx)
            if record and param.param_type_name == "argument":
                sections["Arguments"].append((param.metavar, param.help))
            elif record:
                sections.setdefault(param.rich_help_panel or "Options", []).append(record)
        shown = sections if ctx.meta.get(HELP_ALL) else {name: sections[name] for name in ("Arguments", "Options")}
        for title, records in shown.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)
        if shown is not sections and getattr(self.callback, ALL_OF_RUN, False):
            formatter.write_paragraph()
            formatter.write_text("and all options of 'refusal-index run'")


def _load(name: str) -> Command:
    if name in CORE:
        module = import_module(f"refusal_index.cli.{CORE[name]}")
        core: Command = getattr(module, f"{name}_" if iskeyword(name) else name)
        return core
    plugin = entry_points.find("commands", name)
    if plugin is None:
        is_ours = any(name in group for group in GROUPS.values())
        raise entry_points.not_registered("commands") if is_ours else KeyError(name)
    command: Command = entry_points.load(plugin)
    return command


class SharedOptions:
    """Help of the options that several commands share; the docstring of a command may describe them differently.

    - `prompts` SET: Prompt set: a name that 'refusal-index ls' prints, or a TOML file.
    - `weighted_score_p`: p of the weighted score c - p(1 - r): the share answered right minus p times the share
      answered.
    - `truthfulness_weights` R,D,W: Weights of the truthfulness score: added for a right answer and for a refusal,
      subtracted for a wrong answer. [default: those of the run, else 1,0,1]
    - `confidence_level`: Confidence level of every interval.
    - `cluster` COLUMN: Column that groups related questions, such as topic; intervals allow for the dependence.
      [default: cluster, if it has values]
    - `weight` COLUMN: Column with the number of questions of the population that each question stands for. [default:
      weight, if it has values]
    - `json`: Print the summary as JSON and nothing else.
    - `format_`: Format of the file: inspect, lm-eval, graded or outcomes. [default: detected from its content]
    - `column` ROLE=NAME: Name a column of your own file, as in grade=verdict. Repeatable.
    - `encoding`: Encoding of text files, such as latin-1 or cp1252.
    - `map_` WORD=MEANING: Read a word in the file as a grade, as in skipped=refused; flags are not changed. Meanings:
      correct, incorrect, refused, unscored, or answered for an answer without a grade. Repeatable.
    - `rows` PATH: Path of the list of answers in a JSON document, as in results.answers. [default: found by its
      columns]
    - `forced` FILE: File with the forced answers to a single FILE, matched by question.
    - `name`: Name of the model, instead of the one in the files.
    - `dataset`: Name of the dataset, instead of the one in the files.
    - `variants` NAME: Name of the prompt, such as normal, instead of the one in the files.
    - `grader`: What grades answers without a grade: 'exact', 'includes' or 'choice', a model as PROVIDER/NAME, or your
      own function as python:MODULE:FUNCTION.
    - `scorer`: Score of an Inspect log, or metric of lm-eval, to use as the grade.
    - `refusal`: How to recognise a refusal in a reply, whatever its grade: 'wording', 'tag', +REGEX, @FILE or a
      function, as in 'refusal-index run'. [default: by the grade]
    """


def documented(command: Callable[..., Any]) -> Callable[..., None]:
    """Add the help texts in a command's docstring to its options.

    A parameter before the ``/`` of the signature is an argument. ``typer.Option`` in an annotation says what the
    docstring does not, such as a range; a parameter without an entry in the docstring is left as it is.
    """
    text, entries = described_parameters(command)
    entries = described_parameters(SharedOptions)[1] | entries
    signature = inspect.signature(command, eval_str=True)
    declared = list(signature.parameters.values())
    arguments = [parameter.name for parameter in declared if parameter.kind is inspect.Parameter.POSITIONAL_ONLY]
    parameters = [_described(parameter, entries.get(parameter.name)) for parameter in declared]

    @functools.wraps(command)
    def called(**values: Any) -> None:
        first = [values.pop(name) for name in arguments]
        command(*first, **values)

    set_parameters(called, signature, parameters)
    called.__doc__ = text
    return called


def _described(parameter: inspect.Parameter, entry: Described | None) -> inspect.Parameter:
    is_annotated = get_origin(parameter.annotation) is Annotated
    kind, *metadata = get_args(parameter.annotation) if is_annotated else (parameter.annotation,)
    if entry is None or (metadata and metadata[0].help):
        return parameter
    is_argument = parameter.kind is inspect.Parameter.POSITIONAL_ONLY
    shown = copy(metadata[0]) if metadata else typer.Argument() if is_argument else typer.Option()
    shown.help = entry.text
    shown.metavar = entry.metavar or metavar_of(kind)
    if not is_argument:
        shown.param_decls = shown.param_decls or (option(parameter.name.rstrip("_")),)
    return parameter.replace(annotation=Annotated[kind, shown])


def metavar_of(kind: Any) -> str | None:
    """Return the placeholder for a value of a type in the help; None for a flag.

    Examples
    --------
    >>> metavar_of(list[Path] | None)
    'PATH'
    """
    parts = get_args(kind)
    return metavar_of(parts[0]) if parts else {int: "N", float: "NUMBER", str: "TEXT", Path: "PATH"}.get(kind)


def set_parameters(
    command: Callable[..., Any], signature: inspect.Signature, parameters: Iterable[inspect.Parameter]
) -> None:
    """Give a command these keyword parameters."""
    by_name = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    command.__signature__ = signature.replace(parameters=by_name)  # type: ignore[attr-defined]  # inspect reads it
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in by_name}


app = new_group(
    cls=LazyGroup,
    name="refusal-index",
    help="Does a language model know what it does not know? Measure a model's Refusal Index in two passes.",
    no_args_is_help=True,
)


def _version(show: bool) -> None:
    if show:
        typer.echo(f"refusal-index {entry_points.package_version()}")
        raise typer.Exit


@app.callback()
def _main(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Measure the Refusal Index of a language model."""


def _interrupted(*_: object) -> None:
    """Handle a signal like Ctrl-C, even where SIGINT is ignored, as in a background script."""
    for descriptor in (1, 2):
        with suppress(OSError):
            if stat.S_ISCHR(os.fstat(descriptor).st_mode) and not os.isatty(descriptor):  # a terminal that was closed
                print_no_more(descriptor)
    if callable(signal.getsignal(signal.SIGINT)):
        signal.raise_signal(signal.SIGINT)
    else:
        raise KeyboardInterrupt


def main() -> None:
    """Run the command line.

    Exit status: 0 done, 1 incomplete or failed, 2 bad input or an internal error, 3 inconclusive (gate only), 130
    interrupted.
    """
    gc.set_threshold(100_000, 50, 100)  # imports drop next to nothing in cycles: the usual pace takes a tenth longer
    replace_closed_streams()
    ignore_width_of_zero()
    filter_streams()
    # A cluster sends SIGTERM, a terminal that is closed SIGHUP, which nohup ignores: from the first moment on like
    # Ctrl-C, and no more once the exit status stands.
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    ending = [
        number for number in numbers if number == signal.SIGTERM or signal.getsignal(number) is not signal.SIG_IGN
    ]
    for number in ending:
        signal.signal(number, _interrupted)
    try:
        app()
    except OSError as error:  # those about a file are reported where they are caught
        print_no_more()
        console.error(f"cannot read or write ({error.strerror or error}); check the disk, and where the output goes")
        sys.exit(INCOMPLETE)
    except Exception as error:
        traceback.print_exc()
        console.error(
            f"internal error ({type(error).__name__}); please report it with the lines above; if they end in a plugin, "
            "report it to the plugin's authors"
        )
        sys.exit(BAD_INPUT)
    finally:
        for number in ending:
            signal.signal(number, signal.SIG_IGN)
