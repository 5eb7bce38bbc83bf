"""The bytes to set aside for a tensor, and the instruction that they wait for.

A symbol gets its value at entry, behind an instruction, or inside a branch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from symalloc.planner.enforced_bounds import MOST_BYTES, greatest, within
from symalloc.planner.overflow_guards import ValueBounds
from symalloc.program.control_flow import ControlFlowGraph, PathCondition
from symalloc.program.ir import DeclaredBound, Instruction, MatchCast, Origin, Var
from symalloc.program.types import ALIGNMENT, ScalarType, TensorType, Type, extents_of, type_leaves
from symalloc.prover.domain import INT64_MAX, INT64_MIN, Domain, Verdict
from symalloc.prover.ordering import SyntacticOrder
from symalloc.prover.prover import Prover
from symalloc.size.choice import Max, Min, Select, maximum, minimum, select
from symalloc.size.condition import Condition, Relation, ge, le
from symalloc.size.expr import ONE, ZERO, Atom, Division, Expr, FloorDiv, constant, floordiv, mod, round_up
from symalloc.size.sign import reaching


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
