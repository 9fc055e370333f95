"""What the paper prints against what follows from its tables and from theory, and the page that says the same."""

from __future__ import annotations

import importlib.util
import math
import re
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.blocks import ROOT
from tests.docs.running import problem_with
from tests.paper.claims import CLAIMS, GRID, RHOS, RIGHT, exact_curve, is_close, simulated_curve, value_of
from tests.paper.items import ITEMS, TITLES

PAPER = ROOT.parent / "shared" / "paper.tex"
NAMES = [f"{claim.item}-{number}" for number, claim in enumerate(CLAIMS)]


@pytest.mark.parametrize("claim", CLAIMS, ids=NAMES)
def test_paper_claim_has_the_recomputed_value(claim):
    value = value_of(claim)
    assert is_close(value, claim.expected, 0.5 * 10**-claim.digits), value
    if claim.printed is not None:
        assert is_close(value, claim.printed, claim.tolerance) == claim.agrees


@pytest.mark.parametrize("claim", CLAIMS, ids=NAMES)
def test_paper_claim_that_differs_has_a_reason(claim):
    assert claim.agrees or claim.reason


def test_a_value_is_close_within_the_tolerance_and_of_the_same_length():
    assert is_close((0.1, 0.2), (0.104, 0.196), 0.005)
    assert not is_close((0.1, 0.2), (0.106, 0.2), 0.005)
    assert not is_close((), (0.1,), 0.005)
    assert is_close(("a",), ("a",), 0)
    assert not is_close("nobody_refused", 0.0, 1)


@pytest.mark.parametrize("rho", RHOS)
def test_theory_curves_of_the_propositions_against_simulated_questions(rho):
    n = 200_000
    for r, exact, simulated in zip(GRID, exact_curve(rho), simulated_curve(rho, n), strict=True):
        assert abs(exact - simulated) <= 5 * math.sqrt(RIGHT * (1 - RIGHT) / n), r


def test_every_claim_names_a_part_of_the_paper():
    assert {claim.item for claim in CLAIMS} <= TITLES.keys()
    said = [(claim.item, claim.says) for claim in CLAIMS]
    assert len(set(said)) == len(said)


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.label)
def test_commands_of_the_paper_exist(item):
    assert problem_with(item.command.split()) is None


@pytest.mark.skipif(not PAPER.exists(), reason="the paper's source is not part of the repository")
def test_every_table_and_figure_of_the_paper_is_listed():
    labels = set(re.findall(r"\\label\{((?:tab|fig):\w+)\}", PAPER.read_text().replace("-", "_")))
    listed = {item.label.replace("-", "_") for item in ITEMS if item.label.startswith(("tab:", "fig:"))}
    assert listed == labels


def test_page_says_what_the_claims_say():
    assert (ROOT / "docs" / "paper-reproduced.md").read_text() == page_maker().page()


def page_maker() -> ModuleType:
    path = Path(ROOT / "docs" / "make_reproduced.py")
    spec = importlib.util.spec_from_file_location("make_reproduced", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
