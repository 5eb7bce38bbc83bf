"""Bindings of the kinds that most of a lowered function consists of, a block of them read natively at once.

They are allocations, calls of kernels, and second names.  From Python each attribute of TVM's is a call, and
nearly every variable has a type of its own; what is alike is converted once here.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence

from tvm.ir import Op

from symalloc.native.library import has_native
from symalloc.native.native_functions import module_functions
from symalloc.program import ir
from symalloc.program.record import by_position
from symalloc.program.types import ScalarType, TensorType, Type, is_open
from symalloc.relax.extract.context import Context, Head
from symalloc.relax.extract.memory_operators import fresh_tensor
from symalloc.relax.extract.tir_form import NotASizeError
from symalloc.relax.ir_types import BindingNode, Node, elements

FEW = 12  # bindings that are read faster one by one
OTHER, ALIAS, KERNEL, ALLOCATION = range(4)
"""The kinds of rows.

OTHER is all of its row.  The others have the address of the variable and the number of its type behind their
kind; then ALIAS has the address of the variable that it names, ALLOCATION the number of a call, KERNEL the
number of the callee, how many arguments there are, and the arguments: addresses of variables, or ~number of
what is none, or a scalar.
"""

_ALLOCATES = Op.get("relax.builtin.alloc_tensor")
_made_alias = by_position(ir.Alias)
_made_fresh = by_position(ir.AllocFresh)
_made_kernel = by_position(ir.CallKernel)


class PlainBindings:
    """The instructions of a block's bindings, in order, as far as they are plain.

    `variables` and `unbound` are those of `context` by address; neither may be replaced.
    """

    def __init__(
        self,
        context: Context,
        variables: dict[int, ir.Var],
        unbound: Mapping[int, ir.Var],
        bindings: Node,
    ) -> None:
        self.context, self.variables, self.unbound = context, variables, unbound
        rows, names, *numbered = module_functions.read_bindings(bindings, _ALLOCATES)
        numbers = array("q")
        numbers.frombytes(rows)
        self._rows = numbers.tolist()
        self._names = iter(names.split("\n"))
        self._kinds, self._calls, self._callees, self._literals = map(list, numbered)
        self._types: list[Type | None] = [None] * len(self._kinds)
        self._made: list[tuple[object, ...] | None] = [None] * len(self._calls)
        self._kernels: list[str | None] = [None] * len(self._callees)

    @classmethod
    def of(
        cls, context: Context, variables: dict[int, ir.Var], unbound: Mapping[int, ir.Var], bindings: Node
    ) -> PlainBindings | None:
        """Those of `bindings`; None where they are few, or the native library is missing."""
        if len(bindings) < FEW or not has_native("symalloc.module.read_bindings"):
            return None
        return cls(context, variables, unbound, bindings)

    def read(
        self, bindings: Iterable[BindingNode], read_other: Callable[[BindingNode], None], *, handles: bool
    ) -> None:
        """Add the instruction of one binding after the other to those of the context, with the binding as its
        handle where there are to be `handles`; `read_other` does so for those that are not plain.
        """
        rows, names, types, variables = self._rows, self._names, self._types, self.variables
        unbound, heaps, add = self.unbound, self.context.heaps, self.context.out.append
        at = 0
        for binding in bindings:
            kind = rows[at]
            if kind == OTHER:
                at += 1
                read_other(binding)
                continue
            name, number = next(names), rows[at + 2]
            begin, at = at, (at + 5 + rows[at + 4] if kind == KERNEL else at + 4)
            if unbound or heaps.slots:
                read_other(binding)
                continue
            var, handle = ir.Var(name, types[number] or self._type(number)), binding if handles else None
            made: ir.Instruction | None
            if kind == ALLOCATION:
                made = self._allocation(var, handle, rows[begin + 3])
            elif kind == ALIAS:
                made = self._alias(var, handle, rows[begin + 3])
            else:
                made = self._kernel(var, handle, rows[begin + 3], rows[begin + 5 : at])
            if made is None:
                read_other(binding)
            else:
                variables[rows[begin + 1]] = var
                add(made)

    def _type(self, number: int) -> Type:
        found = self.context.types.of(self._kinds[number])
        if not is_open(found):  # extents may become known
            self._types[number] = found
        return found

    def _allocation(self, var: ir.Var, handle: BindingNode | None, number: int) -> ir.Instruction | None:
        known = self._made[number]
        if known is None:
            call = self._calls[number]
            head: Head = {"var": var, "span": None, "text": "", "handle": None}
            try:
                first = fresh_tensor(self.context, head, call, elements(call.args))
            except NotASizeError:
                return None
            if type(first) is not ir.AllocFresh or first.shape is None:
                return None
            known = self._made[number] = (first.shape, first.dtype, first.device, first.scope, first.inexact)
        return _made_fresh(var, None, "", handle, *known)

    def _alias(self, var: ir.Var, handle: BindingNode | None, address: int) -> ir.Instruction | None:
        source = self.variables.get(address)
        if source is None or type(source.type) is not TensorType or is_open(var.type):
            return None
        return _made_alias(var, None, "", handle, source)

    def _kernel(
        self, var: ir.Var, handle: BindingNode | None, callee: int, arguments: Sequence[int]
    ) -> ir.Instruction | None:
        name = self._kernels[callee]
        if name is None:
            name = self.context.callee_name(self._callees[callee])
            if name not in self.context.module.kernels:
                return None
            self._kernels[callee] = name
        variables = self.variables
        operands: list[ir.Operand] = []
        for number in arguments:
            if number < 0:
                try:
                    operands.append(self.context.operand(self._literals[~number]))
                except NotASizeError:
                    return None
            else:
                known = variables.get(number)
                if known is None or type(known.type) is ScalarType:
                    return None
                operands.append(known)
        return _made_kernel(var, None, "", handle, name, tuple(operands))
