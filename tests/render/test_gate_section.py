"""The verdict of a gate on top of the report: found at once, the same as the command's, and nothing in it is obeyed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from refusal_index.findings.gate import GateResult, decide
from refusal_index.findings.gate_policy import Policy
from refusal_index.render.report import ReportRun, write_report
from tests.render.chromium import Page
from tests.render.making import HOSTILE, report_run, rows
from tests.render.test_page import _Parsed


def both(text: str = "", temperature: float = 0.0) -> tuple[list[ReportRun], GateResult]:
    """Return two runs and what a gate says of them, the second model refusing by chance; `text` is in every name.

    At temperature 0 every change of a question is shown.
    """
    made = []
    for name, rho in (("base", 0.9), ("rash", -0.5)):
        table = rows(300, model=name, rho=rho, variants=("normal",))
        names = ("model", "question_id", "question")
        hostile = table.with_columns((pl.lit(text) + pl.col(one)).alias(one) for one in names)
        run = report_run(hostile, label=name + text)
        made.append(replace(run, run=replace(run.run, settings={"decoding": {"temperature": temperature}})))
    base, rash = made
    return [rash, base], decide(rash.run, base.run, Policy())


def page_of(place: Path, text: str = "") -> str:
    runs, found = both(text)
    return write_report(runs, place / "report.html", gate=found).path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    return page_of(tmp_path_factory.mktemp("gate"))


def test_the_verdict_is_the_first_thing_on_the_page_and_its_only_heading_of_the_first_rank(page: str) -> None:
    found = both()[1]
    assert (found.verdict, Counter(tag for tag, _ in _Parsed(page).elements)["h1"]) == ("fail", 1)
    places = [
        page.index(one) for one in (">Fail</h1>", found.why.split("(")[0], "changed most</summary>", "2 runs side")
    ]
    assert places == sorted(places)
    assert "<title>Refusal Index gate: fail</title>" in page


def test_the_section_holds_every_guard_and_every_question_that_changed(page: str) -> None:
    section, found = page.partition('id="gate"')[2].partition("</section>")[0], both()[1]
    assert section.count("<tr>") == 2 + len(found.guards) + len(found.changed) == 16
    assert all(one.question_id in section for one in found.changed)
    assert "whether the candidate is worse by more than the margin" in section


def test_single_responses_are_said_to_show_no_change(tmp_path: Path) -> None:
    runs, found = both(temperature=0.7)
    page = write_report(runs, tmp_path / "report.html", gate=found).path.read_text(encoding="utf-8")
    section = page.partition('id="gate"')[2].partition("</section>")[0]
    assert "Single responses cannot show that any one question changed" in section
    assert "changed most</summary>" not in section


def test_a_report_without_a_gate_has_no_such_section(tmp_path: Path) -> None:
    plain = write_report(both()[0], tmp_path / "report.html").path.read_text(encoding="utf-8")
    assert 'id="gate"' not in plain
    assert "<title>Refusal Index of 2 runs</title>" in plain


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_and_questions_add_no_element(page: str, tmp_path: Path, text: str) -> None:
    elements = [
        tag for tag, attributes in _Parsed(page_of(tmp_path, text)).elements if attributes.get("class") != "control"
    ]
    assert elements == [tag for tag, _ in _Parsed(page).elements]


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.slow
def test_opens_at_any_width_without_scrolling_sideways(
    new_page: Callable[..., Page], tmp_path: Path, width: int
) -> None:
    page_of(tmp_path, HOSTILE[0] + "M" * 300)
    page = new_page(tmp_path / "report.html", width=width)
    page.run("document.querySelector('.gate details').open = true")
    assert page.run("document.documentElement.scrollWidth") == width
