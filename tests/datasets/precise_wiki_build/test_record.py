"""The frozen file and its record: whole or not there, and never taken for another build's."""

from __future__ import annotations

import hashlib
import json

import pytest

from refusal_index.plugins.wiki.build import (
    BuildError,
    BuildPaths,
    finished_record,
    freeze,
    write_tried,
)
from refusal_index.plugins.wiki.builder import BuildState
from refusal_index.plugins.wiki.questions import Candidate, Reason, Tried
from refusal_index.protocol import Completion, Pass, Reply, Role
from refusal_index.runs.budget import UsageCounter

SETTINGS = {"seed": 0, "writer": {"model": "a/b"}}
ULM = Candidate("pw-1", "Ulm", "Minster", "text", "3", "Towns", "77")
BONN = Candidate("pw-2", "Bonn", "", "text")


@pytest.fixture
def paths(tmp_path):
    return BuildPaths(tmp_path / "wiki.jsonl")


def frozen(paths: BuildPaths) -> dict:
    drawing = BuildState({"3": iter([ULM]), None: iter([BONN])}, 2)
    drawing.next_round()
    drawing.take([Tried(ULM, "How tall? ü", "161.5 m"), Tried(BONN, "Who?", "", Reason.UNANSWERABLE)])
    reply = Reply(Pass.FIRST, Role.MODEL, "<question>How tall?</question>")
    usage = UsageCounter([Completion("pw-1", "writer", 0, reply, input_tokens=10, output_tokens=4, requests=2)])
    return freeze(paths, SETTINGS, drawing, {"writer": usage}, {"versions": {}})


def test_each_line_is_a_question_with_where_it_comes_from(paths):
    frozen(paths)
    (line,) = paths.questions.read_text(encoding="utf-8").splitlines()
    assert json.loads(line) == {
        "question_id": "pw-1",
        "question": "How tall? ü",
        "answer": "161.5 m",
        "title": "Ulm",
        "section": "Minster",
        "difficulty": "3",
        "topic": "Towns",
        "revision": "77",
    }


def test_the_record_holds_checksum_settings_counts_and_wording(paths):
    record = frozen(paths)
    assert record == json.loads(paths.record.read_text(encoding="utf-8"))
    assert record["file"]["sha256"] == hashlib.sha256(paths.questions.read_bytes()).hexdigest()
    assert record["counts"]["rejected"] == {"unanswerable": 1}
    assert record["counts"]["questions_by_difficulty"] == {"3": 1}
    assert record["usage"]["writer"] == {"requests": 2, "input_tokens": 10, "output_tokens": 4}
    assert "quiz questions" in record["prompts"]["question"]


def test_a_finished_build_is_found_again_and_its_file_if_lost_is_not(paths):
    assert finished_record(paths, SETTINGS) is None
    record = frozen(paths)
    assert finished_record(paths, SETTINGS) == record
    paths.questions.unlink()
    assert finished_record(paths, SETTINGS) is None


def test_other_settings_are_named(paths):
    frozen(paths)
    with pytest.raises(BuildError, match=r"seed: 0 before, 1 now.*give another --out"):
        finished_record(paths, {**SETTINGS, "seed": 1})


def test_a_file_that_was_changed_is_told(paths):
    frozen(paths)
    paths.questions.write_text("{}\n")
    with pytest.raises(BuildError, match="has changed since it was written"):
        finished_record(paths, SETTINGS)


def test_a_file_that_no_build_made_is_left_alone(paths):
    paths.questions.write_text("years of work")
    with pytest.raises(BuildError, match="was not made by a build"):
        finished_record(paths, SETTINGS)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"build_format": 1}', '{"build_format": 1, "settings": 3}'])
def test_a_record_that_is_none_is_told(paths, content):
    paths.record.write_text(content)
    with pytest.raises(BuildError, match="not a record of a build"):
        finished_record(paths, SETTINGS)


def test_the_record_of_another_version_is_refused(paths):
    record = {**frozen(paths), "build_format": 2}
    paths.record.write_text(json.dumps(record))
    with pytest.raises(BuildError, match="expected build_format 1, got 2; use the release that wrote it"):
        finished_record(paths, SETTINGS)


def test_what_became_of_each_section_can_be_looked_at(paths):
    paths.folder.mkdir()
    write_tried(paths, [Tried(BONN, reason=Reason.REQUEST_FAILED, detail="400"), Tried(ULM, "Q?", "A")])
    first, second = map(json.loads, paths.sections.read_text().splitlines())
    assert (first["reason"], first["detail"], second["reason"]) == ("request_failed", "400", None)
