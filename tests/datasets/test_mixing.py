"""Evidence for mixes: as many questions of each part, seeded, each with its source, also in samples of them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from refusal_index.data import Question
from refusal_index.data.datasets import Dataset, DatasetError, load_dataset, mix, sample


def numbered(name: str, count: int, grader: str = "model", gold: str | None = "!") -> Dataset:
    questions = tuple(Question(f"q{i}", f"{name} {i}?", gold, topic="old") for i in range(count))
    return Dataset(name, questions, name, f"source of {name}", grader, f"licence of {name}")


FEW, MANY = numbered("few", 20, gold=None), numbered("many", 500)


def test_there_are_as_many_of_each_and_every_question_says_where_it_comes_from():
    mixed = mix([FEW, MANY], seed=1)
    assert [question.topic for question in mixed.questions] == ["few", "many"] * 20
    assert all(question.question_id.startswith(f"{question.topic}/q") for question in mixed.questions)
    assert len({question.question_id for question in mixed.questions}) == 40
    assert {question.text for question in mixed.questions if question.topic == "few"} == {q.text for q in FEW.questions}
    assert (mixed.name, mixed.parts, mixed.default_grader) == ("few+many", ("few", "many"), "model")
    assert "source of few" in mixed.source
    assert "licence of many" in mixed.licence


def test_a_mix_is_seeded():
    assert mix([FEW, MANY], seed=1) == mix([FEW, MANY], seed=1) != mix([FEW, MANY], seed=2)


@pytest.mark.parametrize("limit", [1, 2, 11, 40])
def test_a_sample_of_a_mix_is_one_too_and_smaller_ones_are_part_of_larger_ones(limit):
    mixed = mix([FEW, MANY], seed=1)
    drawn = sample(mixed, limit, seed=7)
    counts = Counter(question.topic for question in drawn.questions)
    assert len(drawn.questions) == limit
    assert counts["few"] - counts["many"] in {0, 1}
    assert set(drawn.questions) <= set(sample(mixed, min(40, limit + 5), seed=7).questions)


def test_what_all_parts_need_is_what_the_mix_needs():
    assert mix([numbered("a", 3, "choice"), numbered("b", 3, "choice")], 0).default_grader == "choice"
    assert mix([numbered("a", 3, "choice"), numbered("b", 3, "exact")], 0).default_grader == "model"


@pytest.mark.parametrize("parts", [[], [FEW], [FEW, FEW]])
def test_one_dataset_is_no_mix(parts):
    with pytest.raises(DatasetError, match="two or more datasets of different names"):
        mix(parts, 0)


# By name


@pytest.fixture
def files(tmp_path) -> list[Path]:
    faith = [{"qid": str(i), "question": f"F{i}?", "context": "Text.", "answers": []} for i in range(6)]
    wiki = [{"question_id": str(i), "question": f"W{i}?", "answer": "A"} for i in range(9)]
    for name, records in (("faith.jsonl", faith), ("wiki.jsonl", wiki)):
        (tmp_path / name).write_text("\n".join(map(json.dumps, records)))
    return [tmp_path / "faith.jsonl", tmp_path / "wiki.jsonl"]


def test_names_joined_by_a_plus_make_a_mix(files):
    mixed = load_dataset("faitheval_unanswerable+precise_wiki", data=files)
    assert Counter(question.topic for question in mixed.questions) == {"faitheval_unanswerable": 6, "precise_wiki": 6}
    assert [question.gold for question in mixed.questions[:2]] == [None, "A"]
    again = load_dataset("faitheval_unanswerable+precise_wiki", data=files, mix_seed=3)
    assert {q.question_id for q in again.questions} != {q.question_id for q in mixed.questions}


def test_what_comes_with_the_package_takes_no_file(files):
    mixed = load_dataset("almanac+precise_wiki", data=[files[1]])
    assert mixed.parts == ("almanac", "precise_wiki")


def test_own_questions_can_be_mixed_with_their_columns(files):
    mixed = load_dataset("own+precise_wiki", data=[files[0], files[1]], columns={"answer": "context"})
    assert {question.gold for question in mixed.questions} == {"Text.", "A"}


def test_files_that_do_not_fit_the_names_are_counted(files):
    with pytest.raises(
        DatasetError,
        match=r"2 files \(faitheval_unanswerable, precise_wiki\) or 1 file \(precise_wiki\), .* got 3 files$",
    ):
        load_dataset("faitheval_unanswerable+precise_wiki", data=[*files, files[0]])
    with pytest.raises(DatasetError, match=r"expected 2 files \(precise_wiki, own\), in this order, got 1 file$"):
        load_dataset("precise_wiki+own", data=files[0])
    with pytest.raises(DatasetError, match=r"expected 1 file \(precise_wiki\), .* got 2 files"):
        load_dataset("precise_wiki", data=files)
    with pytest.raises(DatasetError, match="did you mean 'precise_wiki'"):
        load_dataset("faitheval_unanswerable+precise_wikis", data=files)


def test_one_file_may_be_given_as_a_list_too(files):
    assert load_dataset("precise_wiki", data=[files[1]]) == load_dataset("precise_wiki", data=files[1])
