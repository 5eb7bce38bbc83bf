"""Sizes and conditions as TVM's scalar expressions, in int64, and guards: calls that raise, or nothing.

An assertion names the values of the symbols; it is a Python function of TVM's.  It carries a text without
them, too, as an argument that its format does not mention: `lower_guards` takes it for the kernel that it
becomes once the module is written.  A native guard has no other text: its kernel asks no Python.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import mul
from typing import Any

from tvm import relax, tirx
from tvm.ir import StringImm
from tvm.ir.prim import expr as prim

from symalloc.planner.memory_plan import Guard, GuardKind
from symalloc.relax.extract.kernel_walk import ASSERT
from symalloc.relax.extract.tir_to_expr import NotASizeError
from symalloc.relax.ir_types import BindingNode, PrimNode, VarNode, effect, elements, may_divide_by_zero
from symalloc.size.algebra import Algebra, Operator, Term
from symalloc.size.condition import Condition, conjunction
from symalloc.size.expr import Expr

_INT64 = range(-(2**63), 2**63)


class PrimBuilder(Algebra[PrimNode, PrimNode]):
    """Builds the expressions of one function, each distinct one once."""

    def __init__(self, variables: Mapping[str, Any]) -> None:
        self.variables, self.memo = variables, {}

    def __call__(self, expr: Expr) -> PrimNode:
        """`expr` in int64.

        Raises KeyError for a symbol that is not among the variables, and NotASizeError for a coefficient
        outside int64.
        """
        return expr.fold(self)

    def condition(self, condition: Condition) -> PrimNode:
        """`condition` as a boolean expression; raises as for an expression."""
        return condition.fold(self)

    def symbol(self, name: str) -> PrimNode:
        return self.variables[name]

    def total(self, terms: Sequence[Term[PrimNode]]) -> PrimNode:
        total = None
        for coefficient, factors in sorted(terms, key=lambda term: term[0] < 0):
            term = _term(coefficient if total is None else abs(coefficient), factors)
            total = term if total is None else total - term if coefficient < 0 else total + term
        return _literal(0) if total is None else total

    def floordiv(self, numerator: PrimNode, denominator: PrimNode) -> PrimNode:
        return tirx.floordiv(numerator, denominator)

    def mod(self, numerator: PrimNode, denominator: PrimNode) -> PrimNode:
        return tirx.floormod(numerator, denominator)

    def minimum(self, operands: Sequence[PrimNode]) -> PrimNode:
        return reduce(tirx.min, operands)

    def maximum(self, operands: Sequence[PrimNode]) -> PrimNode:
        return reduce(tirx.max, operands)

    def select(self, condition: PrimNode, then: PrimNode, otherwise: PrimNode) -> PrimNode:
        """A choice; both sides are evaluated where that does no harm.

        TVM infers the type of a call that is an argument of another, or stands in a type, and has no rule for
        `if_then_else`.
        """
        if may_divide_by_zero(then) or may_divide_by_zero(otherwise):
            return tirx.if_then_else(condition, then, otherwise)
        return prim.Select(condition, then, otherwise)

    def relation(self, operator: Operator, terms: Sequence[Term[PrimNode]]) -> PrimNode:
        left, right = self.difference(terms)
        if operator == "<=":
            return left <= right
        return prim.EQ(left, right) if operator == "==" else prim.NE(left, right)

    def conjunction(self, operands: Sequence[PrimNode]) -> PrimNode:
        return reduce(prim.And, operands) if operands else prim.IntImm("bool", 1)

    def disjunction(self, operands: Sequence[PrimNode]) -> PrimNode:
        return reduce(prim.Or, operands) if operands else prim.IntImm("bool", 0)


def _literal(value: int) -> PrimNode:
    if value not in _INT64:
        raise NotASizeError(f"{value} does not fit in int64")
    return prim.IntImm("int64", value)


def _term(coefficient: int, factors: Sequence[tuple[PrimNode, int]]) -> PrimNode:
    repeated = [factor for factor, power in factors for _ in range(power)]
    if coefficient != 1 or not factors:
        repeated.append(_literal(coefficient))
    return reduce(mul, repeated)


_ASSERT = relax.ExternFunc(ASSERT)
_COMPLAINTS = (
    (True, "these shapes are outside of the bounds that it declares"),
    (False, "these shapes need more bytes than 64 bits count"),
)
_CAPTURED = "relax.rewrite_cuda_graph.capture_symbolic_vars"


@dataclass(slots=True, kw_only=True)
class GuardWriter:
    """Writes the guards of one function: calls on the scalars of `prims`."""

    kind: GuardKind
    function: str
    prims: PrimBuilder

    def each(self, guards: Sequence[Guard], beside: Sequence[VarNode] = ()) -> Iterator[BindingNode]:
        """The calls that raise unless `guards` hold: one for declared bounds, one for what 64 bits need.

        They also get the tensors `beside`, which they do not look at.  Behind a match_cast they raise in a
        function with a fallback too: by then it has done some of its work.
        """
        for declared, complaint in _COMPLAINTS:
            check = conjunction(g.check for g in guards if g.declared is declared)
            if check.as_bool is not True and self.kind != "none":
                yield self._raise(check, check.conjuncts, complaint, "guard", beside)

    def arena(self, size: Expr, given: VarNode) -> BindingNode:
        """The call that raises unless as many bytes as `given` are enough for an arena; whatever the kind."""
        said, needed = f"{self.function}: its arena is too small for these shapes", self.prims(size)
        texts = StringImm(f"{said}: got {{}} bytes, needs {{}}"), StringImm(f"{said}: needs {size} bytes")
        return effect(_ASSERT, [needed <= given, texts[0], given, needed, texts[1]], "guard")

    def cast(self, claims: Sequence[Condition]) -> BindingNode:
        """The call that raises unless all `claims`, which a match_cast makes, hold; whatever the kind."""
        return self._raise(conjunction(claims), claims, "a match_cast does not hold", "cast_guard")

    def fit(self, guards: Sequence[Guard], output: str, source: str) -> BindingNode:
        """The call that raises unless `guards` hold, and with them an output fits into an input."""
        complaint = f"{output} does not fit into {source}, which is donated for it"
        claims = [g.condition for g in guards if g.condition.as_bool is None]
        return self._raise(conjunction(g.check for g in guards), claims, complaint, "fits")

    def _raise(
        self,
        test: Condition,
        claims: Sequence[Condition],
        complaint: str,
        name: str,
        beside: Sequence[VarNode] = (),
    ) -> BindingNode:
        names = sorted(frozenset().union(*(c.symbols for c in claims)))
        wanted = " and ".join(map(str, claims))
        values = [self.prims.variables[name] for name in names]
        shown = f"{complaint}: got {', '.join(f'{name} = {{}}' for name in names)}; need {wanted}"
        fixed = StringImm(f"{self.function}: {complaint}; need {wanted}")
        template = fixed if self.kind == "native" else StringImm(f"{self.function}: {shown}")
        return effect(_ASSERT, [self.prims.condition(test), template, *values, fixed, *beside], name)


def uncaptured(function: relax.Function) -> tuple[VarNode, ...]:
    """The argument that keeps a check of `function` out of CUDA graphs: none where nothing would capture it.

    RewriteCUDAGraph takes a packed call on symbols that it may capture, those that it is told and those of
    weights, for a kernel.  One on a tensor that changes from call to call it leaves where it stands.
    """
    attributes, params = function.attrs or {}, elements(function.params)
    inputs = int(attributes.get("num_input", len(params)))
    weights = any(relax.analysis.tir_vars_in_type(p.ty) for p in params[inputs:])
    if _CAPTURED not in attributes and not weights:
        return ()
    return tuple(p for p in params[:inputs] if isinstance(p.ty, relax.TensorType))[:1]
