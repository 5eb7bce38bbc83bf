"""The formulas of states; benchmarks/kv_cache_bytes.py holds them against what TVM takes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tvm
from tvm import relax

from benchmarks.kv_cache_bytes import CACHES, Cache, creating, recurrent
from symalloc.program import ir
from symalloc.program.created_state import DeviceKind, created_state, handed_extents
from symalloc.program.operands import instructions_of
from symalloc.program.types import OpaqueType
from symalloc.relax.extract import extract
from symalloc.size.expr import symbol

LLAMA = Cache(kinds=[0] * 32, query=32, keys=8, width=128, value_width=128)
SERVED = {"seqs": 16, "tokens": 131072, "chunk": 2048, "page": 16, "window": 0}
MIB = 2**20


def _call(module: tvm.IRModule) -> ir.CallPacked:
    body = extract(module, name="create").functions["create"].body
    return next(one for one in instructions_of(body) if isinstance(one, ir.CallPacked))


def _bytes(call: ir.CallPacked, device: DeviceKind, *, host: bool = False) -> dict[str, int]:
    state = created_state(call, device)
    assert state is not None and state.problem is None
    assert all(".cc:" in part.source or ".h:" in part.source for part in state.parts)
    return {part.what: part.nbytes.evaluate(SERVED) for part in state.parts if part.host is host}


def test_the_cache_of_llama_by_hand() -> None:
    pages = 131072 // 16 + 1
    assert _bytes(_call(creating(LLAMA)), "cuda") == {
        "pages": 32 * pages * 2 * 8 * 16 * 128 * 2,
        "attention's inputs and outputs": 2048 * (2 * (32 + 8 + 8) * 128 + 2 * 32 * 128 + 2 * 4 * 32),
        "auxiliary arrays": 128 * MIB + 4 * (20 + 2 * 2048),
    }


def test_flash_infer_takes_792_mib() -> None:
    more = _bytes(_call(creating(replace(LLAMA, flash_infer=True))), "cuda")
    assert more["FlashInfer's workspace"] == (768 + 3 * 8) * MIB


def test_functions_of_a_library_are_read() -> None:
    call = _call(creating(LLAMA))
    run = relax.ExternFunc("batch_prefill_paged_run")
    backend = relax.Tuple([tvm.ir.StringImm("flashinfer"), run, run])
    builder = relax.BlockBuilder()
    with builder.function("create", []):
        builder.emit_func_output(
            builder.emit(relax.op.call_pure_packed("mylib.f", backend, ty_args=[relax.AnyType()]))
        )
    given = _call(builder.finalize()).arguments[0]
    arguments = (*call.arguments[:16], given, *call.arguments[17:])
    assert "FlashInfer's workspace" in _bytes(replace(call, arguments=arguments), "cuda")


def test_other_devices_have_an_array_for_each_index() -> None:
    found = _bytes(_call(creating(LLAMA)), "other")["auxiliary arrays"]
    assert found == 4 * (2 * (3 * 17 + 8193 + (4 + 65536) * 16) + 2 * 17 + 16 + 6 * 2048 + 2 * 2048)


@pytest.mark.parametrize(
    ("index", "operand"),
    [
        (0, ir.Var("sizes", OpaqueType())),
        (0, ir.ShapeValue(())),
        (2, ir.Scalar(None)),
        (6, ir.TextLiteral("kinds")),
        (12, ir.Var("init", OpaqueType())),
        (16, ir.TupleValue((ir.Var("backend", OpaqueType()),))),
    ],
)
def test_what_is_not_known_is_said(index: int, operand: ir.Var | ir.Scalar) -> None:
    call = _call(creating(LLAMA))
    arguments = (*call.arguments[:index], operand, *call.arguments[index + 1 :])
    state = created_state(replace(call, arguments=arguments), "cuda")
    assert state is not None and state.parts == () and state.problem is not None
    assert "of `vm.builtin.paged_attention_kv_cache_create` is not known" in state.problem


def test_attention_functions_get_the_tokens_of_one_chunk() -> None:
    call = _call(creating(LLAMA))
    types = {"k": ("kv", "h", "d"), "pages": ("p", "two", "h", "s", "d"), "lse": ("kv", "h")}
    buffers = tuple(
        ir.KernelBuffer(name=name, shape=tuple(map(symbol, shape)), dtype=None)
        for name, shape in types.items()
    )
    kernel = ir.Kernel(name="nothing", parameters=buffers)
    assert handed_extents(call, kernel) == {"kv": symbol("chunk")}
    assert handed_extents(call, replace(kernel, name="other")) == {}
    assert handed_extents(replace(call, name="mylib.f"), kernel) == {}


def test_the_benchmark_has_each_kind() -> None:
    assert {kind for cache in CACHES.values() for kind in cache.kinds} == {0, 1, 2, 3}
    state = created_state(_call(recurrent()), "cpu")
    assert state is not None
    held = sum(part.nbytes.evaluate({"seqs": 4, "history": 2}) for part in state.parts)
    assert held == 6 * 4 * 2 * 4 * (64 + 4 * 16 * 16) + 2 * 4 * 4 + 4 * (64 + 4 * 16 * 16)
