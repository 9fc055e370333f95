"""What folders of earlier releases hold: replies in Inspect's logs and in its cache, taken over into the store once.

That cache is a folder of pickles, which may hold anything when a folder comes from a stranger. Here they are read by a
reader that admits the plain types of Inspect's outputs and nothing else. Inspect names a reply in its cache by all that
was asked, so it is Inspect that is asked, for models that cannot answer: what comes back was there.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO, NoReturn

from inspect_ai.log import EvalLog, EvalSample, read_eval_log
from inspect_ai.model import CachePolicy, GenerateConfig, Model
from inspect_ai.model import _cache as inspect_cache

from refusal_index.engines.completions import CARRIED, from_metadata
from refusal_index.engines.engine import Ask, Assignment, ModelError, Response, ask_for, completed
from refusal_index.engines.functions import is_function_name
from refusal_index.engines.inspect.error_messages import error_line
from refusal_index.engines.inspect.models import resolve_model, to_config
from refusal_index.engines.inspect.multi_choice import choices_of
from refusal_index.engines.inspect.samples import to_question
from refusal_index.engines.inspect.session import chat_messages
from refusal_index.engines.store import ReplyStore
from refusal_index.errors import RefusalIndexError
from refusal_index.outcomes.folder import RunFolder
from refusal_index.protocol import Asked, Completion, Conversation, due

CACHE = CachePolicy(expiry=None, per_epoch=False)
LATE_ADDRESS = frozenset({"vllm", "sglang"})
"""Providers that start a server, or find it, with the first request."""

ADMITTED = {
    "inspect_ai.model._model_output": {
        "ModelOutput",
        "ModelUsage",
        "ChatCompletionChoice",
        "Logprobs",
        "Logprob",
        "TopLogprob",
        "StopCategory",
    },
    "inspect_ai.model._chat_message": {"ChatMessageAssistant"},
    "inspect_ai._util.content": {"ContentText", "ContentReasoning", "ContentData"},
    "datetime": {"datetime", "timezone", "timedelta"},
}
"""All that a reply in Inspect's cache is made of."""

UNREAD_FIELDS = {"events", "messages", "attachments", "output", "store", "timelines"}
REGRADED = "regraded"
"""Marks the header of a log whose replies were taken from another run."""

NOT_ANSWERED = "not_answered"
"""Names, in a sample of a regraded log, what had kept the question from being answered."""


class LogError(RefusalIndexError, ValueError):
    """A log that cannot be read; the message names the file."""


class NotThereError(Exception):
    """A request that was not answered before."""


class _PlainUnpickler(pickle.Unpickler):
    """Reads the plain types of Inspect's outputs."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a type that is admitted, and refuse anything else."""
        if name not in ADMITTED.get(module, ()):
            raise pickle.UnpicklingError(f"{module}.{name} is no part of a reply")
        return super().find_class(module, name)


def _load_plain(file: BinaryIO) -> Any:
    return _PlainUnpickler(file).load()


@contextmanager
def reading_cache(cache: Path) -> Iterator[None]:
    """Let Inspect look into a cache, which it reads as plain data, and show nothing."""
    before = os.environ.get("INSPECT_CACHE_DIR")
    os.environ["INSPECT_CACHE_DIR"] = str(cache.resolve())
    pickles = vars(inspect_cache)["pickle"]
    vars(inspect_cache)["pickle"] = SimpleNamespace(load=_load_plain, dump=_refuse)
    try:
        yield
    finally:
        vars(inspect_cache)["pickle"] = pickles
        if before is None:
            del os.environ["INSPECT_CACHE_DIR"]
        else:
            os.environ["INSPECT_CACHE_DIR"] = before


def _refuse(*_args: Any, **_kwargs: Any) -> NoReturn:
    raise NotThereError


async def _not_there(*_args: Any, **_kwargs: Any) -> NoReturn:
    raise NotThereError


def has_cache(folder: RunFolder) -> bool:
    """Whether a folder has a cache of an earlier release."""
    return folder.cache.is_dir() and any(folder.cache.iterdir())


async def take_over_cache(assignment: Assignment, models: Mapping[Asked, Model]) -> None:
    """Put what the cache of an earlier release has for an assignment into its store.

    Parameters
    ----------
    assignment
        What is to be asked, and its folder.
    models
        Whom it is asked of; they answer nothing meanwhile. The replies of one that learns its address with the first
        request cannot be found, since nobody knows yet under what name they lie.
    """
    folder = assignment.folder
    if folder is None or not has_cache(folder):
        return
    answering = {asked: model.api.generate for asked, model in models.items()}
    try:
        for model in models.values():
            setattr(model.api, "generate", _not_there)  # noqa: B010 - a plain assignment is an error to the type checker
        with reading_cache(folder.cache):
            for conversation in assignment.conversations:
                await _take_over(conversation, assignment, models)
    finally:
        for asked, model in models.items():
            setattr(model.api, "generate", answering[asked])  # noqa: B010


async def look_into_cache(assignment: Assignment, names: Mapping[Asked, str]) -> None:
    """Do the same for a dry run, whose models are only named.

    Raises
    ------
    ModelError
        If one of the models cannot be asked: without its key or its address nobody knows under what name replies lie.
    """
    late = [name for name in names.values() if name.partition("/")[0] in LATE_ADDRESS]
    if late:
        raise ModelError(f"replies lie under the address of their server, which {late[0]} has only once it runs")
    models = {asked: resolve_model(name) for asked, name in names.items() if not is_function_name(name)}
    async with AsyncExitStack() as stack:
        for model in models.values():
            await stack.enter_async_context(model)
        await take_over_cache(assignment, models)


async def _take_over(conversation: Conversation, assignment: Assignment, models: Mapping[Asked, Model]) -> None:
    store, question_id, found = assignment.store, conversation.question.question_id, True
    while found:
        found = False
        for one in due(conversation, store.said(question_id, conversation.variant)):
            ask = ask_for(assignment.settings, conversation, one)
            if ask.request.asked not in models:
                continue  # a function, which no earlier release asked
            # draws that were asked for together lie together
            for choices in range(ask.choices, 0, -1):
                response = await _look_up(models[ask.request.asked], replace(ask, choices=choices))
                if response is not None:
                    store.put(completed(replace(ask, choices=choices), response))
                    found = True
                    break


async def _look_up(model: Model, ask: Ask) -> Response | None:
    """Return the response to a request that the cache has; None where it has none."""
    config = to_config(ask.decoding) if ask.decoding else GenerateConfig()
    config = config.merge(GenerateConfig(seed=ask.seed, num_choices=ask.choices if ask.choices > 1 else None))
    try:
        output = await model.generate(chat_messages(ask.request), config=config, cache=CACHE)
    except NotThereError:
        return None
    usage = output.usage
    return Response(choices_of(output), usage.input_tokens if usage else 0, usage.output_tokens if usage else 0)


def _read_log(path: Path, **how: Any) -> EvalLog:
    """Read a log in a thread of its own: where a loop runs, Inspect would patch asyncio for the rest of the process."""
    with ThreadPoolExecutor(1) as reader:
        return reader.submit(read_eval_log, str(path), **how).result()


def read_header(path: Path) -> EvalLog:
    """Return the header of a log, without its samples.

    Raises
    ------
    LogError
        If the file is not a complete log.
    """
    try:
        return _read_log(path, header_only=True)
    except Exception as error:  # Inspect raises whatever its zip and JSON readers raise
        raise LogError(f"{path}: not a readable Inspect log ({type(error).__name__}: {error})") from error


def finished_logs(folder: RunFolder) -> dict[str, Path]:
    """Return the newest log of each variant that was run to its end."""
    logs: dict[str, Path] = {}
    for path in sorted(folder.logs.glob("*.eval")):  # names begin with the time
        try:
            header = read_header(path)
        except LogError:  # a kill left it torn
            continue
        variant = (header.eval.metadata or {}).get("variant")
        if header.status == "success" and isinstance(variant, str):
            logs[variant] = path
    return logs


def take_over_logs(folder: RunFolder, store: ReplyStore) -> None:
    """Put what the logs of finished variants hold into a store."""
    for variant, path in finished_logs(folder).items():
        log = _read_log(path, exclude_fields=UNREAD_FIELDS)
        samples = log.samples or []
        regraded = bool((log.eval.metadata or {}).get(REGRADED))
        questions = [_question(sample) for sample in samples]
        store.ask(
            variant,
            {
                question: int(sample.metadata.get("draws", 1))
                for question, sample in zip(questions, samples, strict=True)
            },
        )
        store.put([one for sample in samples for one in _completions(sample, variant, regraded=regraded)])
        for sample in samples:
            if sample.error or CARRIED not in sample.metadata:
                store.fail(variant, str(sample.id), _reason(sample))


def _completions(sample: EvalSample, variant: str, *, regraded: bool) -> Iterator[Completion]:
    """Yield what a sample holds; what was graded anew belongs to its variant, also in the forced pass."""
    found = from_metadata(sample.metadata.get(CARRIED) or (), str(sample.id), variant, sample.epoch - 1)
    for one in found:
        yield replace(one, variant=variant) if regraded and one.reply.asked is Asked.MODEL else one


def _question(sample: EvalSample) -> Any:
    gold = sample.target if isinstance(sample.target, str) else sample.target[0]
    return to_question(sample.id, str(sample.input), gold, sample.metadata)


def _reason(sample: EvalSample) -> str:
    if sample.error:
        return error_line(sample.error.message)
    before = sample.metadata.get(NOT_ANSWERED)
    return (
        f"not answered in the run that is graded anew: {before}"
        if before
        else "the question ended before the protocol did"
    )
