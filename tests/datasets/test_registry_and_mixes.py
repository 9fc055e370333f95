"""The registry of datasets, samples of them, and mixes."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusal_index.data import Question
from refusal_index.data.datasets import Dataset, DatasetError, dataset_names, load_dataset, mix, sample
from refusal_index.plugins.almanac import provider

# --- The registry, the sample and the almanac's file


def numbered(count: int) -> Dataset:
    questions = tuple(Question(f"q{i}", f"What is {i}?", str(i)) for i in range(count))
    return Dataset("numbers", questions, "0" * 64, "made up", "exact", "none")


def test_unknown_dataset_error_suggests_the_nearest_name():
    with pytest.raises(DatasetError, match=r"almanac, .*, simpleqa, simpleqa_verified, got 'simple-qa'.*'simpleqa'\?"):
        load_dataset("simple-qa")
    with pytest.raises(DatasetError, match=r"got 'mmlu'.*'own'"):
        load_dataset("mmlu")


def test_columns_option_is_accepted_only_for_own_files():
    for name in dataset_names():
        if name != "own":
            with pytest.raises(DatasetError, match="columns of its own"):
                load_dataset(name, columns={"question": "q"})


@given(st.integers(1, 40), st.integers(1, 40), st.integers())
def test_property_samples_are_nested_and_keep_the_source_order(a, b, seed):
    data = numbered(40)
    small, large = (sample(data, limit, seed).questions for limit in sorted((a, b)))
    assert set(small) <= set(large)
    assert len(large) == max(a, b)
    assert list(large) == [question for question in data.questions if question in set(large)]


def test_sample_matches_earlier_releases():
    """Folders of earlier runs are resumed with the same sample."""
    drawn = [question.question_id for question in sample(numbered(100), 6, 7).questions]
    assert drawn == ["q38", "q50", "q59", "q61", "q62", "q88"]


def test_samples_differ_by_seed_and_are_not_the_first_questions():
    data = numbered(1000)
    one, two = (set(sample(data, 100, seed).questions) for seed in (1, 2))
    assert len(one & two) < 30
    assert len(one & set(data.questions[:100])) < 30


def test_seed_always_gives_the_same_sample():
    """Pinned: runs of other days and versions with the same seed use the same questions."""
    drawn = {seed: [question.question_id for question in sample(numbered(1000), 5, seed).questions] for seed in (0, 7)}
    assert drawn == {0: ["q414", "q510", "q530", "q589", "q998"], 7: ["q352", "q378", "q615", "q698", "q878"]}


def test_questions_are_sampled_equally_often_against_the_binomial():
    data = numbered(20)
    counts = dict.fromkeys(data.questions, 0)
    for seed in range(2000):
        for question in sample(data, 5, seed).questions:
            counts[question] += 1
    # 2,000 samples with probability 1/4: mean 500, standard deviation 19.4; four of these leave a chance of 1 in 800.
    assert all(abs(count - 500) < 78 for count in counts.values())


def test_a_sample_does_not_depend_on_the_order_of_the_source():
    data = numbered(50)
    turned = Dataset("numbers", data.questions[::-1], "0" * 64, "made up", "exact", "none")
    assert set(sample(data, 10, 7).questions) == set(sample(turned, 10, 7).questions)


@pytest.mark.parametrize("limit", [0, -1, 11])
def test_limit_out_of_range_is_rejected(limit):
    with pytest.raises(DatasetError, match=rf"from 1 to 10, .* got {limit}; leave the limit out"):
        sample(numbered(10), limit, 0)


def test_sample_of_all_questions_is_the_whole_dataset():
    assert sample(numbered(10), 10, 3) == numbered(10)


def test_the_almanac_is_read_from_its_two_files(tmp_path):
    record = {"question_id": "e1-born", "question": "When was X born?", "answer": 1804, "topic": "people"}
    content = json.dumps(record).encode()
    digest = hashlib.sha256(content).hexdigest()
    (tmp_path / "almanac.jsonl").write_bytes(content)
    (tmp_path / "almanac.sha256").write_text(f"{digest}  almanac.jsonl\n")
    data = provider.load_from(tmp_path)
    assert data.questions == (Question("e1-born", "When was X born?", "1804", (), "people"),)
    assert (data.default_grader, data.sha256) == ("exact", digest)


def test_a_damaged_almanac_is_refused(tmp_path):
    with pytest.raises(DatasetError, match="missing from this installation"):
        provider.load_from(tmp_path)
    (tmp_path / "almanac.jsonl").write_text("{}")
    for checksum in ("", "0" * 64):
        (tmp_path / "almanac.sha256").write_text(checksum)
        with pytest.raises(DatasetError, match="is damaged"):
            provider.load_from(tmp_path)


def test_the_almanac_takes_no_file():
    with pytest.raises(DatasetError, match="takes no data"):
        load_dataset("almanac", data="x.jsonl")


def test_the_shipped_almanac_agrees_with_its_checksum():
    if not (files("refusal_index.plugins.almanac") / "data" / "almanac.jsonl").is_file():
        pytest.skip("the almanac's questions have not been made yet")
    data = load_dataset("almanac")
    assert len({question.question_id for question in data.questions}) == len(data.questions) > 500
    assert all(question.topic for question in data.questions)


def test_questions_checksum_matches_releases_without_context():
    """Folders of earlier runs are found by it."""
    data = replace(numbered(3), questions=(Question("q", "Who?", "Ann", ("Anne",), "people"), Question("r", "?", "!")))
    names = ("question_id", "text", "gold", "aliases", "topic")
    read = json.dumps([{name: getattr(question, name) for name in names} for question in data.questions])
    assert data.questions_sha256 == hashlib.sha256(read.encode()).hexdigest()


@pytest.mark.parametrize(
    "change", [{"gold": None}, {"context": "Text."}, {"choices": ("!", "?")}, {"pattern": "!+"}, {"aliases": ("a",)}]
)
def test_questions_checksum_changes_with_anything_asked_or_accepted(change):
    plain = replace(numbered(1), questions=(Question("q", "?", "!"),))
    assert replace(plain, questions=(replace(plain.questions[0], **change),)).questions_sha256 != plain.questions_sha256


# --- Mixes


def part(name: str, count: int, grader: str = "model", gold: str | None = "!") -> Dataset:
    questions = tuple(Question(f"q{i}", f"{name} {i}?", gold, topic="old") for i in range(count))
    return Dataset(name, questions, name, f"source of {name}", grader, f"licence of {name}")


FEW, MANY = part("few", 20, gold=None), part("many", 500)


def test_mix_has_equal_parts_and_names_the_source_of_each_question():
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
def test_samples_of_a_mix_are_balanced_and_nested(limit):
    mixed = mix([FEW, MANY], seed=1)
    drawn = sample(mixed, limit, seed=7)
    counts = Counter(question.topic for question in drawn.questions)
    assert len(drawn.questions) == limit
    assert counts["few"] - counts["many"] in {0, 1}
    assert set(drawn.questions) <= set(sample(mixed, min(40, limit + 5), seed=7).questions)


def test_mix_uses_the_grader_shared_by_all_parts():
    assert mix([part("a", 3, "choice"), part("b", 3, "choice")], 0).default_grader == "choice"
    assert mix([part("a", 3, "choice"), part("b", 3, "exact")], 0).default_grader == "model"


@pytest.mark.parametrize("parts", [[], [FEW], [FEW, FEW]])
def test_mix_requires_two_different_datasets(parts):
    with pytest.raises(DatasetError, match="two or more datasets of different names"):
        mix(parts, 0)


# By name


@pytest.fixture
def part_files(tmp_path) -> list[Path]:
    faith = [{"qid": str(i), "question": f"F{i}?", "context": "Text.", "answers": []} for i in range(6)]
    wiki = [{"question_id": str(i), "question": f"W{i}?", "answer": "A"} for i in range(9)]
    for name, records in (("faith.jsonl", faith), ("wiki.jsonl", wiki)):
        (tmp_path / name).write_text("\n".join(map(json.dumps, records)))
    return [tmp_path / "faith.jsonl", tmp_path / "wiki.jsonl"]


def test_names_joined_by_a_plus_make_a_mix(part_files):
    mixed = load_dataset("faitheval_unanswerable+precise_wiki", data=part_files)
    assert Counter(question.topic for question in mixed.questions) == {"faitheval_unanswerable": 6, "precise_wiki": 6}
    assert [question.gold for question in mixed.questions[:2]] == [None, "A"]
    again = load_dataset("faitheval_unanswerable+precise_wiki", data=part_files, mix_seed=3)
    assert {q.question_id for q in again.questions} != {q.question_id for q in mixed.questions}


def test_embedded_dataset_in_a_mix_needs_no_file(part_files):
    mixed = load_dataset("almanac+precise_wiki", data=[part_files[1]])
    assert mixed.parts == ("almanac", "precise_wiki")


def test_own_questions_can_be_mixed_with_their_columns(part_files):
    mixed = load_dataset("own+precise_wiki", data=[part_files[0], part_files[1]], columns={"answer": "context"})
    assert {question.gold for question in mixed.questions} == {"Text.", "A"}


def test_wrong_number_of_mix_files_is_reported(part_files):
    with pytest.raises(
        DatasetError,
        match=r"2 files \(faitheval_unanswerable, precise_wiki\) or 1 file \(precise_wiki\), .* got 3 files$",
    ):
        load_dataset("faitheval_unanswerable+precise_wiki", data=[*part_files, part_files[0]])
    with pytest.raises(DatasetError, match=r"expected 2 files \(precise_wiki, own\), in this order, got 1 file$"):
        load_dataset("precise_wiki+own", data=part_files[0])
    with pytest.raises(DatasetError, match=r"expected 1 file \(precise_wiki\), .* got 2 files"):
        load_dataset("precise_wiki", data=part_files)
    with pytest.raises(DatasetError, match="did you mean 'precise_wiki'"):
        load_dataset("faitheval_unanswerable+precise_wikis", data=part_files)


def test_one_file_may_be_given_as_a_list_too(part_files):
    assert load_dataset("precise_wiki", data=[part_files[1]]) == load_dataset("precise_wiki", data=part_files[1])
