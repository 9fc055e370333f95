"""Requests that remain: exact where certain, otherwise a range that holds what is really sent, nothing twice."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusal_index.data import Outcome, Question
from refusal_index.findings.dry_run import Assumptions, Load, Range, RequestCounts
from refusal_index.protocol import (
    REFUSAL,
    Completion,
    Conversation,
    FirstPassOnly,
    ForcedPass,
    GraderKind,
    Pass,
    Protocol,
    Regrading,
    Reply,
    Request,
    Role,
    TwoPass,
    about_tokens,
    forced_variant,
    load_prompt_set,
    next_requests,
)
from refusal_index.protocol.refusals import RefusalRule
from refusal_index.runs.simulation import count_requests

PROMPTS = load_prompt_set("default")
QUESTIONS = [Question(f"q{number}", f"What is {number} plus {number}?", str(2 * number)) for number in range(10)]
HALF = Assumptions(refusal_share=0.5, reply_tokens=7)
KINDS = (GraderKind.EXACT, GraderKind.MODEL, GraderKind.AGREE)
PROCEDURES = (TwoPass, ForcedPass, FirstPassOnly, Regrading)
ASKS = RefusalRule(by_wording=False, asks_model=True)


def asked(
    grader: GraderKind = GraderKind.EXACT,
    draws: int = 1,
    variants: Sequence[str] = tuple(PROMPTS.variants),
    questions: Sequence[Question] = QUESTIONS,
    kind: type[TwoPass] = TwoPass,
    refusals: RefusalRule | None = None,
) -> list[Conversation]:
    """Return the conversations about questions, those about the same one in succession."""
    procedures = {name: kind(grader, Protocol(PROMPTS, name, grader, refusals=refusals), refusals) for name in variants}
    return [Conversation(question, name, procedures[name], draws) for question in questions for name in variants]


def tokens(request: Request) -> int:
    return sum(about_tokens(message.content) for message in request.messages)


def next_request(one: Conversation, *replies: Reply) -> Request:
    """Return the next request of a conversation with a single draw."""
    step = one.procedure.step(one.question, replies)
    assert not isinstance(step, Outcome)
    return one.procedure.request(step, one.question)


def first_reply(question: Question, variant: str, text: str, draw: int = 0, output_tokens: int = 0) -> Completion:
    reply = Reply(Pass.FIRST, Role.MODEL, text)
    return Completion(question.question_id, variant, draw, reply, output_tokens=output_tokens)


def test_theory_first_passes_are_exact_and_forced_ones_shared_between_variants():
    found = count_requests(asked(), tokens, HALF)
    assert found.first.requests == Range.exactly(4 * 10)
    assert found.forced.requests == Range(0, 5, 10)
    assert found.grading.requests == Range()
    prompts = map(next_request, asked())
    assert found.first.input_tokens == Range.exactly(sum(map(tokens, prompts)))
    assert found.first.output_tokens == Range.exactly(7 * 40)


@pytest.mark.parametrize("share", [0, 0.3, 1])
@pytest.mark.parametrize("refusals", [None, ASKS])
def test_theory_assumed_refusal_share_changes_only_expected_values(share, refusals):
    grader = GraderKind.EXACT if refusals else GraderKind.MODEL
    found = count_requests(asked(grader, refusals=refusals), tokens, replace(HALF, refusal_share=share))
    assert (found.forced.requests.least, found.forced.requests.most) == (0, 10)
    assert found.forced.requests.expected == pytest.approx(10 * share)
    read = 4 * 10 if refusals else 4 * 10 * (1 - share)
    assert found.grading.requests.expected == pytest.approx(read + 10 * share)
    assert found.grading.requests.most == 2 * (40 + 10), "each verdict may be unreadable once"


def test_theory_two_graders_double_the_grading_requests():
    one, two = (count_requests(asked(kind), tokens, HALF).grading for kind in (GraderKind.MODEL, GraderKind.AGREE))
    assert two.requests == one.requests * 2


def test_theory_no_forced_pass_is_counted_for_unanswerable_questions():
    nothing_right = [replace(question, gold=None) for question in QUESTIONS]
    assert count_requests(asked(questions=nothing_right), tokens, HALF).forced.requests == Range()
    drawn = count_requests(asked(questions=nothing_right, draws=5), tokens, HALF)
    assert (drawn.first.requests, drawn.forced.requests) == (Range.exactly(4 * 10 * 5), Range())


@pytest.mark.parametrize(("choices", "requests"), [(1, 12), (5, 3), (12, 1), (100, 1)])
def test_theory_requests_of_repeatedly_sampled_questions_are_exact(choices, requests):
    found = count_requests(asked(draws=12), tokens, replace(HALF, choices=Range.exactly(choices)))
    assert found.first.requests == Range.exactly(4 * 10 * requests)
    assert found.forced.requests == Range.exactly(10 * requests), "shared between variants, whatever is refused"
    assert found.model.output_tokens == Range.exactly(7 * 12 * 10 * 5)


def test_theory_requests_are_a_range_if_the_number_of_choices_is_unknown():
    found = count_requests(asked(variants=["low"], draws=10), tokens, replace(HALF, choices=Range(1, 3, 100)))
    assert found.first.requests == Range(1, 4, 10) * 10


@pytest.mark.parametrize("draws", [1, 3])
@pytest.mark.parametrize("grader", KINDS)
def test_theory_each_procedure_has_the_passes_that_it_asks(grader, draws):
    found = {kind: count_requests(asked(grader, draws, kind=kind), tokens, HALF) for kind in PROCEDURES}
    assert found[FirstPassOnly].first == found[TwoPass].first
    assert found[FirstPassOnly].forced == Load()
    graders = grader.models
    assert found[FirstPassOnly].grading.requests == Range(0, 20, 80) * graders, "of first draws only"
    assert found[ForcedPass].first == Load()
    assert found[ForcedPass].forced.requests == Range.exactly(10 * draws)
    assert found[ForcedPass].grading.requests == Range(0, 10, 20) * (draws * graders)
    assert found[Regrading] == RequestCounts()


@pytest.mark.parametrize("grader", KINDS)
def test_theory_regrading_sends_stored_replies_to_graders_only(grader):
    items = asked(grader, variants=["low"], questions=QUESTIONS[:1], kind=Regrading)
    said = [first_reply(QUESTIONS[0], "low", "<answer>about 0</answer>")]
    found = count_requests(items, tokens, HALF, lambda _one: said)
    assert found.model == Load()
    assert found.grading.requests == Range(1, 1, 2) * grader.models
    assert found.stored == 1


# --- What is really sent


@dataclass
class FakeRun:
    """A run of a model and graders that reply at random: its replies, and the requests sent for them."""

    random: random.Random
    choices: int = 1
    replies: list[Completion] = field(default_factory=list)
    sent: Counter[str] = field(default_factory=Counter)

    def of(self, one: Conversation) -> list[Completion]:
        """Return the stored replies of a conversation."""
        variants = one.variant, forced_variant(one.variant)
        of_question = (reply for reply in self.replies if reply.question_id == one.question.question_id)
        return [reply for reply in of_question if reply.variant in variants]

    def play(self, items: Sequence[Conversation], limit: int = 10**6) -> None:
        """Send requests until none is left, or as many as the limit."""
        for one in items:
            while pending := next_requests(one, self.of(one)):
                for request in pending:
                    n = min(request.n, self.choices)
                    for position in range(0, request.n, n):
                        if not limit:
                            return
                        limit -= 1
                        self.send(one, request.step, request.draw + position, min(n, request.n - position))

    def send(self, one: Conversation, step, draw: int, n: int) -> None:
        request = one.procedure.request(step, one.question)
        kind = str(step.pass_) if step.role is Role.MODEL else "grading"
        self.sent[kind] += 1
        self.sent[f"{kind} input"] += tokens(request)
        variant = forced_variant(one.variant) if step.pass_.is_shared else one.variant
        for offset in range(n):
            reply = Reply(step.pass_, step.role, self.text(step.role))
            requests = int(offset == 0)
            completion = Completion(
                one.question.question_id, variant, draw + offset, reply, step.attempt, requests=requests
            )
            self.replies.append(completion)

    def text(self, role: Role) -> str:
        if role is not Role.MODEL:
            return self.random.choice(["A", "B", "C", "hm"])
        word = self.random.choice(["4", "8", "I cannot say, but perhaps 4", "I do not know"])
        return self.random.choice([f"<answer>{word}</answer>", word, REFUSAL.text, ""])


def assert_inside(found: RequestCounts, sent: Counter[str]) -> None:
    """Assert that what was sent lies in the ranges."""
    parts = {"first": found.first, "forced": found.forced, "grading": found.grading}
    for kind, load in parts.items():
        assert load.requests.least <= sent[kind] <= load.requests.most, kind
        assert load.requests.least <= load.requests.expected <= load.requests.most, kind
    for kind in ("first", "forced"):
        tokens_in = parts[kind].input_tokens
        assert tokens_in.least <= sent[f"{kind} input"] <= tokens_in.most, kind
    assert found.total.requests.least <= sum(sent[kind] for kind in parts) <= found.total.requests.most


@given(
    kind=st.sampled_from(PROCEDURES),
    grader=st.sampled_from((*KINDS, None)),
    draws=st.sampled_from([(1, 1), (3, 3), (1, 3), (4, 2)]),
    choices=st.sampled_from([1, 2, 5]),
    seed=st.integers(0, 2**32),
    before=st.integers(0, 60),
)
def test_property_requests_of_a_fake_run_lie_in_the_ranges_of_every_procedure(
    kind, grader, draws, choices, seed, before
):
    """With earlier replies, several draws and choices, and variants that share forced passes.

    Without a grader, a model is asked which replies attempt an answer.
    """
    refusals = ASKS if grader is None else None
    variants = ("low", "high")
    how = {"variants": variants, "questions": [*QUESTIONS[:3], replace(QUESTIONS[3], gold=None)], "refusals": refusals}
    grader = grader or GraderKind.EXACT
    of_variant = dict(zip(variants, draws, strict=True))

    def conversations(procedure: type[TwoPass]) -> list[Conversation]:
        return [replace(one, draws=of_variant[one.variant]) for one in asked(grader, kind=procedure, **how)]

    run = FakeRun(random.Random(seed), choices)
    items = conversations(kind)
    if kind is Regrading:  # of the replies of an earlier run that a rule graded
        for one in conversations(FirstPassOnly):
            for draw in range(one.draws):
                run.replies.append(first_reply(one.question, one.variant, run.text(Role.MODEL), draw))
    run.play(items, before)
    run.sent.clear()
    left = count_requests(items, tokens, replace(HALF, choices=Range.exactly(choices)), run.of)
    assert left.stored == sum(reply.requests for reply in run.replies)
    run.play(items)
    assert_inside(left, run.sent)
    assert left.first.requests.most == run.sent["first"]
    after = count_requests(items, tokens, HALF, run.of)
    assert after == RequestCounts(stored=sum(reply.requests for reply in run.replies))


@given(seed=st.integers(0, 2**32), kind=st.sampled_from((TwoPass, FirstPassOnly)))
def test_property_requests_are_exact_if_first_replies_are_known_and_a_rule_grades(seed, kind):
    items = asked(kind=kind)
    known = {
        (one.question.question_id, one.variant): first_reply(one.question, one.variant, text, output_tokens=3)
        for one in items
        for text in [FakeRun(random.Random(f"{seed}{one.question.question_id}{one.variant}")).text(Role.MODEL)]
    }
    found = count_requests(items, tokens, HALF, known_replies=known)

    class Foretold(FakeRun):
        def send(self, one: Conversation, step, draw: int, n: int) -> None:
            super().send(one, step, draw, n)
            if step.pass_ is Pass.FIRST:
                self.replies[-1] = known[one.question.question_id, one.variant]

    run = Foretold(random.Random(seed))
    run.play(items)
    assert found.first.requests == Range.exactly(run.sent["first"])
    assert found.forced.requests == Range.exactly(run.sent["forced"])
    assert found.model.input_tokens == Range.exactly(run.sent["first input"] + run.sent["forced input"])
    assert found.first.output_tokens == Range.exactly(3 * 40)


def test_theory_gaps_between_stored_draws_take_requests_of_their_own():
    items = asked(variants=["low"], draws=10, questions=QUESTIONS[:1])
    said = [first_reply(QUESTIONS[0], "low", f"<answer>{draw}</answer>", draw) for draw in (0, 1, 5)]
    found = count_requests(items, tokens, replace(HALF, choices=Range.exactly(4)), lambda _one: said)
    assert found.first.requests == Range.exactly(2), "draws 2 to 4, and 6 to 9"
    assert found.first.output_tokens == Range.exactly(7 * 7)
    assert found.forced.requests == Range.exactly(3)
    assert found.stored == 3


def test_theory_grading_of_identical_known_replies_is_counted_once():
    items = asked(GraderKind.MODEL, 6, ["low"], QUESTIONS[:1])
    said = [first_reply(QUESTIONS[0], "low", "It is 0.", draw) for draw in range(6)]
    found = count_requests(items, tokens, replace(HALF, choices=Range.exactly(6)), lambda _one: said)
    assert found.first.requests == Range()
    assert found.grading.requests == Range(1, 1 + 6, 2 + 2 * 6), "the reply's verdict, and those of six forced answers"


def test_theory_a_known_answer_is_graded_with_its_own_tokens():
    (one,) = asked(GraderKind.MODEL, variants=["low"], questions=QUESTIONS[:1])
    said = first_reply(one.question, "low", f"<answer>{'one ' * 40}</answer>")
    request = next_request(one, said.reply)
    found = count_requests([one], tokens, HALF, lambda _one: [said])
    assert found.grading.input_tokens.least == tokens(request)


def test_theory_forced_tokens_match_the_request_after_a_refusal():
    one = asked(variants=["low"], questions=QUESTIONS[:1])[0]
    forced = next_request(one, REFUSAL)
    found = count_requests([one], tokens, replace(HALF, refusal_share=1))
    assert found.forced.input_tokens == Range(0, tokens(forced), tokens(forced))


def test_theory_known_refusals_are_always_forced_and_answers_never():
    """Even questions are refused under all variants, odd ones under none."""
    known = {
        (one.question.question_id, one.variant): first_reply(
            one.question,
            one.variant,
            f"<answer>{one.question.gold}</answer>" if int(one.question.question_id[1:]) % 2 else REFUSAL.text,
            output_tokens=3,
        )
        for one in asked()
    }
    found = count_requests(asked(), tokens, HALF, known_replies=known)
    assert (found.first.requests, found.forced.requests) == (Range.exactly(40), Range.exactly(5))
    assert found.first.output_tokens == Range.exactly(3 * 40)
    assert found.forced.output_tokens == Range.exactly(7 * 5)
    assert found.first.input_tokens == count_requests(asked(), tokens, HALF).first.input_tokens
    graded = count_requests(asked(GraderKind.MODEL), tokens, HALF, known_replies=known)
    assert graded.grading.requests.least == 4 * 5, "each answer is graded; a forced reply may be empty"
    assert (graded.forced.requests.least, graded.forced.requests.most) == (5, 10), "a grader may call it a refusal"


@pytest.mark.parametrize("refusals", [None, ASKS, RefusalRule()])
def test_theory_answers_to_multiple_choice_are_not_taken_for_unclear_ones(refusals):
    choice = Question("q", "Which is it?", "Ann", choices=("I don't know", "Ann", "Bob"))
    found = count_requests(
        asked(GraderKind.CHOICE, questions=[choice], refusals=refusals), tokens, replace(HALF, refusal_share=0)
    )
    assert found.forced.requests == Range(0, 0, 1)


@pytest.mark.parametrize("grader", KINDS)
@pytest.mark.parametrize("kind", [TwoPass, FirstPassOnly])
def test_property_questions_of_equal_lengths_are_computed_once_and_all_counted(grader, kind):
    questions = [Question(f"q{n}", "Who? " * (1 + n % 3), None if n % 2 else "Ann") for n in range(60)]
    items = asked(grader, questions=questions, kind=kind)
    said = {one.variant: [first_reply(one.question, one.variant, REFUSAL.text)] for one in items[:4]}
    counted = []

    def counting(request: Request) -> int:
        counted.append(request)
        return tokens(request)

    def stored(one: Conversation) -> Sequence[Completion]:
        return said[one.variant] if one.question.question_id in ("q1", "q30") else ()

    found = count_requests(items, counting, HALF, stored, by_length=True)
    n_together = len(counted)
    assert found == count_requests(items, counting, HALF, stored)
    assert n_together < len(counted) / 5
