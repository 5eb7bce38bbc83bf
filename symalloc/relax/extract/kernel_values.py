"""The scalar values and tests of a kernel's body, where its variables stand for expressions over loops."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import NamedTuple

from tvm import ir, tirx
from tvm.ir.prim import expr as prim

from symalloc.relax.extract.buffer_accesses import buffer_accesses
from symalloc.relax.extract.covers import constant_extent
from symalloc.relax.extract.kernel_exits import KernelScope
from symalloc.relax.extract.symbols import Symbols
from symalloc.relax.extract.tir_form import NotASizeError, TirForm
from symalloc.relax.ir_types import Node, VarNode, elements, visit
from symalloc.size.condition import Condition, negate
from symalloc.size.expr import Expr

_INTEGERS = frozenset({"int32", "int64"})
_PURE = frozenset({"prim.if_then_else", "prim.likely"})
_MOST_PARTS = 32  # of a number that is kept: sums of products of sums would grow from store to store
_MOST_POWER = 4
_MOST_FACTOR = 1 << 31  # numbers beyond may be no integers of the machine


class _Scalar(NamedTuple):
    """A buffer of one integer: `loops` around its allocation; `private` to the thread that stores it."""

    dtype: str
    loops: int
    private: bool


class ScalarBuffers:
    """The numbers that a kernel keeps in buffers of its own of one element, at the place that a walk has got
    to; `changes` counts how often one became another.

    TVMScript makes `x: T.int64 = value` such a buffer.  A number is known from its store on, until something
    may have stored another: a loop that stores to the buffer knows none of it when a pass begins, and none
    is known behind it, or behind an If or a block of which it is not plain that it is executed.  Nothing is
    known of a buffer that has another name, or whose address is taken.  Addresses of nodes stand for the
    nodes.
    """

    def __init__(self, function: Node) -> None:
        self._function, self.changes = function, 0
        self._scalars: dict[int, _Scalar] = {}
        self._held: dict[int, Expr] = {}

    def allocate(self, buffer: Node, scope: KernelScope) -> None:
        """Note a buffer that the kernel allocates."""
        key, type_ = buffer.__chandle__(), buffer.ty
        dtype = str(type_.dtype.dtype)
        single = all(constant_extent(extent) == 1 for extent in elements(type_.shape))
        if not (single and dtype in _INTEGERS and self._is_only_accessed(key)):
            return
        private = str(type_.storage_scope) == "local"
        self._scalars[key] = _Scalar(dtype=dtype, loops=len(scope.loops), private=private)
        self._forget({key})

    def _is_only_accessed(self, key: int) -> bool:
        return key not in self._passed and buffer_accesses(self._function.body).only_accessed(key)

    @cached_property
    def _passed(self) -> set[int]:
        """The buffers of which an element is passed to a call: some store to what they are passed."""
        found: set[int] = set()

        def note(call: Node) -> None:
            if getattr(call.op, "name", None) not in _PURE:
                loads = (argument for argument in elements(call.args) if type(argument) is ir.TensorLoad)
                found.update(load.source.__chandle__() for load in loads)

        visit(self._function.body, (ir.Call, note))
        return found

    def load(self, node: Node) -> Expr | None:
        """The number that a load finds; None where that is not known."""
        return self._held.get(node.source.__chandle__()) if _is_plain(node) else None

    def follows(self, buffer: Node) -> bool:
        """Return whether stores to `buffer` are to be noted."""
        return buffer.__chandle__() in self._scalars

    def store(self, node: Node, value: Expr | None, scope: KernelScope) -> None:
        """Note a store of `value` to a buffer that is followed, None for what is not known."""
        key = node.buffer.__chandle__()
        scalar = self._scalars[key]
        self._forget({key})
        alone = not any(loop.parallel for loop in scope.loops[scalar.loops if scalar.private else 0 :])
        fits = _is_plain(node) and str(node.value.ty.dtype) == scalar.dtype
        if value is not None and alone and fits and _is_small(value):
            self._held[key] = value

    @contextmanager
    def perhaps(self, node: Node) -> Iterator[None]:
        """A statement that may not be executed, or several times: what it stores is known inside only."""
        self.forget_stored(node)
        yield
        self.forget_stored(node)

    @contextmanager
    def branch(self) -> Iterator[None]:
        """One of several ways, each of which begins with what is known here."""
        held = dict(self._held)
        yield
        if held != self._held:
            self._held = held
            self.changes += 1

    def forget_stored(self, node: Node) -> None:
        """Forget what the statement `node` stores."""
        if self._held:
            stored: set[int] = set()
            visit(node, (tirx.BufferStore, lambda store: stored.add(store.buffer.__chandle__())))
            self._forget(stored)

    def forget(self) -> None:
        """Forget everything."""
        self._forget(set(self._held))

    def _forget(self, keys: set[int]) -> None:
        known = self._held.keys() & keys
        for key in known:
            del self._held[key]
        if known:
            self.changes += 1


def _is_plain(access: Node) -> bool:
    """Return whether a load or a store goes for the one element."""
    indices = elements(access.indices)
    return getattr(access, "predicate", None) is None and all(constant_extent(i) == 0 for i in indices)


def _is_small(value: Expr) -> bool:
    """Return whether a number has few parts, at all depths."""
    parts, waiting = 0, [value]
    while waiting:
        for monomial, factor in waiting.pop().terms.items():
            parts += 1 + len(monomial)
            if abs(factor) >= _MOST_FACTOR or parts > _MOST_PARTS:
                return False
            for atom, power in monomial:
                if power > _MOST_POWER:
                    return False
                waiting += atom.operands
    return True


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
