"""Numbers for types, so that what depends on the types of arguments is looked up by a few integers."""

from __future__ import annotations

from collections.abc import Hashable

from symalloc.program.model import Operand, Var
from symalloc.program.types import Type

__all__ = ["TypeNumbers"]


class TypeNumbers:
    """Gives equal types equal numbers; hashes the type of a variable once only."""

    def __init__(self) -> None:
        self._of_type: dict[Type, int] = {}
        self._of_var: dict[Var, int] = {}

    def of(self, operand: Operand) -> Hashable:
        """The number of a variable's type; another operand stands for itself."""
        if not isinstance(operand, Var):
            return operand
        number = self._of_var.get(operand)
        if number is None:
            number = self._of_type.setdefault(operand.type, len(self._of_type))
            self._of_var[operand] = number
        return number
