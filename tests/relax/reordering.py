"""Modules whose kernels run in another order, on one thread, as an executor of the graph may choose it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax

from symalloc.analysis.dependencies import DependencyGraph
from symalloc.program.ir import Function, Instruction, Kill, Program, Var
from symalloc.program.operands import expressions_of, instructions_of, variables_in, variables_of


def reordered(
    module: tvm.IRModule, program: Program, name: str, graph: DependencyGraph, order: Sequence[int]
) -> tvm.IRModule:
    """`module`, of which `program` was extracted with handles, with the dispatches of a function in `order`.

    What these need in front of them (allocations, views, sizes) comes with them; nothing is killed early.
    """
    function = module[name]
    written = instructions_in(program.functions[name], graph, order)
    block = relax.BindingBlock(with_other_names(function, program.functions[name], written))
    again = relax.Function(
        function.params,
        relax.SeqExpr([block], function.body.body),
        function.ret_ty,
        is_pure=False,
        attrs=function.attrs,
    )
    functions = {v: again if v.name_hint == name else f for v, f in module.functions_items()}
    return tvm.IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)


def with_other_names(function: relax.Function, known: Function, written: Sequence[Instruction]) -> list[Any]:
    """The bindings of instructions, each with those behind it that give a tensor another name."""
    told = {one.handle.__chandle__() for one in known.body.instructions if one.handle is not None}
    names: dict[int, list[Any]] = {}
    for block in function.body.blocks:
        for binding in block.bindings:
            if binding.__chandle__() not in told:
                names.setdefault(binding.value.__chandle__(), []).append(binding)
    found: list[Any] = []

    def named(var: Any) -> None:
        for other in names.pop(var.__chandle__(), ()):
            found.append(other)
            named(other.var)

    for param in function.params:
        named(param)
    for one in written:
        found.append(one.handle)
        named(one.handle.var)
    return found


def instructions_in(function: Function, graph: DependencyGraph, order: Sequence[int]) -> list[Instruction]:
    """The instructions of a function with its dispatches in `order`, each behind what it needs."""
    body = function.body.instructions
    makers: dict[Var | str, Instruction] = {}
    for one in body:
        makers.update({i.var: one for i in (one, *_inside(one))})
        makers.update(dict.fromkeys(getattr(one, "defines", ()), one))
    written: dict[int, Instruction] = {}

    def write(one: Instruction) -> None:
        if id(one) in written:
            return
        for i in (one, *_inside(one)):
            for needed in (*_used(i), *(s for e in expressions_of(i) for s in e.symbols)):
                if makers.get(needed, one) is not one:
                    write(makers[needed])
        written[id(one)] = one

    for number in order:
        write(graph.instructions[number])
    for one in body:
        if not isinstance(one, Kill):
            write(one)
    return list(written.values())


def _inside(one: Any) -> Iterator[Instruction]:
    for side in (getattr(one, "then", None), getattr(one, "otherwise", None)):
        yield from instructions_of(side) if side is not None else ()


def _used(one: Instruction) -> Iterator[Var]:
    yield from variables_of(one)
    for side in (getattr(one, "then", None), getattr(one, "otherwise", None)):
        yield from variables_in(side.result) if side is not None else ()


def error(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> float:
    """The largest difference of two results, in multiples of the largest number."""
    found = 0.0
    for name, array in one.items():
        if array.size and array.dtype.kind == "f":
            scale = max(float(np.abs(array).max()), 1e-30)
            found = max(found, float(np.nan_to_num(np.abs(array - other[name]), nan=scale).max()) / scale)
    return found
