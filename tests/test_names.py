"""One name for one thing, no import circles, docstrings that say what a thing is, files of fit length."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from benchmarks import ablate, ablate_layers, ablate_passes, ablate_pool, ablate_prover, ablate_stacking
from benchmarks.harness import patched
from benchmarks.mechanism import Mechanism
from benchmarks.structure import importers, numeric_constants, trees

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "symalloc"
LONGEST = 600  # lines of a file
MOST_ALONE = 40  # modules that one other imports
MOST_NUMBERS = 70  # constants of the planner
RIDDLES = ("What", "Where", "Whether", "How")  # a summary line says what a thing is or does

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def _classes_of_one_name() -> Iterator[str]:
    classes = ((module, node) for module, tree in trees().items() for node in ast.walk(tree))
    return _of_one_name((node.name, module) for module, node in classes if isinstance(node, ast.ClassDef))


def _modules_of_one_name() -> Iterator[str]:
    modules = (path for path in PACKAGE.rglob("*.py") if path.stem not in ("__init__", "__main__"))
    return _of_one_name((path.stem, str(path.relative_to(ROOT))) for path in modules)


def _of_one_name(named: Iterable[tuple[str, str]]) -> Iterator[str]:
    found = defaultdict(set)
    for name, where in named:
        found[name].add(where)
    yield from (f"{name}: {' '.join(sorted(where))}" for name, where in found.items() if len(where) > 1)


def _import_circles() -> Iterator[str]:
    edges = {module: set(_imported(tree)) for module, tree in trees().items()}
    reached = {module: _reached(module, edges) for module in edges}
    circles = {frozenset(m for m in reached[module] if module in reached[m]) for module in edges}
    yield from (" ".join(sorted(circle)) for circle in circles if circle)


def _imported(tree: ast.Module) -> Iterator[str]:
    """Return the modules of the package that a file imports, wherever in it, or names for `import_module`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in trees())
        elif isinstance(node, ast.ImportFrom) and node.module:
            full = {f"{node.module}.{alias.name}" for alias in node.names} & trees().keys()
            yield from full or {node.module} & trees().keys()
        elif isinstance(node, ast.Constant) and node.value != "symalloc" and node.value in trees():
            yield str(node.value)


def _reached(start: str, edges: Mapping[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        for module in edges[waiting.pop()] - seen:
            seen.add(module)
            waiting.append(module)
    return seen


def _riddles(tree: ast.AST, public: bool = True) -> Iterator[tuple[str, bool]]:
    """Return the definitions whose docstrings begin with a question word, each with whether it is public."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Definition):
            open_ = public and (not node.name.startswith("_") or node.name.startswith("__"))
            if (ast.get_docstring(node) or "").startswith(RIDDLES):
                yield node.name, open_
            yield from _riddles(node, open_)
        elif not isinstance(node, ast.expr):
            yield from _riddles(node, public)


def _riddles_of(public: bool) -> Iterator[str]:
    for module, tree in trees().items():
        if (ast.get_docstring(tree) or "").startswith(RIDDLES) and public:
            yield module
        yield from (f"{module}:{name}" for name, shown in _riddles(tree) if shown is public)


def _long_files() -> Iterator[str]:
    for folder, ending in (("symalloc", "py"), ("benchmarks", "py"), ("native", "cc"), ("native", "h")):
        for path in (ROOT / folder).rglob(f"*.{ending}"):
            if len(path.read_text().splitlines()) > LONGEST:
                yield str(path.relative_to(ROOT))


CHECKS: Mapping[str, Callable[[], Iterator[str]]] = {
    "classes of one name": _classes_of_one_name,
    "modules of one name": _modules_of_one_name,
    "import circles": _import_circles,
    "public docstrings that begin with a question word": lambda: _riddles_of(True),
    "private docstrings that begin with a question word": lambda: _riddles_of(False),
    f"files over {LONGEST} lines": _long_files,
}


def test_few_modules_have_one_importer() -> None:
    alone = [module for module, by in importers().items() if len(by) == 1]
    assert len(alone) <= MOST_ALONE, f"merge some of {sorted(alone)} into the one that imports them"


def test_the_planner_has_few_numbers() -> None:
    numbers = list(numeric_constants(PACKAGE / "planner"))
    assert len(numbers) <= MOST_NUMBERS, f"remove or share some of {numbers}"


@pytest.mark.parametrize("name", CHECKS)
def test_there_are_no(name: str) -> None:
    assert sorted(CHECKS[name]()) == []


def test_what_an_ablation_leaves_out_is_there() -> None:
    """Or a row would end the benchmark, or say too few lines."""
    tables = [one for one in (*vars(ablate).values(), ablate_passes.PASSES) if isinstance(one, dict)]
    rows = [row for table in tables for row in table.values() if isinstance(row, Mechanism)]
    assert len(rows) > 20
    for row in rows:
        assert row.lines >= 0
    others = (ablate_prover.LAYERS, ablate_layers.WITHOUT, ablate_stacking.STACKING)
    for stand_ins in (*(row.stand_ins for row in rows), *(one for table in others for one in table.values())):
        with patched(stand_ins):
            pass
    for mechanism in ablate_pool.MECHANISMS.values():
        assert mechanism.line in (ablate_pool.ROOT / "native" / "pool" / mechanism.file).read_text()
