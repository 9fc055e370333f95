"""What a run imports, for the process that all others are forked from."""

import openai  # noqa: F401

import refusal_index.engines.inspect.engine
import refusal_index.engines.local.engine
import refusal_index.evaluation.sweep
import refusal_index.report
import tests.faults.process  # noqa: F401
