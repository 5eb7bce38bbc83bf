"""Numbered bindings are found in the script that TVM prints, the whole of it or a part."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import pytest

from symalloc.program import ir as m
from symalloc.program.printed_script import numbered
from symalloc.program.span import Source, Span
from symalloc.relax.extract import extract, extract_numbered, locate
from symalloc.relax.extract.module_script import ModuleScript
from symalloc.relax.passes.stages import Lowered, WantedStages, lower
from tests.models.zoo import MODELS
from tests.relax.extract.test_spans import BODY, every

WHOLE = "symalloc.relax.extract.module_script.PRINTED_WHOLE"
MODEL_NAMES = ("branches", "nested_branches", "tuple_through_function", "append_to_cache", "recursion")
NUMBER = re.compile(r"cls\.|_?\d+")


def places(program: m.Program) -> Iterator[Span | None]:
    """All that a finding may point at, in order."""
    for function in program.functions.values():
        yield from (instruction.span for instruction in every(function.body))
        yield function.span
        yield function.result_span


def stages_of(name: str) -> list[Lowered]:
    kept: list[Lowered] = []
    everything = WantedStages(first="DispatchSampling")
    lower(MODELS[name].build(), "llvm", wanted=everything, keep=kept.append)  # type: ignore[arg-type]
    return kept


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_every_binding_is_found_where_the_syntax_tree_has_it(name: str) -> None:
    for stage in stages_of(name):
        source = Source(file="f", text=stage.mod.script(show_meta=False), origin=stage.stage)
        expected = list(places(extract(stage.mod, name="Module", source=source)))
        program = locate(stage.mod, name="Module", stage=stage.stage, file="f")
        wanted = list(places(program))
        assert isinstance(program.source, object) and not isinstance(program.source, Source | None)
        printed, found = program.source.located([span for span in wanted if span])
        assert printed == source
        assert [None if span is None else found.get(span) for span in wanted] == expected


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_a_part_of_a_script_has_the_same_statements(name: str) -> None:
    for stage in stages_of(name):
        program = extract_numbered(stage.mod, name="Module", stage=stage.stage, file="f")
        assert isinstance(program.source, ModuleScript)
        wanted = [span for span in places(program) if span][::3]
        whole = statements(program.source, wanted, most=10**6)
        assert whole and statements(program.source, wanted, most=0) == whole


def statements(script: ModuleScript, wanted: list[Span], most: int) -> list[str]:
    """What stands at each place, without the numbers that TVM adds to names that repeat."""
    with patch(WHOLE, most):
        source, found = script.located(wanted)
    lines = source.text.split("\n")
    spans = [found[span] for span in wanted]
    texts = [lines[span.line - 1][span.column - 1 : span.end_column - 1] for span in spans]
    return [NUMBER.sub("", text) for text in texts]


def test_a_part_is_no_longer_than_needed(parse: Callable[[str], Any]) -> None:
    program = extract_numbered(parse(BODY), name="Module", stage="as-is", file="f")
    assert isinstance(program.source, ModuleScript)
    (kernel, _) = [i for i in every(program.functions["main"].body) if isinstance(i, m.CallKernel)]
    assert kernel.span is not None
    with patch(WHOLE, 0):
        source, found = program.source.located([kernel.span])
    assert "def other" not in source.text and "def fill" not in source.text
    assert "R.memory.alloc_storage" not in source.text
    assert source.text.split("\n")[found[kernel.span].line - 1].strip().endswith("fill(a)")


def test_all_kinds_of_statements(parse: Callable[[str], Any]) -> None:
    program = locate(parse(BODY), name="Module", stage="KillAfterLastUse", file="model.json")
    instructions = list(every(program.functions["main"].body))
    spans = [i.span for i in instructions if i.span]
    assert len(set(spans)) == len(instructions)
    assert program.source is not None and not isinstance(program.source, Source)
    source, found = program.source.located(spans)
    assert (source.file, source.origin) == ("model.json", "KillAfterLastUse")
    lines = source.text.split("\n")
    for instruction in instructions:
        assert instruction.span is not None
        line = lines[found[instruction.span].line - 1]
        if not isinstance(instruction, m.If | m.CallKernel):
            assert f"{instruction.var.name}: " in line or f"{instruction.var.name} = " in line


def test_what_the_script_does_not_have(parse: Callable[[str], Any]) -> None:
    source = locate(parse(BODY), name="Module", stage="as-is", file="f").source
    assert source is not None and not isinstance(source, Source)
    absent = [numbered("main", 999, 0), numbered("main", 0, 9), numbered("nobody", 0, 0)]
    of_a_text = Span(file="f", line=1, column=1, end_line=1, end_column=2)
    assert source.located([*absent, of_a_text])[1] == {}
