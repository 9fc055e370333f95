"""The two-pass procedure as pure functions: prompts, reading replies and grading. No clients, no network, no clock."""

from refusal_index.protocol.comparison import same as same_answer
from refusal_index.protocol.conversation import (
    ASKED_AGAIN,
    Conversation,
    PendingRequest,
    completions_and_outcomes,
    completions_to_retire,
    next_requests,
    outcomes,
    partial_outcome,
    used_completions,
)
from refusal_index.protocol.final_answer import answer_start
from refusal_index.protocol.grader_model import parse_grade
from refusal_index.protocol.grader_prompt import GraderPrompt, default_grader_prompt, load_grader_prompt
from refusal_index.protocol.grading import GraderError, GraderKind, check_gradable, exact_grade, grade_by_rule
from refusal_index.protocol.logprobs import TokenLogprob, read_logprobs, write_logprobs
from refusal_index.protocol.messages import (
    TWO_PASSES,
    Completion,
    Message,
    Pass,
    Placement,
    Reply,
    Request,
    Role,
    forced_variant,
    is_auxiliary,
    request_seed,
)
from refusal_index.protocol.procedure import REFUSAL, FirstPassOnly, ForcedPass, Procedure, Protocol, Regrading, TwoPass
from refusal_index.protocol.prompt_length import about_tokens, check_lengths
from refusal_index.protocol.prompts import (
    AUXILIARY,
    FORCED,
    PromptSet,
    PromptSetError,
    load_prompt_set,
    prompt_set_names,
)
from refusal_index.protocol.reading import StopReason, read_reply
from refusal_index.protocol.steps import Step, grade_by, next_step

__all__ = [
    "ASKED_AGAIN",
    "AUXILIARY",
    "FORCED",
    "REFUSAL",
    "TWO_PASSES",
    "Completion",
    "Conversation",
    "FirstPassOnly",
    "ForcedPass",
    "GraderError",
    "GraderKind",
    "GraderPrompt",
    "Message",
    "Pass",
    "PendingRequest",
    "Placement",
    "Procedure",
    "PromptSet",
    "PromptSetError",
    "Protocol",
    "Regrading",
    "Reply",
    "Request",
    "Role",
    "Step",
    "StopReason",
    "TokenLogprob",
    "TwoPass",
    "about_tokens",
    "answer_start",
    "check_gradable",
    "check_lengths",
    "completions_and_outcomes",
    "completions_to_retire",
    "default_grader_prompt",
    "exact_grade",
    "forced_variant",
    "grade_by",
    "grade_by_rule",
    "is_auxiliary",
    "load_grader_prompt",
    "load_prompt_set",
    "next_requests",
    "next_step",
    "outcomes",
    "parse_grade",
    "partial_outcome",
    "prompt_set_names",
    "read_logprobs",
    "read_reply",
    "request_seed",
    "same_answer",
    "used_completions",
    "write_logprobs",
]
