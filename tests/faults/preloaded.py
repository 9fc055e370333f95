"""What a run imports, for the process that all others are forked from."""

from importlib import import_module

for _name in (
    "openai",
    "refusal_index.engines.inspect.engine",
    "refusal_index.engines.local.engine",
    "refusal_index.evaluation.sweep",
    "refusal_index.report",
    "tests.faults.process",
):
    import_module(_name)
