"""One module from a file, to be planned or run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from symalloc.relax.read_json import JsonError, load_module
from symalloc.relax.read_script import read_script
from symalloc.relax.run_result import RunError
from symalloc.relax.script_file import ScriptError, parse_script, read_bytes
from symalloc.relax.script_trust import TrustedCodeError

__all__ = ["load_one", "modules_in_script"]


def load_one(path: Path, *, trust: bool = False, module: str | None = None) -> Any:
    """The IRModule in the file `path`: the one called `module` where there are several.  Raises RunError."""
    try:
        data = read_bytes(path)
        if path.suffix != ".py":
            return load_module(data)
        found = modules_in_script(str(path), data, trust=trust)
    except (ScriptError, JsonError) as error:
        hint = f"; {error.hint}" if error.hint else ""
        raise RunError(f"{path} cannot be read: {error}{hint}") from None
    except TrustedCodeError as error:
        raise RunError(f"{path} cannot be read: {error}") from None
    return _chosen(path, found, module)


def modules_in_script(file: str, data: bytes, *, trust: bool) -> dict[str, Any]:
    """The modules of a TVMScript file by name; raises RunError for one that cannot be read, ScriptError."""
    script = parse_script(file, data)
    found: dict[str, Any] = {}
    for read in read_script(script, trust=trust):
        if read.mod is None:
            problem = read.problems[0]
            line = f":{problem.span.line}" if problem.span else ""
            hint = f"; {problem.hint}" if problem.hint else ""
            raise RunError(f"{file}{line}: {problem.message}{hint}")
        found[read.name] = read.mod
    return found


def _chosen(path: Path, found: dict[str, Any], module: str | None) -> Any:
    names = ", ".join(found)
    if not found:
        raise RunError(f"{path} holds no Relax module")
    if module is not None and module not in found:
        raise RunError(f"{path} holds no module `{module}`; it holds {names}")
    if module is None and len(found) > 1:
        raise RunError(f"{path} holds {len(found)} modules; choose one with --module: {names}")
    return found[module] if module is not None else next(iter(found.values()))
