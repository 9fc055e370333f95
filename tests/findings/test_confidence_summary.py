"""What scores of confidence come to, and what is recorded of them."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.render.making import HOSTILE, rows
from tests.scores import Score, confidence_table
from tests.studies.made import made_run

from refusal_index.data.analysis import DEFAULT_ANALYSIS, Analysis
from refusal_index.data.files import plain
from refusal_index.data.folder import RunFolder
from refusal_index.data.outcome_table import ConfidenceError
from refusal_index.findings.confidence_record import MethodRecord, read_record, recorded_methods
from refusal_index.findings.run_results import RunResults
from refusal_index.findings.sections import with_sections
from refusal_index.findings.summary import Usage, summarise
from refusal_index.plugins.confidence.scores import write_record
from refusal_index.plugins.confidence.section import confidence_blocks, confidence_screen, measures_blocks
from refusal_index.plugins.confidence.summary import (
    NAME,
    AgainstRefusals,
    Difference,
    MethodSummary,
    compare_confidence,
    shared_caveats,
    summarise_confidence,
    summarise_outcomes,
)
from refusal_index.render.format import to_text
from refusal_index.render.sentences import sentence
from refusal_index.render.summary import summary_document
from refusal_index.stats import ContingencyTable, Estimate, compare_with_refusals, refusal_index

# --- Summaries of confidence scores

N = 400


def answers(table: pl.DataFrame, variant: str) -> dict[str, bool]:
    """Return whether the first draw of each question is wrong."""
    first = table.filter(pl.col("draw") == 0, pl.col("variant") == variant)
    return dict(zip(first["question_id"], first["wrong"], strict=True))


def scored(wrong: Mapping[str, bool], method: str = "likelihood", *, noise: float = 0.3, seed: int = 0) -> list[Score]:
    """Score answers: higher where they are right, more clearly so with less noise."""
    rng = np.random.default_rng(seed)
    given = np.clip(
        0.5 + 0.2 * (1 - 2 * np.array(list(wrong.values()))) + noise * rng.standard_normal(len(wrong)), 0, 1
    )
    return [Score(one, method, round(float(value), 3), wrong[one]) for one, value in zip(wrong, given, strict=True)]


@pytest.fixture(scope="module")
def table() -> pl.DataFrame:
    return rows(N, variants=("low", "normal"))


@pytest.fixture(scope="module")
def scores(table: pl.DataFrame) -> list[Score]:
    return scored(answers(table, "low"))


@pytest.fixture(scope="module")
def summary(table: pl.DataFrame, scores: list[Score]) -> MethodSummary:
    (found,) = summarise_confidence(confidence_table(scores), table)
    return found


def test_confidence_measures_match_direct_counts(summary, scores):
    score = np.array([one.confidence for one in scores])
    right = np.array([not one.wrong for one in scores])
    pairs = [(a > b) + (a == b) / 2 for a, b in itertools.product(score[right], score[~right])]
    assert (summary.questions, summary.asked, summary.right) == (N, N, right.sum())
    assert summary.accuracy == right.mean()
    assert summary.auroc.estimate == pytest.approx(np.mean(pairs), abs=1e-12)
    bins = np.maximum(np.ceil(np.round(score * 10, 9)) - 1, 0)
    gaps = [abs(score[bins == one].mean() - right[bins == one].mean()) for one in np.unique(bins)]
    shares = [np.mean(bins == one) for one in np.unique(bins)]
    assert summary.ece == pytest.approx(np.dot(gaps, shares), abs=1e-12)
    assert summary.rms_calibration_error == pytest.approx(np.dot(np.square(gaps), shares) ** 0.5, abs=1e-12)
    assert summary.brier.estimate == pytest.approx(np.mean((score - right) ** 2), abs=1e-12)
    parts = summary.miscalibration - summary.discrimination + summary.uncertainty
    assert parts == pytest.approx(summary.brier.estimate, abs=1e-12)
    for target, found in summary.targets.items():
        given = score >= float(target)
        price = float(target) / (1 - float(target))
        assert found.estimate == pytest.approx(np.mean(given * np.where(right, 1, -price)), abs=1e-12)


def test_comparison_with_refusals_matches_questions_by_id_per_variant(summary, table, scores):
    shuffled = table.sample(fraction=1, shuffle=True, seed=1)
    (again,) = summarise_confidence(confidence_table(scores[::-1]), shuffled)
    assert [one.variant for one in summary.against] == ["low", "normal"]
    by_id = {score.question_id: score for score in scores}
    for one in summary.against:
        mine = table.filter(variant=one.variant)
        held = [by_id[question] for question in mine["question_id"]]
        direct = compare_with_refusals([s.confidence for s in held], mine["refused"], [s.wrong for s in held])
        assert one.refusal_index.difference.estimate == direct.refusal_index.estimate
        assert one.answered_error_rate.refusals == direct.answered_error_rate.refusals
        assert (one.questions, one.refused) == (N, mine["refused"].sum())
        own = refusal_index(refused=mine["refused"].to_numpy(), wrong=mine["wrong"].to_numpy())
        assert one.refusal_index.refusals == pytest.approx(own.estimate, abs=1e-9)
    assert {one.variant: one for one in again.against}.keys() == {"low", "normal"}
    for one in again.against:
        (same,) = (other for other in summary.against if other.variant == one.variant)
        assert one.refusal_index.score == pytest.approx(same.refusal_index.score, abs=1e-12)


def test_scores_of_a_variant_are_compared_only_with_its_refusals(table):
    held = [replace(one, variant=name) for name in ("low", "normal") for one in scored(answers(table, name))]
    found = summarise_confidence(confidence_table(held), table)
    assert [(one.variant, [each.variant for each in one.against]) for one in found] == [
        ("low", ["low"]),
        ("normal", ["normal"]),
    ]


def test_first_draw_counts_and_passes_are_summarised_separately(table, scores, summary):
    further = [replace(score, draw=1, confidence=0.0) for score in scores]
    probed = [replace(score, of="probe", confidence=1.0) for score in scores]
    forced, probe = summarise_confidence(confidence_table([*further, *scores, *probed]), table)
    assert (forced.scored_pass, probe.scored_pass) == ("forced", "probe")
    assert (forced.auroc, forced.questions) == (summary.auroc, N)
    assert probe.auroc.reason == "all_tied"


def test_answers_without_score_or_grade_are_counted_and_excluded(table, scores):
    held = [replace(one, confidence=None) if place < 7 else one for place, one in enumerate(scores)]
    held = [replace(one, wrong=None) if 7 <= place < 10 else one for place, one in enumerate(held)]
    (found,) = summarise_confidence(confidence_table(held), table)
    (rest,) = summarise_confidence(confidence_table(scores[10:]), table)
    assert (found.questions, found.without_score, found.without_grade) == (N - 10, 7, 3)
    assert found.auroc == rest.auroc
    assert found.against == rest.against
    (caveat,) = found.caveats()
    assert (caveat.code, caveat.values) == ("method_left_out", {"no_score": 7, "replies": N, "no_grade": 3})


@pytest.fixture(scope="module")
def three(table: pl.DataFrame) -> tuple[MethodSummary, ...]:
    """Return the summaries of three methods, the second with the least noise."""
    wrong = answers(table, "low")
    every = [*scored(wrong, "worst", noise=0.9), *scored(wrong, "best", noise=0.2), *scored(wrong, "second", noise=0.4)]
    return summarise_confidence(confidence_table(every), table)


def test_highest_auroc_of_several_has_a_wider_interval_and_a_test_against_the_second(three):
    worst, best, second = three
    assert (worst.highest, second.highest) == (None, None)
    found = best.highest
    assert (found.methods, found.second, found.questions, found.by_prompt) == (3, "second", best.questions, False)
    assert found.auroc.estimate == best.auroc.estimate
    assert found.auroc.low < best.auroc.low
    assert found.auroc.high == best.auroc.high
    assert found.difference.estimate == pytest.approx(best.auroc.estimate - second.auroc.estimate)
    assert (found.pvalue < 0.05) == (found.difference.low > 0)


def test_text_says_which_method_has_the_highest_auroc_of_how_many(three, summary):
    found = three[1].highest
    expected = (
        f"best has the highest AUROC of 3 methods: {found.auroc.estimate:.2f} [{found.auroc.low:.2f}, "
        f"{found.auroc.high:.2f}] allowing for the choice (0.5: chance);"
    )
    lead = f"second is second: difference +{found.difference.estimate:.3f} [{found.difference.low:.3f}, "
    for blocks in (confidence_screen(three), confidence_blocks(three), measures_blocks(three)):
        text = " ".join(to_text(blocks).split())
        assert expected in text
        assert lead in text
    assert "likelihood ranks right answers above wrong ones: AUROC" in to_text(confidence_screen([summary]))
    assert summary.highest is None


def test_text_says_that_two_methods_have_the_same_auroc(table):
    wrong = answers(table, "low")
    (first, second) = summarise_confidence(confidence_table([*scored(wrong, "a"), *scored(wrong, "b")]), table)
    assert (first.highest.second, second.highest) == ("b", None)
    assert first.highest.pvalue == 1
    assert " ".join(map(sentence, first.conclusions())).endswith("answers are right. b has the same AUROC.")


def test_lead_is_on_the_answers_that_both_scored(table):
    wrong = answers(table, "low")
    some = [score for number, score in enumerate(scored(wrong, "some", noise=0.1)) if number % 2]
    (best, _) = summarise_confidence(confidence_table([*some, *scored(wrong, "all")]), table)
    assert best.highest.questions == best.questions == len(some)
    text = " ".join(map(sentence, best.conclusions()))
    assert "that both scored" not in text
    fewer = [score for number, score in enumerate(scored(wrong, "some", noise=0.9)) if number % 2]
    (_, best) = summarise_confidence(confidence_table([*fewer, *scored(wrong, "all")]), table)
    assert (best.questions, best.highest.questions) == (len(wrong), len(fewer))
    assert f"on the {len(fewer)} answers that both scored." in " ".join(map(sentence, best.conclusions()))


def test_method_without_any_score_reports_only_that(table, scores):
    (found,) = summarise_confidence(confidence_table([replace(score, confidence=None) for score in scores]), table)
    assert found.auroc.reason == "no_questions"
    (caveat,) = found.caveats()
    assert (caveat.code, caveat.values) == ("method_left_out", {"no_score": N, "replies": N, "no_grade": 0})
    text = to_text(measures_blocks([found]))
    assert sentence(caveat).removesuffix(".") in text
    assert "refusals under" not in text
    assert {one.verdict for one in found.against} == {"undefined"}
    json.dumps(plain([found]), allow_nan=False)


def _against_refusals(
    low: float | None, high: float | None, reason: str | None = None, *, errors: float = -0.1
) -> AgainstRefusals:
    estimate = None if low is None or high is None else (low + high) / 2
    index = Difference(0.7, 0.3, Estimate(estimate, low, high, reason=reason))
    rates = Difference(0.3, 0.4, Estimate(errors, errors - 0.05, errors + 0.05) if reason is None else Estimate(None))
    verdict = "undefined" if low is None or high is None else "better" if low > 0 else "worse" if high < 0 else None
    return AgainstRefusals("low", 400, 100, 0.5, 0.5, verdict or "not_told_apart", index, rates)


@pytest.mark.parametrize(
    ("found", "words", "conclusion"),
    [
        (
            _against_refusals(0.3, 0.5),
            "finds wrong answers better than the model's refusals under low",
            "the score finds wrong answers better.",
        ),
        (
            _against_refusals(-0.5, -0.3),
            "finds wrong answers less well than the model's refusals under low",
            "the score finds wrong answers less well.",
        ),
        (
            _against_refusals(-0.1, 0.1),
            "finds wrong answers neither significantly better nor worse than the model's refusals under low",
            "the difference is within sampling error.",
        ),
        (
            _against_refusals(None, None, "nobody_refused"),
            "cannot be compared with the model's refusals under low (the model refused none of these questions)",
            "there is no comparison: the model refused none of these questions.",
        ),
        (
            _against_refusals(None, None, "score:zero_cell:answered_wrong"),
            "cannot be compared with the model's refusals under low "
            "(the score leaves no wrong answer, so there is no interval)",
            "there is no comparison: the score leaves no wrong answer, so there is no interval.",
        ),
    ],
)
def test_verdict_sentences_follow_the_interval(summary, found, words, conclusion):
    one = replace(summary, against=(found,))
    assert sentence(one.verdict()) == f"likelihood {words}."
    assert sentence(one.verdict(numbers=True)).startswith(f"likelihood {words}")
    assert sentence(found.in_full("likelihood")).endswith(conclusion)


def test_statements_name_both_differences_with_their_intervals(summary):
    low, high = _against_refusals(0.3, 0.5), replace(_against_refusals(-0.1, 0.1), variant="high")
    method = replace(summary, against=(low, high))
    verdict = method.verdict(numbers=True)
    assert (verdict.code, verdict.values["name"]) == ("score_or_refusals", "likelihood")
    compared = {kind: [under.values["compared"] for under in held] for kind, held in verdict.values["verdicts"]}
    assert compared == {"better": [low], "not_told_apart": [high]}
    text = sentence(verdict)
    assert "under low (RI +0.400 [0.300, 0.500]" in text
    assert "under high (RI +0.000 [-0.100, 0.100]" in text
    assert text.count("-0.100 [-0.150, -0.050]") == 2
    full = low.in_full("likelihood")
    assert (full.code, full.values) == ("refusals_replaced", {"compared": low, "method": "likelihood"})


def test_verdict_can_be_better_worse_or_undefined(table):
    wrong = answers(table, "normal")
    refused = dict(table.filter(variant="normal").select("question_id", "refused").iter_rows())
    rng = np.random.default_rng(0)
    exact = [Score(one, "exact", (0.9 if not bad else 0.1) + rng.uniform(-0.1, 0.1), bad) for one, bad in wrong.items()]
    against = [Score(one, "against", 1 - s.confidence, s.wrong) for one, s in zip(wrong, exact, strict=True)]
    same = [Score(one, "same", 0.1 if refused[one] else 0.9, bad) for one, bad in wrong.items()]
    found = summarise_confidence(confidence_table([*exact, *against, *same]), table.filter(variant="normal"))
    assert {one.method: one.against[0].verdict for one in found} == {
        "exact": "better", "against": "worse", "same": "undefined",
    }  # fmt: skip
    assert "both refuse the same questions" in sentence(found[2].verdict())


def test_error_rates_decide_the_verdict_if_the_index_is_at_its_limit():
    """A score that refuses only wrong answers has an index of 1, without an interval."""
    wrong = {f"q{i}": i < 100 for i in range(300)}
    table = rows(300, variants=("low",)).with_columns(
        refused=pl.Series([i % 6 == 0 for i in range(300)]), wrong=pl.Series(list(wrong.values()))
    )
    (found,) = summarise_confidence(
        confidence_table([Score(one, "s", 0.2 if bad else 0.8, bad) for one, bad in wrong.items()]), table
    )
    (against,) = found.against
    assert against.refusal_index.difference.status == "boundary"
    assert against.answered_error_rate.difference.high < 0
    assert against.verdict == "better"
    assert "(at the boundary, where there is no interval)" in sentence(against.in_full("s"))


def test_cautions_for_few_wrong_answers_partial_scores_and_other_answers(table, scores):
    wrong = answers(table, "low")
    few = [score for score in scores if not score.wrong][:100] + [score for score in scores if score.wrong][:5]
    (found,) = summarise_confidence(confidence_table(few), table)
    assert {caveat.code: caveat.values for caveat in found.caveats()} == {
        "scored_in_part": {"questions": 105, "asked": 400},
        "few_of_a_kind": {"count": 5, "kind": "wrong", "questions": 105},
    }
    others = [replace(one, wrong=False) if place < 40 else one for place, one in enumerate(scores)]
    own, given = (1 - np.mean(list(held)) for held in (wrong.values(), [other.wrong for other in others]))
    (found,) = summarise_confidence(confidence_table(others), table.filter(variant="low"))
    (caveat,) = found.caveats()
    assert caveat.code == "other_answers"
    assert caveat.values == {"variant": "low", "own": pytest.approx(own), "scored": pytest.approx(given)}


def test_trained_methods_are_marked_and_shared_caveats_appear_once(table, scores):
    trained = [replace(score, method=name, fold=1) for name in ("p-ik", "topic") for score in scores]
    found = summarise_confidence(confidence_table([*scores, *trained]), table)
    assert [one.is_trained for one in found] == [False, True, True]
    ((names, sentences),) = shared_caveats(found)
    assert names == ("p-ik", "topic")
    assert sentences.code == "trained"


def test_summary_document_lists_confidence_results_or_an_empty_list(table, scores, summary):
    bare = summarise(table)
    assert summary_document(with_sections(bare, table))["confidence"] == []
    assert "confidence " not in to_text(measures_blocks(with_sections(bare, table).sections[NAME]))
    scored = summarise_outcomes(table.lazy(), confidence_table(scores), DEFAULT_ANALYSIS)
    (document,) = summary_document(replace(bare, sections={NAME: scored}))["confidence"]
    assert document["auroc"]["estimate"] == summary.auroc.estimate
    assert (document["model"], document["dataset"], document["method"]) == ("m", "d", "likelihood")
    assert [one["verdict"] for one in document["against"]] == [one.verdict for one in summary.against]
    json.dumps(document, allow_nan=False)


def test_confidence_column_becomes_a_method_of_each_model(table):
    both = pl.concat([table, rows(N, model="n", variants=("low", "normal"), seed=1)])
    with_column = both.with_columns(confidence=pl.when(pl.col("wrong")).then(0.3).otherwise(0.6))
    found = with_sections(summarise(with_column), with_column).sections[NAME]
    assert [(one.model, one.method, one.variant) for one in found] == [
        (model, "confidence", variant) for model in ("m", "n") for variant in ("low", "normal")
    ]
    assert {one.auroc.estimate for one in found} == {1.0}
    assert "m, d, confidence (low)" in to_text(measures_blocks(found))


def test_hostile_method_names_are_shown_as_plain_text(table, scores):
    held = [replace(score, method=text) for text in (*HOSTILE, "=cmd|' /C calc'!A0") for score in scores]
    output = to_text(confidence_blocks(summarise_confidence(confidence_table(held), table)))
    assert all(character.isprintable() or character == "\n" for character in output)


def _run(table: pl.DataFrame, scores: list[Score]) -> RunResults:
    variants = {name: part for (name,), part in table.group_by("variant", maintain_order=True)}
    return RunResults.of_tables("m", Path("m"), "m", "d", variants, confidence=confidence_table(scores))


def test_two_runs_are_compared_question_by_question(table, scores):
    noisier = scored(answers(table, "low"), noise=0.6, seed=1)
    area, brier = compare_confidence(_run(table, scores), _run(table, noisier))
    for one, name in ((area, "auroc"), (brier, "brier")):
        sides = [getattr(summarise_confidence(confidence_table(held), table)[0], name) for held in (scores, noisier)]
        assert (one.first, one.second) == tuple(side.estimate for side in sides)
        assert one.difference.estimate == one.first - one.second
        assert (one.paired, one.questions) == (True, (N, N))


def test_paired_difference_interval_matches_bootstrap(table, scores):
    noisier = scored(answers(table, "low"), noise=0.35, seed=1)
    found = compare_confidence(_run(table, scores), _run(table, noisier))
    rng = np.random.default_rng(0)
    first, second = (np.array([one.confidence for one in held]) for held in (scores, noisier))
    right = np.array([not score.wrong for score in scores])
    drawn = []
    for _ in range(1000):
        pick = rng.integers(0, N, N)
        areas = [_area(held[pick], right[pick]) for held in (first, second)]
        losses = [np.mean((held[pick] - right[pick]) ** 2) for held in (first, second)]
        drawn.append((areas[0] - areas[1], losses[0] - losses[1]))
    for one, spread in zip(found, np.std(drawn, axis=0), strict=True):
        assert (one.difference.high - one.difference.low) / (2 * 1.96) == pytest.approx(spread, rel=0.1)


def _area(score: np.ndarray, right: np.ndarray) -> float:
    from scipy.stats import rankdata

    ranks, n = rankdata(score), right.sum()
    return (ranks[right].sum() - n * (n + 1) / 2) / (n * (len(right) - n))


def test_runs_that_share_few_questions_are_compared_unpaired_with_both_variances(table, scores):
    other = [replace(one, question_id=f"other {one.question_id}") for one in scored(answers(table, "low"), seed=1)]
    paired = compare_confidence(_run(table, scores), _run(table, scores))
    assert {one.difference.reason for one in paired} == {"constant_difference"}
    area, _ = compare_confidence(_run(table, scores), _run(table, other))
    ours, theirs = (summarise_confidence(confidence_table(held), table)[0].auroc for held in (scores, other))
    assert (area.paired, area.questions) == (False, (N, N))
    widths = [one.high - one.low for one in (ours, theirs)]
    assert area.difference.high - area.difference.low == pytest.approx(np.hypot(*widths), rel=0.02)


def test_only_shared_methods_of_the_requested_variant_are_compared(table, scores):
    of_variants = [replace(score, method="p", variant=name) for name in ("low", "normal") for score in scores]
    ours, theirs = _run(table, [*scores, *of_variants]), _run(table, [*of_variants, *scores[:0]])
    assert {(one.method, one.variant) for one in compare_confidence(ours, theirs)} == {("p", "low"), ("p", "normal")}
    assert {one.variant for one in compare_confidence(ours, theirs, Analysis(variant="low"))} == {"low"}
    assert {one.method for one in compare_confidence(ours, ours, Analysis(variant="low"))} == {"likelihood", "p"}
    assert compare_confidence(ours, replace(theirs, scores=None)) == ()


def test_auroc_difference_is_undefined_if_all_answers_are_right(table, scores):
    right = [score for score in scores if not score.wrong]
    area, brier = compare_confidence(_run(table, right), _run(table, right))
    assert (area.difference.status, area.difference.reason) == ("undefined", "first:all_true;second:all_true")
    assert brier.first == brier.second


def test_index_of_refusals_matches_contingency_table(table, scores, summary):
    mine = table.filter(variant="normal")
    counted = ContingencyTable.from_arrays(mine["refused"].to_numpy(), np.array([score.wrong for score in scores]))
    assert summary.against[1].refusal_index.refusals == pytest.approx(refusal_index(counted).estimate, abs=1e-9)


# --- Records of confidence methods

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


def test_confidence_records_round_trip(folder):
    assert read_record(folder.confidence_record) == ALL


def test_rescoring_replaces_only_records_of_that_method(folder):
    again = dataclasses.replace(LOW, draws=9)
    write_record(folder, [again], {"p-answering"})
    assert read_record(folder.confidence_record) == (LIKELIHOOD, PROBE, again)


def test_imported_scores_remove_the_record_of_the_same_method(folder):
    write_record(folder, (), {"likelihood", "never-recorded"})
    assert {one.method for one in read_record(folder.confidence_record)} == {"p-answering", "p-ik"}


def test_no_record_file_is_written_without_records(tmp_path):
    write_record(RunFolder(tmp_path), (), {"ours"})
    assert not RunFolder(tmp_path).confidence_record.exists()


def test_run_records_are_keyed_by_method_and_variant(folder, tmp_path):
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
def test_tampered_record_is_rejected_and_replaced_on_next_write(folder, place, value):
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
