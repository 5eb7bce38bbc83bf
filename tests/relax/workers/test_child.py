"""What children log reaches the logger of their parent."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from symalloc.errors import RunError
from symalloc.program.reading import ReadOptions
from symalloc.relax.workers.worker_pool import WorkerPool, call_in_child

HERE = "tests.relax.workers.test_child"


def logs(text: str, then: str = "") -> str:
    """Log `text` twice, raise RunError with the text `then`, if there is one."""
    logging.getLogger("symalloc").debug("%s in detail", text)
    logging.getLogger("symalloc.part").warning(text)
    if then:
        raise RunError(then)
    return text


def test_lines_come_with_their_logger_and_level(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "symalloc"):
        assert call_in_child(f"{HERE}:logs", "100 % done", what="logging") == "100 % done"
    assert caplog.record_tuples == [
        ("symalloc", logging.DEBUG, "100 % done in detail"),
        ("symalloc.part", logging.WARNING, "100 % done"),
    ]


def test_what_nobody_wants_to_hear_is_not_sent(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "symalloc"), pytest.raises(RunError, match="nothing came of it"):
        call_in_child(f"{HERE}:logs", "started", "nothing came of it", what="logging")
    assert caplog.record_tuples == [("symalloc.part", logging.WARNING, "started")]


def test_a_job_may_log_for_as_long_as_it_may_take() -> None:
    with pytest.raises(RunError, match=r"logging took longer than 0\.2 seconds"):
        call_in_child("time:sleep", 60, what="logging", timeout=0.2)


def test_workers_that_read_files_log_as_well(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("symalloc.relax.workers.worker_pool._READ_JOB", f"{HERE}:reads")
    with caplog.at_level(logging.INFO, "symalloc"), WorkerPool(1) as pool:
        (result,) = pool.read([Path("m.py")], ReadOptions())
    assert result.file == "m.py"
    assert ("symalloc", logging.INFO, "reading m.py") in caplog.record_tuples


def reads(path: Path, *_: object, tell: object) -> None:
    """Log the name of the file."""
    logging.getLogger("symalloc").info("reading %s", path)
