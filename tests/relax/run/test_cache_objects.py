"""Functions that take a key-value cache, which another function of their module makes."""

from __future__ import annotations

import pytest
import tvm
from tvm import tirx
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op

from symalloc.errors import RunError
from symalloc.relax.run.inputs import ObjectArgument
from symalloc.relax.run.runner import Runner
from tests.models.zoo.llama import llama_paged_cache


@pytest.fixture(scope="module")
def decoder() -> Runner:
    """Decoding on a paged cache of TVM's, planned."""
    return Runner(llama_paged_cache(), function="decode")


@pytest.mark.parametrize("batch", [1, 3])
def test_a_cache_is_made_for_each_call(decoder: Runner, batch: int) -> None:
    found = decoder.run({"b": batch}, check=True, repeat=2)
    assert found.checked and found.difference is None
    assert [output.shape for output in found.outputs] == [(batch, 1, 32)]


def test_it_has_room_for_the_call(decoder: Runner) -> None:
    made = decoder.arguments({"b": 5, "max_total_seq_len": 200}, seed=0)[1]
    assert isinstance(made, ObjectArgument) and made.maker == "create_cache" and made.lengths == (1,) * 5
    assert made.arguments[:5] == ((5,), (200,), (5,), (16,), (0,))
    assert decoder.arguments({"b": 5}, seed=0)[1].arguments[1] == (80,)  # type: ignore[union-attr]


def test_symbols_of_its_maker_are_known(decoder: Runner) -> None:
    with pytest.raises(RunError, match=r"`pagesize` is no symbol.*did you mean `page_size`"):
        decoder.arguments({"b": 1, "pagesize": 8}, seed=0)
    with pytest.raises(RunError, match="no value for `b`"):
        decoder.arguments({"page_size": 16}, seed=0)


def test_no_positions_are_refused(decoder: Runner) -> None:
    with pytest.raises(RunError, match="without positions"):
        decoder.run({"b": 0})


class Remembering(nn.Module):
    """Attention over what two caches of TVM's frontend hold."""

    def __init__(self) -> None:
        self.keys, self.values = nn.KVCache(4, [2, 8]), nn.KVCache(4, [2, 8])
        self.project = nn.Linear(16, 16)

    def forward(self, x: nn.Tensor, total: tirx.Var) -> nn.Tensor:
        rows = op.reshape(self.project(x), (x.shape[0], 2, 8))
        self.keys.append(rows)
        self.values.append(rows + rows)
        keys = op.permute_dims(self.keys.view(total), (1, 2, 0))
        scores = op.matmul(op.permute_dims(rows, (1, 0, 2)), keys)
        return op.matmul(op.softmax(scores, -1), op.permute_dims(self.values.view(total), (1, 0, 2)))


def test_a_function_makes_several_at_once() -> None:
    modes = {"param_mode": "packed", "effect_mode": "packed"}
    spec = {"x": nn.spec.Tensor(["n", 16], "float32"), "total": int, "$": modes}
    module, *_ = Remembering().export_tvm({"forward": spec}, debug=True)
    runner = Runner(module, function="forward")
    binding = {"n": 3, "total": 3}
    *_, effects, _ = runner.arguments(binding, seed=0)
    assert [(o.maker, o.path) for o in effects] == [("_initialize_effect", (i,)) for i in range(3)]  # type: ignore[union-attr]
    found = runner.run(binding, check=True, repeat=2)
    assert found.checked and found.difference is None
    assert [output.shape for output in found.outputs] == [(2, 3, 8)]


_KERNEL = """
    @T.prim_func(s_tir=True)
    def {name}(states: T.handle, sequences: T.handle, history: T.handle, others: T.handle):
        b, s, h = T.int64(), T.int64(), T.int64()
        state = T.match_buffer(states, (s, h, T.int64(8)), "float32")
        which = T.match_buffer(sequences, (b,), "int32")
        at = T.match_buffer(history, (b,), "int32")
        rows = T.match_buffer(others, (b, T.int64(8)), "float32")
        for i, j in T.grid(b, T.int64(8)):
            with T.sblock("{name}"):
                vi, vj = T.axis.remap("SS", [i, j])
                {does}
"""
_GETS = 'rows[vi, vj] = state[T.Cast("int64", which[vi]), T.Cast("int64", at[vi]), vj]'
_SETS = 'state[T.Cast("int64", which[vi]), (T.Cast("int64", at[vi]) + 1) % h, vj] = rows[vi, vj]'
_FUNCTIONS = """
    @R.function
    def create_rnn_state(
        batch: R.Shape(["max_batch_size"]), history: R.Shape(["max_history"]), row: R.Tensor((8,), "float32")
    ) -> R.Any:
        max_batch_size, max_history = T.int64(), T.int64()
        return R.call_pure_packed(
            "vm.builtin.rnn_state_create", R.prim_value(1), R.prim_value(max_batch_size),
            R.prim_value(max_history), R.tuple(Recurrent.get), R.tuple(Recurrent.set), R.tuple(row),
            ty_args=(R.Any,),
        )

    @R.function
    def create_cache(rows: R.Shape(["k"])) -> R.Any:
        k = T.int64()
        return R.call_pure_packed(
            "vm.builtin.attention_kv_cache_create", R.zeros((k, 8), "float32"), R.shape([k, 8]),
            R.prim_value(0), ty_args=(R.Any,),
        )

    @R.function
    def step(x: R.Tensor(("b", 8), "float32"), cache: R.Tuple(R.Any), rnn_state: R.Any):
        b = T.int64()
        before = R.call_dps_packed(
            "vm.builtin.rnn_state_get", (rnn_state, R.prim_value(0), R.prim_value(0)),
            out_ty=R.Tensor((b, 8), "float32"),
        )
        sum = R.add(x, before)
        square = R.multiply(sum, sum)
        after = R.call_pure_packed(
            "vm.builtin.rnn_state_set", rnn_state, R.prim_value(0), R.prim_value(0), square, ty_args=(R.Any,),
        )
        return (R.add(square, sum), after)
"""
RECURRENT = tvm.script.from_source(
    "@I.ir_module\nclass Recurrent:"
    + _KERNEL.format(name="get", does=_GETS)
    + _KERNEL.format(name="set", does=_SETS)
    + _FUNCTIONS
)


def test_each_object_is_made_by_what_is_called_like_it() -> None:
    runner = Runner(RECURRENT, function="step")
    with pytest.raises(RunError, match="no value for `k`, which `create_cache` takes"):
        runner.run({"b": 2})
    _, (cache,), state = runner.arguments({"b": 2, "k": 3}, seed=0)  # type: ignore[misc]
    assert (cache.maker, state.maker) == ("create_cache", "create_rnn_state")  # type: ignore[union-attr]
    for history in ({}, {"max_history": 4}):
        found = runner.run({"b": 2, "k": 3, **history}, check=True, repeat=2)
        assert found.checked and found.difference is None and found.outputs[0].shape == (2, 8)


_TAKES = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), c: R.Any) -> R.Tensor(("n", 4), "float32"):
        return x
"""
_MAKES = """
    @R.function
    def {}(s: R.Shape(["k"])) -> R.Any:
        return R.call_pure_packed("make", s, ty_args=R.Any)
"""


@pytest.mark.parametrize(
    ("makers", "said"), [(["one", "two"], "several do, or not as many: `one`, `two`"), ([], "none does")]
)
def test_one_function_has_to_make_them(makers: list[str], said: str) -> None:
    module = tvm.script.from_source(_TAKES + "".join(map(_MAKES.format, makers)))
    with pytest.raises(RunError, match=said):
        Runner(module, function="main").run({"n": 1})
