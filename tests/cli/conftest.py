"""The program called from within the process."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from symalloc.cli.main import main


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Calls `symalloc` with the arguments; gives the exit status and the text of both streams."""

    def call(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        out, err = capsys.readouterr()
        return int(stop.value.code or 0), out, err

    return call
