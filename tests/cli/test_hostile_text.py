"""No text of others is obeyed by the terminal or in any output."""

from __future__ import annotations

import csv
import io
import json
import re
import unicodedata
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusal_index.cli import console
from refusal_index.data import Grade, Outcome, Question
from refusal_index.data.outcome_table import Identification, outcome_table, read_outcomes, write_outcomes
from refusal_index.data.run_json import Prices
from refusal_index.errors import CONTROL_CATEGORIES, escape
from refusal_index.render.format import Table
from refusal_index.runs.events import Begun, Opened
from refusal_index.runs.progress import counting, progress_bar
from tests.tiers import one_fast, others_nightly

# --- Hostile text in every output

HOSTILE = {
    "markup": "[/a] [bold]b",
    "escapes": "\x1b[2J\x1b]0;owned\x07\x9b31m",
    "NUL": "a\x00b",
    "direction": "safe\u202egnp.exe\u2066\u2069\u200f",
    "script": "</script><script>owned()</script><img src=x onerror=owned()>",
    "formula": '=HYPERLINK("http://127.0.0.1:9/","click")',
    "another formula": "@SUM(A1:A9)|cmd",
    "LaTeX": "\\input{/etc/passwd} $x^ \\frac{ %_&#{}~",
    "unclosed mathematics": "$\\frac{$ $$",
    "half a surrogate pair": "cut \ud83d",
    "lines": "one\r\ntwo\u2028three\n",
    "a path": "../../../../tmp/owned",
    "megabyte": "x" * 2**20,
}
ALL_AT_ONCE = "".join(["=1+1 ", *(text for kind, text in HOSTILE.items() if kind != "megabyte")])
"""Every kind of text but the long one, as a formula is one only at the beginning."""
COMMANDS = (
    *(["score", "one.parquet"], ["score", "one.csv"], ["score", "one.jsonl", "--json"], ["sensitivity", "one.parquet"]),
    *(["compare", "one.parquet", "two.parquet"], ["compare", "one.parquet", "two.parquet", "--json"]),
    *(["report", "one.parquet", "two.parquet", "--out", "r.html"], ["plan", "one.parquet"]),
    *(
        ["study", name, "one.parquet", "two.parquet", "three.parquet", "--out", "s"]
        for name in ("results_table", "accuracy_refusal_plane")
    ),
    ["audit", "one.parquet", "--out", "labels.csv"],
    ["gate", "one.parquet", "--baseline", "two.parquet", "--out", "gate.json", "--out", "gate.md"],
)
CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]|\r(?!\n)")
FORMULA = re.compile(r"[=+\-@\t\r]")


def outcome(refused: bool, wrong: bool, reply: str) -> Outcome:
    grade = Grade.INCORRECT if wrong else Grade.CORRECT
    return Outcome(refused, wrong, Grade.REFUSED if refused else grade, grade if refused else None, None, reply, reply)


def write(place: str, text: str) -> None:
    """Write outcomes of a model in which every name is `text`, once in every format."""
    name = text[:200]
    rng = np.random.default_rng(len(place))
    hard, inclined = rng.standard_normal((2, 60))
    rows = [
        (
            Identification(f"{name}{place}", "d", name),
            Question(f"{name}{i}", text if i < 2 else name, name, topic=f"{name}{i % 3}"),
            outcome(bool(refused), bool(wrong), text if i < 2 else name),
        )
        for i, (refused, wrong) in enumerate(zip(hard + inclined > 0, hard > 0, strict=True))
    ]
    for suffix in ("parquet", "csv", "jsonl"):
        write_outcomes(outcome_table(rows), Path(f"{place}.{suffix}"))


@pytest.mark.slow
@others_nightly("kind", ["all at once", *HOSTILE])
def test_hostile_text_is_harmless_in_every_output(command, kind):
    for place in ("one", "two", "three"):
        write(place, HOSTILE.get(kind, ALL_AT_ONCE))
    frame = read_outcomes("one.parquet")
    assert frame.equals(read_outcomes("one.csv"))
    assert frame.equals(read_outcomes("one.jsonl"))
    for words in COMMANDS:
        done = command(*words)
        assert done.exit_code in (0, 1, 3), (words, done.output)
        printed = done.output.replace("\n", "")
        assert all(character.isprintable() or character == " " for character in printed), words
    page = Path("r.html").read_text(encoding="utf-8")
    assert "<script>owned" not in page
    assert "<img src=x" not in page
    for path in [*Path("s").rglob("*.csv"), Path("one.csv"), Path("labels.csv")]:
        with path.open(newline="", encoding="utf-8") as file:
            text = file.read()
        assert not CONTROL_CHARACTERS.search(text), path
        rows = list(csv.DictReader(io.StringIO(text)))
        cells = [*rows[0], *(cell for row in rows for cell in row.values())]
        dangerous = [cell for cell in cells if FORMULA.match(cell) and not re.fullmatch(r"-?[\d.e-]+", cell)]
        assert not dangerous, path
        if path.name == "labels.csv":  # the sheet still belongs to its run
            sheet = pl.DataFrame(rows, infer_schema_length=None).with_columns(human_grade=pl.col("grade"))
            sheet.write_csv(path)
            assert command("sensitivity", "one.parquet", "--labels", str(path)).exit_code == 0
    for path in Path("s").rglob("*.tex"):
        assert "\\input{" not in path.read_text(encoding="utf-8"), path
    assert not list(Path().rglob("*owned*"))


def test_json_output_contains_no_terminal_control_characters(capsys):
    text = HOSTILE["direction"] + HOSTILE["escapes"] + HOSTILE["NUL"]
    console.document({text: [text, "plain é"]})
    printed = capsys.readouterr().out
    assert json.loads(printed) == {text: [text, "plain é"]}
    assert not {character for character in printed if character != "\n" and not character.isprintable()}
    assert "plain é" in printed


def test_markup_like_names_do_not_break_the_progress_bar(monkeypatch):
    """A variant called ``[/a]`` ended the run in a traceback."""
    from rich.console import Console

    console = Console(file=io.StringIO(), force_terminal=True, width=200)
    with progress_bar(console, 3, Prices(None, None)) as bar:
        bar(Opened(0))
        bar(Begun("[/a]\x1b[2J"))
    with counting(console, "asking [/b]", 2) as step:
        step()
    assert "[/a]\\x1b[2J" in console.file.getvalue()
    assert "asking [/b]" in console.file.getvalue()


# --- Hostile text on the terminal

MARKUP = ("[/a]", "x[/y]", "[bold]loud[/bold]", ":boom: [link=https://a.b]c[/link]")
OBEYED_TEXT = "\x1b[31mred\x9b \u202eltr\u2069\r\n\ttab\u200b"


def write_drawn_twice(path: str, model: str, variant: str = "low", topic: str | None = None) -> str:
    """Write outcomes of a model that was sampled twice, on three topics."""
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
    files = [write_drawn_twice(f"{place}.parquet", f"{name}{place}", name, name) for place in ("one", "two", "three")]
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
def test_markup_in_names_is_printed_literally_by_every_command(command, name):
    for words in commands_over(name):
        done = command(*words)
        assert done.exit_code == 0, words
        assert name in done.stdout.replace("\n", " "), words


@pytest.mark.usefixtures("where")
def test_control_and_bidi_characters_are_escaped_by_every_command(command):
    for words in commands_over(OBEYED_TEXT):
        done = command(*words)
        assert done.exit_code == 0, words
        assert "\\x1b[31mred\\x9b \\u202eltr\\u2069" in done.stdout, words
        assert "\x1b[31m" not in done.stdout
        assert not set("\x9b\u202e\u2069\r\t\u200b") & set(done.stdout), words


def test_error_messages_escape_their_input(command):
    done = command("score", "[/a]\x1b[2J.csv")
    assert done.exit_code == 2
    assert "[/a]\\x1b[2J.csv" in done.stderr


@given(st.text(max_size=30))
def test_escaping_removes_control_characters_and_is_idempotent_property(text):
    once = escape(text)
    assert not {unicodedata.category(character) for character in once} & CONTROL_CATEGORIES
    assert escape(once) == once


@pytest.mark.usefixtures("where")
def test_cells_prose_and_notes_are_printed_literally(capsys):
    console.show(["[bold]a", Table.from_rows(["[/b]"], [["[c]\n"], [":boom:"]])])
    console.say("[d]")
    console.note("[/e]")
    printed = capsys.readouterr()
    assert printed.out.startswith("[bold]a\n")
    assert all(text in printed.out for text in ("[/b]", "[c]\\n", ":boom:", "[d]"))
    assert printed.err == "[/e]\n"
