"""What the run of a folder was made with: its graders, prompts and functions."""

from __future__ import annotations

from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

from refusal_index.data.run_json import GRADER_PROMPT, NAMED_BY_SERVER, refusal_setting
from refusal_index.models.functions import (
    is_function_name,
)
from refusal_index.models.settings import SettingError
from refusal_index.protocol import (
    GraderKind,
    GraderPrompt,
    PromptSet,
    Role,
    default_grader_prompt,
    load_prompt_set,
    prompt_set_names,
)
from refusal_index.protocol.refusals import (
    Detector,
)
from refusal_index.runs.graders import detector_of, grader_of, refusal_models
from refusal_index.runs.identity import PROMPT_HASHES


def grader_before(before: Mapping[str, Any]) -> tuple[GraderKind, tuple[str, ...]]:
    """Return the grader recorded in a folder's settings, and the models that were asked about replies."""
    named = before.get("grader") or {"name": str(GraderKind.EXACT)}
    names = ",".join(named[key] for key in ("name", "second") if named.get(key))
    kind, graders = grader_of(names, at_server=bool(named.get(NAMED_BY_SERVER)))
    return kind, (*graders, *refusal_models(refusal_setting(before)))


def grader_prompt_before(before: Mapping[str, Any], about: Mapping[str, Any], path: Path) -> GraderPrompt:
    """Return what the grading models of a run were asked; the default if no model grades.

    Parameters
    ----------
    before, about
        The two sections of the ``run.json`` of its folder.
    path
        The folder, for messages.

    Raises
    ------
    SettingError
        If the hash of the text in the folder is not the one that its identity records.
    PromptSetError
        If that text is not a grader's prompt.
    """
    named = before.get("grader") or {}
    recorded = {name: named[name] for name in PROMPT_HASHES if named.get(name)}
    text = about.get(GRADER_PROMPT)
    default = default_grader_prompt()
    prompt = GraderPrompt.read(text, f"{path}, {GRADER_PROMPT}") if recorded and text else default
    hashes = dict(zip(PROMPT_HASHES, (prompt.hash, prompt.no_gold_hash), strict=True))
    if any(hashes[name] != expected for name, expected in recorded.items()):
        raise SettingError(
            f"{path}: expected in run.json, about, {GRADER_PROMPT} what the graders were asked, got another "
            "text; restore the file"
        )
    return prompt


def prompts_before(before: Mapping[str, Any], name_given: str | None, path: Path) -> PromptSet:
    """Return the prompt set that a run used.

    Raises
    ------
    SettingError
        If the prompt set came from a file that is not given, or the given one differs.
    """
    name = before["prompts"]["name"]
    if name_given is None and name not in prompt_set_names():
        raise SettingError(
            f"{{prompts}}: expected the file of the prompt set {name!r}, with which {path} was made, got nothing; it "
            "is not part of the package, so name the file"
        )
    chosen = load_prompt_set(name_given or name)
    if chosen.hash != before["prompts"].get("sha256"):
        raise SettingError(
            f"{{prompts}}: expected the prompt set that {path} was asked with, got another, {chosen.name!r}; "
            "name the original file"
        )
    return chosen


def detector_before(before: Mapping[str, Any], refusal: str | None, objects: Mapping[str, object]) -> Detector | None:
    """Return the function by which a folder's settings recognise refusals.

    Parameters
    ----------
    before
        The settings of the folder.
    refusal, objects
        The setting of the run as the user repeats it, None if not; and objects in memory by name.

    Returns
    -------
    Detector or None
        None if the settings name no function, or the user does not name it: code that only a folder names is not run.

    Raises
    ------
    SettingError
        If the user names another one, or it cannot be imported.
    """
    if refusal is None:
        return None
    recorded = refusal_setting(before)
    if refusal != recorded:
        raise SettingError(f"{{refusal}}: expected that of the run, {recorded!r}, got {refusal!r}; leave it out")
    return detector_of(refusal, objects) if is_function_name(refusal) else None


def check_code(names: Mapping[Role, str], objects: Container[str], source: Path) -> None:
    """Raise if a folder names a Python function that the user did not name as well.

    Names read from a folder are checked here before an engine imports the functions, which would run code.

    Parameters
    ----------
    names
        The models that the folder asked, by role.
    objects
        The names that the user gave, and those of objects in memory.
    source
        The folder.

    Raises
    ------
    SettingError
        The message says which option to add.

    Examples
    --------
    >>> check_code({Role.MODEL: "python:theirs:answer"}, {"python:theirs:answer"}, Path("run"))
    """
    for role_asked, name in names.items():
        if is_function_name(name) and name not in objects:
            role = "model" if role_asked is Role.MODEL else "grader"
            same = (
                other_name for other, other_name in names.items() if (other is Role.MODEL) == (role_asked is Role.MODEL)
            )
            raise SettingError(
                f"{{{role}}}: expected {','.join(same)!r}, got nothing; {source} names this function, and a "
                f"function named by a folder runs only if you name it too: read its code, then add it with {{{role}}}"
            )
