"""A program for the engine ``command``: it answers a file of requests by asking the scripted server, several at a time.

The variable ``FAKE_PROGRAM`` says how it fails.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from tests.served import ADDRESS

ROOT = Path(__file__).parents[2]
CONCURRENCY = 10
SCRIPT = f"""#!{sys.executable}
import sys
sys.path.insert(0, {str(ROOT)!r})
from tests.faults.program import main
main(sys.argv[1:])
"""


def install(folder: Path) -> None:
    """Put the program into a folder."""
    folder.mkdir()
    path = folder / "program"
    path.write_text(SCRIPT)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def main(arguments: list[str]) -> None:
    """Answer everything, and write it at the end, as ``vllm run-batch`` does."""
    given = dict(zip(arguments[::2], arguments[1::2], strict=True))
    deed = os.environ.get("FAKE_PROGRAM", "")
    requests = [json.loads(line) for line in Path(given["-i"]).read_text("utf-8").splitlines()]
    if deed == "fails":
        raise SystemExit("CUDA out of memory")
    with httpx.Client(timeout=60) as client, ThreadPoolExecutor(CONCURRENCY) as pool:
        asked = requests[: len(requests) // 2] if deed else requests
        lines = list(pool.map(lambda one: _answered(client, one), asked))
    if deed == "dies":
        os.abort()
    written = "".join(f"{line}\n" for line in lines)
    Path(given["-o"]).write_text(written[:-40] if deed == "tears" else written, "utf-8")
    if deed == "its master is killed":
        os.kill(_parent(os.getppid()), signal.SIGKILL)
    if deed == "fails late":
        raise SystemExit("the engine core died")


def _parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def _answered(client: httpx.Client, asked: dict[str, object]) -> str:
    """Return the line of a request, which holds a failure where there is no sound response."""
    url, key = os.environ[ADDRESS], os.environ["FAKE_API_KEY"]
    try:
        response = client.post(
            f"{url}/chat/completions", json=asked["body"], headers={"Authorization": f"Bearer {key}"}
        )
        came = {"status_code": response.status_code, "body": response.json()}
    except (httpx.HTTPError, ValueError) as error:
        came = {"status_code": 500, "body": {"error": {"message": str(error), "type": "server_error"}}}
    return json.dumps({"id": "x", "custom_id": asked["custom_id"], "response": came, "error": None})
