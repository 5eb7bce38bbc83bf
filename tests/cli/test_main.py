from __future__ import annotations

import logging
import os
import re
import sys
from io import StringIO
from pathlib import Path
from time import sleep

import click
import pytest

import symalloc.cli.main as main_module
from symalloc import __main__ as entry
from symalloc.cli import output
from symalloc.cli.main import VERBS, cli
from symalloc.native.library import installed_library
from tests.conftest import Run
from tests.modules import CHAIN
from tests.pool.processes import ran

HEAVY = ("tvm", "tvm_ffi", "sympy", "z3", "numpy")


HELP = "from symalloc.cli.main import main; main(['--help'])"


@pytest.mark.parametrize("statement", ["import symalloc", HELP])
def test_nothing_heavy_is_imported(statement: str) -> None:
    code = (
        f"import sys, atexit\n"
        f"atexit.register(lambda: print('HEAVY', [m for m in {HEAVY!r} if m in sys.modules]))\n"
        f"{statement}\n"
    )
    assert ran(sys.executable, "-c", code)[1].endswith("HEAVY []\n")


def test_help_names_every_verb(run: Run) -> None:
    status, out, _ = run("--help")
    assert status == 0
    assert all(f"\n  {verb} " in out for verb in VERBS)
    assert "Exit status: 0" in out


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_is_documented_and_can_be_quiet_and_coloured(verb: str) -> None:
    command = cli.get_command(None, verb)  # type: ignore[arg-type]
    assert command is not None and command.help
    undocumented = [p.name for p in command.params if isinstance(p, click.Option) and not p.help]
    assert undocumented == []
    assert {"-q", "--quiet", "--color"} <= {option for p in command.params for option in p.opts}


def test_version_names_tvm(run: Run) -> None:
    status, out, _ = run("--version")
    assert status == 0
    assert out.startswith("symalloc 0") and "apache-tvm 0.27" in out
    assert run("-V") == (0, out, "")


def test_help_of_a_verb_is_that_of_its_option(run: Run) -> None:
    assert run("help") == run("--help")
    for verb in VERBS:
        assert run("help", verb) == run(verb, "--help")
    status, out, err = run("help", "pln")
    assert (status, out) == (2, "") and "did you mean `plan`?" in err


def test_colours_are_as_asked_in_front_of_the_verb_or_behind(run: Run) -> None:
    asked = ("prove", "n <= 2*n")
    plain = run(*asked)[1].partition("decided")[0]
    for arguments in (("--color", "always", *asked), (*asked, "--color", "always")):
        _, out, _ = run(*arguments)
        assert "always-valid\x1b" in out
        assert re.sub(r"\x1b\[[\d;]*m", "", out).partition("decided")[0] == plain
    assert "\x1b" not in run("--color", "always", *asked, "--color", "never")[1]
    assert "\x1b" not in run(*asked, "--color", "always", "--format", "json")[1]


def test_quiet_leaves_remarks_out(run: Run) -> None:
    asked = ("prove", "n <= 2*n", "--assume", "k >= 1")
    assert "`k` of --assume" in run(*asked)[2]
    for arguments in (("-q", *asked), (*asked, "--quiet")):
        assert run(*arguments)[2] == ""


class _Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("choice", "terminal", "no_color", "coloured"),
    [
        ("auto", True, "", True),
        ("auto", True, "1", False),
        ("auto", False, "", False),
        ("always", False, "1", True),
        ("never", True, "", False),
    ],
)
def test_colours(
    choice: str, terminal: bool, no_color: str, coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    stream = _Terminal() if terminal else StringIO()
    command = output.output_options(click.command()(lambda: output.colour_wanted(stream)))
    assert command.main(["--color", choice], standalone_mode=False) is coloured


def test_a_bar_shows_what_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.getLogger("symalloc")

    def work() -> None:
        with output.progress("planning"):
            logger.info("planning `main`", extra={"done": 1, "total": 3})
            sleep(0.3)

    def shown(*arguments: str) -> str:
        terminal = _Terminal()
        monkeypatch.setattr(sys, "stderr", terminal)
        output.output_options(click.command()(work)).main(list(arguments), standalone_mode=False)
        return terminal.getvalue()

    monkeypatch.setattr(output, "PATIENCE", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    before = list(logger.handlers), logger.level
    text = shown()
    assert all(part in text for part in ("planning `main`", "1/3"))
    assert "planning" not in shown("-q")
    assert (list(logger.handlers), logger.level) == before


def test_steps_leave_no_lines_on_a_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    problem = tmp_path / "problem.csv"
    problem.write_text("id,lower,upper,size\na,0,2,8\n")
    for option, said in (((), False), (("--debug",), True)):
        terminal = _Terminal()
        monkeypatch.setattr(sys, "stderr", terminal)
        cli.main(args=[*option, "pack", str(problem)], standalone_mode=False)
        assert (str(problem) in terminal.getvalue()) is said


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("symalloc pl", "plain,plan"),
        ("symalloc plan --bi", "plain,--bind"),
        ("symalloc plan --guards fa", "plain,fallback"),
        ("symalloc run x.py --color al", "plain,always"),
        ("symalloc diff examp", "file,examp"),
        ("symalloc lint examp", "file,examp"),
    ],
)
def test_a_shell_completes(words: str, completed: str) -> None:
    count = str(len(words.split()) - 1)
    asked = {"_SYMALLOC_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": count}
    _, out, _ = ran(sys.executable, "-m", "symalloc", env=os.environ | asked)
    assert completed in out.splitlines()


TWO_VERBS = """
import sys
from symalloc.cli.main import main
for verb, *more in (["lint"], ["run", "--bind", "n=3"]):
    try:
        main([verb, "model.py", *more])
    except SystemExit as stop:
        if stop.code:
            sys.exit(f"{verb}: {stop.code}")
"""


def test_torch_is_not_imported_for_a_model_of_another_kind(tmp_path: Path) -> None:
    """Importing TVM imports torch where there is one: here one that says so."""
    for name in ("torch", "torch_c_dlpack_ext"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w').close()\n")
    (tmp_path / "model.py").write_text(CHAIN)
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{Path(main_module.__file__).parents[2]}"}
    status, _, err = ran(sys.executable, "-c", TWO_VERBS, cwd=tmp_path, env=environment)
    assert status == 0, err
    assert not (tmp_path / "imported").exists()


def test_the_cmake_package_lies_beside_the_library(run: Run) -> None:
    status, out, _ = run("--cmake-dir")
    assert (status, out) == (0, f"{installed_library().parent / 'share' / 'cmake' / 'symalloc'}\n")


def test_without_arguments_there_is_help(run: Run) -> None:
    status, out, err = run()
    assert (status, out) == (2, "")
    assert err.startswith("Usage: symalloc")


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (OSError(28, "No space left on device"), 2, "error: output: No space left on device"),
        (RuntimeError("the cat"), 2, "internal error, please report it: RuntimeError: the cat"),
    ],
    ids=["Ctrl-C", "a full disk", "a fault of ours"],
)
def test_what_ends_a_verb_is_one_line(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: BaseException, status: int, said: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(main_module.cli, "invoke", fail)
    found, out, err = run("rules")
    assert (found, out) == (status, "")
    assert err.strip().startswith(said) and "\n" not in err.strip()
    assert ("Traceback" in run("--debug", "rules")[2]) is isinstance(error, RuntimeError)


def test_a_closed_pipe_is_quiet() -> None:
    command = f"{sys.executable} -c 'from symalloc.cli.main import main; main([\"rules\"])' | true"
    assert ran("bash", "-c", command)[2] == ""


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
