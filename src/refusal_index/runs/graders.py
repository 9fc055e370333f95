"""The graders that settings name, and the rules by which refusals are recognised."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from refusal_index import entry_points
from refusal_index.data.datasets import Dataset
from refusal_index.data.text import PatternError
from refusal_index.errors import shortened, text_of
from refusal_index.models.calls import FunctionError, as_bool
from refusal_index.models.functions import (
    PREFIX,
    is_function_name,
    load_function,
)
from refusal_index.models.settings import SettingError, unknown
from refusal_index.protocol import (
    GraderKind,
    GraderPrompt,
    check_gradable,
    default_grader_prompt,
    load_grader_prompt,
)
from refusal_index.protocol.grading import RULES
from refusal_index.protocol.refusals import (
    LEFT_TO_GRADER,
    MODEL_PREFIX,
    WORDING_NAME,
    Detector,
    RefusalRule,
    check_reasoning,
    phrases_from_file,
    refusal_rule,
)
from refusal_index.runs.settings import DEFAULT_GRADER, Settings


def grader_for(settings: Settings, dataset: Dataset) -> tuple[GraderKind, tuple[str, ...]]:
    """Return the grader that the settings name, or else the dataset's, and check that it can grade the questions.

    Raises
    ------
    RefusalIndexError
        If it is not a known grader, or cannot grade a question.
    """
    default = DEFAULT_GRADER if dataset.default_grader == "model" else dataset.default_grader
    at_server = settings.servers.grader_base_url is not None
    if at_server and settings.grader is None and not (settings.refusal or "").startswith(MODEL_PREFIX):
        raise SettingError("{grader_base_url}: requires {grader}, the server's own name for the grading model; add it")
    kind, graders = grader_of(settings.grader or default, at_server=at_server)
    check_gradable(dataset.questions, kind)
    return kind, graders


def grader_of(text: str, *, at_server: bool = False) -> tuple[GraderKind, tuple[str, ...]]:
    """Parse a grader: a rule, a model or a function, or two models that must agree.

    Parameters
    ----------
    text
        The setting.
    at_server
        Whether models are named by a server, so that any name is that of a model.

    Raises
    ------
    SettingError
        If it is not a known grader.

    Examples
    --------
    >>> grader_of("exact"), grader_of("openai/gpt-4.1")
    ((<GraderKind.EXACT: 'exact'>, ()), (<GraderKind.MODEL: 'model'>, ('openai/gpt-4.1',)))
    """
    if text in RULES:
        return GraderKind(text), ()
    models = tuple(name.strip() for name in text.split(","))
    if len(models) > 2 or len(set(models)) < len(models):
        raise SettingError(f"{{grader}}: expected a rule, a model or two different models as in A,B, got {text!r}")
    return (GraderKind.MODEL if len(models) == 1 else GraderKind.AGREE), tuple(
        _grader_name(name, at_server=at_server) for name in models
    )


def _grader_name(name: str, *, at_server: bool) -> str:
    """Return the name of a model or a function; a grader registered in ``refusal_index.graders`` is a function."""
    if at_server or "/" in name or is_function_name(name):
        return name
    if (plugin := entry_points.find("graders", name)) is None:
        error = unknown("grader", name, [*map(str, RULES), *entry_points.installed("graders"), DEFAULT_GRADER])
        raise SettingError(f"{error.message} (for a server's own name, add its address with {{grader_base_url}})")
    return f"{PREFIX}{plugin.value}"


def grader_prompt_of(path: Path | None, graders: Sequence[str]) -> GraderPrompt:
    """Return what grading models are asked: the wording of a file, or that of the package.

    Parameters
    ----------
    path
        The setting; None for the package's wording.
    graders
        The models and functions that grade; none for a rule.

    Raises
    ------
    SettingError
        If a file is given, but no model grades.
    PromptSetError
        If the file cannot be used.
    """
    if path is None:
        return default_grader_prompt()
    if all(map(is_function_name, graders)):
        grader = f"the function {graders[0]}" if graders else "a rule"
        raise SettingError(
            f"{{grader_prompt}}: has no effect, because {grader} grades; leave it out, or name a model as {{grader}}"
        )
    return load_grader_prompt(path)


def resolved_refusal(refusal: str | None, graders: Sequence[str]) -> str | None:
    """Return the setting `refusal` with the phrases of a file in place of its name; None if a model decides.

    Parameters
    ----------
    refusal
        As given; None for the default.
    graders
        The models and functions that grade; none for a rule.

    Raises
    ------
    SettingError
        If it has no effect with these graders, or its file cannot be used.
    """
    models = [name for name in graders if not is_function_name(name)]
    if models:
        if refusal is not None:
            raise SettingError(
                f"{{refusal}}: has no effect, because {models[0]} decides which replies are refusals; leave it out, or "
                "choose a rule or a function as {grader}"
            )
        return None
    if refusal is None:
        return WORDING_NAME
    if refusal.startswith("@"):
        if refusal == "@" or Path(refusal[1:]).is_dir():
            raise SettingError(
                f"{{refusal}}: '@' must be followed by the name of a file, which holds one regular expression a line, "
                f"got {refusal!r}"
            )
        try:
            return phrases_from_file(Path(refusal[1:]).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, PatternError) as error:
            raise SettingError(f"{{refusal}}: {refusal[1:]} cannot be used: {error}") from error
    if refusal.startswith(MODEL_PREFIX) and graders:
        raise SettingError(
            f"{{refusal}}: {refusal!r} expects a rule as {{grader}}, got the function {graders[0]}; leave one of the "
            "two out"
        )
    return refusal


def refusal_models(refusal: str | None) -> tuple[str, ...]:
    """Return the name of the model that is asked whether replies attempt an answer; none if no model is."""
    return (refusal.removeprefix(MODEL_PREFIX),) if refusal and refusal.startswith(MODEL_PREFIX) else ()


def refusals_of(
    settings: Settings, objects: Mapping[str, object] | None = None, *, imports: bool = True
) -> RefusalRule:
    """Return how replies are read.

    Parameters
    ----------
    settings
        The settings, with `refusal` from `resolved_refusal`.
    objects
        Functions in memory, by name.
    imports
        Whether to import a function given by name.

    Raises
    ------
    SettingError
        If it is not one of the known forms, or not a valid regular expression.
    ModelError
        If the function cannot be found.
    """
    if settings.reasoning is not None:
        try:
            check_reasoning(settings.reasoning)
        except PatternError as error:
            raise SettingError(f"{{reasoning}}: {settings.reasoning!r} cannot be used: {error}") from error
    refusal = settings.refusal
    if refusal is None:
        return replace(LEFT_TO_GRADER, reasoning=settings.reasoning)
    if is_function_name(refusal):
        if refusal not in (objects or {}) and not imports:
            return RefusalRule(by_wording=False, reasoning=settings.reasoning)
        return RefusalRule(by_wording=False, function=detector_of(refusal, objects or {}), reasoning=settings.reasoning)
    try:
        return replace(refusal_rule(refusal), reasoning=settings.reasoning)
    except PatternError as error:
        raise SettingError(
            f"{{refusal}}: expected 'wording', 'tag', +REGEX, @FILE, model:PROVIDER/NAME or python:MODULE:FUNCTION, "
            f"got {refusal!r} ({error})"
        ) from error


def detector_of(name: str, objects: Mapping[str, object]) -> Detector:
    """Return a function that recognises refusals: the object of that name, or else imported by it.

    Raises
    ------
    ModelError
        If it cannot be imported.
    """
    function: Any = objects.get(name) or load_function(name, "refusal")
    return partial(_call_detector, name, function)


def _call_detector(name: str, function: Callable[[str], object], reply: str) -> bool:
    what_to_do = (
        "correct it, then grade the stored replies with 'refusal-index regrade' and the option --refusal, or choose "
        "another folder"
    )
    try:
        returned = function(reply)
    except (Exception, SystemExit) as error:
        raised = f"raised {type(error).__name__} ({text_of(error)}) for the reply {shortened(reply)}"
        raise FunctionError(name, f"{raised}; {what_to_do}") from error
    refuses = as_bool(returned)
    if refuses is None:
        wrong = f"returned {shortened(returned)} for the reply {shortened(reply)}, expected True or False"
        raise FunctionError(name, f"{wrong}; {what_to_do}")
    return refuses
