"""The scripted server, under the name that the engine tests use."""

from tests.faults.api import FakeApi, Fault, completion, question_of
from tests.faults.plan import is_forced, is_grading, plain_verdict

__all__ = ["FakeApi", "Fault", "completion", "is_forced", "is_grading", "plain_verdict", "question_of"]
