"""Names and scalar parameters of kernels by where they are used.

TVM's passes number the kernels that they make, and put their scalars in an order, as addresses happen to
fall: `fused_conv2d_add1` of one run is `fused_conv2d_add2` of the next.  Kernels that differ in nothing else
are one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.ir import Call, GlobalVar, Op, PrimType, StringImm
from tvm.tirx.buffer import BufferType

from symalloc.analysis.interprocedural import FunctionAnalysis, analyse
from symalloc.analysis.tensor_origin import NO_ORIGIN
from symalloc.program.ir import AllocTensor, Operand, Var
from symalloc.relax.emit.emit_module import BYTE
from symalloc.relax.extract import extract
from symalloc.relax.ir_types import (
    BindingNode,
    CallNode,
    Node,
    bindings_in,
    bound,
    elements,
    free_name,
    nodes_in,
    relax_functions,
    with_arguments,
    with_parameters,
)
from symalloc.relax.rewrite import (
    BindingRewriter,
    ModuleDraft,
    by_binding,
    map_bindings,
    map_functions,
    without,
)
from symalloc.relax.source_spans import origins_in

_NUMBER = re.compile(r"(?<!atan)(?<=[a-z])_?\d+(?=_|$)")  # no other operator of Relax ends with one


def canonical_kernels(module: tvm.IRModule, given: Collection[str]) -> tvm.IRModule:
    """`module` with its kernels called by what they do, and a number by where they are called first.

    The kernels called `given`, and those that anything but a Relax function refers to, stay as they are.
    """
    kernels = {v.name_hint: f for v, f in module.functions_items() if isinstance(f, tirx.PrimFunc)}
    functions = relax_functions(module)
    values = [binding.value for function in functions.values() for binding in bindings_in(function.body)]
    callees = (value.op for value in values if type(value) is Call)
    called = dict.fromkeys(callee.name_hint for callee in callees if type(callee) is GlobalVar)
    kept = {*given, *functions, *_referenced_elsewhere(kernels, values)}
    made = [
        n
        for n in called
        if n in kernels and n not in kept and "global_symbol" not in (kernels[n].attrs or {})
    ]
    taken = {v.name_hint for v in module.get_global_vars()}.difference(made)
    orders = {name: _scalar_order(kernels[name]) for name in made}
    ordered = {name: kernels[name] for name in made}
    for name, order in orders.items():
        if order != sorted(order):
            params, body = elements(kernels[name].params), kernels[name].body
            ordered[name] = with_parameters(kernels[name], [params[i] for i in order], body)
    # TVM has made one of equal kernels, or two, as the addresses of its symbols have it
    same, renamed = dict[int, str](), dict[str, str]()
    for name, kernel in ordered.items():
        twin = same.setdefault(tvm_ffi.structural_hash(kernel), name)
        if twin == name or not tvm_ffi.structural_equal(kernel, ordered[twin]):
            taken.add(free := free_name(_NUMBER.sub("", name), taken, str))
            renamed[name] = free
        else:
            renamed[name] = renamed[twin]
    if all(name == free and ordered[name] is kernels[name] for name, free in renamed.items()):
        return module
    draft, added = ModuleDraft(without(module, made)), dict[str, GlobalVar]()
    for name, free in renamed.items():
        if free not in added:
            added[free] = draft.add(free, ordered[name])
    instead = {name: (added[free], orders[name]) for name, free in renamed.items()}
    return call_instead(draft.finished(), instead)


def _referenced_elsewhere(kernels: Mapping[str, Node], values: Iterable[Node]) -> Iterable[str]:
    """Yield the names that kernels mention, and arguments of calls among `values`."""
    mentions: list[Node] = [kernel.body for kernel in kernels.values()]
    for value in values:
        for argument in elements(value.args) if type(value) is Call else (value,):
            if type(argument) in (GlobalVar, relax.Tuple):
                mentions.append(argument)
    return (variable.name_hint for variable in nodes_in(mentions, GlobalVar))


def _scalar_order(kernel: Node) -> Sequence[int]:
    """The positions of the parameters with the scalars among them by where extents mention them first."""
    params, places = elements(kernel.params), dict[int, int]()
    for param in params:
        for extent in elements(param.ty.shape) if type(param.ty) is BufferType else ():
            for one in nodes_in([extent], tvm.ir.Var):
                places.setdefault(one.__chandle__(), len(places))
    scalars = [i for i, param in enumerate(params) if type(param.ty) is PrimType]
    wanted = sorted(scalars, key=lambda i: places.get(params[i].__chandle__(), len(places)))
    moved = dict(zip(scalars, wanted, strict=True))
    return [moved.get(i, i) for i in range(len(params))]


def call_instead(
    module: tvm.IRModule, kernels: Mapping[str, tuple[GlobalVar, Sequence[int]]]
) -> tvm.IRModule:
    """`module` with other kernels called in the place of these, with the arguments in another order."""

    def called(_: str, binding: BindingNode) -> list[relax.Binding] | None:
        value = binding.value
        named = type(value) is Call and type(value.op) is GlobalVar
        if not named or value.op.name_hint not in kernels:
            return None
        kernel, order = kernels[value.op.name_hint]
        given = elements(value.args)
        return [bound(binding.var, with_arguments(value, [given[i] for i in order], kernel))]

    return map_bindings(module, called)


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
        self.origins = origins_in(analysis)
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
