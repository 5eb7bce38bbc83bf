"""ONNX models to IRModules, by TVM's importer; dimensions keep the names that their author gave them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tvm import tirx

from symalloc.program.reading import ImportRefusedError, UnreadableError
from symalloc.relax.ir_types import Node
from symalloc.relax.read.importing import (
    SourcedBuilder,
    dimensions,
    quietly,
    refusal,
    require_extra,
    require_known,
)
from symalloc.relax.source_spans import place_span
from symalloc.relax.tvm_error import error_text

if TYPE_CHECKING:
    import onnx

_UNKNOWN = frozenset({"", "?", "None", "-1"})
# the domains whose operators TVM's importer knows by name
_DOMAINS = frozenset({"", "ai.onnx", "com.microsoft"})
_LEAST_IR = 3


def load_onnx(path: Path, data: bytes) -> Node:
    """The IRModule of the ONNX model in `data`, the bytes of `path`.

    Weights become constants; those in files of their own lie beside `path`.  Raises UnreadableError.
    """
    require_extra("onnx", reading=path)
    import onnx

    if not data.strip():
        raise UnreadableError("the file is empty")
    try:
        model = onnx.load_model_from_string(data)
        onnx.external_data_helper.load_external_data_for_model(model, str(path.parent))
    except Exception as error:  # protobuf, external data: each raises what it raises
        raise UnreadableError(f"it is no ONNX model that can be loaded: {error_text(error)}") from error
    return import_onnx(model)


def import_onnx(model: onnx.ModelProto) -> Node:
    """The IRModule of an ONNX model in memory.  Raises UnreadableError."""
    from onnx import inliner

    if not model.graph.node and not model.graph.output:
        raise UnreadableError("it is no ONNX model: its graph is empty")
    opset = next((each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), 1)
    _require_version(model.ir_version, opset)
    with quietly(), refusal("the graph"):
        # the bodies of its own functions in the place of their calls
        graph = (inliner.inline_local_functions(model) if model.functions else model).graph
        made = Counter(name for node in graph.node for name in node.output if name)
        twice = next((name for name, count in made.items() if count > 1), None)
        if twice is not None:  # TVM would take the last
            raise ImportRefusedError(f"it is no valid ONNX model: more than one node makes `{twice}`")
        importer = _importer(graph)
        return importer.bb.placed(importer.from_onnx(graph, opset))


def _require_version(ir_version: int, opset: int) -> None:
    import onnx

    newest = onnx.defs.onnx_opset_version()
    if opset > newest:
        known = f"onnx {onnx.__version__} knows {newest} and older"
        raise ImportRefusedError(f"its operators are of opset {opset}, and {known}")
    if ir_version < _LEAST_IR:
        raise ImportRefusedError(f"its IR version {ir_version} is too old: TVM reads 3 and later")


def _importer(graph: onnx.GraphProto) -> Any:
    """TVM's importer, which tells where it fails."""
    from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter, _get_convert_map

    class OnnxImporter(ONNXGraphImporter):  # type: ignore[misc]
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self.bb = SourcedBuilder()

        def _parse_graph_input(self, graph: Any) -> None:
            super()._parse_graph_input(SimpleNamespace(input=[_without_names(each) for each in graph.input]))

        def _construct_nodes(self, graph: Any) -> None:
            for node in graph.node:
                with (
                    refusal(_described(node.op_type, node)),
                    self.bb.at(place_span(node.name or f"{node.op_type} {_makes(node)}".rstrip())),
                ):
                    missing = next((name for name in node.input if name and name not in self._nodes), None)
                    if missing is not None:
                        raise ValueError(f"nothing defines its input `{missing}` before it")
                    super()._construct_nodes(SimpleNamespace(node=[node]))

        def _convert_operator(self, op_name: str, inputs: Any, attrs: dict[str, Any], opset: int) -> Node:
            name = attrs["tvm_custom"]["name"]
            with refusal(_operator(op_name, name)), self.bb.at(place_span(name) if name else None):
                return super()._convert_operator(op_name, inputs, attrs, opset)

        def _check_for_unsupported_ops(self, graph: Any) -> None:
            known, unknown = {*_get_convert_map(), "If", "Constant"}, dict[str, str]()
            for node in _nodes(graph):
                if node.op_type not in known or node.domain not in _DOMAINS:
                    name = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
                    unknown.setdefault(name, _described(name, node))
            require_known("ONNX importer", unknown.values())

    constants = {each.name for each in graph.initializer}
    return OnnxImporter(_shapes([each for each in graph.input if each.name not in constants]), "float32")


def _described(operator: str, node: onnx.NodeProto) -> str:
    return _operator(operator, node.name or _makes(node))


def _makes(node: onnx.NodeProto) -> str:
    return next((f"that makes {output}" for output in node.output if output), "")


def _operator(operator: str, name: str) -> str:
    quoted = name if name.startswith("that makes") else f"`{name}`"
    return f"operator {operator} (node {quoted})" if name else f"operator {operator}"


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """The nodes of a graph and of those below it."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _nodes(attribute.g)


# -- dimensions ----------------------------------------------------------------------------------------------


def _shapes(inputs: Sequence[onnx.ValueInfoProto]) -> Mapping[str, Sequence[Node]]:
    """The shape of each input whose rank is known, in TVM's variables with the author's names; each dimension
    without a name is a variable of its own.
    """
    shapes = {each.name: list(each.type.tensor_type.shape.dim) for each in inputs if _is_shaped(each)}
    dims = {(name, axis): dim for name, shape in shapes.items() for axis, dim in enumerate(shape)}
    open_dims = {a: d for a, d in dims.items() if not d.HasField("dim_value") or d.dim_value < 0}
    written = {axis: dim.dim_param.strip() for axis, dim in open_dims.items()}
    found, _ = dimensions({axis: "" if text in _UNKNOWN else text for axis, text in written.items()})
    sizes = {a: found[a] if a in found else tirx.IntImm("int64", dim.dim_value) for a, dim in dims.items()}
    return {name: [sizes[name, axis] for axis in range(len(shape))] for name, shape in shapes.items()}


def _is_shaped(value: onnx.ValueInfoProto) -> bool:
    if not value.type.HasField("tensor_type"):
        kind = value.type.WhichOneof("value") or "a value without a type"
        raise ImportRefusedError(f"the input `{value.name}` is no tensor but {kind.replace('_type', '')}")
    return bool(value.type.tensor_type.HasField("shape"))


def _without_names(value: onnx.ValueInfoProto) -> onnx.ValueInfoProto:
    """A copy of `value` with all extents 1: TVM would take names of dimensions for arithmetic."""
    copy = type(value)()
    copy.CopyFrom(value)
    for dim in copy.type.tensor_type.shape.dim:
        dim.dim_value = 1
    return copy
