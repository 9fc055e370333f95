"""Every public function of the statistics says what it takes, gives and refuses, each in a section of its docstring."""

from __future__ import annotations

import inspect
import re

import numpy as np
import pytest

from refusal_index import ContingencyTable, refusal_index, stats

FUNCTIONS = {name: value for name, value in vars(stats).items() if name in stats.__all__ and inspect.isfunction(value)}

CHECKS_NOTHING = {
    "scoring_rules": "its counts are checked when they are made",
}
"""Functions without a Raises section, and why."""

OWN_DEFINITION = {
    "asymptotic_deviation": "the delta method written out for each metric",
    "checked_matrices": "makes no number",
    "correct_guessing": "the arithmetic of lucky guesses",
    "density": "the textbook formula",
    "expected_half_width": "the normal approximation, written out in its module",
    "influence_correlation": "a plain correlation of two influence functions",
    "joint_corrected_refusal_index": "sums of both parts of a quotient, written out in its module",
    "latent_auroc": "a closed form, derived in its module",
    "power_to_tell_apart": "the normal approximation, written out in its module",
    "questions_for_cv": "the normal approximation, written out in its module",
    "questions_for_half_width": "the normal approximation, written out in its module",
    "questions_to_tell_apart": "the normal approximation, written out in its module",
    "scoring_ranges": "smallest and largest over the package's own scoring rules",
    "scoring_rules": "the package's own scoring rules",
}
"""Functions without a References section, and why."""

TABLE = ContingencyTable(7, 3, 2, 5)
REFUSED = {
    "asymptotic_deviation": lambda: stats.asymptotic_deviation(0.5, 0.5, 2),
    "correct_given_attempted": lambda: stats.correct_given_attempted(0.6, 0.6),
    "correct_guessing": lambda: stats.correct_guessing(TABLE, 1),
    "density": lambda: stats.density(0, 0, 2),
    "f_score": lambda: stats.f_score(0.6, 0.6),
    "influence_function": lambda: stats.influence_function([True], [True, False]),
    "iso_refusal_index": lambda: stats.iso_refusal_index(0.5, 2, 0.5),
    "metrics": lambda: stats.metrics(TABLE, penalty=np.inf),
    "omniscience_index": lambda: stats.omniscience_index(TABLE, confidence_level=95),
    "rho_from_refusal_index": lambda: stats.rho_from_refusal_index(2),
    "scoring_ranges": lambda: stats.scoring_ranges(stats.OutcomeCounts(7, 3, 2, 5), penalty=-1),
    "holm": lambda: stats.holm([0.1, 1.2]),
    "tetrachoric": lambda: stats.tetrachoric(-5, 1, 1, 1),
    "upper_orthant": lambda: stats.upper_orthant(0, 0, 2),
    "weighted_score": lambda: stats.weighted_score(0.5, 0.2, -1),
}
"""One call each that a checker below the function refuses."""


def sections(name: str) -> set[str]:
    return set(re.findall(r"^(\w+)\n-{3,}$", inspect.getdoc(FUNCTIONS[name]) or "", re.MULTILINE))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_public_function_documents_what_it_gives_what_it_refuses_and_an_example(name: str) -> None:
    expected = {"Returns", "Examples"} if name in CHECKS_NOTHING else {"Returns", "Raises", "Examples"}
    assert expected - sections(name) == set()
    text = inspect.getdoc(FUNCTIONS[name]) or ""
    # Those of several functions are described once, where the sentence says.
    assert "Parameters" in sections(name) or re.search(r"^Parameters (and .+ )?are those of `\w+`", text, re.MULTILINE)


def test_only_what_checks_nothing_has_no_raises_section() -> None:
    assert {name for name in FUNCTIONS if "Raises" not in sections(name)} == set(CHECKS_NOTHING)


def test_a_function_names_its_source_unless_it_is_its_own() -> None:
    assert {name for name in FUNCTIONS if "References" not in sections(name)} == set(OWN_DEFINITION)


def test_the_index_says_its_formula_and_its_paper() -> None:
    text = inspect.getdoc(refusal_index) or ""
    for said in (
        "RI = 6 / pi * asin(rho / 2)",
        "tetrachoric",
        "maximum likelihood",
        "Two passes",
        "Pan, W.",
        "Pearson",
    ):
        assert said in text


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_function_says_it_raises_is_raised(name: str) -> None:
    with pytest.raises(ValueError, match="must") as refused:
        REFUSED[name]()
    assert type(refused.value).__name__ in (inspect.getdoc(FUNCTIONS[name]) or "").partition("Raises")[2]
