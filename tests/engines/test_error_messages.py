"""What went wrong in one line, and logs in a run's folder that are not its own."""

from __future__ import annotations

import asyncio
import os
import shutil

import pytest
from inspect_ai.log import read_eval_log, write_eval_log

from refusal_index.engines.failures import error_line
from tests.engines.conftest import finished_logs, run
from tests.engines.fake_api import FakeApi


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        ("Error code: 401 - nope", "Error code: 401 - nope"),
        ("NoAnswerError('the response holds no choices')", "NoAnswerError: the response holds no choices"),
        ("JSONDecodeError('Unterminated (char 12)')", "JSONDecodeError: Unterminated (char 12)"),
        ("ModelGenerateError('\\nRequest:\\n{}\\n\\nBadRequestError(\\'no\\')')", "BadRequestError: no"),
        ("two\n  lines", "two lines"),
    ],
)
def test_an_error_comes_down_to_one_line(shown, expected):
    assert error_line(shown) == expected


@pytest.mark.timeout(60)
def test_logs_of_other_tasks_are_kept_and_unreadable_ones_removed(plan_for, tmp_path):
    with FakeApi(lambda _: "<answer>1</answer>") as api:
        plan = plan_for(api.url, count=3)
        run(plan)
        (own,) = plan.folder.logs.glob("*.eval")
        foreign = own.with_name("2999-01-01_other.eval")
        shutil.copy(own, foreign)
        log = read_eval_log(str(foreign))
        log.eval.metadata = {"made": "elsewhere"}
        write_eval_log(log, str(foreign))
        assert finished_logs(plan.folder) == {"normal": own}
        torn = own.with_name("2999-01-02_torn.eval")
        torn.write_bytes(own.read_bytes()[:1000])
        os.mkfifo(own.with_name("2999-01-03_pipe.eval"))
        own.with_name("2999-01-04_link.eval").symlink_to(tmp_path / "elsewhere")
        plan.folder.replies.unlink()
        plan.folder.outcomes.unlink(missing_ok=True)
        run(plan)
        assert len(api.answered) == 6
        (new,) = (path for path in plan.folder.logs.iterdir() if path != foreign)
        assert new != own
        assert finished_logs(plan.folder) == {"normal": new}
    assert asyncio.run.__module__ == "asyncio.runners", "reading logs within a loop patches nothing"
