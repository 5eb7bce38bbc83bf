"""NameTensors: storages and tensors carry their names into the program, for what a pool says of them.

Machine code knows no names.  Behind this pass a pool that refuses a tensor, runs out of memory, or finds that
something was overrun, calls it as its author does.  Such a program needs the pool's library where it runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import tvm
from tvm import relax
from tvm.ir import Call, Op, StringImm

from symalloc.analysis.interprocedural import FunctionAnalysis, analyse
from symalloc.analysis.tensor_origin import NO_ORIGIN, tensor_origins
from symalloc.program.ir import AllocTensor, Operand, Var
from symalloc.relax.emit.emit_module import BYTE
from symalloc.relax.extract import extract
from symalloc.relax.ir_types import BindingNode, CallNode
from symalloc.relax.rewrite import BindingRewriter, by_binding, map_functions
from symalloc.relax.source_spans import sources_in

NAMED_TENSOR = "symalloc.pool.alloc_tensor"
NAMED_STORAGE = relax.ExternFunc("symalloc.pool.alloc_storage")
WITH_MACHINE = Op.get("relax.call_builtin_with_ctx")

_VM_STORAGE = Op.get("relax.vm.alloc_storage")
_STORAGES = (Op.get("relax.memory.alloc_storage"), _VM_STORAGE)
_TENSORS = tuple(Op.get(f"relax.{room}.alloc_tensor") for room in ("memory", "vm"))
_LITERAL = re.compile(r"T\.int64\((-?\d+)\)")


@tvm.transform.module_pass(opt_level=0, name="NameTensors")
class NameTensors:
    """Tells the pool `function.variable` of each tensor of `R.memory.alloc_tensor` and `R.vm.alloc_tensor`,
    and of each storage.

    Stands anywhere in front of VMShapeLower.  What later passes allocate has no name; nor have the storages
    of a pure function in front of RemovePurityChecking.
    """

    def transform_module(self, module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """The module with its tensors named; nothing else changes."""
        analyses = analyse(extract(module, name="module", handles=True, open_shapes=True))
        return map_functions(module, lambda name, f: _Namer(f, analyses[name]).rewritten(f))


class _Namer(BindingRewriter):
    """Names what one function allocates.

    `late`: packed calls may stand in the function as they are, for it is impure, or behind
    RemovePurityChecking.
    """

    def __init__(self, function: relax.Function, analysis: FunctionAnalysis) -> None:
        super().__init__()
        self.name = analysis.cfg.function.name
        self.late = not function.is_pure or bool(
            function.attrs and function.attrs.get("relax.force_pure", False)
        )
        self.instructions = by_binding(analysis.cfg)
        self.origins = tensor_origins(analysis, sources_in(analysis))
        self.tensors: dict[Operand, list[AllocTensor]] = {}
        for _, tensor in analysis.cfg.of_type(AllocTensor):
            self.tensors.setdefault(tensor.storage, []).append(tensor)

    def rewrite(self, binding: BindingNode) -> Iterable[relax.Binding]:
        """`binding`, or what stands for an allocation."""
        value = binding.value
        if isinstance(value, Call) and value.op in _STORAGES and self.late:
            return [self.storage(binding, value)]
        if isinstance(value, Call) and value.op in _TENSORS:
            return [self.tensor(binding, value)]
        return super().rewrite(binding)

    def storage(self, binding: BindingNode, call: CallNode) -> relax.VarBinding:
        """The allocation of a storage with its name; a call that brings the machine counts as impure."""
        given = list(call.args)  # extents, device, element type, scope
        if call.op != _VM_STORAGE:
            size, device, scope, _ = given  # bytes, whatever the type
            given = [size, device, BYTE, scope]
        arguments = relax.Tuple([*given, StringImm(self.tag(binding))])
        named = Call(WITH_MACHINE, [NAMED_STORAGE, arguments], ty_args=[binding.var.ty])
        return relax.VarBinding(binding.var, named)

    def tensor(self, binding: BindingNode, call: CallNode) -> relax.VarBinding:
        """The allocation of a tensor with its name."""
        arguments = [*call.args[:4], StringImm(self.tag(binding))]
        if self.late:
            named = Call(relax.ExternFunc(NAMED_TENSOR), arguments, ty_args=[call.ty])
        else:  # RemovePurityChecking lowers it
            named = relax.op.call_pure_packed(NAMED_TENSOR, *arguments, ty_args=[call.ty])
        return relax.VarBinding(binding.var, named)

    def tag(self, binding: BindingNode) -> str:
        """`function.variable (operator, place)`; for a storage with one tensor that one's name and shape."""
        found = self.instructions[binding.__chandle__()].var
        tensors = self.tensors.get(found, [])
        if len(tensors) != 1:
            return f"{self.shown(found)}{'' if tensors else self.origin(found)}"
        (tensor,) = tensors
        return f"{self.shown(tensor.var)} {_shape_text(tensor)}{self.origin(tensor.var)}"

    def shown(self, var: Var) -> str:
        return f"{self.name}.{self.origins.get(var, NO_ORIGIN).variable or var.name}"

    def origin(self, var: Var) -> str:
        """The operator that writes `var` first, and the place that its binding comes from."""
        origin = self.origins.get(var, NO_ORIGIN)
        known = [text for text in (origin.operator, origin.source) if text]
        return f" ({', '.join(known)})" if known else ""


def _shape_text(tensor: AllocTensor) -> str:
    """`float32[n, 16]`; the element type alone where the shape is a variable."""
    handle: BindingNode = tensor.handle  # type: ignore[assignment]
    shape = handle.value.args[2]
    if not isinstance(shape, relax.ShapeExpr):
        return tensor.dtype.name
    extents = ", ".join(_LITERAL.sub(r"\1", str(extent)) for extent in shape.values)
    return f"{tensor.dtype.name}[{extents}]"
