"""Reading, end to end: what the programs and problems of files and modules look like."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tvm
from tvm import relax

from symalloc.program.ir import Origin
from symalloc.program.reading import FileResult, Message, ReadOptions, result_of
from symalloc.program.span import PrintedScript
from symalloc.relax.read.script import trusted_names
from symalloc.relax.read.script_file import parse_text
from symalloc.relax.workers.programs import read_module, read_path
from tests.modules import sum_squared

IMPORTS = "from tvm.script import ir as I, relax as R, tirx as T\n"
MODULE = (
    "@I.ir_module\nclass M:\n    @R.function\n    def main(x: R.Tensor(('n', 4), 'float32')):\n"
    "        n = T.int64()\n        y = R.add(x, x)\n        z = R.multiply(y, y)\n        return z\n"
)


def read(path: Path, text: str | bytes, **options: Any) -> FileResult:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    told: list[Message] = []
    read_path(path, ReadOptions(**options), tell=told.append)
    return result_of(str(path), told)


def test_modules_inside_functions_point_into_the_users_file(tmp_path: Path) -> None:
    inner = "".join(f"    {line}\n" for line in MODULE.splitlines())
    text = IMPORTS + f"def test_a():\n{inner}def test_b():\n{inner}"
    sink = read(tmp_path / "m.py", text, stage="as-is")
    assert [program.name for program in sink.programs] == ["M:4", "M:13"]
    for program, line in zip(sink.programs, (8, 17), strict=True):
        first, *_ = program.functions["main"].body.instructions
        assert first.span is not None and first.span.line == line
        assert text.split("\n")[line - 1][first.span.column - 1 : first.span.end_column - 1] == "R.add(x, x)"


def test_the_check_can_be_switched_off_in_the_script(tmp_path: Path) -> None:
    text = IMPORTS + MODULE.replace("@I.ir_module", "@I.ir_module(check_well_formed=False)")
    text = text.replace("R.add(x, x)", "R.call_packed('f', x, ty_args=R.Tensor((2, 4), 'float32'))")
    problems = read(tmp_path / "m.py", text, stage="as-is").problems
    assert not [one for one in problems if "ill-formed" in one.message]


def test_an_undefined_symbol_is_left_to_its_rule(tmp_path: Path) -> None:
    n = tvm.tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType([2 * n, 4], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.add(x, x)))
    sink = read(tmp_path / "m.json", str(tvm.ir.save_json(builder.get())))
    assert sink.problems == ()
    assert Origin.UNDEFINED in sink.programs[0].functions["main"].symbols.values()


def test_a_mistake_in_a_script_has_its_place(tmp_path: Path) -> None:
    sink = read(tmp_path / "m.py", IMPORTS + MODULE.replace("R.add(x, x)", "R.add(x, 'float32', 3)"))
    [problem] = sink.problems
    assert problem.message.startswith("TVM's parser refuses it: ")
    assert problem.span is not None
    assert (problem.span.line, problem.span.column) == (7, 13)


# -- trust


def test_trust_runs_what_the_file_imports_and_forgets_what_lies_beside_it(tmp_path: Path) -> None:
    text = "from sizes import WIDTH\n" + IMPORTS + MODULE.replace("4), 'float32'", "WIDTH), 'float32'")
    for width in (8, 16):
        folder = tmp_path / str(width)
        folder.mkdir()
        (folder / "sizes.py").write_text(f"WIDTH = {width}\n")
        assert "imported (sizes.WIDTH)" in read(folder / "m.py", text).problems[0].message
        found = read(folder / "m.py", text, trust=True, stage="as-is")
        assert found.problems == ()
        assert str(width) in str(found.programs[0].functions["main"].params[0].type)


def test_trust_runs_nothing_that_is_not_needed(tmp_path: Path) -> None:
    text = IMPORTS + "open('x', 'w')\ndef helper():\n    pass\n" + MODULE
    assert trusted_names(parse_text(str(tmp_path / "m.py"), text)) == {}


def test_trusted_code_that_fails(tmp_path: Path) -> None:
    text = IMPORTS + "N = [][1]\n" + MODULE.replace("4), 'float32'", "N), 'float32'")
    [problem] = read(tmp_path / "m.py", text, trust=True).problems
    assert problem.message.endswith("m.py failed: IndexError: list index out of range")
    assert problem.span is not None and problem.span.line == text.split("\n").index("N = [][1]") + 1


# -- what TVM prints and cannot read


def test_printed_stages_are_read_back(tmp_path: Path) -> None:
    for program in read_module(sum_squared(), ReadOptions(stage="all")).programs:
        assert isinstance(program.source, PrintedScript)
        sink = read(tmp_path / "m.py", program.source.located(())[0].text, stage="as-is")
        assert sink.problems == ()
        assert [p.name for p in sink.programs] == ["Module"]


def test_a_kernels_own_symbol_beside_that_of_the_module(tmp_path: Path) -> None:
    text = (
        'm = TypeVar("m")\n@I.ir_module\nclass M:\n    @T.prim_func\n'
        '    def k(a: T.Buffer(("m",), "float32"), b: T.Buffer((m,), "float32")):\n        m = T.int32()\n'
        "        for i in range(m):\n            b[i] = a[i]\n\n    @R.function\n"
        '    def main(x: R.Tensor((m,), dtype="float32")):\n        y = R.add(x, x)\n        return y\n'
    )
    assert read(tmp_path / "m.py", text, stage="as-is").problems == ()


def test_a_script_printed_without_its_constants(tmp_path: Path) -> None:
    text = IMPORTS + MODULE.replace("R.add(x, x)", 'R.add(x, metadata["ir.GenericConst"][0])')
    [problem] = read(tmp_path / "m.py", text).problems
    assert problem.message == "not evaluated: the script was printed without its constants"
    assert problem.hint == "print it with mod.script(show_meta=True)"
