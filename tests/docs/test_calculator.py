"""The calculator in a real browser: its numbers match the package's, and bad input is reported."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from refusal_index.stats import (
    CELL_NAMES,
    ContingencyTable,
    PlanningScenario,
    correct_rate_at,
    questions_for_half_width,
    refusal_index,
)
from refusal_index.stats.estimator import upper_orthant
from tests.docs.blocks import ROOT
from tests.render.chromium import Browser, Page

KNOWN = [
    *[(710, 30, 210, 50), (40, 10, 20, 30), (2, 1, 1, 2), (1, 1, 1, 1), (2**53, 2**50, 2**51, 2**52)],
    *[(0, 0, 0, 0), (0, 0, 60, 40), (60, 40, 0, 0), (60, 0, 40, 0), (0, 60, 0, 40), (0, 0, 0, 5)],
    *[(5, 0, 3, 4), (5, 3, 0, 4), (0, 3, 5, 4), (5, 3, 4, 0), (5, 0, 0, 4), (0, 3, 4, 0), (1, 0, 0, 1)],
]
"""Tables with four cells and with fewer: all that is undefined, and all boundaries."""


def tables() -> list[tuple[int, ...]]:
    """Return 500 tables: typical, tiny, huge, with cells of all sizes, and with empty cells."""
    rng = np.random.default_rng(15)
    sparse = (10 ** rng.uniform(0, 4, (70, 4))).astype(np.int64) * (rng.random((70, 4)) > 0.3)
    drawn = [
        rng.multinomial(1000, [0.71, 0.03, 0.21, 0.05], 60),
        (10 ** rng.uniform(0, 4, (152, 4))).astype(np.int64),
        rng.integers(0, 4, (90, 4)),
        (10 ** rng.uniform(6, 10, (50, 4))).astype(np.int64),
        (10 ** rng.uniform(0, 9, (60, 4))).astype(np.int64),
        sparse,
    ]
    return [*KNOWN, *(tuple(row) for block in drawn for row in block.tolist())]


@pytest.fixture(scope="module")
def opened(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """The form and its scripts without the theme; the built site has its own tests."""
    written = tmp_path_factory.mktemp("calculator") / "calculator.html"
    text = (ROOT / "docs/calculator.md").read_text(encoding="utf-8").replace('src="', f'src="{ROOT.as_uri()}/docs/')
    written.write_text(f"<!doctype html><meta charset=utf-8><title>c</title><body>{text}</body>", encoding="utf-8")
    page = Page(chromium)
    page.open(written)
    yield page
    assert page.complaints() == []
    assert all(url.startswith("file:") for url in page.requests())
    page.close()


@pytest.fixture
def page(opened: Page) -> Page:
    """The form as it is when the page is opened."""
    form = "document.getElementById('table')"
    opened.run(f"{form}.reset(), {form}.dispatchEvent(new Event('input'))")
    return opened


def fill(page: Page, fields: dict[str, object]) -> dict[str, Any]:
    """Fill in the form, and return what it shows: values with all digits, and texts."""
    return displayed_values(page, [fields])[0]


def displayed_values(page: Page, forms: list[dict[str, object]]) -> list[dict[str, Any]]:
    script = """(forms) => forms.map((fields) => {
      const form = document.getElementById("table");
      for (const [id, value] of Object.entries(fields)) {
        if (id === "kind") form.elements.kind.value = value;
        else document.getElementById(id).value = value;
      }
      form.dispatchEvent(new Event("input"));
      const values = [...form.querySelectorAll("data")].map((one) => [one.id, Number(one.value)]);
      const errors = [...form.querySelectorAll("[aria-invalid]")].map((field) =>
        [field.id, document.getElementById(field.getAttribute("aria-describedby")).textContent]);
      const texts = ["headline", "caution", "plan", "table-of-rates"].map((id) =>
        [id, document.getElementById(id).textContent]);
      for (const id of ["caution", "plan"]) texts.push([`${id}-reason`, document.getElementById(id).dataset.reason]);
      const curve = form.querySelector(".curve")?.getAttribute("points") ?? null;
      return { ...Object.fromEntries(values), ...Object.fromEntries(texts), errors: Object.fromEntries(errors), curve };
    })"""
    return list(page.run(f"({script})({json.dumps(forms)})"))


def counts(table: tuple[int, ...], **others: object) -> dict[str, object]:
    return {"kind": "counts", **dict(zip(CELL_NAMES, map(str, table), strict=True)), **others}


def assert_agrees(found: dict[str, Any], cells: tuple[int, ...], half_width: float = 0.1, level: float = 0.95) -> None:
    table = ContingencyTable(*cells)
    result = refusal_index(table)
    assert found["errors"] == {}
    assert (result.reason or "") == found["caution-reason"], (cells, found)
    assert "_" not in found["caution"] + found["plan"], "codes are for programs"
    if result.estimate is None or result.rho is None:
        assert found["headline"] == "RI undefined"
        assert "estimate" not in found
        assert "low" not in found
        return
    low, high = result.confidence_interval(level)
    for name, value in (("estimate", result.estimate), ("rho", result.rho), ("low", low), ("high", high)):
        assert abs(found[name] - value) < 1e-8, (name, cells, found[name], value)
    plan = questions_for_half_width(PlanningScenario.from_table(table), half_width, confidence_level=level)
    assert (plan.reason or "") == found["plan-reason"], (cells, found)
    if plan.n is None:
        assert "questions" not in found
        assert "standard_error" not in found
    else:
        assert found["questions"] == pytest.approx(plan.n, rel=1e-8, abs=0), cells
        assert found["standard_error"] == pytest.approx(result.standard_error, rel=1e-7, abs=1e-8)


def test_known_tables_and_every_boundary_agree_with_the_package(page):
    for cells, found in zip(KNOWN, displayed_values(page, [counts(cells) for cells in KNOWN]), strict=True):
        assert_agrees(found, cells)


@pytest.mark.slow
def test_500_tables_agree_with_the_package_to_1e_8(page):
    drawn = tables()
    assert len(drawn) == 500
    for cells, found in zip(drawn, displayed_values(page, [counts(cells) for cells in drawn]), strict=True):
        assert_agrees(found, cells)


def test_custom_level_and_half_width_are_used(page):
    found = fill(page, counts((710, 30, 210, 50), level="0.9", half_width="0.03"))
    assert_agrees(found, (710, 30, 210, 50), half_width=0.03, level=0.9)


def test_bivariate_normal_is_accurate_to_1e_10(page):
    rng = np.random.default_rng(3)
    scale = rng.choice([0.01, 1, 3, 6], size=(2, 2000))
    ends = np.meshgrid([0, 1e-9, 0.5, -1, 8, -8], [0, 1e-9, 0.5, -8], [0, 1e-12, 1, -1, 9, -9])
    edges = np.array(ends).reshape(3, -1)
    z = rng.uniform(-1, 1, 2000) * rng.choice([0.1, 2, 9], 2000)
    h, k, z = np.hstack([np.vstack([rng.normal(size=(2, 2000)) * scale, z]), edges])
    asked = json.dumps(np.array([h, k, np.exp(-z)]).T.tolist())
    found = np.array(page.run(f"{asked}.map((one) => refusalIndex.orthant(...one))"))
    assert np.abs(found - upper_orthant(h, k, np.tanh(z))).max() < 1e-10


def test_curve_matches_the_accuracy_refusal_plane(page):
    found = fill(page, counts((710, 30, 210, 50)))
    points = np.array([[float(x) for x in point.split(",")] for point in found["curve"].split()])
    assert len(points) == 101
    rho = refusal_index(ContingencyTable(710, 30, 210, 50)).rho
    expected = correct_rate_at(np.linspace(0, 1, 101), rho, 0.92)
    # From pixels of the picture, written to a hundredth of one, back to shares by its first and last point.
    (left, first), (right, last) = points[0], points[-1]
    assert (points[:, 0] - left) / (right - left) == pytest.approx(np.linspace(0, 1, 101), abs=1e-3)
    assert (points[:, 1] - last) / (first - last) * 0.08 == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("attempted", [False, True])
def test_published_rates_give_the_same_table_as_the_package(page, attempted):
    rng = np.random.default_rng(8)
    named = "correct_given_attempted" if attempted else "correct_rate"
    fitting, asked = [], []
    for _ in range(60):
        cells = rng.multinomial(rng.integers(1, 3000), rng.dirichlet(np.full(4, 0.3)))
        n, refused = int(cells.sum()), int(cells[0] + cells[1])
        answered_right = cells[3] / (max(n - refused, 1) if attempted else n)
        digits = int(rng.integers(1, 4))
        c, r, mu = (round(float(x), digits) for x in (answered_right, refused / n, (cells[0] + cells[2]) / n))
        asked.append(
            {"kind": "rates", "correct": c, "refusal_rate": r, "error_rate": mu, "n": n, "attempted": "yes" * attempted}
        )
        rates = {"refusal_rate": r, "forced_accuracy": 1 - mu, "n": n, named: c}
        try:
            fitting.append(ContingencyTable.from_rates(**rates).counts)
        except ValueError as error:
            fitting.append(str(error))
    assert {type(one) for one in fitting} == {tuple, str}
    for expected, found in zip(fitting, displayed_values(page, asked), strict=True):
        if isinstance(expected, tuple):
            assert_agrees(found, expected)
            assert found["table-of-rates"].startswith(f"The table: {expected[0]:,} refused and wrong when forced")
        else:
            problem = expected.partition("questions: ")[2].partition(";")[0]
            assert problem in found["errors"]["correct"]
            assert "estimate" not in found


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("refused_wrong", "", "is missing: a whole number of questions"),
        ("refused_wrong", "a", "must be a whole number of questions, got “a”"),
        ("refused_right", "0.3", "must be a whole number of questions, got 0.3; is it a rate?"),
        ("answered_wrong", "-2", "must not be negative, got -2; was it made by subtracting two totals?"),
        ("answered_right", "1e16", "must be a count of at most 2**53"),
        ("answered_right", "NaN", "must be a whole number of questions"),
        ("answered_right", "<b>1</b>", "got “<b>1</b>”"),
        ("level", "95", "must lie strictly between 0 and 1, got 95; is it a percentage?"),
        ("half_width", "0", "must be a number above 0 and below 1, got 0"),
        ("half_width", "1", "must be a number above 0 and below 1, got 1"),
        ("correct", "5", "must lie between 0 and 1, got 5; is it a percentage?"),
        ("refusal_rate", "0,74", "must be a number from 0 to 1, with a decimal point, got “0,74”"),
        ("n", "10.5", "must be a whole number of questions, got 10.5"),
        ("n", "0", "must be at least 1, got 0"),
    ],
)
def test_bad_input_is_reported_at_its_field_and_clears_the_results(page, field, value, expected):
    kind = "rates" if field in {"correct", "refusal_rate", "n"} else "counts"
    found = fill(page, {"kind": kind, field: value})
    assert list(found["errors"]) == [field]
    assert expected in found["errors"][field]
    label = page.run(f"document.getElementById({field!r}).labels[0].textContent")
    assert found["headline"] == f"Check: {label}."
    assert "estimate" not in found
    assert found["plan"] == ""
    good = {"refusal_rate": "0.74", "n": "1000", "correct": "0.05", "level": "0.95", "half_width": "0.1"}
    assert "estimate" in fill(page, {field: good.get(field, "40")})


def test_numbers_may_have_thousands_separators(page):
    assert_agrees(fill(page, counts((710, 30, 210, 50), refused_wrong="71,000")), (71_000, 30, 210, 50))


def test_every_field_is_labelled_and_reachable_by_keyboard_in_order(page):
    labelled = page.run("[...document.querySelectorAll('input, select')].every((field) => field.labels.length === 1)")
    assert labelled
    page.run("document.querySelector('input').focus()")
    reached = []
    for _ in range(7):
        reached.append(page.run("document.activeElement.id || document.activeElement.value"))
        page.press("Tab")
    assert reached == [
        "counts", "answered_right", "refused_right", "answered_wrong", "refused_wrong", "level", "half_width",
    ]  # fmt: skip


def test_typing_a_value_updates_the_estimate(page):
    page.run("document.getElementById('refused_right').select()")
    page.type("300")
    expected = refusal_index(ContingencyTable(710, 300, 210, 50)).estimate
    assert math.isclose(page.run("Number(document.getElementById('estimate').value)"), expected, abs_tol=1e-8)
