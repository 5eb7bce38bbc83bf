"""What a script says about the symbols of its functions, without TVM."""

from __future__ import annotations

from pathlib import Path

import pytest

from symalloc.errors import RunError
from symalloc.relax.files.requests import PlanRequest, require_values, written_symbols

SCRIPT = """
from tvm.script import ir as I, relax as R, tirx as T

@I.ir_module
class One:
    @R.function
    def main(x: R.Tensor(("n", 4, "2 * k"), "int8"), s: R.Shape(["m"]), t: R.Tuple(R.Tensor(("b",), "int8"))):
        return x

    @R.function
    def other(x: R.Tensor(("z",), "float32")):
        return x

    @R.function(private=True)
    def hidden(x: R.Tensor(("h",), "float32")):
        return x
"""
CALLABLE = SCRIPT.replace(
    'R.Shape(["m"])', 'R.Callable((R.Tensor(("m",), "int8"),), R.Tensor(("o",), "int8"))'
)
TWO = SCRIPT + SCRIPT.replace("One", "Two").replace('"n"', '"q"')


def request(text: str, module: str | None = None) -> PlanRequest:
    return PlanRequest(path=Path("a.py"), data=text.encode(), module=module)


@pytest.mark.parametrize(
    ("asked", "function", "symbols"),
    [
        (request(SCRIPT), None, ["b", "m", "n"]),
        (request(SCRIPT), "other", ["z"]),
        (request(SCRIPT), "hidden", []),
        (request(SCRIPT), "nowhere", []),
        (request(TWO), None, []),
        (request(TWO, "Two"), None, ["b", "m", "q"]),
        (request(CALLABLE), None, ["b", "n"]),
        (request("def broken(:"), None, []),
        (PlanRequest(path=Path("missing.py")), None, []),
    ],
)
def test_extents_that_are_names(asked: PlanRequest, function: str | None, symbols: list[str]) -> None:
    assert written_symbols(asked, function) == symbols


def test_every_missing_value_is_named() -> None:
    require_values(["n"], {"n": 1, "m": 2})
    with pytest.raises(RunError, match="no value for `k`, `n`; add --bind k=128 --bind n=128"):
        require_values(["k", "m", "n"], {"m": 2})
