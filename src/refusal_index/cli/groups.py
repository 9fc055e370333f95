"""The commands in groups, each loaded when it is called: ``--help`` needs none of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from refusal_index.cli.console import OptionError, tells_bad_input
from refusal_index.data.errors import is_utf8

new_group = partial(typer.Typer, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

GROUPS = {
    "Measure": {
        "run": ("commands.run:run", "Measure a model's Refusal Index."),
        "score": ("commands.score:score", "Compute the Refusal Index from outcomes."),
        "confidence": ("commands.confidence:confidence", "Score how likely a run's answers are right."),
        "force": ("commands.force:force", "Ask a model what the first pass in a file refused."),
        "requests": ("commands.requests:requests", "Write what a run asks next into files for batches."),
        "replies": ("commands.replies:replies", "Take the results of request files into their run."),
        "regrade": ("commands.regrade:regrade", "Grade the replies of a run anew."),
        "watch": ("commands.watch:watch", "Measure each checkpoint of a training."),
    },
    "Look": {
        "report": ("commands.report:report", "Write one HTML file to look at."),
        "study": ("commands.study:study", "Make one study of the paper, or beyond it."),
        "paper": ("commands.paper:paper", "Make every study that the runs allow."),
        "export": ("commands.export:export", "Write runs for another tool, or log them in a tracker."),
    },
    "Compare": {
        "compare": ("commands.compare:compare", "Compare models over the same questions."),
        "gate": ("commands.gate:gate", "Judge whether a model may be released."),
        "sensitivity": ("commands.sensitivity:sensitivity", "Show what other decisions would have made of a run."),
        "audit": ("commands.audit:audit", "Draw graded answers for a person to check."),
        "threshold": ("commands.threshold:threshold", "Choose from which score on to answer."),
        "plan": ("commands.plan:plan", "Say how many questions RI needs."),
    },
    "Questions and answers": {
        "import": ("commands.import_:import_", "Import first passes that others asked for and graded."),
        "validate": ("commands.validate:validate", "Check a file of questions before anything is asked."),
        "prompts": ("commands.prompts:prompts", "Check a prompt set and show it as it is asked."),
        "build": ("commands.build:app", "Build a set of questions with the help of models."),
        "ls": ("commands.ls:ls", "List the datasets, prompt sets and models of the package."),
    },
    "Serve": {
        "serve": ("commands.serve:serve", "Serve the embedded models over the OpenAI chat API."),
        "run-batch": ("commands.run_batch:run_batch", "Answer a file of requests as vllm run-batch does."),
    },
}
"""The commands by what one wants: where each is, and what it does in a line that no terminal cuts."""


class LazyCommands(Mapping[str, Any]):
    """Every command by its name, imported when it is looked up."""

    def __init__(self) -> None:
        self._places = {name: place for group in GROUPS.values() for name, (place, _) in group.items()}
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = _load(name, self._places[name])
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


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

    @tells_bad_input
    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        return super().invoke(ctx)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - of the interface
        """Write a section for each group, in columns of one width."""
        width = max(map(len, self.commands))
        for title, group in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), told) for name, (_, told) in group.items()])


def _load(name: str, place: str) -> Any:
    module, _, attribute = place.partition(":")
    found = getattr(import_module(f"refusal_index.cli.{module}"), attribute)
    holder = new_group()
    holder.callback()(lambda: None)
    if isinstance(found, typer.Typer):
        holder.add_typer(found, name=name)
    else:
        holder.command(name)(found)
    return get_command(holder).commands[name]  # type: ignore[attr-defined]
