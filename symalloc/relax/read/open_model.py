"""The one loader: what an argument names, opened, and its modules read one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

from symalloc.program.reading import UnreadableError
from symalloc.program.span import Source
from symalloc.relax.ir_types import Node
from symalloc.relax.read.json import load_module
from symalloc.relax.read.model_file import SUFFIXES, ModelKind, kind_of, model_function
from symalloc.relax.read.python_object import load_function
from symalloc.relax.read.script import ModuleRead, ScriptReader
from symalloc.relax.read.script_file import Script, decode, parse_text, read_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleEntry:
    """A module of a file; `line` is where it stands in a script, `checked`: it must be well-formed."""

    name: str
    line: int | None = None
    checked: bool = True


class ModelFile(Protocol):
    """An opened file.  `source` is its text where that is a script, `entries` its modules."""

    @property
    def source(self) -> Source | None:
        """The user's own text; None for what is no script."""

    @property
    def entries(self) -> Sequence[ModuleEntry]:
        """The modules of the file, at least one.  Raises UnreadableError."""

    def read(self, index: int) -> ModuleRead:
        """The module with that index.  Raises UnreadableError."""


def open_model(path: Path, *, trust: bool = False, data: bytes | None = None) -> ModelFile:
    """Open what `path` names: a file, or `file.py:function`.

    `data` is the content of `path` where that is not in a file.  TVMScript, JSON of TVM, plain or gzipped,
    ONNX models and programs of torch.export are told apart by their names, else by their content.  `trust`
    lets them run whatever they hold.  Raises UnreadableError.
    """
    function = model_function(path) if data is None else None
    if function is not None:
        return _SingleModel(function.name, lambda: load_function(function, trust=trust))
    content = read_bytes(path) if data is None else data
    kind = kind_of(path, content)
    if kind == "script":
        return ScriptModel(str(path), content, trust=trust)
    return _SingleModel(_bare_name(path), _loader(kind, path, content, trust))


def _loader(kind: ModelKind, path: Path, data: bytes, trust: bool) -> Callable[[], Node]:
    if kind == "json":
        return lambda: load_module(data, trust=trust)
    if kind == "onnx":
        from symalloc.relax.read.onnx_model import load_onnx

        return lambda: load_onnx(path, data)
    from symalloc.relax.read.torch_program import load_torch

    return lambda: load_torch(path, data, trust=trust)


def _bare_name(path: Path) -> str:
    suffix = max((s for s in SUFFIXES if path.name.endswith(s)), key=len, default="")
    return path.name.removesuffix(suffix).strip("<>")


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
class _SingleModel:
    """A file that is one module."""

    name: str
    load: Callable[[], Node]
    source: Source | None = None

    @property
    def entries(self) -> Sequence[ModuleEntry]:
        return [ModuleEntry(name=self.name)]

    def read(self, index: int) -> ModuleRead:
        return ModuleRead(mod=self.load())
