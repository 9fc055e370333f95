"""The draw goes on until there are enough questions, gives difficulties equal shares, and repeats itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from refusal_index.plugins.wiki.builder import FIRST_ROUND, HOPELESS, MAX_ROUND, BuildState
from refusal_index.plugins.wiki.questions import Candidate, Reason, Tried


def sections(level: str | None, count: int) -> list[Candidate]:
    return [Candidate(f"pw-{level}-{n}", f"Town {level} {n}", "", "text", level) for n in range(count)]


def outcome(candidate: Candidate, *, good: bool) -> Tried:
    reason = None if good else Reason.UNANSWERABLE
    return Tried(candidate, f"What is {candidate.candidate_id}?", "text", reason)


def drawn_out(sizes: dict[str | None, int], wanted: int, good: Callable[[int], bool]) -> tuple[BuildState, list[int]]:
    drawing = BuildState({level: iter(sections(level, size)) for level, size in sizes.items()}, wanted)
    rounds = []
    while candidates := drawing.next_round():
        rounds.append(len(candidates))
        drawing.take([outcome(one, good=good(int(one.candidate_id.rsplit("-", 1)[1]))) for one in candidates])
    return drawing, rounds


def by_level(drawing: BuildState) -> dict[str | None, int]:
    return dict(Counter(one.candidate.difficulty for one in drawing.taken()))


def test_equal_shares_of_equal_levels():
    drawing, _ = drawn_out({"a": 100, "b": 100, "c": 100}, 60, lambda n: n % 2 == 0)
    assert by_level(drawing) == {"a": 20, "b": 20, "c": 20}


def test_what_one_level_cannot_give_the_others_do():
    drawing, _ = drawn_out({"a": 5, "b": 100, "c": 100}, 60, lambda _: True)
    counts = by_level(drawing)
    assert counts["a"] == 5
    assert sum(counts.values()) == 60
    assert abs(counts["b"] - counts["c"]) <= 1


def test_without_rejections_little_is_tried_in_vain():
    drawing, rounds = drawn_out({None: 10_000}, 2000, lambda _: True)
    assert (len(drawing.taken()), drawing.not_needed) == (2000, 0)
    assert rounds[0] == FIRST_ROUND
    assert max(rounds) <= MAX_ROUND


def test_with_half_of_them_rejected_about_twice_as_many_are_tried():
    drawing, _ = drawn_out({None: 10_000}, 200, lambda n: n % 2 == 0)
    assert len(drawing.taken()) == 200
    assert len(drawing.tried) <= 410
    assert drawing.reasons() == {Reason.UNANSWERABLE: sum(one.reason is not None for one in drawing.tried)}


def test_pages_that_run_out_end_the_draw():
    drawing, _ = drawn_out({"a": 7, "b": 4}, 100, lambda n: n != 0)
    assert by_level(drawing) == {"a": 6, "b": 3}
    assert len(drawing.tried) == 11


def test_the_first_of_two_equal_questions_stays():
    drawing = BuildState({None: iter(sections(None, 3))}, 3)
    first, second, third = drawing.next_round()
    drawing.take(
        [Tried(first, "Who was she?", "Ada"), Tried(second, "who was  SHE", "Ida"), Tried(third, "Who was he?", "Ed")]
    )
    assert [one.answer for one in drawing.taken()] == ["Ada", "Ed"]
    assert drawing.reasons() == {Reason.DUPLICATE: 1}


def test_a_long_row_of_rejections_is_hopeless_and_a_shorter_one_is_not():
    for rejected, expected in ((HOPELESS - 1, False), (HOPELESS, True)):
        drawing = BuildState({None: iter(sections(None, 200))}, 5)
        drawing.take([outcome(one, good=False) for one in sections(None, rejected)])
        assert drawing.is_hopeless is expected


@given(
    st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), st.integers(0, 40), min_size=1),
    st.integers(1, 100),
    st.integers(1, 5),
)
def test_property_as_many_as_wanted_where_there_are_as_many_and_the_same_ones_again(sizes, wanted, every):
    def run() -> BuildState:
        return drawn_out(dict(sizes), wanted, lambda n: n % every == 0)[0]

    drawing = run()
    there = sum(-(-size // every) for size in sizes.values())
    assert len(drawing.taken()) == min(wanted, there)
    assert run().taken() == drawing.taken()
    ids = [one.candidate.candidate_id for one in drawing.tried]
    assert len(set(ids)) == len(ids)
