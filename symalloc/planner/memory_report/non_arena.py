"""Memory that a function needs besides its arenas: results, tensors of its callees, its kernels' own
workspace.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import msgspec

from symalloc.analysis.call_expansion import bind_kernel, values_at_call
from symalloc.analysis.donation import inputs_of, outputs_of
from symalloc.analysis.interprocedural import FunctionAnalysis
from symalloc.analysis.regions import PointsTo, align
from symalloc.analysis.sets import NO_REGIONS, members
from symalloc.program import ir
from symalloc.program.created_state import handed_extents
from symalloc.program.operands import function_references, instructions_of, type_of
from symalloc.program.types import TensorType, type_leaves
from symalloc.size.choice import maximum, undominated
from symalloc.size.expr import ZERO, Expr

PAGE = 4096  # bytes: what TVM's pools, of workspace and of storages, round every request up to
MOST_CALLS = 16  # after so many calls of a function its pool is taken as settled


class WorkspaceStep(NamedTuple):
    """A kernel takes `size` bytes as `slot`, or gives them back where `size` is None."""

    slot: int
    size: Expr | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelWorkspace:
    """The workspace that one kernel takes and gives back, in order, in bytes over the kernel's own symbols.

    `problem` says why that is not known; `steps` is empty then.  `parallel`: some of it is taken inside a
    parallel loop, by each worker thread from a pool of its own.
    """

    steps: tuple[WorkspaceStep, ...] = ()
    problem: str | None = None
    parallel: bool = False

    def substitute(self, replacement: Mapping[str, Expr]) -> KernelWorkspace:
        """Return the same at a call that gives the kernel's symbols these values."""
        steps = (
            WorkspaceStep(slot, None if size is None else size.substitute(replacement))
            for slot, size in self.steps
        )
        return replace(self, steps=tuple(steps))

    @property
    def symbols(self) -> frozenset[str]:
        """The symbols of all sizes."""
        return frozenset().union(*(size.symbols for _, size in self.steps if size is not None))

    @property
    def peak(self) -> Expr:
        """The most bytes that the kernel holds at one moment."""
        held: dict[int, Expr] = {}
        sums: list[Expr] = []
        for slot, size in self.steps:
            if size is None:
                held.pop(slot, None)
            else:
                held[slot] = size
                sums.append(sum(held.values(), start=ZERO))
        return maximum(*undominated(sums)) if sums else ZERO


def workspace_pool_bytes(calls: Sequence[KernelWorkspace], binding: Mapping[str, int]) -> int:
    """Return the bytes that TVM's pool of a fresh thread holds once a function has made `calls` many times.

    Follows apache-tvm 0.27's WorkspacePool: whole pages, the smallest free block that fits, otherwise the
    largest free one is exchanged for one of the size that is asked for.  Nothing is ever returned.  Raises
    KeyError where `binding` lacks a symbol.
    """
    requests = [
        (slot, None if size is None else max(-(-size.evaluate(binding) // PAGE), 1) * PAGE)
        for call in calls
        for slot, size in call.steps
    ]
    free: list[int] = []  # blocks by size
    lent: dict[int, int] = {}
    before = -1
    for _ in range(MOST_CALLS):
        for slot, wanted in requests:
            if wanted is not None:
                fitting = bisect_left(free, wanted)
                if fitting < len(free):
                    wanted = free.pop(fitting)
                elif free:
                    free.pop()
                lent[slot] = wanted
            elif slot in lent:
                insort(free, lent.pop(slot))
        held = sum(free) + sum(lent.values())
        if held == before:
            break
        before = held
    return before


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultTensor:
    """A tensor that the function returns and that did not come in as an argument.

    `nbytes` is None where its size is not known; `allocations` are the variables that it may have been
    allocated as.
    """

    nbytes: Expr | None
    allocations: frozenset[ir.Var]


class DonatedResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tensor that is returned in an input, of `room` bytes, which the function has written."""

    output: str
    input: str
    nbytes: Expr | None = msgspec.field(name="bytes")
    room: Expr | None


class CalleeTensor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tensor that a called function or operator makes (`by`) and that is not returned."""

    by: str
    nbytes: Expr | None = msgspec.field(name="bytes")


class KernelUse(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A kernel that takes workspace of its own while it runs; `problem`: why its bytes are not known.

    `parallel`: it is taken by each worker thread of a parallel loop.
    """

    name: str
    calls: int
    nbytes: Expr | None = msgspec.field(name="bytes")
    problem: str | None
    parallel: bool

    @classmethod
    def of(cls, name: str, taken: KernelWorkspace, calls: int = 1) -> KernelUse:
        """The use of a kernel that takes `taken` at each of so many calls."""
        known = taken.peak if taken.problem is None else None
        return cls(name=name, calls=calls, nbytes=known, problem=taken.problem, parallel=taken.parallel)


class ShrunkKernel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A kernel that was to take less workspace: `gone` of its buffers are, those `planned` are tensors of a
    plan, and `left` says why others are neither.

    `before`: the bytes that each of its `calls` took as it was given; null where they are not known.
    """

    name: str
    gone: int
    left: Mapping[str, str]
    planned: tuple[str, ...] = ()
    calls: int = 0
    before: Expr | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NonArenaMemory:
    """Memory of one call of a function that lies in no arena, in bytes over the function's symbols.

    `calls` holds what each kernel call takes from the pool, in order, both sides of an If one after the
    other; `kernels` the same once for each kernel and size.  `returned_inputs` are the parameters, each with
    the path to a field, that the result may hold; True if it always does.  `table`: the bytes in which the
    machine keeps sizes, or fewer.  With `branches` some of it may not be taken.  `shrunk` are the kernels
    that were to take less.
    """

    returned: tuple[ResultTensor, ...] = ()
    donated: tuple[DonatedResult, ...] = ()
    made: tuple[CalleeTensor, ...] = ()
    calls: tuple[KernelWorkspace, ...] = ()
    kernels: tuple[KernelUse, ...] = ()
    returned_inputs: Mapping[tuple[int, tuple[int, ...]], bool] = field(default_factory=dict)
    table: int = 0
    branches: bool = False
    shrunk: tuple[ShrunkKernel, ...] = ()


def non_arena_memory(
    program: ir.Program, analysis: FunctionAnalysis, scratch: Mapping[str, KernelWorkspace], table: int = 0
) -> NonArenaMemory:
    """Return the memory that the function that was analysed needs outside its arenas.

    `scratch` holds the workspace of the kernels by name.  The kernels of the functions that it calls count as
    its own; recursion is not followed.
    """
    function, points_to = analysis.cfg.function, analysis.points_to
    walk = _KernelCalls(program=program, scratch=scratch)
    found = list(walk.block(function.body, {}, (function.name,)))
    return NonArenaMemory(
        returned=tuple(_returned(points_to)),
        donated=tuple(_donated(analysis)),
        made=tuple(_made(points_to)),
        calls=tuple(taken for _, taken in found),
        kernels=tuple(KernelUse.of(*use, calls=count) for use, count in Counter(found).items()),
        returned_inputs=dict(_returned_inputs(points_to)),
        table=table,
        branches=bool(walk.branches),
    )


# -- workspace ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _KernelCalls:
    """Follows the calls of a function in the order of the text."""

    program: ir.Program
    scratch: Mapping[str, KernelWorkspace]
    branches: list[ir.Instruction] = field(default_factory=list)

    def block(
        self, block: ir.Block, bound: Mapping[str, Expr], callers: tuple[str, ...]
    ) -> Iterator[tuple[str, KernelWorkspace]]:
        """The kernel calls of `block`; `bound` gives its symbols in those of the outermost function."""
        for instruction in instructions_of(block):
            match instruction:
                case ir.CallKernel(kernel=kernel, arguments=arguments) if self.takes(kernel):
                    values = _composed(bind_kernel(self.program.kernels[kernel], arguments), bound)
                    yield kernel, self.at(kernel, values)
                case ir.CallPacked(arguments=arguments) as call:
                    handed = filter(self.takes, function_references(arguments))
                    for kernel in handed:
                        extents = handed_extents(call, self.program.kernels[kernel])
                        yield kernel, self.at(kernel, _composed(extents, bound))
                case ir.If():
                    self.branches.append(instruction)
                case ir.CallFunction(name=name) if name in self.program.functions and name not in callers:
                    self.branches.append(instruction)
                    callee = self.program.functions[name]
                    values = _composed(values_at_call(callee, instruction), bound)
                    yield from self.block(callee.body, values, (*callers, name))

    def takes(self, kernel: str) -> bool:
        """True if a kernel takes workspace, or may."""
        taken = self.scratch.get(kernel, KernelWorkspace())
        return bool(taken.steps) or taken.problem is not None

    def at(self, kernel: str, values: Mapping[str, Expr]) -> KernelWorkspace:
        """The workspace of a kernel where its symbols have these values."""
        taken = self.scratch[kernel]
        return taken.substitute(values) if taken.symbols <= values.keys() else _OPEN


_OPEN = KernelWorkspace(problem="its workspace depends on extents that the call leaves open")


def _composed(values: Mapping[str, Expr], bound: Mapping[str, Expr]) -> dict[str, Expr]:
    return {name: value.substitute(bound) for name, value in values.items()}


# -- tensors -----------------------------------------------------------------------------------------------


def _returned(points_to: PointsTo) -> Iterator[ResultTensor]:
    """Each tensor in the result once, without parameters and constants handed on."""
    kind = type_of(points_to.cfg.function.body.result)
    seen: set[frozenset[int]] = set()
    for (_, leaf), cell in zip(type_leaves(kind), align(points_to.result, kind), strict=True):
        roots = points_to.roots(cell.must | cell.may)
        own = [points_to.regions[root] for root in sorted(roots) if not points_to.regions[root].external]
        if not own or roots in seen or not isinstance(leaf, TensorType):
            continue
        seen.add(roots)
        nbytes = _largest([region.nbytes for region in own]) if leaf.nbytes is None else leaf.nbytes
        allocated = frozenset(region.var for region in own if isinstance(region.instruction, ir.AllocFresh))
        yield ResultTensor(nbytes=nbytes, allocations=frozenset(v for v in allocated if v is not None))


def _returned_inputs(points_to: PointsTo) -> Iterator[tuple[tuple[int, tuple[int, ...]], bool]]:
    kind = type_of(points_to.cfg.function.body.result)
    cells = align(points_to.result, kind)
    may = points_to.roots(points_to.regions_of(points_to.cfg.function.body.result))
    must = frozenset().union(
        *(points_to.roots(cell.must) for cell in cells if not cell.must & points_to.phis)
    )
    for leaf in inputs_of(points_to):
        roots = points_to.roots(leaf.cell.must | leaf.cell.may)
        if leaf.parameter is not None and not roots.isdisjoint(may):
            yield (leaf.parameter, leaf.path), roots <= must


def _donated(analysis: FunctionAnalysis) -> Iterator[DonatedResult]:
    points_to, written = analysis.points_to, NO_REGIONS
    for effect in analysis.effects:
        written |= points_to.resolve(effect.writes | effect.may_writes)
    inputs = {root: leaf for leaf in inputs_of(points_to) for root in points_to.roots(leaf.cell.must)}
    for output in outputs_of(points_to):
        parts = members(points_to.resolve(output.cell.must) & points_to.views)
        views = [points_to.regions[part] for part in parts if points_to.descendants[part] & written]
        if views and views[0].root in inputs:
            source, room = inputs[views[0].root].names[0], points_to.regions[views[0].root].nbytes
            nbytes = _largest([view.nbytes for view in views])
            yield DonatedResult(output=output.names[0], input=source, nbytes=nbytes, room=room)


def _made(points_to: PointsTo) -> Iterator[CalleeTensor]:
    """Each tensor that a call always makes, and that is not returned."""
    returned = points_to.roots(points_to.regions_of(points_to.cfg.function.body.result))
    for region in points_to.regions:
        typed = region.var is not None and isinstance(region.var.type, TensorType)
        if region.external or region.parent is not None or region.number in returned:
            continue
        match region.instruction:
            case (
                ir.CallFunction(name=name)
                | ir.CallOperator(name=name)
                | ir.CallPacked(name=name, ownership=ir.Ownership.FRESH)
            ) if typed or region.nbytes is not None:
                yield CalleeTensor(by=name, nbytes=region.nbytes)


def _largest(sizes: list[Expr | None]) -> Expr | None:
    known = [size for size in sizes if size is not None]
    return maximum(*known) if known and len(known) == len(sizes) else None
