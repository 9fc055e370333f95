"""The two-pass procedure as pure functions: prompts, reading replies and grading. No clients, no network, no clock."""

# ruff: noqa: I001
# fmt: off
from refusal_index.protocol.grading import (
    GraderError, GraderKind, check_gradable, exact_grade, grade_by_rule, grader_prompt, grader_prompt_hash,
    no_gold_prompt_hash, parse_grade,
)
from refusal_index.protocol.grading import same as same_answer
from refusal_index.protocol.procedure import (
    ASKED_AGAIN, REFUSAL, TWO_PASSES, Completion, Conversation, FirstPassOnly, ForcedPass, Message, Pass,
    PendingRequest, Placement, Procedure, Protocol, Regrading, Reply, Request, Role, Step, TwoPass,
    completions_and_outcomes, completions_to_retire, forced_variant, grade_by, is_auxiliary,
    next_request, next_requests, next_step, outcomes, partial_outcome, request_seed, used_completions,
)
from refusal_index.protocol.prompts import (
    AUXILIARY, FORCED, PromptSet, PromptSetError, load_prompt_set, prompt_set_names,
)
from refusal_index.protocol.replies import (
    StopReason, TokenLogprob, about_tokens, answer_start, check_lengths, read_logprobs, read_reply, write_logprobs,
)

__all__ = [
    "ASKED_AGAIN", "AUXILIARY", "FORCED", "REFUSAL", "TWO_PASSES", "Completion", "Conversation", "FirstPassOnly",
    "ForcedPass", "GraderError", "GraderKind", "Message", "Pass", "PendingRequest", "Placement",
    "Procedure", "PromptSet", "PromptSetError", "Protocol", "Regrading", "Reply", "Request", "Role", "Step",
    "StopReason", "TokenLogprob", "TwoPass", "about_tokens", "answer_start", "check_gradable", "check_lengths",
    "completions_and_outcomes", "completions_to_retire", "exact_grade", "forced_variant",
    "grade_by", "grade_by_rule", "grader_prompt", "grader_prompt_hash", "is_auxiliary", "load_prompt_set",
    "next_request", "next_requests", "next_step", "no_gold_prompt_hash", "outcomes", "parse_grade",
    "partial_outcome", "prompt_set_names", "read_logprobs", "read_reply", "request_seed", "same_answer",
    "used_completions", "write_logprobs",
]
