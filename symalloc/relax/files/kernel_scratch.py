"""Workspace of kernels: what they take from TVM's pool, read from TVM's own lowering.

Which scratch buffers become TVMBackendAllocWorkspace, which go to the stack, and which share memory is
decided deep in TVM's pipeline (CompactBufferAllocation, StorageRewrite, LowerTVMBuiltin).  So the kernels are
lowered as relax.build lowers them, and the calls that are left are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeGuard

import tvm
from tvm import ir, tirx
from tvm.ir.prim import expr as prim
from tvm.tirx.build import split_host_device_mods

from symalloc.planner.memory_report.kernel_workspace import KernelWorkspace, WorkspaceStep
from symalloc.program.ir import Kernel, KernelBuffer, KernelScalar
from symalloc.relax.extract.tir_to_expr import NotASizeError, TirToExpr
from symalloc.relax.ir_types import CallNode, Node, visit
from symalloc.relax.tvm_error import error_text
from symalloc.size.expr import Expr, symbol

ALLOC, FREE = "tirx.TVMBackendAllocWorkspace", "tirx.TVMBackendFreeWorkspace"
STRUCT_GET = "tirx.tvm_struct_get"
# TVM's TVMStructFieldKind: where a compiled kernel finds its arguments
SHAPE, VALUE, ELEMENT = 2, 15, 17


def kernel_scratch(
    module: tvm.IRModule, kernels: Mapping[str, Kernel], target: str | tvm.target.Target
) -> dict[str, KernelWorkspace]:
    """The scratch of each PrimFunc of `module` that is among `kernels`, over the symbols that those have.

    What cannot be lowered or read has a `problem`.
    """
    functions = {
        v: f.with_attr("global_symbol", v.name_hint)
        for v, f in module.functions.items()
        if v.name_hint in kernels and isinstance(f, tirx.PrimFunc)
    }
    chosen = tvm.target.Target(target)
    lowered = dict(_lowered(functions, chosen))
    return {v.name_hint: _scratch(lowered.get(v.name_hint), kernels[v.name_hint]) for v in functions}


# -- lowering ----------------------------------------------------------------------------------------------


def _lowered(functions: Mapping[Node, Node], target: tvm.target.Target) -> Iterator[tuple[str, Node | str]]:
    """Each kernel by name, lowered, or the text of the error where TVM fails on it."""
    try:
        yield from _host_functions(tvm.IRModule(dict(functions)), target)
    except Exception as error:  # a pass raises whatever it raises
        if len(functions) == 1:
            yield from ((v.name_hint, error_text(error, most=1)) for v in functions)
            return
        for variable, function in functions.items():
            yield from _lowered({variable: function}, target)


def _host_functions(module: tvm.IRModule, target: tvm.target.Target) -> Iterator[tuple[str, Node]]:
    """The functions that run on the host, as tvm.tirx.build has them just before code is generated."""
    names = {variable.name_hint for variable in module.functions}
    if not names:
        return
    host = target.host or (target if target.kind.name == "llvm" else tvm.target.Target("llvm"))
    lower, finish, _ = tirx.get_tir_pipeline("default")
    with target:
        bound = tirx.transform.BindTarget(target.with_host(host))(module)
        on_host, _ = split_host_device_mods(lower(bound))
        finished = finish()(on_host)
    found = {variable.name_hint: function for variable, function in finished.functions.items()}
    yield from ((name, found[name]) for name in sorted(names & found.keys()))


# -- reading -----------------------------------------------------------------------------------------------


def _scratch(lowered: Node | str | None, kernel: Kernel) -> KernelWorkspace:
    """The scratch of one kernel; what stands in the way of reading it is its `problem`, whatever that is."""
    if lowered is None:
        return KernelWorkspace(problem="TVM's lowering leaves no function of its name")
    if isinstance(lowered, str):
        return KernelWorkspace(problem=f"TVM cannot lower it: {lowered}")
    try:
        return _read(lowered, kernel)
    except NotASizeError as error:
        return KernelWorkspace(problem=str(error))
    except Exception as error:  # what TVM's passes leave may have any form
        return KernelWorkspace(problem=f"its lowered code is not understood: {error_text(error, most=1)}")


def _read(function: Node, kernel: Kernel) -> KernelWorkspace:
    reader = _Reader(kernel=kernel, arguments=function.params[1].__chandle__())
    visit(
        function.body,
        (tirx.Bind, reader.bind),
        (tirx.DeclBuffer, reader.declare),
        (ir.Call, reader.call),
        (tirx.For, reader.loop),
    )
    return KernelWorkspace(steps=tuple(reader.steps), parallel=reader.parallel)


@dataclass(slots=True, kw_only=True)
class _Reader:
    """Follows a lowered kernel in the order of its text.  Addresses of nodes stand for the nodes.

    `arguments` is the variable of the packed arguments; `bound` holds what variables are bound to.
    """

    kernel: Kernel
    arguments: int
    bound: dict[int, Node] = field(default_factory=dict)
    slots: dict[int, int] = field(default_factory=dict)
    steps: list[WorkspaceStep] = field(default_factory=list)
    parallel: bool = False
    form: TirToExpr = field(init=False)

    def __post_init__(self) -> None:
        self.form = TirToExpr(self.resolve, nonnegative=self.is_size)

    def bind(self, node: Node) -> None:
        self.bound[node.var.__chandle__()] = node.value

    def loop(self, node: Node) -> None:
        if node.kind == tirx.ForKind.PARALLEL and _calls(node.body, ALLOC):
            self.parallel = True

    def declare(self, node: Node) -> None:
        """`buffer = decl_buffer(…, data=TVMBackendAllocWorkspace(…))`."""
        if _is_call(node.data, ALLOC):
            slot = self.slots[node.buffer.__chandle__()] = len(self.slots)
            self.steps.append(WorkspaceStep(slot, self.size(node.data.args[2])))

    def call(self, node: Node) -> None:
        if not _is_call(node, FREE):
            return
        data = node.args[2]
        owner = data.args[0] if type(data) is ir.Call else data
        slot = self.slots.get(owner.__chandle__())
        if slot is not None:
            self.steps.append(WorkspaceStep(slot))

    def size(self, node: Node) -> Expr:
        """A byte count: a product in uint64 over what is computed in signed integers."""
        if type(node) is prim.Mul:
            return self.size(node.a) * self.size(node.b)
        if type(node) is prim.Cast:
            return self.size(node.value)
        return self.form.expr(node)

    def is_size(self, name: str) -> bool:
        """Return whether a symbol of the kernel is an extent."""
        return any(isinstance(p, KernelBuffer) and _has(p, name) for p in self.kernel.parameters)

    def resolve(self, variable: Node) -> Expr:
        value = self.bound.get(variable.__chandle__())
        if value is None:
            raise NotASizeError(f"its scratch depends on `{variable.name}`, which changes inside the kernel")
        return self.argument(value) if _is_call(value, STRUCT_GET) else self.form.expr(value)

    def argument(self, value: Node) -> Expr:
        """A scalar argument, or an extent of a tensor argument."""
        base, index, kind = value.args[0], value.args[1], int(value.args[2])
        position = self.position(value)
        if kind == VALUE and position is not None:
            parameter = self.kernel.parameters[position]
            if isinstance(parameter, KernelScalar):
                return symbol(parameter.name)
        shape = self.bound.get(base.__chandle__())
        if kind == ELEMENT and _is_call(shape, STRUCT_GET) and int(shape.args[2]) == SHAPE:
            return self.extent(shape.args[0], int(index))
        raise NotASizeError("its scratch depends on an argument that is neither an extent nor a scalar")

    def extent(self, handle: Node, axis: int) -> Expr:
        position = self.position(self.bound.get(handle.__chandle__()))
        parameter = None if position is None else self.kernel.parameters[position]
        if not isinstance(parameter, KernelBuffer) or parameter.shape is None:
            raise NotASizeError("its scratch depends on the extents of a tensor that has no exact shape")
        return parameter.shape[axis]

    def position(self, value: Node | None) -> int | None:
        """The number of the argument that `value` takes out of the packed ones."""
        if value is None:
            return None
        taken = (c for c in _calls(value, STRUCT_GET) if c.args[0].__chandle__() == self.arguments)
        return next((int(call.args[1]) for call in taken), None)


def _is_call(node: Node | None, name: str) -> TypeGuard[ir.Call]:
    return isinstance(node, ir.Call) and getattr(node.op, "name", None) == name


def _has(parameter: KernelBuffer, name: str) -> bool:
    return parameter.shape is not None and any(extent.as_symbol == name for extent in parameter.shape)


def _calls(node: Node, name: str) -> list[CallNode]:
    """The calls of `name` in `node`, itself included."""
    found: list[CallNode] = []

    def note(call: CallNode) -> None:
        if _is_call(call, name):
            found.append(call)

    visit(node, (ir.Call, note))
    return found
