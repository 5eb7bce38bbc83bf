"""Archives of torch.export, looked through before torch loads them: its loader evaluates and unpickles.

What may pass: graphs whose sizes are arithmetic and whose operators are torch's, and tensors.
"""

from __future__ import annotations

import ast
import io
import json
import os
import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from symalloc.program.reading import UnreadableError

_TARGET = re.compile(
    r"torch\.ops\.\w+\.\w+(\.\w+)?|torch\._?sym_\w+|math\.\w+|_operator\.(?!attrgetter|itemgetter|methodcaller|call)\w+"
)
_SIZE_NODES = (
    *(ast.Expression, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Name, ast.Call, ast.Load),
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
            _check_graph(_document(archive, name))


def _document(archive: zipfile.ZipFile, name: str) -> object:
    try:
        if archive.getinfo(name).file_size > _MOST_JSON:
            raise UnreadableError(f"{name} in the archive unpacks to more than 1 GiB")
        return json.loads(archive.read(name))
    except (zipfile.BadZipFile, zlib.error, ValueError, RecursionError, OSError, EOFError) as error:
        raise UnreadableError(f"the archive is damaged: {name} cannot be read") from error


def _check_graph(document: object) -> None:
    pending = [document]
    while pending:
        match pending.pop():
            case dict() as found:
                _check_texts(found)
                pending.extend(found.values())
            case list() as items:
                pending.extend(items)


def _check_texts(found: dict[str, object]) -> None:
    size, target = found.get("expr_str"), found.get("target")
    if isinstance(size, str) and not _is_size(size):
        raise UnreadableError(f"not loaded: the size {size[:80]!r} is no arithmetic", hint=_HINT)
    if isinstance(target, str) and "inputs" in found and not _TARGET.fullmatch(target):
        raise UnreadableError(f"not loaded: {target[:80]!r} is no operator of torch", hint=_HINT)


def _is_size(text: str) -> bool:
    """Return whether `text` is arithmetic on names and numbers; torch evaluates it as Python."""
    try:
        nodes = list(ast.walk(ast.parse(text.strip(), mode="eval")))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return all(_is_size_node(node) for node in nodes)


def _is_size_node(node: ast.AST) -> bool:
    match node:
        case ast.Constant(value=value):
            return isinstance(value, int | float) or (
                isinstance(value, str) and _WORD.fullmatch(value) is not None
            )
        case ast.Call(func=ast.Name(id=name)):
            return _FUNCTION.fullmatch(name) is not None
        case ast.Call():
            return False
    return isinstance(node, _SIZE_NODES)


def _is_word(text: str) -> bool:
    return _WORD.fullmatch(text) is not None
