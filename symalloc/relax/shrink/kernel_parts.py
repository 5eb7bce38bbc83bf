"""Kernels that take a tensor as a part of a larger one, at constant indices.

No strides, and no pointer into the middle of a tensor: the parameter becomes the whole, and a number is added
to each index into it.  At offset zero that is a tensor with room behind its rows.  `restores` proves of a
finished kernel that it is that, from both texts alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import inf
from operator import add, sub
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.ir import GlobalVar
from tvm.ir.prim import expr as prim

from symalloc.analysis.call_expansion import comparisons
from symalloc.analysis.effects import RETURNED
from symalloc.analysis.interprocedural import FunctionAnalysis
from symalloc.analysis.kernels.index_bounds import entry_facts_of, index_bounds, scalars_of
from symalloc.planner.buffers.candidates import known_symbols, padded_size
from symalloc.planner.grid import Values, sample_grid
from symalloc.program import ir
from symalloc.program.operands import tensor_type
from symalloc.program.types import byte_count
from symalloc.prover.domain import INT64_MIN, Budget, Domain
from symalloc.prover.prover import Prover
from symalloc.relax.emit.kernel_offsets import INDEX, accepts_offset
from symalloc.relax.ir_types import (
    BindingNode,
    Node,
    VarNode,
    bindings_in,
    bound,
    constant_extent,
    elements,
    nodes_in,
    of_type,
    same_extent,
    typed_var,
    with_arguments,
    with_parameters,
    with_shape,
)
from symalloc.relax.rewrite import ModuleDraft, by_binding, with_body
from symalloc.relax.shrink.kernel_stages import promises, stages_in
from symalloc.size.condition import le, lt
from symalloc.size.expr import ZERO, Expr

Offsets: TypeAlias = tuple[int, ...]
Begin: TypeAlias = tuple[int | VarNode, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """A tensor begins at the index `offsets` of a whole with other `extents`: numbers, symbols that the whole
    tells its kernels, or None where both are as long.
    """

    offsets: Offsets
    extents: tuple[int | VarNode | None, ...]


def with_parts(
    kernel: tirx.PrimFunc, parts: Mapping[int, Part], through: Mapping[int, int] = {}
) -> tirx.PrimFunc | None:
    """`kernel` with a parameter for a whole at each of the positions of `parts`.

    Of those that are given one whole all but one are accessed `through` that, and used for nothing then: the
    promise that buffers are apart stays.  None where it does more with a tensor than to load and store
    elements, or nothing would tell it a size.
    """
    params = [*elements(kernel.params)]
    if not parts.keys() <= accepts_offset(kernel):
        return None
    lost: list[Node] = []
    for position, part in parts.items():
        old = params[position]
        shape = elements(old.ty.shape)
        pairs = [*zip(shape, part.extents, strict=True)]
        lost += [own for own, extent in pairs if extent is not None]
        whole = [
            own if one is None else tirx.IntImm("int64", one) if isinstance(one, int) else one
            for own, one in pairs
        ]
        params[position] = typed_var(old.name, with_shape(old.ty, whole))
    wholes = {
        kernel.params[position].__chandle__(): (params[through.get(position, position)], part.offsets)
        for position, part in parts.items()
    }
    body = with_accesses(kernel.body, wholes, lambda one, by: one + by if by else one)
    return with_parameters(kernel, params, body) if is_told(params, lost, body) else None


def with_accesses(
    body: Node,
    buffers: Mapping[int, tuple[VarNode, Begin]],
    moved: Callable[[Node, int | VarNode], Node],
) -> Node:
    """`body` with another buffer for each of `buffers`, and its indices `moved` by something."""

    def at(indices: Sequence[Node], offsets: Begin) -> list[Node]:
        return [moved(one, by) for one, by in zip(indices, offsets, strict=True)]

    def load(node: Node) -> Node:
        found = buffers.get(node.source.__chandle__())
        return node if found is None else tirx.BufferLoad(found[0], at(elements(node.indices), found[1]))

    def store(node: Node) -> Node:
        found = buffers.get(node.buffer.__chandle__())
        if found is None:
            return node
        return tirx.BufferStore(found[0], node.value, at(elements(node.indices), found[1]))

    def region(node: Node) -> Node:
        found = buffers.get(node.source.__chandle__())
        if found is None:
            return node
        ranges = elements(node.region)
        begins = zip(at([one.min for one in ranges], found[1]), ranges, strict=True)
        return tirx.BufferRegion(found[0], [tvm.ir.Range.from_min_extent(b, one.extent) for b, one in begins])

    rules = ((tvm.ir.TensorLoad, load), (tirx.BufferStore, store), (tvm.ir.TensorRegion, region))
    return tvm_ffi.structural_map(body, rules)


def is_told(params: Sequence[VarNode], lost: Sequence[Node], body: Node) -> bool:
    """Return whether something still tells the symbols that are extents in `lost`, where they are used."""
    shapes = (elements(one.ty.shape) for one in params if type(one.ty) is not tvm.ir.PrimType)
    extents = [extent for shape in shapes for extent in shape]
    used = nodes_in((body, *extents), tvm.ir.Var)
    told, needed = ({one.__chandle__() for one in some} for some in ((*params, *extents), used))
    return told >= needed & {one.__chandle__() for one in lost}


# -- proof ---------------------------------------------------------------------------------------------------


def restores(
    given: tirx.PrimFunc,
    made: tirx.PrimFunc,
    offsets: Mapping[int, Begin],
    through: Mapping[int, int] = {},
) -> bool:
    """Return whether it is proved that `made` does with wholes what `given` does with parts of them, which
    begin at `offsets`, by the positions of the parameters; some are accessed `through` others.

    With that added to each index of an access of a part, and the whole in its place, the original must be
    this text, and no part may be left.  A whole is of the type of its part but for extents.  Callers must see
    to it that it holds all of the part, that indices into longer rows stay within the part, that offsets are
    the same wherever a tensor is given, and that a kernel accesses what it stores to through one parameter:
    that buffers are apart is promised as it was.
    """
    params, theirs = elements(made.params), elements(given.params)
    alone = len({one.__chandle__() for one in params}) == len(params) == len(theirs)
    if not alone or not offsets.keys() <= accepts_offset(given) & accepts_offset(made):
        return False
    moved: dict[int, tuple[VarNode, Begin]] = {}
    wholes: dict[int, tuple[VarNode, Begin]] = {}
    for position, (old, new) in enumerate(zip(theirs, params, strict=True)):
        begin, used = offsets.get(position), params[through.get(position, position)]
        if begin is None and new.same_as(old) and used.same_as(new):
            continue
        own, wide = elements(old.ty.shape), {len(one.ty.shape) for one in (old, new, used)}
        alike = (tvm_ffi.structural_equal(with_shape(one.ty, own), old.ty) for one in (new, used))
        if begin is None or wide != {len(begin)} or not all(alike):
            return False
        moved[old.__chandle__()] = used, begin
        wholes[new.__chandle__()] = new, (0,) * len(begin)
    found = nodes_in([made.body], tvm.ir.Var)
    if not moved.keys().isdisjoint(one.__chandle__() for one in found) or promises(made) > promises(given):
        return False
    bodies = with_accesses(given.body, moved, _after), with_accesses(made.body, wholes, _after)
    # with their parameters: alone, what a block says to read would be taken for a name of its own
    return bool(tvm_ffi.structural_equal(*(with_parameters(made, params, body) for body in bodies)))


def _after(index: Node, by: int | VarNode) -> Node:
    """The index that is `by` after another one, its number in one place."""
    if not isinstance(by, int):
        return index.a if type(index) is prim.Sub and index.b.same_as(by) else index + by
    if index.ty != INDEX:  # a sum may not fit
        return index + by if by else index
    base, number = _split(index)
    if base is None:
        return tirx.IntImm("int64", number + by)
    return base + (number + by) if number + by else base


def _split(index: Node) -> tuple[Node | None, int]:
    """An index as the sum of anything, None for nothing, and a number."""
    number = 0
    while type(index) in (prim.Add, prim.Sub) and type(index.b) is prim.IntImm:
        number += int(index.b.value) * (1 if type(index) is prim.Add else -1)
        index = index.a
    known = constant_extent(index)
    return (index, number) if known is None else (None, number + known)


def copies_of(kernel: tirx.PrimFunc) -> dict[int, dict[int, Offsets]]:
    """For parameters to each element of which one stage stores once: those of which it loads nothing but the
    element that is so many indices before, and which no other stage uses; all by position.
    """
    return _copies(kernel.body, elements(kernel.params))


@lru_cache(maxsize=256)
def _copies(body: Node, params: tuple[VarNode, ...]) -> dict[int, dict[int, Offsets]]:
    stages, found = stages_in(body) or (), dict[int, dict[int, Offsets]]()
    positions = {one.__chandle__(): at for at, one in enumerate(params)}
    for number, stage in enumerate(stages):
        others = [*stages[:number], *stages[number + 1 :]]
        early = any(one.loads(stage.target) for one in stages[: number + 1])
        again = any(one.target.same_as(stage.target) for one in others)
        if early or again or stage.reduces or not stage.is_full:
            continue
        used = [load.source for one in others for load in one.loads()] + [one.target for one in others]
        behind: dict[int, set[Offsets | None]] = {one.__chandle__(): {None} for one in used}
        for load in stage.loads():
            distance = _distance(stage.place, elements(load.indices))
            behind.setdefault(load.source.__chandle__(), set()).add(distance)
        sources = {positions.get(one, -1): by for one, (by, *more) in behind.items() if by and not more}
        found[positions.get(stage.target.__chandle__(), -1)] = sources
    return found


def _distance(one: Sequence[Node], other: Sequence[Node]) -> Offsets | None:
    """The numbers by which indices are behind others; None where that is no number on each axis."""
    pairs = [*zip(map(_split, one), map(_split, other), strict=False)]
    same = (a is b if a is None or b is None else same_extent(a, b) for (a, _), (b, _) in pairs)
    return tuple(m - n for (_, m), (_, n) in pairs) if len(one) == len(other) and all(same) else None


def stays_inside(kernel: ir.Kernel, position: int, prover: Prover, first: int = 0) -> bool:
    """Return whether each index of a kernel into a parameter is proved to stay within the extent of its axis,
    of the axes from the `first` on.
    """
    accesses = [one for one in kernel.accesses if one.parameter == position]
    signed = dict.fromkeys(scalars_of(kernel), INT64_MIN)
    known = Domain(lower=signed, assumptions=entry_facts_of(kernel))
    claims = (
        (claim, known.assuming(bound.range.where))
        for bound in index_bounds(kernel, accesses)
        if bound.axis >= first
        for claim in (le(ZERO, bound.range.least), lt(bound.range.greatest, bound.extent))
    )
    understood = kernel.accesses and all(None not in one.indices[first:] for one in accesses)
    return bool(understood) and all(prover.prove(*one, explain=False).holds for one in claims)


class PartPlace(NamedTuple):
    """A tensor begins at the index `offsets` of the root `whole`, which lies in no other."""

    whole: int
    offsets: Offsets


Places: TypeAlias = Mapping[int, PartPlace]


def write_in_parts(
    module: tvm.IRModule, analyses: Mapping[str, FunctionAnalysis], kept: Collection[str] = ()
) -> tuple[tvm.IRModule, Mapping[str, int]]:
    """`module`, as CallTIRRewrite leaves it, with tensors in larger ones where that is proved to change
    nothing, and how many of them, by function; none of those that are `kept`.
    """
    draft, made, found = ModuleDraft(module), dict[object, GlobalVar](), dict[str, int]()
    for name in (one for one in analyses if one not in kept):
        proof = PartsProof(module, analyses[name])
        if places := places_in(proof):
            writer, variable = _PartsWriter(proof, places, draft, made), module.get_global_var(name)
            function = module[variable]
            block = relax.BindingBlock([*writer.bindings(function)])
            body = of_type(relax.SeqExpr([block], function.body.body), function.body.ty)
            draft.functions[variable] = with_body(function, body)
            found[name] = len(places)
    return (draft.without_unused() if found else module), found


class PartsProof:
    """Proves where tensors of a function without branches lie.

    `fresh` are those that it allocates, by root, with `shapes` and `bindings`; `spans` tells the first and
    last point that uses one, `given` those of each call of a kernel, by position; `loose` are the roots that
    anything else sees, `entry` the symbols known from the start, `kernels` what was made of kernels.  Those
    that are given `reshaped` are told as well where that is wanted.
    """

    def __init__(self, module: tvm.IRModule, analysis: FunctionAnalysis, *, reshaped: bool = False) -> None:
        self.module, self.analysis, self.reshaped = module, analysis, reshaped
        cfg, known = analysis.cfg, {} if analysis.cfg.joins else analysis.allocations
        self.entry = known_symbols(cfg).entry
        made = [(known[one.var].number, one) for _, one in cfg.of_type(ir.AllocFresh) if one.var in known]
        self.fresh = {n: one for n, one in made if one.shape is not None and not (one.inexact or one.giver)}
        self.shapes = {root: one.shape or () for root, one in self.fresh.items()}
        self.bindings: dict[int, Any] = {root: one.handle for root, one in self.fresh.items()}
        self.loose, self.given = {*analysis.escapes}, dict[ir.Var, dict[int, int]]()
        self.kernels: dict[object, tirx.PrimFunc | None] = {}
        self.prover = Prover(Budget(z3_steps=0))  # what stays inside is seen without z3
        points = {root: [one.point for one in analysis.conflicts.accesses_to(root)] for root in self.fresh}
        self.spans = {root: (min(used), max(used)) for root, used in points.items() if used}
        for point in cfg.points:
            if isinstance(point.instruction, ir.CallKernel):
                call, arguments = point.instruction, point.instruction.arguments
                stated = comparisons(analysis.program.kernels[call.kernel], arguments)
                alike = all(one.actual == one.expected for one in stated)  # or the call may refuse them
                roots = enumerate(map(self.root, arguments if alike else ()))
                found = {at: root for at, root in roots if root is not None}
                self.given[call.var] = found
                for at in {*range(len(arguments))} - found.keys():
                    self.loose |= self.roots(arguments[at])
            elif not isinstance(point.instruction, ir.Alias | ir.View):
                for operand in (*point.uses, point.operand):
                    self.loose |= self.roots(operand)

    def roots(self, operand: ir.Operand | None) -> frozenset[int]:
        """The roots that an operand may be in."""
        points_to = self.analysis.points_to
        return points_to.roots(points_to.regions_of(operand))

    def root(self, operand: ir.Operand) -> int | None:
        """The tensor of `fresh` that an operand is for sure, as it was allocated, or `reshaped`."""
        points_to, kind = self.analysis.points_to, tensor_type(operand)
        region = points_to.only_region(points_to.value_of(operand))
        if region is None or kind is None or region.offset != ZERO or region.root not in self.fresh:
            return None
        made = self.fresh[region.root]
        as_large = self.reshaped and byte_count(kind.shape, made.dtype) == byte_count(made.shape, made.dtype)
        return region.root if kind.dtype == made.dtype and (kind.shape == made.shape or as_large) else None

    def place(self, places: Places, root: int) -> PartPlace:
        """The place of a tensor, in itself where it lies in no other."""
        return places.get(root) or PartPlace(root, (0,) * len(self.shapes[root]))

    def holds(self, places: Places) -> bool:
        """Return whether it is proved that all tensors can lie where they are to."""
        wholes = {place.whole for place in places.values()}
        groups = [{whole, *(one for one in places if places[one].whole == whole)} for whole in wholes]
        calls = (call for _, call in self.analysis.cfg.of_type(ir.CallKernel))
        moved = [one for one in calls if not places.keys().isdisjoint(self.given[one.var].values())]
        return all(self.fits(*one) for one in places.items()) and all(
            all(self.meet(places, *pair) for pair in combinations(inside, 2))
            and all(self.called(places, call, inside) for call in moved)
            for inside in groups
        )

    def fits(self, root: int, place: PartPlace) -> bool:
        """Return whether a tensor that nothing but kernels sees is a smaller box in another one, whose
        extents are known from the start.
        """
        made, whole = self.fresh[root], self.fresh[place.whole]
        own, extents = self.shapes[root], self.shapes[place.whole]
        return (
            root not in self.loose
            and self.analysis.escapes.get(place.whole) in (None, RETURNED)
            and (made.dtype, made.device, made.scope) == (whole.dtype, whole.device, whole.scope)
            and self.entry.issuperset(name for one in extents for name in one.symbols)
            and own != extents
            and len(own) == len(extents)
            and all(
                (begin == 0 and one == most) or (begin >= 0 and _end(begin, one) <= _end(0, most) < inf)
                for one, begin, most in zip(own, place.offsets, extents, strict=True)
            )
        )

    def meet(self, places: Places, one: int, other: int) -> bool:
        """Return whether two tensors can lie in one whole: apart, or one read no more once there is the
        other, but by the call that makes that.
        """
        (begin, end), (first, last) = self.spans[one], self.spans[other]
        return end <= first or last <= begin or self.apart(places, one, other)

    def apart(self, places: Places, one: int, other: int) -> bool:
        """Return whether two tensors in one whole have no element in common."""
        here, there = (
            zip(self.place(places, root).offsets, self.shapes[root], strict=True) for root in (one, other)
        )
        return any(_end(*a) <= b[0] or _end(*b) <= a[0] for a, b in zip(here, there, strict=True))

    def called(self, places: Places, call: ir.CallKernel, inside: Collection[int]) -> bool:
        """Return whether a kernel can be given the whole of the tensors `inside`: all are known, and where it
        stores to one, which takes one pointer to all, they are apart, or what it stores are elements of the
        other and nothing else.  TVM makes 0 of `x - y`, once both are one element, also where that is NaN.
        """
        ours = {at: root for at, root in self.given[call.var].items() if root in inside}
        if places.keys().isdisjoint(ours.values()):
            return True
        copies, others = copies_of(self.module[call.kernel]), {*range(len(call.arguments))} - ours.keys()
        begins = {at: self.place(places, root).offsets for at, root in ours.items()}

        def copied(source: int, target: int) -> bool:
            return copies.get(target, {}).get(source) == tuple(map(sub, begins[source], begins[target]))

        return (
            all(self.roots(call.arguments[at]).isdisjoint(inside) for at in others)
            and (
                not any(self.stores(call, at) for at in ours)
                or all(
                    self.apart(places, ours[one], ours[other]) or copied(one, other) or copied(other, one)
                    for one, other in combinations(ours, 2)
                )
            )
            and self.kernel(places, call)[1] is not None  # which takes longest to tell
        )

    def stores(self, call: ir.CallKernel, position: int) -> bool:
        """Return whether a kernel may store to a parameter."""
        parameter = self.analysis.program.kernels[call.kernel].parameters[position]
        return not isinstance(parameter, ir.KernelBuffer) or parameter.writes

    def moved(self, places: Places, call: ir.CallKernel) -> tuple[Places, Mapping[int, int]]:
        """The arguments of a call in whose place it is given wholes, by position, and through which others
        some of them are accessed; nothing where none of them lies in another tensor.
        """
        given = self.given[call.var]
        found = {at: self.place(places, root) for at, root in given.items()}
        wholes = {found[at].whole for at, root in given.items() if root in places}
        found = {at: place for at, place in found.items() if place.whole in wholes}
        last = {found[at].whole: at for at in sorted(found, key=lambda at: (self.stores(call, at), at))}
        stored = {place.whole for at, place in found.items() if self.stores(call, at)}
        shared = {at: last[place.whole] for at, place in found.items() if place.whole in stored}
        return found, {at: other for at, other in shared.items() if at != other}

    def kernel(self, places: Places, call: ir.CallKernel) -> tuple[object, tirx.PrimFunc | None]:
        """A kernel that is proved to do with wholes what it does with parts, None where it cannot be given
        them; and what it is known by.
        """
        moved, through = self.moved(places, call)
        parts = dict[int, Part]()
        for at, place in moved.items():
            pairs = zip(self.shapes[self.given[call.var][at]], self.shapes[place.whole], strict=True)
            extents = tuple(None if own == whole else whole.as_constant for own, whole in pairs)
            parts[at] = Part(place.offsets, extents)
        wider = [at for at, part in parts.items() if any(one is not None for one in part.extents[1:])]
        key = call.kernel, *parts.items(), *through.items()
        if key not in self.kernels:
            kernel = self.analysis.program.kernels[call.kernel]
            given, offsets = self.module[call.kernel], {at: place.offsets for at, place in moved.items()}
            made = with_parts(given, parts, through)
            proved = made is not None and restores(given, made, offsets, through)
            # a first index beyond its extent is beyond the tensor
            proved = proved and all(stays_inside(kernel, at, self.prover, first=1) for at in wider)
            self.kernels[key] = made if proved else None
        return key, self.kernels[key]


def _end(begin: int, extent: Expr) -> float:
    """The end of a range; infinity where that is no number."""
    return begin + (inf if extent.as_constant is None else extent.as_constant)


# -- search --------------------------------------------------------------------------------------------------


def places_in(proof: PartsProof) -> Places:
    """The tensors of a function that can lie in others, where no more is held then."""
    places, peaks = dict[int, PartPlace](), _peaks(proof)
    held = peaks(places)
    for point, call in proof.analysis.cfg.of_type(ir.CallKernel):
        given = proof.given[call.var]
        for target, sources in copies_of(proof.module[call.kernel]).items():
            whole = given.get(target)
            if whole is None or proof.spans[whole][0] < point:
                continue
            behind = [(given[source], by) for source, by in sources.items() if source in given]
            for some in (behind, *([one] for one in behind)):
                tried: Places = places
                for source, by in some:
                    tried = _moved(proof, tried, source, whole, by)
                if tried != places and ((most := peaks(tried)) <= held).all() and proof.holds(tried):
                    places, held = {**tried}, most
    return places


def _moved(proof: PartsProof, places: Places, source: int, whole: int, behind: Offsets) -> Places:
    """Places with all of what a tensor lies in put into a whole, so far behind its first element that this
    is `behind` there; the same where it never fits.
    """
    (top, offsets), (into, begin) = (proof.place(places, one) for one in (source, whole))
    distance = tuple(map(sub, map(add, behind, begin), offsets))
    if top == into or not proof.fits(top, PartPlace(into, distance)):
        return places
    inside = {root: place.offsets for root, place in places.items() if place.whole == top}
    inside[top] = proof.place({}, top).offsets
    return {**places, **{one: PartPlace(into, tuple(map(add, at, distance))) for one, at in inside.items()}}


def _peaks(proof: PartsProof) -> Callable[[Places], Values]:
    """A function that tells the most bytes that are held at once, by sample shape."""
    known = proof.analysis.allocations
    sizes = [padded_size(known[proof.fresh[root].var].nbytes) or ZERO for root in proof.spans]
    names = sorted(frozenset[str]().union(*(size.symbols for size in sizes)))
    grid = sample_grid(known_symbols(proof.analysis.cfg).domain, names)
    bytes_of = dict(zip(proof.spans, np.nan_to_num(grid.values(sizes)), strict=True))

    def peaks(places: Places) -> Values:
        changes = np.zeros((len(proof.analysis.cfg.points) + 1, len(grid)))
        held = dict[int, list[int]]()
        for root, span in proof.spans.items():
            held.setdefault(proof.place(places, root).whole, []).extend(span)
        for root, points in held.items():
            changes[min(points)] += bytes_of[root]
            changes[max(points) + 1] -= bytes_of[root]
        found: Values = changes.cumsum(axis=0).max(axis=0)
        return found

    return peaks


# -- writing -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _PartsWriter:
    """Writes a function with tensors in others; `made` are the kernels of the `draft` that take wholes."""

    proof: PartsProof
    places: Places
    draft: ModuleDraft
    made: dict[object, GlobalVar]

    def bindings(self, function: relax.Function) -> Iterator[relax.Binding]:
        """The bindings of a function; a whole is allocated where the first of its parts was."""
        proof, instructions = self.proof, by_binding(self.proof.analysis.cfg)
        gone, there = set[int](), set[int]()
        for binding in bindings_in(function.body):
            key = binding.var.__chandle__()
            match instructions.get(binding.__chandle__()):
                case ir.AllocFresh() as made if (root := proof.root(made.var)) is not None:
                    whole = proof.place(self.places, root).whole
                    gone |= {key} if root in self.places else set()
                    if whole not in there:
                        there.add(whole)
                        yield proof.bindings[whole]
                case ir.CallKernel() as call:
                    yield self.called(call, binding)
                case ir.Alias() | ir.View() as other if not proof.roots(other.var).isdisjoint(self.places):
                    gone.add(key)
                case None if binding.value.__chandle__() in gone:
                    gone.add(key)
                case _:
                    yield binding

    def called(self, call: ir.CallKernel, binding: BindingNode) -> relax.Binding:
        """The call of a kernel with what its arguments lie in."""
        moved, _ = self.proof.moved(self.places, call)
        key, kernel = self.proof.kernel(self.places, call) if moved else ((), None)
        if kernel is None:
            return binding
        if key not in self.made:
            self.made[key] = self.draft.add(f"{call.kernel}_in_parts", kernel)
        arguments = [*elements(binding.value.args)]
        for at, place in moved.items():
            arguments[at] = self.proof.bindings[place.whole].var
        return bound(binding.var, with_arguments(binding.value, arguments, self.made[key]))
