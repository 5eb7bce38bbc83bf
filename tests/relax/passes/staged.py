"""A planned module at every stage of TVM's pipelines, and faults to plant in it there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tvm_ffi
from tvm import ir, relax, tirx
from tvm.script import from_source

from symalloc.program.reading import PipelineName
from symalloc.relax.ir_types import bindings_in, bound, with_arguments
from symalloc.relax.passes.stages import Lowered, WantedStages, lower
from symalloc.relax.rewrite import map_bindings, with_functions

# `first` and `second` share a storage; `rows` reads the one and writes the other
PLANNED = from_source("""
@I.ir_module
class Module:
    @T.prim_func
    def double(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, 4), "float32")
        B = T.match_buffer(b, (n, 4), "float32", elem_offset=T.int64(), offset_factor=16)
        for i, j in T.grid(n, 4):
            B[i, j] = A[i, j] + A[i, j]

    @T.prim_func
    def rows(a: T.handle, k: T.int64, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, 4), "float32", elem_offset=T.int64(), offset_factor=16)
        B = T.match_buffer(b, (n,), "float32", elem_offset=T.int64(), offset_factor=16)
        for i in range(n):
            B[i] = A[i, 0] + T.Cast("float32", k)

    @T.prim_func
    def copy(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32", elem_offset=T.int64(), offset_factor=16)
        B = T.match_buffer(b, (n,), "float32")
        for i in range(n):
            B[i] = A[i]

    @R.function
    def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n",), "float32"):
        R.func_attr({"relax.force_pure": True})
        n = T.int64()
        cls = Module
        storage = R.memory.alloc_storage(
            R.shape([(n + 3) // 4 * 64 + n * 4]), R.prim_value(0), R.str("global"), R.dtype("float32")
        )
        first = R.memory.alloc_tensor(storage, R.prim_value(0), R.shape([n, 4]), R.dtype("float32"))
        cls.double(x, first)
        second = R.memory.alloc_tensor(
            storage, R.prim_value((n + 3) // 4 * 64), R.shape([n]), R.dtype("float32")
        )
        cls.rows(first, n + 1, second)
        cls.rows(first, n, second)
        R.memory.kill_tensor(first)
        results = R.memory.alloc_storage(
            R.shape([n * 4]), R.prim_value(0), R.str("global"), R.dtype("float32")
        )
        out = R.memory.alloc_tensor(results, R.prim_value(0), R.shape([n]), R.dtype("float32"))
        cls.copy(second, out)
        R.memory.kill_tensor(second)
        R.memory.kill_storage(storage)
        return out
""")


def stages_of(mod: Any, pipeline: PipelineName = "default", first: str = "DispatchSampling") -> list[Lowered]:
    """`mod` after every pass of the pipeline from `first` on."""
    kept: list[Lowered] = []
    lower(mod, "llvm", wanted=WantedStages(first=first), keep=kept.append, pipeline=pipeline)
    return kept


# -- faults ------------------------------------------------------------------------------------------------


def _found(mod: Any, wanted: str) -> Any:
    """The first binding of `main` of this name, or the first that calls, or kills, what has it."""
    verb, _, name = wanted.rpartition(" ")
    for binding in bindings_in(mod["main"].body):
        callee = getattr(binding.value, "op", None)
        if verb == "call" and getattr(callee, "name_hint", "") == name:
            return binding
        if verb == "kill" and ".kill_" in getattr(callee, "name", "") and binding.value.args[0].name == name:
            return binding
        if not verb and binding.var.name == name:
            return binding
    raise AssertionError(wanted)


def _given(mod: Any, wanted: str, position: int, argument: Any) -> Any:
    """`mod` with another argument in a call."""
    found = _found(mod, wanted)
    arguments = [*found.value.args]
    arguments[position] = argument
    made = [bound(found.var, with_arguments(found.value, arguments))]
    return map_bindings(mod, lambda _, binding: made if binding.same_as(found) else None)


def _killed_too_early(mod: Any) -> Any:
    """`first` is killed in front of the call that reads it."""
    call, kill = _found(mod, "call rows"), _found(mod, "kill first")
    moved = {call.__chandle__(): [kill, call], kill.__chandle__(): []}
    return map_bindings(mod, lambda _, binding: moved.get(binding.__chandle__()))


def _bytes(size: Any) -> relax.ShapeExpr:
    return relax.ShapeExpr([tirx.const(size, "int64") if isinstance(size, int) else size])


def _storage_for_less(mod: Any) -> Any:
    """4 B less in the size of the storage: as an expression, or in the slot of the heap."""

    def less(store: Any) -> Any:
        if "+" not in str(store.value) or "64" not in str(store.value):
            return store
        return tirx.BufferStore(store.buffer, store.value - tirx.const(4, "int64"), store.indices)

    heap = {v: f for v, f in mod.functions_items() if v.name_hint.startswith("shape_func")}
    if heap:
        bodies = ((v, tvm_ffi.structural_map(f.body, ((tirx.BufferStore, less),))) for v, f in heap.items())
        return with_functions(mod, {v: heap[v].with_body(body) for v, body in bodies})
    (size,) = _found(mod, "storage").value.args[0].values
    bound_before = isinstance(size, ir.Var)  # by ComputePrimValue
    return _given(mod, "storage", 0, _bytes(64 if bound_before else size - tirx.const(4, "int64")))


FAULTS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "storage too small": ("SYM101", _storage_for_less),
    "storage of a constant": ("SYM101", lambda mod: _given(mod, "storage", 0, _bytes(64))),
    "offset overlapping": ("SYM203", lambda mod: _given(mod, "second", 1, tirx.const(0, "int64"))),
    "offset misaligned": ("SYM303", lambda mod: _given(mod, "second", 1, tirx.const(4, "int64"))),
    "killed too early": ("SYM201", _killed_too_early),
    "argument of another shape": (
        "SYM303",
        lambda mod: _given(mod, "call rows", 0, _found(mod, "second").var),
    ),
    "argument that nothing wrote": (
        "SYM208",
        lambda mod: _given(mod, "call copy", 0, _found(mod, "out").var),
    ),
}
"""For each kind of fault the rule that it breaks, and what plants it."""
