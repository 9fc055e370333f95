"""The settings as typed keyword arguments; written by ``python docs/make_settings.py``, not by hand."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

from refusal_index.models.settings import ReasoningEffort


class SettingArguments(TypedDict, total=False):
    """The settings of `refusal_index.runs.settings`, which describes them, as typed keyword arguments."""

    grader_prompt: str | Path | None
    refusal: str | re.Pattern[str] | Callable[[str], bool] | None
    reasoning: str | None
    log_to: str | Sequence[str]
    seed: int
    base_url: str | None
    api_key_env: str | None
    grader_base_url: str | None
    grader_api_key_env: str | None
    data: str | Path | Sequence[str | Path]
    column: Mapping[str, str] | str | Sequence[str]
    encoding: str
    limit: int | None
    prompts: str
    variants: str | Sequence[str]
    placement: Literal["user", "system"]
    think: str
    draws: int | None
    answered_only: bool
    repeat_questions: int | None
    temperature: float
    top_p: float
    max_tokens: int
    reasoning_effort: ReasoningEffort | None
    engine: str
    max_connections: int | None
    max_retries: int
    attempt_timeout: int
    max_choices: int
    logprobs: bool
    retry: str | Sequence[str]
    detach: bool
    command: str | None
    ray_address: str | None
    engine_option: Mapping[str, str] | str | Sequence[str]
    header: Mapping[str, str] | str | Sequence[str]
    extra_body: Mapping[str, Any] | str | None
    model_args: Mapping[str, Any] | str | Sequence[str]
    max_requests: int | None
    max_cost: float | None
    max_time: float | None
    half_width: float | None
    looks: int
    price: str | None
    grader_price: str | None
    batch_rate: float | None
    weighted_score_p: float
    truthfulness_weights: str
    assume_refusal: float | None
    reply_tokens: int | None
    seconds_per_request: float
