"""The one loader: what an argument names, opened, and its modules read one by one."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import tvm

from symalloc.program.reading import ReadProblem, UnreadableError
from symalloc.program.span import Source
from symalloc.relax.ir_types import Node
from symalloc.relax.read.find_files import SUFFIXES, kind_of, model_function
from symalloc.relax.read.onnx_model import load_onnx
from symalloc.relax.read.python_object import load_function
from symalloc.relax.read.script import parse_module, trusted_names
from symalloc.relax.read.script_file import decode, parse_text, read_bytes
from symalloc.relax.read.torch_program import load_torch
from symalloc.relax.tvm_error import error_text

_GZIP = b"\x1f\x8b"
# what is code rather than description: a library that loading links in, a function that type inference calls
_CODE = frozenset({"ffi.Function", "ffi.Module", "runtime.Module", "runtime.PackedFunc"})
_INFERENCE_PREFIXES = ("relax.", "tvm.relax.")
_MAX_BYTES = 4 << 30  # a bomb of a few kilobytes unpacks to any size
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
    _check_graph(text, trust)
    try:
        loaded = tvm.ir.load_json(text)
    except Exception as error:  # the loader raises KeyError, TypeError, AttributeError, InternalError …
        raise UnreadableError(f"TVM cannot load it: {error_text(error)}", hint=_version_hint(text)) from error
    if isinstance(loaded, tvm.relax.Function | tvm.tirx.PrimFunc):
        name = loaded.attrs["global_symbol"] if loaded.attrs and "global_symbol" in loaded.attrs else "main"
        return tvm.IRModule({str(name): loaded})
    if not isinstance(loaded, tvm.IRModule):
        raise UnreadableError(
            f"it holds no Relax module but an object of type {type(loaded).__name__}", hint=_WRITE
        )
    return loaded


def _text(data: bytes) -> str:
    if data.startswith(_GZIP):
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


def _check_graph(text: str, trust: bool) -> None:
    document = _document(text)
    nodes = document.get("nodes") if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(nodes, list) or "root_index" not in document:
        raise UnreadableError(
            "it is JSON, but not a graph written by tvm.ir.save_json",
            hint=_WRITE,
        )
    root = document["root_index"]
    if not isinstance(root, int) or isinstance(root, bool) or not 0 <= root < len(nodes):
        raise UnreadableError(f"the graph is damaged: its root is node {root!r} of {len(nodes)}")
    for number, node in enumerate(nodes):
        _check_node(number, node, trust)


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
    is_call_back = kind == "ir.EnvFunc" and not str(node.get("data")).startswith(_INFERENCE_PREFIXES)
    if kind in _CODE or is_call_back:
        raise UnreadableError(
            f"not loaded: node {number} is a {kind}, which is code",
            hint="a file that you trust can be read with --trust",
        )


def _version_hint(text: str) -> str | None:
    written = json.loads(text).get("metadata", {}).get("tvm_version")
    if written is None or written == tvm.__version__:
        return None
    return f"it was written by TVM {written}; this is TVM {tvm.__version__}"


_LOADERS: Mapping[str, Callable[[Path, bytes, bool], Node]] = {
    "json": lambda _, data, trust: load_module(data, trust=trust),
    "onnx": lambda path, data, _: load_onnx(path, data),
    "pt2": lambda path, data, trust: load_torch(path, data, trust=trust),
}
