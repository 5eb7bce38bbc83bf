"""`symalloc.pipeline`, and `relax_pipeline="symalloc"` in whichever order the two are imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import symalloc
from symalloc.errors import UsageError

SCRIPT = Path(__file__).parent / "relax" / "modules_to_plan.py"
_BUILD = """
from tvm import relax
sys.path.insert(0, {folder!r})
from tests.relax.modules_to_plan import Chain
for name in ("symalloc", "symalloc-target"):
    built = relax.build(Chain, "llvm", relax_pipeline=name)
    x = tvm.runtime.tensor(np.arange(24, dtype="float32").reshape(3, 8))
    y = relax.VirtualMachine(built, tvm.cpu())["main"](x).numpy()
    assert (y == ((x.numpy() + x.numpy()) * x.numpy() - (x.numpy() + x.numpy()))).all()
print(type(relax.pipeline.__loader__).__name__, type(relax.pipeline.__spec__.loader).__name__)
"""


@pytest.mark.parametrize("first", ["symalloc, tvm", "tvm, symalloc"])
def test_the_names_are_known_to_tvm(first: str) -> None:
    program = f"import sys, numpy as np\nimport {first}\n" + _BUILD.format(folder=str(SCRIPT.parent))
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert found.stdout.split() == ["SourceFileLoader", "SourceFileLoader"], found.stderr


def test_importing_symalloc_imports_no_tvm() -> None:
    program = "import sys, symalloc; print([m for m in ('tvm', 'numpy', 'z3', 'sympy') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize("option", ["pipeline", "flavour", "guards", "effort"])
def test_a_choice_that_there_is_not_is_refused(option: str) -> None:
    with pytest.raises(UsageError, match=f"{option} is 'none of these'; it must be one of "):
        symalloc.pipeline("llvm", **{option: "none of these"})  # type: ignore[arg-type]
