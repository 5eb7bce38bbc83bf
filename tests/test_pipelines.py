"""`symalloc.pipeline`, and `relax_pipeline="symalloc"` in whichever order the two are imported."""

from __future__ import annotations

import os
import sys
import tomllib
from pathlib import Path

import pytest

from tests.pool.processes import ran

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
_KNOWN = """
from tvm import relax
made = [relax.get_pipeline(name) for name in ("symalloc", "symalloc-target", "symalloc-named")]
"""
_BUILD = """
import symalloc
pool = symalloc.Pool()
from tests.relax.built import MODULES
with tvm.target.Target("llvm"):  # SYMALLOC_REPLACE_TVM_PLANNER=1
    assert "main_check" in str(relax.get_pipeline("default")(MODULES.Chain))
for each in made:
    built = relax.build(MODULES.Chain, "llvm", relax_pipeline=each)
    x = tvm.runtime.tensor(np.arange(24, dtype="float32").reshape(3, 8))
    machine = relax.VirtualMachine(built, tvm.cpu(), memory_cfg=symalloc.memory_cfg(pool))
    y = machine["main"](x).numpy()
    assert (y == ((x.numpy() + x.numpy()) * x.numpy() - (x.numpy() + x.numpy()))).all()
assert any(tag.startswith("main.") for tag, _ in pool.holders())
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the entry points of pyproject.toml, as an installed package has them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    folder = tmp_path_factory.mktemp("installed")
    information = folder / "symalloc_of_the_tests-0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: symalloc-of-the-tests\nVersion: 0\n")
    groups = (
        "\n".join([f"[{group}]", *(f"{name} = {target}" for name, target in entries.items())])
        for group, entries in project["entry-points"].items()
    )
    (information / "entry_points.txt").write_text("\n".join(groups))
    return folder


@pytest.mark.parametrize("first", ["symalloc, tvm", "tvm"])
def test_the_names_are_known_to_tvm(first: str, installed: Path) -> None:
    program = (
        f"import numpy as np\nimport {first}\n{_KNOWN}{_BUILD if first == 'tvm' else ''}\nprint('known')"
    )
    paths = os.pathsep.join([str(installed), str(ROOT)])
    given = {"PYTHONPATH": paths, "SYMALLOC_REPLACE_TVM_PLANNER": str(int(first == "tvm"))}
    _, out, err = ran(sys.executable, "-c", program, env=os.environ | given)
    assert out.strip() == "known", err
