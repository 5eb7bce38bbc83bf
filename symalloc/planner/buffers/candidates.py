"""The tensors of a function that become buffers of a plan, the bytes to set aside for each, and the
instruction that they wait for; the rest with the reason why not.

A symbol gets its value at entry, behind an instruction, or inside a branch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from symalloc.analysis.effects import RETURNED, LiveRange
from symalloc.analysis.interprocedural import FunctionAnalysis
from symalloc.analysis.register_machine import Reservation
from symalloc.analysis.timeline import Timeline
from symalloc.planner.memory_plan import Buffer, Plan, Unplanned
from symalloc.planner.overflow_guards import MOST_BYTES, ValueBounds, greatest, within
from symalloc.planner.planned_program import written_function
from symalloc.program.control_flow import ControlFlowGraph, PathCondition
from symalloc.program.ir import (
    AllocFresh,
    Block,
    DeclaredBound,
    If,
    Instruction,
    MatchCast,
    Origin,
    Program,
    Var,
)
from symalloc.program.types import ALIGNMENT, DType, ScalarType, TensorType, Type, extents_of, type_leaves
from symalloc.prover.domain import INT64_MAX, INT64_MIN, Domain, SyntacticOrder, Verdict
from symalloc.prover.prover import Prover
from symalloc.size.choice import Max, Min, Select, maximum, minimum, reaching, select
from symalloc.size.condition import Condition, Relation, ge, le
from symalloc.size.expr import ONE, ZERO, Atom, Division, Expr, FloorDiv, constant, floordiv, mod, round_up


@dataclass(frozen=True, slots=True, kw_only=True)
class SymbolDefinition:
    """A symbol gets its value at step `step`, which binds `var`.

    `elsewhere`: so it does in another block, which does not see this one.  `signed`: it may be negative, for
    nothing checks it.
    """

    step: int
    var: Var
    elsewhere: bool
    signed: bool


@dataclass(frozen=True, kw_only=True)
class KnownSymbols:
    """The symbols of a function by where they are defined.

    `entry`: those that the parameters bind; `signed`: those among them that may be negative, for nothing
    checks them; `later`: the definitions of the others.
    """

    entry: frozenset[str]
    signed: frozenset[str]
    later: Mapping[str, SymbolDefinition]

    @cached_property
    def domain(self) -> Domain:
        """The domain of the symbols without any check: extents of tensors are >= 0."""
        signed = self.signed.union(name for name, where in self.later.items() if where.signed)
        return Domain(lower=dict.fromkeys(sorted(signed), INT64_MIN))


_NO_SIZES = (Origin.UNDEFINED, Origin.FLAG)


def known_symbols(cfg: ControlFlowGraph) -> KnownSymbols:
    """Return where the symbols of a function are defined.

    A symbol that is undefined, or a flag, counts as unknown, wherever it stands.
    """
    function = cfg.function
    usable = {name for name, origin in function.symbols.items() if origin not in _NO_SIZES}
    tensors = {name for param in function.params for name in _bare(param.type, TensorType)} & usable
    entry = {name for param in function.params for name in _bare(param.type)} & usable
    later: dict[str, SymbolDefinition] = {}
    blocks: dict[str, PathCondition] = {}
    binding = [
        (number, made)
        for number, made in cfg.instructions
        if type(made.var.type) is ScalarType or type(made) is MatchCast
    ]
    for number, made in binding:
        block = cfg.paths[number]
        for name, signed in _defined(made):
            if name in usable and name not in entry and name not in later:
                later[name] = SymbolDefinition(step=number, var=made.var, elsewhere=False, signed=signed)
                blocks[name] = block
        for name in _bare(made.target if isinstance(made, MatchCast) else made.var.type):
            if (blocks.get(name) or block) != block:
                later[name] = replace(later[name], elsewhere=True)
    return KnownSymbols(entry=frozenset(entry), signed=frozenset(entry - tensors), later=later)


def _defined(instruction: Instruction) -> Iterator[tuple[str, bool]]:
    """Yield the symbols that an instruction may give a value, and whether that may be negative."""
    if isinstance(instruction, MatchCast):
        extents = frozenset(_bare(instruction.target, TensorType))
        yield from ((name, name not in extents) for name in sorted(instruction.defines))
    else:
        yield from ((name, True) for name in _bare(instruction.var.type))


def _bare(kind: Type, only: type | None = None) -> Iterator[str]:
    """The symbols that stand alone as an extent or value in a type, of tensors only where `only` says so."""
    for _, leaf in type_leaves(kind):
        if only is not None and not isinstance(leaf, only):
            continue
        sizes = (leaf.value,) if isinstance(leaf, ScalarType) else extents_of(leaf)
        for size in sizes:
            if size is not None and size.as_symbol is not None:
                yield size.as_symbol


# -- bytes --------------------------------------------------------------------------------------------------


_BEYOND = "its size, {} B, is beyond what can be allocated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sized:
    """The bytes to set aside for `nbytes`: rounded up to the alignment and never negative.

    They are known behind `definition`, or at entry where that is None.  Both are defined at every binding:
    also where a divisor is 0, at which there is no tensor of that shape.
    """

    nbytes: Expr
    size: Expr
    definition: SymbolDefinition | None


class Sizes:
    """Finds what each number of bytes needs, over the domain of a function; remembers the answers, for layers
    repeat.
    """

    def __init__(
        self,
        known: KnownSymbols,
        prover: Prover,
        bounds: Sequence[DeclaredBound] = (),
        *,
        reserve: bool = False,
    ) -> None:
        """Within `bounds`, which are enforced; with `reserve` sizes are constants where these bound them."""
        self.known, self.prover, self.reserve = known, prover, reserve
        self.domain = within(known.domain, bounds)
        self._found: dict[Expr, Sized | str] = {}
        self._bounds, self._order = ValueBounds(), SyntacticOrder(known.domain)

    def of(self, nbytes: Expr | None) -> Sized | str:
        """Return what to set aside for `nbytes`, or the reason why that cannot be computed."""
        if nbytes is None:
            return "its shape is not known"
        if nbytes not in self._found:
            self._found[nbytes] = self._sized(nbytes)
        return self._found[nbytes]

    def _sized(self, nbytes: Expr) -> Sized | str:
        needs: SymbolDefinition | None = None
        for name in sorted(nbytes.symbols):
            where = self.known.later.get(name)
            reason = self._unusable(name, where)
            if reason is not None:
                return f"its size depends on `{name}`, {reason}"
            if where is not None and (needs is None or needs.step < where.step):
                needs = where
        if any(abs(factor) > MOST_BYTES for factor in nbytes.terms.values()):
            return _BEYOND.format(nbytes)
        defined = nbytes.rewrite(self._defined) if nbytes.divisors else nbytes
        if not defined.is_polynomial:
            defined = defined.rewrite(self._chosen)
        size = self._reserved(defined)
        most = self._bounds.magnitude(size)
        if most.evaluate(dict.fromkeys(most.symbols, 1)) > INT64_MAX:  # its guard would refuse every shape
            return _BEYOND.format(nbytes)
        return Sized(nbytes=defined, size=size, definition=None if size.as_constant is not None else needs)

    def _defined(self, atom: Atom) -> Expr | None:
        """Return a value defined everywhere, that of `atom` where it is defined; None where it always is.

        The shape itself divides, where TVM evaluates it.
        """
        if not isinstance(atom, Division) or self._always(ge(atom.divisor, 1)):
            return None
        positive = _by_positive(atom, atom.numerator, atom.divisor)
        if self._always(ge(atom.divisor, 0)):
            return positive
        mirrored = _by_positive(atom, -atom.numerator, -atom.divisor)
        negative = mirrored if isinstance(atom, FloorDiv) else -mirrored
        return select(ge(atom.divisor, 1), positive, negative)

    def _chosen(self, atom: Atom) -> Expr | None:
        """Return what is left of a choice of which some is seen never to be taken; None where it stays."""
        match atom:
            case Select(condition=Relation(operator="<=", expr=test), then=then, otherwise=otherwise):
                if self._order.at_most(test, ZERO):
                    return then
                return otherwise if self._order.at_most(ONE, test) else None
            case Min(operands=operands):
                return minimum(*reaching(operands, self._order.at_most))
            case Max(operands=operands):
                return maximum(*reaching(operands, lambda high, low: self._order.at_most(low, high)))
        return None

    def _unusable(self, name: str, where: SymbolDefinition | None) -> str | None:
        """Return the reason why nothing can be sized by a symbol, None where it can."""
        if where is not None and isinstance(where.var.type, ScalarType):
            return f"which `{where.var.name}` computes as a scalar: only a match_cast makes it a size"
        if where is not None and where.elsewhere:
            return f"which gets its value from `{where.var.name}` or in another branch"
        if where is None and name not in self.known.entry:
            return "which no parameter and no match_cast binds"
        return None

    def _reserved(self, nbytes: Expr) -> Expr:
        """Return the bytes rounded up to the alignment, and none where the size could come out negative."""
        if self.reserve:
            most = greatest(nbytes, self.domain, self.prover)
            if most is not None:
                return constant(most)
            nbytes = self._at_bounds(nbytes)
        rounded = round_up(nbytes, ALIGNMENT)
        positive = self._order.at_most(ZERO, nbytes) or self._always(ge(nbytes, 0))
        return rounded if positive else maximum(rounded, ZERO)

    def _at_bounds(self, nbytes: Expr) -> Expr:
        """Return the bytes at the upper bounds of those symbols that have one, if that is never less."""
        tops = {name: self.domain.upper_of(name) for name in nbytes.symbols}
        most = nbytes.substitute({name: constant(top) for name, top in tops.items() if top < INT64_MAX})
        small = all(abs(factor) <= MOST_BYTES for factor in most.terms.values())
        return most if small and self._always(le(nbytes, most)) else nbytes

    def _always(self, condition: Condition) -> bool:
        return self.prover.prove(condition, self.domain, explain=False).verdict is Verdict.ALWAYS_VALID


def _by_positive(division: Division, numerator: Expr, divisor: Expr) -> Expr:
    divide = floordiv if isinstance(division, FloorDiv) else mod
    return divide(numerator, maximum(divisor, ONE))


@lru_cache(maxsize=4096)
def padded_size(nbytes: Expr | None) -> Expr | None:
    """Return the bytes that a tensor without a place takes, where they are defined at every binding."""
    return None if nbytes is None or nbytes.divisors else round_up(nbytes, ALIGNMENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """The memory of a function that may be planned, as buffers numbered in the order of devices and of the
    text; and what stays as it is (`left`).

    `timeline` is that of a call without a plan, in which an If is a step, too; `points` are the program
    points of its steps.
    """

    buffers: Sequence[Buffer] = ()
    left: Sequence[Unplanned] = ()
    cfg: ControlFlowGraph
    timeline: Timeline = field(default_factory=Timeline)
    points: Sequence[int] = ()


def find_candidates(
    program: Program,
    analyses: Mapping[str, FunctionAnalysis],
    name: str,
    sizes: Sizes,
    *,
    storages: bool = False,
    grounded: Collection[Var] = (),
) -> Candidates:
    """Return what may be planned of the function `name`, with its timeline: all that no choice changes.

    The functions that it calls are in `program` as they are planned.  `grounded` are the allocations that
    must start a storage, all of them with `storages`.
    """
    analysis = analyses[name]
    if analysis.recursive:
        why = "its function calls itself: an arena would be held for every call under way"
        made_here = analysis.allocations.items()
        kept = [Unplanned(name=var.name, reason=why, nbytes=one.nbytes, var=var) for var, one in made_here]
        return Candidates(left=kept, cfg=analysis.cfg)
    ranges = analysis.live_ranges(made.number for made in analysis.allocations.values())
    found: list[Buffer] = []
    left: list[Unplanned] = []
    for point, made in analysis.cfg.of_type(AllocFresh):
        number, nbytes, reason = analysis.allocations[made.var]
        returned = reason == RETURNED
        sized = sizes.of(nbytes) if reason is None or returned else reason
        time = ranges.of.get(number)
        if made.giver:
            sized = f"`{made.giver}` gives its memory"
        if not isinstance(sized, Sized):
            why = RETURNED if returned else sized
            if nbytes is None and made.inexact and reason is None:
                why = f"its shape is not known: {made.inexact}"
            left.append(Unplanned(name=made.var.name, reason=why, nbytes=nbytes, var=made.var))
        elif time is None:
            why = RETURNED if returned else "nothing uses it"
            left.append(Unplanned(name=made.var.name, reason=why, nbytes=sized.nbytes, var=made.var))
        else:
            if returned:  # from its first use to the end
                time = LiveRange(((time.live[0][0], len(ranges.points)),), time.first, ranges.points[-1])
            definition = sized.definition
            found.append(
                Buffer(
                    id=len(found),
                    name=made.var.name,
                    size=sized.size,
                    live=time.live,
                    nbytes=sized.nbytes,
                    device=made.device,
                    scope=made.scope,
                    var=made.var,
                    defined_by=None if definition is None else definition.var,
                    steps=(time.first, time.last),
                    grounded=(storages or made.var in grounded) and not returned,  # in whose memory it starts
                    returned=returned,
                    made=point,
                    known=-1 if definition is None else definition.step,
                )
            )
    found.sort(key=lambda buffer: (buffer.device, buffer.scope))
    timeline, points = _timeline(program, analyses, name)
    return Candidates(
        buffers=[one if one.id == number else replace(one, id=number) for number, one in enumerate(found)],
        left=left,
        cfg=analysis.cfg,
        timeline=timeline,
        points=points,
    )


def left_alone(results: Iterable[Buffer]) -> Iterator[Unplanned]:
    """Yield results, which keep memory of their own."""
    return (Unplanned(name=r.name, reason=RETURNED, nbytes=r.nbytes, var=r.var) for r in results)


# -- the timeline of a call --------------------------------------------------------------------------------


def _timeline(
    program: Program, analyses: Mapping[str, FunctionAnalysis], name: str
) -> tuple[Timeline, Sequence[int]]:
    """The timeline of a call, with the program point of each step.

    It leaves out functions that call themselves, and all that are called where there are too many steps.
    """
    cfg, steps = analyses[name].cfg, dict[Var, int]()
    function = written_function(Plan(function=name), cfg)
    if cfg.joins:
        function = replace(function, body=_with_steps(function.body, cfg, steps))
    others = {other: f for other, f in program.functions.items() if not analyses[other].recursive}
    timeline = Timeline.of(replace(program, functions={**others, name: function}), name, same=True)
    if timeline.problem is not None:
        timeline = Timeline.of(replace(program, functions={name: function}), name, same=True)
    outermost = (step.outermost.var for step in timeline.steps)
    return timeline, [steps[var] if var in steps else cfg.starts[var] for var in outermost]


def least_held(program: Program, analyses: Mapping[str, FunctionAnalysis], name: str) -> Timeline | None:
    """Return what a call of the function `name` holds at each program point with any plan: what is live
    there, and what no plan places.  None where it branches or calls functions.
    """
    cfg, timeline = analyses[name].cfg, Timeline()
    if not (cfg.joins or analyses[name].recursive):
        timeline, points = _timeline(program, analyses, name)
    if not timeline.steps or any(step.frame.caller is not None for step in timeline.steps):
        return None
    allocations = analyses[name].allocations
    ranges = analyses[name].live_ranges(made.number for made in allocations.values()).of
    edges, found = [*points, len(cfg.points)], list[Reservation]()
    for one in timeline.reservations:
        begin, end = edges[one.begin], edges[one.end]
        if one.var in allocations:
            time = ranges.get(allocations[one.var].number)
            if time is None or len(time.live) > 1:
                continue
            begin, end = max(begin, time.first), min(end, time.last + 1)
        found.append(replace(one, begin=begin, end=max(begin, end)))
    steps = [timeline.steps[0]] * len(cfg.points)  # which they are makes no difference to a peak
    return replace(timeline, steps=steps, reservations=found)


def _with_steps(block: Block, cfg: ControlFlowGraph, steps: dict[Var, int]) -> Block:
    """`block` with an empty tensor in front of each If, whose program points go to `steps`: what one side
    needs is held until then, and arenas for both sides are reserved before.
    """
    written: list[Instruction] = []
    for one in block.instructions:
        if isinstance(one, If):
            step = AllocFresh(var=Var("step", one.var.type), shape=(ZERO,), dtype=DType("uint8", 8))
            steps[step.var] = cfg.starts[one.var]
            sides = (_with_steps(side, cfg, steps) for side in (one.then, one.otherwise))
            then, otherwise = sides
            written += [step, replace(one, then=then, otherwise=otherwise)]
        else:
            written.append(one)
    return replace(block, instructions=tuple(written))
