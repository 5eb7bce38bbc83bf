"""ONNX models as modules: names of dimensions, weights, and what cannot be read or imported."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper

from symalloc.program.reading import ImportRefusedError, UnreadableError
from symalloc.relax.ir_types import bindings_in
from symalloc.relax.read.open_model import import_onnx, load_onnx
from symalloc.relax.source_spans import source_of

Dims = Sequence[int | str | None]


def node(operator: str, inputs: str, output: str = "y", **more: Any) -> Any:
    """A node with inputs whose names are separated by blanks."""
    return helper.make_node(operator, inputs.split(), [output], **more)


def value(name: str, dims: Dims | None, kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, dims)


def model(nodes: Sequence[Any], *inputs: Any, opset: int = 17, **more: Any) -> onnx.ModelProto:
    graph = helper.make_graph(list(nodes), "g", list(inputs), [value("y", None)], **more)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def relu(*dims: int | str | None) -> onnx.ModelProto:
    return model([node("Relu", "x")], value("x", dims))


def shape(mod: tvm.IRModule, index: int = 0) -> list[str]:
    return [re.sub(r"T\.int64\((\d+)\)", r"\1", str(e)) for e in mod["main"].params[index].ty.shape.values]


def test_calls_name_the_node_that_they_come_from() -> None:
    nodes = [
        node("MatMul", "x x", "a", name="/layers.0/MatMul"),
        node("Gelu", "a", "b"),
        node("Add", "b b", name="add"),
    ]
    mod = import_onnx(model(nodes, value("x", ["n", "n"]), opset=20))
    found = [(str(b.value.op.name), source_of(b)) for b in bindings_in(mod["main"].body) if source_of(b)]
    assert found[0] == ("relax.matmul", "/layers.0/MatMul")
    assert found[-1] == ("relax.add", "add")
    assert {place for _, place in found[1:-1]} == {"Gelu that makes b"}
    assert all(source_of(b) for b in bindings_in(mod["main"].body) if isinstance(b.value, tvm.ir.Call))


def test_calls_in_a_branch_name_their_own_node() -> None:
    def branch(operator: str) -> Any:
        made = node(operator, "x", "z", name=f"the {operator}")
        return helper.make_graph([made], operator, [], [value("z", None)])

    either = node("If", "c", name="either", then_branch=branch("Relu"), else_branch=branch("Tanh"))
    mod = import_onnx(model([either], value("x", ["n"]), value("c", [], TensorProto.BOOL)))
    assert {source_of(b) for b in bindings_in(mod["main"].body)} - {""} == {"the Relu", "the Tanh"}


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (["n", "n"], ["n", "n"]),
        (["batch size", 4], ["batch_size", "4"]),
        (["batch size", "batch_size"], ["batch_size_1", "batch_size"]),
        (["for", "max"], ["for_", "max_"]),
        (["größe", "日本"], ["gro_e", "dim"]),
        (["n", "n-1"], ["n", "n - 1"]),
        (["n", "m", "2 * (n + m)/3"], ["n", "m", "(n * 2 + m * 2) // 3"]),
        (["n-1"], ["n_minus_1"]),
        (["n", "n/0", "n//m"], ["n", "n_over_0", "n_over_m"]),
        (["a.b/c", "2n"], ["a_b_over_c", "d2n"]),
        (["?", "?", None, "", "-1"], ["x_dim0", "x_dim1", "x_dim2", "x_dim3", "x_dim4"]),
        (["x_dim1", "?"], ["x_dim1", "x_dim1_1"]),
        ([0, "n" * 200], ["0", "n" * 200]),
    ],
    ids=str,
)
def test_dimensions_are_called_as_their_author_called_them(written: Dims, read: list[str]) -> None:
    assert shape(import_onnx(relu(*written))) == read


def test_one_name_is_one_dimension_across_inputs() -> None:
    given = (value(name, ["batch size", "n"]) for name in "xz")
    mod = import_onnx(model([node("Add", "x z")], *given))
    x, z = (param.ty.shape.values for param in mod["main"].params)
    assert all(one.same_as(other) for one, other in zip(x, z, strict=True))
    assert [param.name for param in mod["main"].params] == ["x", "z"]


def test_weights_are_constants_also_where_they_lie_in_a_file_of_their_own(tmp_path: Path) -> None:
    weight = numpy_helper.from_array(np.eye(64, dtype=np.float32), "w")
    given = value("x", ["n", 64]), value("w", [64, 64])
    made = model([node("MatMul", "x w")], *given, initializer=[weight])
    path = tmp_path / "m.onnx"
    onnx.save(made, str(path), save_as_external_data=True, location="w.bin", size_threshold=0)
    mod = load_onnx(path, path.read_bytes())
    assert [param.name for param in mod["main"].params] == ["x"]
    (tmp_path / "w.bin").unlink()
    with pytest.raises(UnreadableError, match=r"no ONNX model that can be loaded: .*w\.bin"):
        load_onnx(path, path.read_bytes())


TWO, SQUARES = value("x", [2]), value("x", ["n", 2, 2])


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (model([node("Loop", "k c x", body=relu(2).graph)], TWO), "does not know operator Loop"),
        (model([node("Add", "x z", name="a")], TWO), r"Add \(node `a`\): nothing defines its input `z` "),
        (model([node("Relu", "x")] * 2, TWO), "more than one node makes `y`"),
        (model([node("Relu", "x", "z")], TWO), "the graph: KeyError 'y'"),
        (model([node("Relu", "x")], TWO, opset=999), "of opset 999, and onnx"),
        (model([node("Det", "x", name="d")], SQUARES), r"ONNX importer does not know .* Det \(node `d`\)"),
        (model([node("Det", "x")], SQUARES), r"does not know operator Det \(node that makes y\)"),
        (model([node("MatMul", "x x", name="mm")], value("x", [2, 3])), r"MatMul \(node `mm`\): "),
    ],
)
def test_what_cannot_be_imported_is_said_with_its_place(made: onnx.ModelProto, said: str) -> None:
    with pytest.raises(UnreadableError, match=said):
        import_onnx(made)


def test_an_operator_of_another_domain_is_not_taken_for_that_of_onnx() -> None:
    made = model([node("Relu", "x", name="r", domain="ours")], value("x", ["n"]))
    made.opset_import.append(helper.make_opsetid("ours", 1))
    with pytest.raises(ImportRefusedError, match=r"does not know operator ours.Relu \(node `r`\)"):
        import_onnx(made)


def test_functions_of_a_model_are_inlined() -> None:
    opset = helper.make_opsetid("", 17)
    twice = helper.make_function("ours", "Twice", ["a"], ["b"], [node("Add", "a a", "b")], [opset])
    made = model([node("Twice", "x", domain="ours")], value("x", ["n"]))
    made.opset_import.append(helper.make_opsetid("ours", 1))
    made.functions.append(twice)
    assert shape(import_onnx(made)) == ["n"]


def test_an_input_that_is_no_tensor_is_named() -> None:
    sequence = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, ["n"])
    made = model([node("SequenceAt", "s i")], sequence, value("i", [], TensorProto.INT64))
    with pytest.raises(ImportRefusedError, match="the input `s` is no tensor but sequence"):
        import_onnx(made)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "the file is empty"),
        (b"\x89PNG\x00\x01", "it is no ONNX model that can be loaded"),
        (b"hello", "it is no ONNX model"),
        (relu("n").SerializeToString()[:-9], "it is no ONNX model"),
        (b"\x08\x08", "its graph is empty"),
    ],
)
def test_what_is_no_model_is_said(data: bytes, said: str) -> None:
    with pytest.raises(UnreadableError, match=said):
        load_onnx(Path("m.onnx"), data)
