"""Options that several commands share, among them the settings of a run."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refusal_index.cli.console import OptionError, option
from refusal_index.cli.groups import documented, set_parameters
from refusal_index.models.settings import Setting
from refusal_index.runs.settings import REMOVED, SETTINGS, not_a_setting

if TYPE_CHECKING:
    from refusal_index.data.run_json import TruthfulnessWeights

Penalty = Annotated[float, typer.Option(min=0)]
DEFAULT_LEVEL = 0.95
ConfidenceLevel = Annotated[float, typer.Option(min=0.5, max=0.9999)]
RUNS_HELP = "Runs' folders, folders of sets, or outcome tables (.csv, .jsonl, .parquet)."
Runs = Annotated[list[Path], typer.Argument(help=RUNS_HELP, metavar="RUN")]


def output(text: str = "", *names: str, metavar: str | None = None, own: str | None = None) -> Any:
    """Return an option that names a file or a folder to write, which must not lie in the folder of a run.

    Parameters
    ----------
    text, names, metavar
        As ``typer.Option`` takes them.
    own
        The file or folder within a run's folder that the command may write.
    """

    def outside_runs(param: typer.CallbackParam, place: Any) -> Any:
        if place in (None, "-"):
            return place
        from refusal_index.data.folder import run_around

        run = run_around(Path(place))
        if run is not None and (own is None or not Path(place).resolve().is_relative_to(run / own)):
            raise OptionError(
                f"{param.opts[0]}: {place} lies in the folder of a run, which is its own; choose another place"
            )
        return place

    return typer.Option(*names, help=text, metavar=metavar, callback=outside_runs)


def weights_of(given: str | None) -> TruthfulnessWeights | None:
    """Read ``--truthfulness-weights``; None where it is not given.

    Raises
    ------
    SettingError
        If it is not three numbers from 0.
    """
    return None if given is None else SETTINGS["truthfulness_weights"].read(given)


def check_place(out: Path) -> None:
    """Raise where a table cannot be written: as `check_new_file`, or RefusalIndexError for a suffix of no table."""
    from refusal_index.data.tables import file_format

    file_format(out)
    check_new_file(out)


def check_new_file(out: Path) -> None:
    """Raise OptionError if ``--out`` is there already and would be lost, or there is no folder to write into."""
    if out.exists() or out.is_symlink():
        raise OptionError(f"--out: {out} is there already and would be lost; choose another name, or remove it")
    check_folder_of("--out", out)


def check_folder_of(option: str, place: Path) -> None:
    """Raise OptionError if there is no folder to write a file into."""
    if not place.parent.is_dir():
        raise OptionError(f"{option}: expected a folder that exists, got {place.parent}; create it or choose another")


def words_of(given: Sequence[str]) -> dict[str, str]:
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
    from refusal_index.data.imports.graded import MEANINGS

    words: dict[str, str] = {}
    for entry in given:
        word, equals, meaning = (part.strip() for part in entry.rpartition("="))
        word, equals = (word, "=") if "=" in entry else ("", "")
        if not (word and equals) or meaning.lower() not in MEANINGS:
            known = ", ".join(MEANINGS)
            raise OptionError(f"--map: expected WORD=MEANING with a meaning out of {known}, got {entry!r}")
        if words.setdefault(word.casefold(), meaning.lower()) != meaning.lower():
            raise OptionError(f"--map: expected one meaning of {word!r}, got {words[word.casefold()]} and {meaning}")
    return words


def columns_of(given: Sequence[str]) -> dict[str, str] | None:
    """Read ``ROLE=NAME`` pairs; None where there are none.

    Raises
    ------
    OptionError
        If one of them is not such a pair.

    Examples
    --------
    >>> columns_of(["question=problem"])
    {'question': 'problem'}
    """
    pairs = [entry.partition("=") for entry in given]
    for entry, (role, equals, name) in zip(given, pairs, strict=True):
        if not (role and equals and name):
            raise OptionError(f"--column: expected ROLE=NAME, for instance question=problem, got {entry!r}")
    return {role: name for role, _, name in pairs} or None


FORECAST = ("assume_refusal", "reply_tokens", "seconds_per_request")
"""Settings of a dry run only."""


def takes_settings(*names: str, **words: str) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Give a command an option for each of some settings.

    Parameters
    ----------
    names
        The settings, in the order of the help; a command that takes none in particular takes all.
    words
        What an option says where it is not what it always says.

    Returns
    -------
    callable
        A decorator. The command is called with `values`, the settings that stand on the command line, by name.
    """
    chosen = names or tuple(SETTINGS)

    def decorate(command: Callable[..., Any]) -> Callable[..., None]:
        command = documented(command)
        signature = inspect.signature(command)
        own = [each for each in signature.parameters.values() if each.name != "values"]
        options = [_parameter(SETTINGS[name], words.get(name, SETTINGS[name].description)) for name in chosen]
        options += [_removed(name) for name in REMOVED]

        @functools.wraps(command)
        def called(**given: Any) -> None:
            for name in REMOVED:
                if given.pop(name):
                    raise not_a_setting(name)
            values = {name: value for name in chosen if (value := given.pop(name)) not in (None, [])}
            command(**given, values=values)

        set_parameters(called, signature, (*own, *options))
        return called

    return decorate


def _parameter(setting: Setting, words: str) -> inspect.Parameter:
    default = setting.default
    if not setting.optional and setting.kind is not bool and default not in ("", ()):
        words = f"{words} [default: {','.join(default) if type(default) is tuple else default}]"
    shown = typer.Option(
        option(setting.name),
        help=words,
        min=setting.low,
        max=setting.high,
        show_default=False,
        metavar=setting.metavar,
    )
    kind: Any = list[setting.kind] if setting.metavar else setting.kind  # type: ignore[name-defined]  # known at run time only
    return inspect.Parameter(
        setting.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, shown]
    )


def _removed(name: str) -> inspect.Parameter:
    """Return a hidden option, so that an error can say what replaced it."""
    hidden = typer.Option(option(name), hidden=True)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, hidden])
