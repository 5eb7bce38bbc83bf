"""TVM's scalar expressions as size expressions and conditions, exactly.

TVM computes in int64 (or int32) and wraps; the forms here are mathematical integers.  What has no exact form
raises `NotASizeError`; nothing is approximated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from tvm import ir, relax
from tvm.ir.prim import expr as prim

from symalloc.prover.domain import INT64_MAX, INT64_MIN
from symalloc.relax.ir_types import PrimNode
from symalloc.size.choice import maximum, minimum, select
from symalloc.size.condition import (
    FALSE,
    TRUE,
    Condition,
    Relation,
    conjunction,
    disjunction,
    eq,
    ge,
    gt,
    le,
    lt,
    ne,
    negate,
)
from symalloc.size.defined import owing
from symalloc.size.expr import ONE, ZERO, Expr, constant, floordiv, mod
from symalloc.size.sign import Signs

MOST_BIT_RUNS = 4  # of a mask, each of which takes two remainders


class NotASizeError(ValueError):
    """A scalar expression that has no exact form as a size expression or condition; the text says why."""


def _never(_: object) -> None:
    return None


def _no_load(_: PrimNode) -> Expr:
    raise NotASizeError("an element of a buffer inside a size")


class TirForm:
    """Translates the scalar expressions of one function; keeps what it has translated, by identity.

    `resolve` gives the expression of a variable, `resolve_flag` the condition of a boolean one (or
    None), `nonnegative` whether a symbol is known to be >= 0 (truncation then rounds down), `load` the
    expression of an element of a buffer.
    """

    def __init__(
        self,
        resolve: Callable[[PrimNode], Expr],
        resolve_flag: Callable[[PrimNode], Condition | None] = _never,
        nonnegative: Callable[[str], bool] = lambda _: False,
        load: Callable[[PrimNode], Expr] = _no_load,
    ) -> None:
        self._resolve = resolve
        self._resolve_flag = resolve_flag
        self._nonnegative = nonnegative
        self._load = load
        self._local: dict[int, Expr] = {}
        self._known: dict[
            int, tuple[PrimNode, Expr]
        ] = {}  # the node is kept, or its address could be used again

    def expr(self, node: PrimNode) -> Expr:
        """The size expression of the integer expression `node`; raises NotASizeError."""
        kind = type(node)
        if kind is prim.IntImm:
            return constant(node.value)
        rule = _EXPR_RULES.get(kind)
        if rule is None:
            raise NotASizeError(f"`{kind.__name__}` is no integer expression that sizes are made of")
        handle = node.__chandle__()
        found = self._known.get(handle)
        if found is None:
            found = self._known[handle] = (node, rule(self, node))
        return found[1]

    def expr_or_none(self, node: PrimNode) -> Expr | None:
        """The size expression of `node`; None where it has no exact form."""
        try:
            return self.expr(node)
        except NotASizeError:
            return None

    def variable(self, node: PrimNode) -> Expr:
        """The expression of a variable; raises NotASizeError for one that is no integer scalar."""
        type_ = node.ty
        if type(type_) is not ir.PrimType or not _is_integer(type_.dtype):
            raise NotASizeError(f"`{node.name}` is no integer scalar")
        local = self._local.get(node.__chandle__()) if self._local else None
        return self._resolve(node) if local is None else local

    def load(self, node: PrimNode) -> Expr:
        """The expression of an element that is loaded from a buffer; raises NotASizeError."""
        return self._load(node)

    def let(self, node: PrimNode) -> Expr:
        """The body of a `Let`, its variable standing for the value."""
        self._local[node.var.__chandle__()] = self.expr(node.value)
        return self.expr(node.body)

    def flag(self, node: PrimNode) -> Condition:
        """The condition of a boolean variable; raises NotASizeError for one of which nothing is known."""
        found = self._resolve_flag(node)
        if found is None:
            raise NotASizeError(f"`{node.name}` is no condition on sizes")
        return found

    def condition(self, node: PrimNode) -> Condition:
        """The condition of the boolean expression `node`; raises NotASizeError."""
        kind = type(node)
        rule = _CONDITION_RULES.get(kind)
        if rule is None:
            raise NotASizeError(f"`{kind.__name__}` is no condition on sizes")
        return rule(self, node)

    def is_nonnegative(self, expr: Expr) -> bool:
        """Return whether every value of `expr` is >= 0, seen from its form; False where that is not plain."""
        return Signs(self._nonnegative).expr(expr)

    # -- truncating division --------------------------------------------------------------------------------

    def truncated_quotient(self, numerator: Expr, denominator: Expr) -> Expr:
        """C's `numerator / denominator`, rounding towards zero, by floor divisions of known signs."""
        if self.is_nonnegative(denominator):
            return self._quotient_by_positive(numerator, denominator)
        value = denominator.as_constant
        if value is not None:
            return -self._quotient_by_positive(numerator, -denominator)
        return select(
            gt(denominator, 0),
            self._quotient_by_positive(numerator, denominator),
            -self._quotient_by_positive(numerator, -denominator),
        )

    def _quotient_by_positive(self, numerator: Expr, denominator: Expr) -> Expr:
        towards_zero = floordiv(numerator, denominator)
        if self.is_nonnegative(numerator):
            return towards_zero
        return select(ge(numerator, 0), towards_zero, -floordiv(-numerator, denominator))


def truth_value(condition: Condition) -> Expr:
    """1 where `condition` holds, 0 where it does not; of a boolean variable the symbol itself."""
    bare = condition.expr if isinstance(condition, Relation) and condition.operator == "!=" else None
    return select(condition, ONE, ZERO) if bare is None or bare.as_symbol is None else bare


# -- expressions -------------------------------------------------------------------------------------------


def _is_integer(dtype: PrimNode) -> bool:
    name = str(dtype)
    return name.startswith(("int", "uint")) and "x" not in name


def _binary(combine: Callable[[Expr, Expr], Expr]) -> Callable[[TirForm, PrimNode], Expr]:
    def rule(form: TirForm, node: PrimNode) -> Expr:
        return combine(form.expr(node.a), form.expr(node.b))

    return rule


def _floor_quotient(numerator: Expr, denominator: Expr) -> Expr:
    """`a // -c` is `-a // c`: the provers want divisors of at least 1."""
    value = denominator.as_constant
    return floordiv(numerator, denominator) if value is None or value > 0 else floordiv(-numerator, -value)


def _floor_remainder(numerator: Expr, denominator: Expr) -> Expr:
    """`a % -c` is `-(-a % c)`; LegalizeOps rounds up with `a - a % -c`."""
    value = denominator.as_constant
    return mod(numerator, denominator) if value is None or value > 0 else -mod(-numerator, -value)


def _divide(form: TirForm, node: PrimNode) -> Expr:
    return form.truncated_quotient(form.expr(node.a), form.expr(node.b))


def _remainder(form: TirForm, node: PrimNode) -> Expr:
    numerator, denominator = form.expr(node.a), form.expr(node.b)
    if form.is_nonnegative(numerator) and form.is_nonnegative(denominator):
        return mod(numerator, denominator)
    return numerator - denominator * form.truncated_quotient(numerator, denominator)


def _shift_amount(form: TirForm, node: PrimNode, most: int) -> int:
    amount = form.expr(node.b).as_constant
    if amount is None or not 0 <= amount <= min(most, node.a.ty.dtype.bits - 1):
        raise NotASizeError(f"a shift by other than a constant from 0 to {most}")
    return amount


def _shift_left(form: TirForm, node: PrimNode) -> Expr:
    return form.expr(node.a) * (1 << _shift_amount(form, node, 62))


def _shift_right(form: TirForm, node: PrimNode) -> Expr:
    """Rounds down, whatever the sign: by 63 nothing but the sign is left."""
    signed = not str(node.a.ty.dtype).startswith("u")
    value, amount = form.expr(node.a), _shift_amount(form, node, 63 if signed else 62)
    if amount < 63:
        return floordiv(value, 1 << amount)
    return ZERO if form.is_nonnegative(value) else select(ge(value, 0), ZERO, constant(-1))


def _clamp(choose: Callable[[Expr, Expr], Expr], end: int) -> Callable[[TirForm, PrimNode], Expr]:
    """The rule for min and max: no machine value is beyond `end`, by which exporters say "up to the end"."""

    def rule(form: TirForm, node: PrimNode) -> Expr:
        left, right = form.expr(node.a), form.expr(node.b)
        for limit, value in ((left, right), (right, left)):
            if limit.as_constant == end:
                return value
        return choose(left, right)

    return rule


def _masked(value: Expr, mask: int) -> Expr | None:
    """`value & mask`; None where the mask, or its complement if it is negative, has too many runs of bits.

    The bits of `value` below `2**k` are `value % 2**k`, so that each run takes two remainders.
    """
    if mask < 0:
        dropped = _masked(value, ~mask)
        return None if dropped is None else value - dropped
    runs = [(run.start(), run.end()) for run in re.finditer("1+", f"{mask:b}"[::-1])]
    if len(runs) > MOST_BIT_RUNS:
        return None
    return sum((mod(value, 1 << end) - mod(value, 1 << begin) for begin, end in runs), ZERO)


def _bitwise(combine: Callable[[Expr, int, Expr], Expr]) -> Callable[[TirForm, PrimNode], Expr]:
    """The rule for an operation with a constant mask: `combine(value, mask, value & mask)`."""

    def rule(form: TirForm, node: PrimNode) -> Expr:
        left, right = form.expr(node.a), form.expr(node.b)
        value, mask = (right, left.as_constant) if right.as_constant is None else (left, right.as_constant)
        both = None if mask is None else _masked(value, mask)
        if mask is None or both is None:
            raise NotASizeError("a bitwise operation with other than a simple constant")
        return combine(value, mask, both)

    return rule


def _select(form: TirForm, node: PrimNode) -> Expr:
    return _choice(form, node.condition, node.true_value, node.false_value)


def _choice(form: TirForm, test: PrimNode, then: PrimNode, otherwise: PrimNode) -> Expr:
    """A choice, with the divisions of the whole test: compiled code evaluates both sides of an `and`."""
    condition = form.condition(test)
    return owing(select(condition, form.expr(then), form.expr(otherwise)), *condition.exprs)


def _cast(form: TirForm, node: PrimNode) -> Expr:
    source, target = node.value.ty.dtype, node.ty.dtype
    if str(source) == "bool" and _is_integer(target):
        return select(form.condition(node.value), ONE, ZERO)
    if not (_is_integer(source) and _is_integer(target)):
        raise NotASizeError(f"a cast from {source} to {target}")
    value = form.expr(node.value)
    if not _keeps_value(form, value, str(source), source.bits, str(target), target.bits):
        raise NotASizeError(f"a cast from {source} to {target}, which may change the value")
    return value


def _keeps_value(form: TirForm, value: Expr, source: str, bits: int, target: str, target_bits: int) -> bool:
    unsigned = target.startswith("u")
    number = value.as_constant
    if number is not None:
        return number in (
            range(2**target_bits) if unsigned else range(-(2 ** (target_bits - 1)), 2 ** (target_bits - 1))
        )
    if source.startswith("u") == unsigned:
        return target_bits >= bits
    return target_bits > bits and (not unsigned or form.is_nonnegative(value))


def _call(form: TirForm, node: PrimNode) -> Expr:
    name = getattr(node.op, "name", None)
    arguments = node.args
    if name == "prim.if_then_else":
        return _choice(form, *arguments)
    if name == "prim.likely":
        return form.expr(arguments[0])
    raise NotASizeError(f"a call of {name or 'a function'} inside a size")


_EXPR_RULES: Mapping[type, Callable[[TirForm, PrimNode], Expr]] = {
    prim.Add: _binary(lambda a, b: a + b),
    prim.Sub: _binary(lambda a, b: a - b),
    prim.Mul: _binary(lambda a, b: a * b),
    prim.FloorDiv: _binary(_floor_quotient),
    prim.FloorMod: _binary(_floor_remainder),
    prim.Min: _clamp(minimum, INT64_MAX),
    prim.Max: _clamp(maximum, INT64_MIN),
    prim.Div: _divide,
    prim.Mod: _remainder,
    prim.LShift: _shift_left,
    prim.RShift: _shift_right,
    prim.BitwiseAnd: _bitwise(lambda value, mask, both: both),
    prim.BitwiseOr: _bitwise(lambda value, mask, both: value + mask - both),
    prim.BitwiseXor: _bitwise(lambda value, mask, both: value + mask - both * 2),
    prim.Select: _select,
    prim.Cast: _cast,
    prim.Let: TirForm.let,
    ir.Call: _call,
    ir.TensorLoad: TirForm.load,
    ir.Var: TirForm.variable,
    relax.DataflowVar: TirForm.variable,
}

# -- conditions ---------------------------------------------------------------------------------------------


def _relation(relate: Callable[[Expr, Expr], Condition]) -> Callable[[TirForm, PrimNode], Condition]:
    def rule(form: TirForm, node: PrimNode) -> Condition:
        return relate(form.expr(node.a), form.expr(node.b))

    return rule


def _equality(negated: bool) -> Callable[[TirForm, PrimNode], Condition]:
    """`==` and `!=` also compare conditions with each other."""

    def rule(form: TirForm, node: PrimNode) -> Condition:
        if str(node.a.ty.dtype) != "bool":
            same = eq(form.expr(node.a), form.expr(node.b))
        else:
            left, right = form.condition(node.a), form.condition(node.b)
            same = disjunction((conjunction((left, right)), conjunction((negate(left), negate(right)))))
        return negate(same) if negated else same

    return rule


def _flag_constant(form: TirForm, node: PrimNode) -> Condition:
    return TRUE if node.value else FALSE


def _condition_cast(form: TirForm, node: PrimNode) -> Condition:
    if str(node.ty.dtype) != "bool":
        raise NotASizeError("an integer where a condition is expected")
    inner = node.value
    return form.condition(inner) if str(inner.ty.dtype) == "bool" else ne(form.expr(inner), 0)


def _condition_select(form: TirForm, test: PrimNode, then: PrimNode, otherwise: PrimNode) -> Condition:
    condition, yes, no = form.condition(test), form.condition(then), form.condition(otherwise)
    return disjunction((conjunction((condition, yes)), conjunction((negate(condition), no))))


def _condition_call(form: TirForm, node: PrimNode) -> Condition:
    name = getattr(node.op, "name", None)
    if name == "prim.likely":
        return form.condition(node.args[0])
    if name == "prim.if_then_else":
        return _condition_select(form, *node.args)
    raise NotASizeError(f"a call of {name or 'a function'} inside a condition")


_CONDITION_RULES: Mapping[type, Callable[[TirForm, PrimNode], Condition]] = {
    prim.LE: _relation(le),
    prim.LT: _relation(lt),
    prim.GE: _relation(ge),
    prim.GT: _relation(gt),
    prim.EQ: _equality(negated=False),
    prim.NE: _equality(negated=True),
    prim.And: lambda form, node: conjunction((form.condition(node.a), form.condition(node.b))),
    prim.Or: lambda form, node: disjunction((form.condition(node.a), form.condition(node.b))),
    prim.Not: lambda form, node: negate(form.condition(node.a)),
    prim.IntImm: _flag_constant,
    prim.Cast: _condition_cast,
    prim.Select: lambda form, node: _condition_select(
        form, node.condition, node.true_value, node.false_value
    ),
    ir.Var: TirForm.flag,
    relax.DataflowVar: TirForm.flag,
    ir.Call: _condition_call,
}
