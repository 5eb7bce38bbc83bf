"""Results written over inputs, which is tried before it is told."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import tvm

from symalloc.analysis.donation import Donation, inputs_of, outputs_of
from symalloc.analysis.interprocedural import analyse
from symalloc.analysis.timeline import Timeline
from symalloc.planner.check.validate import PlanRefusedError
from symalloc.planner.memory_report.call_moments import CallPeak, Remedy
from symalloc.program.types import TensorType
from symalloc.prover.prover import Prover
from symalloc.relax.donation.donate import donate
from symalloc.relax.extract import extract
from symalloc.size.expr import evaluated


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
