"""Whatever a model, a topic, a variant or a file is called, the terminal shows it and obeys none of it."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusal_index.cli import console
from refusal_index.data import Grade, Outcome, Question
from refusal_index.data.outcome_table import Identification, outcome_table, write_outcomes
from refusal_index.render.format import OBEYED, Table, escape
from tests.tiers import one_fast

MARKUP = ("[/a]", "x[/y]", "[bold]loud[/bold]", ":boom: [link=https://a.b]c[/link]")
OBEYED_TEXT = "\x1b[31mred\x9b \u202eltr\u2069\r\n\ttab\u200b"


def write(path: str, model: str, variant: str = "low", topic: str | None = None) -> str:
    """Write outcomes of a model that was drawn twice, on three topics."""
    rng = np.random.default_rng(len(model))
    hard, inclined = rng.standard_normal((2, 120))
    rows = (
        (
            Identification(model, model, variant, draw),
            Question(f"q{i}", "?", "!", topic=f"{topic} {i % 3}" if topic else None),
            Outcome(bool(refused), bool(wrong), forced_grade=Grade.INCORRECT if wrong else Grade.CORRECT),
        )
        for draw in range(2)
        for i, (refused, wrong) in enumerate(
            zip(hard + inclined + rng.standard_normal(120) > 0, hard + rng.standard_normal(120) > 0, strict=True)
        )
    )
    write_outcomes(outcome_table(rows), Path(path))
    return path


@pytest.fixture(params=["piped", "terminal"])
def where(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "terminal":
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("TTY_COMPATIBLE", "1")
        monkeypatch.setenv("COLUMNS", "300")


def commands_over(name: str) -> list[list[str]]:
    """Return a line for each command that prints names, over files in which everything is called `name`."""
    files = [write(f"{place}.parquet", f"{name}{place}", name, name) for place in ("one", "two", "three")]
    first = files[0]
    return [
        ["score", first],
        ["score", *files],
        ["sensitivity", first],
        ["compare", *files[:2]],
        ["compare", *files],
        ["plan", first, "--full"],
        ["plan", *files[:2]],
    ]


@pytest.mark.usefixtures("where")
@one_fast("name", [" ".join(MARKUP), *MARKUP])
def test_markup_in_names_is_text_in_every_command(command, name):
    for words in commands_over(name):
        done = command(*words)
        assert done.exit_code == 0, words
        assert name in done.stdout.replace("\n", " "), words


@pytest.mark.usefixtures("where")
def test_control_and_direction_characters_in_names_are_shown_in_every_command(command):
    for words in commands_over(OBEYED_TEXT):
        done = command(*words)
        assert done.exit_code == 0, words
        assert "\\x1b[31mred\\x9b \\u202eltr\\u2069" in done.stdout, words
        assert "\x1b[31m" not in done.stdout
        assert not set("\x9b\u202e\u2069\r\t\u200b") & set(done.stdout), words


def test_an_error_shows_what_came_and_does_not_obey_it(command):
    done = command("score", "[/a]\x1b[2J.csv")
    assert done.exit_code == 2
    assert "[/a]\\x1b[2J.csv" in done.stderr


@given(st.text(max_size=30))
def test_property_escaped_text_holds_nothing_that_is_obeyed_and_is_not_escaped_twice(text):
    once = escape(text)
    assert not {unicodedata.category(character) for character in once} & OBEYED
    assert escape(once) == once


@pytest.mark.usefixtures("where")
def test_cells_prose_and_lines_are_printed_as_they_are(capsys):
    console.show(["[bold]a", Table.from_rows(["[/b]"], [["[c]\n"], [":boom:"]])])
    console.say("[d]")
    console.note("[/e]")
    printed = capsys.readouterr()
    assert printed.out.startswith("[bold]a\n")
    assert all(text in printed.out for text in ("[/b]", "[c]\\n", ":boom:", "[d]"))
    assert printed.err == "[/e]\n"
