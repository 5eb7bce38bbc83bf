"""The scalar values and tests of a kernel's body, where its variables stand for expressions over loops."""

from __future__ import annotations

from tvm import ir
from tvm.ir.prim import expr as prim

from symalloc.relax.extract.scalar_buffers import ScalarBuffers
from symalloc.relax.extract.symbols import Symbols
from symalloc.relax.extract.tir_form import NotASizeError, TirForm
from symalloc.relax.ir_types import Node, VarNode
from symalloc.size.condition import Condition, negate
from symalloc.size.expr import Expr


class _Known:
    """Resolves variables and loads for forms, and knows none of them: forms that knew their owner would be
    garbage that only Python's collector finds, and keep the kernel until then.
    """

    def __init__(self, symbols: Symbols, scalars: ScalarBuffers) -> None:
        self.symbols, self.scalars = symbols, scalars
        self.values: dict[int, Expr | None] = {}
        self.flags: dict[int, Condition | None] = {}

    def value(self, var: VarNode) -> Expr:
        key = var.__chandle__()
        value = self.values[key] if key in self.values else self.symbols.known(var)
        if value is None:
            raise NotASizeError(f"the value of `{var.name}` depends on data")
        return value

    def load(self, node: Node) -> Expr:
        value = self.scalars.load(node)
        if value is None:
            raise NotASizeError(f"what `{node.source.name}` holds depends on data")
        return value

    def flag(self, var: VarNode) -> Condition | None:
        return self.flags.get(var.__chandle__())


class KernelValues:
    """The values of scalar expressions at the place that a walk of `function` has got to.

    Addresses of nodes stand for the nodes.  `scalars` are the numbers in buffers.
    """

    def __init__(self, symbols: Symbols, function: Node) -> None:
        self.symbols, self.scalars = symbols, ScalarBuffers(function)
        self._known = _Known(symbols, self.scalars)
        self._renew()

    def _renew(self) -> None:
        """Forget what expressions were translated to: a variable has got another value."""
        known = self._known
        resolve, is_size = (known.value, known.flag), self.symbols.is_size
        self._form = TirForm(*resolve, nonnegative=is_size, load=known.load)
        self._lasting_form = TirForm(*resolve, nonnegative=is_size)
        self._changes = self.scalars.changes

    @property
    def form(self) -> TirForm:
        """The form of expressions here."""
        if self._changes != self.scalars.changes:
            self._renew()
        return self._form

    def bind(self, var: VarNode, value: Expr | None) -> None:
        """The variable `var` stands for `value` from here on; None for what is not known."""
        key = var.__chandle__()
        if key in self._known.values or key in self._known.flags:
            self._renew()
        self._known.values[key] = value

    def let(self, var: VarNode, value: Node) -> None:
        """The variable `var`, a number or a truth value, stands for the expression `value`."""
        if type(var.ty) is ir.PrimType and str(var.ty.dtype) == "bool":
            known, exact = self.guard(value, holds=True)
            if var.__chandle__() in self._known.flags:
                self._renew()
            self._known.flags[var.__chandle__()] = known[0] if exact and len(known) == 1 else None
        else:
            self.bind(var, self.expr_or_none(value))

    def expr_or_none(self, node: Node) -> Expr | None:
        """The exact form of an integer expression; None where it has none."""
        if type(node) is prim.Broadcast:
            return self.expr_or_none(node.value)
        return self.form.expr_or_none(node)

    def lasting(self, node: Node) -> Expr | None:
        """The form of an extent, which is evaluated where the buffer is used: what scalars hold by then is
        not known.
        """
        return self._lasting_form.expr_or_none(node)

    def guard(self, test: Node, holds: bool) -> tuple[tuple[Condition, ...], bool]:
        """The conditions that hold where `test` is true, or is not; and whether they say all that it says."""
        kind = type(test)
        if kind is prim.Not:
            return self.guard(test.a, not holds)
        if kind is (prim.And if holds else prim.Or):
            left, right = self.guard(test.a, holds), self.guard(test.b, holds)
            return (*left[0], *right[0]), left[1] and right[1]
        try:
            known = self.form.condition(test)
        except NotASizeError:
            return (), False
        return (known if holds else negate(known),), True
