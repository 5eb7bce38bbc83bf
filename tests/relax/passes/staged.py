"""A planned module at every stage of TVM's pipelines, and faults to plant in it there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import tvm
from tvm import relax, tirx
from tvm.script import from_source

from symalloc.program.reading import PipelineName
from symalloc.relax.ir_types import elements
from symalloc.relax.passes.stages import Lowered, WantedStages, lower

Bindings: TypeAlias = list[Any]


PLANNED = """

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
"""


def planned() -> Any:
    """A module in which `first` and `second` share a storage; `rows` reads the one and writes the other."""
    return from_source(PLANNED)


def stages_of(mod: Any, pipeline: PipelineName = "default", first: str = "DispatchSampling") -> list[Lowered]:
    """`mod` after every pass of the pipeline from `first` on."""
    kept: list[Lowered] = []
    lower(mod, "llvm", wanted=WantedStages(first=first), keep=kept.append, pipeline=pipeline)
    return kept


# -- faults ------------------------------------------------------------------------------------------------


def _rewritten(mod: Any, change: Callable[[Bindings], Bindings]) -> Any:
    """`mod` with the bindings of `main` changed."""
    main = mod["main"]
    blocks = [relax.BindingBlock(change([b for block in main.body.blocks for b in elements(block.bindings)]))]
    body = relax.BlockBuilder().normalize(relax.SeqExpr(blocks, main.body.body))
    changed = relax.Function(main.params, body, main.ret_ty, main.is_pure, main.attrs)
    functions = {v: changed if v.name_hint == "main" else f for v, f in mod.functions.items()}
    return tvm.IRModule(functions, global_infos=mod.global_infos)


def _with_arguments(binding: Any, arguments: Sequence[Any]) -> Any:
    call = binding.value
    made = tvm.ir.Call(call.op, arguments, call.attrs, call.ty_args)
    relax.expr._update_type(made, call.ty)
    return relax.VarBinding(binding.var, made)


def _index(bindings: Bindings, wanted: Callable[[Any], bool]) -> int:
    return next(i for i, binding in enumerate(bindings) if wanted(binding))


def _named(name: str) -> Callable[[Any], bool]:
    return lambda binding: bool(binding.var.name == name)


def _calls(kernel: str) -> Callable[[Any], bool]:
    return lambda binding: getattr(getattr(binding.value, "op", None), "name_hint", "") == kernel


def _kills(name: str) -> Callable[[Any], bool]:
    def is_kill(binding: Any) -> bool:
        callee = getattr(getattr(binding.value, "op", None), "name", "")
        return ".kill_" in callee and bool(binding.value.args[0].name == name)

    return is_kill


def _replaced(name: str | Callable[[Any], bool], position: int, argument: Any) -> Callable[[Any], Any]:
    """Gives one call another argument."""
    wanted = _named(name) if isinstance(name, str) else name

    def change(bindings: Bindings) -> Bindings:
        at = _index(bindings, wanted)
        arguments = list(bindings[at].value.args)
        arguments[position] = argument
        return [*bindings[:at], _with_arguments(bindings[at], arguments), *bindings[at + 1 :]]

    return lambda mod: _rewritten(mod, change)


def _kill_too_early(mod: Any) -> Any:
    """Kills `first` in front of the call that reads it."""

    def change(bindings: Bindings) -> Bindings:
        kill = bindings.pop(_index(bindings, _kills("first")))
        bindings.insert(_index(bindings, _calls("rows")), kill)
        return bindings

    return _rewritten(mod, change)


def _given(kernel: str, position: int, tensor: str) -> Callable[[Any], Any]:
    """Gives a kernel another tensor of `main`."""

    def change(mod: Any) -> Any:
        bindings = (b for block in mod["main"].body.blocks for b in block.bindings)
        var = next(binding.var for binding in bindings if binding.var.name == tensor)
        return _replaced(_calls(kernel), position, var)(mod)

    return change


def _storage_for_less(mod: Any) -> Any:
    """Takes `second` for granted in the size of the storage: as an expression, or in the slot of the heap."""
    heap = [v for v in mod.functions if v.name_hint.startswith("shape_func")]
    if not heap:
        at = next(
            b for block in mod["main"].body.blocks for b in block.bindings if b.var.name == "storage"
        ).value.args[0]
        (size,) = at.values if isinstance(at, relax.ShapeExpr) else (None,)
        if isinstance(size, tvm.ir.Var):  # what ComputePrimValue has bound
            return _replaced("storage", 0, relax.ShapeExpr([tirx.const(64, "int64")]))(mod)
        return _replaced("storage", 0, relax.ShapeExpr([size - tirx.const(4, "int64")]))(mod)
    return _other_stores(mod, heap)


def _other_stores(mod: Any, heap: Sequence[Any]) -> Any:
    """The first slot that a function of the heap stores: 4 less."""
    functions = dict(mod.functions.items())
    for variable in heap:
        function = functions[variable]
        statements = list(function.body.seq) if isinstance(function.body, tirx.SeqStmt) else [function.body]
        sizes = [i for i, s in enumerate(statements) if "+" in str(s.value) and "64" in str(s.value)]
        for i in sizes:
            store = statements[i]
            statements[i] = tirx.BufferStore(
                store.buffer, store.value - tirx.const(4, "int64"), store.indices
            )
        if sizes:
            functions[variable] = function.with_body(tirx.SeqStmt(statements))
    return tvm.IRModule(functions, global_infos=mod.global_infos)


FAULTS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "storage too small": ("SYM101", _storage_for_less),
    "storage of a constant": ("SYM101", _replaced("storage", 0, relax.ShapeExpr([tirx.const(64, "int64")]))),
    "offset overlapping": ("SYM203", _replaced("second", 1, tirx.const(0, "int64"))),
    "offset misaligned": ("SYM303", _replaced("second", 1, tirx.const(4, "int64"))),
    "killed too early": ("SYM201", _kill_too_early),
    "argument of another shape": ("SYM303", _given("rows", 0, "second")),
    "argument that nothing wrote": ("SYM208", _given("copy", 0, "out")),
}
"""For each kind of fault the rule that it breaks, and what plants it."""
