"""Size expressions and conditions as TVM's scalar expressions, in int64."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tvm import tirx
from tvm.ir.prim import expr as prim

from symalloc.relax.extract.tir_form import NotASizeError
from symalloc.relax.ir_types import PrimNode
from symalloc.size.atoms import Atom, FloorDiv, Max, Min, Mod, Monomial, Select, Symbol
from symalloc.size.condition import And, Condition, Or, Relation
from symalloc.size.expr import Expr

_INT64 = range(-(2**63), 2**63)


@dataclass(slots=True)
class PrimBuilder:
    """Builds the expressions of one function, each distinct one once.

    Invariant: what was built over a name stays right, because a name never changes its variable.
    """

    variables: dict[str, PrimNode]
    _built: dict[Expr, PrimNode] = field(default_factory=dict)

    def __call__(self, expr: Expr) -> PrimNode:
        """`expr` in int64; raises as `to_prim` does."""
        found = self._built.get(expr)
        if found is None:
            found = self._built[expr] = to_prim(expr, self.variables)
        return found

    def condition(self, condition: Condition) -> PrimNode:
        """`condition` as a boolean expression; raises as `to_prim` does."""
        return condition_to_prim(condition, self.variables)

    def define(self, found: Iterable[tuple[str, PrimNode]]) -> None:
        """Adds variables that become known as the function goes on."""
        for name, variable in found:
            self.variables.setdefault(name, variable)


def to_prim(expr: Expr, variables: Mapping[str, PrimNode]) -> PrimNode:
    """`expr` as a TVM expression in int64 over `variables`.

    Raises KeyError for a symbol that is not among them, and NotASizeError for a coefficient outside int64.
    """
    total = None
    for monomial, coefficient in sorted(expr.terms.items(), key=lambda term: term[1] < 0):
        term = _term(monomial, coefficient if total is None else abs(coefficient), variables)
        total = term if total is None else total - term if coefficient < 0 else total + term
    return _literal(0) if total is None else total


def condition_to_prim(condition: Condition, variables: Mapping[str, PrimNode]) -> PrimNode:
    """`condition` as a TVM boolean expression over `variables`; raises as `to_prim` does."""
    match condition:
        case Relation(operator="<=", expr=expr):
            left, right = _sides(expr, variables)
            return left <= right
        case Relation(operator=operator, expr=expr):
            left, right = _sides(expr, variables)
            return prim.EQ(left, right) if operator == "==" else prim.NE(left, right)
        case And(operands=operands):
            return _join(prim.And, operands, variables, neutral=True)
        case Or(operands=operands):
            return _join(prim.Or, operands, variables, neutral=False)
    raise TypeError(f"not a condition: {condition!r}")


def _join(
    kind: type, operands: tuple[Condition, ...], variables: Mapping[str, PrimNode], *, neutral: bool
) -> PrimNode:
    if not operands:
        return prim.IntImm("bool", int(neutral))
    result = condition_to_prim(operands[0], variables)
    for operand in operands[1:]:
        result = kind(result, condition_to_prim(operand, variables))
    return result


def _sides(expr: Expr, variables: Mapping[str, PrimNode]) -> tuple[PrimNode, PrimNode]:
    """The positive and the negative terms of `expr`, so that `left <= right` reads well."""
    left = Expr({m: c for m, c in expr.terms.items() if c > 0})
    right = Expr({m: -c for m, c in expr.terms.items() if c < 0})
    return to_prim(left, variables), to_prim(right, variables)


def _literal(value: int) -> PrimNode:
    if value not in _INT64:
        raise NotASizeError(f"{value} does not fit in int64")
    return prim.IntImm("int64", value)


def _term(monomial: Monomial, coefficient: int, variables: Mapping[str, PrimNode]) -> PrimNode:
    factors = [_atom(atom, variables) for atom, power in monomial for _ in range(power)]
    if coefficient != 1 or not factors:
        factors.append(_literal(coefficient))
    result = factors[0]
    for factor in factors[1:]:
        result = result * factor
    return result


def _atom(atom: Atom, variables: Mapping[str, PrimNode]) -> PrimNode:
    match atom:
        case Symbol(name=name):
            return variables[name]
        case FloorDiv():
            return tirx.floordiv(to_prim(atom.numerator, variables), to_prim(atom.denominator, variables))
        case Mod():
            return tirx.floormod(to_prim(atom.numerator, variables), to_prim(atom.denominator, variables))
        case Min() | Max():
            combine = tirx.min if isinstance(atom, Min) else tirx.max
            result = to_prim(atom.operands[0], variables)
            for operand in atom.operands[1:]:
                result = combine(result, to_prim(operand, variables))
            return result
        case Select():
            return tirx.if_then_else(
                condition_to_prim(atom.condition, variables),
                to_prim(atom.then, variables),
                to_prim(atom.otherwise, variables),
            )
