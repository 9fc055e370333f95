"""Confidence tables from any source: read, joined with outcomes, written and read back; errors name their place."""

from __future__ import annotations

import json
import math
import pickle
import zipfile
from pathlib import Path

import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.scores import Score, confidence_table
from tests.tiers import reduced_examples

from refusal_index.data.outcome_table import (
    CONFIDENCE_SCHEMA,
    ConfidenceError,
    read_confidence,
    read_outcomes,
    scores_of_outcomes,
)
from refusal_index.data.written_tables import write_table
from refusal_index.plugins.confidence.score_tables import (
    READINGS,
    has_no_range,
    join_outcomes,
    read_score_table,
    reading_of,
    with_scores,
)

HOSTILE = (
    *("=1+1", "+A1", "-2", "@SUM(A1)", "'quoted", "'=1", "\t=1", "\uff1d1", "[bold]b[/a]", "\x1b[31mred", "a\x00b"),
    *("safe\u202egnp", "one\r\ntwo\u2028three", "one\rtwo", 'a,"b";c', "<script>", "nan", "None", "1.0", " spaced "),
)


def read_scores(*arguments: object, **options: object) -> pl.DataFrame:
    return read_score_table(*arguments, **options).scores


FORMATS = ("csv", "csv.gz", "jsonl", "jsonl.gz", "parquet")

# `UQResult.to_df().to_csv(index=False)` of uqlm 0.6.7, with exact_match, min_probability and sequence_probability by
# its own MatchScorer and SingleLogprobsScorer, semantic_negentropy by its normalize_entropy; of the third prompt there
# were no log probabilities.
UQLM = (
    "prompt,response,sampled_responses,logprob,exact_match,min_probability,sequence_probability,semantic_negentropy,"
    "cosine_sim,ensemble_score,judge_1\n"
    "\"Answer briefly.\nWhat is 0 plus 0?\",0,\"['0', '0', '0']\",\"[{'token': 'x', 'logprob': -0.05129329438755058, "
    "'top_logprobs': []}, {'token': 'x', 'logprob': -0.10536051565782628, 'top_logprobs': []}]\",1.0,0.9,"
    "0.9246621004453465,1.0,1.0000001192092896,0.9,1.0\n"
    "\"Answer briefly.\nWhat is 1 plus 1?\",3,\"['2', '3', '2']\",\"[{'token': 'x', 'logprob': -0.6931471805599453, "
    "'top_logprobs': []}]\",0.3333333333333333,0.4,0.4472135954999579,0.5,0.8,0.4,0.0\n"
    "\"Answer briefly.\nWhat is 2 plus 2?\",4,\"['4', '4', 'five']\",,0.6666666666666666,,,0.0,0.9,0.7,\n"
)

# Estimators of lm-polygraph 0.7.0 called on three answers: probabilities of tokens .95 .9, .5 .4 and .8; P(True) .7, .2
# and .6; clusters of three samples of sizes 3, 2 and 2; stated .9, .8 and none.
POLYGRAPH = (
    "question_id,MaximumSequenceProbability,Perplexity,PTrue,LabelProb,MeanTokenEntropy,Verbalized1S\n"
    "q0,0.15665381004537687,0.07832690502268844,0.35667494393873245,0.0,0.15000000000000002,0.09999999999999998\n"
    "q1,1.6094379124341003,0.8047189562170501,1.6094379124341003,0.33333333333333337,1.2999999999999998,"
    "0.19999999999999996\n"
    "q2,0.2231435513142097,0.2231435513142097,0.5108256237659907,0.33333333333333337,0.5,\n"
)


def written(path: Path, text: str) -> Path:
    path.write_text(text, newline="")
    return path


def outcomes(*rows: dict[str, object], **common: object) -> pl.DataFrame:
    return read_outcomes([{"model": "m", "dataset": "d", **common, **row} for row in rows])


def sums(count: int = 3, variant: str | None = "low") -> pl.DataFrame:
    """Return outcomes of sums: the second is answered wrong, the third refused and then right."""
    graded = [("correct", None), ("incorrect", None), ("refused", "correct")]
    return outcomes(
        *(
            {
                "variant": variant,
                "question_id": f"q{n}",
                "question": f"What is {n} plus {n}?",
                "refused": first == "refused",
                "wrong": first == "incorrect",
                "first_grade": first,
                "forced_grade": forced,
            }
            for n, (first, forced) in enumerate(graded[:count])
        )
    )


class TestReading:
    def test_two_columns_are_enough(self, tmp_path):
        table = read_scores(written(tmp_path / "mine.csv", "question_id,confidence\nq1,.25\nq2,1\n"))
        assert table.schema == pl.Schema(CONFIDENCE_SCHEMA)
        assert table.rows() == [
            ("q1", "mine", 0.25, None, None, 0, None, None),
            ("q2", "mine", 1.0, None, None, 0, None, None),
        ]

    def test_all_score_columns_are_read(self):
        row = {"question_id": 7, "method": "x", "confidence": "0.5", "variant": "low", "draw": "2", "pass": "First"}
        assert read_scores([{**row, "fold": 1, "wrong": "no"}]).row(0) == ("7", "x", 0.5, False, "low", 2, "first", 1)

    @pytest.mark.parametrize(
        ("cells", "wrong"),
        [
            ({"wrong": True}, True),
            ({"correct": 1}, False),
            ({"is_correct": "false"}, True),
            ({"grade": "NOT_ATTEMPTED"}, True),
            ({"grade": "unscored"}, None),
            ({"grade": "A"}, False),
            ({"correct": ""}, None),
            ({"correct": True, "wrong": True}, True),
        ],
    )
    def test_whether_the_answer_is_wrong_is_read_from_any_of_three_columns(self, cells, wrong):
        table = read_scores([{"question_id": "q", "confidence": 0.5, **cells}], method="m")
        assert table["wrong"].to_list() == [wrong]

    def test_explicit_column_takes_precedence_over_a_usual_name(self):
        row = {"question_id": "q", "confidence": 0.5, "wrong": "Paris", "ok": True}
        assert read_scores([row], method="m", columns={"correct": "ok"})["wrong"].to_list() == [False]

    @pytest.mark.parametrize("empty", ["", " ", "nan", "NA", "null"])
    def test_empty_score_is_read_as_null(self, tmp_path, empty):
        table = read_scores(written(tmp_path / "s.csv", f"question_id,confidence\nq1,{empty}\nq2,.5\n"))
        assert table["confidence"].to_list() == [None, 0.5]

    def test_score_columns_may_have_any_name(self):
        columns = {"confidence": "score", "question_id": "n"}
        assert read_scores([{"n": 1, "score": 0.5}], method="m", columns=columns)["question_id"].to_list() == ["1"]

    def test_question_text_is_the_id_if_there_is_none(self):
        assert read_scores([{"Prompt": "Why?", "confidence": 0.5}], method="m")["question_id"].to_list() == ["Why?"]

    @pytest.mark.parametrize(
        "frame",
        [
            pl.DataFrame({"question_id": ["a", "b"], "confidence": [0.5, math.nan]}),
            pd.DataFrame({"question_id": ["a", "b"], "confidence": [0.5, None]}),
            pl.DataFrame({"question_id": ["a", "b"], "confidence": [0.5, None]}).to_arrow(),
        ],
        ids=["Polars", "pandas", "Arrow"],
    )
    def test_frames_are_read_like_files(self, frame):
        assert read_scores(frame, method="m")["confidence"].to_list() == [0.5, None]

    @pytest.mark.parametrize(
        "document",
        [
            [{"question_id": "a", "confidence": 0.5}, {"question_id": "b", "confidence": None}],
            {"question_id": ["a", "b"], "confidence": [0.5, None]},
            {"question_id": {"0": "a", "1": "b"}, "confidence": {"0": 0.5, "1": None}},
            {"data": {"question_id": ["a", "b"], "confidence": [0.5, None]}, "metadata": {"n": 2}},
        ],
        ids=["records", "columns", "pandas", "within"],
    )
    def test_json_documents_of_rows_or_columns_are_read(self, tmp_path, document):
        table = read_scores(written(tmp_path / "s.json", json.dumps(document)))
        assert table.select("question_id", "confidence").rows() == [("a", 0.5), ("b", None)]

    def test_lone_surrogates_in_scores_are_replaced(self, tmp_path):
        table = read_scores(written(tmp_path / "s.jsonl", '{"question_id": "cut \\ud83d", "confidence": 0.5}\n'))
        assert table["question_id"].to_list() == ["cut \ufffd"]

    def test_method_argument_renames_scores_of_one_method(self):
        row = {"question_id": "q", "confidence": 0.5, "method": "old"}
        assert read_scores([row], method="new")["method"].to_list() == ["new"]


class TestOtherPackages:
    def test_each_scorer_of_uqlm_becomes_a_method(self, tmp_path):
        read = read_score_table(written(tmp_path / "u.csv", UQLM))
        assert read.left_out == ()
        by_method = {name: group["confidence"].to_list() for (name,), group in read.scores.group_by("method")}
        assert by_method == {
            "exact_match": [1.0, 1 / 3, 2 / 3],
            "min_probability": [0.9, 0.4, None],
            "sequence_probability": [0.9246621004453465, 0.4472135954999579, None],
            "semantic_negentropy": [1.0, 0.5, 0.0],
            "cosine_sim": [1.0, 0.8, 0.9],  # 1.0000001192092896 is 1 in single precision
            "ensemble_score": [0.9, 0.4, 0.7],
            "judge_1": [1.0, 0.0, None],
        }

    @pytest.mark.parametrize("kind", ["records.json", "json", "jsonl", "parquet", "frame"])
    def test_uqlm_is_read_identically_from_every_format(self, tmp_path, kind):
        frame = pd.read_csv(written(tmp_path / "u.csv", UQLM))
        frame["sampled_responses"] = [["a", "b"]] * 3
        path: object = tmp_path / f"v.{kind}"
        match kind:
            case "records.json":
                frame.to_json(path, orient="records", double_precision=15)
            case "json":
                frame.to_json(path, double_precision=15)
            case "jsonl":
                frame.to_json(path, orient="records", lines=True, double_precision=15)
            case "parquet":
                frame.to_parquet(path)
            case _:
                path = frame
        found, expected = read_scores(path), read_scores(tmp_path / "u.csv")
        assert found.drop("confidence").equals(expected.drop("confidence"))
        differences = (found["confidence"] - expected["confidence"]).abs()
        assert found["confidence"].null_count() == expected["confidence"].null_count()
        assert differences.max() < 1e-9

    def test_one_scorer_of_several_is_chosen_by_its_column(self, tmp_path):
        path = written(tmp_path / "u.csv", UQLM)
        table = read_scores(path, method="mine", columns={"confidence": "judge_1"})
        assert table["method"].unique().to_list() == ["mine"]
        with pytest.raises(ConfidenceError, match=r"expected one scorer to name 'mine'.*confidence=NAME"):
            read_scores(path, method="mine")

    def test_lm_polygraph_estimators_are_converted_to_probabilities(self, tmp_path):
        read = read_score_table(written(tmp_path / "p.csv", POLYGRAPH))
        assert read.left_out == ("MeanTokenEntropy",)
        expected = {
            "MaximumSequenceProbability": [0.95 * 0.9, 0.5 * 0.4, 0.8],
            "Perplexity": [math.sqrt(0.95 * 0.9), math.sqrt(0.5 * 0.4), 0.8],  # of that name, and minus its logarithm
            "PTrue": [0.7, 0.2, 0.6],
            "LabelProb": [1, 2 / 3, 2 / 3],
            "Verbalized1S": [0.9, 0.8, None],
        }
        for (name,), group in read.scores.group_by("method"):
            assert group["confidence"].to_list() == pytest.approx(expected.pop(name))
        assert not expected

    def test_lm_polygraph_keys_written_as_text_become_method_names(self):
        row = {"question_id": "q", "('sequence', 'PTrue')": 0.0}
        assert read_scores([row]).select("method", "confidence").rows() == [("PTrue", 1.0)]

    def test_sequence_of_probability_zero_has_score_zero(self):
        assert READINGS["minus_log_probability"](math.inf) == 0

    def test_only_unbounded_uncertainties_raise_with_advice(self):
        with pytest.raises(ConfidenceError, match=r"cannot be converted.*'MeanTokenEntropy'.*calibrate"):
            read_scores([{"question_id": "q", "MeanTokenEntropy": 0.5}])

    @pytest.mark.parametrize("name", ["avg", "max", "score", "logprob", "num_semantic_set", "degree_centrality"])
    def test_ambiguous_columns_are_not_scores(self, name):
        assert reading_of(name) is None

    @pytest.mark.parametrize("name", ["SemanticEntropyUnique (Direct)", "Focus (gamma=0.9)", "EPSrmiabs", "RAUQ"])
    def test_unbounded_estimators_are_recognised(self, name):
        assert has_no_range(name)
        assert reading_of(name) is None

    def test_judge_panel_is_recognised_by_its_judge_columns(self):
        row = {"prompt": "Why?", "judge_1": 1.0, "judge_2": 0.0, "avg": 0.5}
        assert read_scores([row])["method"].to_list() == ["judge_1", "judge_2", "avg"]

    def test_a_pickle_is_never_opened(self, tmp_path):
        path = tmp_path / "ue_manager_seed1"
        path.write_bytes(pickle.dumps(Trap()))
        with pytest.raises(ConfidenceError, match=r"got a pickle.*to_csv"):
            read_scores(path)
        with zipfile.ZipFile(path, "w") as archive:  # as torch.save writes it
            archive.writestr("archive/data.pkl", pickle.dumps(Trap()))
        with pytest.raises(ConfidenceError, match="got a pickle"):
            read_scores(path)


class Trap:
    """An object that fails the test when it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return pytest.fail, ("a pickle was opened",)


ERRORS = {
    "per cent": ("q1,85", r"line 3, column 'confidence': expected a number in \[0, 1\], got '85'; .*per cent"),
    "a log probability": ("q1,-0.7", r"line 3, column 'confidence': .* got '-0.7'; if it is a log probability"),
    "infinity": ("q1,inf", r"line 3, column 'confidence'"),
    "a word": ("q1,high", r"line 3, column 'confidence': .* got 'high'; .*decimal fraction"),
    "a per cent sign": ("q1,85 %", r"line 3, column 'confidence': .* decimal fraction"),
    "no id": (",0.5", r"line 3, column 'question_id': expected an id, got an empty cell"),
    "an unknown pass": ("q1,.5,second", r"line 3, column 'pass': expected one of first, forced, probe.*'second'"),
    "a pass with a slip": ("q1,.5,frist", r"expected one of first, forced, probe"),
    "a draw that is none": ("q1,.5,,-1", r"line 3, column 'draw': expected a whole number from 0, got '-1'"),
    "a mark that is none": ("q1,.5,,,,maybe", r"line 3, column 'wrong': expected true, false.*wrong=NAME"),
    "a fold that is none": ("q1,.5,,,,,x", r"line 3, column 'fold'"),
    "the same row": ("q0,.5", r"line 3: the same score again \(question 'q0', method 'e'\), first at .*line 2; remove"),
}


class TestErrors:
    @pytest.mark.parametrize("kind", ERRORS)
    def test_score_errors_name_file_line_and_column_with_advice(self, tmp_path, kind):
        row, told = ERRORS[kind]
        path = written(tmp_path / "e.csv", f"question_id,confidence,pass,draw,variant,wrong,fold\nq0,.5\n{row}\n")
        with pytest.raises(ConfidenceError, match=told) as caught:
            read_scores(path)
        assert str(caught.value).startswith(str(path))

    @pytest.mark.parametrize(
        ("row", "message"),
        [
            ({"question_id": "q", "confidence": True}, "row 1, column 'confidence'.*got True"),
            ({"question_id": "q", "confidence": [0.5]}, "row 1, column 'confidence'.*decimal fraction"),
            ({"question_id": ["q"], "confidence": 0.5}, "row 1, column 'question_id': expected a single value"),
            ({"question_id": "q", "confidence": 0.5, "method": ""}, "column 'method': expected the name of a method"),
            ({"question": "", "confidence": 0.5}, "column 'question': expected the text of a question"),
            ({"confidence": 0.5}, "expected a column 'question_id', or 'question'"),
            ({"question_id": "q", "Confidance": 0.5}, "did you mean 'Confidance'.*confidence=NAME"),
            ({"question_id": "q", "PTrue": -0.5}, "column 'PTrue': expected the negative of a log probability"),
            ({"question_id": "q", "LabelProb": 2}, r"column 'LabelProb': expected an uncertainty in \[0, 1\]"),
        ],
    )
    def test_score_errors_name_in_memory_rows_by_number(self, row, message):
        with pytest.raises(ConfidenceError, match=message):
            read_scores([row], method=None if {"PTrue", "LabelProb", "method"} & row.keys() else "m")

    def test_scores_in_memory_need_a_name(self):
        with pytest.raises(ConfidenceError, match="expected a name for the scores"):
            read_scores([{"question_id": "q", "confidence": 0.5}])

    def test_one_name_for_several_methods_is_an_error(self):
        rows = [{"question_id": "q", "confidence": 0.5, "method": name} for name in "ab"]
        with pytest.raises(ConfidenceError, match="expected scores of one method to name 'c', got 'a', 'b'"):
            read_scores(rows, method="c")

    def test_unknown_column_role_is_named(self):
        with pytest.raises(
            ConfidenceError, match=r"expected roles out of .*got 'confidance'; did you mean 'confidence'"
        ):
            read_scores([{"question_id": "q", "score": 0.5}], columns={"confidance": "score"})

    def test_absent_score_column_is_named(self):
        with pytest.raises(
            ConfidenceError, match=r"expected a column 'scroe' with the confidence.*did you mean 'score'"
        ):
            read_scores([{"question_id": "q", "score": 0.5}], columns={"confidence": "scroe"})

    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            ("s.xlsx", b"x", "cannot be read as a workbook"),
            ("s.csv", b"question_id,confidence\n", "expected at least one score, got none"),
            ("s.parquet", b"PAR1 broken", "cannot be read as Parquet"),
            ("s.jsonl.gz", b"not gzip", "cannot be unpacked"),
            ("s.json", b"[{", "expected one JSON document"),
            ("s.json", b'{"a": 1}', "expected one list of scores"),
            ("s.json", b'{"a": [1], "b": [1, 2]}', "expected one list of scores"),
            ("s.json", b"[1]", "item 1: expected an object"),
            ("s.jsonl", b'{"question_id": "q", "confidence": 0.5}\n{\n', "line 2: expected one JSON object"),
            ("s.csv", b"question_id;confidence\nq;0,5\n", "expected a number"),
            ("s.csv", b"PK\x03\x04 broken", "cannot be read as a table"),
        ],
    )
    def test_files_that_are_not_score_tables_are_rejected(self, tmp_path, name, content, message):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ConfidenceError, match=message):
            read_scores(tmp_path / name)

    def test_nonexistent_score_file_is_rejected(self, tmp_path):
        with pytest.raises(ConfidenceError, match="there is no such file"):
            read_scores(tmp_path / "absent.csv")


class TestWriting:
    @pytest.mark.parametrize("suffix", FORMATS)
    def test_written_scores_are_read_back_exactly(self, tmp_path, suffix):
        texts = [text for text in HOSTILE if text.strip()]
        table = confidence_table(
            Score(text, text, None if n % 3 == 0 else n / 100, (None, True, False)[n % 3], text, n, of, n)
            for n, text in enumerate(texts)
            for of in (None, "first", "forced", "probe")
        )
        write_table(table, tmp_path / f"t.{suffix}")
        assert read_scores(tmp_path / f"t.{suffix}").equals(table)

    @reduced_examples(0.4)  # each in every format
    @given(
        st.lists(
            st.tuples(st.text(min_size=1).filter(str.strip), st.floats(0, 1) | st.none(), st.booleans() | st.none()),
            min_size=1,
            unique_by=lambda row: row[0],
        )
    )
    def test_scores_round_trip_in_every_format_property(self, tmp_path_factory, rows):
        table = confidence_table(Score(text, text, *scores) for text, *scores in rows)
        folder = tmp_path_factory.mktemp("any")
        for suffix in FORMATS:
            write_table(table, folder / f"t.{suffix}")
            assert read_scores(folder / f"t.{suffix}").equals(table)

    def test_score_csv_cells_are_never_spreadsheet_formulas(self, tmp_path):
        write_table(confidence_table([Score("=1+1", "@m", 0.5, None, "-v")]), tmp_path / "t.csv")
        assert (tmp_path / "t.csv").read_text().splitlines()[1].startswith("'=1+1,'@m,0.5,,'-v,")

    def test_apostrophes_in_foreign_score_files_are_kept(self, tmp_path):
        path = written(tmp_path / "s.csv", "question_id,confidence\n'=1,.5\n")
        assert read_scores(path)["question_id"].to_list() == ["'=1"]

    def test_new_scores_replace_those_of_the_same_method(self, tmp_path):
        before = confidence_table([Score("q", "a", 0.1, None), Score("q", "b", 0.2, None)])
        table = with_scores(before, confidence_table([Score("q", "a", 0.3, None)]))
        assert table.select("method", "confidence").rows() == [("b", 0.2), ("a", 0.3)]
        write_table(table, tmp_path / "confidence.parquet")
        assert read_confidence(tmp_path / "confidence.parquet").equals(table)


def scores(*rows: dict[str, object]) -> pl.DataFrame:
    return read_scores([{"confidence": 0.5, **row} for row in rows], method="m")


class TestJoining:
    def test_scores_without_a_pass_refer_to_the_counted_answer(self):
        joined = join_outcomes(scores(*({"question_id": f"q{n}"} for n in range(3))), sums())
        assert joined.scores["wrong"].to_list() == [False, True, False]
        assert joined.scores["variant"].to_list() == ["low"] * 3

    @pytest.mark.parametrize(
        ("of", "wrong"),
        [("first", [False, True, True]), ("forced", [None, None, False]), ("probe", [None, None, None])],
    )
    def test_scores_of_a_pass_use_the_grade_of_that_pass(self, of, wrong):
        table = scores(*({"question_id": f"q{n}", "pass": of} for n in range(3)))
        assert join_outcomes(table, sums()).scores["wrong"].to_list() == wrong

    @pytest.mark.parametrize(("of", "wrong"), [("first", [True, True, None]), ("forced", [False, None, None])])
    def test_pass_grades_are_derived_from_a_table_without_grades(self, of, wrong):
        rows = [{"refused": True, "wrong": False}, {"refused": False, "wrong": True}, {"refused": None, "wrong": None}]
        table = outcomes(*({"question_id": f"q{n}", **row} for n, row in enumerate(rows)))
        found = join_outcomes(scores(*({"question_id": f"q{n}", "pass": of} for n in range(3))), table)
        assert found.scores["wrong"].to_list() == wrong

    @pytest.mark.parametrize(("grade", "wrong"), [("unscored", None), ("refused", True), ("incorrect", True)])
    def test_unscored_stays_null_and_forced_refusal_is_wrong(self, grade, wrong):
        row = {"question_id": "q", "refused": True, "wrong": wrong, "first_grade": "refused", "forced_grade": grade}
        table = scores({"question_id": "q", "pass": "forced"})
        assert join_outcomes(table, outcomes(row)).scores["wrong"].to_list() == [wrong]

    def test_wrong_given_with_the_scores_is_kept(self):
        row = {"question_id": "q0", "wrong": True}
        strange = ({**row, "draw": 7}, {**row, "variant": "nonexistent"})
        joined = join_outcomes(scores(row, *strange), sums())
        assert joined.scores.select("wrong", "draw").rows() == [(True, 0)]
        assert joined.unknown.height == 2, "of a draw and a variant that the run does not have"

    def test_score_without_a_variant_is_expanded_to_every_variant(self):
        other = sums(variant="high").with_columns(wrong=~pl.col("wrong"), first_grade=None, forced_grade=None)
        joined = join_outcomes(scores({"question_id": "q0"}, {"question_id": "q1"}), pl.concat([sums(), other]))
        assert joined.scores.select("question_id", "variant", "wrong").rows() == [
            *(("q0", "low", False), ("q0", "high", True)),
            *(("q1", "low", True), ("q1", "high", False)),
        ]

    def test_a_forced_answer_is_shared_by_the_variants(self):
        low, high = sums(), sums(variant="high").with_columns(forced_grade=pl.lit("correct", pl.String))
        table = scores(*({"question_id": f"q{n}", "pass": "forced"} for n in range(3)))
        joined = join_outcomes(table, pl.concat([low, high]))
        assert joined.scores.select("variant", "wrong").rows() == [(None, False)] * 3

    def test_score_with_a_variant_joins_only_that_variant(self):
        both = pl.concat([sums(), sums(variant="high").with_columns(wrong=~pl.col("wrong"))])
        joined = join_outcomes(scores({"question_id": "q0", "variant": "high"}), both)
        assert joined.scores.select("variant", "wrong").rows() == [("high", True)]

    @pytest.mark.parametrize(
        "strange", [{"question_id": "q9"}, {"question_id": "q0", "draw": 1}, {"question_id": "q0", "variant": "high"}]
    )
    def test_scores_of_unknown_answers_are_separated(self, strange):
        joined = join_outcomes(scores({"question_id": "q1"}, strange), sums())
        assert joined.scores["question_id"].to_list() == ["q1"]
        assert joined.unknown["question_id"].to_list() == [strange["question_id"]]

    def test_only_unknown_scores_raise_and_show_both_ids(self):
        with pytest.raises(ConfidenceError, match=r"none of 1 scores .*question_id '7'.*question_id is 'q0'.*--column"):
            join_outcomes(scores({"question_id": 7}), sums())

    def test_coverage_counts_scored_questions(self):
        table = scores({"question_id": "q0"}, {"question_id": "q1", "confidence": None})
        coverage = join_outcomes(table, sums()).coverage
        assert coverage.to_dicts() == [{"method": "m", "questions": 1, "empty": 1, "of": 3}]

    @pytest.mark.parametrize(
        "text", ["What is 1 plus 1?", " what is\n1 PLUS 1? ", "Answer briefly.\nWhat is 1 plus 1?\nAnswer:"]
    )
    def test_questions_are_matched_by_text_or_by_a_prompt_containing_it(self, text):
        joined = join_outcomes(scores({"question": text}), sums())
        assert (joined.scores["question_id"].to_list(), joined.by_text) == (["q1"], 1)

    def test_prompt_containing_two_questions_matches_neither(self):
        both = "What is 0 plus 0? What is 1 plus 1?"
        joined = join_outcomes(scores({"question": both}, {"question": "What is 2 plus 2?"}), sums())
        assert joined.scores["question_id"].to_list() == ["q2"]
        assert joined.unknown["question_id"].to_list() == [both]

    def test_longest_of_nested_question_texts_is_matched(self):
        texts = ["Who wrote it?", "Who wrote it? And when?"]
        rows = (
            {"question_id": f"q{n}", "question": text, "refused": False, "wrong": False} for n, text in enumerate(texts)
        )
        joined = join_outcomes(scores({"question": f"Please: {texts[1]}"}), outcomes(*rows))
        assert joined.scores["question_id"].to_list() == ["q1"]

    def test_text_shared_by_two_questions_matches_neither(self):
        rows = ({"question_id": f"q{n}", "question": "Who?", "refused": False, "wrong": False} for n in range(2))
        with pytest.raises(ConfidenceError, match="none of 1 scores"):
            join_outcomes(scores({"question": "Who?"}), outcomes(*rows))

    def test_two_scores_of_the_same_answer_raise(self):
        with pytest.raises(ConfidenceError, match=r"same answer \(question_id 'q0'.*score 2"):
            join_outcomes(scores({"question_id": "q0"}, {"question_id": "q0", "variant": "low"}), sums())

    def test_outcomes_of_several_models_are_an_error(self):
        with pytest.raises(ConfidenceError, match="expected outcomes of one model, got 'm', 'n'"):
            join_outcomes(scores({"question_id": "q0"}), pl.concat([sums(), sums().with_columns(model=pl.lit("n"))]))

    def test_uqlm_scores_join_a_run(self, tmp_path):
        joined = join_outcomes(read_scores(written(tmp_path / "u.csv", UQLM)), sums())
        assert joined.by_text == 3
        assert joined.unknown.is_empty()
        assert [row[:3] for row in joined.coverage.rows()][1] == ("min_probability", 2, 1)


class TestOwnColumns:
    def test_probability_columns_become_scores_of_the_counted_answer(self):
        table = sums().with_columns(p_answering=pl.Series([0.9, None, 0.2]), confidence=pl.Series([0.5, 0.6, 0.7]))
        found = scores_of_outcomes(table)
        assert found.schema == pl.Schema(CONFIDENCE_SCHEMA)
        assert found.filter(method="p-answering").select("question_id", "confidence", "wrong", "variant").rows() == [
            *(("q0", 0.9, False, "low"), ("q1", None, True, "low"), ("q2", 0.2, False, "low"))
        ]
        assert found.filter(method="confidence")["pass"].null_count() == 3

    def test_outcome_table_without_probabilities_has_no_scores(self):
        assert scores_of_outcomes(sums()).is_empty()
        empty = sums().with_columns(confidence=pl.lit(None, pl.Float64))
        assert scores_of_outcomes(empty).schema == pl.Schema(CONFIDENCE_SCHEMA)
        assert scores_of_outcomes(empty).is_empty()
