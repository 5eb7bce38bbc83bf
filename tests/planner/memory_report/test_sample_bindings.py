from __future__ import annotations

from collections.abc import Sequence

import pytest

from symalloc.planner.memory_report.function_report import SampleError, bound_label, chosen, standard
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


@pytest.mark.parametrize(
    ("names", "bounded", "shown"),
    [
        (
            "bn",
            function({"b": 8, "n": 64}, {"n": 2}),
            [(1, 2), (8, 16), (8, 64, "bound"), (16, 128, "beyond")],
        ),
        (
            "bn",
            function({"b": 4}),
            [(1, 1), (4, 16, "bound"), (4, 128, "bound"), (4, 1024, "bound"), (8, 1024, "beyond")],
        ),
        (
            ["batch", "vocab_size"],
            function({"batch": 16}),
            [(1, 131072), (16, 131072, "bound"), (32, 131072, "beyond")],
        ),
        (["vocab_size"], function({"vocab_size": 32000}), [(32000, "bound"), (64000, "beyond")]),
    ],
)
def test_extents_grow_and_go_beyond_the_declared_bounds(
    names: Sequence[str], bounded: Function, shown: list[tuple[int | str, ...]]
) -> None:
    """A vocabulary is as large as that of a model; a bound on one symbol leaves the others large."""
    found = standard(names, bounded)
    labels = ((bound_label(at, bounded),) for at in found)
    told = [
        (*(at[name] for name in names), *filter(None, label)) for at, label in zip(found, labels, strict=True)
    ]
    assert told == shown


def test_what_is_asked_for_is_shown() -> None:
    wanted = [{"b": 2, "n": 9, "m": 5}, {"n": 3}]
    (shown,) = chosen(["b", "n", "k"], function({"n": 8}), wanted)
    assert shown == {"b": 2, "n": 9}
    assert bound_label(shown, function({"n": 8})) == "beyond"


def test_only_scalars_can_be_negative() -> None:
    assert chosen(["s"], function(), [{"s": -3}]) == [{"s": -3}]
    with pytest.raises(SampleError, match="`n` is an extent of a tensor and cannot be -3"):
        chosen(["n"], function(), [{"n": -3}])
