"""What scores rest on, written beside them and read again, and nothing else taken for it."""

from __future__ import annotations

import dataclasses
import json

import pytest
from tests.studies.made import made_run

from refusal_index.data.folder import RunFolder
from refusal_index.data.outcome_table import ConfidenceError
from refusal_index.findings.confidence_record import MethodRecord, read_record, recorded_methods
from refusal_index.findings.summary import Usage
from refusal_index.plugins.confidence.scores import write_record

LIKELIHOOD = MethodRecord(
    "likelihood", None, 9, 9, Usage(900, 50, 9, 0.5), 4, 1.25, 1, 0, is_of_model=True, needs=("log probabilities",)
)
LOW = dataclasses.replace(LIKELIHOOD, method="p-answering", variant="low", usage=Usage(1, 2, 3), seconds=None)
PROBE = dataclasses.replace(
    LIKELIHOOD,
    method="p-ik",
    training_examples=9,
    n_folds=5,
    seed=3,
    grouped_by="topic",
    groups=7,
    states=9,
    state_size=192,
    layer=2,
    versions={"scikit-learn": "1.9"},
)
ALL = (LIKELIHOOD, LOW, dataclasses.replace(LOW, variant="high"), PROBE)


@pytest.fixture
def folder(tmp_path):
    made = RunFolder(tmp_path)
    write_record(made, ALL, {one.method for one in ALL})
    return made


def test_records_are_read_as_they_were_written(folder):
    assert read_record(folder.confidence_record) == ALL


def test_methods_that_score_again_replace_their_records_and_leave_the_others(folder):
    again = dataclasses.replace(LOW, draws=9)
    write_record(folder, [again], {"p-answering"})
    assert read_record(folder.confidence_record) == (LIKELIHOOD, PROBE, again)


def test_scores_from_elsewhere_take_the_record_of_their_namesake_away(folder):
    write_record(folder, (), {"likelihood", "never-recorded"})
    assert {one.method for one in read_record(folder.confidence_record)} == {"p-answering", "p-ik"}


def test_nothing_to_record_makes_no_file(tmp_path):
    write_record(RunFolder(tmp_path), (), {"ours"})
    assert not RunFolder(tmp_path).confidence_record.exists()


def test_runs_know_their_records_by_method_and_variant(folder, tmp_path):
    run = dataclasses.replace(made_run(n=9), source=tmp_path)
    assert recorded_methods(run)["p-answering", "low"] == LOW
    assert recorded_methods(made_run(n=9)) == {}
    folder.confidence_record.write_text("{")
    assert recorded_methods(run) == {}


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("record_version",), 2),
        (("methods",), 3),
        (("methods", "likelihood"), [{}]),
        (("methods", "likelihood", 0, "questions"), "nine"),
        (("methods", "likelihood", 0, "questions"), -1),
        (("methods", "likelihood", 0, "is_of_model"), 1),
        (("methods", "likelihood", 0, "needs"), "states"),
        (("methods", "likelihood", 0, "seconds"), "1 s"),
        (("methods", "likelihood", 0, "versions"), ["1.9"]),
        (("methods", "likelihood", 0, "usage", "requests"), "9"),
        (("methods", "likelihood", 0, "surprise"), 1),
    ],
)
def test_what_was_tampered_with_is_named_and_gives_way_to_what_is_measured(folder, place, value):
    path = folder.confidence_record
    document = json.loads(path.read_text())
    part = document
    for step in place[:-1]:
        part = part[step]
    part[place[-1]] = value
    path.write_text(json.dumps(document))
    with pytest.raises(ConfidenceError, match=r"confidence\.json cannot be read .*; remove it, and run the methods"):
        read_record(path)
    write_record(folder, [LIKELIHOOD], {"likelihood"})
    assert read_record(path) == (LIKELIHOOD,)
