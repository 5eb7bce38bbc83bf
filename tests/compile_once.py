"""Kernels compiled once, not optimised: most of a test that runs a module is LLVM's work.

Many tests build a module in several ways, whose kernels are the same, and many modules have the kernel `exp`.
Each kernel is a library of its own here, until a module is exported; it is kept in a folder, for all
processes and for later runs, beside what it was compiled from: a kernel that differs from that in names of
variables and in places of its text alone is the same.  The nightly run compiles everything.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple

_FOLDER = Path(__file__).parent.parent / ".pytest_cache" / "kernels"
_LIBRARY, _SOURCE = "kernel.so", "kernel.json"


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
        found = [kept.compiled(one, target, options) for one in kernels]
        if None in found:
            return build(mod, target, pipeline)
        whole = relax.ExecBuilder().get().mod  # of no functions: those of its imports are found
        for library in found:
            whole.import_module(library)

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


class _Kept:
    """The libraries of kernels; None for a kernel that needs others."""

    def __init__(self, build: Any) -> None:
        self._build = build
        self._found: dict[tuple[int, _Options], list[tuple[Any, Any]]] = {}

    def compiled(self, kernel: Any, target: Any, options: _Options) -> Any:
        """The library of one kernel, a module of its own."""
        import tvm_ffi

        key = tvm_ffi.structural_hash(kernel, map_free_vars=True), options
        known = self._found.setdefault(key, [])
        for other, library in known:
            if tvm_ffi.structural_equal(kernel, other, map_free_vars=True):
                return library
        library = self._from_file(kernel, target, options) if _stands_alone(kernel) else None
        known.append((kernel, library))
        return library

    def _from_file(self, kernel: Any, target: Any, options: _Options) -> Any:
        """The library in its file, which is written first where there is none."""
        import tvm
        import tvm_ffi

        if not isinstance(options.pipeline, str):
            return self._build(kernel, target, options.pipeline)
        compiled_by = hashlib.sha256(f"{tvm.__version__} {options}".encode()).hexdigest()[:16]
        kept = _FOLDER / f"{compiled_by}-{tvm_ffi.structural_hash(kernel, map_free_vars=True):016x}"
        if not kept.exists():
            self._write(kept, kernel, target, options.pipeline)
        other = tvm.ir.load_json((kept / _SOURCE).read_text())
        if not tvm_ffi.structural_equal(kernel, other, map_free_vars=True):
            return self._build(kernel, target, options.pipeline)
        return tvm.runtime.load_module(str(kept / _LIBRARY))

    def _write(self, kept: Path, kernel: Any, target: Any, pipeline: str) -> None:
        """Compile a kernel into a folder; another process may be quicker."""
        import tvm

        _FOLDER.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_FOLDER) as folder:
            made = Path(folder) / "made"
            made.mkdir()
            code = Path(folder) / "kernel.o"
            self._build(kernel, target, pipeline).write_to_file(str(code), "o")
            subprocess.run(["ld", "-shared", "-o", made / _LIBRARY, code], check=True)
            (made / _SOURCE).write_text(tvm.ir.save_json(kernel))
            with suppress(OSError):
                made.rename(kept)


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
