"""What stands in a file of TVMScript, found without running it."""

from __future__ import annotations

import ast

import pytest

from symalloc.program.reading import UnreadableError
from symalloc.relax.read.script_file import Constant, Opaque, constant_of, decode, parse_text

IMPORTS = "from tvm.script import ir as I, relax as R, tirx as T\n"
MODULE = "@I.ir_module\nclass M:\n    pass\n"


def bindings(text: str) -> dict[str, object]:
    return dict(parse_text("m.py", text).bindings)


def test_modules_of_a_file_in_order() -> None:
    inner = (
        "def test():\n    if True:\n        @I.ir_module(check_well_formed=False)\n        class I: pass\n"
    )
    lone = "@R.function\ndef lone(x):\n    return x\n"
    script = parse_text("m.py", IMPORTS + MODULE + lone + inner + "class Plain:\n    pass\n")
    assert [(m.name, m.first_line) for m in script.modules] == [("M", 2), ("lone", 5), ("I", 10)]


def test_a_name_bound_twice_is_not_trusted() -> None:
    assert isinstance(bindings("N = 1\nN = 2\n")["N"], Opaque)
    assert bindings("N = 1\nN = 1\n")["N"] == Constant(1)
    again = "try:\n    import os as R\nexcept ImportError:\n    pass\n"
    assert isinstance(bindings(IMPORTS + again)["R"], Opaque)


def test_metadata_that_holds_code_is_not_loaded() -> None:
    assert isinstance(bindings('metadata = tvm.ir.load_json(\'{"type": "ir.EnvFunc"}\')')["metadata"], Opaque)


@pytest.mark.parametrize("text", ["f()", "1 / 2", "x", "1 // 0", "b'x'", "'a' + 'b'", "not 1"])
def test_what_is_no_constant(text: str) -> None:
    assert constant_of(ast.parse(text, mode="eval").body, {}) is None


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"x = '\xe9'", "it is not valid text"),
        (b"# coding: nonsense\n", "it is not valid text"),
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
    latin = b"# coding: latin-1\n" + text.encode("latin-1")
    for data in (text.encode(), b"\xef\xbb\xbf" + text.encode(), latin):
        assert parse_text("m.py", decode(data)).bindings["N"] == Constant(3)


def test_columns_count_characters() -> None:
    script = parse_text("m.py", "é = 1; x = 2\n")
    assert script.span(script.tree.body[1]).column == 8
