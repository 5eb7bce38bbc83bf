"""Kernels that take a tensor at an offset in its storage.

A compiled PrimFunc refuses a tensor whose byte offset is not zero, unless the buffer is declared with a free
`elem_offset`.  With `offset_factor` set to 64 bytes' worth of elements it takes any multiple of 64 B, zero
among them, and the compiler keeps the alignment of every access: code and results stay what they were.

Only a kernel whose buffer accepts an offset takes one.  Everything else may look at the bare pointer: packed
functions, other Relax functions, operators, constructs that are not understood.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache

import tvm
from tvm import ir, tirx
from tvm.tirx.buffer import BufferType

from symalloc.analysis.interprocedural import FunctionAnalysis
from symalloc.analysis.sets import NO_REGIONS, RegionSet, members, region_set
from symalloc.program.ir import (
    Alias,
    AllocFresh,
    CallKernel,
    MakeTuple,
    MatchCast,
    Operand,
    Scalar,
    TakeField,
    Var,
    View,
)
from symalloc.program.operands import variables_of
from symalloc.program.types import ALIGNMENT
from symalloc.relax.extract.kernel_body import buffer_accesses
from symalloc.relax.ir_types import (
    TypeNode,
    VarNode,
    at_offset,
    constant_extent,
    elements,
    nodes_in,
    typed_var,
    with_parameters,
    with_variables,
)

_HANDED_ON = frozenset({AllocFresh, Alias, MatchCast, View, MakeTuple, TakeField})


class EmissionError(Exception):
    """The plan and the function to write it into do not belong together: our fault, not the user's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetUses:
    """The uses of tensors that lie at an offset.

    `needs_zero_offset`: allocations that some user wants at offset zero.  `offset_parameters`: the positions
    at which each kernel gets the others.
    """

    needs_zero_offset: frozenset[Var]
    offset_parameters: Mapping[str, frozenset[int]]


def offset_uses(
    analysis: FunctionAnalysis, accepts_offset: Callable[[str], Collection[int]], away: Collection[Var]
) -> OffsetUses:
    """The uses of the allocations in `away`; `accepts_offset` gives the positions at which a kernel takes an
    offset.
    """
    points_to, cfg = analysis.points_to, analysis.cfg
    regions = points_to.regions
    followed = region_set(r.number for r in regions if regions[r.root].var in away)
    bare: list[Operand] = [cfg.function.body.result]  # something sees the pointer alone
    given: defaultdict[tuple[str, int], RegionSet] = defaultdict(lambda: NO_REGIONS)
    for branch in cfg.joins:  # the machine reads a condition at its pointer
        bare += cfg.points[branch].uses
    for _, instruction in cfg.instructions:
        if type(instruction) is CallKernel:
            for position, argument in enumerate(instruction.arguments):
                if type(argument) is Scalar:
                    continue
                found = points_to.regions_of(argument) & followed
                if not found:  # most kernels need not be read
                    continue
                if type(argument) is Var and position in accepts_offset(instruction.kernel):
                    given[instruction.kernel, position] |= found
                else:
                    bare.append(argument)
        elif type(instruction) not in _HANDED_ON:
            bare += variables_of(instruction)
    seen = NO_REGIONS
    for operand in bare:
        seen |= points_to.regions_of(operand) & followed
    roots = {regions[number].root for number in members(seen)}
    settled = region_set(r.number for r in regions if r.root in roots)
    parameters: dict[str, frozenset[int]] = {}
    for (kernel, position), arrived in given.items():
        if arrived & ~settled:
            parameters[kernel] = parameters.get(kernel, frozenset()) | {position}
    needing = frozenset(var for root in roots if (var := regions[root].var) is not None)
    return OffsetUses(needs_zero_offset=needing, offset_parameters=parameters)


INDEX = ir.PrimType("int64")  # a narrower offset could wrap in a large arena


def accepts_offset(kernel: tirx.PrimFunc) -> frozenset[int]:
    """The positions of the parameters that can be made to take a tensor at a multiple of 64 B, or do so
    already.

    Left out are buffers with strides or an offset that is told or used elsewhere, and those whose bare
    pointer the body hands on (to an extern function, an intrinsic, a view), where nothing would add it.
    """
    attributes, params = kernel.attrs, elements(kernel.params)
    if attributes is not None and "calling_conv" in attributes:
        return frozenset()  # lowered already: its parameters are no longer those of the PrimFunc
    accesses = buffer_accesses(kernel.body)
    mentions = accesses.mentions + Counter(one.__chandle__() for one in nodes_in(params, ir.Var))

    def takes(one: VarNode) -> bool:  # what is in its type is mentioned as often
        often = mentions[one.ty.elem_offset.__chandle__()] in (0, mentions[one.__chandle__()])
        return often and accesses.only_accessed(one.__chandle__())

    return frozenset(i for i, one in enumerate(params) if _plain(one.ty) and takes(one))


def offset_kernels(module: tvm.IRModule) -> Callable[[str], frozenset[int]]:
    """A function that gives the positions at which a kernel of `module` can be made to take an offset.

    It raises EmissionError where the module has no such kernel.
    """

    @cache
    def positions(kernel: str) -> frozenset[int]:
        if kernel not in module:
            raise EmissionError(f"the module holds no kernel `{kernel}`, which was planned for")
        return accepts_offset(module[kernel])

    return positions


def offset_parameters(kernel: tirx.PrimFunc) -> tuple[int, ...]:
    """The positions of the parameters of `kernel` that are given at a free offset."""
    types = [p.ty for p in kernel.params]
    return tuple(i for i, t in enumerate(types) if type(t) is BufferType and type(t.elem_offset) is ir.Var)


def with_offsets(kernel: tirx.PrimFunc, positions: Collection[int]) -> tirx.PrimFunc:
    """`kernel` with the buffers at `positions`, of those that it accepts, at a free multiple of 64 B."""
    params = [*elements(kernel.params)]
    names = [param.name for param in params]
    replaced: list[tuple[VarNode, VarNode]] = []
    for position in positions:
        old, name = params[position], names[position]
        type_ = old.ty
        step = _elements(type_)
        if step is None or constant_extent(type_.elem_offset) != 0:
            continue
        one = f"{name}{position}" if names.count(name) > 1 else name  # of one name TVM prints in any order
        offset = typed_var(f"{one}_offset", INDEX)
        params[position] = typed_var(name, at_offset(type_, offset, step))
        replaced.append((old, params[position]))
    return with_parameters(kernel, params, with_variables(kernel.body, replaced))


def _plain(type_: TypeNode) -> bool:
    """A dense buffer at offset zero, or at a multiple that ALIGNMENT is one of, whatever it is."""
    if type(type_) is not BufferType or len(type_.strides) > 0 or len(type_.allocated_addr) > 0:
        return False
    step = _elements(type_)
    if step is None:
        return False
    if constant_extent(type_.elem_offset) == 0:
        return int(type_.offset_factor) <= 1
    return type(type_.elem_offset) is ir.Var and step % max(int(type_.offset_factor), 1) == 0


def _elements(type_: TypeNode) -> int | None:
    """The number of elements in ALIGNMENT bytes; None for types that do not fill bytes, or do not fit."""
    dtype = type_.dtype.dtype
    bits = dtype.bits * dtype.lanes
    return ALIGNMENT * 8 // bits if bits % 8 == 0 and (ALIGNMENT * 8) % bits == 0 else None
