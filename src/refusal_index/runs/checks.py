"""What settings name, checked before anything is asked: graders, variants, models, functions and budgets."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from typing import Any

from refusal_index import entry_points
from refusal_index.data.outcome import Question
from refusal_index.data.text import PatternError
from refusal_index.models.accounts import COMPATIBLE, OPENAI
from refusal_index.models.functions import PREFIX, is_function_name, load_function, source_sha256
from refusal_index.models.providers import provider_of
from refusal_index.models.settings import SettingError, unknown
from refusal_index.protocol import ASKED_AGAIN, GraderKind, Message, Placement, PromptSet, Role, check_lengths
from refusal_index.protocol.graders import RULES
from refusal_index.protocol.refusals import FUNCTIONS, Detector, detector_of
from refusal_index.runs.registry import DIRECT, check_engines_own, check_limits
from refusal_index.runs.settings import DEFAULT_GRADER, Settings
from refusal_index.runs.trackers import is_installed, not_installed

UNSCORED = "unscored"
"""Every reason to ask again."""

PARAPHRASES = "+"  # behind a variant's name


def grader_of(given: str) -> tuple[GraderKind, tuple[str, ...]]:
    """Tell who grades: a rule, a model or a function, or two of these that must agree.

    Raises
    ------
    SettingError
        If it is none of these.

    Examples
    --------
    >>> grader_of("exact"), grader_of("openai/gpt-4.1")
    ((<GraderKind.EXACT: 'exact'>, ()), (<GraderKind.MODEL: 'model'>, ('openai/gpt-4.1',)))
    """
    if given in RULES:
        return GraderKind(given), ()
    models = tuple(name.strip() for name in given.split(","))
    if len(models) > 2 or len(set(models)) < len(models):
        raise SettingError(f"{{grader}}: expected a rule, a model or two different models as in A,B, got {given!r}")
    return (GraderKind.MODEL if len(models) == 1 else GraderKind.AGREE), tuple(map(_grader_name, models))


def _grader_name(name: str) -> str:
    """Return the name of a model or a function; a plugin's grader, of ``refusal_index.graders``, is a function."""
    if "/" in name or is_function_name(name):
        return name
    plugin = entry_points.find("graders", name)
    if plugin is None:
        raise unknown("grader", name, [*map(str, RULES), *entry_points.installed("graders"), DEFAULT_GRADER])
    return f"{PREFIX}{plugin.value}"


def refusal_detector(settings: Settings, objects: Mapping[str, object], *, imports: bool = True) -> Detector | None:
    """Return what recognises refusals where a rule grades.

    Parameters
    ----------
    settings, objects
        How refusals are recognised, and functions in memory by name.
    imports
        Whether to import a function that is given by name.

    Raises
    ------
    SettingError
        If it is no regular expression.
    ModelError
        If there is no such function.
    """
    name = settings.refusal
    if is_function_name(name) and (imports or name in objects):
        function: Any = objects.get(name) or load_function(name)
        FUNCTIONS[name] = function
    elif is_function_name(name):
        return None
    try:
        return detector_of(name)
    except PatternError as error:
        raise SettingError(
            f"{{refusal}}: expected 'wording', 'tag', a regular expression or a function as python:MODULE:FUNCTION, "
            f"got {name!r} ({error})"
        ) from error


def check_trackers(settings: Settings) -> None:
    """Raise SettingError if a tracker is unknown or not installed: before anything is asked.

    >>> check_trackers(Settings.of(log_to="wandbb"))
    Traceback (most recent call last):
    refusal_index.models.settings.SettingError: log_to: expected one of mlflow, wandb, got 'wandbb'; did you mean ...
    """
    for name in settings.log_to:
        if not is_installed(name):
            raise SettingError(f"{{log_to}}: {not_installed(name)}")


def placement_of(settings: Settings) -> Placement:
    """Return where the instruction stands.

    Raises
    ------
    SettingError
        If there is no such place.
    """
    known = [str(placement) for placement in Placement]
    if settings.prompting.placement not in known:
        raise unknown("placement", settings.prompting.placement, known)
    return Placement(settings.prompting.placement)


def chosen(given: Sequence[str], prompts: PromptSet) -> tuple[str, ...]:
    """Return the variants of a prompt set that are named, in its order; with a plus sign, their paraphrases too.

    Raises
    ------
    SettingError
        If there is none of that name.
    """
    known = list(prompts.variants)
    if tuple(given) == ("all",):
        return tuple(known)
    names = {name for part in given for name in _family(part, prompts)}
    if not names:
        raise SettingError(f"{{variants}}: expected 'all' or some of {', '.join(known)}, got {','.join(given)!r}")
    return tuple(name for name in known if name in names)


def _family(given: str, prompts: PromptSet) -> tuple[str, ...]:
    name = given.removesuffix(PARAPHRASES)
    if name not in prompts.variants:
        raise unknown("variants", name, list(prompts.variants))
    return (given,) if given in prompts.variants else prompts.family(name)


def check_sending(settings: Settings, *, asks_model: bool = True, asks_grader: bool = False) -> None:
    """Raise where what is to be asked again, or a budget, cannot be told, or an engine would leave out how it is asked.

    Raises
    ------
    SettingError
        If a reason is none, a budget in dollars lacks a price, or a setting is given that the engine does not have.
    """
    check_engines_own(settings.sending)
    check_limits(settings)
    known = (UNSCORED, *ASKED_AGAIN)
    for reason in settings.sending.retry:
        if reason not in known:
            raise unknown("retry", reason, known)
    lacking = [
        name
        for name, is_asked in (("price", asks_model), ("grader_price", asks_grader))
        if is_asked and settings.value(name) is None
    ]
    if settings.limits.max_cost is not None and lacking:
        raise SettingError(f"{{max_cost}}: expected {{{lacking[0]}}} beside it, as nothing else tells what is spent")


def check_context(model: str, questions: Sequence[Question], prompts: PromptSet) -> None:
    """Raise where a prompt is longer than the model takes, as far as that is known.

    Raises
    ------
    PromptLengthError
        If there is such a question.
    """
    provider, name = provider_of(model)
    context = None if provider is None else provider.context_length(name)
    if provider is not None and context is not None:
        check_lengths(questions, prompts, context, lambda text: provider.count_tokens(name, [Message("user", text)]))


def check_code(names: Mapping[Role, str], given: Container[str], source: Path) -> None:
    """Raise if a folder names code that the user did not name as well: asking it would run it.

    Names that were read from a folder pass here before an engine is made of them, since engines import functions.

    Parameters
    ----------
    names
        Whom the folder has asked.
    given
        The names that the user gave, and those of what is in memory.
    source
        The folder.

    Raises
    ------
    SettingError
        The message says what to add.

    Examples
    --------
    >>> check_code({Role.MODEL: "python:theirs:answer"}, {"python:theirs:answer"}, Path("run"))
    """
    for asked, name in names.items():
        if is_function_name(name) and name not in given:
            role = "model" if asked is Role.MODEL else "grader"
            same = (one for other, one in names.items() if (other is Role.MODEL) == (asked is Role.MODEL))
            raise SettingError(
                f"{{{role}}}: expected {','.join(same)!r}, got nothing; {source} names this function, and code that a "
                f"folder names is run only if you name it as well: read it, then add it with {{{role}}}"
            )


def check_name(name: str, objects: Mapping[str, object], engine: str = DIRECT) -> None:
    """Raise if there is no such provider, function or model of a plugin's provider; no key is needed.

    Parameters
    ----------
    name, objects
        Who is to be asked, and what is in memory by such names.
    engine
        Who asks. Only the direct engine needs Inspect, for the names of its providers.

    Raises
    ------
    ModelError
        The message names the nearest.
    """
    provider, _, rest = name.partition("/")
    if name in objects:
        return
    if is_function_name(name):
        load_function(name)
    elif rest and (provider == COMPATIBLE or (provider == OPENAI and engine != DIRECT)):
        return
    elif (plugin := provider_of(name)[0]) is not None:
        plugin.check(rest)
    else:
        from refusal_index.models.inspect.provider import (  # noqa: PLC0415 - Inspect's names
            provider_names,
            resolve_model,
        )

        if not rest or provider not in provider_names():
            resolve_model(name)  # says what is wrong with it


def function_sources(settings: Settings, graders: Sequence[str], objects: Mapping[str, object]) -> dict[str, str]:
    """Return the hashes of functions' own sources, by name: an edited function is another model."""
    found = {}
    for name in (settings.model, *graders, settings.refusal):
        function: Callable[..., Any] | None = objects.get(name)  # type: ignore[assignment]
        if function is None and is_function_name(name):
            function = load_function(name)
        source = source_sha256(function) if callable(function) else None
        if source is not None:
            found[name] = source
    return found
