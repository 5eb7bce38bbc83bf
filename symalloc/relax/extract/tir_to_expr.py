"""The symbolic variables of a function, and TVM's scalar expressions as sizes and conditions, exactly.

TVM computes in int64 (or int32) and wraps; the forms here are mathematical integers.  What has no exact form
raises `NotASizeError`; nothing is approximated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from tvm import ir, relax
from tvm.ir.prim import expr as prim

from symalloc.program.ir import Origin
from symalloc.program.types import DType
from symalloc.prover.domain import INT64_MAX, INT64_MIN, Box, interval
from symalloc.relax.ir_types import Node, PrimNode, VarNode, free_name
from symalloc.size.choice import Signs, maximum, minimum, select
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
from symalloc.size.expr import ONE, ZERO, Expr, constant, floordiv, mod, symbol

Made = TypeVar("Made", Expr, Condition)
_MOST_BIT_RUNS = 4  # of a mask, each of which takes two remainders
_DTYPES: dict[str, DType] = {}
_MOST_AMOUNTS = 32  # of a shift or a power, each of which is a case
_EXACT = 2**24  # below it a float of 32 bits holds each integer
_ORDINARY = 2**22  # a size that narrow integers are taken to hold
_SIZES = (Origin.DIMENSION, Origin.CAST, Origin.LOOP)


class NotASizeError(ValueError):
    """A scalar expression that has no exact form as a size expression or condition; the text says why."""


class Symbols:
    """Names every symbolic variable of a function once: two variables called `n` become `n` and `n_1`.

    Variables are told apart by identity.
    """

    def __init__(self) -> None:
        self.origins: dict[str, Origin] = {}
        self.original: dict[str, str] = {}  # our name -> the name that TVM's variable has
        self.variables: dict[str, Node] = {}
        self._values: dict[int, Expr | None] = {}  # None for a number of which nothing is known
        self._flags: dict[int, Condition] = {}
        self._kept: list[Node] = []  # keeps the variables alive, for their addresses are the keys

    def resolve(self, var: VarNode) -> Expr:
        """The expression of an integer variable; one that nothing has defined becomes an undefined symbol.

        Raises NotASizeError for one of which it is known that nothing is known.
        """
        if var.__chandle__() not in self._values:
            return self._declare(var, Origin.UNDEFINED)
        found = self._values[var.__chandle__()]
        if found is None:
            raise NotASizeError(f"`{var.name}`, a number of which nothing is known")
        return found

    def known(self, var: VarNode) -> Expr | None:
        """The expression of an integer variable that something has defined; None for any other."""
        return self._values.get(var.__chandle__())

    def resolve_flag(self, var: VarNode) -> Condition | None:
        """The condition of a boolean variable, where it is known."""
        return self._flags.get(var.__chandle__())

    def define(self, var: VarNode, origin: Origin) -> str | None:
        """`var` gets its value by `origin` here; returns its name where this is its first definition."""
        if var.__chandle__() not in self._values:
            return self._declare(var, origin).as_symbol
        found = self._values[var.__chandle__()]
        name = None if found is None else found.as_symbol
        if name is None or name not in self.origins:
            return None
        known = self.origins[name]
        if known is Origin.UNDEFINED or (known is Origin.SCALAR and origin is Origin.DIMENSION):
            self.origins[name] = origin
        return name if known is Origin.UNDEFINED else None

    def bind(self, var: VarNode, value: Expr | None) -> None:
        """The integer variable `var` stands for `value`; None for a number of which nothing is known."""
        self._values[var.__chandle__()] = value
        self._kept.append(var)

    def bind_flag(self, var: VarNode, condition: Condition) -> None:
        """The boolean variable `var` stands for `condition`."""
        self._flags[var.__chandle__()] = condition
        self._kept.append(var)

    def define_flag(self, var: VarNode) -> Condition:
        """The boolean variable `var`, unless it stands for a condition already, becomes a symbol: 0 or 1."""
        found = self.resolve_flag(var)
        if found is None:
            name = self.new(var.name, Origin.FLAG)
            self.variables[name], found = var, ne(symbol(name), 0)
            self.bind_flag(var, found)
        return found

    def is_size(self, name: str) -> bool:
        """Return whether the symbol is an extent, and hence >= 0."""
        return self.origins.get(name) in _SIZES

    def _declare(self, var: VarNode, origin: Origin) -> Expr:
        name = self.new(var.name, origin)
        self.variables[name], value = var, symbol(name)
        self.bind(var, value)
        return value

    def new(self, original: str, origin: Origin) -> str:
        """A new symbol, called `original` where that is free."""
        base = original if original.isidentifier() else re.sub(r"\W", "_", f"_{original}")
        name = free_name(base, self.origins)
        self.origins[name], self.original[name] = origin, original
        return name


class NumberRanges:
    """The values of a kernel's symbols: `greatest` of those that count passes; others are ordinary sizes."""

    def __init__(self, is_size: Callable[[str], bool]) -> None:
        self.is_size = is_size
        self.greatest: dict[str, int] = {}

    def of(self, value: Expr) -> tuple[int, int]:
        """The least and the greatest number that an expression may be."""
        upper = {name: self.greatest.get(name, _ORDINARY) for name in value.symbols}
        return interval(value, Box({name: 0 if self.is_size(name) else -_ORDINARY for name in upper}, upper))


def choice_of(node: Node) -> tuple[Node, Node, Node] | None:
    """The test and the two sides of a select or an if_then_else; None for any other expression."""
    if type(node) is prim.Select:
        return node.condition, node.true_value, node.false_value
    if type(node) is ir.Call and getattr(node.op, "name", None) == "prim.if_then_else":
        return node.args[0], node.args[1], node.args[2]
    return None


class TirToExpr:
    """Translates the scalar expressions of one function; keeps what it has translated, by identity.

    `resolve` gives the expression of a variable, `resolve_flag` the condition of a boolean one (or
    None), `nonnegative` whether a symbol is known to be >= 0 (truncation then rounds down), `load` the
    expression of an element of a buffer.  With `ranges` narrow integers wrap, and amounts of shifts vary.
    """

    def __init__(
        self,
        resolve: Callable[[PrimNode], Expr],
        resolve_flag: Callable[[PrimNode], Condition | None] = lambda _: None,
        nonnegative: Callable[[str], bool] = lambda _: False,
        load: Callable[[PrimNode], Expr] | None = None,
        ranges: NumberRanges | None = None,
    ) -> None:
        self.ranges = ranges
        self._resolve, self._resolve_flag, self._load = resolve, resolve_flag, load
        self._nonnegative = nonnegative
        self._local: dict[int, Expr] = {}
        # a node is kept with what was made of it, or its address could be used again
        self._known: dict[int, tuple[PrimNode, Expr]] = {}

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
        if self._load is None:
            raise NotASizeError("an element of a buffer inside a size")
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

    def wrapped(self, value: Expr, dtype: PrimNode) -> Expr:
        """The number that an integer of type `dtype` holds of a value."""
        held = numbers_of(dtype)
        if self.ranges is None:
            raise NotASizeError(f"a cast to {dtype}, which may change the value")
        least, greatest = self.ranges.of(value)
        fits = held.start <= least and greatest < held.stop
        return value if fits else mod(value - held.start, held.stop - held.start) + held.start

    def by_amount(self, amount: Expr, most: int, of: Callable[[int], Expr]) -> Expr:
        """The expression that `of` gives for the value of `amount`, which is from 0 to `most`."""
        number = amount.as_constant
        least, greatest = self.ranges.of(amount) if self.ranges and number is None else (number or 0, number)
        if greatest is None or least < 0 or greatest > most or greatest - least > _MOST_AMOUNTS:
            raise NotASizeError(f"a shift by other than a constant from 0 to {most}")
        found = of(greatest)
        for value in range(greatest - 1, least - 1, -1):
            found = select(eq(amount, value), of(value), found)
        return found

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


def all_known(found: Iterable[Expr | None]) -> tuple[Expr, ...] | None:
    """The expressions; None where one is not known."""
    every = tuple(found)
    known = tuple([one for one in every if one is not None])
    return known if len(known) == len(every) else None


def truth_value(condition: Condition) -> Expr:
    """1 where `condition` holds, 0 where it does not; of a boolean variable the symbol itself."""
    bare = condition.expr if isinstance(condition, Relation) and condition.operator == "!=" else None
    return select(condition, ONE, ZERO) if bare is None or bare.as_symbol is None else bare


def to_dtype(dtype: Node) -> DType | None:
    """An element type; None for TVM's unknown one (`void`)."""
    name = str(dtype)
    found = _DTYPES.get(name)
    if found is None:
        if not name or name == "void" or dtype.bits == 0:
            return None
        found = _DTYPES[name] = DType(name, dtype.bits, dtype.lanes)
    return found


# -- expressions -------------------------------------------------------------------------------------------


def _is_integer(dtype: PrimNode) -> bool:
    name = str(dtype)
    return name.startswith(("int", "uint")) and "x" not in name


def numbers_of(dtype: PrimNode) -> range:
    """The numbers that an integer type, or a truth value, holds; none for any other type."""
    if str(dtype) == "bool" or not _is_integer(dtype):
        return range(2 if str(dtype) == "bool" else 0)
    half = 1 << dtype.bits - 1
    return range(2 * half) if str(dtype).startswith("u") else range(-half, half)


def _both(combine: Callable[[Expr, Expr], Made]) -> Callable[[TirToExpr, PrimNode], Made]:
    """The rule that combines the expressions of two sides."""
    return lambda form, node: combine(form.expr(node.a), form.expr(node.b))


def _in_machine(combine: Callable[[Expr, Expr], Expr]) -> Callable[[TirToExpr, PrimNode], Expr]:
    """The rule that combines two sides; in kernels numbers of less than 32 bits wrap.

    Those of 32 bits are taken to hold what is counted, as TVM's own narrowing takes them to, if not below 0.
    """

    def rule(form: TirToExpr, node: PrimNode) -> Expr:
        value = combine(form.expr(node.a), form.expr(node.b))
        dtype = node.ty.dtype
        if form.ranges is not None and dtype.bits < 32:
            return form.wrapped(value, dtype)
        if form.ranges is not None and str(dtype)[0] == "u" and form.ranges.of(value)[0] < 0:
            raise NotASizeError("an unsigned number that may fall below 0")
        return value

    return rule


def _floored(divide: Callable[[Expr, Expr | int], Expr], sign: int) -> Callable[[Expr, Expr], Expr]:
    """The provers want divisors of at least 1: `a // -c` is `-a // c`, and `a % -c` is `-(-a % c)`, as
    LegalizeOps rounds up with `a - a % -c`.
    """

    def divided(numerator: Expr, denominator: Expr) -> Expr:
        value = denominator.as_constant
        turned = value is not None and value <= 0
        return divide(-numerator, -denominator) * sign if turned else divide(numerator, denominator)

    return divided


def _remainder(form: TirToExpr, node: PrimNode) -> Expr:
    numerator, denominator = form.expr(node.a), form.expr(node.b)
    if form.is_nonnegative(numerator) and form.is_nonnegative(denominator):
        return mod(numerator, denominator)
    return numerator - denominator * form.truncated_quotient(numerator, denominator)


def _shift_left(form: TirToExpr, node: PrimNode) -> Expr:
    value, most = form.expr(node.a), min(62, node.a.ty.dtype.bits - 1)
    found = form.by_amount(form.expr(node.b), most, lambda amount: value * (1 << amount))
    return found if form.ranges is None else form.wrapped(found, node.ty.dtype)


def _shift_right(form: TirToExpr, node: PrimNode) -> Expr:
    """Rounds down, whatever the sign: by 63 nothing but the sign is left."""
    signed, value = not str(node.a.ty.dtype).startswith("u"), form.expr(node.a)

    def shifted(amount: int) -> Expr:
        if amount < 63:
            return floordiv(value, 1 << amount)
        return ZERO if form.is_nonnegative(value) else select(ge(value, 0), ZERO, constant(-1))

    return form.by_amount(form.expr(node.b), min(63 if signed else 62, node.a.ty.dtype.bits - 1), shifted)


def _clamp(choose: Callable[[Expr, Expr], Expr], end: int) -> Callable[[TirToExpr, PrimNode], Expr]:
    """The rule for min and max: no machine value is beyond `end`, by which exporters say "up to the end"."""

    def rule(form: TirToExpr, node: PrimNode) -> Expr:
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
    if len(runs) > _MOST_BIT_RUNS:
        return None
    return sum((mod(value, 1 << end) - mod(value, 1 << begin) for begin, end in runs), ZERO)


def _bitwise(combine: Callable[[Expr, int, Expr], Expr]) -> Callable[[TirToExpr, PrimNode], Expr]:
    """The rule for an operation with a constant mask: `combine(value, mask, value & mask)`."""

    def rule(form: TirToExpr, node: PrimNode) -> Expr:
        left, right = form.expr(node.a), form.expr(node.b)
        value, mask = (right, left.as_constant) if right.as_constant is None else (left, right.as_constant)
        both = None if mask is None else _masked(value, mask)
        if mask is None or both is None:
            raise NotASizeError("a bitwise operation with other than a simple constant")
        return combine(value, mask, both)

    return rule


def _chosen(form: TirToExpr, node: PrimNode) -> Expr:
    """A choice, with the divisions of the whole test: compiled code evaluates both sides of an `and`."""
    choice = choice_of(node)
    if choice is None:
        return form.expr(_seen_through(node, "size"))
    condition = form.condition(choice[0])
    return select(condition, form.expr(choice[1]), form.expr(choice[2]), whole=True)


TRANSPARENT = frozenset({"prim.likely", "tirx.tvm_thread_invariant"})
"""Calls whose value is that of their argument."""


def _seen_through(call: PrimNode, inside: str) -> PrimNode:
    """The argument of a transparent call; raises NotASizeError for any other."""
    name = getattr(call.op, "name", None)
    if name not in TRANSPARENT:
        raise NotASizeError(f"a call of {name or 'a function'} inside a {inside}")
    return call.args[0]


def _cast(form: TirToExpr, node: PrimNode) -> Expr:
    source, target = node.value.ty.dtype, node.ty.dtype
    if str(source) == "bool" and _is_integer(target):
        return select(form.condition(node.value), ONE, ZERO)
    if not _is_integer(target):
        raise NotASizeError(f"a cast from {source} to {target}")
    value = form.expr(node.value) if _is_integer(source) else form.wrapped(_whole(form, node.value), target)
    return value if _keeps_value(form, value, source, target) else form.wrapped(value, target)


def _whole(form: TirToExpr, node: PrimNode) -> Expr:
    """The number that a float of 32 bits or more is, which is an integer that it holds exactly."""
    found: Expr | None = None
    if type(node) is prim.FloatImm and node.value == int(node.value):
        found = constant(int(node.value))
    elif type(node) is prim.Cast and _is_integer(node.value.ty.dtype):
        found = form.expr(node.value)
    elif type(node) is ir.Call and getattr(node.op, "name", None) == "tirx.pow":
        base, power = (_whole(form, part) for part in node.args)
        found = form.by_amount(power, _EXACT.bit_length(), lambda number: base**number)
    least, greatest = (0, _EXACT) if found is None or form.ranges is None else form.ranges.of(found)
    if found is None or not -_EXACT < least <= greatest < _EXACT or node.ty.dtype.bits < 32:
        raise NotASizeError("a float that may be no integer")
    return found


def _keeps_value(form: TirToExpr, value: Expr, source: PrimNode, target: PrimNode) -> bool:
    unsigned, number = str(target).startswith("u"), value.as_constant
    if number is not None:
        return number in numbers_of(target)
    if str(source).startswith("u") == unsigned:
        return bool(target.bits >= source.bits)
    return target.bits > source.bits and (not unsigned or form.is_nonnegative(value))


_EXPR_RULES: Mapping[type, Callable[[TirToExpr, PrimNode], Expr]] = {
    prim.Add: _in_machine(lambda a, b: a + b),
    prim.Sub: _in_machine(lambda a, b: a - b),
    prim.Mul: _in_machine(lambda a, b: a * b),
    prim.FloorDiv: _both(_floored(floordiv, 1)),
    prim.FloorMod: _both(_floored(mod, -1)),
    prim.Min: _clamp(minimum, INT64_MAX),
    prim.Max: _clamp(maximum, INT64_MIN),
    prim.Div: lambda form, node: form.truncated_quotient(form.expr(node.a), form.expr(node.b)),
    prim.Mod: _remainder,
    prim.LShift: _shift_left,
    prim.RShift: _shift_right,
    prim.BitwiseAnd: _bitwise(lambda value, mask, both: both),
    prim.BitwiseOr: _bitwise(lambda value, mask, both: value + mask - both),
    prim.BitwiseXor: _bitwise(lambda value, mask, both: value + mask - both * 2),
    prim.Select: _chosen,
    prim.Cast: _cast,
    prim.Let: TirToExpr.let,
    ir.Call: _chosen,
    ir.TensorLoad: TirToExpr.load,
    ir.Var: TirToExpr.variable,
    relax.DataflowVar: TirToExpr.variable,
}

# -- conditions ---------------------------------------------------------------------------------------------


def _equal(form: TirToExpr, node: PrimNode) -> Condition:
    """`==` also compares conditions with each other."""
    if str(node.a.ty.dtype) != "bool":
        return eq(form.expr(node.a), form.expr(node.b))
    left, right = form.condition(node.a), form.condition(node.b)
    return disjunction((conjunction((left, right)), conjunction((negate(left), negate(right)))))


def _condition_cast(form: TirToExpr, node: PrimNode) -> Condition:
    if str(node.ty.dtype) != "bool":
        raise NotASizeError("an integer where a condition is expected")
    inner = node.value
    return form.condition(inner) if str(inner.ty.dtype) == "bool" else ne(form.expr(inner), 0)


def _condition_chosen(form: TirToExpr, node: PrimNode) -> Condition:
    choice = choice_of(node)
    if choice is None:
        return form.condition(_seen_through(node, "condition"))
    condition, yes, no = map(form.condition, choice)
    return disjunction((conjunction((condition, yes)), conjunction((negate(condition), no))))


_CONDITION_RULES: Mapping[type, Callable[[TirToExpr, PrimNode], Condition]] = {
    prim.LE: _both(le),
    prim.LT: _both(lt),
    prim.GE: _both(ge),
    prim.GT: _both(gt),
    prim.EQ: _equal,
    prim.NE: lambda form, node: negate(_equal(form, node)),
    prim.And: lambda form, node: conjunction((form.condition(node.a), form.condition(node.b))),
    prim.Or: lambda form, node: disjunction((form.condition(node.a), form.condition(node.b))),
    prim.Not: lambda form, node: negate(form.condition(node.a)),
    prim.IntImm: lambda _, node: TRUE if node.value else FALSE,
    prim.Cast: _condition_cast,
    prim.Select: _condition_chosen,
    ir.TensorLoad: lambda form, node: ne(form.load(node), 0),
    ir.Var: TirToExpr.flag,
    relax.DataflowVar: TirToExpr.flag,
    ir.Call: _condition_chosen,
}
