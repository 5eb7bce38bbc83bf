"""Savings that are tried before they are told: results written over inputs, and kernels in place."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations

import msgspec
import tvm

from symalloc.analysis.donation import Donation, inputs_of, outputs_of
from symalloc.analysis.interprocedural import FunctionAnalysis, analyse
from symalloc.analysis.timeline import Timeline
from symalloc.planner.buffers.sizing import known_symbols
from symalloc.planner.check.validate import PlanRefusedError
from symalloc.planner.memory_plan import Buffer, Plan
from symalloc.planner.memory_report.call_peak import CallPeak, Remedy
from symalloc.program import ir
from symalloc.program.types import TensorType
from symalloc.prover.prover import Prover
from symalloc.relax.donation.donate import can_overlay, donate, overlay_of
from symalloc.relax.extract import extract
from symalloc.size.evaluation import evaluated


def with_alias(
    peak: CallPeak, module: tvm.IRModule, name: str, binding: Mapping[str, int], prover: Prover
) -> CallPeak:
    """The peak of a call of the function `name`, its remedy with an alias that was tried, where a result
    makes the most of it, or with the reason why there is none.
    """
    remedy = peak.remedy
    if remedy is None or not any(t.kind == "result" and t.name == remedy.name for t in peak.tensors):
        return peak
    program = extract(module, name="module", handles=True)
    points_to = analyse(program)[name].points_to
    roots = {r.number for r in points_to.regions if r.var is not None and r.var.name == remedy.name}
    outputs = [one for one in outputs_of(points_to) if roots & points_to.roots(one.cell.must | one.cell.may)]
    refused = "no input is as large"
    for output, source in ((one, other) for one in outputs for other in inputs_of(points_to)):
        donation = Donation(output=output.names[0], input=source.names[0], function=name)
        sizes = [one.type.nbytes if isinstance(one.type, TensorType) else None for one in (output, source)]
        wanted, there = (evaluated(size, binding) for size in sizes)
        if wanted is None or there is None or wanted > there:
            continue
        try:
            made = donate(module, program, [donation], prover)
        except PlanRefusedError as refusal:
            refused = str(refusal)
            continue
        without = Timeline.of(extract(made, name="module"), name).peak(binding)
        if without is not None and without < peak.nbytes:
            found = Remedy(
                name=remedy.name,
                without=without,
                alias=str(donation) if name == "main" else f"{name}:{donation}",
            )
            return msgspec.structs.replace(peak, remedy=found)
    return msgspec.structs.replace(peak, remedy=msgspec.structs.replace(remedy, refused=refused))


def written_over(
    module: tvm.IRModule, program: ir.Program, analysis: FunctionAnalysis, plan: Plan, prover: Prover
) -> frozenset[int]:
    """The buffers of a plan, by number, that the kernel that reads them last is proved to be able to write an
    output over.
    """
    points_to, placed = analysis.points_to, {var: one.buffer for var, (_, one) in plan.placements.items()}
    domain, found = known_symbols(analysis.cfg).domain, set[int]()
    kernels = {variable.name_hint for variable in module.functions}
    for call in (call for _, call in analysis.cfg.of_type(ir.CallKernel) if call.kernel in kernels):
        regions = [points_to.only_region(points_to.value_of(one)) for one in call.arguments]
        given = {one.number: placed[one.var] for one in regions if one is not None and one.var in placed}
        for (source, last), (target, output) in permutations(given.items(), 2):
            ends = last.id not in found and _follows(last, output)
            overlay = overlay_of(points_to, call, source, target) if ends else None
            if overlay is not None and can_overlay(module, program, prover, call, overlay, domain):
                found.add(last.id)
    return frozenset(found)


def _follows(source: Buffer, output: Buffer) -> bool:
    """Return whether one buffer is needed first where another one, of its size and place, is needed last."""
    alike = (source.size, source.device, source.scope) == (output.size, output.device, output.scope)
    touch = bool(source.live and output.live) and source.live[-1][1] == output.live[0][0] + 1
    return alike and touch and not source.returned
