"""The peak of a call in parts, of programs written by hand."""

from __future__ import annotations

from collections.abc import Mapping

from symalloc.analysis.interprocedural import analyse
from symalloc.analysis.tensor_origin import tensor_origins
from symalloc.analysis.timeline import Timeline
from symalloc.planner.memory_report.call_moments import CallPeak, call_peak, operators_of
from symalloc.program.ir import Program
from symalloc.program.types import TensorType
from tests.program.build import U8, Body, param, program_of, tensor_of


def peak(program: Program, binding: Mapping[str, int]) -> CallPeak:
    analysis = analyse(program)["main"]
    timeline = Timeline.of(program, "main")
    found = call_peak(timeline, binding, tensor_origins(analysis), operators_of(analysis))
    assert found is not None and found.nbytes == timeline.peak(binding)
    assert sum(t.nbytes for t in found.tensors) == found.nbytes
    return found


def waiting() -> Program:
    """`a` waits for the last call while `b` is used."""
    body = Body(param("x", "n"))
    steps = "a = fresh 64*n; fill a; b = fresh 128*n; copy a b; c = fresh 64; copy b c"
    return body.program(body.follow(f"{steps}; out = fresh 192; add a c out")["out"])


def test_the_peak_names_the_call_and_what_is_alive_by_size() -> None:
    found = peak(waiting(), {"n": 10})
    assert (found.operator, found.step, found.steps) == ("copy", 3, 4)
    assert [(t.name, t.nbytes, t.until, t.idle) for t in found.tensors] == [
        ("b", 1280, "copy", False),
        ("a", 640, "add", True),
        ("c", 64, "add", False),
    ]
    assert found.tensors[1].operator == "fill"


def test_the_remedy_leaves_the_least_peak_wherever_that_is_then() -> None:
    found = peak(waiting(), {"n": 10})
    assert found.remedy is not None and (found.remedy.name, found.remedy.without) == ("b", 640 + 64 + 192)
    small = peak(waiting(), {"n": 1})  # the result counts most at small shapes
    assert small.operator == "add"
    assert small.remedy is not None and small.remedy.without == 256


def test_two_peaks_alike_have_no_single_remedy() -> None:
    body = Body(param("x", "n"))
    body.follow("a = fresh 64; fill a; b = fresh 64; fill b")
    assert peak(body.program(), {}).remedy is None


def test_what_a_callee_holds_stands_under_its_name() -> None:
    layer, body = Body(param("x", "m"), name="layer"), Body(param("x", "n"))
    layer.follow("b = fresh 2*m; copy x b")
    a = body.follow("a = fresh 64*n; fill a")["a"]
    body.function("layer", a, kind=TensorType(shape=None, dtype=U8, ndim=1))
    found = peak(program_of(body.finish(), layer.finish(private=True)), {"n": 3})
    assert [(t.name, t.nbytes, t.kind) for t in found.tensors] == [
        ("layer.b", 384, "callee"),
        ("a", 192, "tensor"),
    ]
    assert found.operator == "layer"


def test_what_was_returned_stands_under_the_name_that_it_has_now() -> None:
    """The machine holds what the last function returned, however long ago that was used."""
    layer, body = Body(param("x", "m"), name="layer"), Body(param("x", "n"))
    inner = layer.follow("inner = fresh m; fill inner")["inner"]
    given = body.function("layer", body.params[0], kind=tensor_of("n"))
    for _ in range(2):
        given = body.follow("next = fresh n; copy given next", given=given)["next"]
    found = peak(program_of(body.finish(given), layer.finish(inner, private=True)), {"n": 64})
    assert [(t.kind, t.nbytes) for t in found.tensors] == [("tensor", 64), ("tensor", 64), ("result", 64)]
    assert found.tensors[0].name.startswith("v") and found.tensors[0].idle


def test_a_size_that_is_not_known_leaves_the_peak_unknown() -> None:
    body = Body(param("x", "n"))
    body.follow("a = fresh k; fill a")
    program = body.program()
    analysis = analyse(program)["main"]
    assert call_peak(Timeline.of(program, "main"), {"n": 1}, {}, operators_of(analysis)) is None
