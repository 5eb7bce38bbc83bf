"""Kernels compiled once, not optimised: most of a test that runs a module is LLVM's work.

Many tests build a module in several ways, whose kernels are the same, and many modules have the kernel `exp`.
What is new of a module is compiled into one library, until the module is exported.  The library is kept for
all processes and for later runs, beside what it was compiled from: a kernel that differs from it in names of
variables and in places of its text alone is the same.  The nightly run compiles everything.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple

_FOLDER = Path(__file__).parent.parent / ".pytest_cache" / "libraries"  # "kernels" held one file each
_LIBRARY, _SOURCE = "library.txt", "kernel.json"


class _Options(NamedTuple):
    """All that a kernel is compiled by, besides itself."""

    target: str
    pipeline: Any
    config: str
    opt_level: int
    attributes: str


def compile_kernels_once() -> None:
    """Have TVM keep what it makes of each kernel."""
    import tvm

    if hasattr(tvm.tirx.build, "__wrapped__"):
        return
    build = sys.modules["tvm.tirx.build"]
    compile_module = build.codegen_build  # type: ignore[attr-defined]
    build.codegen_build = lambda mod, target: compile_module(mod, _unoptimised(target))  # type: ignore[attr-defined]
    tvm.tirx.build = _once(tvm.tirx.build)


def _once(build: Any) -> Any:
    """`build`, which keeps the kernels built so far; where passes are watched, all of them run."""
    import tvm
    from tvm import relax

    kept = _Kept(build)
    in_parts: dict[Any, Callable[[], Any]] = {}
    _export_whole(in_parts)

    @wraps(build)
    def built(mod: Any, target: Any = None, pipeline: Any = "default") -> Any:
        context = tvm.transform.PassContext.current()
        read = target is not None and tvm.target.Target(target).kind.name != "llvm"  # source, not code to run
        if not isinstance(mod, tvm.IRModule) or context.instruments or tvm.target.Target.current() or read:
            return build(mod, target, pipeline)
        options = _Options(str(target), pipeline, str(context.config), context.opt_level, str(mod.attrs))
        kernels = [tvm.IRModule({name: one}, attrs=mod.attrs) for name, one in mod.functions_items()]
        found = (
            _in_order(kept.compiled(kernels, target, options)) if all(map(_stands_alone, kernels)) else None
        )
        if found is None:
            return build(mod, target, pipeline)
        whole = relax.ExecBuilder().get().mod  # of no functions: those of its imports are found
        for library in found:
            whole.import_module(library.module)

        def again() -> Any:
            with context:
                return build(mod, target, pipeline)

        in_parts[whole] = again
        return whole

    return built


def _export_whole(in_parts: dict[Any, Callable[[], Any]]) -> None:
    """Have TVM export what is in parts as one library: each part brings what a linker takes once."""
    import tvm

    export = tvm.runtime.Module.export_library

    @wraps(export)
    def exported(module: Any, *given: Any, **named: Any) -> Any:
        for part in module._collect_from_import_tree(in_parts.__contains__):
            part.clear_imports()
            part.import_module(in_parts[part]())
        return export(module, *given, **named)

    tvm.runtime.Module.export_library = exported


@dataclass(frozen=True, slots=True, eq=False)
class _Library:
    """Kernels that were compiled together, and their names."""

    module: Any
    names: frozenset[str]


def _in_order(found: Mapping[str, _Library]) -> Sequence[_Library] | None:
    """The libraries of kernels by name, each in front of those with others of a name; None if none is."""
    left, order = dict.fromkeys(found.values()), []
    while left:
        for one in left:
            if not any(found[name] is not one and found[name] in left for name in one.names & found.keys()):
                break
        else:
            return None
        del left[one]
        order.append(one)
    return order


class _Kept:
    """The libraries of kernels that call no other."""

    def __init__(self, build: Any) -> None:
        self._build = build
        self._found: dict[tuple[int, _Options], list[tuple[Any, _Library]]] = {}
        self._loaded: dict[str, _Library] = {}

    def compiled(self, kernels: Sequence[Any], target: Any, options: _Options) -> Mapping[str, _Library]:
        """The library of each kernel, a module of its own, by name; what is new is compiled together."""
        known = {_name(kernel): self._known(kernel, options) for kernel in kernels}
        missing = [kernel for kernel in kernels if known[_name(kernel)] is None]
        if missing:
            made = self._made(missing, target, options)
            for kernel in missing:
                self._found[_key(kernel, options)].append((kernel, made))
                known[_name(kernel)] = made
        return known  # type: ignore[return-value]

    def _known(self, kernel: Any, options: _Options) -> _Library | None:
        import tvm
        import tvm_ffi

        known = self._found.setdefault(_key(kernel, options), [])
        for other, library in known:
            if tvm_ffi.structural_equal(kernel, other, map_free_vars=True):
                return library
        kept = _folder_of(kernel, options)
        if not isinstance(options.pipeline, str) or not kept.exists():
            return None
        other = tvm.ir.load_json((kept / _SOURCE).read_text())
        if not tvm_ffi.structural_equal(kernel, other, map_free_vars=True):
            return None
        file, *names = (kept / _LIBRARY).read_text().splitlines()
        known.append((kernel, self._library(file, names)))
        return self._library(file, names)

    def _made(self, kernels: Sequence[Any], target: Any, options: _Options) -> _Library:
        """Compile kernels into a library, which is kept in a file; another process may be quicker."""
        import tvm

        whole = tvm.IRModule(dict(one.functions_items()[0] for one in kernels), attrs=kernels[0].attrs)
        built, names = self._build(whole, target, options.pipeline), [*map(_name, kernels)]
        if not isinstance(options.pipeline, str):
            return _Library(built, frozenset(names))
        _FOLDER.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_FOLDER) as folder:
            code, file = Path(folder) / "kernels.o", Path(f"{folder}.so")
            built.write_to_file(str(code), "o")
            subprocess.run(["ld", "-shared", "-o", file, code], check=True)
            for name, kernel in zip(names, kernels, strict=True):
                made = Path(folder) / name
                made.mkdir()
                (made / _SOURCE).write_text(tvm.ir.save_json(kernel))
                (made / _LIBRARY).write_text("\n".join([file.name, *names]))
                with suppress(OSError):
                    made.rename(_folder_of(kernel, options))
        return self._library(file.name, names)

    def _library(self, file: str, names: Sequence[str]) -> _Library:
        import tvm

        if file not in self._loaded:
            self._loaded[file] = _Library(tvm.runtime.load_module(str(_FOLDER / file)), frozenset(names))
        return self._loaded[file]


def _name(kernel: Any) -> str:
    ((_, function),) = kernel.functions_items()
    return str(function.attrs["global_symbol"])


def _key(kernel: Any, options: _Options) -> tuple[int, _Options]:
    import tvm_ffi

    return tvm_ffi.structural_hash(kernel, map_free_vars=True), options


def _folder_of(kernel: Any, options: _Options) -> Path:
    import tvm

    compiled_by = hashlib.sha256(f"{tvm.__version__} {options}".encode()).hexdigest()[:16]
    return _FOLDER / f"{compiled_by}-{_key(kernel, options)[0]:016x}"


def _stands_alone(kernel: Any) -> bool:
    """Whether it is a kernel, not a function of Relax that was compiled, and calls no other."""
    import tvm
    import tvm_ffi

    ((name, function),) = kernel.functions_items()
    if "global_symbol" not in (function.attrs or ()) or name.name_hint.startswith("__vmtir__"):
        return False
    called: list[Any] = []
    tvm_ffi.structural_walk(function, ((tvm.ir.GlobalVar, called.append),))
    return not called


def _unoptimised(target: Any) -> Any:
    import tvm

    if target.kind.name != "llvm" or target.attrs.get("opt-level", 0):
        return target
    return tvm.target.Target({**target.export(), "opt-level": 0, "cl-opt": ["-fast-isel:bool=1"]})
