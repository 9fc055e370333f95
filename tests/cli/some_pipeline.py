"""A pipeline such as a user might have: functions that answer and grade, named by tests on the command line."""

from __future__ import annotations

import signal
import threading

from refusal_index.data.outcome import Question
from tests.models.fake_api import is_forced, question_of


class State:
    """What was asked, and what the functions are to do beside answering.

    Attributes
    ----------
    asked
        Every message that was answered.
    stops_after, stopping
        After how many replies every further call raises, and what. For KeyboardInterrupt, the process is interrupted
        once, as by Ctrl-C.
    """

    def __init__(self) -> None:
        self.prompts: list[str] = []
        self.stops_after: int | None = None
        self.stopping: BaseException = RuntimeError("out of quota")
        self._interrupted_after: int | None = None
        self._lock = threading.Lock()

    def take(self, message: str) -> None:
        with self._lock:
            if self.stops_after is not None and len(self.prompts) >= self.stops_after:
                if isinstance(self.stopping, KeyboardInterrupt):
                    self._interrupt()
                    raise RuntimeError("interrupted")
                raise self.stopping
            self.prompts.append(message)

    def _interrupt(self) -> None:
        if self._interrupted_after != self.stops_after:
            self._interrupted_after = self.stops_after
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


state = State()


def answer(messages: list[dict[str, str]]) -> str:
    """Refuse every third sum and answer every other one correctly."""
    message = messages[-1]["content"]
    state.take(message)
    number = int(question_of(message).split()[2])
    if number % 3 == 0 and not is_forced(message):
        return "<answer>UNANSWERED</answer>"
    return f"<answer>{2 * number if number % 2 else 'none'}</answer>"


async def answer_in_time(messages: list[dict[str, str]]) -> str:
    """The same, as a coroutine."""
    return answer(messages)


def speechless(messages: list[dict[str, str]]) -> None:
    """Return no reply."""


def grade(question: Question, text: str) -> bool:
    """Grade an answer as correct if it contains the gold answer."""
    state.take(f"grade {question.question_id}: {text}")
    return question.gold is not None and question.gold in text


def undecided(_question: Question, _text: str) -> str:
    """Return an invalid grade."""
    return "perhaps"


NOT_A_FUNCTION = 3
