"""Functions that take a key-value cache, which another function of their module makes."""

from __future__ import annotations

import pytest
import tvm

from symalloc.errors import RunError
from symalloc.relax.run.cache_objects import sequence_lengths, sizes_of_cache
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


TWO_MAKERS = tvm.script.from_source("""
@I.ir_module
class TwoMakers:
    @R.function
    def one(s: R.Shape(["k"])) -> R.Any:
        return R.call_pure_packed("make", s, ty_args=R.Any)

    @R.function
    def two(s: R.Shape(["k"])) -> R.Any:
        return R.call_pure_packed("make", s, ty_args=R.Any)

    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), c: R.Any) -> R.Tensor(("n", 4), "float32"):
        return x
""")


def _less(*names: str) -> tvm.IRModule:
    return tvm.IRModule({v: f for v, f in TWO_MAKERS.functions_items() if v.name_hint not in names})


@pytest.mark.parametrize(
    ("module", "said"), [(_less(), "several do: `one`, `two`"), (_less("one", "two"), "none does")]
)
def test_one_function_has_to_make_them(module: tvm.IRModule, said: str) -> None:
    with pytest.raises(RunError, match=said):
        Runner(module, function="main").run({"n": 1})


def test_a_symbol_without_a_customary_name_needs_a_value() -> None:
    functions = Runner(_less("one"), function="main")._functions
    assert sequence_lengths(functions["main"], {"n": 2}) == (4, 4)
    with pytest.raises(RunError, match="no value for `k`, which `two` takes; add --bind k="):
        sizes_of_cache(functions["two"], (4, 4), {"n": 2})
    assert sizes_of_cache(functions["two"], (4, 4), {"n": 2, "k": 7}) == {"k": 7}
