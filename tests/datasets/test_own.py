"""Evidence for a user's own questions: what is good is read whole, what is wrong is named with its line."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path

import pytest

from refusal_index.datasets import DatasetError, load_dataset
from refusal_index.outcomes import Question


def file(tmp_path: Path, text: str, name: str = "mine.csv", encoding: str = "utf-8") -> Path:
    path = tmp_path / name
    path.write_bytes(text.encode(encoding))
    return path


def test_every_role_is_read_from_its_usual_name(tmp_path):
    text = 'ID,Problem,gold,aliases,topic\n7, Who? ," Ann ",Anne|Ann | A.,People\n8,"Where,\nthen?",Rome,,\n'
    data = load_dataset("own", data=file(tmp_path, "\ufeff" + text))
    assert data.questions == (
        Question("7", "Who?", "Ann", ("Anne", "A."), "People"),
        Question("8", "Where,\nthen?", "Rome"),
    )
    assert data.sha256 == hashlib.sha256((tmp_path / "mine.csv").read_bytes()).hexdigest()
    assert (data.name, data.default_grader) == ("own/mine", "model")


def test_named_columns_win_over_usual_names(tmp_path):
    text = "question,paraphrase,answer,model says\nWho?,Which one?,Ann,Bob\n"
    data = load_dataset("own", data=file(tmp_path, text), columns={"question": "paraphrase", "answer": "model says"})
    assert [(q.text, q.gold) for q in data.questions] == [("Which one?", "Bob")]


def test_json_lines_and_gzip(tmp_path):
    records = [{"question": "How many?", "answer": 12}, {"question": "Two?", "answer": True, "aliases": ["yes", 2, ""]}]
    path = tmp_path / "mine.jsonl.gz"
    path.write_bytes(gzip.compress("\n\n".join(map(json.dumps, records)).encode()))
    questions = load_dataset("own", data=path).questions
    assert [(q.gold, q.aliases) for q in questions] == [("12", ()), ("true", ("yes", "2"))]


def test_aliases_in_a_cell_may_be_a_json_list(tmp_path):
    data = load_dataset("own", data=file(tmp_path, 'question,answer,aliases\nWho?,Ann,"[""A|B"", ""Ann""]"\n'))
    assert data.questions[0].aliases == ("A|B",)


def test_ids_made_of_the_text_survive_reordering_and_tell_repeats_apart(tmp_path):
    one = load_dataset("own", data=file(tmp_path, "question,answer\nWho?,Ann\nWhere?,Rome\nWho?,Bob\n")).questions
    two = load_dataset("own", data=file(tmp_path, "question,answer\nWhere?,Rome\n Who? ,Ann\n", "b.csv")).questions
    assert [q.question_id for q in one] == [two[1].question_id, two[0].question_id, two[1].question_id + "-2"]


BAD = {
    "no question column": ("x.csv", "qestion,answer\nWho?,Ann\n", ["'question'", "did you mean 'qestion'?"]),
    "no answer column": ("x.csv", "question,reply\nWho?,Ann\n", ["'answer'", "'question', 'reply'", "answer="]),
    "semicolons": ("x.csv", "question;answer\na;A\n", ["found ';'", "commas"]),
    "two answer columns": ("x.csv", "question,answer,gold\nWho?,A,B\n", ["'answer' and 'gold'", "answer=answer"]),
    "gold missing": ("x.csv", 'question,answer\n"a\nb",A\nc,\nd,D\ne, \n', ["lines 4, 6", "'answer'", "empty cell"]),
    "gold null": ("x.jsonl", '{"question": "a", "answer": null}', ["line 1", "'answer'"]),
    "question missing": ("x.csv", "question,answer\n,A\n", ["line 2", "'question'"]),
    "short row": ("x.csv", "question,answer\na,A\nb\n", ["line 3", "'answer'"]),
    "long row": ("x.csv", "question,answer\na,A,B\n", ["line 2", "expected 2 cells", "quotes"]),
    "id missing": ("x.csv", "id,question,answer\n,a,A\n", ["line 2", "'id'"]),
    "id twice": ("x.csv", "id,question,answer\n1,a,A\n2,b,B\n1,c,C\n", ["lines 2, 4", "'1' 2 times"]),
    "empty": ("x.csv", "", ["at least one question"]),
    "header only": ("x.csv", "question,answer\n\n", ["at least one question"]),
    "column twice": ("x.csv", "question,answer,answer\na,A,B\n", ["'answer' twice"]),
    "quote left open": ("x.csv", 'question,answer\na,A\n"b,B\nc,C\n', ["line 3", "malformed CSV"]),
    "malformed JSON": ("x.jsonl", '{"question": "a", "answer": "A"}\n{"question": ', ["line 2", "JSON object"]),
    "JSON of another kind": ("x.jsonl", '"a"', ["line 1", "JSON object"]),
    "nested answer": ("x.jsonl", '{"question": "a", "answer": ["A"]}', ["line 1", "'answer'", "aliases"]),
    "aliases malformed": ("x.csv", "question,answer,aliases\na,A,\"['b']\"\n", ["line 2", "'aliases'", "one|two"]),
    "aliases of another kind": ("x.jsonl", '{"question": "a", "answer": "A", "aliases": 3}', ["line 1", "'aliases'"]),
    "wrong suffix": ("x.xlsx", "question,answer\na,A\n", [".csv, .jsonl"]),
    "not gzip": ("x.csv.gz", "question,answer\na,A\n", ["cannot be unpacked"]),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_file_is_refused_with_place_and_advice(tmp_path, case):
    name, text, parts = BAD[case]
    with pytest.raises(DatasetError) as caught:
        load_dataset("own", data=file(tmp_path, text, name))
    message = str(caught.value)
    assert str(tmp_path / name) in message
    assert [part for part in parts if part not in message] == []


def test_many_bad_lines_are_counted_not_listed(tmp_path):
    with pytest.raises(DatasetError, match=r"lines 2, 3, .*, 11 and 90 more"):
        load_dataset("own", data=file(tmp_path, "question,answer\n" + "a,\n" * 100))


def test_text_that_is_not_utf8_is_refused_with_its_line(tmp_path):
    with pytest.raises(DatasetError, match="line 2: expected text in UTF-8"):
        load_dataset("own", data=file(tmp_path, "question,answer\né,A\n", encoding="latin-1"))


def test_bad_arguments_are_refused(tmp_path):
    path = file(tmp_path, "question,answer\na,A\n")
    with pytest.raises(DatasetError, match="expected a file of questions as data"):
        load_dataset("own")
    with pytest.raises(DatasetError, match="cannot be read"):
        load_dataset("own", data=tmp_path / "none.csv")
    with pytest.raises(DatasetError, match="did you mean 'answer'"):
        load_dataset("own", data=path, columns={"anser": "answer"})
    with pytest.raises(DatasetError, match=r"'anser' with the answer.*did you mean 'answer'\? .* answer=answer"):
        load_dataset("own", data=path, columns={"answer": "anser"})
