# ruff: noqa
# mypy: ignore-errors
"""Modules whose dispatches do more than write tensors: the order of what they do must stay."""

from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T


@I.ir_module
class Prints:
    @R.function(pure=False, private=True)
    def log(x: R.Tensor(("n", 8), "float32")) -> R.Tensor(("n", 8), "float32"):
        _ = R.print(x, format="called {}")
        return R.exp(x)

    @R.function(pure=False)
    def main(x: R.Tensor(("n", 8), "float32"), f: R.Tensor((), "bool")):
        cls = Prints
        a = R.exp(x)
        _ = R.print(a, format="first {}")
        b = cls.log(a)
        if f:
            _1 = R.print(format="then")
            c = R.sin(x)
        else:
            c = R.cos(x)
        _2 = R.assert_op(f, format="stop")
        _3 = R.print(format="last")
        return (b, c)


@I.ir_module
class Cache:
    @R.function(pure=False)
    def main(x: R.Tensor((1, 8), "float32"), y: R.Tensor((1, 8), "float32")):
        c = R.call_packed(
            "vm.builtin.attention_kv_cache_create", x, R.shape([4, 8]), R.prim_value(0), ty_args=R.Any
        )
        c1 = R.call_packed("vm.builtin.attention_kv_cache_append", c, x, ty_args=R.Any)
        v = R.call_pure_packed(
            "vm.builtin.attention_kv_cache_view", c, R.shape([1, 8]), ty_args=R.Tensor((1, 8), "float32")
        )
        w = R.cos(v)
        c2 = R.call_packed("vm.builtin.attention_kv_cache_update", c, y, ty_args=R.Any)
        v2 = R.call_pure_packed(
            "vm.builtin.attention_kv_cache_view", c, R.shape([1, 8]), ty_args=R.Tensor((1, 8), "float32")
        )
        return (w, R.sin(v2))


@I.ir_module
class GivenCache:
    @R.function(pure=False, private=True)
    def put(c: R.Any, y: R.Tensor((1, 8), "float32")) -> R.Any:
        return R.call_packed("vm.builtin.attention_kv_cache_update", c, y, ty_args=R.Any)

    @R.function(pure=False)
    def main(x: R.Tensor((1, 8), "float32"), states: R.Tuple(R.Any, R.Any)):
        cls = GivenCache
        c = states[0]
        s = R.call_pure_packed(
            "vm.builtin.attention_kv_cache_view", c, R.shape([1, 8]), ty_args=R.Tensor((1, 8), "float32")
        )
        d = R.sin(s)
        _ = cls.put(c, x)
        _1 = R.call_packed("vm.builtin.kv_state_clear", c, ty_args=R.Tuple)
        return d


@I.ir_module
class Constant:
    @T.prim_func(s_tir=True)
    def bump(A: T.Buffer((4,), "float32")):
        for i in T.grid(4):
            with T.sblock("b"):
                vi = T.axis.remap("S", [i])
                A[vi] = A[vi] * T.float32(2)

    @R.function(pure=False)
    def main(x: R.Tensor((4,), "float32")):
        cls = Constant
        k = R.const([1.0, 2.0, 3.0, 4.0], "float32")
        a = R.add(x, k)
        _ = cls.bump(k)
        return R.multiply(a, R.add(x, k))


@I.ir_module
class Drawn:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        a = R.call_dps_packed("tvm.contrib.random.random_fill", (), out_ty=R.Tensor((4,), "float32"))
        b = R.call_dps_packed("tvm.contrib.random.random_fill", (), out_ty=R.Tensor((4,), "float32"))
        return R.subtract(a, b)
