"""Cost estimates: exact where certain, otherwise a valid range, and nothing is counted twice."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest

from refusal_index.data import Outcome, Question
from refusal_index.protocol import (
    REFUSAL,
    GraderKind,
    Pass,
    Protocol,
    Reply,
    Request,
    Role,
    about_tokens,
    cost,
    load_prompt_set,
    next_request,
)
from refusal_index.protocol.cost import Assumptions, Foreseen, Range, ToAsk, estimate

PROMPTS = load_prompt_set("default")
QUESTIONS = [Question(f"q{number}", f"What is {number} plus {number}?", str(2 * number)) for number in range(10)]
HALF = Assumptions(refusal_share=0.5, reply_tokens=7)
KINDS = (GraderKind.EXACT, GraderKind.MODEL, GraderKind.AGREE)


def asked(
    grader: GraderKind = GraderKind.EXACT,
    draws: int = 1,
    variants: Sequence[str] = tuple(PROMPTS.variants),
    questions: Sequence[Question] = QUESTIONS,
) -> list[ToAsk]:
    return [ToAsk(Protocol(PROMPTS, name, grader), one, draws) for one in questions for name in variants]


def tokens(request: Request) -> int:
    return sum(about_tokens(message.content) for message in request.messages)


def test_first_passes_are_exact_and_forced_ones_shared_between_variants():
    found = estimate(asked(), tokens, HALF)
    assert found.first.requests == Range.exactly(4 * 10)
    assert found.forced.requests == Range(0, 5, 10)
    assert found.grading.requests == Range()
    prompts = [next_request(one.question, (), one.protocol) for one in asked()]
    assert found.first.input_tokens == Range.exactly(sum(map(tokens, prompts)))
    assert found.first.output_tokens == Range.exactly(7 * 40)


@pytest.mark.parametrize("share", [0, 0.3, 1])
def test_assumed_refusal_share_changes_only_expected_values(share):
    found = estimate(asked(GraderKind.MODEL), tokens, replace(HALF, refusal_share=share))
    assert (found.forced.requests.least, found.forced.requests.most) == (0, 10)
    assert found.forced.requests.expected == pytest.approx(10 * share)
    assert found.grading.requests.expected == pytest.approx(4 * 10 * (1 - share) + 10 * share)
    assert found.grading.requests.most == 2 * (40 + 10), "each verdict may be unreadable once"


def test_two_graders_double_the_grading_requests():
    one, two = (estimate(asked(kind), tokens, HALF).grading for kind in (GraderKind.MODEL, GraderKind.AGREE))
    assert two.requests == one.requests * 2


def test_no_forced_pass_is_counted_for_unanswerable_questions():
    nothing_right = [replace(question, gold=None) for question in QUESTIONS]
    assert estimate(asked(questions=nothing_right), tokens, HALF).forced.requests == Range()
    drawn = estimate(asked(questions=nothing_right, draws=5), tokens, HALF)
    assert (drawn.first.requests, drawn.forced.requests) == (Range.exactly(4 * 10 * 5), Range())


@pytest.mark.parametrize(("choices", "requests"), [(1, 12), (5, 3), (12, 1), (100, 1)])
def test_estimate_is_exact_for_repeatedly_sampled_questions(choices, requests):
    found = estimate(asked(draws=12), tokens, replace(HALF, choices=Range.exactly(choices)))
    assert found.first.requests == Range.exactly(4 * 10 * requests)
    assert found.forced.requests == Range.exactly(10 * requests), "shared between variants, whatever is refused"
    assert found.model.output_tokens == Range.exactly(7 * 12 * 10 * 5)


def test_requests_are_a_range_if_the_number_of_choices_is_unknown():
    found = estimate(asked(variants=["low"], draws=10), tokens, replace(HALF, choices=Range(1, 3, 100)))
    assert found.first.requests == Range(1, 4, 10) * 10


class SimulatedRun:
    """A simulated run with random replies: the requests sent and the replies to them."""

    def __init__(self, grader: GraderKind, seed: int) -> None:
        self.random = random.Random(seed)
        self.grader = grader
        self.replies: dict[tuple[object, ...], Reply] = {}

    def key(self, one: ToAsk, request: Request) -> tuple[object, ...]:
        of_variant = one.protocol.variant if request.pass_ is Pass.FIRST else None
        return one.question.question_id, of_variant, request.pass_, request.role, request.attempt

    def reply(self, request: Request) -> Reply:
        if request.role is not Role.MODEL:
            return Reply(request.pass_, request.role, self.random.choice(["A", "B", "C", "hm"]))
        answers = ["<answer>4</answer>", "<answer>UNANSWERED</answer>"]
        return Reply(request.pass_, Role.MODEL, self.random.choice(answers))

    def play(self, items: Sequence[ToAsk]) -> None:
        for one in items:
            said: list[Reply] = []
            while isinstance(request := next_request(one.question, said, one.protocol), Request):
                said.append(self.replies.setdefault(self.key(one, request), self.reply(request)))

    def paid(self, one: ToAsk, request: Request, draw: int, choices: int) -> Sequence[Reply]:
        assert (draw, choices) == (0, 1)
        found = self.replies.get(self.key(one, request))
        return [found] if found else []


def counts(replies: Iterable[tuple[object, ...]]) -> Counter[str]:
    return Counter("grading" if asked is not Role.MODEL else str(of) for _, _, of, asked, _ in replies)


@pytest.mark.parametrize("grader", KINDS)
@pytest.mark.parametrize("seed", range(5))
def test_actual_requests_fall_in_range_and_finished_run_needs_none(grader, seed):
    items, run = asked(grader), SimulatedRun(grader, seed)
    before = estimate(items, tokens, HALF)
    run.play(items)
    sent = counts(run.replies)
    assert before.first.requests == Range.exactly(sent["first"])
    for kind, load in (("forced", before.forced), ("grading", before.grading)):
        assert load.requests.least <= sent[kind] <= load.requests.most, kind
    after = estimate(items, tokens, HALF, run.paid)
    assert after.total.requests == Range()
    assert after.total.input_tokens == Range()


@pytest.mark.parametrize("grader", KINDS)
@pytest.mark.parametrize("seed", range(5))
def test_stored_replies_are_deducted_and_the_rest_falls_in_range(grader, seed):
    items, run = asked(grader), SimulatedRun(grader, seed)
    run.play(items[:17])
    dropped = run.random.sample(list(run.replies), 3)
    for key in dropped:
        del run.replies[key]
    there = set(run.replies)
    left = estimate(items, tokens, HALF, run.paid)
    run.play(items)
    sent = counts(run.replies.keys() - there)
    assert left.first.requests == Range.exactly(sent["first"])
    for kind, load in (("forced", left.forced), ("grading", left.grading)):
        assert load.requests.least <= sent[kind] <= load.requests.most, kind


def test_stored_draws_are_deducted():
    said = [Reply(Pass.FIRST, Role.MODEL, f"<answer>{number}</answer>") for number in range(4)]

    def paid(one: ToAsk, request: Request, draw: int, choices: int) -> Sequence[Reply]:
        if one.question.question_id != "q0" or request.pass_ is not Pass.FIRST:
            return ()
        return said[:choices] if draw == 0 else ()

    items = asked(variants=["low"], draws=10)
    found = estimate(items, tokens, replace(HALF, choices=Range.exactly(4)), paid)
    assert found.first.requests == Range.exactly(9 * 3 + 2), "six draws of q0 are left"
    assert found.forced.requests == Range.exactly(10 * 3)
    assert found.there == 1


def test_grading_of_identical_known_replies_is_counted_once():
    alike = Reply(Pass.FIRST, Role.MODEL, "It is 0.")

    def paid(_one: ToAsk, request: Request, _draw: int, choices: int) -> Sequence[Reply]:
        return [alike] * choices if request.role is Role.MODEL and request.pass_ is Pass.FIRST else ()

    items = asked(GraderKind.MODEL, 6, ["low"], QUESTIONS[:1])
    found = estimate(items, tokens, replace(HALF, choices=Range.exactly(6)), paid)
    assert found.first.requests == Range()
    assert found.grading.requests == Range(1, 1 + 6, 2 + 2 * 6), "the reply's verdict, and those of six forced answers"


def test_forced_tokens_match_the_request_after_a_refusal():
    one = asked(variants=["low"], questions=QUESTIONS[:1])[0]
    forced = next_request(one.question, [REFUSAL], one.protocol)
    assert not isinstance(forced, Outcome)
    found = estimate([one], tokens, replace(HALF, refusal_share=1))
    assert found.forced.input_tokens == Range(0, tokens(forced), tokens(forced))


def test_foreseen_refusals_are_always_forced_and_answers_never():
    """Even questions are refused under all variants, odd ones under none."""

    def foresee(one: ToAsk) -> Foreseen:
        refused = int(one.question.question_id[1:]) % 2 == 0
        answer = Reply(Pass.FIRST, Role.MODEL, f"<answer>{one.question.gold}</answer>")
        return Foreseen(REFUSAL if refused else answer, 3)

    found = estimate(asked(), tokens, HALF, foresee=foresee)
    assert (found.first.requests, found.forced.requests) == (Range.exactly(40), Range.exactly(5))
    assert found.first.output_tokens == Range.exactly(3 * 40)
    assert found.forced.output_tokens == Range.exactly(7 * 5)
    assert found.first.input_tokens == estimate(asked(), tokens, HALF).first.input_tokens
    graded = estimate(asked(GraderKind.MODEL), tokens, HALF, foresee=foresee)
    assert graded.grading.requests.least >= 4 * 5, "each answer is graded"
    assert (graded.forced.requests.least, graded.forced.requests.most) == (5, 10), "a grader may call it a refusal"


def test_foresee_is_not_called_for_stored_replies_or_repeated_draws():
    def never(_one: ToAsk) -> Foreseen:
        raise AssertionError

    reply = Reply(Pass.FIRST, Role.MODEL, "<answer>2</answer>")
    paid = estimate(asked(), tokens, HALF, lambda *_: [reply], never)
    assert (paid.first.requests, paid.there) == (Range(), 40)
    drawn = estimate(asked(draws=3), tokens, HALF, foresee=never)
    assert drawn.first.requests == Range.exactly(3 * 40)


@pytest.mark.parametrize("most", [1, 3, 1000])
@pytest.mark.parametrize("grader", KINDS)
def test_alike_questions_are_computed_once_and_all_counted(monkeypatch, grader, most):
    monkeypatch.setattr(cost, "MAX_KINDS", most)
    questions = [Question(f"q{n}", "Who? " * (1 + n % 3), None if n % 2 else "Ann") for n in range(60)]
    items, counted = asked(grader, questions=questions), []

    def counting(request: Request) -> int:
        counted.append(request)
        return tokens(request)

    def alike(one: ToAsk) -> object:
        if one.question.question_id in ("q1", "q30"):
            return None
        return one.protocol.variant, len(one.question.text), one.question.gold

    found = estimate(items, counting, HALF, alike=alike)
    together = len(counted)
    assert found == estimate(items, counting, HALF)
    assert most < 1000 or together < len(counted) / 5
