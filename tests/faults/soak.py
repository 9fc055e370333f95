"""A soak: many requests at many connections, a twentieth of which meet with a fault of some kind."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import polars as pl

from tests.faults import kinds
from tests.faults.plan import Fault
from tests.faults.scenario import Engine, Scenario, Step
from tests.faults.scenario_run import Stage, message_of, paid_for, staged
from tests.faults.world import planted

CONNECTIONS = 500
SHARE = 0.05
OF_ALL_KINDS = (
    kinds.RATE_LIMIT,
    kinds.RATE_LIMIT_WITH_WAIT,
    kinds.SERVER_ERROR,
    kinds.OVERLOADED,
    kinds.HTML,
    kinds.HTML_AS_JSON,
    kinds.TRUNCATED_JSON,
    kinds.NO_CHOICES,
    kinds.NULL_CONTENT,
    kinds.ERROR_BODY,
    kinds.dropped_connection,
    kinds.cut_connection,
    kinds.hanging(60),
    kinds.slow(0.5),
)
MARKS = (1 / 3, 2 / 3, 0.95)
LOOK = 0.1  # seconds between looks at the memory
REQUESTS_A_QUESTION = 1.5  # half of the questions are refused
PATIENCE = ("--draws", "1", "--max-connections", str(CONNECTIONS), "--attempt-timeout", "20", "--max-retries", "8")


@dataclass(frozen=True)
class Soaked:
    """What came of it.

    Attributes
    ----------
    engine, requests, status, message
        Who carried how many requests that were answered well, and how the command ended.
    faults, repeated, wrong
        Requests that met with a fault, that were paid for twice, and questions whose outcome is another than scripted.
    seconds, megabytes
        How long it took, and memory held when the `MARKS` of the requests were answered.
    """

    engine: str
    requests: int
    status: int | None
    message: str
    faults: int
    repeated: int
    wrong: int
    seconds: float
    megabytes: tuple[float, ...]

    @property
    def growth(self) -> float:
        """Kilobytes by which the memory grew with each request between the first and the last of the marks."""
        return 1000 * (self.megabytes[-1] - self.megabytes[0]) / ((MARKS[-1] - MARKS[0]) * max(1, self.requests))


def soak(engine: Engine, requests: int) -> Soaked:
    """Run about this many requests with an engine."""
    questions = max(1, round(requests / REQUESTS_A_QUESTION))
    scenario = Scenario("", "soak", (), options=PATIENCE, questions=questions, limit=600 + requests / 20)
    faults = tuple(Fault(deed, share=SHARE / len(OF_ALL_KINDS), seed=seed) for seed, deed in enumerate(OF_ALL_KINDS))
    with staged(scenario, engine) as stage, _watched(stage, requests) as memory:
        ended = stage.play(Step(faults))
        paid = paid_for(stage.api)
        return Soaked(
            engine.name,
            paid.total(),
            ended.status,
            message_of(ended),
            stage.api.received.total() - paid.total(),
            paid.total() - len(paid),
            _wrong(stage),
            ended.seconds,
            tuple(memory[done] for done in sorted(memory)),
        )


@contextmanager
def _watched(stage: Stage, requests: int) -> Iterator[dict[float, float]]:
    """Take down the memory that is held when shares of the requests are answered: summing up takes more."""
    found: dict[float, float] = {}
    over = threading.Event()

    def look() -> None:
        while not over.wait(LOOK):
            share = len(stage.api.answered) / requests
            for mark in MARKS:
                if share >= mark and mark not in found:
                    with suppress(OSError, IndexError):  # it has ended
                        found[mark] = stage.running[-1].memory() / 1e6

    watching = threading.Thread(target=look)
    watching.start()
    try:
        yield found
    finally:
        over.set()
        watching.join()


def _wrong(stage: Stage) -> int:
    """Count the questions whose outcome is not the scripted one."""
    try:
        found = pl.read_parquet(stage.folder / "outcomes.parquet")
    except Exception:  # the error that prevented writing it
        return stage.scenario.questions
    expected = planted(stage.scenario.questions).select("question_id", "refused", "wrong")
    return expected.join(found, on=expected.columns, how="anti").height
