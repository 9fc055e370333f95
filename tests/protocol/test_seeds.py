"""Evidence for seeds: what tells requests apart tells their seeds apart, and nothing else does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusal_index.protocol import Message, Pass, Request, Role, request_seed

FIRST = Request(Pass.FIRST, Role.MODEL, ())
FORCED = Request(Pass.FORCED, Role.MODEL, ())
FIRST_GRADE = Request(Pass.FIRST, Role.GRADER, ())
FORCED_GRADE = Request(Pass.FORCED, Role.GRADER, (), attempt=1)


@pytest.mark.parametrize(
    ("parts", "seed"),
    [
        ((0, "q1", 0, "low", FIRST), 104429712),
        ((0, "q1", 0, "high", FIRST), 281994780),
        ((1, "q1", 0, "low", FIRST), 1418469083),
        ((0, "frage-ü", 2, "low", FIRST), 347942643),
        ((0, "q1", 0, "low", FORCED), 931609936),
        ((0, "q1", 0, "low", FORCED_GRADE), 84933224),
    ],
)
def test_seeds_are_those_of_earlier_runs(parts, seed):
    """Changed seeds would ask and pay for everything again in folders that are resumed.

    Each value is the first 31 bits of what the shell says to, for instance,
    ``printf '0\\x1fq1\\x1f0\\x1flow\\x1ffirst\\x1fmodel\\x1f0' | sha256sum``.
    """
    assert request_seed(*parts) == seed


def test_every_part_of_a_request_changes_its_seed():
    variations = [
        (0, "q1", 0, "low", FIRST),
        (1, "q1", 0, "low", FIRST),
        (0, "q2", 0, "low", FIRST),
        (0, "q1", 1, "low", FIRST),
        (0, "q1", 0, "high", FIRST),
        (0, "q1", 0, "low", FORCED),
        (0, "q1", 0, "low", FIRST_GRADE),
        (0, "q1", 0, "low", FORCED_GRADE),
        (0, "q1", 0, "low", Request(Pass.FIRST, Role.GRADER, (), attempt=1)),
        (0, "q1", 0, "low", Request(Pass.FORCED, Role.GRADER, ())),
        (10, "q1", 0, "low", FIRST),
        (0, "q10", 0, "low", FIRST),
        (0, "q", 10, "low", FIRST),
    ]
    assert len({request_seed(*parts) for parts in variations}) == len(variations)


def test_variant_counts_in_the_first_pass_only():
    for request, seeds in ((FIRST, 4), (FIRST_GRADE, 4), (FORCED, 1), (FORCED_GRADE, 1)):
        found = {request_seed(7, "q1", 3, variant, request) for variant in ("low", "normal", "high", "highest")}
        assert len(found) == seeds


def test_wording_does_not_change_the_seed():
    worded = Request(Pass.FIRST, Role.MODEL, (Message("user", "Who?"),))
    assert request_seed(0, "q1", 0, "low", worded) == request_seed(0, "q1", 0, "low", FIRST)


@given(st.integers(), st.text(), st.integers(min_value=0), st.text(), st.sampled_from([FIRST, FORCED, FORCED_GRADE]))
def test_seeds_are_what_every_provider_takes(run_seed, question_id, draw, variant, request):
    assert 0 <= request_seed(run_seed, question_id, draw, variant, request) < 2**31


def test_seeds_of_many_questions_do_not_collide_more_than_chance_has_it():
    n = 10_000
    seeds = {request_seed(0, f"q{number}", 0, "low", FIRST) for number in range(n)}
    assert len(seeds) >= n - 3  # the expected number of collisions is n² / 2³² = 0.02


def test_an_auxiliary_variant_has_the_seeds_of_its_name_alone():
    probe = Request(Pass.PROBE, Role.MODEL, ())
    assert request_seed(0, "q1", 0, "confidence/p-true", probe) == request_seed(0, "q1", 0, "p-true", probe)
    assert request_seed(0, "q1", 0, "confidence/forced", FORCED) == request_seed(0, "q1", 0, "low", FORCED)
