"""Two devices, run for real: the bits of a run without a plan, and the bytes on each that are reported."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import tvm
from tvm import relax

import symalloc
from symalloc.planner.memory_report.call_moments import DeviceBytes
from symalloc.relax.passes.pipeline import finishing_pipeline, lower
from symalloc.size.expr import highest
from tests.models.measure import ALLOCATOR, compiler, load, measured
from tests.relax.built import errors, rows, tensors

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
DEVICES = [tvm.cpu(0), tvm.cpu(1)]
HEAD = """
@I.ir_module
class Module:
    I.module_global_infos({"vdevice": [I.vdevice("llvm", 0, "global"), I.vdevice("llvm", 1, "global")]})

    @R.function
    def main(x: R.Tensor(("n", 8), "float32", "llvm:0"), y: R.Tensor(("m", 8), "float32", "llvm:1")):
        with R.dataflow():
"""
THERE_AND_BACK = """
            a = R.exp(x)
            c = R.to_vdevice(R.add(a, x), "llvm:1")
            d = R.tanh(c)
            f = R.to_vdevice(R.multiply(d, c), "llvm:0")
            out = (R.add(f, a), d)
"""
SIDE_BY_SIDE = """
            a = R.exp(x)
            b = R.exp(y)
            c = R.nn.softmax(a)
            d = R.tanh(b)
            e = R.nn.softmax(d)
            f = R.add(e, d)
            g = R.matmul(c, R.permute_dims(R.to_vdevice(f, "llvm:0")))
            out = (g, f)
"""
PROGRAMS = {"there and back": THERE_AND_BACK, "side by side": SIDE_BY_SIDE}


def module_of(name: str) -> tvm.IRModule:
    return tvm.script.from_source(f"{HEAD}{PROGRAMS[name]}            R.output(out)\n        return out\n")


def machine_of(module: tvm.IRModule, *, planned: bool, **options: Any) -> Any:
    """The module on two devices, whose allocators count."""
    if planned:
        built = relax.build(module, "llvm", relax_pipeline=symalloc.pipeline("llvm", **options))
    else:
        built = relax.build(lower(module, "llvm"), "llvm", relax_pipeline=finishing_pipeline("llvm"))
    return relax.VirtualMachine(built, DEVICES, memory_cfg=dict.fromkeys(DEVICES, ALLOCATOR))


def placed(result: Any) -> list[tuple[tvm.Device, bytes]]:
    return [(one.device, one.numpy().tobytes()) for one in tensors(result)]


def given(n: int, m: int) -> list[Any]:
    """A tensor of `n` rows on the one device, and of `m` on the other."""
    return [tvm.runtime.tensor(rows(*e), d) for e, d in zip(((n, 8), (m, 8)), DEVICES, strict=True)]


@pytest.mark.parametrize("order", ["total", "dag"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_each_device_holds_what_is_reported_and_computes_the_same_bits(name: str, order: Any) -> None:
    load()
    module = module_of(name)
    plan = symalloc.plan(module, order=order)
    graph = plan.report.of(None).graph
    assert graph is not None and [one.device for one in graph.devices] == [0, 1]
    assert graph == symalloc.graph(module, order=order).functions[0]
    assert errors(plan.module) == []
    ours, unplanned = machine_of(module, planned=True, order=order), machine_of(module, planned=False)
    for n, m in ((1, 3), (5, 16), (64, 7)):
        expected = placed(unplanned["main"](*given(n, m)))
        found, used = measured(partial(ours["main"], *given(n, m)))
        assert placed(found) == expected
        told = {one.device: _at(one, {"n": n, "m": m}) for one in graph.devices}
        assert used.by_device == {device: call for device, (_, _, call) in told.items()}
        assert all(
            max(arenas, results) <= call <= arenas + results for arenas, results, call in told.values()
        )


def _at(one: DeviceBytes, binding: dict[str, int]) -> tuple[int, int, int]:
    """The bytes of arenas, of results, and of all, at a binding."""
    arenas, results, call = (highest(s or (), binding) for s in (one.arenas, one.results, one.call))
    assert arenas is not None and results is not None and call is not None
    return arenas, results, call


def test_the_report_has_lines_for_each_device() -> None:
    lines = str(symalloc.plan(module_of("there and back"))).splitlines()
    for start in (
        f"  device {device}, {what} " for device in (0, 1) for what in ("arenas", "results", "call")
    ):
        assert sum(line.startswith(start) for line in lines) == 1


def test_memory_that_a_caller_gives_is_looked_at_on_each_device() -> None:
    load()
    module = module_of("there and back")
    machine = machine_of(module, planned=True, arena="caller", results="caller")
    x, y = given(3, 3)
    bytes_of = [machine[name](tvm.runtime.ShapeTuple([3, 3])) for name in ("main_bytes", "main_bytes_1")]
    arenas = [tvm.runtime.empty((n,), "uint8", d) for n, d in zip(bytes_of, DEVICES, strict=True)]
    results = [tvm.runtime.empty((3, 8), "float32", d) for d in DEVICES]
    own = machine_of(module, planned=False)["main"](x, y)
    assert placed(machine["main"](x, y, *results, *arenas)) == placed(own)
    for wrong, name in (([x, results[1]], "x"), ([results[0], y], "y")):
        with pytest.raises(ValueError, match=f"main: `{name}` overlaps `result_"):
            machine["main"](x, y, *wrong, *arenas)
