"""What a run imports, for the process that all others are forked from; what others' packages import late, too."""

from contextlib import suppress
from importlib import import_module

for _name in (
    "refusal_index.cli.evaluation",
    "refusal_index.cli.runs",
    "refusal_index.runs.execute",
    "refusal_index.plugins.inspect.client",
    "refusal_index.plugins.batches.provider_executor",
    "refusal_index.runs.dry_run",
    "refusal_index.runs.sweep",
    "refusal_index.render.report",
    "tests.faults.process",
):
    import_module(_name)

for _name in (
    "IPython.display",
    "anyio._backends._asyncio",
    "httpcore",
    "httpcore2",
    "inspect_ai.agent._acp.server",
    "inspect_ai.hooks._startup",
    "inspect_ai.model._openai_responses",
    "inspect_ai.model._providers.together",
    "markdown_it",
    "openai.resources.batches",
    "openai.resources.chat",
    "openai.resources.files",
    "polars._utils.parquet",
):
    with suppress(ImportError):
        import_module(_name)
