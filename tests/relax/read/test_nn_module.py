"""Places of the calls of TVM's nn.Module: the path of the module, and the line of its code."""

from __future__ import annotations

from typing import Any

import pytest
import tvm
from tvm.relax.frontend import nn

from symalloc.program.reading import ImportRefusedError
from symalloc.relax.ir_types import bindings_in
from symalloc.relax.read.open_model import module_from
from symalloc.relax.source_spans import source_of

SPEC = {"forward": {"x": nn.spec.Tensor(["n", 8], "float32")}}


class Block(nn.Module):
    def __init__(self) -> None:
        self.up = nn.Linear(8, 8)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return nn.op.gelu(self.up(x))  # in Block


class Net(nn.Module):
    def __init__(self) -> None:
        self.layers = nn.ModuleList([Block(), Block()])
        self.named = nn.ModuleDict({"last": Block()})

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        for layer in self.layers:
            x = layer(x)
        return nn.op.softmax(self.named["last"](x), -1)  # in Net


def _places(module: Any) -> list[tuple[str, str]]:
    """Each operator with its place, the path of this file left out."""
    calls = [b for b in bindings_in(module["forward"].body) if isinstance(b.value, tvm.ir.Call)]
    return [(str(b.value.op.name).rpartition(".")[2], source_of(b)) for b in calls]


def _line(comment: str) -> int:
    with open(__file__) as file:  # noqa: PTH123
        return next(number for number, line in enumerate(file, 1) if line.endswith(f"# {comment}\n"))


def test_calls_name_the_module_and_the_line_of_its_code() -> None:
    found = _places(module_from((Net(), SPEC)))
    file = "tests/relax/read/test_nn_module.py"
    within, around = _line("in Block"), _line("in Net")
    for path in ("layers.0", "layers.1", "named.last"):
        assert ("gelu", f"{path} at {file}:{within}") in found
        linear = [operator for operator, place in found if place == f"{path}.up at {file}:{within}"]
        assert linear == ["permute_dims", "matmul", "add"]
    assert found[-1] == ("softmax", f"{file}:{around}")


def test_an_export_of_its_own_is_used() -> None:
    class Other(Net):
        def export_tvm(self, spec: Any, debug: bool = False, allow_extern: bool = False) -> Any:
            return "no module", []

    with pytest.raises(ImportRefusedError, match=r"Other\.export_tvm gave no IRModule"):
        module_from((Other(), SPEC))
