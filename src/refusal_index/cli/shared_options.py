"""Options that several commands share, among them the settings of a run, and the runs that commands read."""

from __future__ import annotations

import functools
import inspect
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refusal_index.cli import ALL_OF_RUN, HELP_ALL, console, documented, metavar_of, set_parameters
from refusal_index.cli.console import OptionError, option
from refusal_index.models.settings import Setting
from refusal_index.runs.settings import GROUPS, SETTINGS

if TYPE_CHECKING:
    from refusal_index.data.analysis import Analysis
    from refusal_index.data.run_json import TruthfulnessWeights
    from refusal_index.findings.run_results import FoundRuns, RunResults

WeightedScoreP = Annotated[float, typer.Option(min=0)]
DEFAULT_LEVEL = 0.95
OF_GRADING = ("grader_base_url", "grader_api_key_env", "grader_prompt", "grader_price", "max_connections")
"""Settings of commands in which a model grades answers of a file."""
ConfidenceLevel = Annotated[float, typer.Option(min=0.5, max=0.9999)]


def output(*names: str, allowed: str | None = None) -> Any:
    """Return an option that names a file or a folder to write, which must not lie in the folder of a run.

    Parameters
    ----------
    names
        Further names of the option.
    allowed
        The file or folder within a run's folder that the command may write.
    """

    def outside_runs(param: typer.CallbackParam, value: Any) -> Any:
        for path in value if isinstance(value, list) else [value] if value else []:
            from refusal_index.data.folder import run_around

            run = run_around(Path(path))
            if run is not None and (allowed is None or not Path(path).resolve().is_relative_to(run / allowed)):
                raise OptionError(f"{param.opts[0]}: {path} lies in the folder of a run; choose another place")
        return value

    return typer.Option(*names, callback=outside_runs)


def weights_of(text: str | None) -> TruthfulnessWeights | None:
    """Read ``--truthfulness-weights``; None where it is not given.

    Raises
    ------
    SettingError
        If it is not three numbers from 0.
    """
    return None if text is None else SETTINGS["truthfulness_weights"].read(text)


def check_place(out: Path) -> None:
    """Check a table to write, as `check_new_file`; also raise RefusalIndexError for a suffix that is not a table's."""
    from refusal_index.data.tables import file_format

    file_format(out)
    check_new_file(out)


def check_new_file(out: Path, option: str = "--out") -> None:
    """Raise OptionError if the file of an option already exists, or its folder does not exist."""
    if out.exists() or out.is_symlink():
        raise OptionError(f"{option}: {out} already exists; choose another name, or remove it")
    check_folder_of(out, option)


def check_folder_of(path: Path, option: str = "--out") -> None:
    """Raise OptionError if the folder of an option's file does not exist."""
    if not path.parent.is_dir():
        raise OptionError(f"{option}: the folder {path.parent} does not exist; create it, or choose another")


def words_of(entries: Sequence[str] | None) -> dict[str, str]:
    """Read ``WORD=MEANING`` pairs of ``--map``.

    Raises
    ------
    OptionError
        If one of them is not such a pair, or a word is given two meanings.

    Examples
    --------
    >>> words_of(["Pass=refused"])
    {'pass': 'refused'}
    """
    from refusal_index.data.grade_words import MEANINGS

    words: dict[str, str] = {}
    for entry in entries or ():
        word, _, meaning = (part.strip() for part in entry.rpartition("="))
        if not word or meaning.lower() not in MEANINGS:
            meanings = ", ".join(MEANINGS)
            raise OptionError(f"--map: expected WORD=MEANING, the meaning one of {meanings}, got {entry!r}")
        if words.setdefault(word.casefold(), meaning.lower()) != meaning.lower():
            raise OptionError(f"--map: expected one meaning of {word!r}, got {words[word.casefold()]} and {meaning}")
    return words


def columns_of(entries: Sequence[str] | None) -> dict[str, str]:
    """Read ``ROLE=NAME`` pairs.

    Raises
    ------
    SettingError
        If one of them is not such a pair.

    Examples
    --------
    >>> columns_of(["question=problem"])
    {'question': 'problem'}
    """
    return dict(SETTINGS["column"].read(entries or ()))


def settings_of(command: str) -> tuple[str, ...]:
    """Return the settings of a command that evaluates models: all, except those that say they are not in it."""
    return tuple(name for name, setting in SETTINGS.items() if command not in setting.not_in)


def check_named(values: Mapping[str, Any]) -> None:
    """Raise OptionError if ``--base-url`` is given without the server's name for the model."""
    if "base_url" in values and "model" not in values:
        raise OptionError("--base-url: requires --model, the server's own name for the model; add it")


def takes_settings(
    *names: str, all_of_run: bool = False, **words: str
) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Give a command an option for each of some settings.

    Parameters
    ----------
    names
        The settings, in the order of the help; a command that takes none in particular takes all.
    all_of_run
        Leave them all to ``--help-all``, and say in ``--help`` that the command takes the options of ``run``.
    words
        The help of an option where it is not that of the setting.

    Returns
    -------
    callable
        A decorator. The command is called with `values`, the settings that stand on the command line, by name.
    """
    chosen = names or tuple(SETTINGS)

    def decorate(command: Callable[..., Any]) -> Callable[..., None]:
        command = documented(command)
        signature = inspect.signature(command)
        parameters = [parameter for parameter in signature.parameters.values() if parameter.name != "values"]
        options = [_parameter(SETTINGS[name], words.get(name), is_common=not all_of_run) for name in chosen]

        @functools.wraps(command)
        def called(**arguments: Any) -> None:
            del arguments[HELP_ALL]
            values = {name: value for name in chosen if (value := arguments.pop(name)) not in (None, [])}
            command(**arguments, values=values)

        set_parameters(called, signature, (*parameters, *options, _HELP_ALL))
        setattr(called, ALL_OF_RUN, all_of_run)
        return called

    return decorate


def _parameter(setting: Setting, words: str | None, *, is_common: bool) -> inspect.Parameter:
    described = setting if words is None else replace(setting, description=words)
    shown = typer.Option(
        option(setting.name),
        help=described.help,
        min=setting.low,
        max=setting.high,
        show_default=False,
        metavar=setting.metavar or metavar_of(setting.kind),
        rich_help_panel=None if is_common and setting.is_common else GROUPS[setting.group],
    )
    kind: Any = list[setting.kind] if setting.is_repeatable else setting.kind  # type: ignore[name-defined]  # known at run time only
    return inspect.Parameter(
        setting.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, shown]
    )


def _show_all(ctx: typer.Context, is_given: bool) -> None:
    if is_given:
        ctx.meta[HELP_ALL] = True
        typer.echo(ctx.get_help())
        raise typer.Exit


_HELP_ALL = inspect.Parameter(
    HELP_ALL,
    inspect.Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[
        bool, typer.Option("--help-all", callback=_show_all, is_eager=True, help="Show all options and exit.")
    ],
)


def readable_runs(paths: Sequence[Path], analysis: Analysis | None = None) -> FoundRuns:
    """Read all readable runs, and report why others cannot be read.

    Raises
    ------
    RunFolderError, OutcomeTableError
        If a path is not there, or none can be read.
    """
    from refusal_index.data.analysis import DEFAULT_ANALYSIS
    from refusal_index.findings.run_results import find_runs

    runs = find_runs(paths, analysis or DEFAULT_ANALYSIS)
    report_left_out(runs.left_out)
    return runs


def only_folder(command: str, files: Sequence[Path]) -> Path | None:
    """Return the given run's folder, None if files were given; raises OptionError for both."""
    folders = [path for path in files if path.is_dir()]
    if folders and len(files) > 1:
        raise OptionError(
            f"{command}: expected the folder of one run or any number of files, got {len(files)} with the folder "
            f"{folders[0]} among them; name its outcomes.parquet instead"
        )
    return folders[0] if folders else None


def how_to_show(files: Sequence[Path], options: Mapping[str, Any] = MappingProxyType({})) -> str:
    """Return the line with the command that prints everything; an option may have a list of values."""
    arguments = [
        word
        for name, value in options.items()
        for item in (value if isinstance(value, list) else [value])
        if item is not None
        for word in (console.option(name), str(item))
    ]
    return f"All metrics: {shlex.join(['refusal-index', 'show', *map(str, files), *arguments])}"


def report_missing(runs: Sequence[RunResults]) -> None:
    """Report which runs lack grades, before any results."""
    from refusal_index.findings.run_differences import missing_statements
    from refusal_index.render.sentences import sentence

    for statement in missing_statements(runs):
        console.note(sentence(statement))


def report_left_out(sentences: Iterable[str]) -> None:
    """Report why runs are left out; the exit status of a command that succeeds is then `INCOMPLETE`."""
    for sentence in sentences:
        console.note(f"left out: {sentence}")
