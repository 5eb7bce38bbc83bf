"""DonateInputs: outputs written into the memory of inputs that the caller gives up.

Stands in front of the planner.  `alloc = R.builtin.alloc_tensor(shape, dtype)` becomes a view of the input,
at byte 0, and what allocates nothing is not planned.  A kernel that reads the input while it writes the
output is called in a form of its own, in which the two are one buffer: two parameters that share memory would
break the promise that its pointers do not alias.  Where the output may be larger than the input a check at
entry stops the function.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import tvm
import tvm_ffi
from tvm import ir, relax, tirx
from tvm.ir import Call, GlobalVar
from tvm.tirx.buffer import BufferType

from symalloc.analysis.argument_binding import kernel_facts
from symalloc.analysis.donation import Donation, function_meant
from symalloc.analysis.interprocedural import FunctionAnalysis, analyse
from symalloc.analysis.kernels.overlap import KernelArgument, clashes, symbol_values
from symalloc.planner.check.validate import PlanRefusedError
from symalloc.planner.planner_options import GuardKind
from symalloc.program.control_flow import ControlFlowGraph, call_graph
from symalloc.program.ir import CallKernel, Instruction, Program, Var
from symalloc.program.operands import tensor_type
from symalloc.prover.domain import INT64_MIN, Domain
from symalloc.prover.prover import Prover
from symalloc.relax.donation.check import DonatedAlias, Overlay, donated_aliases
from symalloc.relax.emit.accepts_offset import accepts_offset
from symalloc.relax.emit.arena_handle import VIEW
from symalloc.relax.emit.guard_calls import GuardWriter
from symalloc.relax.emit.prim_builder import PrimBuilder, entry_symbols
from symalloc.relax.ir_types import (
    BindingNode,
    Node,
    VarNode,
    elements,
    same_extent,
    visit,
    with_parameters,
)
from symalloc.relax.rewrite import BindingRewriter, by_binding, forced_pure, referenced, with_body, without
from symalloc.size.condition import conjunction, negate
from symalloc.size.expr import ZERO

# attributes that say nothing of single parameters by their positions
_HARMLESS = frozenset({"global_symbol", "op_pattern", "s_tir", "tirx.is_scheduled", "tirx.noalias"})


def in_place(
    kernel: tirx.PrimFunc, inputs: Collection[int], output: int, *, equal: bool = True
) -> tirx.PrimFunc | None:
    """`kernel` without its parameters at `inputs`, which reads what they held from the one at `output`.

    None where an index into one means another place in the other.  `equal`: what the caller hands over has
    the same extents in all of these places; otherwise the first one differs, and the kernel must take any.
    """
    if not {*inputs, output} <= accepts_offset(kernel) or not _HARMLESS.issuperset(
        (kernel.attrs or {}).keys()
    ):
        return None
    params = list(kernel.params)
    target, sources = params[output], [params[index] for index in sorted(inputs)]
    kept = [param for index, param in enumerate(params) if index not in inputs]
    for source in sources:
        if not _alike(source.ty, target.ty):
            return None
        if not (equal and _begin_alike(source.ty, target.ty)) and not _takes_any_length(source, kept):
            return None
    replaced = {source.__chandle__() for source in sources}

    def renewed(var: VarNode) -> Node:
        return target if var.__chandle__() in replaced else var

    body = tvm_ffi.structural_map(kernel.body, (ir.Var, renewed))
    if not _is_closed(body, kept, sources):
        return None
    return with_parameters(kernel, kept, body).without_attr("global_symbol")


def _alike(source: BufferType, target: BufferType) -> bool:
    """Return whether an index means the same place in both buffers: extents but for the first, and types."""
    return (
        source.dtype == target.dtype
        and source.storage_scope == target.storage_scope
        and len(source.shape) == len(target.shape)
        and all(map(same_extent, list(source.shape)[1:], list(target.shape)[1:]))
    )


def _begin_alike(source: BufferType, target: BufferType) -> bool:
    return all(map(same_extent, list(source.shape)[:1], list(target.shape)[:1]))


def _takes_any_length(source: Node, kept: Collection[Node]) -> bool:
    """Return whether the first extent of `source` is compared with nothing."""
    first = list(source.ty.shape)[:1]
    others = [extent for param in kept for extent in _bare(param)]
    return all(type(e) is ir.Var and not any(e.same_as(other) for other in others) for e in first)


def _is_closed(body: Node, params: Collection[Node], dropped: Collection[Node]) -> bool:
    """Return whether no extent that only `dropped` parameters bound is still spoken of."""
    bound = {p.__chandle__() for p in params} | {e.__chandle__() for p in params for e in _bare(p)}
    lost = {e.__chandle__() for p in dropped for e in _bare(p)} - bound
    spoken = [body, *(e for p in params if type(p.ty) is BufferType for e in p.ty.shape)]
    return not any(_speaks_of(node, lost) for node in spoken)


def _bare(param: Node) -> Iterator[Node]:
    if type(param.ty) is BufferType:
        yield from (extent for extent in param.ty.shape if type(extent) is ir.Var)


def _speaks_of(node: Node, variables: Collection[int]) -> bool:
    """Return whether one of the variables, given by address, occurs in `node`."""
    found = set[int]()
    visit(node, (ir.Var, lambda one: found.add(one.__chandle__())))
    return not found.isdisjoint(variables)


def donate(
    module: tvm.IRModule,
    program: Program,
    donations: Sequence[Donation],
    prover: Prover,
    *,
    guards: GuardKind = "assert",
) -> tvm.IRModule:
    """`module`, as CallTIRRewrite leaves it, with outputs carried by the inputs that `donations` name.

    `program` is what was extracted from it.  Raises PlanRefusedError where it is not proved that an input can
    carry its output.
    """
    analyses = analyse(program)
    chosen: dict[str, list[Donation]] = {}
    for donation in donations:
        chosen.setdefault(_function(donation, program, analyses), []).append(donation)
    writer = DonationWriter(module=module, program=program, prover=prover, kind=guards)
    for name, wanted in chosen.items():
        found = donated_aliases(analyses[name], wanted, prover, writer.can_overlay)
        _require_checks(name, found, guards)
        writer.function(analyses[name], found)
    return writer.finished()


def _require_checks(function: str, found: Sequence[DonatedAlias], guards: GuardKind) -> None:
    """Raises PlanRefusedError where an output may not fit and nothing is to be checked."""
    for one in found:
        if one.guards and guards == "none":
            claims = " and ".join(str(g.condition) for g in one.guards if g.condition.as_bool is None)
            raise PlanRefusedError(
                f"the alias {one.output.names[0]}={one.input.names[0]} of `{function}` is refused: "
                f"it takes a check at entry, {claims}, and guards are turned off"
            )


def _function(donation: Donation, program: Program, analyses: Mapping[str, FunctionAnalysis]) -> str:
    """The function that a donation speaks of; raises PlanRefusedError where callers within the module know
    nothing of it.
    """
    public = [name for name, function in program.functions.items() if not function.private]
    name = function_meant(donation, public)
    if name is None:
        wanted = donation.function
        which = f"there is no public function `{wanted}`" if wanted else "say which function is meant"
        raise PlanRefusedError(
            f"the alias {donation} is refused: {which}; write FUNCTION:{donation} with one of "
            f"{', '.join(public) or 'none'}"
        )
    callers = [
        c for c, called in call_graph({n: a.cfg for n, a in analyses.items()}).items() if name in called
    ]
    if callers:
        raise PlanRefusedError(
            f"the alias {donation} of `{name}` is refused: `{callers[0]}` calls `{name}`, and donates nothing"
        )
    return name


@dataclass(slots=True, kw_only=True)
class DonationWriter:
    """`kernels` holds the forms of kernels that were made, by the kernel and what is written over what."""

    module: tvm.IRModule
    program: Program
    prover: Prover
    kind: GuardKind
    written: tvm.IRModule = field(init=False)
    guards: GuardWriter = field(init=False)
    kernels: dict[tuple[str, tuple[Overlay, ...]], GlobalVar] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.written = self.module.clone()
        names = {v.name_hint for v in self.module.get_global_vars()}
        self.guards = GuardWriter(kind="assert" if self.kind == "fallback" else self.kind, taken=names)

    def can_overlay(self, call: CallKernel, overlay: Overlay, domain: Domain) -> bool:
        """Return whether `call` is proved to read each element of its inputs before it writes over it, at all
        shapes of `domain`; what nothing binds may be negative.
        """
        kernel = self.program.kernels.get(call.kernel)
        if kernel is None or _over(self.module[call.kernel], overlay) is None:
            return False
        placed = {i: _at_start(call, i) for i in (*overlay.inputs, overlay.output)}
        values = symbol_values(kernel, call)
        lost = (
            clash
            for i in overlay.inputs
            for clash in clashes(kernel, values, placed[i], placed[overlay.output], [*placed.values()])
        )
        unbound = {s: INT64_MIN for v in values.values() if (s := v.as_symbol) is not None and s[-1] == "'"}
        domain = replace(domain, lower={**domain.lower, **unbound})
        domain = domain.assuming(kernel_facts(kernel, call.arguments))
        return all(self.prover.prove(negate(conjunction(c)), domain, explain=False).holds for c in lost)

    def overlaid(self, kernel: str, overlays: tuple[Overlay, ...]) -> GlobalVar:
        """The kernel that writes outputs over inputs."""
        found = self.kernels.get((kernel, overlays))
        if found is None:
            function = _overlaid(self.module[kernel], overlays)
            found = relax.BlockBuilder().add_func(function, self.guards.free_name(f"{kernel}_inplace"))
            self.written.update_func(found, function)
            self.kernels[kernel, overlays] = found
        return found

    def function(self, analysis: FunctionAnalysis, donated: Sequence[DonatedAlias]) -> None:
        """Write the donations to one function."""
        variable = self.module.get_global_var(analysis.cfg.function.name)
        writer = _DonatedFunction(
            module=self, function=self.module[variable], donated=donated, cfg=analysis.cfg
        )
        self.written.update_func(variable, writer.rewritten())

    def finished(self) -> tvm.IRModule:
        """The module without the kernels that nothing calls any more."""
        for name, kernel in self.guards.kernels.items():
            self.written[name] = kernel
        gone = {kernel for kernel, _ in self.kernels} - referenced(self.written)
        public = {n for n in gone if "global_symbol" in (self.module[n].attrs or {})}
        return without(self.written, gone - public)


def _at_start(call: CallKernel, position: int) -> KernelArgument:
    """An argument whose extents are known, at the start of the memory that it shares."""
    kind = tensor_type(call.arguments[position])
    if kind is None or kind.shape is None or kind.dtype is None:
        raise ValueError(f"the argument {position} of `{call.kernel}` has no exact shape")
    return KernelArgument(position=position, offset=ZERO, shape=kind.shape, itemsize=kind.dtype.itemsize)


def _overlaid(kernel: tirx.PrimFunc, overlays: tuple[Overlay, ...]) -> tirx.PrimFunc:
    gone: set[int] = set()
    for overlay in overlays:
        made = _over(kernel, overlay, gone)
        if made is None:
            raise PlanRefusedError("a kernel cannot write several outputs over inputs at once")
        kernel, gone = made, gone | overlay.inputs
    return kernel


def _over(kernel: Node, overlay: Overlay, gone: Collection[int] = ()) -> tirx.PrimFunc | None:
    """`kernel`, whose parameters at `gone` were left out before, written over inputs."""
    inputs = [_behind(position, gone) for position in overlay.inputs]
    return in_place(kernel, inputs, _behind(overlay.output, gone), equal=overlay.equal)


def _behind(position: int, gone: Collection[int]) -> int:
    """The position of a parameter once those at `gone` are left out."""
    return position - sum(other < position for other in gone)


@dataclass(slots=True, kw_only=True)
class _DonatedFunction(BindingRewriter):
    """Writes one function; `sources` are the inputs that tensors become views of."""

    module: DonationWriter
    function: relax.Function
    donated: Sequence[DonatedAlias]
    cfg: ControlFlowGraph
    sources: dict[Var, Node] = field(default_factory=dict)
    instructions: Mapping[int, Instruction] = field(init=False)

    def __post_init__(self) -> None:
        self.instructions = by_binding(self.cfg)

    def rewritten(self) -> relax.Function:
        entry = [*self.checks(), *self.donated_fields()]
        return forced_pure(with_body(self.function, self.sequence(self.function.body, entry)))

    def checks(self) -> Iterator[relax.VarBinding]:
        """The checks that outputs fit into their inputs."""
        name = self.cfg.function.name
        prims = PrimBuilder(dict(entry_symbols(self.function, self.cfg.function)))
        for one in self.donated:
            if one.guards:
                call = self.module.guards.fit(one.guards, str(one.output), str(one.input), name, prims)
                if call is not None:
                    yield self.bind("fits", call)

    def donated_fields(self) -> Iterator[relax.VarBinding]:
        """Take fields out of parameters that are tuples."""
        for one in self.donated:
            value = self.function.params[one.input.parameter]
            for index in one.input.path:
                taken = self.bind("donated", relax.TupleGetItem(value, index))
                yield taken
                value = taken.var
            self.sources.update(dict.fromkeys(one.allocations, value))

    def rewrite(self, binding: BindingNode) -> list[relax.Binding]:
        """`binding`, with a view for a donated allocation and with kernels that write over their inputs."""
        instruction = self.instructions[binding.__chandle__()]
        var = instruction.var
        if var in self.sources:
            return [self.view(binding, self.sources[var])]
        overlays = tuple(one.over[var] for one in self.donated if var in one.over)
        if overlays and isinstance(instruction, CallKernel):
            return [self.over(binding, instruction.kernel, overlays)]
        return list(BindingRewriter.rewrite(self, binding))

    def view(self, binding: BindingNode, source: Node) -> relax.VarBinding:
        shape, dtype, *_ = elements(binding.value.args)
        type_ = binding.var.ty
        call = Call(
            relax.ExternFunc(VIEW), [source, shape, dtype, relax.prim_value(0)], ty_args=[type_], ret_ty=type_
        )
        return relax.VarBinding(binding.var, self.builder.normalize(call))

    def over(self, binding: BindingNode, kernel: str, overlays: tuple[Overlay, ...]) -> relax.VarBinding:
        value = binding.value
        gone = frozenset().union(*(overlay.inputs for overlay in overlays))
        arguments = [a for index, a in enumerate(elements(value.args)) if index not in gone]
        call = Call(self.module.overlaid(kernel, overlays), arguments, value.attrs, value.ty_args, value.span)
        return relax.VarBinding(binding.var, self.builder.normalize(call))
