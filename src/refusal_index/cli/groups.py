"""The commands in groups, each loaded when it is called: ``--help`` needs none of them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from functools import partial
from importlib import import_module
from keyword import iskeyword
from typing import Annotated, Any, get_args, get_origin

import typer
from typer.core import TyperGroup
from typer.main import get_command

from refusal_index import entry_points
from refusal_index.cli.console import OptionError, option, report_user_errors
from refusal_index.data.errors import is_utf8
from refusal_index.docstrings import Described, described_parameters

new_group = partial(typer.Typer, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

GROUPS = {
    "Measure": {
        "run": "Measure a model's Refusal Index.",
        "score": "Compute the Refusal Index from outcomes.",
        "confidence": "Score how likely a run's answers are right.",
        "force": "Ask a model what the first pass in a file refused.",
        "requests": "Write what a run asks next into files for batches.",
        "replies": "Read the results of request files into their run.",
        "regrade": "Grade the replies of a run anew.",
        "watch": "Measure each checkpoint of a training.",
    },
    "Look": {
        "show": "Show every metric of a run.",
        "report": "Write one HTML file to look at.",
        "study": "Make one study of the paper, or beyond it.",
        "paper": "Make every study that the runs allow.",
        "export": "Write runs for another tool, or log them in a tracker.",
    },
    "Compare": {
        "compare": "Compare models over the same questions.",
        "gate": "Judge whether a model may be released.",
        "sensitivity": "Show what other decisions would have made of a run.",
        "audit": "Draw graded answers for a person to check.",
        "threshold": "Choose from which score on to answer.",
        "plan": "Say how many questions RI needs.",
    },
    "Questions and answers": {
        "import": "Import first passes that others asked for and graded.",
        "validate": "Check a file of questions before anything is asked.",
        "prompts": "Check a prompt set and show it as it is asked.",
        "build": "Build a set of questions with the help of models.",
        "ls": "List the datasets, prompt sets and models of the package.",
    },
    "Serve": {
        "serve": "Serve the embedded models over the OpenAI chat API.",
        "run-batch": "Answer a file of requests as vllm run-batch does.",
    },
}
"""The commands of this package by purpose, each with a line of help that fits into 80 columns."""

CORE = (
    *("run", "score", "show", "force", "regrade", "report", "compare", "gate", "sensitivity", "audit", "plan"),
    *("import", "validate", "prompts", "ls"),
)
"""The commands that are modules of `commands/`; plugins register all others as ``refusal_index.commands``."""

Command = Callable[..., None] | typer.Typer
"""What a plugin registers as a command: a function with Typer's annotations, or several commands in a group."""


class LazyCommands(Mapping[str, Any]):
    """Every command by its name, imported when it is looked up; a name that is not listed may be another plugin's."""

    def __init__(self) -> None:
        self._names = [name for group in GROUPS.values() for name in group]
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = _as_command(name, _load(name))
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

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - of the interface
        """Name the commands in the order of the groups."""
        return list(self.commands)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command, unless an argument cannot be written into a file or sent."""
        for given in args:
            if not is_utf8(given):
                raise OptionError(f"{given}: expected text in UTF-8; rename the file or folder")
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


def _load(name: str) -> Command:
    if name in CORE:
        module = f"{name}_" if iskeyword(name) else name
        core: Command = getattr(import_module(f"refusal_index.cli.commands.{module}"), module)
        return core
    plugin = entry_points.find("commands", name)
    if plugin is None:
        is_ours = any(name in group for group in GROUPS.values())
        raise entry_points.not_registered("commands") if is_ours else KeyError(name)
    found: Command = entry_points.load(plugin)
    return found


def _as_command(name: str, found: Command) -> Any:
    holder = new_group()
    holder.callback()(lambda: None)
    if isinstance(found, typer.Typer):
        holder.add_typer(found, name=name)
    else:
        holder.command(name)(documented(found))
    return get_command(holder).commands[name]  # type: ignore[attr-defined]


class SharedOptions:
    """Options that mean the same in every command that has them, unless its own docstring describes them.

    - `prompts`: Prompt set: a name, or a TOML file.
    - `penalty`: Penalty of the Weighted score.
    - `truthfulness_weights` R,D,W: Of the truthfulness score: for a right answer, for a refusal and, taken off, for a
      wrong answer. [default: a run's own, else 1,0,1]
    - `confidence_level`: Of every interval.
    - `cluster` COLUMN: Column that says which questions are alike, such as topic: intervals then allow for it.
      [default: cluster, if filled]
    - `weight` COLUMN: Column that says for how many questions of the population each stands. [default: weight, if
      filled]
    - `json`: Print the summary as JSON and nothing else.
    - `format_`: inspect, lm-eval, graded or outcomes. [default: told by the content]
    - `column`: Name a column, as in grade=verdict; may be repeated.
    - `map_`: Read a word of grades or flags as another, as in Pass=refused: correct, incorrect, refused, unscored, true
      or false; may be repeated.
    - `scorer`: The score of an Inspect log or the metric of lm-eval that is the grade.
    - `refusal`: What refuses, unless graded correct: a reply in which this regular expression is found; or 'wording',
      'tag' or a function, as in 'refusal-index run'. [default: what is graded so]
    """


def documented(command: Callable[..., Any]) -> Callable[..., None]:
    """Give the parameters of a command, as options, the help that its docstring has for them.

    A parameter before the ``/`` of the signature is an argument. ``typer.Option`` in an annotation says what the
    docstring does not, such as a range; a parameter without an entry in the docstring is left as it is.
    """
    text, entries = described_parameters(command)
    entries = described_parameters(SharedOptions)[1] | entries
    signature = inspect.signature(command, eval_str=True)
    own = list(signature.parameters.values())
    arguments = [each.name for each in own if each.kind is inspect.Parameter.POSITIONAL_ONLY]
    parameters = [_described(each, entries.get(each.name)) for each in own]

    @functools.wraps(command)
    def called(**given: Any) -> None:
        first = [given.pop(name) for name in arguments]
        command(*first, **given)

    set_parameters(called, signature, parameters)
    called.__doc__ = text
    return called


def _described(parameter: inspect.Parameter, entry: Described | None) -> inspect.Parameter:
    is_annotated = get_origin(parameter.annotation) is Annotated
    kind, *given = get_args(parameter.annotation) if is_annotated else (parameter.annotation,)
    if entry is None or (given and given[0].help):
        return parameter
    is_argument = parameter.kind is inspect.Parameter.POSITIONAL_ONLY
    shown = copy(given[0]) if given else typer.Argument() if is_argument else typer.Option()
    shown.help, shown.metavar = entry.text, entry.metavar
    if not is_argument:
        shown.param_decls = shown.param_decls or (option(parameter.name.rstrip("_")),)
    return parameter.replace(annotation=Annotated[kind, shown])


def set_parameters(
    command: Callable[..., Any], signature: inspect.Signature, parameters: Iterable[inspect.Parameter]
) -> None:
    """Make a command take these parameters, all by name."""
    by_name = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    command.__signature__ = signature.replace(parameters=by_name)  # type: ignore[attr-defined]  # inspect reads it
    command.__annotations__ = {each.name: each.annotation for each in by_name}
