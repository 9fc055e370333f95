"""The two-pass procedure as pure functions: prompts, reading a reply, grading rules. No client, no file, no clock."""

from refusal_index.protocol.conversation import (
    ASKED_AGAIN,
    Conversation,
    Due,
    due,
    finished,
    finished_draws,
    kept_unscored,
    outcomes,
    so_far,
    taken,
)
from refusal_index.protocol.exact import exact_grade
from refusal_index.protocol.exact import same as same_answer
from refusal_index.protocol.graders import GraderError, GraderKind, check_gradable, grade_by_rule
from refusal_index.protocol.grading import grader_prompt, grader_prompt_hash, no_gold_prompt_hash, parse_grade
from refusal_index.protocol.lengths import PromptLengthError, about_tokens, check_lengths
from refusal_index.protocol.logprobs import TokenLogprob, read_logprobs, write_logprobs
from refusal_index.protocol.probing import Probing
from refusal_index.protocol.procedure import next_request, next_step, verdict_of
from refusal_index.protocol.procedures import REFUSAL, ForcedPass, Procedure, Regrading, TwoPass
from refusal_index.protocol.prompts import FORCED, PromptSet, PromptSetError, load_prompt_set, prompt_set_names
from refusal_index.protocol.records import (
    TWO_PASSES,
    Asked,
    Completion,
    Message,
    Pass,
    Placement,
    Protocol,
    Reply,
    Request,
    Step,
)
from refusal_index.protocol.replies import Reading, StopReason, answer_start, read_reply
from refusal_index.protocol.seeds import request_seed

__all__ = [
    "ASKED_AGAIN",
    "FORCED",
    "REFUSAL",
    "TWO_PASSES",
    "Asked",
    "Completion",
    "Conversation",
    "Due",
    "ForcedPass",
    "GraderError",
    "GraderKind",
    "Message",
    "Pass",
    "Placement",
    "Probing",
    "Procedure",
    "PromptLengthError",
    "PromptSet",
    "PromptSetError",
    "Protocol",
    "Reading",
    "Regrading",
    "Reply",
    "Request",
    "Step",
    "StopReason",
    "TokenLogprob",
    "TwoPass",
    "about_tokens",
    "answer_start",
    "check_gradable",
    "check_lengths",
    "due",
    "exact_grade",
    "finished",
    "finished_draws",
    "grade_by_rule",
    "grader_prompt",
    "grader_prompt_hash",
    "kept_unscored",
    "load_prompt_set",
    "next_request",
    "next_step",
    "no_gold_prompt_hash",
    "outcomes",
    "parse_grade",
    "prompt_set_names",
    "read_logprobs",
    "read_reply",
    "request_seed",
    "same_answer",
    "so_far",
    "taken",
    "verdict_of",
    "write_logprobs",
]
