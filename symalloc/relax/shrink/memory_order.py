"""Kernel calls in an order in which a function holds less, where data leave a choice.

Of what a call waits for, that comes first which needs most beyond what is left of it, as in code for
expressions (Sethi and Ullman, The generation of optimal code for arithmetic expressions, 1970).  The order
is taken where it holds no more than that of the program at any sample shape, and less in the mean.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import tvm
from tvm import relax

from symalloc.analysis.dependencies import DependencyGraph, dependency_graph
from symalloc.analysis.interprocedural import FunctionAnalysis
from symalloc.planner.buffers.sizing import known_symbols, padded_size
from symalloc.planner.grid import TYPICAL, Values, sample_grid
from symalloc.program import ir
from symalloc.relax.ir_types import BindingNode, VarNode, elements, of_type, visit
from symalloc.relax.rewrite import map_functions, with_body

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
        used: list[VarNode] = []
        visit(binding.value, (tvm.ir.Var, used.append))
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
