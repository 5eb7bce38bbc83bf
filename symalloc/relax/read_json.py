"""IRModules from the JSON that tvm.ir.save_json writes, plain or gzipped."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import tvm

__all__ = ["JsonError", "load_module"]

_GZIP = b"\x1f\x8b"
_MAX_BYTES = 4 << 30  # a bomb of a few kilobytes unpacks to any size


class JsonError(Exception):
    """The bytes are no module that can be loaded; `hint` says what to do about it."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


def load_module(data: bytes) -> Any:
    """The IRModule that `data` describes.  Raises JsonError.

    The shape of the document is checked before TVM sees it, because TVM's loader aborts the process on some
    of what it does not expect.
    """
    text = _text(_unpacked(data))
    _check_graph(text)
    try:
        loaded = tvm.ir.load_json(text)
    except Exception as error:  # the loader raises KeyError, TypeError, AttributeError, InternalError …
        raise JsonError(f"TVM cannot load it: {_reason(error)}", _version_hint(text)) from error
    return _as_module(loaded)


def _unpacked(data: bytes) -> bytes:
    if not data.startswith(_GZIP):
        return data
    unpacker = zlib.decompressobj(wbits=31)
    try:
        text = unpacker.decompress(data, _MAX_BYTES)
    except (zlib.error, gzip.BadGzipFile) as error:
        raise JsonError(f"it is no valid gzip file: {error}") from error
    if not unpacker.eof:
        raise JsonError("the gzip file is truncated or unpacks to more than 4 GiB")
    return text


def _text(data: bytes) -> str:
    if not data.strip():
        raise JsonError("the file is empty")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise JsonError("it is a binary file, not JSON text") from error


def _check_graph(text: str) -> None:
    document = _document(text)
    nodes = document.get("nodes") if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(nodes, list) or "root_index" not in document:
        raise JsonError(
            "it is JSON, but not a graph written by tvm.ir.save_json",
            "write the module with tvm.ir.save_json(mod)",
        )
    root = document["root_index"]
    if not _is_index(root, len(nodes)):
        raise JsonError(f"the graph is damaged: its root is node {root!r} of {len(nodes)}")
    for number, node in enumerate(nodes):
        _check_node(number, node)


def _document(text: str) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        cut = error.pos >= len(text.rstrip()) - 1
        what = (
            "the JSON ends too early: the file is truncated" if cut else f"it is not valid JSON: {error.msg}"
        )
        raise JsonError(f"{what} (line {error.lineno}, column {error.colno})") from error
    except RecursionError as error:
        raise JsonError("its JSON is nested too deeply to be a module") from error


def _is_index(value: object, count: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < count


def _check_node(number: int, node: object) -> None:
    if not isinstance(node, dict) or not isinstance(node.get("type"), str):
        raise JsonError(f"the graph is damaged: node {number} has no type")


def _reason(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def _version_hint(text: str) -> str | None:
    written = json.loads(text).get("metadata", {}).get("tvm_version")
    if written is None or written == tvm.__version__:
        return None
    return f"it was written by TVM {written}; this is TVM {tvm.__version__}"


def _as_module(loaded: object) -> Any:
    if isinstance(loaded, tvm.IRModule):
        return loaded
    if isinstance(loaded, tvm.relax.Function | tvm.tirx.PrimFunc):
        name = loaded.attrs["global_symbol"] if loaded.attrs and "global_symbol" in loaded.attrs else "main"
        return tvm.IRModule({str(name): loaded})
    raise JsonError(
        f"it holds no Relax module but a {type(loaded).__name__}",
        "write the module with tvm.ir.save_json(mod)",
    )
