"""What stands in a file of TVMScript, found without running it."""

from __future__ import annotations

import ast

import pytest

from symalloc.program.reading import UnreadableError
from symalloc.relax.read.script_file import (
    Constant,
    Imported,
    Metadata,
    ModuleSymbol,
    Opaque,
    constant_of,
    decode,
    dialect_path,
    parse_text,
)

IMPORTS = "from tvm.script import ir as I, relax as R, tirx as T\n"
MODULE = "@I.ir_module\nclass M:\n    pass\n"


def bindings(text: str) -> dict[str, object]:
    return dict(parse_text("m.py", text).bindings)


def test_modules_of_a_file_in_order() -> None:
    text = (
        IMPORTS
        + MODULE
        + "@R.function\ndef lone(x):\n    return x\n"
        + "def test():\n    if True:\n        @I.ir_module(check_well_formed=False)\n        class Inner:\n"
        + "            pass\n"
        + "class Plain:\n    pass\n"
    )
    script = parse_text("m.py", text)
    assert [(m.name, m.first_line) for m in script.modules] == [("M", 2), ("lone", 5), ("Inner", 10)]


def test_modules_of_one_name_are_told_apart_by_their_lines() -> None:
    text = IMPORTS + MODULE + MODULE + MODULE.replace("class M", "class N")
    names = [m.name for m in parse_text("m.py", text).modules]
    assert names == ["M:3", "M:6", "N"]


def test_names_that_only_running_the_file_would_tell() -> None:
    found = bindings(
        "import os, tvm.script as s\nfrom .x import y as z\nN = 2\nM = N * 3\nP = (N, -1.5, 'a')\nQ = f()\n"
        "m = TypeVar('m')\nmetadata = tvm.ir.load_json('{}')\nfor i in (1,):\n    pass\n"
        "with a as b:\n    c = 1\nN2: int = 4\ndef g(): pass\n"
    )
    assert found["os"] == Imported("os")
    assert found["s"] == Imported("tvm.script")
    assert found["z"] == Imported(".x.y")
    assert (found["M"], found["P"], found["N2"]) == (Constant(6), Constant((2, -1.5, "a")), Constant(4))
    assert (found["m"], found["metadata"]) == (ModuleSymbol("m"), Metadata("{}"))
    assert found["c"] == Constant(1)
    assert all(isinstance(found[name], Opaque) for name in ("Q", "i", "b", "g"))


def test_a_name_bound_twice_is_not_trusted() -> None:
    assert isinstance(bindings("N = 1\nN = 2\n")["N"], Opaque)
    assert bindings("N = 1\nN = 1\n")["N"] == Constant(1)
    assert isinstance(
        bindings(IMPORTS + "try:\n    import os as R\nexcept ImportError:\n    pass\n")["R"], Opaque
    )


def test_metadata_that_holds_code_is_not_loaded() -> None:
    assert isinstance(bindings('metadata = tvm.ir.load_json(\'{"type": "ir.EnvFunc"}\')')["metadata"], Opaque)


def test_the_dialect_by_any_name() -> None:
    found = bindings(
        "import tvm\nfrom tvm.script import relax as rx\nfrom tvm import script\nimport os as T\n"
    )

    def path(text: str) -> str | None:
        return dialect_path(ast.parse(text, mode="eval").body, found)

    assert path("rx.memory.alloc_tensor") == "R.memory.alloc_tensor"
    assert path("tvm.script.tirx.int64") == "T.int64"
    assert path("script.ir_module") == "I.ir_module"
    assert path("R.add") == "R.add"
    assert path("T.add") is None
    assert path("tvm.relax.op.add") is None


@pytest.mark.parametrize("text", ["f()", "1 / 2", "x", "1 // 0", "b'x'", "'a' + 'b'", "not 1"])
def test_what_is_no_constant(text: str) -> None:
    assert constant_of(ast.parse(text, mode="eval").body, {}) is None


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x00\x01\x02", "it is a binary file"),
        (b"x = '\xe9'", "it is not valid text"),
        (b"# coding: nonsense\n", "it is not valid text"),
        (b"def f(:\n", "syntax error"),
        (b"x = " + b"-" * 5000 + b"1", "nested too deeply"),
    ],
)
def test_what_is_no_script(data: bytes, message: str) -> None:
    with pytest.raises(UnreadableError, match=message):
        parse_text("m.py", decode(data))


@pytest.mark.parametrize(
    "text", ["x = 1\ndef f(:\n", "def f():\n\n\n", 'x = """a\nb\n', "x = (1,\n\n", "\tx\n  y\n"]
)
def test_a_syntax_error_points_into_the_text(text: str) -> None:
    with pytest.raises(UnreadableError) as caught:
        parse_text("m.py", text)
    span, lines = caught.value.span, text.rstrip().split("\n")
    assert span is not None and 1 <= span.line <= len(lines)
    assert 1 <= span.column <= len(lines[span.line - 1]) + 1


def test_encodings_and_line_ends() -> None:
    text = "é = 1\r\nx = 2\rN = 3\n"
    for data in (
        text.encode(),
        b"\xef\xbb\xbf" + text.encode(),
        b"# coding: latin-1\n" + text.encode("latin-1"),
    ):
        assert parse_text("m.py", decode(data)).bindings["N"] == Constant(3)


def test_columns_count_characters() -> None:
    script = parse_text("m.py", "é = 1; x = 2\n")
    assert script.span(script.tree.body[1]).column == 8
