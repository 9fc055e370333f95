"""Reading logs: what went wrong in one line, and files that are no logs of a run."""

from __future__ import annotations

import shutil

import pytest
from refusal_index.engines.inspect.derive import derive
from refusal_index.engines.inspect.gist import gist
from refusal_index.engines.inspect.logs import LogError, read_header, variant_of
from refusal_index.engines.inspect.run import finished_logs, pending_variants, resolve_models, run_variants

from refusal_index.engines.inspect.samples import ONCE
from tests.engines.fake_api import FakeApi


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        ("Error code: 401 - nope", "Error code: 401 - nope"),
        ("EmptyResponseError('the response holds no choices')", "EmptyResponseError: the response holds no choices"),
        ("JSONDecodeError('Unterminated (char 12)')", "JSONDecodeError: Unterminated (char 12)"),
        ("ModelGenerateError('\\nRequest:\\n{}\\n\\nBadRequestError(\\'no\\')')", "BadRequestError: no"),
        ("RetryError(<Future at 0x7f raised TimeOut>)", "TimeOut, however often it was sent again"),
        ("two\n  lines", "two lines"),
    ],
)
def test_an_error_comes_down_to_one_line(shown, expected):
    assert gist(shown) == expected


def test_a_file_that_is_no_log_is_named(tmp_path):
    path = tmp_path / "x.eval"
    path.write_bytes(b"PK nothing")
    with pytest.raises(LogError, match=r"x\.eval: not a readable Inspect log"):
        read_header(path)


def test_logs_of_something_else_are_left_alone(plan_for, folder, monkeypatch):
    with FakeApi(lambda _: "<answer>1</answer>") as api:
        plan = plan_for(api.url, count=3)
        run_variants(plan, resolve_models(plan), folder, {"normal": ONCE})
        (own,) = folder.logs.glob("*.eval")
        foreign = own.with_name("2999-01-01_other.eval")
        shutil.copy(own, foreign)
        real = read_header

        def disguised(path):
            header = real(path)
            if path == foreign:
                header.eval.metadata = {"made": "elsewhere"}
            return header

        for module in ("logs", "run"):
            monkeypatch.setattr(f"refusal_index.engines.inspect.{module}.read_header", disguised)
        assert variant_of(disguised(foreign)) is None
        assert finished_logs(folder) == {"normal": own}
        assert pending_variants(plan, folder) == {}
        run_variants(plan, resolve_models(plan), folder, {"normal": ONCE})
        assert foreign.exists()
        assert not own.exists()
        assert len(derive(folder).outcomes) == 3
