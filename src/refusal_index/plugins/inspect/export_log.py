"""``export --to inspect``: write a run as logs for ``inspect view``, one for each prompt variant.

A sample of a log is one draw of a question, with the messages of its first pass and, if there was one, its forced pass.
The sample's metadata holds its row of the outcome table, from which `import` restores the table.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
from inspect_ai.event import Event, ModelEvent
from inspect_ai.log import (
    EvalConfig,
    EvalDataset,
    EvalError,
    EvalLog,
    EvalMetric,
    EvalResults,
    EvalSample,
    EvalScore,
    EvalSpec,
    EvalStats,
    write_eval_log,
)
from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageUser,
    GenerateConfig,
    Logprob,
    Logprobs,
    ModelConfig,
    ModelOutput,
    ModelUsage,
    TopLogprob,
)
from inspect_ai.model import StopReason as InspectStopReason
from inspect_ai.scorer import Score

from refusal_index.data.files import replacing
from refusal_index.data.outcome import NOT_FINISHED, REQUEST_FAILED, Question
from refusal_index.data.run_json import decoding_sent
from refusal_index.findings.run_results import RunResults
from refusal_index.models.functions import is_function_name
from refusal_index.models.settings import Decoding
from refusal_index.plugins.inspect.client import chat_messages
from refusal_index.plugins.inspect.outcomes import OUTCOME
from refusal_index.protocol import (
    FORCED,
    TWO_PASSES,
    Completion,
    GraderKind,
    Pass,
    Placement,
    PromptSet,
    Protocol,
    Role,
    Step,
    StopReason,
    TokenLogprob,
    TwoPass,
    load_prompt_set,
    prompt_set_names,
    read_logprobs,
    used_completions,
)
from refusal_index.redaction import redacted, redacted_in
from refusal_index.runs.made_with import grader_before, grader_prompt_before
from refusal_index.runs.results import each_conversation, procedure_of
from refusal_index.runs.store import open_store

SUFFIX = ""  # a folder
SCORER = "refusal_index"
NO_MODEL = "none/none"
STOP_REASONS: Mapping[StopReason, InspectStopReason] = {
    StopReason.STOP: "stop",
    StopReason.ANSWER: "stop",
    StopReason.LENGTH: "max_tokens",
    StopReason.CONTENT_FILTER: "content_filter",
    StopReason.TOOL_CALL: "tool_calls",
    StopReason.REFUSAL: "content_filter",  # as Inspect reads a provider's own mark of a refusal
    StopReason.UNKNOWN: "unknown",
}
UNSAFE = re.compile(r"[^A-Za-z0-9.-]+")
UNSAFE_ID = re.compile(r"[\x00-\x1f\x7f\\]|(?:^|/)\.\.?(?:/|$)|^/")
"""Characters that are not allowed in a sample's id, which becomes the name of a file in the log."""

Row = Mapping[str, Any]


def export(runs: Sequence[RunResults], out: Path) -> list[str]:
    """Write a log for each variant of each run into a folder, and return a line that describes each log.

    - `runs`: the runs, in the form that all exporters receive.
    """
    out.mkdir(parents=True, exist_ok=True)
    lines = []
    for run in runs:
        of_variants = run.metrics.filter(pl.col("n").is_not_null())  # without joint estimates
        for metrics in of_variants.partition_by("variant", maintain_order=True):
            log = eval_log(run, metrics.to_dicts())
            parts = (
                UNSAFE.sub("-", part).strip("-.")[:80] for part in (log.eval.task, log.eval.model, log.eval.eval_id)
            )
            path = out / f"{'_'.join(parts)}.eval"
            with replacing(path) as temporary:
                write_eval_log(log, str(temporary.absolute()), format="eval")
            lines.append(f"{path}: {len(log.samples or ()):,} samples")
    return lines


def eval_log(run: RunResults, metrics: Sequence[Row]) -> EvalLog:
    """Return the log of one variant of a run, given its rows of `run.metrics`.

    The status of an incomplete log is ``cancelled`` if questions are pending, and ``error`` otherwise.
    """
    variant = metrics[0]["variant"]
    lacks = metrics[0]["lacks"]
    rows = [row for row in run.outcomes.iter_rows(named=True) if (row["variant"] or variant) == variant]
    # the table of a run that was killed may not hold all samples
    planned = max(len(rows), metrics[0]["asked"] + metrics[0]["further_asked"])
    begun = _written(run.folder.run_json if run.is_in_folder else run.source)
    ended = _written(run.folder.outcomes if run.is_in_folder else run.source)
    spec = _spec(run, variant, lacks, rows, begun)
    builder = _SampleBuilder(run, rows, spec.eval_id, begun)
    samples = [builder.sample(row) for row in rows]
    ended_early = planned > len(rows) or any(row["unscored_reason"] == NOT_FINISHED for row in rows)
    return EvalLog(
        status="success" if not lacks else "cancelled" if ended_early else "error",
        eval=spec,
        results=_results(run, metrics, rows, planned),
        stats=EvalStats(
            started_at=begun.isoformat(),
            completed_at=ended.isoformat(),
            model_usage=_total_usage(item for sample in samples for item in sample.model_usage.items()),
        ),
        error=_error(f"incomplete: {lacks}") if lacks else None,
        samples=samples,
    )


def _written(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)


def _spec(run: RunResults, variant: str, lacks: str | None, rows: Sequence[Row], begun: datetime) -> EvalSpec:
    settings = run.settings
    about = run.about
    arguments = {
        name: settings[name] for name in ("placement", "think", "seed", "grader", "prompts") if name in settings
    }
    digest = _digest(run.key, variant)
    metadata = {"settings": settings, "about": about, "variant": variant, "incomplete": lacks}
    return EvalSpec(
        eval_id=digest,
        task_id=digest,
        run_id=run.key,
        created=begun.isoformat(),
        task=f"{run.dataset or 'questions'}-{variant}",
        task_version=settings.get("comparability_version", 0),
        task_args={"variant": variant, **arguments},
        tags=["refusal-index", *(["incomplete"] if lacks else [])],
        dataset=EvalDataset(
            name=run.dataset,
            location=(about.get("dataset") or {}).get("source"),
            samples=len({row["question_id"] for row in rows}),
            sample_ids=[*dict.fromkeys(_sample_id(row["question_id"]) for row in rows)],
            shuffled=False,
        ),
        model=run.model or NO_MODEL,
        model_generate_config=_decoding(settings, about),
        model_roles={
            str(role): ModelConfig(model=name) for role, name in _names(settings).items() if role is not Role.MODEL
        },
        config=EvalConfig(epochs=max((row["draw"] for row in rows), default=0) + 1),
        packages=about.get("versions") or {},
        metadata={name: value for name, value in metadata.items() if value},
    )


def _results(run: RunResults, metrics: Sequence[Row], rows: Sequence[Row], planned: int) -> EvalResults:
    """Return the metrics of the summary; undefined metrics are left out, with their reasons in the metadata."""
    shown: dict[str, EvalMetric] = {}
    # Inspect's list of logs shows the first metric
    for row in sorted(metrics, key=lambda row: row["metric"] != "refusal_index"):
        metadata = {
            "status": row["status"],
            "reason": row["reason"],
            "level": run.document["confidence_level"],
            "method": row["method"],
        }
        for end, suffix in (("estimate", ""), ("low", "/low"), ("high", "/high")):
            if row[end] is not None:
                name = f"{row['metric']}{suffix}"
                shown[name] = EvalMetric(name=name, value=row[end], metadata=metadata)
    scored = sum(row["refused"] is not None and row["wrong"] is not None for row in rows)
    variant = metrics[0]["variant"]
    parts = [part for part in run.document["variants"] if (part["variant"] or variant) == variant]
    return EvalResults(
        total_samples=planned,
        completed_samples=sum(row["unscored_reason"] not in (NOT_FINISHED, REQUEST_FAILED) for row in rows),
        scores=[
            EvalScore(
                name=SCORER,
                scorer=SCORER,
                scored_samples=scored,
                unscored_samples=len(rows) - scored,
                metrics=shown,
                metadata={
                    "undefined": {
                        row["metric"]: row["reason"] or row["status"] for row in metrics if row["estimate"] is None
                    }
                },
            )
        ],
        metadata={"summary": parts[0] if parts else None, "pooled": run.document.get("pooled")},
    )


class _SampleBuilder:
    """Builds the samples of one variant of a run from its outcome table and its reply store."""

    def __init__(self, run: RunResults, rows: Sequence[Row], eval_id: str, begun: datetime) -> None:
        self._settings = run.settings
        self._about = run.about
        self._eval_id = eval_id
        self._begun = begun
        self._names = _names(run.settings)
        self._model = run.model or NO_MODEL
        self._decoding = _decoding(run.settings, run.about)
        self._prompts = _prompts(run.settings)
        self._grader_prompt = grader_prompt_before(run.settings, run.about, run.path)
        self._variant = str(rows[0]["variant"]) if rows else ""
        self._is_imported = "first_pass" in run.settings
        self._stored = _stored(run, FORCED if self._is_imported else self._variant)

    def sample(self, row: Row) -> EvalSample:
        """Return the sample of a row of the outcome table."""
        question_id = str(row["question_id"])
        draw = int(row["draw"])
        is_separate = (
            self._is_imported and draw > 0
        )  # the draws of an imported question are separate questions in the store
        stored = self._stored.get(f"{question_id} (draw {draw + 1})" if is_separate else question_id)
        question, completions, error = stored or (Question(question_id, row["question"] or "", row["gold"]), [], None)
        completions = [completion for completion in completions if is_separate or completion.draw == draw]
        input_messages = self._messages(Pass.FIRST, question) if stored and not self._is_imported else None
        messages: list[ChatMessage] = []
        outputs: dict[Pass, ModelOutput] = {}
        events: list[Event] = []
        for pass_ in TWO_PASSES:
            own_completions = [completion for completion in completions if completion.reply.pass_ is pass_]
            own_completions.sort(key=lambda completion: (tuple(Role).index(completion.reply.role), completion.attempt))
            reply = next((completion for completion in own_completions if completion.reply.role is Role.MODEL), None)
            text = row[f"{pass_}_reply"] if reply is None else reply.reply.text
            if text is None:
                continue
            sent = None if reply is None else self._messages(pass_, question)
            output = ModelOutput.from_content(self._model, text) if reply is None else self._output(reply)
            outputs[pass_] = output
            messages += [*(sent or [ChatMessageUser(content=question.text)]), output.message]
            for completion in own_completions:
                if completion.reply.role is Role.MODEL:
                    events.append(self._event(completion, sent or [], output))
                elif reply is not None:
                    answer = procedure_of(self._settings).read(question, reply.reply).answer
                    by_function = is_function_name(self._names.get(completion.reply.role, ""))
                    judged = answer if by_function else self._grader_prompt.message(question, answer)
                    graded = [ChatMessageUser(content=judged)]
                    events.append(self._event(completion, graded, self._output(completion)))
        seconds = [completion.seconds for completion in completions if completion.seconds is not None]
        usages = [(completion.reply.role, _usage(completion)) for completion in completions]
        failed = row["unscored_reason"] == REQUEST_FAILED
        sample = EvalSample(
            id=_sample_id(question_id),
            epoch=draw + 1,
            input=input_messages or question.text,
            choices=list(question.choices) or None,
            target=[question.gold or "", *question.aliases] if question.aliases else question.gold or "",
            messages=messages,
            output=outputs.get(Pass.FIRST, ModelOutput(model=self._model)),
            scores=_scores(row),
            metadata=_metadata(row, question),
            events=events,
            model_usage=_total_usage((self._names.get(role, NO_MODEL), usage) for role, usage in usages),
            role_usage=_total_usage((str(role), usage) for role, usage in usages if role is not Role.MODEL),
            total_time=sum(seconds) if seconds else None,
            uuid=_digest(self._eval_id, question_id, str(draw)),
            error=_error(error or REQUEST_FAILED) if failed else None,
        )
        text = sample.model_dump_json()
        return sample if redacted(text) == text else EvalSample.model_validate(redacted_in(sample.model_dump()))

    def _messages(self, pass_: Pass, question: Question) -> list[ChatMessage] | None:
        """Return the messages to the model in a pass; None if they cannot be derived from the run's folder."""
        placement = Placement(self._settings.get("placement") or "user")
        think = self._settings.get("think") or ""
        if self._prompts is not None:
            variants = self._prompts.variants
            variant = self._variant if self._variant in variants else next(iter(variants))
            wording = Protocol(self._prompts, variant, GraderKind.EXACT, placement, think)
            return chat_messages(TwoPass(GraderKind.EXACT, wording).request(Step(pass_, Role.MODEL), question))
        text = (self._about.get("prompt_set") or {}).get(FORCED if pass_ is Pass.FORCED else self._variant)
        if not text or placement is not Placement.USER or question.context is not None or question.choices:
            return None  # for a custom prompt set, run.json holds only the text around a plain question
        prompt = text.replace("{question}", question.text)
        return [ChatMessageUser(content=f"{prompt}\n\n{think}" if think else prompt)]

    def _output(self, completion: Completion) -> ModelOutput:
        name = self._names.get(completion.reply.role, NO_MODEL)
        tokens = read_logprobs(completion.logprobs)
        choice = ChatCompletionChoice(
            message=ChatMessageAssistant(content=completion.reply.text, model=name, source="generate"),
            stop_reason=STOP_REASONS[completion.reply.stop_reason],
            logprobs=None if tokens is None else Logprobs(content=[*map(_logprob, tokens)]),
        )
        return ModelOutput(model=name, choices=[choice], usage=_usage(completion), time=completion.seconds)

    def _event(self, completion: Completion, messages: Sequence[ChatMessage], output: ModelOutput) -> ModelEvent:
        is_model = completion.reply.role is Role.MODEL
        metadata = {
            "pass": str(completion.reply.pass_),
            "requests": completion.requests,
            "request_sha256": completion.request_sha256,
        }
        return ModelEvent(
            model=self._names.get(completion.reply.role, NO_MODEL),
            role=None if is_model else str(completion.reply.role),
            input=list(messages),
            tools=[],
            tool_choice="none",
            config=self._decoding if is_model else GenerateConfig(),
            output=output,
            timestamp=self._begun,
            working_start=0.0,
            working_time=completion.seconds,
            metadata=metadata | ({"in_batch": True} if completion.in_batch else {}),
        )


def _stored(run: RunResults, variant: str) -> dict[str, tuple[Question, list[Completion], str | None]]:
    """Return each question's stored replies under a variant, and its last error."""
    if not run.is_in_folder or not run.folder.replies.exists():
        return {}
    with open_store(run.folder, made=False) as store:
        return {
            conversation.question.question_id: (
                conversation.question,
                used_completions(conversation, completions),
                error,
            )
            for conversation, completions, error in each_conversation(store, [variant], procedure_of(run.settings))
        }


def _scores(row: Row) -> dict[str, Score]:
    """Return scores for the grade of the first pass, whether the model refused, and whether it is wrong."""
    metadata = {name: row[name] for name in ("forced_grade", "unscored_reason") if row[name] is not None}
    values = {"grade": row["first_grade"], "refused": row["refused"], "wrong": row["wrong"]}
    return {
        name: Score(value=value, answer=row["first_reply"], metadata=metadata)
        for name, value in values.items()
        if value is not None
    }


def _metadata(row: Row, question: Question) -> dict[str, Any]:
    optional = {"topic": question.topic, "context": question.context, "pattern": question.pattern}
    return {
        **{name: value for name, value in optional.items() if value is not None},
        **({} if row["unscored_reason"] is None else {"unscored_reason": row["unscored_reason"]}),
        OUTCOME: {name: value for name, value in row.items() if value is not None},
    }


def _sample_id(question_id: str) -> str:
    return _digest(question_id) if UNSAFE_ID.search(question_id) else question_id


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode(errors="replace")).hexdigest()[:22]


def _error(message: str) -> EvalError:
    return EvalError(message=message, traceback=message, traceback_ansi=message)


def _logprob(token: TokenLogprob) -> Logprob:
    likeliest = [TopLogprob(token=text, logprob=logprob) for text, logprob in token.alternatives]
    return Logprob(token=token.token, logprob=token.logprob, top_logprobs=likeliest or None)


def _usage(completion: Completion) -> ModelUsage | None:
    """Return the token counts of a completion; None if the provider reported none."""
    input_tokens = completion.input_tokens
    output_tokens = completion.output_tokens
    if not input_tokens and not output_tokens:
        return None
    return ModelUsage(input_tokens=input_tokens, output_tokens=output_tokens, total_tokens=input_tokens + output_tokens)


def _total_usage(pairs: Iterable[tuple[str, ModelUsage | None]]) -> dict[str, ModelUsage]:
    """Sum usage by name."""
    total: dict[str, ModelUsage] = {}
    for name, usage in pairs:
        if usage is not None:
            total[name] = total[name] + usage if name in total else usage
    return total


def _decoding(settings: Mapping[str, Any], about: Mapping[str, Any]) -> GenerateConfig:
    decoding = decoding_sent(settings, about)
    return GenerateConfig(**{field.name: decoding.get(field.name) for field in fields(Decoding)})


def _names(settings: Mapping[str, Any]) -> dict[Role, str]:
    """Return the names of the models and functions that received requests, by role; leaves out grading rules."""
    _, graders = grader_before(settings)
    names = zip(Role, (settings.get("model"), *graders), strict=False)
    return {role: name for role, name in names if name}


def _prompts(settings: Mapping[str, Any]) -> PromptSet | None:
    """Return the prompt set of a run; None if it was loaded from a file or has changed since."""
    recorded = settings.get("prompts") or {}
    if recorded.get("name") not in prompt_set_names():
        return None
    prompts = load_prompt_set(recorded["name"])
    return prompts if prompts.hash == recorded.get("sha256") else None
