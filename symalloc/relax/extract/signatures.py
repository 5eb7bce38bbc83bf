"""The types of functions as their callers see them: VMShapeLower drops the shapes of what a call returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from symalloc.analysis.argument_binding import bind_parameters
from symalloc.program import ir
from symalloc.program.types import OpaqueType, Type, substituted
from symalloc.relax.extract.context import Context, ModuleFacts
from symalloc.relax.ir_types import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """The parameters of a function and the type of its result, over symbols of the function."""

    params: tuple[ir.Var, ...]
    result_type: Type


class Signatures:
    """The signatures of a module's Relax functions, each found when it is first asked for."""

    def __init__(self, functions: Mapping[str, Node], module: ModuleFacts) -> None:
        self._functions, self._module = functions, module
        self._known: dict[str, Signature] = {}

    def result_of(self, name: str, arguments: Sequence[ir.Operand]) -> Type:
        """The type of what the function `name` returns for `arguments`, over symbols of the caller."""
        function = self._functions.get(name)
        if function is None:
            return OpaqueType()
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = _signature(function, self._module)
        return substituted(found.result_type, bind_parameters(found.params, arguments))


def _signature(function: Node, module: ModuleFacts) -> Signature:
    context = Context(module)
    params = context.declare_parameters(function.params)
    return Signature(params=params, result_type=context.types.of(function.ret_ty))


def with_signatures(module: ModuleFacts, functions: Mapping[str, Node]) -> ModuleFacts:
    """`module`, knowing what its Relax `functions` return."""
    return replace(module, result_of=Signatures(functions, module).result_of)
