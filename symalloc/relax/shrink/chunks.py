"""Kernel calls that are computed in pieces, some rows of what they make at a time.

A kernel whose rows `[start, start + rows)` of a tensor follow from the same rows of others, and from all of
the rest, runs its loops over these alone, with the same operations on each element.  All calls that make and
read a large tensor must go by its rows: then it is a part, which holds some rows alone, and lasts no longer
than a piece.  What they make besides is stored row by row, or is a part as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.ir import GlobalVar

from symalloc.analysis.dependencies import dependency_graph
from symalloc.planner.buffers.candidates import known_symbols, padded_size
from symalloc.program import ir
from symalloc.program.operands import type_of
from symalloc.program.types import extents_of, row_dim
from symalloc.prover.domain import Domain
from symalloc.prover.prover import Prover
from symalloc.relax.emit.kernel_offsets import INDEX
from symalloc.relax.emit.prim_builder import PrimBuilder
from symalloc.relax.ir_types import (
    BindingNode,
    Node,
    VarNode,
    bound,
    constant_extent,
    elements,
    nodes_in,
    same_extent,
    typed_call,
    typed_var,
    with_arguments,
    with_parameters,
    with_shape,
)
from symalloc.relax.rewrite import ModuleDraft, map_bindings
from symalloc.relax.shrink.kernel_parts import (
    Begin,
    PartsProof,
    is_told,
    restores,
    stays_inside,
    with_accesses,
)
from symalloc.relax.shrink.kernel_stages import SPATIAL, Stage, promises, stages_of
from symalloc.size.choice import minimum
from symalloc.size.condition import eq, le
from symalloc.size.expr import ZERO, Expr, ceildiv, evaluated

MOST_PIECES = 16  # that are tried where nobody says how many
SHARE = 8  # what takes less than such a share of what shall be held is left as it is

Rows: TypeAlias = Mapping[int, int]
"""The dimensions that are rows: of parameters of a kernel by position, or of tensors by number."""


def row_loops(kernel: tirx.PrimFunc, position: int, dim: int) -> frozenset[int]:
    """The loops, by the addresses of their variables, that go through a dimension of the parameter at
    `position`, whether or not they can be cut.
    """
    stages, loops = stages_of(kernel) or (), dict[str, int]()
    stored = {stage.target.__chandle__() for stage in stages}
    dims = {elements(kernel.params)[position].__chandle__(): dim}
    for stage in (*stages, *reversed(stages), *stages):
        touched = [*_touched(stage)]
        for address, indices in touched:
            if address in dims:
                loops.setdefault(stage.name, indices[dims[address]])
        loop = loops.get(stage.name)
        along = {one: indices.index(loop) for one, indices in touched if loop and loop in indices}
        dims = {one: dim for one, dim in along.items() if one in stored} | dims
    return frozenset(loops.values())


def _touched(stage: Stage) -> Iterator[tuple[int, Sequence[int]]]:
    """The addresses of the buffers that a stage stores to and loads from, and for each of the indices that of
    the loop of indices that it goes with, or 0.
    """
    loops = {axis.var.__chandle__(): one.__chandle__() for axis, one in stage.bound if one.ty == INDEX}
    loads = nodes_in([stage.realized], tvm.ir.TensorLoad)
    stores = (stage.block.body, *filter(None, [stage.block.init]))
    accesses = (*((s.buffer, s.indices) for s in stores), *((load.source, load.indices) for load in loads))
    for buffer, indices in accesses:
        yield buffer.__chandle__(), [loops.get(one.__chandle__(), 0) for one in elements(indices)]


def cut_kernel(kernel: tirx.PrimFunc, loops: Collection[int], parts: Rows) -> tirx.PrimFunc:
    """The kernel that computes `rows` rows from `start` on, which are its last parameters, where `loops` run
    over rows; of the parameters at `parts` it is given these alone.
    """
    start, rows, space = (typed_var(name, INDEX) for name in ("start", "rows", "space"))
    params, buffers = [*elements(kernel.params)], dict[int, tuple[VarNode, Begin]]()
    for at, dim in parts.items():
        old = params[at]
        params[at] = typed_var(old.name, _with_rows(old.ty, dim, space))
        buffers[old.__chandle__()] = params[at], _at_row(old, dim, start)
    cut = _with_ranges(kernel, loops, start, rows)
    body = with_accesses(cut, buffers, lambda index, by: index if isinstance(by, int) else index - by)
    return with_parameters(kernel, [*params, start, rows], body)


def _with_rows(kind: Node, dim: int, rows: Node) -> Node:
    """The type of a buffer with so many rows."""
    return with_shape(kind, [rows if at == dim else one for at, one in enumerate(elements(kind.shape))])


def _at_row(buffer: VarNode, dim: int, start: VarNode) -> Begin:
    """The index of the first element of a row."""
    return tuple(start if at == dim else 0 for at in range(len(buffer.ty.shape)))


def _with_ranges(kernel: tirx.PrimFunc, loops: Collection[int], *ends: VarNode) -> Node:
    """The body of a kernel with another first value and another number of them for these loops, and for the
    axes that are bound to them.
    """
    bindings = (pair for stage in stages_of(kernel) or () for pair in stage.bound)
    variables = {*loops, *(axis.var.__chandle__() for axis, one in bindings if one.__chandle__() in loops)}

    def loop(one: Node) -> Node:
        cut = one.loop_var.__chandle__() in variables
        return tirx.For(one.loop_var, *ends, one.kind, one.body) if cut else one

    def axis(one: Node) -> Node:
        cut = one.var.__chandle__() in variables
        return tirx.IterVar(tvm.ir.Range.from_min_extent(*ends), one.var, one.iter_type) if cut else one

    return tvm_ffi.structural_map(kernel.body, ((tirx.For, loop), (tirx.IterVar, axis)))


# -- proof ---------------------------------------------------------------------------------------------------


def rows_of(given: tirx.PrimFunc, made: tirx.PrimFunc) -> Rows | None:
    """The rows of parameters of which `made` touches no others but so many from a start on, its last two
    parameters; None unless it is proved that it stores to these what `given` does, and nothing else.

    Parameters that are others than those of `given` hold these rows alone, as parts of what that is given.
    """
    stages, params, theirs = stages_of(given), elements(given.params), elements(made.params)
    if stages is None or len(params) != len(theirs) - 2:
        return None
    start, rows = theirs[-2:]
    loops = nodes_in([made.body], tirx.For)
    cut = {one.loop_var.__chandle__() for one in loops if one.min.same_as(start)}
    dims, stored = _rows_touched(stages, cut), {stage.target.__chandle__() for stage in stages}
    found = {at: dims[one.__chandle__()] for at, one in enumerate(params) if one.__chandle__() in dims}
    parts = {at for at, one in enumerate(params) if not one.same_as(theirs[at])}
    needed = parts | {at for at, one in enumerate(params) if one.__chandle__() in stored}
    if not needed <= found.keys() or promises(made) > promises(given):
        return None
    extents = [loop.extent for stage in stages for loop in stage.loops if loop.loop_var.__chandle__() in cut]
    extents += [elements(params[at].ty.shape)[found[at]] for at in needed]
    kinds = ((params[at].ty, found[at], theirs[at].ty) for at in parts)
    alike = (tvm_ffi.structural_equal(_with_rows(old, dim, new.shape[dim]), new) for old, dim, new in kinds)
    if not all(same_extent(extents[0], one) for one in extents) or not all(alike):
        return None
    whole = with_parameters(given, [*params, start, rows], _with_ranges(given, cut, start, rows))
    begins = {at: _at_row(params[at], found[at], start) for at in parts}
    return found if restores(made, whole, begins) else None


def _rows_touched(stages: Sequence[Stage], cut: Collection[int]) -> Rows:
    """The dimensions in which buffers are touched nowhere but at variables of the loops `cut`, by address.

    None at all unless each stage has one such loop, from 0 on over an axis that is none of a reduction, and
    stores to such a buffer, or has none, and stores to another.
    """
    found, over = dict[int, set[int | None]](), set[str]()
    for stage in stages:
        kinds = [axis.iter_type for axis, one in stage.bound if one.__chandle__() in cut]
        starts = {one.loop_var.__chandle__(): one.min for one in stage.loops}
        loops = [one for one, start in starts.items() if one in cut and constant_extent(start) == 0]
        if len(kinds) != len(loops) or len(loops) > 1 or any(kind != SPATIAL for kind in kinds):
            return {}
        over |= {stage.name} if loops else set()
        for address, indices in _touched(stage):
            along = (at for at, one in enumerate(indices) if one in loops)
            found.setdefault(address, set()).add(next(along, None))
    dims = {at: dim for at, (dim, *others) in found.items() if dim is not None and not others}
    right = ((one.target.__chandle__() in dims) == (one.name in over) for one in stages)
    return dims if all(right) else {}


# -- search --------------------------------------------------------------------------------------------------


def _extents(operand: ir.Operand) -> tuple[Expr, ...]:
    return (*extents_of(type_of(operand)),)


class CutCall(NamedTuple):
    """A call, an `instruction`: the `kernel` for some of the `rows`, which are dimensions of the roots of its
    arguments that a function allocates, by position; and those of `parts`, as they are given.
    """

    instruction: Any
    kernel: tirx.PrimFunc
    roots: Mapping[int, int]
    rows: Rows
    parts: Rows


class RowGroup(NamedTuple):
    """The `calls` that make and read `parts`, by dispatch: tensors of which some rows are there at a time, of
    `extent` in all; `proof` knows them.
    """

    proof: PartsProof
    calls: Mapping[int, CutCall]
    parts: Rows
    extent: Expr

    def ends(self, count: int, prover: Prover) -> Sequence[Expr]:
        """The rows between which so many pieces lie; none unless it is proved that each row is in one."""
        ends, domain = ends_of(self.extent, count), known_symbols(self.proof.analysis.cfg).domain
        return ends if are_ends(ends, ceildiv(self.extent, count), self.extent, prover, domain) else ()


class GroupSearch:
    """Looks for groups in a function; `sizes` are the bytes `at` a binding of the tensors that it allocates
    and nothing but kernels sees.
    """

    def __init__(self, proof: PartsProof, at: Mapping[str, int]) -> None:
        self.proof, self.at, self.graph = proof, at, dependency_graph(proof.analysis)
        self.cut = cache(lambda name, parts: _cut(proof.module[name], dict(parts)))
        kernels, prover = proof.analysis.program.kernels, proof.prover
        self.inside = cache(lambda name, position: stays_inside(kernels[name], position, prover))
        own, regions = proof.fresh.keys() & self.graph.touches.keys(), proof.analysis.points_to.regions
        known = {one: evaluated(padded_size(regions[one].nbytes), at) for one in sorted(own - proof.loose)}
        self.sizes = {one: size for one, size in known.items() if size is not None}

    def groups(self, least: int) -> Iterator[RowGroup]:
        """Yield groups with parts that take more than `least` bytes, the largest first.

        Each can stand where its last call is, none with the others in the way.
        """
        taken = set[int]()
        for tensor in sorted(self.sizes, key=lambda one: -self.sizes[one]):
            group = self.group(tensor, least) if self.sizes[tensor] > least else None
            if group is not None and taken.isdisjoint(group.calls):
                yield group
                taken |= group.calls.keys()

    def group(self, tensor: int, least: int) -> RowGroup | None:
        """The group in which a tensor is a part, along the longest of its dimensions that goes, with all that
        takes more than `least` as parts that can be; None where there is none.
        """
        lengths = [one.evaluate(self.at) for one in self.proof.shapes[tensor]]
        longest = sorted((d for d, one in enumerate(lengths) if one > 1), key=lambda d: -lengths[d])
        found = filter(None, (self.along(tensor, dim, least) for dim in longest))
        return max(found, key=lambda group: sum(map(self.sizes.__getitem__, group.parts)), default=None)

    def along(self, tensor: int, dim: int, least: int) -> RowGroup | None:
        """The group in which a tensor is a part along one dimension."""
        group, tried = self.with_parts({tensor: dim}), {tensor}
        while group is not None:
            pairs = ((call.roots[at], dim) for call in group.calls.values() for at, dim in call.rows.items())
            dims = {root: dim for root, dim in pairs if dim >= 0 and self.sizes.get(root, 0) > least}
            root = next((one for one in dims if one not in tried), None)
            if root is None:
                break
            tried.add(root)
            group = self.with_parts({**group.parts, root: dims[root]}) or group
        return group

    def with_parts(self, parts: Rows) -> RowGroup | None:
        """The group in which these tensors are parts; None where it cannot be.

        What its calls store to they touch at the same rows alone, so that no piece needs another.
        """
        numbers = sorted({one.dispatch for part in parts for one in self.graph.touches[part]})
        between = {*range(numbers[0], numbers[-1])} - {*numbers}
        if any(not self.graph.predecessors[one].isdisjoint(numbers) for one in between):
            return None
        calls, stored = dict[int, CutCall](), {**parts}
        for number in numbers:
            call: Any = self.graph.instructions[number]
            roots = self.proof.given.get(call.var, {})
            shapes = {at: (self.proof.shapes[roots[at]], _extents(call.arguments[at])) for at in roots}
            named = {at: row_dim(parts[root], *shapes[at]) for at, root in roots.items() if root in parts}
            found = (
                self.cut(call.kernel, tuple(named.items())) if named and -1 not in named.values() else None
            )
            if found is None:
                return None
            inside = [at for at in found[1] if at in roots and self.inside(call.kernel, at)]
            rows = {at: row_dim(found[1][at], *shapes[at][::-1]) for at in inside}
            calls[number] = CutCall(call, found[0], roots, rows, named)
            stores = (at for at in found[1] if self.proof.stores(call, at))
            stored.update({roots.get(at, -1): rows.get(at, -1) for at in stores})
        known = -1 not in stored and -1 not in stored.values()
        extents = {self.proof.shapes[one][dim] for one, dim in stored.items()} if known else ()
        (extent,) = extents if len(extents) == 1 else (None,)
        if extent is None or not all(self.goes_by(one, stored) for one in calls.values()):
            return None
        return RowGroup(self.proof, calls, parts, extent)

    def goes_by(self, cut: CutCall, stored: Rows) -> bool:
        """Return whether a call touches these rows alone of what a group stores to, its own by one name."""
        call, names = cut.instruction, Counter(cut.roots.values())
        return all(
            cut.roots.get(at) == root
            and cut.rows.get(at) == stored[root]
            and (names[root] == 1 or not self.proof.stores(call, at))
            for at, operand in enumerate(call.arguments)
            for root in self.proof.roots(operand) & stored.keys()
        )


def _cut(kernel: tirx.PrimFunc, parts: Rows) -> tuple[tirx.PrimFunc, Rows] | None:
    """The kernel for some of the rows, with these parameters as parts, proved; None where it is not."""
    made = cut_kernel(kernel, row_loops(kernel, *next(iter(parts.items()))), parts)
    rows = rows_of(kernel, made)
    lost = [elements(elements(kernel.params)[at].ty.shape)[dim] for at, dim in parts.items()]
    return (made, rows) if rows is not None and is_told(elements(made.params), lost, made.body) else None


# -- writing -------------------------------------------------------------------------------------------------


def ends_of(extent: Expr, count: int) -> Sequence[Expr]:
    """The rows between which `count` pieces lie, each as large as the first as long as rows are left."""
    most = ceildiv(extent, count)
    return [*(minimum(most * one, extent) for one in range(count)), extent]


def are_ends(ends: Sequence[Expr], most: Expr, extent: Expr, prover: Prover, domain: Domain) -> bool:
    """Return whether it is proved that each of `extent` rows is in one piece, none with more than `most`."""
    pieces = [end - begin for begin, end in pairwise(ends)]
    sized = (condition for rows in pieces for condition in (le(0, rows), le(rows, most)))
    claims = (eq(ends[0], ZERO), eq(ends[-1], extent), *sized)
    return all(prover.prove(one, domain, explain=False).holds for one in claims)


def write_in_pieces(
    module: tvm.IRModule, groups: Iterable[tuple[RowGroup, int]], prover: Prover
) -> tvm.IRModule:
    """`module`, as CallTIRRewrite leaves it, with groups in so many pieces each, where that is proved."""
    writer = _PieceWriter(ModuleDraft(module))
    for group, count in groups:
        writer.take(group, count, prover)
    writer.draft.functions.update(map_bindings(module, writer.stand_in).functions_items())
    return writer.draft.without_unused()


@dataclass(slots=True)
class _PieceWriter:
    """Writes groups in pieces: `written` is what stands for bindings, by address, `gone` the variables of
    tensors that are not whole any more, `called` the kernels for some of the rows.
    """

    draft: ModuleDraft
    called: dict[int, GlobalVar] = field(default_factory=dict)
    written: dict[int, list[relax.Binding]] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)

    def take(self, group: RowGroup, count: int, prover: Prover) -> None:
        """Write a group in so many pieces where its last call is."""
        ends, most = group.ends(count, prover), ceildiv(group.extent, count)
        prims = PrimBuilder(group.proof.analysis.cfg.function.variables)

        def sized(shape: Sequence[Expr], dim: int) -> relax.ShapeExpr:
            return relax.ShapeExpr([prims(most if i == dim else one) for i, one in enumerate(shape)])

        for call in group.calls.values() if ends else ():
            into = self.written.setdefault(call.instruction.handle.__chandle__(), [])
        for begin, end in pairwise(ends):
            parts = dict[int, VarNode]()
            for call in group.calls.values():
                binding = call.instruction.handle
                arguments = [*elements(binding.value.args), prims(begin), prims(end - begin)]
                for at, dim in call.parts.items():
                    root, shape = call.roots[at], _extents(call.instruction.arguments[at])
                    whole = group.proof.shapes[root]
                    if root not in parts:
                        into.append(self.part(group.proof.bindings[root], sized(whole, group.parts[root])))
                        parts[root] = into[-1].var
                    arguments[at] = parts[root]
                    if shape != whole:
                        into.append(_reshaped(parts[root], sized(shape, dim)))
                        arguments[at] = into[-1].var
                kernel = call.kernel.__chandle__()
                if kernel not in self.called:
                    self.called[kernel] = self.draft.add(f"{binding.value.op.name_hint}_rows", call.kernel)
                made_call = with_arguments(binding.value, arguments, self.called[kernel])
                into.append(bound(typed_var("_", binding.var.ty), made_call))

    def part(self, made: BindingNode, shape: relax.ShapeExpr) -> BindingNode:
        """The allocation of some rows of a tensor."""
        whole, value = made.var, made.value
        self.gone.add(whole.__chandle__())
        kind = relax.TensorType(shape, whole.ty.dtype, whole.ty.vdevice)
        arguments = [shape, *elements(value.args)[1:]]
        return bound(typed_var(whole.name, kind), typed_call(value.op, arguments, kind, [kind], value.span))

    def stand_in(self, _: str, binding: BindingNode) -> list[relax.Binding] | None:
        """The bindings in place of one: none for a tensor that is not whole any more, or a view of it."""
        var, value, found = binding.var, binding.value, self.written.get(binding.__chandle__())
        used = (value,) if type(value) is tvm.ir.Var else getattr(value, "args", ())
        if found is None and not self.gone.isdisjoint(one.__chandle__() for one in used):
            self.gone.add(var.__chandle__())
        return [] if var.__chandle__() in self.gone else found


def _reshaped(part: VarNode, shape: relax.ShapeExpr) -> BindingNode:
    kind = relax.TensorType(shape, part.ty.dtype, part.ty.vdevice)
    return bound(typed_var(part.name, kind), typed_call(tvm.ir.Op.get("relax.reshape"), [part, shape], kind))
