"""Copies between devices as moves into memory that a plan places."""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import relax
from tvm.ir import Call

from symalloc.relax.donation.caller_results import COPIED
from symalloc.relax.emit.emit_module import allocated
from symalloc.relax.ir_types import BindingNode, bound, effect, elements, typed_var
from symalloc.relax.rewrite import map_bindings


def with_planned_copies(module: tvm.IRModule) -> tvm.IRModule:
    """`module`, as CallTIRRewrite leaves it, where R.to_vdevice allocates its result and copies there: TVM's
    own makes a tensor that no plan places.
    """
    devices = elements(module.global_infos.get("vdevice", ()))

    def moved(_: str, binding: BindingNode) -> list[relax.Binding] | None:
        value, type_ = binding.value, binding.var.ty
        moves = type(value) is Call and getattr(value.op, "name", None) == "relax.to_vdevice"
        if not moves or type_.shape is None or not isinstance(type_.shape, relax.ShapeExpr):
            return None
        source, target = value.args[0], type_.vdevice
        if target is None or source.ty.vdevice is None or tvm_ffi.structural_equal(source.ty.vdevice, target):
            return None
        var = typed_var("moved", type_)
        return [allocated(var, devices), effect(COPIED, [source, var], "copied"), bound(binding.var, var)]

    return map_bindings(module, moved) if devices else module
