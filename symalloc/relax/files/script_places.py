"""Places for the calls that TVM's parser leaves without one: those that other calls are written in."""

from __future__ import annotations

from collections.abc import Iterator

import tvm
from tvm import relax
from tvm.ir import Call

from symalloc.program.span import Source
from symalloc.relax.extract.spans import Places, ScriptText
from symalloc.relax.ir_types import Node, VarNode, each
from symalloc.relax.source_spans import map_places, place_span


def with_script_places(module: tvm.IRModule, source: Source, name: str | int) -> tvm.IRModule:
    """`module`, which was parsed from `source`, with places found by the statements of its functions.

    `name` is that of its class, or the line of it.
    """
    text = ScriptText(source, name, trust_spans=True)
    found: dict[int, Node] = {}
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            for var, line in _lines(function.body, text.places(variable.name_hint)):
                found[var.__chandle__()] = place_span("", source.file, line)

    def missing(var: VarNode, call: Node) -> Node | None:
        return found.get(var.__chandle__()) if call.span is None else None

    return map_places(module, missing) if found else module


def _lines(body: Node, places: Places) -> Iterator[tuple[VarNode, int]]:
    """The variables that calls without a span are bound to, with their lines."""
    for block in each(body.blocks) if isinstance(body, relax.SeqExpr) else ():
        for binding in each(block.bindings):
            var, value = binding.var, binding.value
            span, _ = places.of(var, value)
            if isinstance(value, relax.If):
                for taken, side in ((True, value.true_branch), (False, value.false_branch)):
                    with places.branch(taken=taken):
                        yield from _lines(side, places)
            elif isinstance(value, Call) and value.span is None and span is not None:
                yield var, span.line
