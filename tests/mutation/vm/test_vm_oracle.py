"""The second oracle sees every kind of fault, and nothing in modules that are right."""

# ruff: noqa: N805, RET504, F821
from __future__ import annotations

from functools import cache

import pytest
import tvm
from tvm import relax
from tvm.script import ir as I  # noqa: N812
from tvm.script import relax as R  # noqa: N812
from tvm.script import tirx as T  # noqa: N812

from tests.models.measure.library import compiler
from tests.mutation.editable import EditableFunction, rebuild, take_apart
from tests.mutation.vm.judging import Judgement, Subject, VmOracle
from tests.mutation.vm.subjects import finish_planned

pytestmark = pytest.mark.skipif(compiler() is None, reason="guarded memory needs a C++ compiler")


@I.ir_module
class Planned:
    """x -> 2x in `a`, `a` -> 2a in `b`, on one arena of 128*n bytes and 64 more."""

    @T.prim_func(private=True, s_tir=True)
    def double(x: T.handle, y: T.handle):
        n = T.int64()
        source = T.match_buffer(x, (n, T.int64(16)), elem_offset=T.int64(), offset_factor=16)
        target = T.match_buffer(y, (n, T.int64(16)), elem_offset=T.int64(), offset_factor=16)
        for i, j in T.grid(n, T.int64(16)):
            with T.sblock("double"):
                v, w = T.axis.remap("SS", [i, j])
                target[v, w] = source[v, w] * T.float32(2)

    @R.function(pure=False)
    def main(x: R.Tensor(("n", 16), "float32")) -> R.Tensor(("n", 16), "float32"):
        n = T.int64()
        cls = Planned
        s = R.memory.alloc_storage(R.shape([n * 128]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
        a = R.memory.alloc_tensor(s, R.prim_value(0), R.shape([n, 16]), R.dtype("float32"))
        b = R.memory.alloc_tensor(s, R.prim_value(n * 64), R.shape([n, 16]), R.dtype("float32"))
        _1 = cls.double(x, a)
        _2 = cls.double(a, b)
        _3 = R.memory.kill_tensor(a)
        return b


@cache
def oracle() -> VmOracle:
    return VmOracle(Subject(name="planned", module=Planned, finish=finish_planned))


def judged(edited: EditableFunction) -> Judgement:
    main = Planned.get_global_var("main")
    changed = {Planned.get_global_var(name): kernel for name, kernel in edited.changed.items()}
    functions = dict(Planned.functions_items()) | changed | edited.added | {main: rebuild(edited)}
    return oracle().judge(tvm.IRModule(functions))


def main() -> EditableFunction:
    return take_apart(Planned["main"], {"double": Planned["double"]})


def test_the_unchanged_module_is_right() -> None:
    assert judged(main()) == Judgement(faults=(), same=True)
    assert not oracle().excluded
