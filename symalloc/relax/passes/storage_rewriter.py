"""Storages of a Relax function and the tensors on them, rewritten: the base of passes that change where
memory comes from.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

import tvm
from tvm import DataType, relax
from tvm.ir import Call, GenericConst, Op

from symalloc.analysis.interprocedural import FunctionAnalysis, analyse
from symalloc.analysis.tensor_origin import NO_ORIGIN, tensor_origins
from symalloc.program.ir import Alias, AllocTensor, Var
from symalloc.relax.extract import extract
from symalloc.relax.ir_types import BindingNode, CallNode, Node
from symalloc.relax.rewrite import BindingRewriter, by_binding, map_functions, with_body
from symalloc.relax.source_spans import source_of

MEMORY_STORAGE, VM_STORAGE = (Op.get(f"relax.{room}.alloc_storage") for room in ("memory", "vm"))
BYTE = GenericConst(DataType("uint8"), relax.AnyType())
ALLOC_STORAGE = (MEMORY_STORAGE, VM_STORAGE)
ALLOC_TENSOR = tuple(Op.get(f"relax.{room}.alloc_tensor") for room in ("memory", "vm"))
LITERAL = re.compile(r"T\.int64\((-?\d+)\)")


def rewrite_storages(
    module: tvm.IRModule, rewriter: Callable[[relax.Function, FunctionAnalysis], StorageRewriter]
) -> tvm.IRModule:
    """`module` with all its Relax functions rewritten; nothing else changes."""
    analyses = analyse(extract(module, name="module", handles=True, open_shapes=True))
    return map_functions(module, lambda name, function: rewriter(function, analyses[name]).function())


def builtin_arguments(call: CallNode) -> list[Node]:
    """The arguments of the virtual machine's builtin for a storage: extents, device, element type, scope."""
    if call.op == VM_STORAGE:
        return list(call.args)
    size, device, scope, _ = call.args  # bytes, whatever the type
    return [size, device, BYTE, scope]


class StorageRewriter(BindingRewriter, ABC):
    """Rewrites one function; subclasses say what becomes of its allocations.

    `late`: packed calls may stand in the function as they are, for it is impure, or behind
    RemovePurityChecking.
    """

    def __init__(self, function: relax.Function, analysis: FunctionAnalysis) -> None:
        super().__init__()
        self.given, self.name = function, analysis.cfg.function.name
        self.late = not function.is_pure or bool(
            function.attrs and function.attrs.get("relax.force_pure", False)
        )
        self.instructions = by_binding(analysis.cfg)
        self.origins = tensor_origins(analysis)
        self.names: dict[Var, str] = {}
        self.tensors: dict[Var, list[AllocTensor]] = {}
        for _, instruction in analysis.cfg.instructions:
            match instruction:
                case Alias(var=var, source=Var() as source):
                    self.names.setdefault(source, var.name)
                case AllocTensor(storage=Var() as storage):
                    self.tensors.setdefault(storage, []).append(instruction)
        self.escaping = {analysis.points_to.regions[root].var for root in analysis.escapes}

    @abstractmethod
    def storage(self, binding: BindingNode, call: CallNode) -> list[Node]:
        """The bindings that stand for the allocation of a storage."""

    @abstractmethod
    def tensor(self, binding: BindingNode, call: CallNode) -> list[Node]:
        """The bindings that stand for the allocation of a tensor on a storage."""

    def function(self) -> relax.Function:
        """The function, rewritten."""
        seq = isinstance(self.given.body, relax.SeqExpr)
        return with_body(self.given, self.sequence(self.given.body)) if seq else self.given

    def tag(self, binding: BindingNode) -> str:
        """`function.variable (operator, place)`; for a storage with one tensor that one's name and shape."""
        found = self.instructions[binding.__chandle__()].var
        tensors = self.tensors.get(found, [])
        if len(tensors) != 1:
            return f"{self._name(found)}{'' if tensors else self._origin(found, binding)}"
        (tensor,) = tensors
        return f"{self._name(tensor.var)} {_shape_text(tensor)}{self._origin(tensor.var, tensor.handle)}"

    def _name(self, var: Var) -> str:
        return f"{self.name}.{self.names.get(var, var.name)}"

    def _origin(self, var: Var, binding: object) -> str:
        """The operator that writes `var` first, and the place that its binding comes from."""
        origin = self.origins.get(var, NO_ORIGIN)
        known = [text for text in (origin.operator, source_of(binding)) if text]
        return f" ({', '.join(known)})" if known else ""

    def escapes(self, binding: BindingNode) -> bool:
        """Return whether what lies in the variable bound may outlive the call."""
        return self.instructions[binding.__chandle__()].var in self.escaping

    def rewrite(self, binding: BindingNode) -> Iterable[relax.Binding]:
        """`binding`, or what stands for an allocation."""
        value = binding.value
        if isinstance(value, Call) and value.op in ALLOC_STORAGE:
            return self.storage(binding, value)
        if isinstance(value, Call) and value.op in ALLOC_TENSOR:
            return self.tensor(binding, value)
        return super().rewrite(binding)


def _shape_text(tensor: AllocTensor) -> str:
    """`float32[n, 16]`; the element type alone where the shape is a variable."""
    handle: BindingNode = tensor.handle  # type: ignore[assignment]
    shape = handle.value.args[2]
    if not isinstance(shape, relax.ShapeExpr):
        return tensor.dtype.name
    extents = ", ".join(LITERAL.sub(r"\1", str(extent)) for extent in shape.values)
    return f"{tensor.dtype.name}[{extents}]"
