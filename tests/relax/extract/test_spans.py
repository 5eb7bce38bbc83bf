"""Every instruction points at the text that it came from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from symalloc.program import ir as m
from symalloc.program.span import Source
from symalloc.relax.extract import extract

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


def every(block: m.Block) -> Iterator[m.Instruction]:
    for instruction in block.instructions:
        yield instruction
        if isinstance(instruction, m.If):
            yield from every(instruction.then)
            yield from every(instruction.otherwise)


def texts(program: m.Program) -> dict[str, str]:
    """What each variable's instruction points at; the last for a name that repeats."""
    return {i.var.name: i.text for i in every(program.functions["main"].body)}


def test_texts_of_a_users_file(program: Callable[[str], m.Program]) -> None:
    found = texts(program(BODY))
    assert found["a"] == 'R.memory.alloc_tensor(s, 0, R.shape([4]), R.dtype("float32"))'
    assert found["s"] == 'R.memory.alloc_storage( R.shape([16]), 0, R.str("global"), R.dtype("float32") )'
    assert found["t"] == "t = (a, (x, a))"
    assert found["u"] == "u = t[1][0]"
    assert found["w"] == "w = u"
    assert found["k"] == 'R.match_cast(x, R.Tensor((n,), "float32"))'
    assert found["z"] == "R.add(y, y)"


def test_every_span_lies_on_the_line_of_its_statement(
    program: Callable[[str], m.Program], script: Callable[[str], str]
) -> None:
    lines = script(BODY).splitlines()
    for instruction in every(program(BODY).functions["main"].body):
        span = instruction.span
        assert span is not None, instruction
        assert span.file == "m.py"
        if span.line == span.end_line:
            assert lines[span.line - 1][span.column - 1 : span.end_column - 1] == instruction.text


def test_branches_and_definitions(program: Callable[[str], m.Program], script: Callable[[str], str]) -> None:
    lines = script(BODY).splitlines()
    found = program(BODY)
    branch = next(i for i in found.functions["main"].body.instructions if isinstance(i, m.If))
    assert branch.text == "if c"
    assert branch.span is not None
    assert lines[branch.span.line - 1].strip() == "if c:"
    for name in ("main", "other"):
        span = found.functions[name].span
        assert span is not None
        assert lines[span.line - 1][span.column - 1 : span.end_column - 1] == f"def {name}"


def test_what_a_function_returns(program: Callable[[str], m.Program], script: Callable[[str], str]) -> None:
    lines = script(BODY).splitlines()
    functions = program(BODY).functions
    for name, text in (("main", "R.add(z, a)"), ("other", "y")):
        span = functions[name].result_span
        assert span is not None
        assert lines[span.line - 1][span.column - 1 : span.end_column - 1] == text
        assert lines[span.line - 1].strip() == f"return {text}"


def test_two_statements_alike_are_two_places(program: Callable[[str], m.Program]) -> None:
    calls = [i for i in program(BODY).functions["main"].body.instructions if isinstance(i, m.CallKernel)]
    first, second = (i.span for i in calls)
    assert first is not None
    assert second is not None
    assert first.line < second.line


def test_nested_calls_point_into_their_statement(program: Callable[[str], m.Program]) -> None:
    branch = next(i for i in program(BODY).functions["main"].body.instructions if isinstance(i, m.If))
    inner, outer = branch.then.instructions
    assert inner.text == "R.multiply(a, a)"
    assert outer.text == "R.add(R.multiply(a, a), w)"


def test_without_a_source_there_are_no_spans(parse: Callable[[str], Any]) -> None:
    found = extract(parse(BODY), name="Module")
    assert found.source is None
    assert all(i.span is None and i.text == "" for i in every(found.functions["main"].body))


def test_a_text_that_does_not_fit_gives_no_spans(parse: Callable[[str], Any]) -> None:
    for text in ("", "def (", "class Module:\n    pass\n"):
        found = extract(parse(BODY), name="Module", source=Source(file="m.py", text=text))
        assert all(i.span is None for i in every(found.functions["main"].body))


def test_columns_count_characters(program: Callable[[str], m.Program]) -> None:
    found = program(
        """
        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32")) -> R.Object:
            w = ("ä", x)
            return w
        """
    )
    instruction = found.functions["main"].body.instructions[0]
    assert instruction.text == 'w = ("ä", x)'
