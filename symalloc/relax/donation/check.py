"""Checks that a donated input can carry an output; a refusal says why not.

Asked are lifetimes (nobody touches the input once the output is first written, through any alias and on any
path), sizes for all shapes, element types, device and scope, and that every memory is given and taken once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from symalloc.analysis.conflicts import ReuseConflict
from symalloc.analysis.donation import Donation, Leaf, inputs_of, outputs_of
from symalloc.analysis.interprocedural import FunctionAnalysis
from symalloc.analysis.regions import Pointees, Region, RegionKind
from symalloc.analysis.sets import only_member, region_set
from symalloc.planner.buffers.sizing import Sized, Sizes, known_symbols
from symalloc.planner.check.validate import PlanRefusedError
from symalloc.planner.memory_plan import Guard
from symalloc.planner.overflow_guards import overflow_guards
from symalloc.program import ir
from symalloc.program.control_flow import PointKind
from symalloc.program.operands import tensor_type
from symalloc.program.types import TensorType
from symalloc.prover.domain import INT64_MAX, Domain
from symalloc.prover.prover import Prover
from symalloc.prover.verdict import Verdict
from symalloc.size.condition import TRUE, Condition, le
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
    """A kernel call writes its argument at position `output` over those at `inputs`, which are left out.

    `equal`: all of them have the same extents; otherwise the first one differs.
    """

    inputs: frozenset[int]
    output: int
    equal: bool = True


def donated_aliases(
    analysis: FunctionAnalysis, donations: Sequence[Donation], prover: Prover, in_place: InPlace
) -> tuple[DonatedAlias, ...]:
    """The donations to one function, proved; raises PlanRefusedError for the first that is not."""
    checker = _Checker(analysis, prover, in_place)
    found: list[DonatedAlias] = []
    for donation in donations:
        try:
            one = checker.one(donation)
            checker.apart(one, found)
        except _RefusedError as refusal:
            name = analysis.cfg.function.name
            raise PlanRefusedError(f"the alias {donation} of `{name}` is refused: {refusal}") from None
        found.append(one)
    return tuple(found)


class _RefusedError(Exception):
    """Why a donation is refused, and what would help."""


class _Checker:
    def __init__(self, analysis: FunctionAnalysis, prover: Prover, in_place: InPlace) -> None:
        self.analysis, self.points_to, self.prover, self.in_place = (
            analysis,
            analysis.points_to,
            prover,
            in_place,
        )
        self.inputs, self.outputs = inputs_of(self.points_to), outputs_of(self.points_to)
        self.conflicts = analysis.conflicts
        self.known = known_symbols(analysis.cfg)

    def one(self, donation: Donation) -> DonatedAlias:
        output = _named(donation.output, self.outputs, "output")
        source = _named(donation.input, self.inputs, "input")
        roots = self.roots(output, source)
        self.same_place(output, source, roots)
        self.unkept(source)
        guards = self.sizes(output, source, roots)
        over: dict[ir.Var, Overlay] = {}
        for root in roots:
            over |= self.lifetimes(output, source, root)
        variables = (self.points_to.regions[root].var for root in roots)
        return DonatedAlias(
            output=output,
            input=source,
            allocations=frozenset(var for var in variables if var is not None),
            guards=guards,
            over=over,
        )

    def apart(self, one: DonatedAlias, others: Sequence[DonatedAlias]) -> None:
        """Raises where an input is donated, or an output carried, a second time."""
        for other in others:
            if other.input.cell.must & one.input.cell.must:
                raise _RefusedError(f"{one.input} is donated already, to {other.output}")
            if other.allocations & one.allocations:
                raise _RefusedError(f"{one.output} is carried already, by {other.input}")

    # -- which memory --------------------------------------------------------------------------------------

    def roots(self, output: Leaf, source: Leaf) -> list[int]:
        """The allocations that the output may be, on whatever path; they do not meet on any."""
        found = sorted(self.of(output.cell))
        given = {root for root in found if self.points_to.regions[root].external}
        if given & self.of(source.cell):
            raise _RefusedError(f"{output} lies in {source} already; leave the alias out")
        for root in found:
            self.allocated_here(output, self.points_to.regions[root])
        if not found:
            raise _RefusedError(f"{output} is no tensor that the function allocates")
        for other in self.outputs:
            if other.path != output.path and self.of(other.cell) & {*found}:
                raise _RefusedError(f"{output} is the output {other}, too; both would change together")
        for index, root in enumerate(found):
            self.alternatives(output, root, found[index + 1 :])
        return found

    def allocated_here(self, output: Leaf, region: Region) -> None:
        match region.instruction:
            case ir.AllocFresh():
                return
            case ir.CallFunction(name=name) | ir.CallPacked(name=name) | ir.CallOperator(name=name):
                why = f"`{name}` makes it"
            case _ if region.kind is RegionKind.CONSTANT:
                why = "it is a constant"
            case _ if region.kind is RegionKind.PARAMETER:
                why = f"it is the input `{region.name}`"
            case _:
                why = f"it may be `{region.name}`, which is placed already"
        raise _RefusedError(f"{output} is no tensor that the function allocates itself: {why}")

    def alternatives(self, output: Leaf, root: int, others: Sequence[int]) -> None:
        for other in others:
            if self.conflicts.on_one_path(root, other):
                names = [f"`{self.points_to.regions[r].name}`" for r in (root, other)]
                raise _RefusedError(
                    f"{output} is one of {' and '.join(names)}, and both are in use on one path; "
                    "compute the one that is returned in the branch that returns it"
                )

    def of(self, cell: Pointees) -> frozenset[int]:
        return self.points_to.roots(cell.must | cell.may)

    def same_place(self, output: Leaf, source: Leaf, roots: Collection[int]) -> None:
        for name, kind in ((output, output.type), (source, source.type)):
            if not isinstance(kind, TensorType) or kind.dtype is None or kind.shape is None:
                raise _RefusedError(f"{name} is no tensor whose shape and element type are known")
            if kind.dtype.bits * kind.dtype.lanes % 8:
                raise _RefusedError(f"the elements of {name}, {kind.dtype.name}, do not fill whole bytes")
        for made in map(self.made, roots):
            wanted, have = (made.device, made.scope), (source.type.device, source.type.scope)  # type: ignore[union-attr]
            if wanted != have:
                raise _RefusedError(
                    f"{output} is wanted on device {wanted[0]} ({wanted[1]}), "
                    f"and {source} lies on device {have[0]} ({have[1]})"
                )

    def made(self, root: int) -> ir.AllocFresh:
        instruction = self.points_to.regions[root].instruction
        if not isinstance(instruction, ir.AllocFresh):
            raise _RefusedError(
                f"`{self.points_to.regions[root].name}` is not allocated by the function itself"
            )
        return instruction

    # -- sizes ---------------------------------------------------------------------------------------------

    def sizes(self, output: Leaf, source: Leaf, roots: Collection[int]) -> tuple[Guard, ...]:
        """The checks at entry that make the output fit, at all shapes."""
        have = source.type.nbytes if isinstance(source.type, TensorType) else None
        if have is None:
            raise _RefusedError(f"how large {source} is, is not known")
        domain = self.known.domain.assuming([le(have, INT64_MAX)])
        reckon = Sizes(self.known, self.prover)
        guards: list[Guard] = []
        for made in map(self.made, roots):
            nbytes = self.points_to.allocated(made.var).nbytes
            sized = reckon.of(nbytes)
            if nbytes is None or not isinstance(sized, Sized):
                raise _RefusedError(f"how large {output} is, is not known: {sized}")
            claims = [*(le(ZERO, extent) for extent in made.shape or ()), le(nbytes, have)]
            checks = [c for c in dict.fromkeys(claims) if not self.holds(c, output, source)]
            exact = overflow_guards((nbytes,), domain, self.prover) if checks else ()
            guards += (Guard(condition=c, check=c) for c in checks)
            guards += (replace(g, condition=TRUE) for g in exact)
        late = frozenset().union(*(g.check.symbols for g in guards)) - self.known.entry
        if late:
            raise _RefusedError(
                f"that {output} fits into {source} cannot be checked at entry: "
                f"{', '.join(f'`{name}`' for name in sorted(late))} becomes known later"
            )
        return tuple(dict.fromkeys(guards))

    def holds(self, claim: Condition, output: Leaf, source: Leaf) -> bool:
        """Return whether `claim` is proved, or must be checked; raises where it never holds."""
        proof = self.prover.prove(claim, self.known.domain)
        if proof.holds:
            return True
        filled = self.prover.prove(claim, _non_empty(self.known.domain))
        if Verdict.ALWAYS_INVALID not in (proof.verdict, filled.verdict):
            return False
        point = filled.counterexample or proof.counterexample or {}
        at = ", ".join(f"{name} = {value}" for name, value in sorted(point.items())) or "for any shape"
        why = f"{claim} does not hold ({at})" if claim.as_bool is None else "it is larger for every shape"
        raise _RefusedError(f"{output} never fits into {source}: {why}; donate a larger input")

    # -- lifetimes -----------------------------------------------------------------------------------------

    def unkept(self, source: Leaf) -> None:
        for root in self.of(source.cell):
            for index in self.conflicts.capturing(root):
                who = _doer(self.analysis.cfg.points[index].instruction)
                raise _RefusedError(f"{who} may hold on to {source}, and read it later")

    def lifetimes(self, output: Leaf, source: Leaf, root: int) -> dict[ir.Var, Overlay]:
        """The kernel calls that read the input while they write the output; raises for any other clash."""
        wanted = _only_region(source.cell)
        found: dict[ir.Var, Overlay] = {}
        for clash in self.conflicts.takeover(root, wanted):
            call = self.analysis.cfg.points[clash.writer].instruction
            if clash.writer != clash.reader or not isinstance(call, ir.CallKernel):
                raise _RefusedError(self.overwritten(output, source, clash))
            overlay = self.overlay(call, root, wanted)
            if overlay is None:
                raise _RefusedError(self.at_once(output, source, call))
            found[call.var] = overlay
        return found

    def overwritten(self, output: Leaf, source: Leaf, clash: ReuseConflict) -> str:
        steps = self.analysis.cfg.points
        writer, reader = _doer(steps[clash.writer].instruction), steps[clash.reader]
        if reader.kind is PointKind.EXIT:
            return f"{source} is returned, too, and {writer} overwrites it with {output}"
        hedge = "" if clash.certain else "may, through an alias, "
        verb = "uses" if clash.certain else "use"
        return (
            f"{_doer(reader.instruction)} {hedge}{verb} {source} after {writer} has written {output} "
            f"over it; use {source} before, or copy what is needed of it"
        )

    def at_once(self, output: Leaf, source: Leaf, call: ir.CallKernel) -> str:
        return (
            f"`{call.kernel}` reads {source} while it writes {output}, and it is not proved that it has read "
            "each element before it overwrites it, as an elementwise kernel has"
        )

    def overlay(self, call: ir.CallKernel, root: int, wanted: int) -> Overlay | None:
        """The way that `call` writes the output over the input; None where it is not proved that it may."""
        reading, writing = set[int](), set[int]()
        for position, argument in enumerate(call.arguments):
            cell = self.points_to.value_of(argument)
            if not isinstance(cell, Pointees):
                return None
            for region, places in ((wanted, reading), (root, writing)):
                if region in self.of(cell):
                    if cell != Pointees(region_set((region,))):
                        return None
                    places.add(position)
        if len(writing) != 1 or reading & writing:
            return None
        (target,) = writing
        shapes = {_shape(call.arguments[position]) for position in (*reading, target)}
        if None in shapes or len({shape[1:] for shape in shapes if shape is not None}) != 1:
            return None
        overlay = Overlay(inputs=frozenset(reading), output=target, equal=len(shapes) == 1)
        return overlay if self.in_place(call, overlay, self.known.domain) else None


def _shape(argument: ir.Operand) -> tuple[Expr, ...] | None:
    kind = tensor_type(argument)
    return None if kind is None else kind.shape


def _named(name: str, leaves: Sequence[Leaf], what: str) -> Leaf:
    found = [leaf for leaf in leaves if leaf.names[0] == name] or [
        leaf for leaf in leaves if name in leaf.names
    ]
    if len(found) == 1:
        return replace(found[0], names=(name,))
    if found:
        raise _RefusedError(f"`{name}` is the name of {len(found)} {what}s: {', '.join(map(str, found))}")
    there = ", ".join(" or ".join(f"`{n}`" for n in leaf.names) for leaf in leaves) or "none"
    raise _RefusedError(f"there is no {what} `{name}`; the {what}s are {there}")


def _only_region(cell: Pointees) -> int:
    number = only_member(cell.must)
    if number is None:
        raise _RefusedError("it holds no tensor")
    return number


def _non_empty(domain: Domain) -> Domain:
    """The points of `domain` at which no tensor is empty; scalars keep their bounds."""
    return replace(domain, default_lower=max(1, domain.default_lower))


def _doer(instruction: ir.Instruction | None) -> str:
    match instruction:
        case ir.CallKernel(kernel=name):
            return f"`{name}`"
        case ir.CallPacked(name=name) | ir.CallFunction(name=name) | ir.CallOperator(name=name):
            return f"`{name}`"
        case ir.NotUnderstood(what=what):
            return what
        case None:
            return "the caller"
    return f"`{instruction.var.name}`"
