"""Every instruction points at the text that it came from: its author's, or the script that TVM prints."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from symalloc.program import ir as m
from symalloc.program.span import PrintedScript, Source, Span, numbered
from symalloc.relax.extract import extract, extract_numbered
from symalloc.relax.files.load import load_one
from symalloc.relax.ir_types import bindings_in
from symalloc.relax.passes.stages import Lowered, WantedStages, lower
from symalloc.relax.source_spans import source_of
from tests.models.zoo import MODELS

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


def text_at(span: Span | None, source: object) -> str:
    assert span is not None and isinstance(source, Source)
    lines = source.text.split("\n")[span.line - 1 : span.end_line]
    lines[-1] = lines[-1][: span.end_column - 1]
    lines[0] = lines[0][span.column - 1 :]
    return " ".join(line.strip() for line in lines)


def texts(program: m.Program) -> dict[str, str]:
    """What each variable's instruction points at; the last for a name that repeats."""
    return {i.var.name: text_at(i.span, program.source) for i in every(program.functions["main"].body)}


def test_texts_of_a_users_file(program: Callable[[str], m.Program]) -> None:
    found = texts(program(BODY))
    assert found["a"] == 'R.memory.alloc_tensor(s, 0, R.shape([4]), R.dtype("float32"))'
    assert found["s"] == 'R.memory.alloc_storage( R.shape([16]), 0, R.str("global"), R.dtype("float32") )'
    assert found["t"] == "t = (a, (x, a))"
    assert found["u"] == "u = t[1][0]"
    assert found["w"] == "w = u"
    assert found["k"] == 'R.match_cast(x, R.Tensor((n,), "float32"))'
    assert found["z"] == "R.add(y, y)"


def test_branches_and_definitions(program: Callable[[str], m.Program], script: Callable[[str], str]) -> None:
    lines = script(BODY).splitlines()
    found = program(BODY)
    branch = next(i for i in found.functions["main"].body.instructions if isinstance(i, m.If))
    assert text_at(branch.span, found.source) == "if c"
    for name in ("main", "other"):
        span = found.functions[name].span
        assert span is not None
        assert lines[span.line - 1][span.column - 1 : span.end_column - 1] == f"def {name}"
    for name, text in (("main", "R.add(z, a)"), ("other", "y")):
        assert text_at(found.functions[name].result_span, found.source) == text


def test_nested_calls_point_into_their_statement(program: Callable[[str], m.Program]) -> None:
    found = program(BODY)
    branch = next(i for i in found.functions["main"].body.instructions if isinstance(i, m.If))
    inner, outer = branch.then.instructions
    assert text_at(inner.span, found.source) == "R.multiply(a, a)"
    assert text_at(outer.span, found.source) == "R.add(R.multiply(a, a), w)"


def test_without_a_source_there_are_no_spans(parse: Callable[[str], Any]) -> None:
    found = extract(parse(BODY), name="Module")
    assert found.source is None
    assert all(i.span is None for i in every(found.functions["main"].body))


def test_a_text_that_does_not_fit_gives_no_spans(parse: Callable[[str], Any]) -> None:
    for text in ("", "def (", "class Module:\n    pass\n"):
        found = extract(parse(BODY), name="Module", source=Source(file="m.py", text=text))
        assert all(i.span is None for i in every(found.functions["main"].body))


# -- printed scripts -----------------------------------------------------------------------------------------


def stages_of(name: str) -> list[Lowered]:
    kept: list[Lowered] = []
    everything = WantedStages(first="DispatchSampling")
    lower(MODELS[name].build(), "llvm", wanted=everything, keep=kept.append)  # type: ignore[arg-type]
    return kept


def is_found(program: m.Program) -> None:
    """Every instruction has a place of its own, in order."""
    assert isinstance(program.source, PrintedScript)
    for function in program.functions.values():
        spans = [i.span for i in every(function.body) if i.span]
        _, found = program.source.located(spans)
        lines = [found[span].line for span in spans]
        assert len(lines) == len(list(every(function.body)))
        assert lines == sorted(set(lines))


@pytest.mark.parametrize(
    "name", ["branches", "nested_branches", "tuple_through_function", "append_to_cache", "recursion"]
)
def test_every_binding_has_its_statement(name: str) -> None:
    for stage in stages_of(name):
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
    assert found == [
        ("exp", 7),
        ("add", 7),
        ("exp", 16),
        ("add", 16),
        ("exp", 13),
        ("negative", 14),
        ("exp", 12),  # of the statement: `negative`, not `exp`, has a line of its own
        ("multiply", 12),
        ("tanh", 9),
        ("exp", 10),
        ("add", 10),
    ]
