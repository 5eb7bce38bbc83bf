"""The one loader: what an argument names, opened, and its modules read one by one; models in memory.

Those in memory, or made by a function of a Python file, are models of TVM, of onnx, of torch.export, and
TVM's nn.Module with a spec.  Their kind is told by their classes: neither onnx nor torch is imported for it.
"""

from __future__ import annotations

import inspect
import json
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import tvm
from tvm import tirx
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn.exporter import Exporter
from tvm.relax.frontend.nn.spec import ModuleSpec
from tvm_ffi.serialization import from_json_graph_str

from symalloc.program.reading import ImportRefusedError, ReadProblem, UnreadableError
from symalloc.program.span import Source
from symalloc.relax.ir_types import Node, error_text
from symalloc.relax.read.find_files import GZIP, SUFFIXES, ModelFunction, kind_of, model_function
from symalloc.relax.read.importing import (
    SourcedBuilder,
    dimensions,
    quietly,
    refusal,
    require_extra,
    require_known,
)
from symalloc.relax.read.script import EXECUTED, executed, parse_module, told_of, trusted_names
from symalloc.relax.read.script_file import decode, parse_text, read_bytes
from symalloc.relax.read.script_guard import INFERENCE_PREFIXES
from symalloc.relax.read.torch_program import import_torch, load_torch
from symalloc.relax.source_spans import place_span

if TYPE_CHECKING:
    import onnx


# what is code rather than description: a library that loading links in, a function that type inference calls
_CODE = frozenset({"ffi.Function", "ffi.Module", "runtime.Module", "runtime.PackedFunc"})
_MAX_BYTES = 4 << 30  # a bomb of a few kilobytes unpacks to any size
_TVM = str(Path(tvm.__file__).parent)
KINDS = (
    "an IRModule, an onnx.ModelProto, a torch.export.ExportedProgram, "
    "or a pair of a tvm.relax.frontend.nn.Module and its spec"
)
_WRITE = "write the module with tvm.ir.save_json(mod)"


@dataclass(frozen=True, slots=True)
class ModuleEntry:
    """A module of a file; `line` is where it stands in a script, `checked`: it must be well-formed.

    `read` gives the module, or what is wrong with it; it raises UnreadableError.
    """

    name: str
    read: Callable[[], Node | tuple[ReadProblem, ...]]
    line: int | None = None
    checked: bool = True


@dataclass(frozen=True, slots=True)
class ModelFile:
    """An opened file: its modules, and its text where it is a script, which `entries` parses.

    `entries` raises UnreadableError.
    """

    entries: Callable[[], Sequence[ModuleEntry]]
    source: Source | None = None


def open_model(path: Path, *, trust: bool = False, data: bytes | None = None) -> ModelFile:
    """Open what `path` names: a file, or `file.py:function`.

    `data` is the content of `path` where that is not in a file.  TVMScript, JSON of TVM, plain or gzipped,
    ONNX models and programs of torch.export are told apart by their names, else by their content.  `trust`
    lets them run whatever they hold.  Raises UnreadableError.
    """
    function = model_function(path) if data is None else None
    if function is not None:
        called = ModuleEntry(function.name, lambda: load_function(function, trust=trust))
        return ModelFile(lambda: [called])
    content = read_bytes(path) if data is None else data
    kind = kind_of(path, content)
    if kind == "script":
        source = Source(file=str(path), text=decode(content))
        return ModelFile(lambda: _script_modules(source, trust), source)
    suffix = max((s for s in SUFFIXES if path.name.endswith(s)), key=len, default="")
    load = partial(_LOADERS[kind], path, content, trust)
    return ModelFile(lambda: [ModuleEntry(path.name.removesuffix(suffix).strip("<>"), load)])


def _script_modules(source: Source, trust: bool) -> list[ModuleEntry]:
    script = parse_text(source.file, source.text)
    if not script.modules:
        hint = "a module is a class decorated with @I.ir_module, or a function decorated with @R.function"
        raise UnreadableError("it holds no Relax module", hint=hint)
    trusted = trusted_names(script) if trust else None
    return [
        ModuleEntry(each.name, partial(parse_module, script, each, trusted), each.line, each.wants_check)
        for each in script.modules
    ]


# -- kinds of files ------------------------------------------------------------------------------------------


def load_module(data: bytes, *, trust: bool = False) -> Node:
    """The IRModule that `data` describes.  Raises UnreadableError.

    A graph that holds code (a compiled library, a global function to call) is refused unless `trust`.  The
    shape of the document is checked before TVM sees it, because TVM's loader aborts the process on some of
    what it does not expect.
    """
    text = _text(data)
    written = _checked_version(text, trust)
    # to bring a graph up to date takes TVM several times as long as to load it
    load = from_json_graph_str if written == tvm.__version__ else tvm.ir.load_json
    try:
        loaded = load(text)
    except Exception as error:  # the loader raises KeyError, TypeError, AttributeError, InternalError …
        raise UnreadableError(f"TVM cannot load it: {error_text(error)}", hint=_hint(written)) from error
    if isinstance(loaded, tvm.relax.Function | tvm.tirx.PrimFunc):
        name = loaded.attrs["global_symbol"] if loaded.attrs and "global_symbol" in loaded.attrs else "main"
        return tvm.IRModule({str(name): loaded})
    if not isinstance(loaded, tvm.IRModule):
        raise UnreadableError(
            f"it holds no Relax module but an object of type {type(loaded).__name__}", hint=_WRITE
        )
    return loaded


def _text(data: bytes) -> str:
    if data.startswith(GZIP):
        unpacker = zlib.decompressobj(wbits=31)
        try:
            data = unpacker.decompress(data, _MAX_BYTES)
        except zlib.error as error:
            raise UnreadableError(f"it is no valid gzip file: {error}") from error
        if not unpacker.eof:
            raise UnreadableError("the gzip file is truncated or unpacks to more than 4 GiB")
    if not data.strip():
        raise UnreadableError("the file is empty")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableError("it is a binary file, not JSON text") from error


def _checked_version(text: str, trust: bool) -> object:
    """Check a graph; return the version of TVM that it names, None where it names none."""
    document = _document(text)
    nodes = document.get("nodes") if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(nodes, list) or "root_index" not in document:
        raise UnreadableError("it is JSON, but not a graph written by tvm.ir.save_json", hint=_WRITE)
    root = document["root_index"]
    if not isinstance(root, int) or isinstance(root, bool) or not 0 <= root < len(nodes):
        raise UnreadableError(f"the graph is damaged: its root is node {root!r} of {len(nodes)}")
    for number, node in enumerate(nodes):
        _check_node(number, node, trust)
    metadata = document.get("metadata")
    return metadata.get("tvm_version") if isinstance(metadata, dict) else None


def _document(text: str) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        cut = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string")
        what = (
            "the JSON ends too early: the file is truncated" if cut else f"it is not valid JSON: {error.msg}"
        )
        raise UnreadableError(f"{what} (line {error.lineno}, column {error.colno})") from error
    except RecursionError as error:
        raise UnreadableError("its JSON is nested too deeply to be a module") from error


def _check_node(number: int, node: object, trust: bool) -> None:
    if not isinstance(node, dict) or not isinstance(node.get("type"), str):
        raise UnreadableError(f"the graph is damaged: node {number} has no type")
    if trust:
        return
    kind = node["type"]
    is_call_back = kind == "ir.EnvFunc" and not str(node.get("data")).startswith(INFERENCE_PREFIXES)
    if kind in _CODE or is_call_back:
        raise UnreadableError(
            f"not loaded: node {number} is a {kind}, which is code",
            hint="a file that you trust can be read with --trust",
        )


def _hint(written: object) -> str | None:
    if written is None or written == tvm.__version__:
        return None
    return f"it was written by TVM {written}; this is TVM {tvm.__version__}"


_LOADERS: Mapping[str, Callable[[Path, bytes, bool], Node]] = {
    "json": lambda _, data, trust: load_module(data, trust=trust),
    "onnx": lambda path, data, _: load_onnx(path, data),
    "pt2": lambda path, data, trust: load_torch(path, data, trust=trust),
}


# -- models in memory


def export_sourced(network: nn.Module, spec: object) -> object:
    """The module that `network.export_tvm(spec)` gives, with the places of its calls.

    Those of a class that exports in a way of its own stay as they are.
    """
    if type(network).export_tvm is not nn.Module.export_tvm:
        return network.export_tvm(spec)[0]
    paths: dict[int, str] = {}
    for path, module in _modules(network, ""):
        paths.setdefault(id(module), path)
    builder = SourcedBuilder(lambda: _model_place(sys._getframe(2), paths))
    exporter = Exporter(debug=False)
    exporter.builder = builder
    exported, _, external = exporter.build(ModuleSpec.from_raw(spec, network))
    if external:
        raise ValueError("it holds ExternModules, which are compiled beside the module")
    return builder.placed(exported)


def _modules(module: nn.Module, path: str) -> Iterator[tuple[str, nn.Module]]:
    """A module and those below it, with their paths."""
    yield path, module
    held = module.modules if isinstance(module, nn.ModuleList | nn.ModuleDict) else vars(module)
    for name, value in held.items() if isinstance(held, Mapping) else enumerate(held):
        if isinstance(value, nn.Module):
            yield from _modules(value, f"{path}.{name}" if path else str(name))


def _model_place(frame: FrameType | None, paths: Mapping[int, str]) -> Node | None:
    """The place of the code around `frame`: the innermost module, and the innermost line outside of TVM."""
    path: str | None = None
    code: FrameType | None = None
    while frame is not None and (path is None or code is None):
        if path is None:
            path = paths.get(id(frame.f_locals.get("self")))
        if code is None and not frame.f_code.co_filename.startswith(_TVM):
            code = frame
        frame = frame.f_back
    if path is None or code is None:
        return None
    return place_span(path, code.f_code.co_filename, code.f_lineno)


def is_model(value: object) -> bool:
    """Return whether `module_from` can make a module of `value`."""
    return isinstance(value, tvm.IRModule) or _importer(value) is not None


def module_from(value: object) -> Node:
    """The IRModule that `value` is, or describes.  Raises UnreadableError where nothing can be made of it."""
    if isinstance(value, tvm.IRModule):
        return value
    load = _importer(value)
    if load is None:
        raise UnreadableError(f"it is of type {type(value).__name__}, not {KINDS}")
    return load(value)


def _importer(value: object) -> Callable[[Any], Node] | None:
    """The function that makes an IRModule of a model of another kind; None where `value` is none."""
    if is_exported_program(value):
        return import_torch
    if _is_a(value, "onnx", "ModelProto"):
        return import_onnx
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], nn.Module):
        return None if isinstance(value[1], nn.Module) else _from_spec
    return None


def is_exported_program(value: object) -> bool:
    """Return whether `value` is a program of torch.export."""
    return _is_a(value, "torch", "ExportedProgram")


def _is_a(value: object, package: str, name: str) -> bool:
    kinds = type(value).__mro__
    return any(kind.__name__ == name and kind.__module__.partition(".")[0] == package for kind in kinds)


def _from_spec(pair: tuple[Node, object]) -> Node:
    """The module that an nn.Module of TVM exports; its weights are inputs, because it holds none."""
    network, spec = pair
    with refusal(f"{type(network).__name__}.export_tvm"):
        exported = export_sourced(network, spec)
    if not isinstance(exported, tvm.IRModule):
        raise ImportRefusedError(f"{type(network).__name__}.export_tvm gave no IRModule")
    return exported


# -- models that a function of a Python file makes


def load_function(function: ModelFunction, *, trust: bool) -> Node:
    """The IRModule of what `function` returns, called without arguments.

    A name that holds a model instead of a function gives that model.  Raises UnreadableError, also unless
    `trust`: this runs whatever the file holds.
    """
    if not trust:
        raise UnreadableError(
            f"{function.name} is a function, and calling it runs the code of {function.file}",
            hint="a file that you trust can be run with --trust",
        )
    with executed(function.file) as module:
        found = getattr(module, function.name, None)
        if found is None:
            own = [
                name
                for name, value in vars(module).items()
                if not name.startswith("_") and getattr(value, "__module__", None) == EXECUTED
            ]
            others = f"; it defines {', '.join(own[:12])}" if own else ""
            raise UnreadableError(f"{function.file} defines no `{function.name}`{others}")
        made = found if is_model(found) else _called(function, found)
        if not is_model(made):
            what = "None" if made is None else f"an object of type {type(made).__name__}"
            raise UnreadableError(f"{function.name}() returned {what}; it must return {KINDS}")
        return module_from(made)


def _called(function: ModelFunction, found: object) -> object:
    if not callable(found):
        raise UnreadableError(f"{function.name} is neither a function nor {KINDS}")
    try:
        parameters = list(inspect.signature(found).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [p.name for p in parameters if p.default is p.empty and p.kind not in optional]
    if needed:
        raise UnreadableError(
            f"{function.name}() takes {', '.join(needed)}, and is called without arguments",
            hint="give them defaults, or name a function that calls it",
        )
    with told_of(function.file, f"{function.name}() failed"):
        return found()


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
        importer = _onnx_importer(graph)
        return importer.bb.placed(importer.from_onnx(graph, opset))


def _require_version(ir_version: int, opset: int) -> None:
    import onnx

    newest = onnx.defs.onnx_opset_version()
    if opset > newest:
        known = f"onnx {onnx.__version__} knows {newest} and older"
        raise ImportRefusedError(f"its operators are of opset {opset}, and {known}")
    if ir_version < _LEAST_IR:
        raise ImportRefusedError(f"its IR version {ir_version} is too old: TVM reads 3 and later")


def _onnx_importer(graph: onnx.GraphProto) -> Any:
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
