"""IRModules from the JSON that tvm.ir.save_json writes, plain or gzipped."""

from __future__ import annotations

import json
import zlib

import tvm

from symalloc.program.reading import UnreadableError
from symalloc.relax.ir_types import Node
from symalloc.relax.tvm_error import error_text

_GZIP = b"\x1f\x8b"
# what is code rather than description: a library that loading links in, a function that type inference calls
_CODE = frozenset({"ffi.Function", "ffi.Module", "runtime.Module", "runtime.PackedFunc"})
_INFERENCE_PREFIXES = ("relax.", "tvm.relax.")
_MAX_BYTES = 4 << 30  # a bomb of a few kilobytes unpacks to any size


def load_module(data: bytes, *, trust: bool = False) -> Node:
    """The IRModule that `data` describes.  Raises UnreadableError.

    A graph that holds code (a compiled library, a global function to call) is refused unless `trust`.  The
    shape of the document is checked before TVM sees it, because TVM's loader aborts the process on some of
    what it does not expect.
    """
    text = _text(_unpacked(data))
    _check_graph(text, trust)
    try:
        loaded = tvm.ir.load_json(text)
    except Exception as error:  # the loader raises KeyError, TypeError, AttributeError, InternalError …
        raise UnreadableError(f"TVM cannot load it: {error_text(error)}", hint=_version_hint(text)) from error
    return _as_module(loaded)


def _unpacked(data: bytes) -> bytes:
    if not data.startswith(_GZIP):
        return data
    unpacker = zlib.decompressobj(wbits=31)
    try:
        text = unpacker.decompress(data, _MAX_BYTES)
    except zlib.error as error:
        raise UnreadableError(f"it is no valid gzip file: {error}") from error
    if not unpacker.eof:
        raise UnreadableError("the gzip file is truncated or unpacks to more than 4 GiB")
    return text


def _text(data: bytes) -> str:
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
            hint="write the module with tvm.ir.save_json(mod)",
        )
    root = document["root_index"]
    if not _is_index(root, len(nodes)):
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


def _is_index(value: object, count: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < count


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


def _as_module(loaded: object) -> Node:
    if isinstance(loaded, tvm.IRModule):
        return loaded
    if isinstance(loaded, tvm.relax.Function | tvm.tirx.PrimFunc):
        name = loaded.attrs["global_symbol"] if loaded.attrs and "global_symbol" in loaded.attrs else "main"
        return tvm.IRModule({str(name): loaded})
    raise UnreadableError(
        f"it holds no Relax module but an object of type {type(loaded).__name__}",
        hint="write the module with tvm.ir.save_json(mod)",
    )
