"""Programs of torch.export to IRModules, by TVM's importer; dimensions keep their author's names."""

from __future__ import annotations

import ast
import io
import json
import math
import os
import re
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import msgspec
from tvm import relax

from symalloc.program.reading import ImportRefusedError, UnreadableError
from symalloc.relax.ir_types import Node, error_text
from symalloc.relax.read.importing import (
    SourcedBuilder,
    dimensions,
    listed,
    quietly,
    refusal,
    require_extra,
    require_known,
)
from symalloc.relax.read.script_file import expression_of
from symalloc.relax.source_spans import place_span

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
DIMENSIONS = "symalloc.dims"
"""The file in an archive that holds the author's names: by input, for each axis a name or null, as JSON."""


def load_torch(path: Path, data: bytes, *, trust: bool = False) -> Node:
    """The IRModule of the exported program in `data`, the bytes of `path`.

    Weights become constants.  What torch's loader would run as code is refused unless `trust`.  Raises
    UnreadableError.
    """
    require_extra("torch", reading=path)
    import torch

    extra = {DIMENSIONS: ""}
    with quietly(), guarded(data, trust=trust):
        try:
            program = torch.export.load(io.BytesIO(data), extra_files=extra)
        except UnreadableError:
            raise
        except Exception as error:  # zip, JSON, versions, operators: each raises what it raises
            _require_operators(data)
            raise UnreadableError(f"torch cannot load it: {error_text(error)}") from error
        _forget_guards(program)
        return _imported(program, _saved_names(program, extra[DIMENSIONS]))


def program_bytes(program: ExportedProgram) -> bytes:
    """The archive that torch.export.save writes, with the names of dimensions, which torch leaves out."""
    import torch

    names = _author_names(program)
    found = {
        name: [names.get(str(extent)) for extent in tensor.shape] for name, tensor in _input_tensors(program)
    }
    archive = io.BytesIO()
    with quietly():
        torch.export.save(program, archive, extra_files={DIMENSIONS: json.dumps(found)})
    return archive.getvalue()


def _forget_guards(program: ExportedProgram) -> None:
    """Take out of a loaded program what torch would run as code, or stumbles over.

    It runs guards as Python, and TVM's modules check shapes themselves.  Ranges of `2*n` are in the way where
    torch 2.13 decomposes a program that comes from a file.
    """
    if hasattr(program, "_guards_code"):
        program._guards_code = []
    ranges = getattr(_environment(program), "var_to_range", {})
    for derived in [key for key in ranges if not key.is_Symbol]:
        del ranges[derived]


def import_torch(program: ExportedProgram) -> Node:
    """The IRModule of an exported program.  Raises ImportRefusedError."""
    return _imported(program, _author_names(program))


def _imported(program: ExportedProgram, names: Mapping[str, str]) -> Node:
    import torch

    with quietly():
        with refusal("torch cannot decompose it"):
            tensors = (*program.state_dict.values(), *program.constants.values())
            sparse = any(isinstance(t, torch.Tensor) and t.layout != torch.strided for t in tensors)
            decomposed = program if sparse else program.run_decompositions()
        _refuse_updates(decomposed)
        with refusal("the program"):
            importer = _importer(names)
            module = importer.from_exported_program(decomposed, False, False, False, None)
            return importer.block_builder.placed(module)


def _refuse_updates(program: ExportedProgram) -> None:
    """Raise ImportRefusedError where a call updates state: TVM's importer drops what is no result."""
    kinds = (
        (spec, spec.kind.name.removesuffix("_MUTATION")) for spec in program.graph_signature.output_specs
    )
    found = [
        f"the {kind.replace('_', ' ').lower()} `{spec.target}`"
        for spec, kind in kinds
        if kind != spec.kind.name
    ]
    if found:
        raise ImportRefusedError(
            f"a call updates {', '.join(found)}, and TVM's importer drops that: each call would begin with "
            "the same state; return the new value as a result, or export the model in eval mode"
        )


def _importer(names: Mapping[str, str]) -> Any:
    """TVM's importer, which tells where it fails."""
    from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

    builder = SourcedBuilder()

    class TorchImporter(ExportedProgramImporter):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.convert_map: dict[str, Callable[..., Node]] = {
                key: _placed(convert, builder) for key, convert in self.create_convert_map().items()
            }

        @property
        def block_builder(self) -> SourcedBuilder:
            return builder

        @block_builder.setter
        def block_builder(self, other: object) -> None:
            """TVM's importer makes one without places."""

        def _check_unsupported_func_type(self, nodes: Sequence[Any]) -> None:
            unknown: dict[str, str] = {}
            for node in nodes:
                if node.op == "call_function" and node.target.__name__ not in self.convert_map:
                    unknown.setdefault(str(node.target), _described(node))
            require_known("importer", unknown.values())

        def create_input_vars(self, exported_program: ExportedProgram) -> Any:
            return _variables(exported_program, names, self._convert_data_type)

    return TorchImporter()


def _placed(convert: Callable[..., Node], builder: SourcedBuilder) -> Callable[..., Node]:
    def at_place(node: Any, *rest: Any) -> Node:
        with refusal(_described(node)), builder.at(_span(node)):
            return convert(node, *rest)

    return at_place


def _span(node: Any) -> Node | None:
    """`layers.0 at model.py`, and the line there.

    None for a node in a branch of torch.cond, of which torch keeps neither: it comes from where that does.
    """
    path, file, line = _origin(node)
    return place_span(path, file, line) if path or file else None


def _described(node: Any) -> str:
    """`operator aten.foo.default (node `foo`, module `layers.0`, model.py:12)`."""
    path, file, line = _origin(node)
    places = [f"node `{node.name}`"]
    places += [f"module `{path}`"] if path else []
    places += [f"{file}:{line}"] if file else []
    return f"operator {node.target} ({', '.join(places)})"


def _origin(node: Any) -> tuple[str, str, int]:
    """The path of the innermost nn.Module that a node was traced in, and the file and the line, outside of
    torch where it can be; "" and 0 for none.
    """
    inner = [path for path, _ in (node.meta.get("nn_module_stack") or {}).values() if path]
    traced = _FRAME.findall(node.meta.get("stack_trace") or "")
    frames = [frame for frame in traced if not frame[0].startswith("<")]  # code that torch has made
    own = [frame for frame in frames if "/torch/" not in frame[0]]
    file, line = (own or frames or [("", 0)])[-1]
    return str(inner[-1]) if inner else "", file, int(line)


# -- inputs and their dimensions -----------------------------------------------------------------------------


def _author_names(program: ExportedProgram) -> Mapping[str, str]:
    """The names that `torch.export.Dim` gave to dimensions, by torch's own expression (`s77`, `2*s17`).

    A loaded program has none.
    """
    environment = _environment(program)
    written: Mapping[str, str] = getattr(environment, "source_name_to_debug_name", None) or {}
    known: Mapping[str, object] = getattr(environment, "source_to_var", None) or {}
    found: dict[str, str] = {}
    for source, name in written.items():
        if source in known and not name.startswith("_"):
            found.setdefault(str(known[source]), name)
    return found


def _saved_names(program: ExportedProgram, text: str) -> Mapping[str, str]:
    """The same of a loaded program, from what DIMENSIONS holds; raises UnreadableError."""
    try:
        saved = msgspec.json.decode(text, type=dict[str, list[str | None]]) if text else {}
    except msgspec.DecodeError as error:
        raise UnreadableError(f"the archive's {DIMENSIONS} is damaged: {error}") from error
    found: dict[str, str] = {}
    for name, tensor in _input_tensors(program):
        for extent, written in zip(tensor.shape, saved.get(name, ()), strict=False):
            if written and not isinstance(extent, int):
                found.setdefault(str(extent.node.expr), written)
    return found


def _input_tensors(program: ExportedProgram) -> Iterator[tuple[str, Any]]:
    """The inputs that are tensors, by name, as torch has traced them."""
    import torch

    given = set(program.graph_signature.user_inputs)
    for node in program.graph.find_nodes(op="placeholder"):
        if node.name in given and isinstance(node.meta.get("val"), torch.Tensor):
            yield node.name, node.meta["val"]


def _environment(program: ExportedProgram) -> Any:
    """Torch's record of the symbols of a program; None where it has none."""
    modes = (getattr(node.meta.get("val"), "fake_mode", None) for node in program.graph.nodes)
    environments = (mode.shape_env for mode in modes if mode is not None)
    return next((each for each in environments if each is not None), None)


def _variables(
    program: ExportedProgram, author_names: Mapping[str, str], data_type: Callable[[Any], str]
) -> tuple[dict[str, Node], dict[str, Node], dict[str, tuple[int, int | None]]]:
    """Weights and inputs as variables of Relax, and the (lower, upper) range of each symbol, all by name."""
    from torch.export.graph_signature import ConstantArgument, InputKind

    specs = program.graph_signature.input_specs
    given = [
        s.arg for s in specs if s.kind is InputKind.USER_INPUT and not isinstance(s.arg, ConstantArgument)
    ]
    known = dict(_input_tensors(program))
    unknown = next((arg.name for arg in given if arg.name not in known), None)
    if unknown is not None:
        raise ImportRefusedError(f"the input `{unknown}` is no tensor; TVM imports tensors only")
    shapes = {arg.name: list(map(_extent, known[arg.name].shape)) for arg in given}
    written = {
        (name, axis): extent
        for name, shape in shapes.items()
        for axis, extent in enumerate(shape)
        if isinstance(extent, str)
    }
    extents, symbols = dimensions(written, author_names)

    def variable(name: str, shape: Sequence[Node | int], tensor: Any) -> Node:
        return relax.Var(name, relax.TensorType(shape, data_type(tensor.dtype)))

    weights, inputs = OrderedDict[str, Node](), OrderedDict[str, Node]()
    for name, shape in shapes.items():
        sizes = [e if isinstance(e, int) else extents[name, axis] for axis, e in enumerate(shape)]
        inputs[name] = variable(name, sizes, known[name])
    for spec in specs:
        if spec.kind is not InputKind.USER_INPUT:
            held = _held(program, spec)
            weights[spec.arg.name] = variable(spec.arg.name, list(held.shape), held)
    return weights, inputs, dict(_ranges(program, symbols))


def _extent(extent: Any) -> int | str:
    """The number that an extent is, or what torch writes for it."""
    written = str(extent if isinstance(extent, int) else extent.node.expr)
    return int(written) if written.isdigit() else written


def _held(program: ExportedProgram, spec: Any) -> Any:
    for held in (program.state_dict, program.constants, dict(program.named_buffers())):
        if spec.target in held and hasattr(held[spec.target], "shape"):
            return held[spec.target]
    raise ImportRefusedError(f"the input `{spec.arg.name}` is a {spec.kind.name.lower()}, not a tensor")


def _ranges(
    program: ExportedProgram, symbols: Mapping[str, Node]
) -> Iterator[tuple[str, tuple[int, int | None]]]:
    for symbol, values in program.range_constraints.items():
        variable = symbols.get(str(symbol))
        lower = 0 if math.isinf(float(values.lower)) else int(values.lower)
        upper = None if math.isinf(float(values.upper)) else int(values.upper)
        if variable is not None and (lower > 0 or upper is not None):
            yield str(variable.name), (lower, upper)


_TARGET = re.compile(
    r"torch\.ops\.\w+\.\w+(\.\w+)?|torch\._?sym_\w+|math\.\w+|_operator\.(?!attrgetter|itemgetter|methodcaller|call)\w+"
)
_SIZE_NODES = (
    *(ast.BinOp, ast.UnaryOp, ast.Compare, ast.Name, ast.Call, ast.Load),
    *(ast.keyword, ast.operator, ast.unaryop, ast.cmpop),
)
_FUNCTION = re.compile(
    r"Symbol|Integer|Float|Rational|Add|Mul|Pow|Mod|PythonMod|\w*Div|Max|Min|ModularIndexing|Where|LShift|RShift|PowByNatural|FloatPow|\w+ToInt|ToFloat"
    r"|Identity|Abs|Eq|Ne|Ge|Gt|Le|Lt|And|Or|Not|floor|ceiling|OpaqueUnaryFn_\w+|BitwiseFn_\w+"
)
_WORD = re.compile(r"[\w.+-]*", re.ASCII)
_CODE = re.compile(r"/(aotinductor|custom_obj|opaque)|\.(so|cpp|py|cubin|ptx)$")
_MODEL = re.compile(r"(^|/)(models/[^/]+|serialized_exported_program)\.json$")
_MOST_JSON = 1 << 30  # bytes: a bomb of a few kilobytes unpacks to any size
_HINT = "a file that you trust can be read with --trust"


# -- archives, looked through before torch loads them: its loader evaluates and unpickles
#
# Graphs whose sizes are arithmetic and whose operators are torch's may pass, and tensors.


@contextmanager
def guarded(data: bytes, *, trust: bool) -> Iterator[None]:
    """Let torch load the archive `data` within; unless `trust`, it then unpickles nothing but tensors.

    Raises UnreadableError where `data` is no such archive, or holds what torch would run.
    """
    with _opened(data) as archive:
        _check(archive, trust)
    with mock.patch.dict(os.environ, {} if trust else {"TORCH_FORCE_WEIGHTS_ONLY_LOAD": "1"}):
        yield


def _opened(data: bytes) -> zipfile.ZipFile:
    if not data.strip():
        raise UnreadableError("the file is empty")
    try:
        return zipfile.ZipFile(io.BytesIO(data))
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        cut = data.startswith(b"PK")
        raise UnreadableError(
            "the archive is truncated or damaged" if cut else "it is no archive of torch.export",
            hint=None if cut else "write the program with torch.export.save(program, file)",
        ) from error


def _check(archive: zipfile.ZipFile, trust: bool) -> None:
    names = archive.namelist()
    if not any(map(_MODEL.search, names)):
        compiled = any("/aotinductor/" in name for name in names)
        what = "an archive of compiled code (AOTInductor)" if compiled else "an archive"
        raise UnreadableError(
            f"it is {what} without an exported program",
            hint="write the program with torch.export.save(program, file)",
        )
    if trust:
        return
    for name in names:
        if _CODE.search(name):
            raise UnreadableError(f"not loaded: the archive holds {name}, which is code", hint=_HINT)
        if name.endswith(".json"):
            for found in _objects(_document(archive, name)):
                size, target = found.get("expr_str"), found.get("target")
                if isinstance(size, str) and not _is_size(size):
                    raise UnreadableError(f"not loaded: the size {size[:80]!r} is no arithmetic", hint=_HINT)
                if isinstance(target, str) and "inputs" in found and not _TARGET.fullmatch(target):
                    raise UnreadableError(f"not loaded: {target[:80]!r} is no operator of torch", hint=_HINT)


def _require_operators(data: bytes) -> None:
    """Raise UnreadableError where the program calls operators of a library that torch has not loaded."""
    import torch

    with _opened(data) as archive:
        graphs = [_document(archive, name) for name in archive.namelist() if _MODEL.search(name)]
    targets = {str(found.get("target")) for graph in graphs for found in _objects(graph) if "inputs" in found}
    names = [name.split(".")[2:4] for name in sorted(targets) if name.startswith("torch.ops.")]
    missing = [name for name in names if not hasattr(getattr(torch.ops, name[0]), name[-1])]
    if missing:
        quantised = any(library.startswith("quantized") for library, *_ in missing)
        known = "quantised operators; export the model before it is quantised" if quantised else "them either"
        unknown = listed([".".join(name) for name in missing])
        raise UnreadableError(f"torch knows no {unknown} here", hint=f"TVM's importer does not know {known}")


def _document(archive: zipfile.ZipFile, name: str) -> object:
    try:
        if archive.getinfo(name).file_size > _MOST_JSON:
            raise UnreadableError(f"{name} in the archive unpacks to more than 1 GiB")
        return json.loads(archive.read(name))
    except (zipfile.BadZipFile, zlib.error, ValueError, RecursionError, OSError, EOFError) as error:
        raise UnreadableError(f"the archive is damaged: {name} cannot be read") from error


def _objects(document: object) -> Iterator[dict[str, object]]:
    """The objects of a document of JSON, whatever they lie in."""
    pending = [document]
    while pending:
        match pending.pop():
            case dict() as found:
                yield found
                pending.extend(found.values())
            case list() as items:
                pending.extend(items)


def _is_size(text: str) -> bool:
    """Return whether `text` is arithmetic on names and numbers; torch evaluates it as Python."""
    inside = expression_of(text)
    return inside is not None and all(map(_is_size_node, ast.walk(inside)))


def _is_size_node(node: ast.AST) -> bool:
    match node:
        case ast.Constant(value=str() as word):
            return _WORD.fullmatch(word) is not None
        case ast.Constant(value=value):
            return isinstance(value, int | float)
        case ast.Call(func=func):
            return isinstance(func, ast.Name) and _FUNCTION.fullmatch(func.id) is not None
    return isinstance(node, _SIZE_NODES)
