"""The draw: the same for a seed whatever the order of the file, one section a page before any second one."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

from tests.models.wiki_writer import page

from refusal_index.plugins.wiki.questions import Candidate, Lengths, draw_order, read_pages, request_seed

LENGTHS = Lengths(400, 2000)


def drawn(path: Path, numbers: list[int], seed: int = 0, sections: int = 2) -> dict[str | None, list[Candidate]]:
    path.write_text("".join(json.dumps(page(number, sections)) + "\n" for number in numbers))
    return {level: list(order) for level, order in draw_order(read_pages(path), seed, LENGTHS).items()}


def test_the_order_of_the_file_does_not_matter(tmp_path):
    forwards = drawn(tmp_path / "a.jsonl", list(range(30)))
    assert forwards == drawn(tmp_path / "b.jsonl", list(range(30))[::-1])
    assert list(forwards) == ["0", "1", "2", "3"]


def test_pages_added_to_the_file_do_not_change_the_order_of_the_others(tmp_path):
    fewer = drawn(tmp_path / "a.jsonl", list(range(20)), sections=0)
    more = drawn(tmp_path / "b.jsonl", list(range(40)), sections=0)
    for level, order in fewer.items():
        there = set(order)
        assert [one for one in more[level] if one in there] == order


def test_seeds_draw_differently(tmp_path):
    one, other = (drawn(tmp_path / "a.jsonl", list(range(40)), seed)["0"] for seed in (1, 2))
    assert set(one) == set(other)
    assert [c.title for c in one[:10]] != [c.title for c in other[:10]]


def test_every_page_has_its_turn_before_any_has_its_second(tmp_path):
    order = drawn(tmp_path / "a.jsonl", [0, 4, 8, 12, 16])["0"]
    titles = [candidate.title for candidate in order]
    assert len(order) == 5 * 3
    assert [len(set(titles[start : start + 5])) for start in (0, 5, 10)] == [5, 5, 5]


def test_the_same_section_twice_is_drawn_once(tmp_path):
    once, twice = drawn(tmp_path / "a.jsonl", [0]), drawn(tmp_path / "b.jsonl", [0, 0])
    assert once == twice
    assert len({candidate.candidate_id for candidate in once["0"]}) == 3


def test_sections_are_cut_only_when_their_turn_comes(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(page(number)) + "\n" for number in range(40)))
    pages = read_pages(path)
    looked_at = []
    object.__setattr__(pages, "texts", lambda entry: looked_at.append(entry) or [("", "x" * 500)])
    list(islice(draw_order(pages, 0, LENGTHS)["0"], 2))
    assert len(looked_at) == 2


def test_levels_of_difficulty_are_sorted_by_size(tmp_path):
    path = tmp_path / "a.jsonl"
    levels = [10, "hard", 9, -1, "easy", 2.5]
    path.write_text("".join(json.dumps({**page(n), "difficulty": level}) + "\n" for n, level in enumerate(levels)))
    assert list(draw_order(read_pages(path), 0, LENGTHS)) == ["-1", "2.5", "9", "10", "easy", "hard"]


def test_seeds_of_requests_fit_every_provider_and_differ():
    seeds = [
        request_seed(run, f"pw-{n}", step) for run in (0, 1) for n in range(500) for step in ("question", "answer")
    ]
    assert len(set(seeds)) == len(seeds)
    assert 0 <= min(seeds) <= max(seeds) < 2**31
