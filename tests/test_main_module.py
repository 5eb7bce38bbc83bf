"""`python -m symalloc` is the command."""

from __future__ import annotations

import subprocess
import sys

import pytest

from symalloc import __main__ as entry


def test_the_module_runs_the_command_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "symalloc", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("symalloc ")


def test_an_interrupt_during_the_import_is_answered(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupting:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "symalloc.cli.main":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "symalloc.cli.main", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupting(), *sys.meta_path])
    with pytest.raises(SystemExit) as stop:
        entry.main()
    assert stop.value.code == 130
    assert capsys.readouterr().err == "interrupted\n"
