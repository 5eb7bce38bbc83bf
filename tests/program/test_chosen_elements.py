"""How many elements a packed function chooses at most."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import tvm
from tvm.script import from_source

import symalloc
from symalloc.errors import UsageError
from symalloc.program.packed_contracts import contracts

CHOSEN = """
@I.ir_module
class Module:
    @R.function(pure=False)
    def main(x: R.Tensor(("n", "m"), "int64")) -> R.Object:
        n, m = T.int64(), T.int64()
        k = T.int64()
        found = R.call_pure_packed("{name}", x, ty_args=R.Tensor(dtype="int64"))
        chosen = R.match_cast(found, R.Tensor({shape}, "int64"))
        s = R.memory.alloc_storage(R.shape([{size}]), R.prim_value(0), "global", R.dtype("uint8"))
        t = R.memory.alloc_tensor(s, R.prim_value(0), R.shape([k]), R.dtype("int64"))
        return R.call_pure_packed("mine.filled", t, chosen, ty_args=R.Object)
"""


def findings(shape: str, size: str, name: str, rule: str = "SYM101") -> list[symalloc.Diagnostic]:
    module = from_source(CHOSEN.format(name=name, shape=shape, size=size))
    return [found for found in symalloc.lint(module, stage="as-is") if found.rule == rule]


def test_at_most_all_elements_are_chosen() -> None:
    assert not findings("(2, k)", "8 * n * m", "relax.run.nonzero")
    assert not findings("(2, k)", "8 * n * m + 8", "relax.run.nonzero")
    (found,) = findings("(2, k)", "8 * n * m - 8", "relax.run.nonzero")
    assert found.counterexample is not None
    point = found.counterexample
    assert point["k"] == point["n"] * point["m"]


def test_what_else_a_result_tells_is_not_known() -> None:
    assert findings("(k, m)", "8 * n * m", "relax.run.unique")
    assert findings("(m, k)", "8 * n * m", "relax.run.unique")  # of no elements it leaves one column
    assert findings("(2, k)", "8 * n * m", "mine.chosen")


def test_users_state_it_of_their_functions() -> None:
    with contracts({}):
        symalloc.packed_function("mine.chosen", counts=0)
        assert not findings("(k,)", "8 * n * m", "mine.chosen")
        symalloc.packed_function("mine.chosen", counts=1)
        (found,) = findings("(k,)", "8 * n * m", "mine.chosen", "SYM904")
        assert "speaks of argument 1, and there are 1" in found.message
    with pytest.raises(UsageError, match="must be a whole number of at least 0"):
        symalloc.packed_function("mine.chosen", counts=-1)


@pytest.mark.parametrize("shape", [(), (0,), (5,), *product((0, 1, 3), repeat=2), (2, 0, 3), (2, 2, 2)])
def test_tvm_chooses_no_more(shape: tuple[int, ...]) -> None:
    for fill in (0, 1, "all different"):
        values = np.arange(np.prod(shape)).reshape(shape) if isinstance(fill, str) else np.full(shape, fill)
        given = tvm.runtime.tensor(values.astype("int64"))
        *rows, chosen = tvm.get_global_func("relax.run.nonzero")(given).shape
        assert chosen <= values.size and all(rows)
        for axis in (None, *range(len(shape))):
            *rows, chosen = tvm.get_global_func("relax.run.unique")(given, 1, 0, 0, 0, axis).shape
            assert chosen <= values.size or not all(rows)
