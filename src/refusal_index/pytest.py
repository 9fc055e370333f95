"""An assertion for pytest that a model knows what it does not know, and a fixture that keeps a baseline.

A test imports `assert_knows`. For the fixture `baseline` and the option ``--update-baseline``, write
``pytest_plugins = ["refusal_index.pytest"]`` in ``conftest.py``. The package registers nothing with pytest, so that
tests that do not use it load nothing.
"""

from __future__ import annotations

import re
import shutil
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

import refusal_index as ri
from refusal_index.errors import RunFolderError

if TYPE_CHECKING:
    from refusal_index.findings.gate import GateResult
    from refusal_index.findings.gate_policy import Policy

OUTCOMES = "outcomes.parquet"
RUN = "run.json"


class InconclusiveWarning(UserWarning):
    """A gate without a clear verdict, for example because there are too few questions."""


@dataclass(frozen=True)
class Baseline:
    """The stored baseline of a test.

    Attributes
    ----------
    path
        Its folder.
    is_updated
        Whether it is to be replaced by the run that would be compared with it.
    """

    path: Path
    is_updated: bool = False

    @property
    def outcomes(self) -> Path:
        """Its outcome table; raises RunFolderError if there is none yet."""
        path = self.path / OUTCOMES
        if not path.exists():
            raise RunFolderError(
                f"baseline: expected {path}, found none; make it with 'pytest --update-baseline', and commit it"
            )
        return path

    def replace_by(self, run: ri.RunResults | str | Path) -> None:
        """Keep the outcome table of a run, and how it was made if the run has a folder."""
        import polars as pl  # noqa: PLC0415 - loaded only where a baseline is updated

        from refusal_index.data.outcome_table import write_outcomes  # noqa: PLC0415 - likewise
        from refusal_index.runs.gate import read_run  # noqa: PLC0415 - likewise

        given = read_run(run, "run")
        made = given.source / RUN
        self.path.mkdir(parents=True, exist_ok=True)
        write_outcomes(pl.concat(given.tables.values()), self.path / OUTCOMES)
        if made.exists():
            shutil.copy(made, self.path)
        else:
            (self.path / RUN).unlink(missing_ok=True)  # of an earlier baseline


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option to pytest."""
    text = "Replace the baselines of the tests that run by the runs that would be compared with them."
    parser.addoption("--update-baseline", action="store_true", help=text)


@pytest.fixture
def baseline(request: pytest.FixtureRequest) -> Baseline:
    """Return the baseline of this test, kept in the folder ``baselines`` beside its file."""
    name = re.sub(r"[^\w.-]+", "-", f"{request.path.stem}-{request.node.name}").strip("-")
    is_updated = bool(request.config.getoption("--update-baseline", default=False))
    return Baseline(request.path.parent / "baselines" / name, is_updated)


def assert_knows(
    run: ri.RunResults | str | Path,
    *,
    against: Baseline | ri.RunResults | str | Path | None = None,
    policy: Policy | str | Path | dict[str, Any] | None = None,
    inconclusive: Literal["warn", "fail"] = "warn",
    **limits: float,
) -> GateResult | None:
    """Fail the test if a run is beyond a limit, or worse than a baseline by more than a margin.

    The verdict is that of `refusal_index.gate`: the test fails if a limit is exceeded by more than sampling error.

    Parameters
    ----------
    run
        A run, its folder, or an outcome table.
    against
        The baseline: the fixture `baseline`, a run, its folder, or an outcome table; None for fixed limits only.
    policy
        As for `refusal_index.gate`: margins, further limits, and the prompt to judge by.
    inconclusive
        Whether a verdict that is not clear is an `InconclusiveWarning`, or fails the test as well.
    limits
        Limits by metric: the smallest allowed value of a metric that is better if higher, such as ``refusal_index``,
        and the largest of one that is better if lower, such as ``over_refusal``.

    Returns
    -------
    GateResult or None
        The verdict; None if the baseline was only updated.

    Raises
    ------
    RefusalIndexError
        If a metric is unknown, a limit is impossible, or the runs cannot be judged.
    """
    __tracebackhide__ = True
    if inconclusive not in ("warn", "fail"):
        raise ValueError(f"inconclusive: expected 'warn' or 'fail', got {inconclusive!r}")
    try:
        result = _gated(run, against, policy, limits)
    except ri.RefusalIndexError as error:
        raise error.with_traceback(None) from None  # pytest then shows the line of the test
    if result is None or result.verdict == "pass":
        return result
    if result.verdict == "fail" or inconclusive == "fail":
        pytest.fail(str(result))
    warnings.warn(f"{result.verdict.upper()}. {result.why}", InconclusiveWarning, stacklevel=2)
    return result


def _gated(
    run: ri.RunResults | str | Path,
    against: Baseline | ri.RunResults | str | Path | None,
    policy: Policy | str | Path | dict[str, Any] | None,
    limits: dict[str, float],
) -> GateResult | None:
    """Return the verdict of the gate; a baseline to update is replaced unless a fixed limit is exceeded."""
    from refusal_index.findings.gate_policy import PolicyError  # noqa: PLC0415 - loaded only where a test uses it
    from refusal_index.findings.metrics import METRICS, unknown_metric  # noqa: PLC0415 - likewise
    from refusal_index.runs.gate import gate, policy_of  # noqa: PLC0415 - likewise

    bounds: dict[str, dict[str, float]] = {"at_least": {}, "at_most": {}}
    for name, limit in limits.items():
        if name not in METRICS:
            raise PolicyError(f"assert_knows: {unknown_metric(name)}")
        bounds["at_most" if METRICS[name].lower_is_better else "at_least"][name] = limit
    chosen = policy_of(policy).changed(**bounds)
    has_limits = bool(chosen.at_least or chosen.at_most)
    if against is None and not has_limits:
        raise PolicyError(
            "assert_knows: expected a limit such as refusal_index=0.2, or a baseline as against=, got none"
        )
    if not isinstance(against, Baseline):
        return gate(run, against, chosen)
    if not against.is_updated:
        return gate(run, against.outcomes, chosen)
    result = gate(run, None, chosen) if has_limits else None
    if result is None or result.verdict != "fail":
        against.replace_by(run)
    return result
