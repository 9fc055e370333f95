"""A user's own questions, from files and in memory."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import tracemalloc
from datetime import date
from pathlib import Path

import polars as pl
import pytest

from refusal_index.data import Question, tables
from refusal_index.data.datasets import Dataset, DatasetError, load_dataset, sample
from refusal_index.data.datasets.dataset import question_reader, questions_from
from refusal_index.data.outcome_table import read_outcomes
from refusal_index.data.tables import Problems
from refusal_index.errors import OutcomeTableError

# --- A user's own questions


def file(tmp_path: Path, text: str, name: str = "mine.csv", encoding: str = "utf-8") -> Path:
    path = tmp_path / name
    path.write_bytes(text.encode(encoding))
    return path


def problems(path: Path) -> Problems:
    read = question_reader(path)
    for _ in read:
        pass
    return read.problems


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


def test_gzipped_json_lines_are_read(tmp_path):
    records = [{"question": "How many?", "answer": 12}, {"question": "Two?", "answer": True, "aliases": ["yes", 2, ""]}]
    path = tmp_path / "mine.jsonl.gz"
    path.write_bytes(gzip.compress("\n\n".join(map(json.dumps, records)).encode()))
    questions = load_dataset("own", data=path).questions
    assert [(q.gold, q.aliases) for q in questions] == [("12", ()), ("true", ("yes", "2"))]


def test_aliases_in_a_cell_may_be_a_json_list(tmp_path):
    data = load_dataset("own", data=file(tmp_path, 'question,answer,aliases\nWho?,Ann,"[""A|B"", ""Ann""]"\n'))
    assert data.questions[0].aliases == ("A|B",)


def test_text_ids_survive_reordering_and_distinguish_repeats(tmp_path):
    one = load_dataset("own", data=file(tmp_path, "question,answer\nWho?,Ann\nWhere?,Rome\nWho?,Bob\n")).questions
    two = load_dataset("own", data=file(tmp_path, "question,answer\nWhere?,Rome\n Who? ,Ann\n", "b.csv")).questions
    assert [q.question_id for q in one] == [two[1].question_id, two[0].question_id, two[1].question_id + "-2"]


def test_first_of_several_answers_is_gold_and_others_are_aliases(tmp_path):
    record = {"question": "Who?", "answer": ["Ann", "Anne", "Ann"], "aliases": ["A.", "Anne"]}
    (question,) = load_dataset("own", data=file(tmp_path, json.dumps(record), "x.jsonl")).questions
    assert (question.gold, question.aliases) == ("Ann", ("Anne", "A."))


EVERYTHING = [
    {"question": "Who?", "answer": "B", "choices": ["Ann", "Bob"], "context": "Bob was it.", "category": "people"},
    {"question": "Who?", "answer": "bob", "choices": ["Ann", "Bob"], "context": "Ann was it.", "category": None},
    {"question": "When?", "answer": "n/a", "choices": [], "context": "Some day.", "category": None},
]


@pytest.mark.parametrize("name", ["x.csv", "x.jsonl", "x.parquet", "x.csv.gz"])
def test_every_format_reads_context_choices_and_unanswerable_questions(tmp_path, name):
    records = [{**record, "is_answerable": record["answer"] != "n/a"} for record in EVERYTHING]
    path, frame = tmp_path / name, pl.DataFrame(records)
    if name.endswith(".parquet"):
        frame.write_parquet(path)
    elif name.endswith(".jsonl"):
        frame.write_ndjson(path)
    else:
        text = frame.with_columns(pl.col("choices").list.join("|")).write_csv().encode()
        path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    data = load_dataset("own", data=path)
    first, second, third = data.questions
    assert (first.gold, first.choices, first.context, first.topic) == ("Bob", ("Ann", "Bob"), "Bob was it.", "people")
    assert (second.gold, second.context) == ("Bob", "Ann was it.")
    assert (third.gold, third.choices, third.context) == (None, (), "Some day.")
    assert len({question.question_id for question in data.questions}) == 3
    assert data.default_grader == "model"


def test_choice_grader_is_the_default_if_all_questions_have_choices(tmp_path):
    text = 'question,answer,options\nWho?,A,"[""Ann"", ""Bob|Eve""]"\n'
    data = load_dataset("own", data=file(tmp_path, text))
    assert data.questions[0].choices == ("Ann", "Bob|Eve")
    assert data.default_grader == "choice"


def test_no_answer_is_needed_for_questions_marked_unanswerable(tmp_path):
    data = load_dataset("own", data=file(tmp_path, "question,answerable\nWho?,false\nWhen?,0\n"))
    assert [question.gold for question in data.questions] == [None, None]


def test_text_id_depends_on_context_and_choices_only_if_present(tmp_path):
    alone = load_dataset("own", data=file(tmp_path, "question,answer\nWho?,Ann\n")).questions[0]
    other = load_dataset("own", data=file(tmp_path, "question,answer,context\nWho?,Ann,\nWho?,Ann,Text\n")).questions
    assert other[0].question_id == alone.question_id == "d991a24e8e04"
    assert other[1].question_id not in {"d991a24e8e04", "d991a24e8e04-2"}


def test_retrieved_passages_are_one_context(tmp_path):
    record = {"question": "a", "answer": "A", "retrieved_contexts": ["b", "c"]}
    (question,) = load_dataset("own", data=file(tmp_path, json.dumps(record), "x.jsonl")).questions
    assert question.context == "b\n\nc"


def test_all_problems_are_collected_in_line_order(tmp_path):
    lines = [
        '{"question": "a", "answer": "A", "choices": ["A"]}',
        '{"question": "", "answer": "A"}',
        "{",
        '{"question": "b", "answer": null, "aliases": 3}',
        "[]",
        '{"question": "c", "answer": "C"}',
    ]
    path = file(tmp_path, "\n".join(lines), "x.jsonl")
    assert [problem.line for problem in problems(path)] == [1, 2, 3, 4, 4, 5]
    with pytest.raises(DatasetError, match=r"line 1, .*; and 5 more problems, which 'refusal-index validate .*' lists"):
        load_dataset("own", data=path)


def test_csv_problems_are_collected(tmp_path):
    path = file(tmp_path, 'id,question,answer\n1,a,A,x\n2,b,B\n2,c,C\n3,,D\n4,"e,E\n')
    assert [problem.line for problem in problems(path)] == [2, 3, 5, 6]


def test_real_reading_comprehension_questions_are_read_with_their_contexts():
    real = Path(__file__).parents[3] / "shared" / "data" / "squad2_refusal" / "explicit_n500.jsonl"
    if not real.is_file():
        pytest.skip("needs the real questions beside the repository")
    questions = load_dataset("own", data=real, columns={"answer": "gold_answers"}).questions
    assert len(questions) == 1000
    assert all(question.context for question in questions)
    records = [json.loads(line) for line in real.read_text(encoding="utf-8").splitlines()]
    assert [question.gold for question in questions] == [
        record["gold_answers"][0].strip() if record["is_answerable"] else None for record in records
    ]


BAD = {
    "a pattern that never ends": (
        "x.csv",
        f"question,answer,pattern\na,{'a' * 60}!,(a|aa)+$\n",
        ["line 2", "'pattern'", "within 1 s", "avoid nested"],
    ),
    "a pattern that nothing can hold": (
        "x.csv",
        "question,answer,pattern\na,A,A\nb,B,((b{1000}){1000}){1000}\n",
        ["line 3", "'pattern'", "1,000,000,000 parts"],
    ),
    "no question column": ("x.csv", "qestion,answer\nWho?,Ann\n", ["'question'", "did you mean 'qestion'?"]),
    "no answer column": ("x.csv", "question,reply\nWho?,Ann\n", ["'question', 'reply'", 'columns={"answer": ']),
    "two answer columns": ("x.csv", "question,answer,gold\nWho?,A,B\n", ["'gold' and 'answer'", "answer=gold"]),
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
    "nested answer": ("x.jsonl", '{"question": "a", "answer": {"text": "A"}}', ["line 1", "'answer'", "aliases"]),
    "no answer in the list": ("x.jsonl", '{"question": "a", "answer": [""]}', ["line 1", "'answer'", "empty cell"]),
    "not a number": ("x.jsonl", '{"question": "a", "answer": NaN}', ["line 1", "'answer'", "empty cell"]),
    "answerable is neither": (
        "x.csv",
        "question,answer,answerable\na,A,perhaps\n",
        ["line 2", "'perhaps'", "true or false"],
    ),
    "answer missing where there is one": (
        "x.csv",
        "question,answer,answerable\na,,no\nb,,yes\n",
        ["line 3", "'answer'", "without a right answer", "answerable"],
    ),
    "choices without the answer": (
        "x.csv",
        "question,answer,choices\na,A,A|B\nb,Z,A|B\n",
        ["line 3", "'answer'", "expected one of the choices", "'Z'", "'A, B'"],
    ),
    "choices with a number for a key": (
        "x.csv",
        "question,answer,choices\na,1,Ann|Bob\n",
        ["line 2", "its letter", "'1'"],
    ),
    "choices without a key": ("x.csv", "question,answer,choices\na,,Ann|Bob\n", ["line 2", "'answer'", "empty cell"]),
    "a single choice": ("x.csv", "question,answer,choices\na,A,A\n", ["line 2", "'choices'", "from 2 to 26", "got 1"]),
    "too many choices": (
        "x.jsonl",
        json.dumps({"question": "a", "answer": "0", "choices": [*range(27)]}),
        ["line 1", "from 2 to 26", "got 27"],
    ),
    "a choice twice": ("x.csv", "question,answer,choices\na,Ann,Ann|ann|Bob\n", ["line 2", "'choices'", "once"]),
    "an empty choice": ("x.csv", "question,answer,choices\na,Ann,Ann||Bob\n", ["line 2", "'choices'", "none empty"]),
    "choices called like others": ("x.csv", "question,answer,choices\na,A,B|A\n", ["line 2", "choice A reads 'B'"]),
    "choices of another kind": (
        "x.jsonl",
        '{"question": "a", "answer": "A", "choices": 3}',
        ["line 1", "'choices'", "list"],
    ),
    "a pattern that is none": (
        "x.csv",
        "question,answer,pattern\na,A,(\n",
        ["line 2", "'pattern'", "regular expression"],
    ),
    "a pattern of something else": (
        "x.csv",
        "question,answer,pattern\na,Lima,Cuz\n",
        ["line 2", "'pattern'", "'Lima'", "from end to end", "'Cuz'"],
    ),
    "nested context": (
        "x.jsonl",
        '{"question": "a", "answer": "A", "context": {"b": "c"}}',
        ["line 1", "'context'", "text"],
    ),
    "aliases malformed": ("x.csv", "question,answer,aliases\na,A,\"['b']\"\n", ["line 2", "'aliases'", "one|two"]),
    "aliases of another kind": ("x.jsonl", '{"question": "a", "answer": "A", "aliases": 3}', ["line 1", "'aliases'"]),
    "wrong suffix": ("x.ods", "question,answer\na,A\n", [".csv, .jsonl"]),
    "not a workbook": (
        "x.xlsx",
        "question,answer\na,A\n",
        ["read as a workbook", "save it again"],
    ),
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
    with pytest.raises(DatasetError, match=r"'anser' with the answer.*did you mean 'answer'\?"):
        load_dataset("own", data=path, columns={"answer": "anser"})


NOT_WRITABLE = {"NUL": "a\x00b", "lone surrogates": "a\ud800"}


@pytest.mark.parametrize("what", NOT_WRITABLE)
def test_unwritable_id_is_rejected_with_its_line(tmp_path, what):
    """Earlier, an id with NUL vanished from the results, and with one that had a lone surrogate the run never ended."""
    records = [{"id": "1", "question": "a", "answer": "A"}, {"id": NOT_WRITABLE[what], "question": "b", "answer": "B"}]
    path = file(tmp_path, "\n".join(map(json.dumps, records)), "x.jsonl")
    with pytest.raises(DatasetError, match=rf"x.jsonl, line 2, column 'id': expected an id without {what}.*; remove"):
        load_dataset("own", data=path)
    with pytest.raises(DatasetError, match=f"row 2, column 'id': expected an id without {what}"):
        load_dataset("own", data=records)
    with pytest.raises(DatasetError, match=f"mine, question_id: expected an id without {what}"):
        Dataset("mine", (Question(NOT_WRITABLE[what], "?", "!"),), "", "made up", "exact", "none")


def test_lone_surrogates_in_texts_are_replaced_on_reading(tmp_path):
    half = "x\ud83d"
    record = {"question": half, "answer": half, "aliases": [half + "y"], "context": half, "topic": half}
    path = file(tmp_path, json.dumps(record), "x.jsonl")
    for data in (path, [record]):
        (question,) = load_dataset("own", data=data).questions
        whole = "x\ufffd"
        assert (question.text, question.gold, question.context, question.topic) == (whole,) * 4
        assert question.aliases == (whole + "y",)
    text = 'question,answer,aliases\na,A,"[""B\\ud83d""]"\n'
    assert load_dataset("own", data=file(tmp_path, text)).questions[0].aliases == ("B\ufffd",)


@pytest.mark.parametrize("name", ["x.csv", "x.jsonl", "x.parquet"])
def test_a_field_of_ten_megabytes_is_read(tmp_path, name):
    frame, path = pl.DataFrame({"question": ["a" * 10**7, "b"], "answer": ["A", "B"]}), tmp_path / name
    {"x.csv": frame.write_csv, "x.jsonl": frame.write_ndjson, "x.parquet": frame.write_parquet}[name](path)
    assert [len(question.text) for question in load_dataset("own", data=path).questions] == [10**7, 1]


def test_line_endings_and_byte_order_mark_do_not_matter(tmp_path):
    text = "id,question,answer\n1,Who?,Ann\n2,Où?,Rome\n"
    plain = load_dataset("own", data=file(tmp_path, text)).questions
    for other in (
        text.replace("\n", "\r\n"),
        "\ufeff" + text,
        text.replace("\n", "\r"),
        "\ufeff" + text.replace("\n", "\r\n"),
    ):
        assert load_dataset("own", data=file(tmp_path, other)).questions == plain


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16-le", "cp1250"])
@pytest.mark.parametrize("name", ["x.csv", "x.jsonl"])
def test_text_in_another_encoding_is_named_with_its_line_and_what_to_do(tmp_path, name, encoding):
    text = (
        "id,question,answer\n1,Who?,Ann\n2,Ď Où?,Rome\n"
        if encoding == "cp1250"
        else "id,question,answer\n1,a,b\n2,Où,c\n"
    )
    text = text.replace("ù", "ú") if encoding == "cp1250" else text
    text = text.replace("a,b", "ü,b") if encoding == "utf-16-le" else text
    line = 2 if encoding == "utf-16-le" else 3
    with pytest.raises(DatasetError, match=rf"{name}, line {line}: expected text in UTF-8, got .*save it as UTF-8"):
        list(question_reader(file(tmp_path, text, name, encoding)))


@pytest.mark.parametrize("cut", [1, 10, 30])
def test_truncated_json_lines_are_named_with_their_line(tmp_path, cut):
    text = '{"question": "a", "answer": "A"}\n{"question": "b", "answer": "B"}'
    (problem,) = problems(file(tmp_path, text[:-cut], "x.jsonl"))
    assert problem.line == 2


def test_repeated_questions_are_noted_if_ids_come_from_texts(tmp_path):
    data = load_dataset("own", data=file(tmp_path, "question,answer\nWho?,Ann\nWho?,Bob\nWho?,Eve\n"))
    assert data.notes == ("2 questions repeat another; the ids made from the texts end in -2, -3 and so on",)
    assert load_dataset("own", data=file(tmp_path, "id,question,answer\n1,Who?,Ann\n2,Who?,Bob\n")).notes == ()


@pytest.mark.parametrize("limit", [1, 7, 60])
def test_sample_taken_while_reading_equals_sample_of_the_whole(tmp_path, limit):
    path = file(tmp_path, "question,answer\n" + "".join(f"q{n % 50},{n}\n" for n in range(60)))
    whole = load_dataset("own", data=path)
    assert load_dataset("own", data=path, limit=limit, mix_seed=3) == sample(whole, limit, 3)
    with pytest.raises(DatasetError, match=r"from 1 to 60, the questions of 'own/mine', got 61"):
        load_dataset("own", data=path, limit=61)


def test_problems_in_questions_outside_the_sample_are_reported(tmp_path):
    path = file(tmp_path, "question,answer\n" + "".join(f"q{n},{n}\n" for n in range(60)) + "q60,\n")
    with pytest.raises(DatasetError, match="line 62"):
        load_dataset("own", data=path, limit=1)


def test_reading_does_not_keep_all_questions_in_memory(tmp_path):
    path = file(tmp_path, "id,question,answer\n" + "".join(f"{n},{'q' * 2000},{n}\n" for n in range(10_000)))
    tracemalloc.start()
    for _ in question_reader(path):
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 6 * 2**20 < path.stat().st_size


def test_json_lines_objects_may_have_different_columns(tmp_path):
    records = [{"problem": "a", "answer": "A"}, {"problem": "b", "answer": "B", "topic": "t"}]
    path = file(tmp_path, "\n".join(map(json.dumps, records)), "x.jsonl")
    assert [question.topic for question in load_dataset("own", data=path).questions] == [None, "t"]


def test_a_parquet_file_is_read_part_by_part(tmp_path, monkeypatch):
    path, frame = tmp_path / "x.parquet", pl.DataFrame({"question": [f"q{n}" for n in range(25)], "answer": ["A"] * 25})
    frame.write_parquet(path, row_group_size=7)
    whole = load_dataset("own", data=path).questions
    monkeypatch.setattr(tables, "ROWS_OF_PARQUET", 10)
    assert load_dataset("own", data=path).questions == whole
    assert len(whole) == 25
    (problem,) = problems(file(tmp_path, "question,answer\n" + "q,A\n" * 12 + "q,\n"))
    assert problem.line == 14


# --- Questions in memory

RECORDS = [
    {"id": 7, "Problem": " Who? ", "gold": "B", "choices": ["Ann", "Bob"], "context": "Bob was it.", "ok": True},
    {"id": 8, "Problem": "When?", "gold": "A", "choices": ["1804", "1805"], "context": None, "ok": True},
    {"id": 9, "Problem": "Where,\nthen?", "gold": None, "choices": ["Rome", "Ulm"], "context": "", "ok": False},
]
COLUMNS = {"answerable": "ok"}


def dictionaries(records: list[dict]) -> object:
    return records


def generator(records: list[dict]) -> object:
    return (record for record in records)


def of_polars(records: list[dict]) -> object:
    return pl.DataFrame(records)


def of_pandas(records: list[dict]) -> object:
    return pytest.importorskip("pandas").DataFrame(records)


def arrays_of_pandas(records: list[dict]) -> object:
    """A list is an array in a frame that pandas has read from Parquet."""
    numpy = pytest.importorskip("numpy")
    arrays = [{**record, "choices": numpy.array(record["choices"])} for record in records]
    return pytest.importorskip("pandas").DataFrame(arrays)


def of_arrow(records: list[dict]) -> object:
    return pytest.importorskip("pyarrow").Table.from_pylist(records)


FORMS = [dictionaries, generator, of_polars, of_pandas, arrays_of_pandas, of_arrow]


def from_file(tmp_path: Path, records: list[dict]) -> Dataset:
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    return load_dataset("own", data=path, columns=COLUMNS)


@pytest.mark.parametrize("form", FORMS)
def test_every_in_memory_form_gives_the_same_questions_as_a_file(tmp_path, form):
    data = questions_from(form(RECORDS), COLUMNS, name="mine")
    expected = from_file(tmp_path, RECORDS)
    assert data.questions == expected.questions
    assert data.questions_sha256 == data.sha256 == expected.questions_sha256
    assert (data.name, data.default_grader) == ("mine", expected.default_grader)


@pytest.mark.parametrize("form", FORMS)
def test_own_dataset_accepts_in_memory_data(form):
    data = load_dataset("own", data=form(RECORDS), columns=COLUMNS)
    assert data == questions_from(form(RECORDS), COLUMNS)
    assert data.name == "own"


def test_pandas_gaps_and_numpy_numbers_become_python_values():
    pandas, numpy = pytest.importorskip("pandas"), pytest.importorskip("numpy")
    frame = pandas.DataFrame({"question": ["a", "b"], "answer": [1, "x"], "topic": ["t", numpy.nan]}, index=[5, 5])
    first, second = questions_from(frame).questions
    assert (first.gold, first.topic, second.gold, second.topic) == ("1", "t", "x", None)
    typed = pandas.DataFrame({"question": ["a"], "answer": pandas.array([7], dtype="Int64")})
    assert questions_from(typed).questions[0].gold == "7"
    assert questions_from([{"question": "a", "answer": numpy.int64(7), "aliases": ("b", "c")}]).questions[0].gold == "7"


BAD_RECORDS = {
    "empty answer": (
        [{"question": "a", "answer": "A"}, {"question": "b", "answer": ""}],
        "mine, row 2, column 'answer'",
    ),
    "two problems": ([{"question": "a", "answer": ""}, {"question": "", "answer": "B"}], "; and 1 more problem$"),
    "misspelt column": (
        [{"qestion": "a", "answer": "A"}],
        "'question'.*got 'qestion', 'answer'; did you mean 'qestion'",
    ),
    "no row": ([], "at least one question, got none"),
    "a list in a list": (
        [["a", "A"]],
        r"mine, row 1: expected an object .a dictionary. from columns to cells, got \['a', 'A'\]",
    ),
    "one dictionary": ({"question": ["a"]}, "list of dictionaries, one a question, got {'question'"),
    "a number": (3, "expected a data frame, or a list of dictionaries, .*got 3"),
    "nested": ([{"question": {"a": 1}, "answer": "A"}], "mine, row 1, column 'question': expected a single value"),
}


@pytest.mark.parametrize("case", BAD_RECORDS)
def test_unusable_in_memory_questions_are_named_with_their_row(case):
    data, message = BAD_RECORDS[case]
    with pytest.raises(DatasetError, match=message):
        questions_from(data, name="mine")


def test_mix_may_combine_memory_and_file(tmp_path):
    path = tmp_path / "wiki.jsonl"
    path.write_text('{"question": "Who?", "answer": "Ann"}\n')
    mixed = load_dataset("precise_wiki+own", data=[path, pl.DataFrame(RECORDS)], columns=COLUMNS)
    assert [question.topic for question in mixed.questions] == ["precise_wiki", "own"]


def test_a_published_dataset_is_read_from_a_file_only():
    with pytest.raises(DatasetError, match=r"'simpleqa' is read from a file, got .*; choose 'own'"):
        load_dataset("simpleqa", data=[{"question": "a", "answer": "A"}])


ROWS = [{"refused": True, "wrong": 0, "gold": "=1"}, {"refused": None, "wrong": 1, "gold": None}]


@pytest.mark.parametrize("form", [dictionaries, of_polars, of_pandas, of_arrow])
def test_outcome_table_in_memory_is_read_like_a_file(tmp_path, form):
    pl.DataFrame(ROWS).write_ndjson(tmp_path / "table.jsonl")
    expected = read_outcomes(tmp_path / "table.jsonl").drop("question_id")
    assert read_outcomes(form(ROWS)).drop("question_id").equals(expected)


@pytest.mark.parametrize("form", [dictionaries, of_polars, of_pandas, of_arrow])
def test_bad_outcomes_in_memory_are_named_with_their_row(form):
    with pytest.raises(OutcomeTableError, match=r"the table, row 2, column 'wrong': expected true.*got 'x'"):
        read_outcomes(form([{"refused": True, "wrong": "no"}, {"refused": True, "wrong": "x"}]))
    with pytest.raises(OutcomeTableError, match=r"column 'wrong': expected (a single value|single values), got"):
        read_outcomes(form([{"refused": True, "wrong": ["no"]}]))


def test_whole_numbers_of_a_pandas_column_with_gaps_stay_whole():
    """Earlier, 1911 became 1911.0."""
    pd = pytest.importorskip("pandas")
    for topics in ([1911, None, 1913], pd.array([1911, None, 1913], dtype="Int64")):
        frame = pd.DataFrame({"question": ["a", "b", "c"], "answer": ["A", "B", "C"], "topic": topics})
        assert [question.topic for question in questions_from(frame).questions] == ["1911", None, "1913"]
    fractions = pd.DataFrame({"question": ["a", "b"], "answer": [1.5, 2.0], "topic": [0.5, None]})
    assert [(question.gold, question.topic) for question in questions_from(fractions).questions] == [
        ("1.5", "0.5"),
        ("2.0", None),
    ]


def test_two_columns_of_one_name_in_a_frame_are_an_error():
    pd, pa = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    names, cells = ["question", "answer", "answer"], ["Who?", "Ann", "Bob"]
    for frame in (pd.DataFrame([cells], columns=names), pa.table([pa.array([cell]) for cell in cells], names)):
        with pytest.raises(DatasetError, match="answer"):
            questions_from(frame)


def test_one_shot_iterator_is_read_once():
    rows = iter([{"question": "a", "answer": "A"}, {"question": "b", "answer": "B", "topic": "t"}])
    assert [question.topic for question in questions_from(rows).questions] == [None, "t"]


# --- Accepted answers and choices


CHOICES = {"question": "Which?", "choices": ["red", "green", "blue"]}


@pytest.mark.parametrize(
    ("row", "column"),
    [
        ({"answer": ["red", "blue"]}, "answer"),
        ({"answer": ["red", "Blue"]}, "answer"),
        ({"answer": "A", "aliases": ["C"]}, "aliases"),
        ({"answer": "red", "aliases": "crimson|blue"}, "aliases"),
    ],
)
def test_accepted_answer_that_is_another_choice_is_an_error(tmp_path, row, column):
    """Otherwise a reply with that answer could never be graded: it names a wrong choice and a right answer."""
    (problem,) = problems(file(tmp_path, json.dumps({**CHOICES, **row}), "q.jsonl"))
    assert (problem.line, problem.column) == (1, column)
    assert "another choice" in str(problem)
    with pytest.raises(DatasetError, match="another choice"):
        load_dataset("own", data=tmp_path / "q.jsonl")


@pytest.mark.parametrize("row", [{"answer": ["red", "A"]}, {"answer": "A", "aliases": "crimson|scarlet|RED"}])
def test_other_form_of_the_right_choice_is_accepted(tmp_path, row):
    assert problems(file(tmp_path, json.dumps({**CHOICES, **row}), "q.jsonl")) == []


SPREADSHEETS = {
    "semicolons": 'question;answer\n"a;b";A\n"c, d";"e\nf"\n',
    "tabs": 'question\tanswer\na;b\tA\n"c, d"\t"e\nf"\n',
    "commas": 'question,answer\na;b,A\n"c, d","e\nf"\n',
}


@pytest.mark.parametrize("case", SPREADSHEETS)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_property_of_a_file_its_separator_and_byte_order_mark_do_not_change_its_questions(tmp_path, case, encoding):
    data = load_dataset("own", data=file(tmp_path, SPREADSHEETS[case], "x.csv", encoding))
    assert [(question.text, question.gold) for question in data.questions] == [("a;b", "A"), ("c, d", "e\nf")]


@pytest.mark.parametrize(("encoding", "text"), [("latin-1", "Où?"), ("cp1252", "“Where”?")])
def test_text_of_an_old_spreadsheet_names_the_encoding_that_then_reads_it(tmp_path, encoding, text):
    path = file(tmp_path, f"question;answer\n{text};Rome\n", "x.csv", encoding)
    with pytest.raises(DatasetError, match=rf"'{re.escape(text)}' is right, read it with encoding=\"{encoding}\""):
        load_dataset("own", data=path)
    assert load_dataset("own", data=path, encoding=encoding).questions[0].text == text
    with pytest.raises(DatasetError, match="encoding: expected utf-8, latin-1"):
        load_dataset("own", data=path, encoding="rot13")


def test_first_sheet_of_a_workbook_is_read_with_numbers_and_dates_as_text(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (["question", "answer"], ["When?", 1870], [None, None], ["Which day?", date(1999, 5, 1)]):
        book.active.append(row)
    book.save(tmp_path / "x.xlsx")
    data = load_dataset("own", data=tmp_path / "x.xlsx")
    assert [question.gold for question in data.questions] == ["1870", "1999-05-01 00:00:00"]


def test_workbook_that_unpacks_to_more_than_the_limit_is_refused(tmp_path, monkeypatch):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(["question", "answer" * 1000])
    book.save(tmp_path / "x.xlsx")
    monkeypatch.setattr("refusal_index.data.workbooks.MAX_UNPACKED", 1000)
    with pytest.raises(DatasetError, match=r"x\.xlsx cannot be read as a workbook: expected at most 1,000 bytes in "):
        load_dataset("own", data=tmp_path / "x.xlsx")
