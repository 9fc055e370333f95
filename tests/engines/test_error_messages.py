"""What went wrong in one line, and files that are no logs."""

from __future__ import annotations

import asyncio
import shutil

import pytest
from inspect_ai.log import read_eval_log, write_eval_log

from refusal_index.engines.error_messages import error_line
from refusal_index.engines.inspect.earlier_runs import LogError, finished_logs, read_header
from tests.engines.conftest import results, run
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


def test_a_file_that_is_no_log_is_named(tmp_path):
    path = tmp_path / "x.eval"
    path.write_bytes(b"PK nothing")
    with pytest.raises(LogError, match=r"x\.eval: not a readable Inspect log"):
        read_header(path)


def test_logs_of_something_else_are_left_alone(plan_for):
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
        plan.folder.replies.unlink()
        assert len(results(plan.folder).outcomes) == 3, "as a folder of an earlier release has it: logs alone"
        plan.folder.replies.unlink()
        run(plan)
        assert len(api.answered) == 3
        assert foreign.exists()
    assert asyncio.run.__module__ == "asyncio.runners", "reading logs within a loop patches nothing"
