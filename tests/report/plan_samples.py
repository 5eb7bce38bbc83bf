"""Plan summaries to render: a small one, one of everything, and a large one."""

from __future__ import annotations

from symalloc.analysis.call_memory import CallMemory, HeldMemory
from symalloc.planner.memory_plan import Arena, Buffer, Guard, Placement, Plan, Unplanned
from symalloc.planner.memory_report.function_report import FunctionReport, function_report
from symalloc.planner.memory_report.kernel_workspace import KernelWorkspace, WorkspaceStep
from symalloc.planner.memory_report.non_arena import (
    CalleeTensor,
    KernelWorkspaceUse,
    NonArenaMemory,
    ResultTensor,
)
from symalloc.planner.memory_report.plan_outcome import PlanOutcome, TvmComparison, TvmPlan
from symalloc.planner.memory_report.target_report import TargetReport
from symalloc.program.ir import Block, Function, Origin, TupleValue, Var
from symalloc.program.types import OpaqueType, TupleType
from symalloc.size.choice import maximum
from symalloc.size.condition import le
from symalloc.size.expr import Expr, constant, round_up, symbol
from symalloc.size.parse import parse_expr

N, K = symbol("n"), symbol("k")
CAST = Var("cast", OpaqueType())


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


def held(*memory: tuple[Expr | int, int, int]) -> tuple[HeldMemory, ...]:
    return tuple(
        HeldMemory(size=size if isinstance(size, Expr) else constant(size), begin=begin, end=end)
        for size, begin, end in memory
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
        planned=CallMemory(storages=held((2 * size, 0, 6)), results=held((size, 6, 7))),
        unplanned=CallMemory(
            fresh=held((size, 0, 2), (size, 2, 4), (size, 4, 6)), results=held((size, 6, 7))
        ),
    )
    return function_report(plan, function(), around, outcome=outcome)


def everything() -> FunctionReport:
    """Two devices, a late arena, a branch, a callee, all kinds of memory outside, and TVM's plan."""
    rounded = round_up(4 * N * N, 64)
    softmax = takes(4 * N * N, 4 * N)
    plan = Plan(
        function="main",
        arenas=(
            arena(
                maximum(512 * N, 256 * N + rounded),
                placed(0, 256 * N, 0, (0, 2), (5, 7)),
                placed(1, 256 * N, 256 * N, (1, 4)),
                placed(2, rounded, 256 * N, (6, 8), callee="layer"),
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
            KernelWorkspaceUse(kernel="softmax", scratch=softmax, calls=2),
            KernelWorkspaceUse(kernel="rows", scratch=takes(8 * N, parallel=True)),
            KernelWorkspaceUse(kernel="strange", scratch=KernelWorkspace(problem="it cannot be read")),
        ),
        packed=("keep", "relax.run.nonzero"),
    )
    compared = TvmComparison(
        bounded=TvmPlan(
            memory=CallMemory(
                storages=held((65536, 0, 9), (4096, 3, 5)),
                fresh=held((64 * N, 5, 9)),
                results=held((4 * N * N, 9, 10)),
            )
        ),
        unbounded=TvmPlan(problem="StaticPlanBlockMemory fails: Check failed"),
    )
    outcome = PlanOutcome(
        planned=CallMemory(storages=held((512 * N, 0, 9)), results=held((4 * N * N, 9, 10))),
        unplanned=CallMemory(storages=held((64, 0, 3)), fresh=held((512 * N, 0, 10))),
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
    return function_report(plan, function(n=64), around, outcome=outcome, comparison=compared, target=target)


def large() -> FunctionReport:
    """More of everything than a person wants to read."""
    sizes = [64 * N * (i % 7 + 1) + 64 * (i % 5) for i in range(40)]
    stacked = [sum(sizes[:i], start=parse_expr("0")) for i in range(40)]
    placements = [placed(i, size, stacked[i], (i, i + 3)) for i, size in enumerate(sizes)]
    plan = Plan(function="main", arenas=(arena(sum(sizes, start=parse_expr("0")), *placements),))
    kernels = [
        KernelWorkspaceUse(kernel=f"kernel{i}", scratch=takes(constant(5000 * i + 5000))) for i in range(15)
    ]
    return function_report(
        plan,
        function(),
        NonArenaMemory(kernels=tuple(kernels), calls=tuple(use.scratch for use in kernels)),
        wanted=[{"n": 5}],
    )


def refused() -> FunctionReport:
    """A guard that refuses one of the bindings shown, and nothing outside the arena."""
    plan = Plan(
        function="main",
        arenas=(arena(64 * N, placed(0, 64 * N, 0, (0, 2))),),
        guards=(Guard(condition=le(N, 100), check=le(N, 100)),),
    )
    return function_report(plan, function(), NonArenaMemory(), wanted=[{"n": 100}, {"n": 101}])


def static() -> FunctionReport:
    """No symbols, nothing planned, nothing outside."""
    return function_report(Plan(function="main"), function(), NonArenaMemory())
