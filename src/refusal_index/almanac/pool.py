"""The models of a process by their names, each loaded when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from refusal_index.almanac import ALMANAC
from refusal_index.almanac.errors import ModelNotFoundError
from refusal_index.almanac.runtime import Runtime


class ModelPool:
    """The models that can be asked.

    Parameters
    ----------
    names
        What there is.
    folder_of
        Where each is.
    """

    def __init__(self, names: Sequence[str], folder_of: Callable[[str], Path]) -> None:
        self.names = tuple(names)
        self._folder_of = folder_of
        self._runtimes: dict[str, Runtime] = {}

    def name(self, model: str) -> str:
        """Return the name of a model called ``base`` or ``almanac/base``.

        Raises ModelNotFoundError if there is no such model.
        """
        name = model.removeprefix(f"{ALMANAC}/")
        if name not in self.names:
            known = ", ".join(f"{ALMANAC}/{each}" for each in self.names)
            raise ModelNotFoundError(f"The model '{model}' does not exist; there is {known}")
        return name

    def runtime(self, model: str) -> Runtime:
        """Return the runtime of a model called ``base`` or ``almanac/base``.

        Raises ModelNotFoundError if there is no such model.
        """
        name = self.name(model)
        if name not in self._runtimes:
            self._runtimes[name] = Runtime(self._folder_of(name))
        return self._runtimes[name]

    def close(self) -> None:
        """End the threads of the models."""
        for runtime in self._runtimes.values():
            runtime.close()
