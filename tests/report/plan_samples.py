"""Plan summaries to render: a small one, one of everything, and a large one."""

from __future__ import annotations

from dataclasses import replace

from symalloc.analysis.dependencies import Dispatch, Edge, EdgeKind
from symalloc.analysis.register_machine import Activation, Reservation, Step, Why
from symalloc.analysis.timeline import Timeline
from symalloc.planner.memory_plan import Arena, Buffer, Guard, Placement, Plan, Unplanned
from symalloc.planner.memory_report.call_moments import DeviceBytes, FunctionGraph
from symalloc.planner.memory_report.function_report import (
    FunctionReport,
    PlanOutcome,
    TargetReport,
    TvmComparison,
    function_report,
)
from symalloc.planner.memory_report.non_arena import (
    CalleeTensor,
    KernelUse,
    KernelWorkspace,
    NonArenaMemory,
    ResultTensor,
    WorkspaceStep,
)
from symalloc.program.control_flow import EVERY_PATH
from symalloc.program.ir import Block, Function, Origin, TupleValue, Var
from symalloc.program.types import OpaqueType, TupleType
from symalloc.size.choice import maximum
from symalloc.size.condition import le
from symalloc.size.expr import Expr, constant, round_up, symbol
from symalloc.size.parse import parse_expr

N, K = symbol("n"), symbol("k")
CAST, ARENA = Var("cast", OpaqueType()), Var("arena", OpaqueType())
FRAME = Activation(name="main")


def function(**upper: int) -> Function:
    return Function(
        name="main",
        params=(),
        body=Block(instructions=(), result=TupleValue(())),
        result_type=TupleType(fields=()),
        symbols={"n": Origin.DIMENSION, "k": Origin.CAST},
        declared_upper=upper,
    )


def placed(id_: int, size: Expr, offset: Expr | int, *live: tuple[int, int], **more: object) -> Placement:
    buffer = Buffer(id=id_, name=f"alloc{id_}", size=size, nbytes=size, live=live, **more)  # type: ignore[arg-type]
    return Placement(buffer=buffer, offset=offset if isinstance(offset, Expr) else constant(offset))


def arena(size: Expr, *placements: Placement, device: int = 0, after: Var | None = None) -> Arena:
    return Arena(device=device, scope="global", size=size, placements=placements, defined_by=after)


def timeline(*held: tuple[Expr | int, int, int, Why]) -> Timeline:
    """What a call holds: bytes, the steps [begin, end), and what for; an arena is a `storage`."""
    variables = [
        ARENA if why == "storage" else Var(f"held{i}", OpaqueType()) for i, (*_, why) in enumerate(held)
    ]
    return Timeline(
        steps=[Step(frame=FRAME, var=var) for var in variables],
        reservations=[
            Reservation(
                size=size if isinstance(size, Expr) else constant(size),
                begin=begin,
                end=end,
                path=EVERY_PATH,
                why=why,
                var=var,
                frame=FRAME,
                number=number,
            )
            for number, (var, (size, begin, end, why)) in enumerate(zip(variables, held, strict=True))
        ],
    )


def arenas_alone(plan: Plan) -> PlanOutcome:
    """A call that holds nothing but the arenas of a plan, all of them together."""
    count = len(plan.arenas)
    held = [(one.size, i, count, "storage") for i, one in enumerate(plan.arenas)]
    without = [(size, begin, end, "tensor") for size, begin, end, _ in held]
    return PlanOutcome(
        planned=timeline(*held),  # type: ignore[arg-type]
        unplanned=timeline(*without),  # type: ignore[arg-type]
        arenas=frozenset({ARENA}),
    )


def takes(*sizes: Expr, parallel: bool = False) -> KernelWorkspace:
    steps = [WorkspaceStep(i, size) for i, size in enumerate(sizes)]
    back = [WorkspaceStep(i) for i in reversed(range(len(sizes)))]
    return KernelWorkspace(steps=(*steps, *back), parallel=parallel)


def small() -> FunctionReport:
    """Three tensors in one arena; what is returned is allocated by itself."""
    size = 64 * N
    plan = Plan(
        function="main",
        arenas=(
            arena(
                2 * size,
                placed(0, size, 0, (0, 3)),
                placed(1, size, size, (2, 5)),
                placed(2, size, 0, (4, 6)),
            ),
        ),
        unplanned=(Unplanned(name="alloc3", reason="it is returned", nbytes=size, var=CAST),),
        guards=(Guard(condition=le(N, 72057594037927935), check=le(N, 72057594037927935)),),
    )
    around = NonArenaMemory(returned=(ResultTensor(nbytes=size, allocations=frozenset({CAST})),))
    outcome = PlanOutcome(
        planned=timeline((2 * size, 0, 2, "storage"), (size, 1, 2, "result")),
        unplanned=timeline(
            (size, 0, 2, "tensor"), (size, 1, 3, "tensor"), (size, 2, 4, "tensor"), (size, 3, 4, "result")
        ),
        arenas=frozenset({ARENA}),
    )
    return function_report(plan, function(), around, outcome=outcome)


def everything() -> FunctionReport:
    """Two devices, a late arena, a branch, all kinds of memory outside, and TVM's plan."""
    rounded = round_up(4 * N * N, 64)
    softmax = takes(4 * N * N, 4 * N)
    plan = Plan(
        function="main",
        arenas=(
            arena(
                maximum(512 * N, 256 * N + rounded),
                placed(0, 256 * N, 0, (0, 2), (5, 7)),
                placed(1, 256 * N, 256 * N, (1, 4)),
                placed(2, rounded, 256 * N, (6, 8)),
            ),
            arena(128 * N, placed(3, 128 * N, 0, (3, 9), device=1), device=1),
            arena(64 * K, placed(4, 64 * K, 0, (9, 11)), after=CAST),
        ),
        unplanned=(
            Unplanned(name="kept", reason="the packed function `keep` may keep it", nbytes=64 * N),
            Unplanned(name="open", reason="its shape is not known"),
        ),
        guards=(
            Guard(condition=le(N * N + 64 * N, 1 << 60), check=le(N, 1 << 29)),
            Guard(condition=le(K, 1 << 57), check=le(K, 1 << 57), defined_by=CAST),
        ),
    )
    around = NonArenaMemory(
        returned=(ResultTensor(nbytes=4 * N * N, allocations=frozenset()),),
        made=(CalleeTensor(by="layer", nbytes=32 * N), CalleeTensor(by="relax.run.nonzero", nbytes=None)),
        calls=(softmax, softmax, takes(8 * N, parallel=True), KernelWorkspace(problem="it cannot be read")),
        kernels=(
            KernelUse.of("softmax", softmax, calls=2),
            KernelUse.of("rows", takes(8 * N, parallel=True)),
            KernelUse.of("strange", KernelWorkspace(problem="it cannot be read")),
        ),
    )
    compared = TvmComparison(
        bounded=timeline(
            (65536, 0, 4, "storage"),
            (4096, 1, 3, "storage"),
            (64 * N, 2, 4, "tensor"),
            (4 * N * N, 3, 4, "result"),
        ),
        unbounded=Timeline(problem="StaticPlanBlockMemory fails: Check failed"),
    )
    planned = [(one.size, i, 4, "storage") for i, one in enumerate(plan.arenas)]
    outcome = PlanOutcome(
        planned=replace(
            timeline(*planned, (4 * N * N, 3, 4, "result")),  # type: ignore[arg-type]
            unseen=("keep", "relax.run.nonzero"),
        ),
        unplanned=timeline((64, 0, 2, "storage"), (512 * N, 1, 2, "tensor")),
        arenas=frozenset({ARENA}),
    )
    target = TargetReport(
        name="metal",
        present=False,
        generated=True,
        flavour="arena",
        shared=True,
        kernels=9,
        offset_kernels=4,
        grounded=1,
    )
    about = {"inputs": (), "outputs": (), "source": None}
    graph = FunctionGraph(
        function="main",
        order="total",
        order_cost=None,
        nodes=tuple(
            Dispatch(number=i, operator=name, name=f"lv{i}", device=0, live=(i, i + 1), **about)  # type: ignore[arg-type]
            for i, name in enumerate(("exp", "tanh", "sin"))
        ),
        edges=(Edge(0, 1, EdgeKind.DATA, ("lv0",)), Edge(1, 2, EdgeKind.FENCE, ("lv0 / lv2",))),
        topological=(0, 1, 2),
        devices=(
            DeviceBytes(device=0, arenas=(512 * N, 64 * K), results=(4 * N * N,), call=(516 * N, 64 * K)),
            DeviceBytes(device=1, arenas=(128 * N,), results=(), call=None),
        ),
    )
    return function_report(
        plan, function(n=64), around, outcome=outcome, comparison=compared, target=target, graph=graph
    )


def large() -> FunctionReport:
    """More of everything than a person wants to read."""
    sizes = [64 * N * (i % 7 + 1) + 64 * (i % 5) for i in range(40)]
    stacked = [sum(sizes[:i], start=parse_expr("0")) for i in range(40)]
    placements = [placed(i, size, stacked[i], (i, i + 3)) for i, size in enumerate(sizes)]
    plan = Plan(function="main", arenas=(arena(sum(sizes, start=parse_expr("0")), *placements),))
    taken = [takes(constant(5000 * i + 5000)) for i in range(15)]
    kernels = [KernelUse.of(f"kernel{i}", each) for i, each in enumerate(taken)]
    return function_report(
        plan,
        function(),
        NonArenaMemory(kernels=tuple(kernels), calls=tuple(taken)),
        outcome=arenas_alone(plan),
        wanted=[{"n": 5}],
    )


def many(count: int) -> FunctionReport:
    """As many tensors, most of them short-lived, each with bytes of its own while it lives."""
    sizes = [64 * N * (i % 61 + 1) + 64 * (i % 5) for i in range(count)]
    lives = [(1, 2, 2, 3, 5, 30)[i * i % 6] for i in range(count)]
    placements = [
        placed(i, size, 64 * N * 64 * (i % 32), (i, i + life))
        for i, (size, life) in enumerate(zip(sizes, lives, strict=True))
    ]
    plan = Plan(function="main", arenas=(arena(64 * N * 64 * 33, *placements),))
    held: list[tuple[Expr | int, int, int, Why]] = [
        (size, i, min(i + life, count), "tensor")
        for i, (size, life) in enumerate(zip(sizes, lives, strict=True))
    ]
    outcome = PlanOutcome(
        planned=timeline((plan.arenas[0].size, 0, 1, "storage")),
        unplanned=timeline(*held),
        arenas=frozenset({ARENA}),
    )
    return function_report(plan, function(), NonArenaMemory(), outcome=outcome)


def refused() -> FunctionReport:
    """A guard that refuses one of the bindings shown, and nothing outside the arena."""
    plan = Plan(
        function="main",
        arenas=(arena(64 * N, placed(0, 64 * N, 0, (0, 2))),),
        guards=(Guard(condition=le(N, 100), check=le(N, 100)),),
    )
    wanted = [{"n": 100}, {"n": 101}]
    return function_report(plan, function(), NonArenaMemory(), outcome=arenas_alone(plan), wanted=wanted)


def static() -> FunctionReport:
    """No symbols, nothing planned, nothing outside."""
    return function_report(Plan(function="main"), function(), NonArenaMemory())


SAMPLES = {make.__name__: make for make in (small, everything, large, refused, static)}
