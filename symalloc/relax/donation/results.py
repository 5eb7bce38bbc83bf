"""Results in memory of the caller: over inputs, tried before it is told, and in tensors that it gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

import msgspec
import tvm
from tvm import relax

from symalloc.analysis.donation import WHOLE, Donation, inputs_of, outputs_of
from symalloc.analysis.interprocedural import FunctionAnalysis, analyse
from symalloc.analysis.timeline import Timeline
from symalloc.planner.buffers.candidates import known_symbols
from symalloc.planner.check.validate import PlanRefusedError
from symalloc.planner.memory_plan import GuardKind
from symalloc.planner.memory_report.call_moments import CallPeak, Remedy
from symalloc.program.ir import Program
from symalloc.program.types import TensorType, type_leaves
from symalloc.prover.prover import Prover
from symalloc.relax.donation.donate import (
    DonatedAlias,
    DonationWriter,
    InPlace,
    can_overlay,
    donate,
    donated_aliases,
)
from symalloc.relax.extract import extract
from symalloc.relax.ir_types import Node, VarNode, bound, effect, elements, free_name, typed_var
from symalloc.relax.rewrite import forced_pure, with_body, with_functions
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


# -- results that are written into tensors that the caller gives -------------------------------------------


COPY = "runtime.TVMTensorCopyFromTo"
COPIED = relax.ExternFunc(COPY)

Path = tuple[int, ...]


def take_results(
    module: tvm.IRModule, program: Program, prover: Prover, guards: GuardKind = "assert"
) -> tvm.IRModule:
    """`module`, as CallTIRRewrite leaves it, whose public functions take a tensor for each tensor of their
    result behind their parameters, and write it there.

    Each is a donated output where that is proved; what is not, such as an input that is returned, is copied
    there in the end.  `program` is what was extracted from it.  A tensor whose shape the parameters do not
    tell stays the function's own.
    """
    analyses = analyse(program)
    wanted = {
        name: found
        for name, analysis in analyses.items()
        if program.functions[name].takes_memory and (found := _parameters(module[name], analysis))
    }
    module = with_functions(
        module,
        {
            module.get_global_var(name): with_body(module[name], module[name].body, list(found.values()))
            for name, found in wanted.items()
        },
    )
    program = extract(module, name="module", stage="CallTIRRewrite", handles=True)
    analyses, writer = analyse(program), DonationWriter(module, guards)
    in_place = partial(can_overlay, module, program, prover)
    copied: dict[str, dict[Path, VarNode]] = {}
    for name, params in wanted.items():
        carried = {path: _carried(analyses[name], path, p, prover, in_place) for path, p in params.items()}
        copied[name] = {path: params[path] for path, alias in carried.items() if alias is None}
        writer.function(analyses[name].cfg, [alias for alias in carried.values() if alias is not None])
    written = writer.finished()
    ends = {
        written.get_global_var(name): _End(wanted=wanted).appended(written[name])
        for name, wanted in copied.items()
        if wanted
    }
    return with_functions(written, ends)


def _parameters(function: relax.Function, analysis: FunctionAnalysis) -> dict[Path, VarNode]:
    """A parameter for each tensor of the result whose shape is known at entry, by its place there."""
    seen = analysis.cfg.function
    entry, taken = known_symbols(analysis.cfg).entry, {p.name for p in seen.params}
    found: dict[Path, VarNode] = {}
    for path, kind in type_leaves(seen.result_type):
        if not isinstance(kind, TensorType) or kind.shape is None or kind.dtype is None:
            continue
        if not all(extent.symbols <= entry for extent in kind.shape):
            continue
        theirs, name = function.body.body.ty, "_".join(["result", *map(str, path)])
        for index in path:
            theirs = theirs.fields[index]
        found[path] = typed_var(free_name(name, taken, lambda n: "_" * n), theirs)
    return found


def _carried(
    analysis: FunctionAnalysis, path: Path, param: VarNode, prover: Prover, in_place: InPlace
) -> DonatedAlias | None:
    """The result at `path` in the memory of a parameter; None where that is not proved."""
    donation = Donation(output=".".join(map(str, path)) or WHOLE, input=param.name)
    try:
        (found,) = donated_aliases(analysis, [donation], prover, in_place)
    except PlanRefusedError:
        return None
    return None if found.guards else found


@dataclass(slots=True, kw_only=True)
class _End:
    """The end of a function, which copies fields of its result into the parameters that are `wanted`."""

    wanted: Mapping[Path, VarNode]
    bindings: list[relax.Binding] = field(default_factory=list)

    def appended(self, function: relax.Function) -> relax.Function:
        """`function` with the copies behind all that it does."""
        seq = function.body
        result = self.given(seq.body, ())
        blocks = [*elements(seq.blocks), relax.BindingBlock(self.bindings)]
        body = relax.BlockBuilder().normalize(relax.SeqExpr(blocks, result, seq.span))
        return forced_pure(with_body(function, body))

    def given(self, value: Node, path: Path) -> Node:
        """The value that is returned in place of `value`, the field at `path`."""
        if path in self.wanted:
            self.bindings.append(effect(COPIED, [value, self.wanted[path]], "copied"))
            return self.wanted[path]
        if not any(one[: len(path)] == path for one in self.wanted):
            return value
        return relax.Tuple([self.given(one, (*path, i)) for i, one in enumerate(self.fields(value))])

    def fields(self, value: Node) -> Iterator[Node]:
        """The fields of a tuple, each bound to a variable where it is not written out."""
        if type(value) is relax.Tuple:
            yield from elements(value.fields)
            return
        for index, kind in enumerate(value.ty.fields):
            var = typed_var("field", kind)
            self.bindings.append(bound(var, relax.TupleGetItem(value, index)))
            yield var
