"""The declaration of settings: what a field must say, and the files that are made of the fields."""

from __future__ import annotations

import inspect
import runpy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Any

import pytest

import refusal_index as ri
from refusal_index.models.settings import read_paths, read_texts, setting, settings_in
from refusal_index.runs.arguments import SettingArguments
from refusal_index.runs.settings import SETTINGS, Settings

COMMAND = "docs/make_settings.py"
FILES: Mapping[Path, Callable[[], str]] = runpy.run_path(str(Path(__file__).parents[2] / COMMAND))["FILES"]


def tree(hint: Any, declared: Any) -> type:
    return make_dataclass("Tree", [("new", hint, declared)], frozen=True)


def test_a_field_is_all_that_a_setting_needs():
    found = settings_in(tree(int, setting(3, "How many.", identity="if_set", low=1)))["new"]
    assert (found.name, found.group, found.kind, found.default, found.low) == ("new", None, int, 3, 1)
    assert (found.help, found.scope, found.is_repeatable) == ("How many. [default: 3]", "model", False)


@pytest.mark.parametrize(
    ("hint", "declared", "lacking"),
    [
        (int, setting(3, identity="no"), "its description"),
        (int, setting(3, "How many."), "its identity"),
        (int, setting(3), "its description and its identity"),
        (int, field(default=3), "its description and its identity"),
        (int, field(), "its description and its identity"),
        (tuple[str, ...], setting((), "Names.", identity="no", argument="str"), "its reader"),
        (tuple[str, ...], setting((), "Names.", identity="no", reader=read_texts), "its argument"),
    ],
)
def test_a_field_that_lacks_something_is_an_error_that_says_what_to_add(hint, declared, lacking):
    with pytest.raises(TypeError, match=rf"^Tree.new: expected a setting, .* without {lacking}.*; add that; .*CONTR"):
        settings_in(tree(hint, declared))


def test_settings_of_a_group_have_its_name():
    @dataclass(frozen=True)
    class Inner:
        data: tuple[Path, ...] = setting((), "Files.", identity="no", argument="str", reader=read_paths)

    found = settings_in(tree(Inner, field(default_factory=Inner)))
    assert {name: (one.group, one.kind, one.is_repeatable) for name, one in found.items()} == {
        "data": ("new", Path, True)
    }


def test_every_group_has_a_title():
    """If not, its settings would be missing everywhere: add it to ``GROUPS``."""
    assert settings_in(Settings).keys() == SETTINGS.keys()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_files_made_of_the_settings_are_up_to_date(path):
    made = FILES[path]()
    assert path.read_text(encoding="utf-8") == made, (
        f"{path.name} differs from the settings: run '.venv/bin/python {COMMAND}', and commit what it writes"
    )


def test_the_page_has_one_line_for_each_setting():
    (page,) = [path for path in FILES if path.suffix == ".md"]
    lines = page.read_text(encoding="utf-8").splitlines()
    for name, one in SETTINGS.items():
        (line,) = [line for line in lines if line.startswith(f"| `{name}` |")]
        assert one.description.replace("<", "&lt;").replace("|", "&#124;") in line
        assert ("| no |" in line) is (one.identity == "no")


def test_every_setting_is_an_argument_of_evaluate():
    parameters = inspect.signature(ri.evaluate).parameters
    assert SettingArguments.__annotations__.keys() == SETTINGS.keys() - parameters.keys()
