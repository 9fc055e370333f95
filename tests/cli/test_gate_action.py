"""The action in the root of the repository: its steps run in a shell as a job would run them, inputs as environment."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
import yaml

from refusal_index.data.outcome_table import write_outcomes
from tests.cli.test_gate import write

ACTION = yaml.safe_load((Path(__file__).parents[2] / "action.yml").read_text())
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"]}
EXPRESSION = re.compile(r"\$\{\{ inputs\.([\w-]+) \}\}")
HOSTILE = '$(touch owned) `touch owned` ";touch owned;" \' && touch owned'


STAND_IN = r"""#!/bin/sh
# Stands in for refusal-index: notes what it is told, hands out a document made before, and ends with a status.
printf '%s\n' "$@" > told
cp -f made.json refusal-index-gate/gate.json 2>/dev/null
exit "$(cat status)"
"""


def run_step(name: str, folder: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    """Run one step as GitHub does: its text unchanged, its environment made of the inputs."""
    given = {key: one["default"] for key, one in ACTION["inputs"].items()} | inputs
    env = {key: EXPRESSION.sub(lambda match: given[match[1]], one) for key, one in STEPS[name]["env"].items()}
    path = os.pathsep.join([str(folder / "first"), str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEPS[name]["run"]],
        check=False,
        cwd=folder,
        env={**os.environ, **env, "PATH": path, "GITHUB_OUTPUT": "outputs", "GITHUB_STEP_SUMMARY": "summary.md"},
        capture_output=True,
        text=True,
        timeout=250,
    )


def outputs(folder: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in (folder / "outputs").read_text().splitlines())


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Return a folder with the outcomes of several models; tests must not change it."""
    folder = tmp_path_factory.mktemp("written")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, error in {"base": 0.2, "same": 0.2, "worse": -0.4, "slightly": 0.1}.items():
            write(name, error)
    return folder


@pytest.fixture
def runs(tmp_path, monkeypatch, written):
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)


@pytest.fixture
def judged(tmp_path, runs, command):
    """Run the gate in this process, and let the steps use its result instead of starting the command."""

    def judge(candidate: str, *more: str) -> None:
        done = command("gate", f"{candidate}.parquet", "--baseline", "base.parquet", "--out", "made.json", *more)
        stand_in(tmp_path, done.exit_code)

    return judge


def test_inputs_are_never_interpolated_into_scripts():
    assert all("${{" not in step.get("run", "") for step in ACTION["runs"]["steps"])
    assert {step["shell"] for step in ACTION["runs"]["steps"] if "run" in step} == {"bash"}


def test_every_input_is_used_and_every_output_is_set(tmp_path, judged):
    used = set(re.findall(r"inputs\.([\w-]+)", yaml.safe_dump(ACTION["runs"])))
    assert used == set(ACTION["inputs"])
    judged("same")
    assert run_step("Judge it", tmp_path, candidate="same.parquet", baseline="base.parquet").returncode == 0
    assert set(outputs(tmp_path)) == set(ACTION["outputs"])
    assert all(one["value"] == f"${{{{ steps.judge.outputs.{name} }}}}" for name, one in ACTION["outputs"].items())


def test_checkout_modules_cannot_shadow_the_standard_library():
    started = [line for step in ACTION["runs"]["steps"] for line in re.findall(r"python\b.*", step.get("run", ""))]
    assert len(started) == 2
    assert all(line.startswith("python -I ") for line in started)


def test_actions_are_pinned_to_the_release_workflow_commits():
    used = {step["uses"] for step in ACTION["runs"]["steps"] if "uses" in step}
    release = yaml.safe_load((Path(__file__).parents[2] / ".github/workflows/release.yml").read_text())
    assert used
    assert used <= {step.get("uses") for job in release["jobs"].values() for step in job["steps"]}


def test_candidate_and_model_together_are_rejected_before_any_request(tmp_path):
    done = run_step("Ask the candidate", tmp_path, model="almanac/base", candidate="base.parquet")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: model and candidate: expected one of them, got both")
    assert not (tmp_path / "refusal-index-gate").exists()


def test_judging_needs_a_model_or_a_candidate(tmp_path):
    (tmp_path / "refusal-index-gate/candidate").mkdir(parents=True)
    done = run_step("Judge it", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: model and candidate: expected one of them, got neither")


def stand_in(folder: Path, status: int) -> None:
    (folder / "status").write_text(str(status))
    (folder / "first").mkdir()
    (folder / "first/refusal-index").write_text(STAND_IN)
    (folder / "first/refusal-index").chmod(0o755)


@pytest.mark.parametrize("is_link", [False, True])
def test_candidate_is_never_asked_in_a_folder_of_the_checkout(tmp_path, is_link):
    """A pull request that brings the folder of a finished run would otherwise decide its own verdict."""
    stand_in(tmp_path, 0)
    planted = tmp_path / ("elsewhere" if is_link else "refusal-index-gate")
    (planted / "candidate").mkdir(parents=True)
    (planted / "candidate/replies.sqlite").write_text("planted")
    if is_link:
        (tmp_path / "refusal-index-gate").symlink_to(planted, target_is_directory=True)
    done = run_step("Ask the candidate", tmp_path, model="almanac/base")
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "refusal-index-gate").is_symlink()
    assert list((tmp_path / "refusal-index-gate").iterdir()) == []
    assert (planted / "candidate/replies.sqlite").exists() == is_link, "nothing is deleted through a link"


@pytest.mark.parametrize(("status", "of_step"), [(0, 0), (1, 0), (2, 2), (139, 139)])
def test_only_an_incomplete_run_is_judged(tmp_path, status, of_step):
    stand_in(tmp_path, status)
    assert run_step("Ask the candidate", tmp_path, model="almanac/base").returncode == of_step


@pytest.mark.parametrize("status", [0, 1, 3, 139])
def test_gate_without_a_verdict_is_an_error(tmp_path, status):
    """A gate that dies with status 1 has not judged anything."""
    stand_in(tmp_path, status)
    done = run_step("Judge it", tmp_path, candidate="any.parquet")
    assert done.returncode == 2
    assert "without a verdict" in done.stderr
    assert not (tmp_path / "outputs").exists()


@pytest.mark.parametrize(
    ("candidate", "verdict", "status"), [("worse", "fail", 1), ("same", "pass", 0), ("slightly", "inconclusive", 0)]
)
def test_verdict_sets_the_output_and_job_status(tmp_path, judged, candidate, verdict, status):
    judged(candidate)
    assert run_step("Judge it", tmp_path, candidate=f"{candidate}.parquet").returncode == status
    found = outputs(tmp_path)
    assert found["verdict"] == verdict
    assert 0 < float(found["refusal-index"]) < 1


@pytest.mark.slow
def test_judging_writes_every_file_and_ignores_checkout_modules(tmp_path, runs):
    for name in ("json", "pip", "sys"):  # a checkout that tries to force a pass
        (tmp_path / f"{name}.py").write_text("print('verdict=pass')\nraise SystemExit\n")
    done = run_step("Judge it", tmp_path, candidate="worse.parquet", baseline="base.parquet")
    assert done.returncode == 1
    found = outputs(tmp_path)
    assert found["verdict"] == "fail"
    assert 0 < float(found["refusal-index"]) < 1
    assert (tmp_path / found["report"]).exists()
    assert (tmp_path / "summary.md").read_text().startswith("## Refusal Index gate: fail\n")
    assert {path.name for path in (tmp_path / "refusal-index-gate").iterdir()} == {
        *("gate.json", "gate.xml", "report.html")
    }


def test_candidate_is_sampled_once_by_default():
    assert "draws" not in STEPS["Ask the candidate"]["run"]


def test_refusal_index_output_is_ri_not_corrected_ri(tmp_path, judged):
    """The corrected index is guarded and has a value, which must not be reported as RI."""
    for name in ("base", "same"):
        once = pl.read_parquet(f"{name}.parquet").with_columns(
            forced_grade=pl.when("wrong").then(pl.lit("incorrect")).otherwise(pl.lit("correct"))
        )
        flipped = pl.col("refused") ^ (pl.int_range(pl.len()) % 10 == 0)
        again = once.with_columns(pl.lit(1, once["draw"].dtype).alias("draw"), refused=flipped)
        write_outcomes(pl.concat([once, again]), tmp_path / f"{name}.parquet")
    (tmp_path / "gate.toml").write_text('metric = "corrected_refusal_index"\n')
    judged("same", "--policy", "gate.toml")
    run_step("Judge it", tmp_path, candidate="same.parquet")
    guards = json.loads((tmp_path / "refusal-index-gate/gate.json").read_text())["guards"]
    assert [guard["metric"] for guard in guards if guard["metric"].endswith("refusal_index")] == [
        "corrected_refusal_index"
    ]
    assert guards[0]["candidate"] > 0
    assert outputs(tmp_path)["refusal-index"] == ""


@pytest.mark.parametrize(("inconclusive", "status"), [("warn", 0), ("fail", 3)])
def test_inconclusive_verdict_warns_unless_configured_to_fail(tmp_path, judged, inconclusive, status):
    judged("slightly")
    done = run_step("Judge it", tmp_path, candidate="slightly.parquet", inconclusive=inconclusive)
    assert done.returncode == status
    assert ("::warning title=" in done.stdout) == (inconclusive == "warn")
    assert outputs(tmp_path)["verdict"] == "inconclusive"


def test_invalid_inconclusive_input_is_rejected(tmp_path):
    done = run_step("Judge it", tmp_path, candidate="any.parquet", inconclusive="pass")
    assert (done.returncode, done.stderr) == (2, "error: inconclusive: expected warn or fail, got another value\n")


@pytest.mark.nightly
def test_policy_is_passed_on_and_bad_input_gives_no_verdict(tmp_path, runs):
    (tmp_path / "gate.toml").write_text("[at_least]\ncorrect_rate = 0.1\n")
    assert run_step("Judge it", tmp_path, candidate="base.parquet", policy="gate.toml").returncode == 0
    (tmp_path / "outputs").unlink()
    (tmp_path / "gate.toml").write_text("[at_leest]\ncorrect_rate = 0.1\n")
    done = run_step("Judge it", tmp_path, candidate="base.parquet", policy="gate.toml")
    assert done.returncode == 2
    assert "at_least" in done.stderr
    assert not (tmp_path / "outputs").exists()


def test_input_text_is_never_executed(tmp_path, judged):
    """It reaches the command unchanged, and the command rejects it."""
    judged(HOSTILE)
    hostile = dict.fromkeys(("candidate", "baseline", "policy", "variant"), HOSTILE)
    assert run_step("Judge it", tmp_path, **hostile).returncode == 2
    lines = (tmp_path / "told").read_text().splitlines()
    assert {f"--{name}={HOSTILE}" for name in ("baseline", "policy", "variants")} < set(lines)
    assert lines[-2:] == ["--", HOSTILE]
    assert not (tmp_path / "outputs").exists(), "no verdict"
    hostile = dict.fromkeys(("model", "data", "variant", "arguments"), HOSTILE)
    assert run_step("Ask the candidate", tmp_path, **hostile).returncode == 2
    lines = (tmp_path / "told").read_text().splitlines()
    assert {f"--{name}={HOSTILE}" for name in ("model", "data", "variants")} | {HOSTILE} < set(lines)
    assert not (tmp_path / "owned").exists()


@pytest.mark.slow
def test_model_is_evaluated_and_judged_by_the_policy(tmp_path):
    asked = run_step("Ask the candidate", tmp_path, model="almanac/base", arguments="--limit=60\n")
    assert asked.returncode == 0, asked.stderr
    bounds = tmp_path / "gate.toml"
    bounds.write_text("[at_least]\ncorrect_rate = 0.05\n")
    done = run_step("Judge it", tmp_path, model="almanac/base", policy="gate.toml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert outputs(tmp_path)["verdict"] == "pass"
