"""The size of the project by room, beside an earlier commit; constants, modules with one importer, files.

python -m benchmarks.structure [--since COMMIT]
"""

from __future__ import annotations

import ast
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import click

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "symalloc"
PARTS = {"symalloc": ("symalloc/*.py",), "C++": ("native/*.cc", "native/*.h"), "tests": ("tests/*.py",)}


def lines_of(commit: str | None, *patterns: str) -> Mapping[str, int]:
    """Return the lines of the tracked files that match one of `patterns`, in the work tree or at `commit`."""
    at = [] if commit is None else [commit]
    found = subprocess.run(
        ["git", "grep", "-c", "", *at, "--", *patterns], cwd=ROOT, capture_output=True, text=True, check=True
    )
    counted = (line.removeprefix(f"{commit}:").rsplit(":", 1) for line in found.stdout.splitlines())
    return {file: int(count) for file, count in counted}


def by_room(lines: Mapping[str, int]) -> Counter[str]:
    """Return the lines of each folder of the package; those of its own modules as `(root)`."""
    found: Counter[str] = Counter()
    for file, count in lines.items():
        parts = Path(file).parts
        found[parts[1] if len(parts) > 2 else "(root)"] += count
    return found


def numeric_constants(folder: Path) -> Iterator[str]:
    """Yield the names that modules of `folder` give to numbers."""
    for path in sorted(folder.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                numbers = (n for n in ast.walk(node.value) if isinstance(n, ast.Constant))
                if any(type(n.value) in (int, float) for n in numbers):
                    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                    yield f"{path.stem}.{ast.unparse(target)}"


@cache
def trees() -> Mapping[str, ast.Module]:
    """Return the syntax trees of the package, by module."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): ast.parse(
            path.read_text()
        )
        for path in sorted(PACKAGE.rglob("*.py"))
    }


def importers() -> Mapping[str, set[str]]:
    """Return the modules that import each module of the package, imports within functions included."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for module, tree in trees().items():
        for node in ast.walk(tree):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                full = [f"{node.module}.{alias.name}" for alias in node.names]
                names = [name if name in trees() else node.module for name in full]
            for name in names:
                if name in trees() and name != module:
                    found[name].add(module)
    return found


@click.command()
@click.option("--since", metavar="COMMIT", help="A commit to compare with.")
def main(since: str | None) -> None:
    """Print the table."""
    print(f"{'':22}{'before' if since else '':>8}{'now':>8}")
    for part, patterns in PARTS.items():
        now, before = lines_of(None, *patterns), lines_of(since, *patterns) if since else {}
        if part == "symalloc":
            rooms, earlier = by_room(now), by_room(before)
            for room in sorted(rooms | earlier):
                print(f"  {room:20}{earlier[room] or '':>8}{rooms[room]:>8}")
        print(f"{part:22}{sum(before.values()) or '':>8}{sum(now.values()):>8}   in {len(now)} files")
    alone = sorted(module for module, by in importers().items() if len(by) == 1)
    constants = list(numeric_constants(PACKAGE / "planner"))
    print(f"modules with one importer: {len(alone)}")
    print(f"numeric constants in planner/: {len(constants)}")


if __name__ == "__main__":
    main()
