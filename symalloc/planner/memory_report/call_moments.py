"""The peak of a call at one binding: its step, the tensors that are alive there, and the one whose
absence would lower it most.  The dependency graph of a planned function as a document: calls, their edges,
bytes by device and on several lanes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from itertools import accumulate
from typing import Annotated, Literal, TypeAlias

import msgspec
import numpy as np

from symalloc.analysis.dependencies import DependencyGraph, Dispatch, Edge, EdgeKind, OrderName
from symalloc.analysis.interprocedural import FunctionAnalysis
from symalloc.analysis.register_machine import Reservation, Step
from symalloc.analysis.tensor_origin import NO_CALL, NO_ORIGIN, OperatorCall, TensorOrigin, operator_calls
from symalloc.analysis.timeline import Timeline, padded
from symalloc.errors import RunError
from symalloc.planner.memory_plan import Plan
from symalloc.program.ir import Var
from symalloc.size.expr import Expr, evaluated

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
    under_way = [*step.frame.under_way]
    frame, var = held.frame, held.var
    while not any(frame is one for one in under_way):
        call = frame.caller  # it has returned what is held
        assert call is not None
        frame, var = call.frame, call.var
    inside = [one.name for one in frame.under_way if one.caller is not None]
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


class DeviceBytes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The bytes that a call takes on one device: sums that are held together, the largest is the most; null
    where that is no formula.
    """

    device: int
    arenas: tuple[Expr, ...] | None
    results: tuple[Expr, ...] | None
    call: Annotated[tuple[Expr, ...] | None, msgspec.Meta(description="Arenas, results and all else.")]


class FunctionGraph(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The calls of one function, numbered in the order of its text, and edges by these numbers; `topological`
    is an order in which they may run.  `lanes`: calls on 1, 2, … lanes at a `binding`, where that was asked.
    """

    function: str
    order: OrderName
    order_cost: float | None
    nodes: tuple[Dispatch, ...]
    edges: tuple[Edge, ...]
    topological: tuple[int, ...]
    devices: tuple[DeviceBytes, ...]
    binding: dict[str, int] | msgspec.UnsetType = msgspec.UNSET
    lanes: tuple[LaneRow, ...] | msgspec.UnsetType = msgspec.UNSET


class GraphDocument(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="version", tag=1
):
    """The dependency graphs of the functions of a module, planned."""

    functions: tuple[FunctionGraph, ...]


def function_graph(
    graph: DependencyGraph,
    given: FunctionAnalysis,
    plan: Plan,
    planned: Timeline,
    reserved: Timeline,
    *,
    origins: Mapping[Var, TensorOrigin],
    signed: Collection[str],
    lanes: LanesRequest | None = None,
) -> FunctionGraph:
    """Return the document of a graph with fences; `given` is the function before its plan is written into it,
    `planned` a call with it, `reserved` its arenas.

    Raises RunError for lanes, where a time or a size is missing.
    """
    found = given.live_ranges(made.number for made in given.allocations.values())
    moments: dict[int, tuple[int, int]] = {}  # by program point, those at which a call is there
    for moment, point in enumerate(found.points):
        moments[point] = moments.get(point, (moment,))[0], moment + 1
    nodes: list[Dispatch] = []
    for one, instruction in zip(graph.nodes, graph.instructions, strict=True):
        var = instruction.var
        points = range(given.cfg.starts.get(var, 0), given.cfg.ends.get(var, -1) + 1)
        at = [moments[point] for point in points if point in moments]
        live = (min(first for first, _ in at), max(end for _, end in at)) if at else (0, 0)
        source = origins.get(var, NO_ORIGIN).source or None
        nodes.append(msgspec.structs.replace(one, source=source, live=live))
    return FunctionGraph(
        function=graph.function,
        order=plan.order,
        order_cost=plan.order_cost,
        nodes=tuple(nodes),
        edges=graph.edges,
        topological=tuple(range(len(nodes))),
        devices=device_bytes(planned, reserved, signed),
        binding=msgspec.UNSET if lanes is None else lanes.binding,
        lanes=msgspec.UNSET if lanes is None else tuple(lane_rows(graph, lanes)),
    )


def device_bytes(planned: Timeline, reserved: Timeline, signed: Collection[str]) -> tuple[DeviceBytes, ...]:
    """Return the bytes that a call takes on each device."""

    def sums(of: Timeline, device: int, *, results: bool = False) -> tuple[Expr, ...] | None:
        def here(one: Reservation) -> bool:
            return one.device == device and (one.why == "result" or not results)

        return None if of.not_known else of.only(here).sums(signed)

    found = sorted({one.device for one in planned.reservations})
    return tuple(
        DeviceBytes(
            device=device,
            arenas=sums(reserved, device),
            results=sums(planned, device, results=True),
            call=sums(planned, device),
        )
        for device in found
    )


_TIMELESS = frozenset(("check", "if", "ensure_zero_offset", "unknown"))


class LanesRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The seconds that dispatches take, by the variable that one binds or by what it calls, the sizes at
    which a call is simulated, and the bytes that it may hold.
    """

    kernels: dict[str, Annotated[float, msgspec.Meta(ge=0, le=1e9)]]
    binding: dict[str, int] = {}
    budget: int | None = None


class LaneRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A call on so many lanes: its seconds, the most bytes of tensors that are alive, whether these are
    within the budget, and the lane of each dispatch.  `fenced`: its seconds where fences are kept.
    """

    lanes: int
    seconds: float
    nbytes: int = msgspec.field(name="bytes")
    fits: bool
    fenced: float
    lane: tuple[int, ...]


def lane_rows(graph: DependencyGraph, wanted: LanesRequest) -> list[LaneRow]:
    """Return calls on 1, 2, … lanes, until one more does not help; raises RunError if a time is missing."""
    times, rows = wanted.kernels, list[LaneRow]()
    missing = {n.operator for n in graph.nodes if not {n.name, n.operator} & times.keys()} - _TIMELESS
    if missing:
        raise RunError(f"`{graph.function}`: no time is given for {', '.join(sorted(missing))}")
    seconds = [times.get(n.name, times.get(n.operator, 0.0)) for n in graph.nodes]
    unfenced = replace(graph, edges=tuple(e for e in graph.edges if e.kind is not EdgeKind.FENCE))
    while len(rows) < 2 or rows[-1].seconds < rows[-2].seconds:
        begins, ends, lane = schedule(unfenced, seconds, len(rows) + 1)
        nbytes = alive(graph, begins, ends, wanted.binding)
        row = LaneRow(
            lanes=len(rows) + 1,
            seconds=max(ends, default=0.0),
            nbytes=nbytes,
            fits=wanted.budget is None or nbytes <= wanted.budget,
            fenced=max(schedule(graph, seconds, len(rows) + 1)[1], default=0.0),
            lane=lane,
        )
        rows.append(row)
    return rows


def schedule(
    graph: DependencyGraph, seconds: Sequence[float], lanes: int
) -> tuple[Sequence[float], Sequence[float], tuple[int, ...]]:
    """Return when each dispatch begins and ends, and its lane; one lane keeps the order of the text.

    A lane runs one dispatch after the other.  What is ready goes first that the longest way is behind: list
    scheduling (Hu, Parallel sequencing and assembly line problems, 1961).
    """
    count = len(graph.nodes)
    behind, followers = list(seconds), [list[int]() for _ in seconds]
    for n in reversed(range(count)):
        behind[n] += max((behind[m] for m in followers[n]), default=0.0)
        for m in graph.predecessors[n]:
            followers[m].append(n)
    waiting = [len(one) for one in graph.predecessors]
    ready = [(n if lanes == 1 else -behind[n], n) for n in range(count) if not waiting[n]]
    heapify(ready)
    begins, ends, lane = [0.0] * count, [0.0] * count, [0] * count
    running, free, now = list[tuple[float, int]](), list(range(lanes)), 0.0
    while ready or running:
        while ready and free:
            n = heappop(ready)[1]
            begins[n], ends[n], lane[n] = now, now + seconds[n], heappop(free)
            heappush(running, (ends[n], n))
        now, n = heappop(running)
        heappush(free, lane[n])
        for m in followers[n]:
            waiting[m] -= 1
            if not waiting[m]:
                heappush(ready, (m if lanes == 1 else -behind[m], m))
    return begins, ends, tuple(lane)


def alive(
    graph: DependencyGraph, begins: Sequence[float], ends: Sequence[float], binding: Mapping[str, int]
) -> int:
    """Return the most bytes of a function's tensors, results included, that are alive at one time of a
    schedule; raises RunError where a size is not known at `binding`.
    """
    changes: list[tuple[float, int, int]] = []
    for number, touches in graph.touches.items():
        region = graph.points_to.regions[number]
        if region.instruction is not None and not region.external and region.nbytes is not None:
            size = padded(evaluated(region.nbytes, binding))
            if size is None:
                raise RunError(f"`{graph.function}`: the size of `{region.name}` is not known; give --bind")
            users = [t.dispatch for t in touches if t.dispatch < len(begins)]
            begin = min((begins[n] for n in users), default=0.0)
            end = max(ends if len(users) < len(touches) else [ends[n] for n in users], default=0.0)
            changes += (begin, 1, size), (end, 0 if begin < end else 2, -size)
    return max(accumulate(change for _, _, change in sorted(changes)), default=0)
