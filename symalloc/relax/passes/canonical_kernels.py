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
from tvm.ir import Call, GlobalVar, PrimType
from tvm.tirx.buffer import BufferType

from symalloc.relax.ir_types import (
    BindingNode,
    Node,
    bindings_in,
    bound,
    elements,
    free_name,
    relax_functions,
    visit,
    with_arguments,
    with_parameters,
)
from symalloc.relax.rewrite import ModuleDraft, map_bindings, without

_NUMBER = re.compile(r"(?<!atan)(?<=[a-z])_?\d+(?=_|$)")  # no other operator of Relax ends with one


def canonical_kernels(module: tvm.IRModule, given: Collection[str]) -> tvm.IRModule:
    """`module` with its kernels called by what they do, and a number by where they are called first.

    The kernels called `given`, and those that anything but a Relax function refers to, stay as they are.
    """
    kernels = {v.name_hint: f for v, f in module.functions_items() if isinstance(f, tirx.PrimFunc)}
    functions = relax_functions(module)
    called = dict.fromkeys(
        binding.value.op.name_hint
        for function in functions.values()
        for binding in bindings_in(function.body)
        if type(binding.value) is Call and type(binding.value.op) is GlobalVar
    )
    kept = {*given, *functions, *_referenced_elsewhere(kernels, functions)}
    made = [
        n
        for n in called
        if n in kernels and n not in kept and "global_symbol" not in (kernels[n].attrs or {})
    ]
    taken = {v.name_hint for v in module.get_global_vars()}.difference(made)
    orders = {name: _scalar_order(kernels[name]) for name in made}
    ordered = {name: _with_order(kernels[name], order) for name, order in orders.items()}
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


def _referenced_elsewhere(
    kernels: Mapping[str, Node], functions: Mapping[str, relax.Function]
) -> Iterable[str]:
    """Yield the names that kernels mention, and arguments of calls."""
    found: list[Node] = []
    for kernel in kernels.values():
        visit(kernel.body, (GlobalVar, found.append))
    for function in functions.values():
        for binding in bindings_in(function.body):
            for argument in elements(binding.value.args) if type(binding.value) is Call else (binding.value,):
                if type(argument) in (GlobalVar, relax.Tuple):
                    visit(argument, (GlobalVar, found.append))
    return (variable.name_hint for variable in found)


def _with_order(kernel: Node, order: Sequence[int]) -> Node:
    params = elements(kernel.params)
    return (
        kernel if order == sorted(order) else with_parameters(kernel, [params[i] for i in order], kernel.body)
    )


def _scalar_order(kernel: Node) -> Sequence[int]:
    """The positions of the parameters with the scalars among them by where extents mention them first."""
    params, places = elements(kernel.params), dict[int, int]()
    for param in params:
        for extent in elements(param.ty.shape) if type(param.ty) is BufferType else ():
            visit(extent, (tvm.ir.Var, lambda one: places.setdefault(one.__chandle__(), len(places))))
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
