"""Memory that callers give: arenas and results, as run; what is too small or misplaced is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax

import symalloc
from symalloc import DeviceMemoryError, UsageError
from symalloc.planner.memory_plan import PlanOptions
from symalloc.relax.run.runner import Runner
from tests.relax.built import CALLERS, MODULES, bits, errors, graph, tensors
from tests.relax.built import rows as numbers
from tests.scale import pairs

Chain = MODULES.Chain

CASES: Mapping[str, tuple[Mapping[str, int], ...]] = {
    "Branch": ({"n": 3, "m": 5}, {"n": 0, "m": 4}, {"n": 100, "m": 7}),
    "Calls": ({"n": 5}, {"n": 33}),
    "Recursive": ({"n": 3},),
    "Late": ({"n": 5, "m": 3}, {"n": 17, "m": 2}),
    "Static": ({},),
    "Constants": ({"n": 3},),
    "Nothing": ({"n": 2},),
    "Divides": ({"n": 5, "m": 2},),
    "Scalar": ({"n": 3, "k": 4, "b": 2},),
    "Pair": ({"n": 3}, {"n": 40}),
}
WAYS: Mapping[str, Mapping[str, Any]] = {
    "arena": {"arena": "caller"},
    "results": {"results": "caller"},
    "both": {"arena": "caller", "results": "caller"},
    "fallback": {"arena": "caller", "guards": "fallback"},
    "native": {"arena": "caller", "guards": "native"},
}


def shape(*extents: int) -> Any:
    return tvm.runtime.ShapeTuple(extents)


@cache
def on_vm(module: Any, **options: Any) -> Any:
    program = relax.build(module, "llvm", relax_pipeline=symalloc.pipeline("llvm", **options))
    return relax.VirtualMachine(program, tvm.cpu())


def aligned(nbytes: int, *, off: int = 0, filled: int = 0xA5) -> tuple[np.ndarray, Any]:
    """Bytes at a multiple of 64 and `off` more, with 64 behind them; and a tensor of the first `nbytes`."""
    memory = np.full(nbytes + 256, filled, dtype=np.uint8)
    begin = -memory.ctypes.data % 64 + off
    memory = memory[begin : begin + nbytes + 64]
    return memory, tvm_ffi.from_dlpack(memory[:nbytes])


def rows(*extents: int) -> Any:
    return tvm.runtime.tensor(numbers(*extents))


@pytest.mark.parametrize(("name", "way"), pairs(CASES, WAYS))
def test_a_call_in_memory_of_the_caller_gives_the_same_bits(name: str, way: str) -> None:
    runner = Runner(getattr(CALLERS, name), function="main", options=PlanOptions(**WAYS[way]))
    for binding in CASES[name]:
        found = runner.run(binding, check=True)
        assert found.checked and found.difference is None, binding


@pytest.mark.parametrize("name", CASES)
def test_what_is_planned_lints_clean(name: str) -> None:
    planned = symalloc.plan(getattr(CALLERS, name), arena="caller", results="caller")
    assert errors(planned.module) == []


def test_a_call_touches_the_bytes_that_are_told_and_no_other() -> None:
    machine = on_vm(CALLERS.Branch, arena="caller")
    for n, m in ((3, 5), (16, 16), (100, 7)):
        nbytes = machine["main_bytes"](shape(n, m))
        touched = np.zeros(nbytes + 64, dtype=bool)
        for flag in (True, False):
            memory, arena = aligned(nbytes)
            machine["main"](rows(n, 64), rows(64, m), tvm.runtime.tensor(np.array(flag)), arena)
            touched |= memory != 0xA5
        assert not touched[nbytes:].any()
        assert touched[-64 - 64 : -64].any()  # the last block of what is told


def test_one_byte_less_is_refused_with_the_bytes_that_it_takes() -> None:
    machine = on_vm(Chain, arena="caller")
    native = on_vm(Chain, arena="caller", guards="native")
    nbytes = machine["main_bytes"](shape(100))
    assert nbytes > 0
    small, enough = aligned(nbytes - 1), aligned(nbytes)
    for one in (machine, native):
        with pytest.raises(AssertionError, match=f"got {nbytes - 1} bytes, needs {nbytes}"):
            one["main"](rows(100, 8), small[1])
        one["main"](rows(100, 8), enough[1])
        with pytest.raises(ValueError, match="`arena` does not begin at a multiple of 64"):
            one["main"](rows(100, 8), aligned(nbytes, off=8)[1])


def test_the_symbols_are_those_of_the_parameters_in_their_order() -> None:
    for name, symbols in (("Scalar", ["n", "b", "k"]), ("Late", ["n", "m"]), ("Static", [])):
        planned = symalloc.plan(getattr(CALLERS, name), arena="caller").module
        assert [v.name for v in planned["main_bytes"].params[0].ty.values] == symbols


def test_bytes_are_refused_where_the_function_is() -> None:
    for guards, error in (("assert", AssertionError), ("native", ValueError)):
        machine = on_vm(Chain, arena="caller", guards=guards)
        with pytest.raises(error, match="64 bits"):
            machine["main_bytes"](shape(2**62))
    assert on_vm(Chain, arena="caller", guards="fallback")["main_bytes"](shape(2**62)) == 0


RESULTS = (3, 8), (2,), (3, 8), (3, 8)  # of Constants at n = 3


def test_results_are_the_tensors_that_were_given() -> None:
    given, x = [tvm.runtime.empty(extents) for extents in RESULTS], rows(3, 8)
    found = tensors(on_vm(CALLERS.Constants, results="caller")["main"](x, *given))
    assert [one.data_ptr() for one in found] == [one.data_ptr() for one in given]
    assert [one.numpy().tobytes() for one in given] == bits(on_vm(CALLERS.Constants), x)


def _floats(memory: np.ndarray, *extents: int, at: int = 0) -> Any:
    """A tensor of float32 in some memory, `at` bytes from its beginning."""
    nbytes = 4 * int(np.prod(extents))
    return tvm_ffi.from_dlpack(memory[at : at + nbytes].view(np.float32).reshape(extents))


def given_both() -> Any:
    """Constants on a machine that takes an arena and results."""
    return on_vm(CALLERS.Constants, arena="caller", results="caller")


ASTRAY: Mapping[str, tuple[Callable[[np.ndarray], Any], str]] = {
    "misaligned": (
        lambda memory: _floats(memory, 3, 8, at=4),
        "`result_0` does not begin at a multiple of 64",
    ),
    "byte offset": (
        lambda _: tvm.runtime.empty((6, 8))._create_view((3, 8), "float32", relative_byte_offset=64),
        "`result_0` does not begin at a multiple of 64, with a byte_offset of 0",
    ),
    "strided": (lambda _: tvm_ffi.from_dlpack(np.zeros((64, 16), np.float32)[:6:2, ::2]), "."),
    "another shape": (lambda memory: _floats(memory, 8, 3), "shape|extent|mismatch|match"),
    "another dtype": (
        lambda memory: tvm_ffi.from_dlpack(memory[:96].view("i4").reshape(3, 8)),
        "dtype|float32",
    ),
}


@pytest.mark.parametrize("name", ASTRAY)
def test_memory_that_the_caller_cannot_have_meant_is_refused(name: str) -> None:
    machine, x, (memory, _) = given_both(), rows(3, 8), aligned(1 << 14)
    results = [_floats(memory, *extents, at=512 * i) for i, extents in enumerate(RESULTS)]
    arena = tvm_ffi.from_dlpack(memory[8192 : 8192 + machine["main_bytes"](shape(3))])
    assert bits(machine, x, *results, arena) == bits(on_vm(CALLERS.Constants), x)
    make, said = ASTRAY[name]
    results[0] = make(memory)
    with pytest.raises(Exception, match=said):
        machine["main"](x, *results, arena)


def test_overlaps_are_those_that_brute_force_finds() -> None:
    machine, memory, random = given_both(), aligned(1 << 12)[0], np.random.default_rng(7)
    nbytes = machine["main_bytes"](shape(3))
    names = *(f"result_{path}" for path in ("0", "1", "2_0", "2_1")), "arena", "x"
    sizes = 96, 8, 96, 96, nbytes, 96
    refused = 0
    for _ in range(300):
        begins = [64 * int(random.integers(0, (1 << 12) // 64 - -(-size // 64) + 1)) for size in sizes]
        ranges = list(zip(begins, sizes, strict=True))
        meets = [
            any(begin < at + more and at < begin + size for at, more in ranges[: min(i, 5)])
            for i, (begin, size) in enumerate(ranges)
        ]
        results = [_floats(memory, *e, at=at) for e, at in zip(RESULTS, begins, strict=False)]
        arena = tvm_ffi.from_dlpack(memory[begins[4] : begins[4] + nbytes])
        given = _floats(memory, 3, 8, at=begins[5]), *results, arena
        if not any(meets):
            machine["main"](*given)
            continue
        refused += 1
        with pytest.raises(ValueError, match=f"main: `{names[meets.index(True)]}` overlaps"):
            machine["main"](*given)
    assert 50 < refused < 290


def test_inputs_in_a_tuple_are_looked_at() -> None:
    machine, own = on_vm(CALLERS.Pair, arena="caller"), on_vm(CALLERS.Pair)
    nbytes = machine["main_bytes"](shape(16))
    memory, arena = aligned(nbytes + 4096)
    memory[nbytes : nbytes + 512] = rows(16, 8).numpy().view(np.uint8).reshape(-1)
    apart = _floats(memory, 16, 8, at=nbytes)
    assert bits(machine, (rows(16, 8), apart), arena) == bits(own, (rows(16, 8), apart))
    for pair in ((rows(16, 8), _floats(memory, 16, 8)), (_floats(memory, 16, 8, at=64), apart)):
        with pytest.raises(ValueError, match="main: `both` overlaps `arena`"):
            machine["main"](pair, arena)


def test_every_pipeline_takes_it() -> None:
    target = symalloc.pipeline("llvm", pipeline="target", arena="caller")
    with symalloc.replace_tvm_planner(arena="caller"):
        replaced = relax.build(Chain, "llvm", relax_pipeline=relax.get_pipeline("default"))
    for program in (relax.build(Chain, "llvm", relax_pipeline=target), replaced):
        machine = relax.VirtualMachine(program, tvm.cpu())
        arena = tvm.runtime.empty((machine["main_bytes"](shape(20)),), "uint8")
        assert bits(machine, rows(20, 8), arena) == bits(on_vm(Chain), rows(20, 8))


def test_what_cannot_be_is_refused() -> None:
    for more in ({"flavour": "storages"}, {"max_buffer": "1MiB"}):
        with pytest.raises(UsageError, match="takes one arena"):
            symalloc.plan(Chain, arena="caller", **more)  # type: ignore[arg-type]
    with pytest.raises(DeviceMemoryError, match="begin anywhere"):
        symalloc.plan(Chain, arena="caller", target="webgpu")
    graphs = {"relax.backend.use_cuda_graph": True}
    with tvm.transform.PassContext(config=graphs), pytest.raises(DeviceMemoryError, match="CUDA graphs"):
        symalloc.plan(Chain, arena="caller")
    taken = Chain.clone()
    taken["main_bytes"] = Chain["main"].with_attr("global_symbol", "main_bytes")
    with pytest.raises(UsageError, match="has a function `main_bytes` already"):
        symalloc.plan(taken, arena="caller")


def test_a_parameter_may_be_called_arena_already() -> None:
    planned = symalloc.plan(CALLERS.Named, arena="caller", results="caller")
    names = [p.name for p in planned.module["main"].params]
    assert names == ["arena", "arena_bytes", "result", "result_", "arena_"]
    assert symalloc.run(CALLERS.Named, {"n": 3, "m": 5}, arena="caller", results="caller", check=True).checked


def test_a_call_holds_the_arena_until_its_end() -> None:
    def write(emit: Any, x: relax.Var) -> relax.Expr:
        halves = relax.op.split(emit(relax.op.flip(x, 0)), 2, axis=1)
        return relax.Tuple([emit(halves[0]), emit(relax.op.exp(x))])

    at = symalloc.plan(graph(write, x=("n", 16)), arena="caller").at(n=64)
    assert (at.arena, at.returned, at.call) == (6144, 6144, 6144 + 6144)
