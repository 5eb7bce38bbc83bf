"""The dependency graph of a planned function as a document: calls, their edges, bytes by device."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated

import msgspec

from symalloc.analysis.dependencies import DependencyGraph, Dispatch, Edge
from symalloc.analysis.happens_before import OrderName
from symalloc.analysis.interprocedural import FunctionAnalysis
from symalloc.analysis.register_machine import Reservation
from symalloc.analysis.tensor_origin import NO_ORIGIN, TensorOrigin
from symalloc.analysis.timeline import Timeline
from symalloc.planner.memory_plan import Plan
from symalloc.planner.memory_report.lanes import LaneRow, LanesRequest, lane_rows
from symalloc.program.ir import Var
from symalloc.size.expr import Expr


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
