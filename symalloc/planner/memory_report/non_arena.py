"""Memory that a function needs besides its arenas: results, tensors of its callees, its kernels' own
workspace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from symalloc.analysis.argument_binding import bind_kernel, values_at_call
from symalloc.analysis.donation import inputs_of, outputs_of
from symalloc.analysis.interprocedural import FunctionAnalysis
from symalloc.analysis.regions import PointsTo, Region, align
from symalloc.analysis.sets import NO_REGIONS, members
from symalloc.planner.memory_report.kernel_workspace import KernelWorkspace
from symalloc.program import ir
from symalloc.program.operands import instructions_of, type_of
from symalloc.program.types import TensorType, type_leaves
from symalloc.size.choice import maximum
from symalloc.size.expr import Expr


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


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelWorkspaceUse:
    """A kernel that takes workspace (`scratch`, over the function's symbols), and how often it is called."""

    kernel: str
    scratch: KernelWorkspace
    calls: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NonArenaMemory:
    """Memory of one call of a function that lies in no arena, in bytes over the function's symbols.

    `calls` holds what each kernel call takes from the pool, in order, both sides of an If one after the
    other; `kernels` the same once for each kernel and size.  `packed` names the packed functions that are
    called: what those take for themselves, and what those of unknown ownership return, is not known.
    """

    returned: tuple[ResultTensor, ...] = ()
    donated: tuple[DonatedResult, ...] = ()
    made: tuple[CalleeTensor, ...] = ()
    calls: tuple[KernelWorkspace, ...] = ()
    kernels: tuple[KernelWorkspaceUse, ...] = ()
    packed: tuple[str, ...] = ()


def non_arena_memory(
    program: ir.Program, analysis: FunctionAnalysis, scratch: Mapping[str, KernelWorkspace]
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
        calls=tuple(use.scratch for use in found),
        kernels=tuple(replace(use, calls=count) for use, count in Counter(found).items()),
        packed=tuple(sorted(walk.packed)),
    )


# -- workspace ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _KernelCalls:
    """Follows the calls of a function in the order of the text."""

    program: ir.Program
    scratch: Mapping[str, KernelWorkspace]
    packed: set[str] = field(default_factory=set)

    def block(
        self, block: ir.Block, bound: Mapping[str, Expr], callers: tuple[str, ...]
    ) -> Iterator[KernelWorkspaceUse]:
        """The kernel calls of `block`; `bound` gives its symbols in those of the outermost function."""
        for instruction in instructions_of(block):
            match instruction:
                case ir.CallKernel(kernel=kernel, arguments=arguments):
                    taken = self.scratch.get(kernel, KernelWorkspace())
                    if taken or taken.problem is not None:
                        values = _composed(bind_kernel(self.program.kernels[kernel], arguments), bound)
                        yield KernelWorkspaceUse(kernel=kernel, scratch=_in_symbols_of_caller(taken, values))
                case ir.CallPacked(name=name):
                    self.packed.add(name)
                case ir.CallFunction(name=name) if name in self.program.functions and name not in callers:
                    callee = self.program.functions[name]
                    values = _composed(values_at_call(callee, instruction), bound)
                    yield from self.block(callee.body, values, (*callers, name))


def _in_symbols_of_caller(taken: KernelWorkspace, values: Mapping[str, Expr]) -> KernelWorkspace:
    if taken.symbols <= values.keys():
        return taken.substitute(values)
    return KernelWorkspace(problem="its workspace depends on extents that the call leaves open")


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
    returned = points_to.roots(points_to.regions_of(points_to.cfg.function.body.result))
    for region in points_to.regions:
        by = _maker(region)
        if by is not None and region.number not in returned:
            yield CalleeTensor(by=by, nbytes=region.nbytes)


def _largest(sizes: list[Expr | None]) -> Expr | None:
    known = [size for size in sizes if size is not None]
    return maximum(*known) if known and len(known) == len(sizes) else None


def _maker(region: Region) -> str | None:
    """Return the name of the call that makes the memory of a tensor, where one always does."""
    tensor = region.nbytes is not None or (region.var is not None and isinstance(region.var.type, TensorType))
    if region.external or region.parent is not None or not tensor:
        return None
    match region.instruction:
        case ir.CallFunction(name=name) | ir.CallOperator(name=name):
            return name
        case ir.CallPacked(name=name, ownership=ir.Ownership.FRESH):
            return name
    return None
