"""Outputs of kernels that are written over tensors which their calls read last.

`out` becomes a view of such a tensor in front of the planner, for which the two are one buffer then, and
the kernel is called in its in-place form, as where an input is donated.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import tvm
from tvm import relax, tirx

from symalloc.analysis.dependencies import DependencyGraph, dependency_graph
from symalloc.analysis.effects import RETURNED
from symalloc.analysis.interprocedural import FunctionAnalysis
from symalloc.planner.buffers.candidates import known_symbols, padded_size
from symalloc.planner.grid import TYPICAL, Values, sample_grid
from symalloc.program import ir
from symalloc.program.operands import tensor_type
from symalloc.prover.domain import Budget, Domain
from symalloc.prover.prover import Prover
from symalloc.relax.donation.donate import (
    DonationWriter,
    InPlace,
    Overlay,
    can_overlay,
    overlay_of,
    replaced_inputs,
)
from symalloc.relax.ir_types import BindingNode, elements, nodes_in, of_type
from symalloc.relax.rewrite import map_functions, with_body
from symalloc.relax.shrink.kernel_parts import copies_of
from symalloc.size.condition import eq
from symalloc.size.expr import ZERO


class WrittenOver(NamedTuple):
    """The kernel call that binds `call` writes `output` over `source`, which are as large."""

    call: ir.Var
    output: ir.Var
    source: ir.Var
    overlay: Overlay


def write_over(
    module: tvm.IRModule,
    program: ir.Program,
    analyses: Mapping[str, FunctionAnalysis],
    larger: Mapping[str, int] = {},
    tried: dict[object, bool] | None = None,
) -> tuple[tvm.IRModule, Mapping[str, Sequence[WrittenOver]]]:
    """`module`, as CallTIRRewrite leaves it, with outputs written over what their calls read last, where that
    is proved; and these, by function.

    `program` is what was extracted from it.  A function whose plan came out `larger` once keeps its results
    apart, and twice, all that it has.  `tried` has what is known of the kernels from another order of calls.
    """
    prover = Prover(Budget(z3_steps=0))  # what is in step is seen without z3, and the other kernels are many
    writer, found = DonationWriter(module, "none"), dict[str, Sequence[WrittenOver]]()

    def in_place(call: ir.CallKernel, overlay: Overlay, domain: Domain) -> bool:
        alike = is_in_step(module[call.kernel], overlay)  # most are
        return alike or can_overlay(module, program, prover, call, overlay, domain)

    known = {} if tried is None else tried
    for name, analysis in analyses.items():
        tries = larger.get(name, 0)
        search = OverwriteSearch(
            analysis=analysis, prover=prover, in_place=in_place, results=not tries, tried=known
        )
        if tries < 2 and (pairs := tuple(search.pairs())):
            found[name], made = pairs, analysis.cfg.definitions
            sources: dict[ir.Var, Any] = {one.output: made[one.source].handle for one in pairs}
            sources = {output: binding.var for output, binding in sources.items()}
            writer.function(analysis.cfg, (), sources, {one.call: (one.overlay,) for one in pairs})
    return (writer.finished() if found else module), found


def is_in_step(kernel: tirx.PrimFunc, overlay: Overlay) -> bool:
    """Return whether `kernel` loads of the inputs of an overlay only the element that it stores next."""
    behind = copies_of(kernel).get(overlay.output, {})
    in_step = all(one in behind and not any(behind[one]) for one in overlay.inputs)
    return in_step and replaced_inputs(kernel, (overlay,)) is not None


@dataclass(kw_only=True)
class OverwriteSearch:
    """The search for what kernel calls of a function can write over what.

    With `results` these may lie over other tensors, too.  `groups` holds by root those that lie in one
    memory, in order; `over` are those that are written over, or must not be.
    """

    analysis: FunctionAnalysis
    prover: Prover
    in_place: InPlace
    results: bool = True
    groups: dict[int, list[int]] = field(default_factory=dict)
    over: set[int] = field(default_factory=set)
    tried: dict[object, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        cfg, known = self.analysis.cfg, self.analysis.allocations
        self.domain = domain = known_symbols(cfg).domain
        bounds = (frozenset(side.items()) for side in (domain.lower, domain.upper))
        self.asked = (*bounds, domain.assumptions, domain.default_lower, domain.default_upper)
        allocated = [(made, known[made.var]) for _, made in cfg.of_type(ir.AllocFresh) if not made.giver]
        kinds = (None, RETURNED) if self.results else (None,)
        own = [(made, one) for made, one in allocated if one.escape in kinds and one.nbytes is not None]
        self.fresh = {one.number: (made, one.nbytes or ZERO) for made, one in own}
        self.over.update(one.number for _, one in own if one.escape is not None)
        takeover = self.analysis.conflicts.takeover  # what is made in pieces meets the same in each
        self.meetings = cache(lambda *roots: {(one.writer, one.reader) for one in takeover(*roots)})

    def pairs(self) -> Iterator[WrittenOver]:
        """Yield the outputs that are written over something, in the order of their calls.

        Over which of several tensors makes no difference: all of them are needed up to the call.
        """
        points_to = self.analysis.points_to
        for point, call in self.analysis.cfg.of_type(ir.CallKernel):
            given = [points_to.only_region(points_to.value_of(one)) for one in call.arguments]
            roots = dict.fromkeys(one.root for one in given if one is not None and one.root in self.fresh)
            for output in roots:
                for source in (one for one in roots if self.alike(one, output)):
                    overlay = self.overlay(point, call, source, output)
                    if overlay is not None:
                        group = self.groups[source] = self.groups[output] = self.groups.get(source, [source])
                        group.append(output)
                        self.over.add(source)
                        made, lost = self.fresh[output][0].var, self.fresh[source][0].var
                        yield WrittenOver(call.var, made, lost, overlay)
                        break

    def alike(self, source: int, output: int) -> bool:
        """Return whether two tensors are as large, and one is there where the other is made."""
        if source in self.over or output in self.groups:
            return False
        (one, size), (other, wanted) = self.fresh[source], self.fresh[output]
        starts, paths = self.analysis.cfg.starts, self.analysis.cfg.paths
        begin, end = starts[one.var], starts[other.var]
        there = begin < end and paths[begin] <= paths[end]
        if not there or (one.dtype, one.device, one.scope) != (other.dtype, other.device, other.scope):
            return False
        return self.prover.prove(eq(size, wanted), self.domain, explain=False).holds

    def overlay(self, point: int, call: ir.CallKernel, source: int, output: int) -> Overlay | None:
        """The way in which `call` can write one tensor over another; None where something needs that, or
        what was in its memory before, once anything has written the first.
        """
        meetings = (self.meetings(output, one) for one in self.groups.get(source, [source]))
        if not all(one <= {(point, point)} for one in meetings):
            return None
        overlay = overlay_of(self.analysis.points_to, call, source, output)
        if overlay is None:
            return None
        kinds = ((tensor_type(one), one) for one in call.arguments)
        shapes = tuple(one if kind is None else kind.shape for kind, one in kinds)
        key = self.asked, call.kernel, overlay, shapes
        if key not in self.tried:
            self.tried[key] = self.in_place(call, overlay, self.domain)
        return overlay if self.tried[key] else None


_PASSIVE = (ir.AllocFresh, ir.Alias, ir.MakeTuple, ir.TakeField, ir.View)


def order_for_memory(
    module: tvm.IRModule, analyses: Mapping[str, FunctionAnalysis], kept: Collection[str] = ()
) -> tuple[tvm.IRModule, Collection[str]]:
    """`module`, as CallTIRRewrite leaves it, with kernel calls in an order that needs less, in the functions
    whose names are told besides; none of them is among those `kept`.

    Calls stay between the same checks, Ifs, packed functions and whatever else is no kernel.
    """
    changed = list[str]()

    def ordered(name: str, function: relax.Function) -> relax.Function | None:
        body = analyses[name].cfg.function.body.instructions
        runs = [[*run] for moves, run in groupby(body, _may_move) if moves]
        order = None if name in kept else better_order(analyses[name], runs)
        if order is None:
            return None
        changed.append(name)
        return _rewritten(function, body, order)

    return map_functions(module, ordered), changed


def _may_move(one: ir.Instruction) -> bool:
    copies = isinstance(one, ir.View) and one.kind == "ensure_zero_offset"
    return isinstance(one, (ir.CallKernel, *_PASSIVE)) and not copies


def better_order(
    analysis: FunctionAnalysis, runs: Sequence[Sequence[ir.Instruction]]
) -> Sequence[ir.Instruction] | None:
    """The dispatches of a function, those of each of `runs` in an order that holds less; None where none is
    found.
    """
    graph = dependency_graph(analysis)
    numbers = {id(one): number for number, one in enumerate(graph.instructions)}
    inside = filter(None, ([numbers[id(one)] for one in run if id(one) in numbers] for run in runs))
    held = _HeldTensors.of(analysis, graph)
    order = [*range(len(graph.nodes))]
    for run in inside if held.sizes.size else ():
        order[run[0] : run[0] + len(run)] = held.least_first(graph.predecessors, run)
    before, after = held.peaks(range(len(order))), held.peaks(order)
    if (after > before).any() or (after == before).all():
        return None
    return [graph.instructions[number] for number in order]


@dataclass(frozen=True, kw_only=True)
class _HeldTensors:
    """The tensors that a function allocates: their `sizes` at sample shapes, a row for each, of which one is
    `typical`, and the dispatches that touch them, of `count`; the end of the function is one, too.
    """

    sizes: Values
    typical: int
    users: Sequence[Sequence[int]]
    count: int

    @classmethod
    def of(cls, analysis: FunctionAnalysis, graph: DependencyGraph) -> _HeldTensors:
        """The tensors of a function whose sizes are known."""
        regions, sizes = analysis.points_to.regions, {}
        for number in graph.touches:
            size, made = padded_size(regions[number].nbytes), regions[number].instruction
            if size is not None and type(made) is ir.AllocFresh and not made.giver:
                sizes[number] = size
        names = sorted(frozenset[str]().union(*(size.symbols for size in sizes.values())))
        grid = sample_grid(known_symbols(analysis.cfg).domain, names)
        return cls(
            sizes=np.nan_to_num(np.maximum(grid.values([*sizes.values()]), 0.0), posinf=0.0),
            typical=grid.nearest(dict.fromkeys(grid.names, TYPICAL)),
            users=[sorted({touch.dispatch for touch in graph.touches[number]}) for number in sizes],
            count=len(graph.nodes),
        )

    def peaks(self, order: Sequence[int]) -> Values:
        """The most bytes of them that are held at once, by sample shape."""
        places = {number: place for place, number in enumerate([*order, self.count])}
        changes = np.zeros((self.count + 2, self.sizes.shape[1]))
        for users, sizes in zip(self.users, self.sizes, strict=True):
            at = [places[one] for one in users]
            changes[min(at)] += sizes
            changes[max(at) + 1] -= sizes
        found: Values = changes.cumsum(axis=0).max(axis=0)
        return found

    def least_first(self, waits: Sequence[frozenset[int]], run: Sequence[int]) -> list[int]:
        """The dispatches of `run` in an order that holds less at the typical shape."""
        made, most = dict.fromkeys(run, 0.0), dict[int, float]()
        for users, size in zip(self.users, self.sizes[:, self.typical].tolist(), strict=True):
            if users[0] in made:
                made[users[0]] += size
        first = dict[int, list[int]]()
        for one in run:
            first[one] = sorted(waits[one] & made.keys(), key=lambda n: (made[n] - most[n], n))
            left = np.cumsum([0.0, *(made[n] for n in first[one])])
            most[one] = max(made[one] + left[-1], *(most[n] + left[i] for i, n in enumerate(first[one])), 0.0)
        found, awaited = dict[int, None](), frozenset[int]().union(*first.values())
        for last in (one for one in run if one not in awaited):
            pending = [last]
            while pending:
                needed = next((n for n in first[pending[-1]] if n not in found), None)
                if needed is None:
                    found[pending.pop()] = None
                else:
                    pending.append(needed)
        return list(found)


def _address(one: ir.Instruction) -> int:
    """The address of the binding that an instruction comes from."""
    handle: Any = one.handle
    return int(handle.__chandle__())


def _rewritten(
    function: relax.Function, body: Sequence[ir.Instruction], order: Sequence[ir.Instruction]
) -> relax.Function:
    """`function` with its dispatches in `order`, each behind what it uses that is none."""
    bindings = [one for block in elements(function.body.blocks) for one in elements(block.bindings)]
    fixed = {_address(one) for one in body if not _may_move(one)}
    ranks = {_address(one): rank for rank, one in enumerate(order)}
    makers = {one.var.__chandle__(): one for one in bindings}
    written = dict[int, BindingNode]()

    def rank(binding: BindingNode) -> int:
        return ranks.get(binding.__chandle__(), len(ranks))

    def write(binding: BindingNode) -> None:
        if binding.__chandle__() in written:
            return
        used = nodes_in([binding.value], tvm.ir.Var)
        for maker in filter(None, (makers.get(one.__chandle__()) for one in used)):
            write(maker)
        written[binding.__chandle__()] = binding

    for _, run in groupby(bindings, lambda one: one.__chandle__() in fixed):
        inside = [*run]
        calls = sorted((one for one in inside if rank(one) < len(ranks)), key=rank)
        for binding in (*calls, *inside):
            write(binding)
    block = relax.BindingBlock([*written.values()])
    return with_body(function, of_type(relax.SeqExpr([block], function.body.body), function.body.ty))
