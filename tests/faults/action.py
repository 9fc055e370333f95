"""The step of the GitHub Action that asks the candidate, in a shell as a job would run it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import yaml

from tests.faults.process import ROOT, Command

STEP = "Ask the candidate"
ITS_OWN = ("--model", "--data", "--variants", "--out")
"""Options that the action has inputs for, or sets itself."""

SCRIPT = f"""#!{sys.executable}
import sys
sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "src")!r}]
from tests.faults.process import Surroundings, become
become(sys.argv[1:], Surroundings(), {"output"!r})
"""


def start_action(
    model: str, arguments: Sequence[str], folder: Path, output: Path, environment: Mapping[str, str]
) -> Command:
    """Start the step in a folder; it runs ``refusal-index`` as it is in this repository.

    Parameters
    ----------
    model, arguments
        The model, and the arguments of the command ``run`` that it is to be asked with.
    folder, output, environment
        As for `start`.
    """
    program = folder.parent / "bin" / "refusal-index"
    program.write_text(SCRIPT)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    given = {name: value for name, value in pairwise(arguments[1:]) if name.startswith("--")}
    inputs = {
        "MODEL": model,
        "CANDIDATE": "",
        "DATA": given["--data"],
        "VARIANT": given["--variants"],
        "ARGUMENTS": "\n".join(f"{name}={value}" for name, value in given.items() if name not in ITS_OWN),
    }
    steps = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))["runs"]["steps"]
    script = next(step["run"] for step in steps if step["name"] == STEP)
    with output.with_suffix(".out").open("ab") as out, output.with_suffix(".err").open("ab") as err:
        process = subprocess.Popen(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
            cwd=folder,
            env={**os.environ, **environment, **inputs},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
        )
    return Command(process, output)
