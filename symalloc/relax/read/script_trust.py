"""What a trusted file defines outside its modules, found by running that part of it.

With --trust a script may use whatever the file imports or computes.  The file is still not imported: its code
is run without the decorated classes and functions, which are parsed one by one like those of any file, so
that one ill-formed module does not hide the others.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from symalloc.relax.read.script_file import Imported, Script, dialect_path


class TrustedCodeError(Exception):
    """The module-level code of a trusted file raised; the text says what and where."""


def trusted_names(script: Script) -> dict[str, object]:
    """The module-level names of `script` after its code ran, as far as the guard does not know them.

    The code runs with `__name__` set to the file's stem, so that `if __name__ == "__main__":` does not, and
    with the file's folder on the import path.  Nothing runs where every name is a constant or an import of
    the dialect.  Raises TrustedCodeError.
    """
    if not _needs_running(script):
        return {}
    path = Path(script.file)
    scope: dict[str, object] = {"__name__": path.stem, "__file__": str(path)}
    tree = _Undecorated(script).visit(ast.parse(script.text))
    sys.path.insert(0, str(path.resolve().parent))
    try:
        exec(compile(ast.fix_missing_locations(tree), str(path), "exec"), scope)
    except (Exception, SystemExit) as error:
        raise TrustedCodeError(f"its module-level code raised {type(error).__name__}: {error}") from error
    finally:
        sys.path.pop(0)
    return {name: value for name, value in scope.items() if not name.startswith("__")}


def _needs_running(script: Script) -> bool:
    defined = {name for name, binding in script.bindings.items() if not _is_known(binding)}
    used = {n.id for m in script.modules for n in ast.walk(m.node) if isinstance(n, ast.Name)}
    return not script.modules or bool(defined & used - {m.node.name for m in script.modules})


def _is_known(binding: object) -> bool:
    if isinstance(binding, Imported):
        return (
            binding.path.split(".")[0] == "tvm" and binding.path.count(".") <= 2 and "script" in binding.path
        )
    return type(binding).__name__ in ("Constant", "ModuleSymbol", "Metadata")


class _Undecorated(ast.NodeTransformer):
    """Drops the modules, which are parsed by themselves."""

    def __init__(self, script: Script) -> None:
        self._bindings = script.bindings

    def _keep(self, node: ast.ClassDef | ast.FunctionDef) -> ast.AST:
        calls = (d.func if isinstance(d, ast.Call) else d for d in node.decorator_list)
        entries = ("I.ir_module", "R.function", "T.prim_func")
        if any(dialect_path(call, self._bindings) in entries for call in calls):
            return ast.copy_location(ast.Pass(), node)
        return node

    visit_ClassDef = visit_FunctionDef = _keep  # noqa: N815
