"""The one loader: what an argument names, opened, and its modules read one by one."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import tvm

from symalloc.program.reading import UnreadableError
from symalloc.program.span import Source
from symalloc.relax.ir_types import Node
from symalloc.relax.read.find_files import SUFFIXES, kind_of, model_function
from symalloc.relax.read.onnx_model import load_onnx
from symalloc.relax.read.python_object import load_function
from symalloc.relax.read.script import ModuleRead, ScriptReader
from symalloc.relax.read.script_file import Script, decode, parse_text, read_bytes
from symalloc.relax.read.torch_program import load_torch
from symalloc.relax.tvm_error import error_text

_GZIP = b"\x1f\x8b"
# what is code rather than description: a library that loading links in, a function that type inference calls
_CODE = frozenset({"ffi.Function", "ffi.Module", "runtime.Module", "runtime.PackedFunc"})
_INFERENCE_PREFIXES = ("relax.", "tvm.relax.")
_MAX_BYTES = 4 << 30  # a bomb of a few kilobytes unpacks to any size
_WRITE = "write the module with tvm.ir.save_json(mod)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleEntry:
    """A module of a file; `line` is where it stands in a script, `checked`: it must be well-formed."""

    name: str
    line: int | None = None
    checked: bool = True


def open_model(path: Path, *, trust: bool = False, data: bytes | None = None) -> ModelFile:
    """Open what `path` names: a file, or `file.py:function`.

    `data` is the content of `path` where that is not in a file.  TVMScript, JSON of TVM, plain or gzipped,
    ONNX models and programs of torch.export are told apart by their names, else by their content.  `trust`
    lets them run whatever they hold.  Raises UnreadableError.
    """
    function = model_function(path) if data is None else None
    if function is not None:
        return SingleModel(function.name, lambda: load_function(function, trust=trust))
    content = read_bytes(path) if data is None else data
    kind = kind_of(path, content)
    if kind == "script":
        return ScriptModel(str(path), content, trust=trust)
    suffix = max((s for s in SUFFIXES if path.name.endswith(s)), key=len, default="")
    load = _LOADERS[kind]
    return SingleModel(path.name.removesuffix(suffix).strip("<>"), lambda: load(path, content, trust))


class ScriptModel:
    """A file of TVMScript; it is parsed when its modules are asked for."""

    def __init__(self, file: str, data: bytes, *, trust: bool = False) -> None:
        self.source = Source(file=file, text=decode(data))
        self._trust = trust

    @cached_property
    def script(self) -> Script:
        """The syntax tree.  Raises UnreadableError where there is none, or it holds no module."""
        script = parse_text(self.source.file, self.source.text)
        if not script.modules:
            raise UnreadableError(
                "it holds no Relax module",
                hint="a module is a class decorated with @I.ir_module, or a function decorated with "
                "@R.function",
            )
        return script

    @property
    def entries(self) -> Sequence[ModuleEntry]:
        """The modules of the script.  Raises UnreadableError."""
        return [
            ModuleEntry(name=each.name, line=each.line, checked=each.wants_check)
            for each in self.script.modules
        ]

    @cached_property
    def _reader(self) -> ScriptReader:
        return ScriptReader(self.script, trust=self._trust)

    def read(self, index: int) -> ModuleRead:
        """The module with that index, or what is wrong with it.  Raises UnreadableError."""
        return self._reader.read(self.script.modules[index])


@dataclass(frozen=True, slots=True)
class SingleModel:
    """A file that is one module."""

    name: str
    load: Callable[[], Node]
    source: Source | None = None

    @property
    def entries(self) -> Sequence[ModuleEntry]:
        """The one module."""
        return [ModuleEntry(name=self.name)]

    def read(self, index: int) -> ModuleRead:
        """The module.  Raises UnreadableError."""
        return ModuleRead(mod=self.load())


ModelFile: TypeAlias = ScriptModel | SingleModel
"""An opened file: its modules, and its text where it is a script."""


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
