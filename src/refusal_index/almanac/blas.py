"""Keeping NumPy's matrix library to one thread while a model runs.

These matrices are small, and the caller's own work shares the cores. A second thread gains little when a core is idle
and costs dearly when none is, since each product then waits for a thread that has no core to run on: on two cores, one
and two threads answered 303 and 370 questions a second when nothing else ran, 199 and 20 beside two busy processes.
"""

from __future__ import annotations

import threading
from types import TracebackType

from threadpoolctl import OpenBLASController, ThreadpoolController


class _OneBlasThread:
    """A context manager for one BLAS thread in the whole process, restored when the last of its users leaves."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0

    def __enter__(self) -> None:
        with self._lock:
            if self._users == 0:
                _let_anyone_decide()
                self._limiter = ThreadpoolController().limit(limits=1, user_api="blas")
            self._users += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                _let_anyone_decide()
                self._limiter.restore_original_limits()
                _let_anyone_decide()


def _let_anyone_decide() -> None:
    """Take the decision from the thread that set the number last.

    While that thread lives, setting it from another one would do nothing: the first of two models in a process would
    keep the second one from its one thread, and the last to leave might restore nothing.
    """
    OpenBLASController.clear_controlling_thread(force=True)


one_blas_thread = _OneBlasThread()
