"""The definitions of a function's symbols: at entry, behind an instruction, or inside a branch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from symalloc.program.control_flow import ControlFlowGraph
from symalloc.program.ir import Instruction, MatchCast, Origin, Var
from symalloc.program.types import ScalarType, TensorType, Type, extents_of, type_leaves
from symalloc.prover.domain import INT64_MIN, Domain


@dataclass(frozen=True, slots=True, kw_only=True)
class SymbolDefinition:
    """A symbol gets its value at step `step`, which binds `var`.

    `nested`: inside a branch of an If.  `signed`: it may be negative, for nothing checks it.
    """

    step: int
    var: Var
    nested: bool
    signed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownSymbols:
    """The symbols of a function by where they are defined.

    `entry`: those that the parameters bind; `signed`: those among them that may be negative, for nothing
    checks them; `later`: the definitions of the others.
    """

    entry: frozenset[str]
    signed: frozenset[str]
    later: Mapping[str, SymbolDefinition]

    @property
    def domain(self) -> Domain:
        """The domain of the symbols without any check: extents of tensors are >= 0."""
        signed = self.signed.union(name for name, where in self.later.items() if where.signed)
        return Domain(lower=dict.fromkeys(sorted(signed), INT64_MIN))


def known_symbols(cfg: ControlFlowGraph) -> KnownSymbols:
    """Return where the symbols of a function are defined.

    A symbol whose origin the function gives as UNDEFINED counts as unknown, wherever it stands.
    """
    function = cfg.function
    usable = {name for name, origin in function.symbols.items() if origin is not Origin.UNDEFINED}
    tensors = {name for param in function.params for name in _bare(param.type, TensorType)} & usable
    entry = {name for param in function.params for name in _bare(param.type)} & usable
    later: dict[str, SymbolDefinition] = {}
    for number, made in cfg.instructions:
        if type(made) is not MatchCast and type(made.var.type) is not ScalarType:
            continue
        nested = cfg.points[number].branch >= 0
        for name, signed in _defined(made):
            if name in usable and name not in entry and name not in later:
                later[name] = SymbolDefinition(step=number, var=made.var, nested=nested, signed=signed)
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
