"""Evidence for PreciseWikiQA: both forms of a set are read whole, the real one of 9,999 questions too."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from refusal_index.data import Question
from refusal_index.data.datasets import DatasetError, load_dataset

REAL = Path(__file__).parents[3] / "shared" / "data" / "precise_wiki" / "precisewiki_negative_answers.json"
FROZEN = [
    {
        "question_id": "w1",
        "question": "Who built it?",
        "answer": "Ann",
        "aliases": ["Anne"],
        "title": "Tower",
        "section": "History",
        "difficulty": 3,
        "topic": "Towers",
    },
    {"question_id": "w2", "question": "When?", "answer": "1804", "title": "Tower", "section": "", "difficulty": None},
]


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_a_frozen_set_is_read_and_what_it_says_of_its_making_left_alone(tmp_path):
    path = write(tmp_path / "wiki.jsonl", "\n".join(map(json.dumps, FROZEN)))
    data = load_dataset("precise_wiki", data=path)
    assert data.questions == (
        Question("w1", "Who built it?", "Ann", ("Anne",), "Towers"),
        Question("w2", "When?", "1804"),
    )
    assert (data.name, data.default_grader) == ("precise_wiki", "model")
    assert data.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_an_object_of_questions_is_read_with_ids_made_of_their_texts(tmp_path):
    pairs = {"Who?": {"incorrect_answer": "Bob", "correct_answer": "Ann"}, "When?": {"correct_answer": 1804}}
    questions = load_dataset("precise_wiki", data=write(tmp_path / "wiki.json", json.dumps(pairs))).questions
    assert [(q.question_id, q.text, q.gold) for q in questions] == [
        ("d991a24e8e04", "Who?", "Ann"),
        (questions[1].question_id, "When?", "1804"),
    ]


def test_the_real_set_of_9999_questions_loads():
    if not REAL.is_file():
        pytest.skip("needs the real set beside the repository")
    questions = load_dataset("precise_wiki", data=REAL).questions
    assert len(questions) == len({question.question_id for question in questions}) == 9_999
    pairs = json.loads(REAL.read_text(encoding="utf-8"))
    assert {question.text: question.gold for question in questions} == {
        text.strip(): pair["correct_answer"].strip() for text, pair in pairs.items()
    }


BAD = {
    "nothing": ("wiki.json", "", "expected one JSON object"),
    "a list": ("wiki.json", "[]", "expected an object from questions"),
    "an empty object": ("wiki.json", "{}", "expected an object from questions"),
    "no answers": ("wiki.json", '{"Who?": "Ann"}', "question 'Who\\?': expected an object with 'correct_answer'"),
    "an empty answer": ("wiki.json", '{"Who?": {"correct_answer": " "}}', "item 1, column 'answer': .* empty cell"),
    "other fields": (
        "wiki.jsonl",
        '{"question": "Who?", "gold": "Ann"}',
        "among them 'answer', got 'question', 'gold'; is it another file",
    ),
    "a torn line": ("wiki.jsonl", '{"question": "Who?", "answer": "Ann"}\n{"quest', "line 2: expected one JSON object"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_set_that_cannot_be_used_is_explained(tmp_path, case):
    name, text, message = BAD[case]
    with pytest.raises(DatasetError, match=rf"{name}.*{message}"):
        load_dataset("precise_wiki", data=write(tmp_path / name, text))


def test_without_a_file_it_is_said_how_to_make_one():
    with pytest.raises(DatasetError, match="build precise-wiki"):
        load_dataset("precise_wiki")
