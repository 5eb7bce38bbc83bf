"""Copies between devices as moves into memory that a plan places."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import tvm
import tvm_ffi
from tvm import relax
from tvm.ir import Call

from symalloc.relax.donation.caller_results import COPIED
from symalloc.relax.emit.emit_module import allocated
from symalloc.relax.ir_types import BindingNode, Node, bound, effect, elements, typed_var
from symalloc.relax.rewrite import BindingRewriter, map_functions


def with_planned_copies(module: tvm.IRModule) -> tvm.IRModule:
    """`module`, as CallTIRRewrite leaves it, where R.to_vdevice allocates its result and copies there: TVM's
    own makes a tensor that no plan places.
    """
    devices = elements(module.global_infos.get("vdevice", ()))
    return map_functions(module, lambda _, f: _Mover(devices).rewritten(f)) if devices else module


class _Mover(BindingRewriter):
    def __init__(self, devices: Sequence[Node]) -> None:
        BindingRewriter.__init__(self)
        self.devices = devices

    def rewrite(self, binding: BindingNode) -> Iterable[relax.Binding]:
        value, type_ = binding.value, binding.var.ty
        moves = type(value) is Call and getattr(value.op, "name", None) == "relax.to_vdevice"
        if not moves or type_.shape is None or not isinstance(type_.shape, relax.ShapeExpr):
            return BindingRewriter.rewrite(self, binding)
        source, target = value.args[0], type_.vdevice
        if target is None or source.ty.vdevice is None or tvm_ffi.structural_equal(source.ty.vdevice, target):
            return [binding]
        var = typed_var("moved", type_)
        copy = effect(COPIED, [source, var], "copied")
        return [allocated(var, self.devices), copy, bound(binding.var, var)]
