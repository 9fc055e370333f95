"""Inspect's providers as clients, its tasks for `inspect eval refusal_index/...`, and its logs as first passes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires, version

from refusal_index.errors import RefusalIndexError

DISTRIBUTION = "refusal-index"


class IncompatibleError(RefusalIndexError, RuntimeError):
    """A package that is installed in a release that this one cannot work with."""


def check_names(package: str, names: Iterable[str]) -> None:
    """Raise if a package lacks names that this one rests on and that it does not promise to keep.

    Parameters
    ----------
    package
        As it is installed.
    names
        Each with its module, as in ``"module:name"``.

    Raises
    ------
    IncompatibleError
        The message says which release is installed, which were tested, and how to get one.
    ModuleNotFoundError
        If the package is not installed at all.

    Examples
    --------
    >>> check_names("numpy", ["numpy.linalg:eigh"])
    >>> check_names("numpy", ["numpy.linalg:tetrachoric"])
    Traceback (most recent call last):
    refusal_index.models.inspect.IncompatibleError: numpy ... has no numpy.linalg:tetrachoric: ...
    """
    for each in names:
        module, _, name = each.partition(":")
        import_module(module.partition(".")[0])
        try:
            if not hasattr(import_module(module), name):
                import_module(f"{module}.{name}")
        except ImportError as error:
            raise IncompatibleError(
                f"{package} {_installed(package)} has no {each}: this release was tested with "
                f"{package} {range_of(package) or 'another one'}; pip install '{package}{range_of(package)}'"
            ) from error


def range_of(package: str) -> str:
    """Return the releases of a package that this one is tested with, as pip has them; empty where any will do.

    Examples
    --------
    >>> range_of("no-such-package")
    ''
    """
    try:
        found = requires(DISTRIBUTION) or []
    except PackageNotFoundError:  # run from its sources, without being installed
        return ""
    for one in found:
        name, versions = re.match(r"([\w.-]+)(?:\[[^]]*\])?\s*([^;]*)", one).groups()  # type: ignore[union-attr]
        if name.lower() == package:
            return ",".join(sorted((part.strip(" ()") for part in versions.split(",")), reverse=True))
    return ""


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(of an unknown release)"


PRIVATE = (
    "inspect_ai._util.error:PrerequisiteError",
    "inspect_ai._util.registry:registry_find",
    "inspect_ai._util.registry:registry_unqualified_name",
    "inspect_ai.model._model:use_model_event_sink",
    "inspect_ai.model._providers.util:hooks",
)
"""Names that Inspect does not promise to keep; another release may lack them."""

check_names("inspect-ai", PRIVATE)
