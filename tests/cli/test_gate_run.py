"""``gate --run``: a candidate that is asked by the command that judges it."""

from __future__ import annotations

import json

import pytest

ASKED = ("--engine", "local", "--limit", "200", "--temperature", "0")


@pytest.fixture
def base(command):
    assert command("run", *ASKED, "--variants", "normal", "--out", "base").exit_code == 0


def test_it_asks_only_until_the_verdict_is_certain(command, base):
    gated = ("gate", "candidate", "--run", "--baseline", "base", *ASKED, "--model", "almanac/small")
    done = command(*gated, "--json", "-")
    document = json.loads(done.stdout)
    assert (done.exit_code, document["verdict"]) == (1, "fail")
    assert document["questions"] < 200
    assert document["looked"].startswith("Look ")
    assert command(*gated, "--json", "-").stdout == done.stdout
    assert command("gate", "candidate", "--baseline", "base").exit_code == 1
    assert " of 3," in json.loads(command(*gated, "--looks", "3", "--json", "-").stdout)["looked"]
    assert " of 20," in json.loads(command(*gated, "--anytime", "--json", "-").stdout)["looked"]


def test_a_run_that_cannot_be_brought_to_its_end_is_inconclusive(command, base):
    gated = ("gate", "candidate", "--run", "--baseline", "base", *ASKED, "--model", "almanac/base")
    done = command(*gated, "--max-requests", "30")
    assert done.exit_code == 3
    assert done.stdout.startswith("INCONCLUSIVE")
    assert "ended early: " in done.stderr


def test_options_of_asking_are_refused_where_nothing_is_asked(command):
    done = command("gate", "base", "--baseline", "base", "--model", "almanac/base")
    assert done.exit_code == 2
    assert "--model: says how a candidate is asked; expected --run beside it" in done.stderr
    assert "--anytime: says" in command("gate", "base", "--baseline", "base", "--anytime").stderr


def test_a_server_that_is_down_is_inconclusive_and_says_why(command, base, monkeypatch):
    monkeypatch.setenv("X_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("X_API_KEY", "k")
    asked = ("--model", "openai-api/x/y", "--engine", "http", "--limit", "20", "--max-retries", "0")
    done = command("gate", "candidate", "--run", "--baseline", "base", *asked, "--looks", "10")
    assert done.exit_code == 3
    assert "127.0.0.1" in done.stderr
    assert command("gate", "candidate", "--baseline", "base").exit_code == 3
    done = command("gate", "few", "--run", "--baseline", "base", *asked[:-4], "--limit", "6", "--max-retries", "0")
    assert (done.exit_code, done.stdout[:12]) == (3, "INCONCLUSIVE")
    assert "6 not finished, normal " in done.stderr
