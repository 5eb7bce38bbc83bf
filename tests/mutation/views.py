"""A planned module with views in place of tensors at offsets: one tensor for the whole of a storage, on it a
view for each tensor, settled at offset zero.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax
from tvm.relax.op import memory
from tvm.script import relax as R  # noqa: N812

from tests.mutation.editable import Sequence, Step, rewritten

__all__ = ["with_views"]

_VIEW = "runtime.TVMTensorCreateView"


def with_views(mod: tvm.IRModule) -> tvm.IRModule:
    """`mod` with every tensor on a storage made a view."""
    return rewritten(mod, lambda sequence: _rewrite(sequence, {}))


def _rewrite(sequence: Sequence, whole: dict[Any, Any]) -> None:
    steps: list[Step] = []
    for step in sequence.steps:
        if step.operator != "relax.memory.alloc_tensor" or step.value.args[0] not in whole:
            steps.append(step)
        else:
            steps += _view(step, whole[step.value.args[0]])
        if step.operator == "relax.memory.alloc_storage":
            steps.append(_whole(step))
            whole[step.var] = steps[-1].var
        for side in step.branches or ():
            _rewrite(side, dict(whole))
    sequence.steps[:] = steps


def _whole(storage: Step) -> Step:
    size, device = storage.value.args[0], storage.value.args[1]
    call = memory.alloc_tensor(storage.var, relax.prim_value(0), size, "uint8", device)
    return Step(relax.Var(f"{storage.var.name}_whole", relax.TensorType(size, "uint8")), call)


def _view(placed: Step, whole: Any) -> list[Step]:
    _, offset, shape, dtype, *_ = placed.value.args
    call = relax.Call(
        relax.ExternFunc(_VIEW), [whole, shape, R.dtype(str(dtype.value)), offset], ty_args=[placed.var.ty]
    )
    view = Step(relax.Var(f"{placed.var.name}_view", placed.var.ty), call)
    return [view, Step(placed.var, memory.ensure_zero_offset(view.var))]
