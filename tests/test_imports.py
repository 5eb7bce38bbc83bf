"""The rooms of the package import downwards only, and only some may import heavy libraries."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "symalloc"
# a room may import itself and those listed; the order is the architecture
MAY_IMPORT: dict[str, set[str]] = {
    "native": set(),
    "size": set(),
    "prover": {"size"},
    "program": {"size"},
    "analysis": {"program", "size"},
    "rulebook": {"size"},
    "planner": {"analysis", "native", "program", "prover", "size"},
    "pool": {"native"},
    "linter": {"analysis", "program", "prover", "rulebook", "size"},
    "relax": {"analysis", "native", "planner", "pool", "program", "prover", "size"},
    "report": {"analysis", "linter", "planner", "pool", "program", "prover", "rulebook", "size"},
    "session": {
        *("analysis", "linter", "planner", "pool", "program", "prover", "relax", "report", "rulebook"),
        *("native", "size", ""),
    },
    "editor": {"analysis", "linter", "program", "relax", "report", "rulebook", "session", "size"},
    "cli": {
        *("analysis", "editor", "linter", "native", "planner", "pool", "program", "prover", "relax"),
        *("report", "rulebook", "session", "size", ""),
    },
}
# within planning; what judges a plan knows nothing of how plans are made
PLAN_MAY_IMPORT: dict[str, set[str]] = {
    "memory_plan": set(),
    "interference": {"grid", "memory_plan"},
    "check": {"memory_plan"},
    "buffers": {*("grid", "memory_plan", "overflow_guards", "planned_program")},
    "overflow_guards": {"grid", "memory_plan"},
    "grid": set(),
    "stack": {"grid", "interference", "memory_plan"},
    "offsets": {"grid", "memory_plan", "stack"},
    "plan_functions": {
        *("buffers", "check", "overflow_guards", "memory_plan"),
        *("grid", "interference", "offsets", "planned_program", "stack"),
    },
    "planned_program": {"memory_plan"},
    "memory_report": {"interference", "memory_plan", "planned_program"},
    "packing": {"check", "grid", "interference", "memory_plan", "offsets", "stack"},
    "": set(),
}
# and at TVM's side
RELAX_MAY_IMPORT: dict[str, set[str]] = {
    "ir_types": set(),
    "rewrite": {"ir_types"},
    "source_spans": {"ir_types", "rewrite"},
    "extract": {"ir_types"},
    "read": {"emit", "ir_types", "source_spans"},
    "emit": {"extract", "ir_types", "rewrite"},
    "donation": {"emit", "extract", "ir_types", "rewrite"},
    "shrink": {"donation", "emit", "extract", "ir_types", "rewrite"},
    "passes": {"donation", "emit", "extract", "ir_types", "read", "rewrite", "shrink", "source_spans"},
    "workers": {"extract", "ir_types", "passes", "read"},
    "files": {
        *("donation", "emit", "extract", "ir_types", "passes", "read", "rewrite", "shrink", "source_spans"),
    },
    "run": {"extract", "files", "ir_types", "passes", "rewrite", "workers"},
    "": set(),
}
FOR_ALL = {"symalloc.errors", "symalloc.options", "symalloc.shown"}
"""Errors that any room may raise, checks of arguments, the table of options, how results show themselves."""
ONLY_IN = {
    "tvm": {"relax", "session"},  # the session names the types of what users give, and imports none
    "tvm_ffi": {"native", "pool", "relax"},
    "onnx": {"relax", "session"},
    "torch": {"relax", "session"},
    "networkx": {"planner"},
    "z3": {"prover"},
    "sympy": {"session", "size"},
    "click": {"cli"},
    "pygls": {"editor"},
    "lsprotocol": {"editor"},
}


@cache
def _imports(path: Path) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            found.append((node.lineno, node.module or ""))
    return found


def _all_imports(folder: Path) -> Iterator[tuple[Path, int, str]]:
    for path in sorted(folder.rglob("*.py")):
        yield from ((path, line, module) for line, module in _imports(path))


def test_no_import_is_relative() -> None:
    assert list(_all_imports(PACKAGE))


def _room(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and (PACKAGE / parts[1]).is_dir() else ""


@pytest.mark.parametrize("here", sorted(one.name for one in PACKAGE.iterdir() if any(one.glob("*.py"))))
def test_imports_point_downwards(here: str) -> None:
    for path, line, module in _all_imports(PACKAGE / here):
        root = module.split(".")[0]
        if root == "symalloc" and module not in FOR_ALL:
            allowed = {here, *MAY_IMPORT[here]}
            assert _room(module) in allowed, f"{path}:{line}: {here}/ may not import {module}"
        elif root in ONLY_IN:
            assert here in ONLY_IN[root], f"{path}:{line}: only {sorted(ONLY_IN[root])} may import {root}"


POOL_MAY_IMPORT: dict[str, set[str]] = {
    "pool_errors": set(),
    "pool_options": {"pool_errors"},
    "native_pool": {"pool_errors", "pool_options"},
    "trace": {"native_pool", "pool_errors", "pool_options"},
    "statistics_scope": {"native_pool", "pool_errors"},
    "instrumented_pool": {"native_pool", "pool_errors", "pool_options", "trace"},
    "": {"statistics_scope"},
}
WITHIN = {"planner": PLAN_MAY_IMPORT, "pool": POOL_MAY_IMPORT, "relax": RELAX_MAY_IMPORT}


@pytest.mark.parametrize("room", WITHIN)
def test_imports_within_a_room_point_downwards(room: str) -> None:
    for path, line, module in _all_imports(PACKAGE / room):
        here = path.relative_to(PACKAGE / room).with_suffix("").parts[0].removesuffix("__init__")
        parts = module.split(".")
        if parts[:2] == ["symalloc", room]:
            assert len(parts) > 2 or not here, f"{path}:{line}: name the module"
            target = parts[2] if len(parts) > 2 else ""
            allowed = {here, *WITHIN[room][here]}
            assert target in allowed, f"{path}:{line}: {here}/ may not import {module}"
