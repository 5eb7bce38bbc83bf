"""The symbolic variables of one function: names, where they get their value, what bound scalars stand for."""

from __future__ import annotations

import re

from symalloc.program.ir import Origin
from symalloc.relax.extract.tir_form import NotASizeError
from symalloc.relax.ir_types import Node, VarNode
from symalloc.size.condition import Condition, ne
from symalloc.size.expr import Expr, symbol

_SIZES = (Origin.DIMENSION, Origin.CAST, Origin.LOOP)


class Symbols:
    """Names every symbolic variable of a function once: two variables called `n` become `n` and `n_1`.

    Variables are told apart by identity.
    """

    def __init__(self) -> None:
        self.origins: dict[str, Origin] = {}
        self.original: dict[str, str] = {}  # our name -> the name that TVM's variable has
        self._values: dict[int, Expr] = {}
        self._flags: dict[int, Condition] = {}
        self._unknown: set[int] = set()
        self._kept: list[Node] = []  # keeps the variables alive, for their addresses are the keys

    def resolve(self, var: VarNode) -> Expr:
        """The expression of an integer variable; one that nothing has defined becomes an undefined symbol.

        Raises NotASizeError for one of which it is known that nothing is known.
        """
        found = self._values.get(var.__chandle__())
        if found is None and var.__chandle__() in self._unknown:
            raise NotASizeError(f"`{var.name}`, a number of which nothing is known")
        return self._declare(var, Origin.UNDEFINED) if found is None else found

    def known(self, var: VarNode) -> Expr | None:
        """The expression of an integer variable that something has defined; None for any other."""
        return self._values.get(var.__chandle__())

    def resolve_flag(self, var: VarNode) -> Condition | None:
        """The condition of a boolean variable, where it is known."""
        return self._flags.get(var.__chandle__())

    def define(self, var: VarNode, origin: Origin) -> str | None:
        """`var` gets its value by `origin` here; returns its name where this is its first definition."""
        found = self._values.get(var.__chandle__())
        if found is None:
            return None if var.__chandle__() in self._unknown else self._declare(var, origin).as_symbol
        name = found.as_symbol
        if name is None or name not in self.origins:
            return None
        known = self.origins[name]
        if known is Origin.UNDEFINED or (known is Origin.SCALAR and origin is Origin.DIMENSION):
            self.origins[name] = origin
        return name if known is Origin.UNDEFINED else None

    def invent(self, original: str, origin: Origin) -> Expr:
        """A new symbol, called `original` where that is free, for what no variable of TVM stands for."""
        return symbol(self._new(original, origin))

    def bind(self, var: VarNode, value: Expr) -> None:
        """The integer variable `var` stands for `value`."""
        self._values[var.__chandle__()] = value
        self._kept.append(var)

    def bind_unknown(self, var: VarNode) -> None:
        """The integer variable `var` stands for a number of which nothing is known."""
        self._unknown.add(var.__chandle__())
        self._kept.append(var)

    def bind_flag(self, var: VarNode, condition: Condition) -> None:
        """The boolean variable `var` stands for `condition`."""
        self._flags[var.__chandle__()] = condition
        self._kept.append(var)

    def define_flag(self, var: VarNode) -> Condition:
        """The boolean variable `var`, unless it stands for a condition already, becomes a symbol: 0 or 1."""
        found = self.resolve_flag(var)
        if found is None:
            found = ne(symbol(self._new(var.name, Origin.FLAG)), 0)
            self.bind_flag(var, found)
        return found

    def is_size(self, name: str) -> bool:
        """Return whether the symbol is an extent, and hence >= 0."""
        return self.origins.get(name) in _SIZES

    def counter(self, original: str) -> str:
        """A new symbol that counts the passes of a loop, called `original` where that is free."""
        return self._new(original, Origin.LOOP)

    def _declare(self, var: VarNode, origin: Origin) -> Expr:
        value = symbol(self._new(var.name, origin))
        self.bind(var, value)
        return value

    def _new(self, original: str, origin: Origin) -> str:
        name = self._fresh(original)
        self.origins[name] = origin
        self.original[name] = original
        return name

    def _fresh(self, original: str) -> str:
        base = original if original.isidentifier() else re.sub(r"\W", "_", f"_{original}")
        name, count = base, 0
        while name in self.origins:
            count += 1
            name = f"{base}_{count}"
        return name
