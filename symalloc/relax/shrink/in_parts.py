"""Tensors that lie in larger ones: parts of a concatenation in its result, images in their padded forms.

Their kernels take the larger one in front of the planner, at other indices (`kernel_parts`): what copied them
finds them where they are to be.  `PartsProof` knows nothing of how places were found and written: where a
tensor begins in another follows from the text of the kernel that copies it, and is the same in all calls.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import combinations, permutations
from math import inf
from operator import add, sub
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.ir import GlobalVar

from symalloc.analysis.effects import RETURNED
from symalloc.analysis.interprocedural import FunctionAnalysis
from symalloc.planner.buffers.sizing import known_symbols, padded_size
from symalloc.planner.grid import Values, sample_grid
from symalloc.program import ir
from symalloc.program.operands import tensor_type
from symalloc.relax.ir_types import (
    BindingNode,
    bindings_in,
    bound,
    elements,
    of_type,
    with_arguments,
)
from symalloc.relax.rewrite import ModuleDraft, by_binding, with_body
from symalloc.relax.shrink.kernel_parts import Offsets, Part, copies_of, restores, with_parts
from symalloc.size.expr import ZERO, Expr


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


# -- proof ---------------------------------------------------------------------------------------------------


class PartsProof:
    """Proves where tensors of a function without branches lie.

    `fresh` are those that it allocates, by root, with `shapes` and `bindings`; `spans` tells the first and
    last point that uses one, `given` those of each call of a kernel, by position; `loose` are the roots that
    anything else sees, `kernels` what was made of kernels.
    """

    def __init__(self, module: tvm.IRModule, analysis: FunctionAnalysis) -> None:
        self.module, self.analysis = module, analysis
        self.copies = cache(lambda name: copies_of(module[name]))
        cfg, known = analysis.cfg, {} if analysis.cfg.joins else analysis.allocations
        made = [(known[one.var].number, one) for _, one in cfg.of_type(ir.AllocFresh) if one.var in known]
        self.fresh = {n: one for n, one in made if one.shape is not None and not (one.inexact or one.giver)}
        self.shapes = {root: one.shape or () for root, one in self.fresh.items()}
        self.bindings: dict[int, Any] = {root: one.handle for root, one in self.fresh.items()}
        self.loose, self.given = {*analysis.escapes}, dict[ir.Var, dict[int, int]]()
        self.kernels: dict[object, tirx.PrimFunc | None] = {}
        points = {root: [one.point for one in analysis.conflicts.accesses_to(root)] for root in self.fresh}
        self.spans = {root: (min(used), max(used)) for root, used in points.items() if used}
        for point in cfg.points:
            if isinstance(point.instruction, ir.CallKernel):
                arguments = point.instruction.arguments
                found = {at: root for at, one in enumerate(arguments) if (root := self.root(one)) is not None}
                self.given[point.instruction.var] = found
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
        """The tensor of `fresh` that an operand is for sure, as it was allocated."""
        points_to, kind = self.analysis.points_to, tensor_type(operand)
        region = points_to.only_region(points_to.value_of(operand))
        if region is None or kind is None or region.offset != ZERO or region.root not in self.fresh:
            return None
        made = self.fresh[region.root]
        return region.root if (kind.shape, kind.dtype) == (made.shape, made.dtype) else None

    def place(self, places: Places, root: int) -> PartPlace:
        """The place of a tensor, in itself where it lies in no other."""
        return places.get(root) or PartPlace(root, (0,) * len(self.shapes[root]))

    def holds(self, places: Places) -> bool:
        """Return whether it is proved that all tensors can lie where they are to."""
        wholes = {place.whole for place in places.values()}
        groups = [{whole, *(one for one in places if places[one].whole == whole)} for whole in wholes]
        return all(self.fits(*one) for one in places.items()) and all(
            all(self.meet(places, *pair) for pair in combinations(inside, 2))
            and all(self.called(places, call, inside) for _, call in self.analysis.cfg.of_type(ir.CallKernel))
            for inside in groups
        )

    def fits(self, root: int, place: PartPlace) -> bool:
        """Return whether a tensor that nothing but kernels sees is a smaller box in another one, whose
        extents are known from the start.
        """
        made, whole = self.fresh[root], self.fresh[place.whole]
        own, extents = self.shapes[root], self.shapes[place.whole]
        known = known_symbols(self.analysis.cfg).entry
        return (
            root not in self.loose
            and self.analysis.escapes.get(place.whole) in (None, RETURNED)
            and (made.dtype, made.device, made.scope) == (whole.dtype, whole.device, whole.scope)
            and known.issuperset(name for one in extents for name in one.symbols)
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
        """Return whether a kernel can be given the whole of the tensors `inside`: all are known, and what it
        stores is apart from what else it is given, or where it loads elements of that and nothing else.
        """
        ours = {at: root for at, root in self.given[call.var].items() if root in inside}
        if places.keys().isdisjoint(ours.values()):
            return True
        copies, others = self.copies(call.kernel), {*range(len(call.arguments))} - ours.keys()
        begins = {at: self.place(places, root).offsets for at, root in ours.items()}
        return (
            self.kernel(places, call)[1] is not None
            and all(self.roots(call.arguments[at]).isdisjoint(inside) for at in others)
            and all(
                not self.stores(call, target)
                or copies.get(target, {}).get(source) == tuple(map(sub, begins[source], begins[target]))
                or self.apart(places, ours[source], ours[target])
                for source, target in permutations(ours, 2)
            )
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
        return found, {at: last[place.whole] for at, place in found.items() if at != last[place.whole]}

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
        key = call.kernel, *parts.items(), *through.items()
        if key not in self.kernels:
            given, offsets = self.module[call.kernel], {at: place.offsets for at, place in moved.items()}
            made = with_parts(given, parts, through)
            proved = made is not None and restores(given, made, offsets, through)
            self.kernels[key] = made if proved else None
        return key, self.kernels[key]


def _end(begin: int, extent: Expr) -> float:
    """The end of a range; infinity where that is no number."""
    return begin + (inf if extent.as_constant is None else extent.as_constant)


# -- search --------------------------------------------------------------------------------------------------


def places_in(proof: PartsProof) -> Places:
    """The tensors of a function that can lie in others, where no more is held then."""
    places, peaks = dict[int, PartPlace](), _peaks(proof)
    for point, call in proof.analysis.cfg.of_type(ir.CallKernel):
        given = proof.given[call.var]
        for target, sources in proof.copies(call.kernel).items():
            whole = given.get(target)
            if whole is None or proof.spans[whole][0] < point:
                continue
            behind = [(given[source], by) for source, by in sources.items() if source in given]
            for some in (behind, *([one] for one in behind)):
                tried: Places = places
                for source, by in some:
                    tried = _moved(proof, tried, source, whole, by)
                if tried != places and (peaks(tried) <= peaks(places)).all() and proof.holds(tried):
                    places = {**tried}
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
        key, kernel = self.proof.kernel(self.places, call)
        if not moved or kernel is None:
            return binding
        if key not in self.made:
            self.made[key] = self.draft.add(f"{call.kernel}_in_parts", kernel)
        arguments = [*elements(binding.value.args)]
        for at, place in moved.items():
            arguments[at] = self.proof.bindings[place.whole].var
        return bound(binding.var, with_arguments(binding.value, arguments, self.made[key]))
