from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

import symalloc.cli.main as main_module
from symalloc import __main__ as entry
from symalloc.cli.main import VERBS, cli
from symalloc.native.library import installed_library

Run = Callable[..., tuple[int, str, str]]
HEAVY = ("tvm", "tvm_ffi", "sympy", "z3", "numpy")


HELP = "from symalloc.cli.main import main; main(['--help'])"


@pytest.mark.parametrize("statement", ["import symalloc", HELP])
def test_nothing_heavy_is_imported(statement: str) -> None:
    code = (
        f"import sys, atexit\n"
        f"atexit.register(lambda: print('HEAVY', [m for m in {HEAVY!r} if m in sys.modules]))\n"
        f"{statement}\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("HEAVY []\n")


def test_help_names_every_verb(run: Run) -> None:
    status, out, _ = run("--help")
    assert status == 0
    assert all(f"\n  {verb} " in out for verb in VERBS)
    assert "Exit status: 0" in out


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_is_there_and_documented(verb: str) -> None:
    command = cli.get_command(None, verb)  # type: ignore[arg-type]
    assert command is not None and command.help
    undocumented = [p.name for p in command.params if isinstance(p, click.Option) and not p.help]
    assert undocumented == []


def test_version_names_tvm(run: Run) -> None:
    status, out, _ = run("--version")
    assert status == 0
    assert out.startswith("symalloc 0") and "apache-tvm 0.27" in out


def test_the_cmake_package_lies_beside_the_library(run: Run) -> None:
    status, out, _ = run("--cmake-dir")
    assert (status, out) == (0, f"{installed_library().parent / 'share' / 'cmake' / 'symalloc'}\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["lnt"], ["no such command: `lnt`", "did you mean `lint`?"]),
        (["--verson"], ["--verson", "--version"]),
        (["lint", "--formt", "json", "x"], ["--formt", "--format"]),
        (["lint"], ["nothing to lint", "`symalloc lint --help`"]),
        (["lint", "x.py", "--format", "xml"], ["xml", "sarif"]),
    ],
)
def test_wrong_usage_is_2_with_a_suggestion(run: Run, arguments: list[str], words: list[str]) -> None:
    status, out, err = run(*arguments)
    assert status == 2
    assert out == ""
    assert all(word in err for word in words)


def test_without_arguments_there_is_help(run: Run) -> None:
    status, out, err = run()
    assert (status, out) == (2, "")
    assert err.startswith("Usage: symalloc")


def _raise(error: BaseException) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


def test_ctrl_c_is_no_traceback(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main_module.cli, "invoke", _raise(KeyboardInterrupt()))
    status, out, err = run("rules")
    assert (status, out, err.strip()) == (130, "", "interrupted")


def test_a_fault_of_ours_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main_module.cli, "invoke", _raise(RuntimeError("the cat sat on it")))
    status, _, err = run("rules")
    assert status == 2
    assert err.startswith("internal error, please report it: RuntimeError: the cat sat on it")
    assert "Traceback" not in err
    assert "Traceback" in run("--debug", "rules")[2]


def test_a_full_disk_is_no_fault_of_ours(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main_module.cli, "invoke", _raise(OSError(28, "No space left on device")))
    assert run("rules") == (2, "", "error: output: No space left on device\n")


def test_a_closed_pipe_is_quiet(tmp_path: Path) -> None:
    command = f"{sys.executable} -c 'from symalloc.cli.main import main; main([\"rules\"])' | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == ""


# -- `python -m symalloc` ------------------------------------------------------------------------------------


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
