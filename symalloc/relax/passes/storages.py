"""Storages of a Relax function and what lies on them, rewritten: the ground of passes that change where
memory comes from.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import tvm
from tvm import DataType, relax
from tvm.ir import Call, GenericConst, Op

from symalloc.relax.ir_types import BindingNode, CallNode, Node, VarNode, elements

MEMORY_STORAGE, VM_STORAGE = (Op.get(f"relax.{room}.alloc_storage") for room in ("memory", "vm"))
BYTE = GenericConst(DataType("uint8"), relax.AnyType())
ALLOC_STORAGE = (MEMORY_STORAGE, VM_STORAGE)
ALLOC_TENSOR = tuple(Op.get(f"relax.{room}.alloc_tensor") for room in ("memory", "vm"))
LITERAL = re.compile(r"T\.int64\((-?\d+)\)")
KILLS = tuple(
    Op.get(f"relax.{name}") for name in ("memory.kill_storage", "memory.kill_tensor", "vm.kill_object")
)


def rewritten(module: tvm.IRModule, rewriter: type[StorageRewriter], **choices: str) -> tvm.IRModule:
    """`module` with all its Relax functions rewritten; nothing else changes."""
    changed = module.clone()
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            changed.update_func(variable, rewriter(variable.name_hint, function, **choices).function())
    return changed


def is_late(function: relax.Function) -> bool:
    """Whether packed calls may stand in it as they are: it is impure, or behind RemovePurityChecking."""
    return not function.is_pure or bool(function.attrs and function.attrs.get("relax.force_pure", False))


def builtin_arguments(call: CallNode) -> list[Node]:
    """What the virtual machine's builtin is given for a storage: extents, device, element type, scope."""
    if call.op == VM_STORAGE:
        return list(call.args)
    size, device, scope, _ = call.args  # bytes, whatever the type
    return [size, device, BYTE, scope]


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of the variables of a function before it is rewritten.

    `names`: what the author calls an allocation, where a later variable is bound to it.  `on`: the tensors
    of each storage, as calls.  `escaping`: variables that the result may hold, or view.
    """

    names: dict[Node, str]
    on: dict[Node, list[tuple[Node, Node]]]
    escaping: set[Node]


class StorageRewriter(ABC):
    """Rewrites one function; subclasses say what becomes of its allocations."""

    def __init__(self, name: str, function: relax.Function) -> None:
        self.name, self.given = name, function
        self.builder = relax.BlockBuilder()
        self.late = is_late(function)
        self.known = _known(function)

    @abstractmethod
    def storage(self, binding: BindingNode, call: CallNode) -> list[Node]:
        """The bindings that stand for the allocation of a storage."""

    @abstractmethod
    def tensor(self, binding: BindingNode, call: CallNode) -> list[Node]:
        """The bindings that stand for the allocation of a tensor on a storage."""

    def function(self) -> relax.Function:
        """The function, rewritten."""
        old = self.given
        body = self._sequence(old.body)
        return relax.Function(old.params, body, old.ret_ty, old.is_pure, old.attrs, old.span)

    def tag(self, var: VarNode) -> str:
        """`function.variable`, and for a storage with one tensor that one's shape."""
        known = self.known
        tensors = known.on.get(var, [])
        if len(tensors) == 1:
            tensor, call = tensors[0]
            return f"{self.name}.{known.names.get(tensor, tensor.name)} {_shape_text(call)}"
        return f"{self.name}.{known.names.get(var, var.name)}"

    def escapes(self, var: VarNode) -> bool:
        """Whether what lies in `var` may outlive the call."""
        return var in self.known.escaping

    def _sequence(self, seq: Node) -> Node:
        if not isinstance(seq, relax.SeqExpr):
            return seq
        blocks = [
            type(block)([new for old in elements(block.bindings) for new in self._binding(old)])
            for block in seq.blocks
        ]
        return self.builder.normalize(relax.SeqExpr(blocks, seq.body))

    def _binding(self, binding: BindingNode) -> list[Node]:
        value = binding.value if isinstance(binding, relax.VarBinding) else None
        if isinstance(value, relax.If):
            sides = (self._sequence(value.true_branch), self._sequence(value.false_branch))
            return [relax.VarBinding(binding.var, relax.If(value.cond, *sides, value.span))]
        if isinstance(value, Call) and value.op in ALLOC_STORAGE:
            return self.storage(binding, value)
        if isinstance(value, Call) and value.op in ALLOC_TENSOR:
            return self.tensor(binding, value)
        return [binding]


def _shape_text(call: CallNode) -> str:
    """`float32[n, 16]` of an allocated tensor; the element type alone where the shape is a variable."""
    shape, dtype = call.args[2], call.args[3].value
    if not isinstance(shape, relax.ShapeExpr):
        return str(dtype)
    extents = ", ".join(LITERAL.sub(r"\1", str(extent)) for extent in shape.values)
    return f"{dtype}[{extents}]"


# -- what is known ------------------------------------------------------------------------------------------


def _known(function: relax.Function) -> _Known:
    names: dict[Node, str] = {}
    on: dict[Node, list[tuple[Node, Node]]] = {}
    made_of: dict[Node, list[Node]] = {}
    for binding in _bindings(function.body):
        value = binding.value
        if isinstance(value, relax.Var):
            names.setdefault(value, binding.var.name)
        elif isinstance(value, Call) and value.op in ALLOC_TENSOR:
            on.setdefault(value.args[0], []).append((binding.var, value))
        if not (isinstance(value, Call) and value.op in KILLS):
            made_of[binding.var] = list(_parts(value))
    return _Known(names=names, on=on, escaping=_reached(list(_parts(function.body)), made_of))


def _bindings(body: Node) -> Iterator[Node]:
    for block in body.blocks if isinstance(body, relax.SeqExpr) else ():
        for binding in elements(block.bindings):
            yield binding
            if isinstance(binding.value, relax.If):
                yield from _bindings(binding.value.true_branch)
                yield from _bindings(binding.value.false_branch)


def _parts(value: Node) -> Iterator[Node]:
    """The variables whose memory `value` may hold."""
    match value:
        case relax.Var():
            yield value
        case relax.Tuple():
            for field in value.fields:
                yield from _parts(field)
        case relax.TupleGetItem():
            yield from _parts(value.tuple_value)
        case relax.SeqExpr():
            yield from _parts(value.body)
        case relax.If():
            yield from _parts(value.true_branch)
            yield from _parts(value.false_branch)
        case Call():
            for argument in value.args:
                yield from _parts(argument)


def _reached(start: list[Node], made_of: dict[Node, list[Node]]) -> set[Node]:
    found: set[Node] = set()
    while start:
        var = start.pop()
        if var not in found:
            found.add(var)
            start += made_of.get(var, [])
    return found
