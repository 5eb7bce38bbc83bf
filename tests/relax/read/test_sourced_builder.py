"""Places of calls that importers bind, nest and hold back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax

from symalloc.relax.ir_types import bindings_in
from symalloc.relax.read.importing import SourcedBuilder
from symalloc.relax.source_spans import place_span, source_of


def built(body: Callable[[SourcedBuilder, Any], Any]) -> list[tuple[str, str]]:
    """The operators that `body` binds, each with its place."""
    builder = SourcedBuilder()
    x = relax.Var("x", relax.TensorType((4, 4), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(body(builder, x))
        builder.emit_func_output(result)
    module = builder.placed(builder.get())
    relax.analysis.well_formed(module)
    calls = [b for b in bindings_in(module["main"].body) if isinstance(b.value, tvm.ir.Call)]
    return [(str(b.value.op.name), source_of(b)) for b in calls]


def test_calls_within_a_call_come_from_where_it_comes_from() -> None:
    def body(builder: SourcedBuilder, x: Any) -> Any:
        with builder.at(place_span("first")):
            y = builder.emit(relax.op.add(relax.op.exp(relax.op.sin(relax.op.cos(x))), x))
        with builder.at(place_span("second", "model.py", 7)):
            return builder.emit(relax.op.concat([relax.op.tanh(y), y]))

    second = "second at model.py:7"
    assert built(body) == [
        ("relax.cos", "first"),
        ("relax.sin", "first"),
        ("relax.exp", "first"),
        ("relax.add", "first"),
        ("relax.tanh", second),
        ("relax.concat", second),
    ]


def test_an_expression_that_is_held_back_keeps_the_place_that_made_it() -> None:
    def body(builder: SourcedBuilder, x: Any) -> Any:
        with builder.at(place_span("first")):
            held = builder.normalize(relax.op.exp(relax.op.tanh(x)))
        with builder.at(place_span("second")):
            return builder.emit(relax.op.add(held, x))

    assert built(body) == [("relax.tanh", "first"), ("relax.exp", "first"), ("relax.add", "second")]


def _shared(builder: Any, x: Any) -> Any:
    shared = relax.op.exp(x)
    return builder.emit(relax.op.add(shared, builder.emit(relax.op.multiply(shared, shared))))


def test_what_is_shared_stays_shared() -> None:
    def body(builder: SourcedBuilder, x: Any) -> Any:
        with builder.at(place_span("one")):
            return _shared(builder, x)

    assert built(body) == [(operator, "one") for operator, _ in built(_shared)]
    assert [operator for operator, _ in built(body)] == ["relax.exp", "relax.multiply", "relax.add"]


def test_without_a_place_nothing_is_said() -> None:
    assert built(lambda builder, x: builder.emit(relax.op.exp(x))) == [("relax.exp", "")]
