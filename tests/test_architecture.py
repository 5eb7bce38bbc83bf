"""docs/architecture.md names what there is: its links lead somewhere, and so do the names in backticks.

A path must exist.  `a.b`, `name()`, `snake_case` and `CamelCase` must be a module, class, function, method or
constant of symalloc, or a class of the native core; TVM's own names stand in FOREIGN.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "docs" / "architecture.md", ROOT / "CONTRIBUTING.md"]
PACKAGE = ROOT / "symalloc"
# of TVM and of the languages that the documents quote
FOREIGN = {"KillAfterLastUse", "StaticPlanBlockMemory", "IRModule", "VirtualMachine", "LegalizeOps"}
_PREFIXES = ("R.", "relax.", "tvm.", "vm.")
_NAME = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:\(\))?")
_TELLING = re.compile(r"\w+\.\w|\(\)$|[a-z]_[a-z]|^[A-Z][a-z0-9]+[A-Z]")  # looks like a name of code


@cache
def _defined() -> frozenset[str]:
    """Return all names of symalloc: of modules, of what they define, and `Class.member`."""
    names: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        names |= {module, module.rsplit(".", 1)[-1]}
        for name in _names_in(ast.parse(path.read_text())):
            names |= {name, f"{module}.{name}", f"{module.rsplit('.', 1)[-1]}.{name}"}
    for path in (p for p in (ROOT / "native").rglob("*.*") if p.suffix in (".h", ".cc")):
        names |= set(re.findall(r"\b(?:class|struct) (\w+)", path.read_text()))
    public = (PACKAGE / "__init__.pyi").read_text()
    return frozenset(names | {f"symalloc.{name}" for name in re.findall(r" as (\w+)$", public, re.MULTILINE)})


def _names_in(tree: ast.AST, prefix: str = "") -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from (prefix + node.name, node.name)
            if isinstance(node, ast.ClassDef):
                yield from _names_in(node, f"{node.name}.")
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (prefix + t.id for t in targets if isinstance(t, ast.Name))


def _text(path: Path) -> str:
    """Return the document without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)


def _is_dead(quoted: str) -> bool:
    if "/" in quoted and re.fullmatch(r"[\w.*-]+(/[\w.*-]+)*/?", quoted):
        return not any(_found(quoted.rstrip("/").replace("nnn", "*")))
    if not _NAME.fullmatch(quoted) or not _TELLING.search(quoted):
        return False
    name = quoted.removesuffix("()")
    if name == "libsymalloc.so":  # built when the package is installed, not in a clone
        return False
    if re.search(r"\.(py|md|toml|h|cc|pyi|json)$", name):
        return not any(_found(name))
    return name not in _defined() and name not in FOREIGN and not name.startswith(_PREFIXES)


def _found(path: str) -> Iterator[Path]:
    """Return what has that path in the clone, or anywhere in its sources."""
    yield from ROOT.glob(path)
    for folder in ("symalloc", "native", "tests", "benchmarks"):
        yield from (ROOT / folder).rglob(path)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_links_lead_somewhere(path: Path) -> None:
    links = [link.split("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", _text(path))]
    near = [link for link in links if link and not link.startswith(("http://", "https://"))]
    assert [link for link in near if not (path.parent / link).exists()] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_names_are_there(path: Path) -> None:
    assert [q for q in re.findall(r"`([^`\n]+)`", _text(path)) if _is_dead(q)] == []


def test_every_room_is_named() -> None:
    rooms = sorted(p.parent.name for p in PACKAGE.glob("*/__init__.py"))
    text = (ROOT / "docs" / "architecture.md").read_text()
    assert [room for room in rooms if f"symalloc/{room}/" not in text] == []
