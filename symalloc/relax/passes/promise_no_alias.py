"""PromiseNoAlias: kernels are compiled under the promise that their arguments do not overlap.

TVM 0.27 writes the kernels of a module one after the other, and whether the last by name has `tirx.noalias`
decides for all of them.  Functions of shapes, guards and offsets have not, and stand behind kernels called
`conv2d` or `add`: without the promise these take up to three times as long.
"""

from __future__ import annotations

import tvm
from tvm import tirx

from symalloc.relax.ir_types import elements

_PROMISE = "tirx.noalias"


@tvm.transform.module_pass(opt_level=0, name="PromiseNoAlias")
class PromiseNoAlias:
    """Promises for functions of at most one buffer, which no other can overlap, that buffers do not overlap.

    Stands behind VMShapeLower.  Modules with a kernel of several buffers without that promise stay as they
    are: it could be compiled as if it had one.
    """

    def transform_module(self, module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """The module with the promise in each of its kernels, or as it was."""
        kernels = [(v, f) for v, f in module.functions_items() if isinstance(f, tirx.PrimFunc)]
        without = [(v, f) for v, f in kernels if f.attrs is None or not f.attrs.get(_PROMISE)]
        if not without or any(_may_overlap(kernel) for _, kernel in without):
            return module
        promising = module.clone()
        for variable, kernel in without:
            promising.update_func(variable, kernel.with_attr(_PROMISE, True))
        return promising


def _may_overlap(kernel: tirx.PrimFunc) -> bool:
    """Return whether `kernel` takes more than one argument that is no number."""
    return sum(type(p.ty) is not tvm.ir.PrimType for p in elements(kernel.params)) > 1
