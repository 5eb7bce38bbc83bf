from __future__ import annotations

import pytest

from symalloc.planner.memory_report.function_report import (
    SampleError,
    bound_label,
    chosen,
    standard,
)
from symalloc.program.ir import Block, Function, Origin, TupleValue
from symalloc.program.types import TupleType


def function(upper: dict[str, int] | None = None, lower: dict[str, int] | None = None) -> Function:
    origins = {"b": Origin.DIMENSION, "n": Origin.DIMENSION, "k": Origin.CAST, "s": Origin.SCALAR}
    return Function(
        name="f",
        params=(),
        body=Block(instructions=(), result=TupleValue(())),
        result_type=TupleType(fields=()),
        symbols=origins,
        declared_upper=upper or {},
        declared_lower=lower or {},
    )


def test_extents_grow_and_stay_within_the_declared_bounds() -> None:
    bounded = function({"b": 8, "n": 64}, {"n": 2})
    shown = standard(["n", "b"], bounded)
    assert [(at["b"], at["n"], bound_label(at, bounded)) for at in shown] == [
        (1, 2, None),
        (8, 16, None),
        (8, 64, "bound"),
        (16, 128, "beyond"),
    ]


def test_a_bound_on_one_symbol_leaves_the_others_large() -> None:
    shown = standard(["b", "n"], function({"b": 4}))
    assert shown[-2:] == [{"b": 4, "n": 1024}, {"b": 8, "n": 1024}]


def test_a_vocabulary_is_as_large_as_that_of_a_model() -> None:
    shown = standard(["batch_size", "vocab_size"], function({"batch_size": 16}))
    assert {at["vocab_size"] for at in shown} == {131072}
    assert [at["batch_size"] for at in shown] == [1, 16, 32]
    assert standard(["vocab_size"], function({"vocab_size": 32000}))[0] == {"vocab_size": 32000}


def test_what_is_asked_for_is_shown() -> None:
    wanted = [{"b": 2, "n": 9, "m": 5}, {"n": 3}]
    (shown,) = chosen(["b", "n", "k"], function({"n": 8}), wanted)
    assert shown == {"b": 2, "n": 9}
    assert bound_label(shown, function({"n": 8})) == "beyond"


def test_only_scalars_can_be_negative() -> None:
    assert chosen(["s"], function(), [{"s": -3}]) == [{"s": -3}]
    with pytest.raises(SampleError, match="`n` is an extent of a tensor and cannot be -3"):
        chosen(["n"], function(), [{"n": -3}])
