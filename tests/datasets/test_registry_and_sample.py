"""Evidence for the registry, the sample and the almanac's file."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusal_index.data import Question
from refusal_index.data.datasets import Dataset, DatasetError, dataset_names, load_dataset, sample
from refusal_index.plugins.almanac import provider


def numbered(count: int) -> Dataset:
    questions = tuple(Question(f"q{i}", f"What is {i}?", str(i)) for i in range(count))
    return Dataset("numbers", questions, "0" * 64, "made up", "exact", "none")


def test_an_unknown_name_gets_the_nearest_one():
    with pytest.raises(DatasetError, match=r"almanac, .*, simpleqa, simpleqa_verified, got 'simple-qa'.*'simpleqa'\?"):
        load_dataset("simple-qa")
    with pytest.raises(DatasetError, match=r"got 'mmlu'.*'own'"):
        load_dataset("mmlu")


def test_columns_go_with_own_files_only():
    for name in dataset_names():
        if name != "own":
            with pytest.raises(DatasetError, match="columns of its own"):
                load_dataset(name, columns={"question": "q"})


@given(st.integers(1, 40), st.integers(1, 40), st.integers())
def test_property_a_smaller_sample_is_part_of_a_larger_one_in_the_order_of_the_source(a, b, seed):
    data = numbered(40)
    small, large = (sample(data, limit, seed).questions for limit in sorted((a, b)))
    assert set(small) <= set(large)
    assert len(large) == max(a, b)
    assert list(large) == [question for question in data.questions if question in set(large)]


def test_a_sample_is_that_of_earlier_releases():
    """Folders of earlier runs are resumed with it."""
    drawn = [question.question_id for question in sample(numbered(100), 6, 7).questions]
    assert drawn == ["q38", "q50", "q59", "q61", "q62", "q88"]


def test_samples_differ_by_seed_and_are_not_the_first_questions():
    data = numbered(1000)
    one, two = (set(sample(data, 100, seed).questions) for seed in (1, 2))
    assert len(one & two) < 30
    assert len(one & set(data.questions[:100])) < 30


def test_a_seed_draws_the_same_questions_for_ever():
    """Pinned: runs of other days and versions with the same seed are over the same questions."""
    drawn = {seed: [question.question_id for question in sample(numbered(1000), 5, seed).questions] for seed in (0, 7)}
    assert drawn == {0: ["q414", "q510", "q530", "q589", "q998"], 7: ["q352", "q378", "q615", "q698", "q878"]}


def test_every_question_is_drawn_about_equally_often_against_the_binomial():
    data = numbered(20)
    counts = dict.fromkeys(data.questions, 0)
    for seed in range(2000):
        for question in sample(data, 5, seed).questions:
            counts[question] += 1
    # 2,000 draws of probability 1/4: mean 500, standard deviation 19.4; four of these leave a chance of 1 in 800.
    assert all(abs(count - 500) < 78 for count in counts.values())


def test_a_sample_does_not_depend_on_the_order_of_the_source():
    data = numbered(50)
    turned = Dataset("numbers", data.questions[::-1], "0" * 64, "made up", "exact", "none")
    assert set(sample(data, 10, 7).questions) == set(sample(turned, 10, 7).questions)


@pytest.mark.parametrize("limit", [0, -1, 11])
def test_a_limit_out_of_reach_is_refused(limit):
    with pytest.raises(DatasetError, match=rf"from 1 to 10, .* got {limit}; leave the limit out"):
        sample(numbered(10), limit, 0)


def test_all_questions_are_a_sample_too():
    assert sample(numbered(10), 10, 3) == numbered(10)


def test_the_almanac_is_read_from_its_two_files(tmp_path):
    record = {"question_id": "e1-born", "question": "When was X born?", "answer": 1804, "topic": "people"}
    content = json.dumps(record).encode()
    digest = hashlib.sha256(content).hexdigest()
    (tmp_path / "almanac.jsonl").write_bytes(content)
    (tmp_path / "almanac.sha256").write_text(f"{digest}  almanac.jsonl\n")
    data = provider.load(folder=tmp_path)
    assert data.questions == (Question("e1-born", "When was X born?", "1804", (), "people"),)
    assert (data.default_grader, data.sha256) == ("exact", digest)


def test_a_damaged_almanac_is_refused(tmp_path):
    with pytest.raises(DatasetError, match="missing from this installation"):
        provider.load(folder=tmp_path)
    (tmp_path / "almanac.jsonl").write_text("{}")
    for checksum in ("", "0" * 64):
        (tmp_path / "almanac.sha256").write_text(checksum)
        with pytest.raises(DatasetError, match="is damaged"):
            provider.load(folder=tmp_path)


def test_the_almanac_takes_no_file():
    with pytest.raises(DatasetError, match="takes no data"):
        load_dataset("almanac", data="x.jsonl")


def test_the_shipped_almanac_agrees_with_its_checksum():
    if not (files("refusal_index.plugins.almanac") / "data" / "almanac.jsonl").is_file():
        pytest.skip("the almanac's questions have not been made yet")
    data = load_dataset("almanac")
    assert len({question.question_id for question in data.questions}) == len(data.questions) > 500
    assert all(question.topic for question in data.questions)


def test_the_checksum_of_questions_is_that_of_releases_that_knew_no_context():
    """Folders of earlier runs are found by it."""
    data = replace(numbered(3), questions=(Question("q", "Who?", "Ann", ("Anne",), "people"), Question("r", "?", "!")))
    names = ("question_id", "text", "gold", "aliases", "topic")
    read = json.dumps([{name: getattr(question, name) for name in names} for question in data.questions])
    assert data.questions_sha256 == hashlib.sha256(read.encode()).hexdigest()


@pytest.mark.parametrize(
    "change", [{"gold": None}, {"context": "Text."}, {"choices": ("!", "?")}, {"pattern": "!+"}, {"aliases": ("a",)}]
)
def test_the_checksum_of_questions_tells_whatever_is_asked_or_accepted(change):
    plain = replace(numbered(1), questions=(Question("q", "?", "!"),))
    assert replace(plain, questions=(replace(plain.questions[0], **change),)).questions_sha256 != plain.questions_sha256
