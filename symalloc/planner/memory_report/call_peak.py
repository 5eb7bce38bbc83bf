"""The peak of a call at one binding: its step, the tensors that are alive there, and the one whose
absence would lower it most.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import msgspec
import numpy as np

from symalloc.analysis.interprocedural import FunctionAnalysis
from symalloc.analysis.register_machine import Activation, Reservation, Step
from symalloc.analysis.tensor_origin import NO_CALL, NO_ORIGIN, OperatorCall, TensorOrigin, operator_calls
from symalloc.analysis.timeline import Timeline, padded
from symalloc.program.ir import Var
from symalloc.size.expr import evaluated

PeakKind: TypeAlias = Literal["tensor", "result", "storage", "callee"]
MOST_TRIED = 64  # tensors that are left out to see what that saves, the largest first


class PeakTensor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Memory that is held at the peak, in bytes rounded up to 64, and its origin as in `TensorOrigin`.

    `until` is the operator that touches it last, null for a result; `idle`: the operator at the peak does
    not touch it.
    """

    name: str
    nbytes: int = msgspec.field(name="bytes")
    kind: PeakKind
    operator: str | None = None
    variable: str | None = None
    source: str | None = None
    until: str | None = None
    idle: bool = False


class Remedy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The tensor without which the peak is least, and the bytes of that peak.

    `alias`: the donated input with which that was tried, where the tensor is a result; `refused`: why there
    is none.
    """

    name: str
    without: int
    alias: str | None = None
    refused: str | None = None


class CallPeak(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The moment at which a call holds most: `nbytes`, while the operator call number `step` of `steps` runs.

    `step` is 0 where none runs.  `tensors` come by size.  `remedy` is null where no tensor alone makes a
    difference.
    """

    nbytes: int = msgspec.field(name="bytes")
    operator: str | None
    step: int
    steps: int
    tensors: tuple[PeakTensor, ...] = ()
    remedy: Remedy | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operators:
    """The `calls` of a function that compute something, in the order of the text, and the program points of
    its instructions by what they bind.
    """

    calls: Sequence[OperatorCall] = ()
    points: Mapping[Var, int] = field(default_factory=dict)

    def running(self, step: Step) -> tuple[int, OperatorCall]:
        """The number and the call of the operator that memory is taken for at a step."""
        point = self.points.get(step.outermost.var, -1)
        number = bisect_left(self.calls, point, key=lambda call: call.point)
        return (number + 1, self.calls[number]) if number < len(self.calls) else (0, NO_CALL)

    @property
    def last(self) -> Mapping[Var, str]:
        """The operator that touches each tensor last."""
        return {var: call.operator for call in self.calls for var in call.touches}


def operators_of(analysis: FunctionAnalysis) -> Operators:
    """The operators of a function."""
    return Operators(calls=tuple(operator_calls(analysis)), points=analysis.cfg.starts)


def call_peak(
    timeline: Timeline, binding: Mapping[str, int], origins: Mapping[Var, TensorOrigin], operators: Operators
) -> CallPeak | None:
    """Return the parts of the peak of a call at `binding`, results included.

    None where a size is not known there, or a function is called within a call of itself.
    """
    totals = timeline.totals(binding)
    if totals is None:
        return None
    most = max(totals, default=0)
    if not most:
        return CallPeak(nbytes=0, operator=None, step=0, steps=len(operators.calls))
    at = totals.index(most)
    step = timeline.steps[at]
    number, call = operators.running(step)
    sized = [(one, padded(evaluated(one.size, binding)) or 0) for one in timeline.at(at)]
    alive = sorted((one for one in sized if one[1]), key=lambda one: -one[1])
    last = operators.last
    tensors = [
        held_tensor(one, step, origins, last, nbytes=size, touched=call.touches) for one, size in alive
    ]
    return CallPeak(
        nbytes=most,
        operator=call.operator or None,
        step=number,
        steps=len(operators.calls),
        tensors=tuple(tensors),
        remedy=_remedy(timeline, alive, tensors, totals),
    )


def held_tensor(
    held: Reservation,
    step: Step,
    origins: Mapping[Var, TensorOrigin],
    last: Mapping[Var, str],
    *,
    nbytes: int = 0,
    touched: Container[Var] = (),
) -> PeakTensor:
    """Return a tensor that is held at a step; `last` touches each last, `touched` are those in use there."""
    under_way = [*_activations(step.frame)]
    frame, var = held.frame, held.var
    while not any(frame is one for one in under_way):
        call = frame.caller  # it has returned what is held
        assert call is not None
        frame, var = call.frame, call.var
    inside = [one.name for one in _activations(frame) if one.caller is not None]
    kind: PeakKind = "storage" if held.why == "storage" and frame is held.frame else "tensor"
    origin = origins.get(var, NO_ORIGIN)
    result = held.why == "result"
    return PeakTensor(
        name=".".join([*reversed(inside), var.name]),
        nbytes=nbytes,
        kind="result" if result else "callee" if inside else kind,
        operator=origin.operator or None,
        variable=origin.variable or None,
        source=origin.source or None,
        until=None if inside or result else last.get(var),
        idle=not inside and var not in touched,
    )


def _activations(frame: Activation) -> Iterator[Activation]:
    """Yield the functions under way, innermost first."""
    yield frame
    if frame.caller is not None:
        yield from _activations(frame.caller.frame)


def _remedy(
    timeline: Timeline,
    alive: Sequence[tuple[Reservation, int]],
    tensors: Sequence[PeakTensor],
    totals: Sequence[int],
) -> Remedy | None:
    """Return the tensor without which the peak is least; of equals one that is idle."""
    best: tuple[int, bool] = (max(totals), False)
    found: Remedy | None = None
    for (held, size), tensor in zip(alive[:MOST_TRIED], tensors, strict=False):
        without = np.array(totals, dtype=object)
        for one in timeline.reservations:
            if one.number == held.number:
                without[one.begin : one.end] -= size
        left = int(without.max())
        if left < max(totals) and (left, not tensor.idle) < best:
            best, found = (left, not tensor.idle), Remedy(name=tensor.name, without=left)
    return found
