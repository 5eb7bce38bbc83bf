from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from symalloc.cli.main import main

MODULE = """\
from tvm.script import ir as I, relax as R, tirx as T


@I.ir_module
class Module:
    @R.function(pure=False)
    def main(x: R.Tensor(("n", 16), "float32")) -> R.Tensor(("n", 16), "float32"):
        a = R.exp(x)
        b = R.add(a, x)
        return R.multiply(a, b)
"""
# a module that cannot run: nobody registered its packed function
PACKED = MODULE.replace(
    "a = R.exp(x)", 'a = R.call_packed("nobody.knows", x, ty_args=(R.Tensor((T.int64(4), 16), "float32"),))'
).replace('("n", 16)', "(4, 16)")


# the second arena is sized by what nonzero finds
LATE = MODULE.replace(
    """        a = R.exp(x)
        b = R.add(a, x)
        return R.multiply(a, b)
""",
    """        n, k = T.int64(), T.int64()
        found = R.match_cast(R.nonzero(R.exp(x)), R.Tensor((2, k), "int64"))
        a = R.astype(found, "float32")
        return R.multiply(x, R.mean(R.exp(a)))
""",
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "module.py").write_text(MODULE)
    (tmp_path / "packed.py").write_text(PACKED)
    (tmp_path / "late.py").write_text(LATE)
    monkeypatch.chdir(tmp_path)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(["run", *arguments])
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


def test_a_run_says_what_came_out(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "module.py", "--bind", "n=5", "--check", "--repeat", "3")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "main(n = 5) returns float32[5, 16]"
    assert lines[1] == "arena: 640 B for 2 tensors, floor: 640 B, arena / floor: 1.000"
    assert lines[2] == "outputs: 320 B"
    assert lines[3].startswith("time: ") and lines[3].endswith("median of 3")
    assert lines[4] == "the same as the unplanned module, bit for bit"


def test_a_dimension_of_zero_runs(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "module.py", "--bind", "n=0", "--check")
    assert status == 0 and "float32[0, 16]" in out


def test_an_arena_that_is_sized_later_has_no_figure_at_entry(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "late.py", "--bind", "n=3", "--check")
    assert (status, err) == (0, "")
    assert "its size depends on what becomes known during the run\n" in out
    assert out.endswith("the same as the unplanned module, bit for bit\n")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["module.py"], "no value for `n`; add --bind n=128"),
        (["module.py", "--bind", "n"], "expected NAME=NUMBER"),
        (["module.py", "--bind", "n=1.5"], "'1.5' is no whole number"),
        (["module.py", "--bind", "n=1,n=2"], "two values, 1 and 2"),
        (["packed.py"], "nobody.knows"),
    ],
)
def test_what_cannot_run_is_said_in_one_line(
    arguments: Sequence[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert err.startswith("error: ") and problem in err and "Traceback" not in err
