"""Outputs of kernels that are written over tensors which their calls read last.

`out` becomes a view of such a tensor in front of the planner, for which the two are one buffer then, and
the kernel is called in its in-place form, as where an input is donated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import tvm

from symalloc.analysis.effects import RETURNED
from symalloc.analysis.interprocedural import FunctionAnalysis
from symalloc.planner.buffers.sizing import known_symbols
from symalloc.program import ir
from symalloc.program.operands import tensor_type
from symalloc.prover.domain import Budget
from symalloc.prover.prover import Prover
from symalloc.relax.donation.donate import DonationWriter, InPlace, Overlay, can_overlay, overlay_of
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
    writer, in_place = DonationWriter(module, "none"), partial(can_overlay, module, program, prover)
    found: dict[str, Sequence[WrittenOver]] = {}
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
        takeover, lost = self.analysis.conflicts.takeover, self.groups.get(source, [source])
        if any((c.writer, c.reader) != (point, point) for one in lost for c in takeover(output, one)):
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
