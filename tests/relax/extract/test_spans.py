"""Every instruction points at the text that it came from: its author's, or the script that TVM prints."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from symalloc.program import ir as m
from symalloc.program.operands import instructions_of
from symalloc.program.span import PrintedScript, Source, Span, numbered
from symalloc.relax.extract import extract, extract_numbered
from symalloc.relax.files.load import load_one
from symalloc.relax.ir_types import bindings_in
from symalloc.relax.source_spans import source_of
from tests.models.zoo import MODELS
from tests.relax.passes.staged import stages_of

Read = Callable[[str], m.Program]

BODY = """
    @T.prim_func
    def fill(a: T.Buffer((4,), "float32")):
        for i in range(4):
            a[i] = T.float32(1)

    @R.function(private=True)
    def other(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        y = R.add(x, x)
        return y

    @R.function(pure=False)
    def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")) -> R.Tensor((4,), "float32"):
        cls = Module
        n = T.int64()
        s = R.memory.alloc_storage(
            R.shape([16]), 0, R.str("global"), R.dtype("float32")
        )
        a = R.memory.alloc_tensor(s, 0, R.shape([4]), R.dtype("float32"))
        _ = cls.fill(a)
        t = (a, (x, a))
        u = t[1][0]
        w = u
        if c:
            y = R.add(R.multiply(a, a), w)
        else:
            k = R.match_cast(x, R.Tensor((n,), "float32"))
            y = k
        with R.dataflow():
            z = R.add(y, y)
            R.output(z)
        cls.fill(a)
        return R.add(z, a)
"""


def text_at(span: Span | None, source: object) -> str:
    assert span is not None and isinstance(source, Source)
    lines = source.text.split("\n")[span.line - 1 : span.end_line]
    lines[-1] = lines[-1][: span.end_column - 1]
    lines[0] = lines[0][span.column - 1 :]
    return " ".join(line.strip() for line in lines)


def test_instructions_and_definitions_point_into_a_users_file(program: Read) -> None:
    found = program(BODY)
    assert [text_at(i.span, found.source) for i in instructions_of(found.functions["main"].body)] == [
        'R.memory.alloc_storage( R.shape([16]), 0, R.str("global"), R.dtype("float32") )',
        'R.memory.alloc_tensor(s, 0, R.shape([4]), R.dtype("float32"))',
        "cls.fill(a)",
        "t = (a, (x, a))",
        "t[1]",
        "u = t[1][0]",
        "w = u",
        "if c",
        "R.multiply(a, a)",
        "R.add(R.multiply(a, a), w)",
        'R.match_cast(x, R.Tensor((n,), "float32"))',
        "R.add(y, y)",
        "cls.fill(a)",
        "R.add(z, a)",
    ]
    for name, result in (("main", "R.add(z, a)"), ("other", "y")):
        assert text_at(found.functions[name].span, found.source) == f"def {name}"
        assert text_at(found.functions[name].result_span, found.source) == result


@pytest.mark.parametrize("text", [None, "", "def (", "class Module:\n    pass\n"])
def test_without_a_source_and_with_a_text_that_does_not_fit_there_are_no_spans(
    text: str | None, parse: Callable[[str], Any]
) -> None:
    source = None if text is None else Source(file="m.py", text=text)
    found = extract(parse(BODY), name="Module", source=source)
    assert all(i.span is None for i in instructions_of(found.functions["main"].body))


# -- printed scripts -----------------------------------------------------------------------------------------


def is_found(program: m.Program) -> None:
    """Every instruction has a place of its own, in order."""
    assert isinstance(program.source, PrintedScript)
    for function in program.functions.values():
        spans = [i.span for i in instructions_of(function.body) if i.span]
        _, found = program.source.located(spans)
        lines = [found[span].line for span in spans]
        assert len(lines) == len(list(instructions_of(function.body)))
        assert lines == sorted(set(lines))


@pytest.mark.parametrize(
    "name", ["branches", "nested_branches", "tuple_through_function", "append_to_cache", "recursion"]
)
def test_every_binding_has_its_statement(name: str) -> None:
    for stage in stages_of(MODELS[name].build()):
        is_found(extract_numbered(stage.mod, name="Module", stage=stage.stage, file="f"))


def test_a_program_whose_script_is_printed_pickles(parse: Callable[[str], Any]) -> None:
    program = extract_numbered(
        parse(BODY), name="Module", stage="KillAfterLastUse", file="model.json", pickles=True
    )
    copied = pickle.loads(pickle.dumps(program))
    is_found(copied)
    source, _ = copied.source.located([])
    assert (source.file, source.origin) == ("model.json", "KillAfterLastUse")


def test_what_the_script_does_not_have(parse: Callable[[str], Any]) -> None:
    source = extract_numbered(parse(BODY), name="Module", stage="as-is", file="f").source
    assert isinstance(source, PrintedScript)
    of_a_text = Span(file="f", line=1, column=1, end_line=1, end_column=2)
    assert source.located([numbered("main", 999), numbered("nobody", 0), of_a_text])[1] == {}


# -- places of calls -----------------------------------------------------------------------------------------

NESTED = """\
from tvm.script import ir as I, relax as R

@I.ir_module
class Module:
    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        a = R.add(R.exp(x), x)
        if c:
            b = R.tanh(a)
            y = R.add(R.exp(b), b)
        else:
            y = R.multiply(
                R.exp(a),
                R.exp(R.negative(a)),
            )
        return R.add(y, R.exp(y))
"""


def test_every_call_of_a_script_that_is_planned_has_its_line(tmp_path: Path) -> None:
    file = tmp_path / "nested.py"
    file.write_text(NESTED)
    found = [
        (str(b.value.op.name).rpartition(".")[2], int(source_of(b).rpartition(":")[2]))
        for b in bindings_in(load_one(file)["main"].body)
        if hasattr(b.value, "op")
    ]
    # the second `exp` on line 12 is in a statement where `negative`, not `exp`, has a line of its own
    outside, otherwise = [("exp", 7), ("add", 7), ("exp", 16), ("add", 16)], [("exp", 13), ("negative", 14)]
    otherwise += [("exp", 12), ("multiply", 12)]
    assert found == [*outside, *otherwise, ("tanh", 9), ("exp", 10), ("add", 10)]
