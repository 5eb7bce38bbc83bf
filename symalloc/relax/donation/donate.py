"""DonateInputs: outputs written into the memory of inputs that the caller gives up.

Stands in front of the planner.  `alloc = R.builtin.alloc_tensor(shape, dtype)` becomes a view of the input,
at byte 0, and what allocates nothing is not planned.  A kernel that reads the input while it writes the
output is called in a form of its own, which does both through the output: two pointers to one memory would
break the promise that they do not alias.  Where the output may be larger than the input a check at
entry stops the function.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from typing import TypeAlias

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.ir import GlobalVar

from symalloc.analysis.call_expansion import kernel_facts
from symalloc.analysis.conflicts import ReuseConflict
from symalloc.analysis.donation import Donation, Leaf, function_meant, inputs_of, intermediates_of, outputs_of
from symalloc.analysis.interprocedural import FunctionAnalysis, analyse
from symalloc.analysis.kernels.overlap import KernelArgument, clashes, symbol_values
from symalloc.analysis.regions import Pointees, PointsTo, Region, RegionKind
from symalloc.analysis.sets import only_member, region_set
from symalloc.planner.buffers.candidates import KnownSymbols, Sized, Sizes, known_symbols
from symalloc.planner.check.validate import PlanRefusedError
from symalloc.planner.memory_plan import Guard, GuardKind
from symalloc.planner.overflow_guards import overflow_guards
from symalloc.program import ir
from symalloc.program.control_flow import ControlFlowGraph, PointKind, call_graph
from symalloc.program.ir import Program
from symalloc.program.operands import callee_of, tensor_type
from symalloc.program.types import TensorType
from symalloc.prover.domain import INT64_MAX, INT64_MIN, Domain, Verdict
from symalloc.prover.prover import Prover
from symalloc.relax.emit.emit_module import bound_view
from symalloc.relax.emit.kernel_offsets import accepts_offset
from symalloc.relax.emit.prim_builder import GuardWriter, PrimBuilder
from symalloc.relax.extract.extract_module import WRITTEN_IN_PLACE
from symalloc.relax.ir_types import (
    BindingNode,
    Node,
    TypeNode,
    VarNode,
    bound,
    elements,
    nodes_in,
    same_extent,
    with_arguments,
    with_parameters,
    with_variables,
)
from symalloc.relax.rewrite import BindingRewriter, ModuleDraft, by_binding, forced_pure, with_body
from symalloc.size.condition import TRUE, Condition, conjunction, le, negate
from symalloc.size.expr import ZERO, Expr

InPlace: TypeAlias = Callable[[ir.CallKernel, "Overlay", Domain], bool]
"""Return whether a call of a kernel is proved to be able to write an output over inputs, over a domain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DonatedAlias:
    """An output that lies in the memory of a donated input.

    `allocations` are the tensors that become views of `input`; `guards` what must hold for them to fit.
    `over` holds, by the variables of kernel calls, what such a call writes over what.
    """

    output: Leaf
    input: Leaf
    allocations: frozenset[ir.Var]
    guards: tuple[Guard, ...] = ()
    over: Mapping[ir.Var, Overlay] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """A kernel call writes its argument at position `output` over those at `inputs`."""

    inputs: frozenset[int]
    output: int


def donated_aliases(
    analysis: FunctionAnalysis, donations: Sequence[Donation], prover: Prover, in_place: InPlace
) -> tuple[DonatedAlias, ...]:
    """The donations to one function, proved; raises PlanRefusedError for the first that is not."""
    inputs, outputs = inputs_of(analysis.points_to), outputs_of(analysis.points_to)
    found: list[DonatedAlias] = []
    for donation in donations:
        with refused(donation, analysis.cfg.function.name):
            check = _Check(
                analysis=analysis,
                prover=prover,
                in_place=in_place,
                outputs=outputs,
                output=named_leaf(donation.output, outputs, "output", intermediates_of(analysis.points_to)),
                source=named_leaf(donation.input, inputs, "input"),
            )
            one = check.alias()
            for other in found:
                if other.input.cell.must & one.input.cell.must:
                    raise RefusedAliasError(f"{one.input} is donated already, to {other.output}")
                if other.allocations & one.allocations:
                    raise RefusedAliasError(f"{one.output} is carried already, by {other.input}")
            found.append(one)
    return tuple(found)


class RefusedAliasError(Exception):
    """Why a donation is refused, and what would help."""


@contextmanager
def refused(donation: Donation, function: str) -> Iterator[None]:
    """Raises PlanRefusedError for a donation that is refused within."""
    try:
        yield
    except RefusedAliasError as refusal:
        raise PlanRefusedError(f"the alias {donation} of `{function}` is refused: {refusal}") from None


@dataclass(slots=True, kw_only=True)
class _Check:
    """The proof that `output`, one of `outputs`, can lie in the memory of `source`, or RefusedAliasError."""

    analysis: FunctionAnalysis
    prover: Prover
    in_place: InPlace
    outputs: Sequence[Leaf]
    output: Leaf
    source: Leaf
    known: KnownSymbols = field(init=False)

    def __post_init__(self) -> None:
        self.known = known_symbols(self.analysis.cfg)

    def alias(self) -> DonatedAlias:
        """The alias, proved."""
        roots = self.roots()
        self.same_place(roots.values())
        for root in self.of(self.source.cell):
            for index in self.analysis.conflicts.capturing(root):
                who = _doer(self.analysis.cfg.points[index].instruction)
                raise RefusedAliasError(f"{who} may hold on to {self.source}, and read it later")
        guards = self.sizes(roots.values())
        return DonatedAlias(
            output=self.output,
            input=self.source,
            allocations=frozenset(made.var for made in roots.values()),
            guards=guards,
            over=dict(ChainMap(*map(self.lifetimes, roots))),
        )

    # -- which memory --------------------------------------------------------------------------------------

    def of(self, cell: Pointees) -> frozenset[int]:
        return self.analysis.points_to.roots(cell.must | cell.may)

    def roots(self) -> dict[int, ir.AllocFresh]:
        """The allocations that the output may be, on whatever path; they do not meet on any."""
        output, regions = self.output, self.analysis.points_to.regions
        found = sorted(self.of(output.cell))
        if any(regions[root].external and root in self.of(self.source.cell) for root in found):
            raise RefusedAliasError(f"{output} lies in {self.source} already; leave the alias out")
        made = {root: self.allocated_here(regions[root]) for root in found}
        if not found:
            raise RefusedAliasError(f"{output} is no tensor that the function allocates")
        for other in self.outputs:
            if other.path != output.path and self.of(other.cell) & {*found}:
                raise RefusedAliasError(f"{output} is the output {other}, too; both would change together")
        for pair in combinations(found, 2):
            if self.analysis.conflicts.on_one_path(*pair):
                raise RefusedAliasError(
                    f"{output} is one of {' and '.join(f'`{regions[r].name}`' for r in pair)}, and both are "
                    "in use on one path; compute the one that is returned in the branch that returns it"
                )
        return made

    def allocated_here(self, region: Region) -> ir.AllocFresh:
        match region.instruction:
            case ir.AllocFresh() as made:
                return made
            case ir.CallFunction(name=name) | ir.CallPacked(name=name) | ir.CallOperator(name=name):
                why = f"`{name}` makes it"
            case _ if region.kind is RegionKind.CONSTANT:
                why = "it is a constant"
            case _ if region.kind is RegionKind.PARAMETER:
                why = f"it is the input `{region.name}`"
            case _:
                why = f"it may be `{region.name}`, which is placed already"
        raise RefusedAliasError(f"{self.output} is no tensor that the function allocates itself: {why}")

    def same_place(self, made: Iterable[ir.AllocFresh]) -> None:
        for leaf in (self.output, self.source):
            kind = leaf.type
            if not isinstance(kind, TensorType) or kind.dtype is None or kind.shape is None:
                raise RefusedAliasError(f"{leaf} is no tensor whose shape and element type are known")
            have = kind.device, kind.scope
            if kind.dtype.bits * kind.dtype.lanes % 8:
                raise RefusedAliasError(f"the elements of {leaf}, {kind.dtype.name}, do not fill whole bytes")
        for one in made:
            wanted = one.device, one.scope
            if wanted != have:
                raise RefusedAliasError(
                    f"{self.output} is wanted on device {wanted[0]} ({wanted[1]}), "
                    f"and {self.source} lies on device {have[0]} ({have[1]})"
                )

    # -- sizes ---------------------------------------------------------------------------------------------

    def sizes(self, made: Iterable[ir.AllocFresh]) -> tuple[Guard, ...]:
        """The checks at entry that make the output fit, at all shapes."""
        have = self.source.type.nbytes if isinstance(self.source.type, TensorType) else None
        if have is None:
            raise RefusedAliasError(f"how large {self.source} is, is not known")
        domain = self.known.domain.assuming([le(have, INT64_MAX)])
        reckon = Sizes(self.known, self.prover)
        guards: list[Guard] = []
        for one in made:
            nbytes = self.analysis.points_to.allocated(one.var).nbytes
            sized = reckon.of(nbytes)
            if nbytes is None or not isinstance(sized, Sized):
                raise RefusedAliasError(f"how large {self.output} is, is not known: {sized}")
            claims = [*(le(ZERO, extent) for extent in one.shape or ()), le(nbytes, have)]
            checks = [c for c in dict.fromkeys(claims) if not self.holds(c)]
            exact = overflow_guards((nbytes,), domain, self.prover) if checks else ()
            guards += (Guard(condition=c, check=c) for c in checks)
            guards += (replace(g, condition=TRUE) for g in exact)
        late = frozenset().union(*(g.check.symbols for g in guards)) - self.known.entry
        if late:
            raise RefusedAliasError(
                f"that {self.output} fits into {self.source} cannot be checked at entry: "
                f"{', '.join(f'`{name}`' for name in sorted(late))} becomes known later"
            )
        return tuple(dict.fromkeys(guards))

    def holds(self, claim: Condition) -> bool:
        """Return whether `claim` is proved, or must be checked; raises where it never holds."""
        domain = self.known.domain
        proof = self.prover.prove(claim, domain)
        if proof.holds:
            return True
        # where no tensor is empty; scalars keep their bounds
        filled = self.prover.prove(claim, replace(domain, default_lower=max(1, domain.default_lower)))
        if Verdict.ALWAYS_INVALID not in (proof.verdict, filled.verdict):
            return False
        point = filled.counterexample or proof.counterexample or {}
        at = ", ".join(f"{name} = {value}" for name, value in sorted(point.items())) or "for any shape"
        why = f"{claim} does not hold ({at})" if claim.as_bool is None else "it is larger for every shape"
        raise RefusedAliasError(f"{self.output} never fits into {self.source}: {why}; donate a larger input")

    # -- lifetimes -----------------------------------------------------------------------------------------

    def lifetimes(self, root: int) -> dict[ir.Var, Overlay]:
        """The kernel calls that read the input while they write the output; raises for any other clash."""
        wanted = only_member(self.source.cell.must)
        if wanted is None:
            raise RefusedAliasError("it holds no tensor")
        found: dict[ir.Var, Overlay] = {}
        for clash in self.analysis.conflicts.takeover(root, wanted):
            call = self.analysis.cfg.points[clash.writer].instruction
            if clash.writer != clash.reader or not isinstance(call, ir.CallKernel):
                raise RefusedAliasError(self.overwritten(clash))
            overlay = overlay_of(self.analysis.points_to, call, wanted, root)
            if overlay is None or not self.in_place(call, overlay, self.known.domain):
                raise RefusedAliasError(
                    f"`{call.kernel}` reads {self.source} while it writes {self.output}, and it is not "
                    "proved that it has read each element before it overwrites it, as an elementwise "
                    f"kernel has that takes {self.source} once"
                )
            found[call.var] = overlay
        return found

    def overwritten(self, clash: ReuseConflict) -> str:
        steps = self.analysis.cfg.points
        writer, reader = _doer(steps[clash.writer].instruction), steps[clash.reader]
        if reader.kind is PointKind.EXIT:
            return f"{self.source} is returned, too, and {writer} overwrites it with {self.output}"
        uses = "uses" if clash.certain else "may, through an alias, use"
        return (
            f"{_doer(reader.instruction)} {uses} {self.source} after {writer} has written {self.output} "
            f"over it; use {self.source} before, or copy what is needed of it"
        )


def overlay_of(points_to: PointsTo, call: ir.CallKernel, source: int, target: int) -> Overlay | None:
    """The way that `call` would write the region `target` over the region `source`; None where an argument
    may be part of either, where their rows differ, or where it takes `source` twice: TVM makes 0 of
    `x - y`, once both are one buffer, also where that is NaN.
    """
    places: dict[int, set[int]] = {source: set(), target: set()}
    rows = set[tuple[Expr, ...] | None]()
    for position, argument in enumerate(call.arguments):
        cell, kind = points_to.value_of(argument), tensor_type(argument)
        if not isinstance(cell, Pointees):
            return None
        for region in places.keys() & points_to.roots(cell.must | cell.may):
            if cell != Pointees(region_set((region,))):
                return None
            places[region].add(position)
            rows.add(None if kind is None or kind.shape is None else kind.shape[1:])
    reading, writing = places[source], places[target]
    if len(writing) != 1 or len(reading) > 1 or reading & writing or len(rows) != 1 or None in rows:
        return None
    return Overlay(inputs=frozenset(reading), output=min(writing))


def named_leaf(name: str, leaves: Sequence[Leaf], what: str, others: Iterable[Leaf] = ()) -> Leaf:
    """The leaf of this name, of `others` where none has it; raises RefusedAliasError."""
    found = [leaf for leaf in leaves if leaf.names[0] == name]
    found = found or [leaf for leaf in leaves if name in leaf.names]
    found = found or [leaf for leaf in others if name in leaf.names]
    if len(found) == 1:
        return replace(found[0], names=(name,))
    if found:
        raise RefusedAliasError(f"`{name}` is the name of {len(found)} {what}s: {', '.join(map(str, found))}")
    there = ", ".join(" or ".join(f"`{n}`" for n in leaf.names) for leaf in leaves) or "none"
    raise RefusedAliasError(f"there is no {what} `{name}`; the {what}s are {there}")


def _doer(instruction: ir.Instruction | None) -> str:
    if instruction is None:
        return "the caller"
    if isinstance(instruction, ir.NotUnderstood):
        return instruction.what
    return f"`{callee_of(instruction) or instruction.var.name}`"


def in_place(kernel: tirx.PrimFunc, overlays: Collection[Overlay]) -> tirx.PrimFunc | None:
    """`kernel`, which reads what its parameters at the inputs of `overlays` held from those at the outputs.

    None where an index into one means another place in the other.  Nothing touches an input any more: what
    the caller gives for it only tells extents.
    """
    replaced = replaced_inputs(kernel, overlays)
    if replaced is None:
        return None
    body = tvm_ffi.structural_map(with_variables(kernel.body, replaced), (tirx.BufferStore, _needed))
    return with_parameters(kernel, elements(kernel.params), body).with_attr(WRITTEN_IN_PLACE, True)


def _needed(store: Node) -> Node:
    """A store where it stores anything else than the element that is there."""

    def is_there(value: Node) -> bool:
        alike = type(value) is tvm.ir.TensorLoad and bool(value.source.same_as(store.buffer))
        return alike and all(map(same_extent, elements(value.indices), elements(store.indices)))

    value = store.value
    if type(value) is tvm.ir.Call and getattr(value.op, "name", None) == "prim.if_then_else":
        test, yes, no = elements(value.args)
        by_data = nodes_in([test], tvm.ir.TensorLoad)  # a branch for each element costs more than it saves
        for when, stored, kept in ((test, yes, no), (tirx.Not(test), no, yes)):
            if is_there(kept) and not by_data:
                made = tirx.BufferStore(store.buffer, stored, store.indices)
                return tirx.IfThenElse(when, _needed(made), None)
    return tirx.Evaluate(0) if is_there(value) else store


def replaced_inputs(
    kernel: tirx.PrimFunc, overlays: Collection[Overlay]
) -> Sequence[tuple[VarNode, VarNode]] | None:
    """The inputs with the outputs in whose place they are read; None where an index means another place."""
    params = elements(kernel.params)
    over = {index: one.output for one in overlays for index in one.inputs}
    if not over.keys() | over.values() <= accepts_offset(kernel) or not over.keys().isdisjoint(over.values()):
        return None
    replaced = [(params[index], params[output]) for index, output in over.items()]
    return replaced if all(same_places(source.ty, target.ty) for source, target in replaced) else None


def same_places(one: TypeNode, other: TypeNode) -> bool:
    """Return whether an index means the same place in buffers of two types."""
    mine, theirs = list(one.shape), list(other.shape)
    if one.dtype != other.dtype or one.storage_scope != other.storage_scope or len(mine) != len(theirs):
        return False
    return all(map(same_extent, mine[1:], theirs[1:]))


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
    analyses, writer = analyse(program), DonationWriter(module, guards)
    in_place = partial(can_overlay, module, program, prover)
    for name, wanted in chosen(donations, program, analyses).items():
        found = donated_aliases(analyses[name], wanted, prover, in_place)
        for donation, one in zip(wanted, found, strict=True):
            with refused(donation, name):
                if one.guards and guards == "none":
                    claims = " and ".join(str(g.condition) for g in one.guards if g.condition.as_bool is None)
                    raise RefusedAliasError(f"it takes a check at entry, {claims}, and guards are turned off")
        writer.function(analyses[name].cfg, found)
    return writer.finished()


def chosen(
    donations: Iterable[Donation], program: Program, analyses: Mapping[str, FunctionAnalysis]
) -> dict[str, list[Donation]]:
    """The donations by function; raises PlanRefusedError where it is not clear which one is meant."""
    found: dict[str, list[Donation]] = {}
    for donation in donations:
        found.setdefault(_function(donation, program, analyses), []).append(donation)
    return found


def can_overlay(
    module: tvm.IRModule,
    program: Program,
    prover: Prover,
    call: ir.CallKernel,
    overlay: Overlay,
    domain: Domain,
) -> bool:
    """Return whether `call` is proved to read each element of its inputs before it writes over it, at all
    shapes of `domain`; what nothing binds may be negative.
    """
    kernel = program.kernels.get(call.kernel)
    if kernel is None or replaced_inputs(module[call.kernel], (overlay,)) is None:
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
    return all(prover.prove(negate(conjunction(c)), domain, explain=False).holds for c in lost)


def _at_start(call: ir.CallKernel, position: int) -> KernelArgument:
    """An argument whose extents are known, at the start of the memory that it shares."""
    kind = tensor_type(call.arguments[position])
    if kind is None or kind.shape is None or kind.dtype is None:
        raise ValueError(f"the argument {position} of `{call.kernel}` has no exact shape")
    return KernelArgument(position=position, offset=ZERO, shape=kind.shape, itemsize=kind.dtype.itemsize)


def _function(donation: Donation, program: Program, analyses: Mapping[str, FunctionAnalysis]) -> str:
    """The function that a donation speaks of; raises PlanRefusedError where callers within the module know
    nothing of it.
    """
    public = [name for name, function in program.functions.items() if not function.private]
    name = function_meant(donation.function, public)
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


class DonationWriter:
    """`kernels` holds the forms of kernels that were made, by the kernel and what is written over what."""

    def __init__(self, module: tvm.IRModule, kind: GuardKind) -> None:
        self.module, self.draft = module, ModuleDraft(module)
        self.kind: GuardKind = kind
        self.kernels: dict[tuple[str, tuple[Overlay, ...]], GlobalVar] = {}

    def overlaid(self, kernel: str, overlays: tuple[Overlay, ...]) -> GlobalVar:
        """The kernel that writes outputs over inputs."""
        found = self.kernels.get((kernel, overlays))
        if found is None:
            function = in_place(self.module[kernel], overlays)
            if function is None:
                raise PlanRefusedError("a kernel cannot write several outputs over inputs at once")
            found = self.kernels[kernel, overlays] = self.draft.add(f"{kernel}_inplace", function)
        return found

    def function(
        self,
        cfg: ControlFlowGraph,
        donated: Sequence[DonatedAlias],
        sources: Mapping[ir.Var, Node] = {},
        over: Mapping[ir.Var, tuple[Overlay, ...]] = {},
    ) -> None:
        """Write the donations to one function, and the outputs that lie in other tensors of it, `sources`."""
        variable = self.module.get_global_var(cfg.function.name)
        function = self.module[variable]
        writer = _DonatedFunction(
            module=self, function=function, donated=donated, cfg=cfg, sources={**sources}, over=over
        )
        entry = [*writer.checks(), *writer.donated_fields()]
        body = writer.sequence(function.body, entry)
        self.draft.functions[variable] = forced_pure(with_body(function, body))

    def finished(self) -> tvm.IRModule:
        """The module without the kernels that nothing calls any more."""
        return self.draft.without_unused()


@dataclass(slots=True, kw_only=True)
class _DonatedFunction(BindingRewriter):
    """Writes one function; `sources` are the inputs that tensors become views of."""

    module: DonationWriter
    function: relax.Function
    donated: Sequence[DonatedAlias]
    cfg: ControlFlowGraph
    sources: dict[ir.Var, Node]
    over: Mapping[ir.Var, tuple[Overlay, ...]]
    instructions: Mapping[int, ir.Instruction] = field(init=False)

    def __post_init__(self) -> None:
        self.instructions = by_binding(self.cfg)

    def checks(self) -> Iterator[relax.VarBinding]:
        """The checks that outputs fit into their inputs."""
        prims = PrimBuilder(self.cfg.function.variables)
        guards = GuardWriter(kind=self.module.kind, function=self.cfg.function.name, prims=prims)
        for one in self.donated:
            if one.guards:
                yield guards.fit(one.guards, str(one.output), str(one.input))

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
        instruction = self.instructions.get(binding.__chandle__())
        if instruction is None:  # another name
            return [binding]
        var = instruction.var
        if var in self.sources:
            return [bound_view(binding.var, self.sources[var], binding.value.args[0])]
        overlays = self.over.get(var) or tuple(one.over[var] for one in self.donated if var in one.over)
        if overlays and isinstance(instruction, ir.CallKernel):
            return [self.in_place(binding, instruction.kernel, overlays)]
        return list(BindingRewriter.rewrite(self, binding))

    def in_place(self, binding: BindingNode, kernel: str, overlays: tuple[Overlay, ...]) -> relax.VarBinding:
        called, value = self.module.overlaid(kernel, overlays), binding.value
        return bound(binding.var, with_arguments(value, elements(value.args), called))
