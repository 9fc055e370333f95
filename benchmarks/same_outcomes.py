"""Run the same commands with this tree and with another revision, and compare the results.

    python -m benchmarks.same_outcomes REV              compare this tree with a revision
    python -m benchmarks.same_outcomes REV --store FILE     and store the results of REV
    python -m benchmarks.same_outcomes FILE             compare this tree with stored results

Runs `COMMANDS` with the sources of each tree, each time in an empty folder and without a network: the embedded models
answer 200 questions, a server on loopback answers and counts the requests to other models, and every study, comparison,
gate, plan and export reads these runs. Compared are outcome tables row by row, in any order; every number in JSON and
CSV to 1e-12; every code (a string without spaces); the numbers in the text of commands that print no JSON; exit
statuses; and the number of requests at the server. Wording, layout, times and versions are ignored. `RENAMED`
translates names that changed. Exit status: 0 no difference, 1 something differs.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl
from safetensors.numpy import save_file

ROOT = Path(__file__).parents[1]
PROGRAM = [sys.executable, "-c", "from refusal_index.cli import main; main()"]
TOLERANCE = 1e-12
ROUNDED = {"likelihood": 1e-5, "threshold_error": 1e-5}
"""Tolerances for log probabilities, whose last digits depend on which requests share a batch."""

SHOWN = 20  # differences to print per command

RENAMED = {
    "inspect": "direct",  # the default engine
    "grave": "serious",  # a severity
    "warnings": "caveats",  # a key of summaries
    "lacking": "missing_answers",  # codes of statements
    "labels_lacking": "labels_missing",
    "pull": "shift",  # a value of statements
    "there": "stored",  # counts of dry runs
    "foreseen": "known_replies",
    "twice_all_answers": "full_two_pass_answers",  # a column of a study
    "stopped.of": "planned",  # keys below others
    "gate_looks.of": "questions",
    "confidence.of": "scored_pass",
}
"""Names in commands and results that changed, from older trees to this tree."""

RENAMED_BESIDE = {("penalty", "truthfulness_weights"): "weighted_score_p", ("penalty", "delta_signed"): "p"}
"""Keys that changed only where another key stands beside them: p of the weighted score, in summaries and in a study."""

OLDER_SPELLINGS = {
    r"^study --all": "paper",
    r"^confidence(?=.* --(?:penalty|max-error) )": "threshold",
    r"^(gate .*)--json": r"\1--json -",
    r"^((?:compare|gate|plan) .*)--variants": r"\1--variant",
    r"^(run .*)--half-width (\S+)": r"\1--until half-width=\2",
}
"""Patterns in this tree's commands, and their spelling in trees before the options were renamed."""

VOLATILE = re.compile(
    r"seconds|_at\b|version|created|timestamp|folder|path|elapsed|run_id|sha256|digest|checksum|evaluation_id"
)
"""Keys whose values differ between two runs of the same command."""

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}")

COMMANDS = {
    "base": "run --model almanac/base --limit {n}",
    "small": "run --model almanac/small --limit {n}",
    "rash": "run --model almanac/rash --limit {n}",
    "draws": "run --limit {n} --draws 3 --repeat-questions {fifth} --variants low,high",
    "all_draws": "run --model almanac/small --limit {n} --draws 2 --variants normal,high",
    "system": "run --limit {n} --placement system --variants normal",
    "targets": "run --limit {n} --prompts confidence-targets",
    "thinking": "run --limit {n} --variants normal --think true",
    "own": "run --limit {n} --data own.jsonl --grader exact --variants low,normal",
    "own_small": "run --model almanac/small --limit {n} --data own.jsonl --grader exact --variants low,normal",
    "http": "run --limit {n} --model m --base-url {url} --grader exact --variants low,normal",
    "together": "run --limit {fifth} --model together/m --grader exact --variants normal",
    "regraded": "regrade base --grader exact",
    "forced": "force first.csv --model almanac/base",
    "imported": "import first.csv --out imported.parquet --json",
    "scores": "confidence draws --method p-answering,verbalised-number,topic --json",
    "self_consistency": "confidence all_draws --method self-consistency,answer-entropy --json",
    "likelihood": "confidence system --method likelihood,p-true --json",
    "score": "score small --json",
    "score_clusters": "score base/outcomes.parquet --cluster topic --json",
    "score_rates": "score --rates rates.csv --json",
    "two": "compare base small --json",
    "two_by_cluster": "compare base small --cluster topic --confidence-level 0.9 --json",
    "ranking": "compare base small rash --json",
    "ranking_of_draws": "compare all_draws draws --json",
    "ranking_by_rate": "compare base small rash --variants normal --metric correct_rate --adjustment holm --json",
    "gate": "gate small --baseline base --variants normal --json",
    "gate_policy": "gate base --policy policy.toml --json",
    "gate_margins": "gate rash --baseline base --variants high --margin refusal_index=0.2 --json",
    "gate_looks": "gate almanac/small --run --limit {n} --looks 3 --variants normal --baseline base "
    "--margin correct_rate=0.3 --json",
    "looks": "run --limit {n} --variants normal --looks 4 --half-width 0.2",
    "threshold": "confidence all_draws --method self-consistency --penalty 1 --json",
    "threshold_error": "confidence system --method likelihood --max-error 0.5 --json",
    "plan": "plan --refusal-rate 0.4 --error-rate 0.5 --refusal-index 0.5 --half-width 0.1",
    "plan_pilot": "plan draws --corrected --budget-requests 4000",
    "plan_difference": "plan base small --variants normal",
    "sensitivity": "sensitivity base",
    "sensitivity_grader": "sensitivity base --grader-error 0.02,0.05",
    "audit": "audit base --size 50",
    "csv": "export base small draws --to csv --out all.csv",
    "every_eval_ever": "export base --to every-eval-ever --out every",
    "hf": "export base --to hf-eval-results --out hf",
    "studies": "study --all base small rash draws all_draws targets thinking own own_small fourth.csv "
    "--models models.csv --format csv",
    "studies_of_one": "study --all base --format csv",
    "watched": "watch checkpoints --once --model-template almanac/{name} --variants normal --limit {fifth}",
}
"""The commands, by the name of their results, which is also the folder for `--out`."""

OUT = {"run", "regrade", "force", "study", "paper"}
"""Commands that are given ``--out NAME``."""

INPUTS = {
    "rates.csv": "model,n,refusal_rate,correct_rate,forced_accuracy\nx,1000,0.4,0.3,0.45\ny,500,0.2,0.35,0.4\n",
    "policy.toml": "variant = 'high'\n[at_least]\nrefusal_index = 0.1\ncorrect_rate = 0.2\n",
    "models.csv": "model,family,parameters_billion\nalmanac/base,A,4\nalmanac/small,A,1\nalmanac/rash,B,4\nx/other,B,2",
}


def prepare(name: str, folder: Path) -> None:
    """After the run named ``base``, write the files that later commands read."""
    if name != "base":
        return
    table = pl.read_parquet(folder / "base" / "outcomes.parquet")
    grades = pl.col("first_grade").replace_strict({"correct": "A", "incorrect": "B", "refused": "C"}, default=None)
    columns = ("model", "dataset", "variant", "question_id", "topic", "question", "gold", "first_reply")
    graded = table.filter(pl.col("first_grade") != "unscored")
    graded.select(*columns, grade=grades).write_csv(folder / "first.csv")
    # a fourth model, and a user's own questions
    kept = ("dataset", "variant", "question_id", "topic", "refused", "wrong")
    shifted = pl.col("wrong").shift(1).fill_null(False).or_(pl.col("wrong") & pl.col("refused"))
    table.select(pl.lit("x/other").alias("model"), *kept).with_columns(wrong=shifted).write_csv(folder / "fourth.csv")
    questions = table.unique("question_id", maintain_order=True).select(
        id="question_id", question="question", answer="gold", topic="topic"
    )
    questions.write_ndjson(folder / "own.jsonl")
    for text_name, text in INPUTS.items():
        (folder / text_name).write_text(text, encoding="utf-8")
    for model in ("base", "small"):
        checkpoint = folder / "checkpoints" / model
        checkpoint.mkdir(parents=True)
        (checkpoint / "config.json").write_text("{}", encoding="utf-8")
        save_file({"weight": np.frombuffer(model.encode(), np.uint8)}, checkpoint / "model.safetensors")


@contextmanager
def worktree(revision: str) -> Iterator[Path]:
    """Check out a revision for the duration of the block."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", tree, revision], cwd=ROOT, check=True)
        try:
            _register_plugins(tree)
            yield tree
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=ROOT, check=True)


def _register_plugins(tree: Path) -> None:
    """Write the entry points of a tree beside its sources, where Python finds them before the installed package's."""
    project = tomllib.loads((tree / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    metadata = tree / "src" / "refusal_index-0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: refusal-index\nVersion: 0\n", encoding="utf-8")
    groups = project.get("entry-points", {}).items()
    lines = [line for group, own in groups for line in (f"[{group}]", *(f"{name} = {own[name]}" for name in own))]
    (metadata / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")


@contextmanager
def loopback(log: Path) -> Iterator[str]:
    """Run the loopback server for the duration of the block, and yield its address."""
    command = [sys.executable, "-m", "benchmarks.loopback", "--log", str(log)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield cast("Any", server.stdout).readline().strip()
        finally:
            server.terminate()


def results(tree: Path, commands: Mapping[str, str], limit: int) -> dict[str, Any]:
    """Run all commands with the sources of a tree, and return their results by the name of the command."""
    by_name: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder, log = Path(temporary, "work"), Path(temporary, "requests.jsonl")
        folder.mkdir()
        log.touch()
        with loopback(log) as address:
            environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "INSPECT_DISPLAY": "none", "COLUMNS": "80"}
            for name in ("LOOP", "TOGETHER"):
                environment |= {f"{name}_BASE_URL": address, f"{name}_API_KEY": "none"}
            for name, command in commands.items():
                before = log.read_text().count("\n")
                words = shlex.split(
                    _as_in(tree, command)
                    .replace("{n}", str(limit))
                    .replace("{fifth}", str(limit // 5))
                    .replace("{url}", address)
                )
                if words[0] in OUT:
                    words += ["--out", name]
                if words[0] in ("audit", "watch"):
                    words += ["--out", f"{name}.csv" if words[0] == "audit" else name]
                files_before = _files(folder)
                done = subprocess.run(
                    [*PROGRAM, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
                )
                written = sorted(path for path, time in _files(folder).items() if files_before.get(path) != time)
                by_name[name] = {
                    "status": done.returncode,
                    "requests": log.read_text().count("\n") - before,
                    "printed": _printed(done.stdout),
                    "error": "" if done.returncode in (0, 1, 3) else done.stderr[-500:],
                    "files": {
                        UUID.sub("UUID", str(path)): values_of(folder / path)
                        for path in written
                        if path.suffix in READERS
                    },
                }
                prepare(name, folder)
                print(f"  {name}: status {done.returncode}", file=sys.stderr, flush=True)
    return by_name


def _as_in(tree: Path, command: str) -> str:
    """Return a command in the spelling of a tree."""
    statistics = tree / "docs" / "statistics.md"
    if "`run --half-width" not in statistics.read_text(encoding="utf-8"):
        for pattern, older in OLDER_SPELLINGS.items():
            command = re.sub(pattern, older, command)
    return command


def _files(folder: Path) -> dict[Path, int]:
    paths = (path for path in folder.rglob("*") if path.is_file() and "logs" not in path.parts)
    return {path.relative_to(folder): path.stat().st_mtime_ns for path in paths}


def _printed(text: str) -> Any:
    """Return the output of a command: parsed JSON, or else the numbers in the text."""
    try:
        return json.loads(text)
    except ValueError:
        return [float(number) for number in re.findall(r"(?<![\w.-])-?\d+\.\d+", text)]


def _table(path: Path) -> list[dict[str, Any]]:
    keys = ("model", "dataset", "variant", "question_id", "draw", "method", "pass")
    table = pl.read_parquet(path)
    table = table.drop(name for name in table.columns if VOLATILE.search(name))
    return table.sort([key for key in keys if key in table.columns]).to_dicts()


def _csv(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8", newline="") as file:
        return [{name: _cell(cell) for name, cell in row.items()} for row in csv.DictReader(file)]


def _cell(cell: str | None) -> str | float | None:
    try:
        return float(cell) if cell else cell
    except ValueError:
        return cell


def _json(path: Path) -> Any:
    document = json.loads(path.read_text(encoding="utf-8"))
    return document["settings"] if path.name == "run.json" else document


READERS = {".parquet": _table, ".csv": _csv, ".json": _json}


def values_of(path: Path) -> Any:
    """Return the content of a result file."""
    return READERS[path.suffix](path)


def renamed(document: Any, names: Mapping[str, str], parent: str = "") -> Any:
    """Rename keys and codes in a document; a name such as ``stopped.of`` is a key below another key."""
    if isinstance(document, dict):
        beside = {key: new for (key, other), new in RENAMED_BESIDE.items() if other in document}
        new_names = {**names, **beside}
        return {
            new_names.get(f"{parent}.{key}", new_names.get(key, key)): renamed(value, names, key)
            for key, value in document.items()
        }
    if isinstance(document, list):
        return [renamed(value, names, parent) for value in document]
    return names.get(document, document) if isinstance(document, str) else document


def differences(here: Any, there: Any, place: str = "", tolerance: float = TOLERANCE) -> Iterator[str]:
    """Yield a line for each value that differs between two documents; strings with spaces are not compared."""
    if isinstance(here, dict) and isinstance(there, dict):
        for key in dict.fromkeys([*here, *there]):
            if not VOLATILE.search(str(key)):
                yield from differences(here.get(key), there.get(key), f"{place}.{key}", tolerance)
    elif isinstance(here, list) and isinstance(there, list) and len(here) == len(there):
        for number, (one, other) in enumerate(zip(here, there, strict=True)):
            yield from differences(one, other, f"{place}[{number}]", tolerance)
    elif not _same(here, there, tolerance):
        yield f"{place.lstrip('.')}: {json.dumps(here)[:60]} here, {json.dumps(there)[:60]} there"


def _same(here: Any, there: Any, tolerance: float) -> bool:
    if isinstance(here, str) and isinstance(there, str) and " " in here and " " in there:
        return True
    if isinstance(here, float) or isinstance(there, float):
        numbers = all(isinstance(value, int | float) for value in (here, there))
        return numbers and (math.isclose(here, there, rel_tol=tolerance, abs_tol=tolerance))
    return bool(here == there)


def compare(here: Mapping[str, Any], there: Mapping[str, Any], names: Sequence[str]) -> bool:
    """Print the differences between the results of two trees, and return whether there are none."""
    print(f"| command | status | requests | files | values | differences |\n|{'---|' * 6}")
    same = True
    for name in names:
        mine, other = here[name], there.get(name, {})
        lines = list(differences(mine, other, tolerance=ROUNDED.get(name, TOLERANCE)))
        count = sum(1 for _ in _leaves(mine["files"])) + sum(1 for _ in _leaves(mine["printed"]))
        print(
            f"| `{name}` | {mine['status']} | {mine['requests']:,} | {len(mine['files'])} | {count:,} | "
            f"{len(lines) or 'none'} |",
            flush=True,
        )
        for line in [*lines[:SHOWN], *([mine["error"]] if mine["error"] else [])]:
            print(f"  {name}: {line}", file=sys.stderr)
        same &= not lines
    return same


def _leaves(document: Any) -> Iterator[Any]:
    if isinstance(document, dict | list):
        for value in document.values() if isinstance(document, dict) else document:
            yield from _leaves(value)
    else:
        yield document


def main() -> None:
    """Compare this tree with a revision or with stored results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reference", metavar="REV|FILE", help="a revision of this repository, or results of --store")
    parser.add_argument("--store", type=Path, metavar="FILE", help="store the results of REV in this file")
    parser.add_argument("--limit", type=int, default=200, help="questions of every run (default: 200)")
    parser.add_argument("--only", metavar="NAME,...", help="run these commands only")
    arguments = parser.parse_args()
    names = arguments.only.split(",") if arguments.only else list(COMMANDS)
    commands = {name: COMMANDS[name] for name in names}
    if Path(arguments.reference).is_file():
        there = json.loads(Path(arguments.reference).read_text(encoding="utf-8"))
    else:
        old_names = {new: old for old, new in RENAMED.items()}
        older = {
            name: " ".join(old_names.get(word, word) for word in command.split(" "))
            for name, command in commands.items()
        }
        with worktree(arguments.reference) as tree:
            there = results(tree, older, arguments.limit)
        if arguments.store:
            arguments.store.write_text(json.dumps(there), encoding="utf-8")
    here = json.loads(json.dumps(results(ROOT, commands, arguments.limit)))
    if not compare(here, renamed(json.loads(json.dumps(there)), RENAMED), names):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
