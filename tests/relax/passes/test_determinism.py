"""The same module gives the same plan, byte for byte, in another process with other hashes, and without the
native library.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

PROGRAM = """
import sys

from symalloc.planner.exact import solve
from symalloc.planner.search import local_search, native_stacking
from symalloc.relax.passes.pipeline import lower
from symalloc.relax.passes.plan_pass import plan_lowered
from tests.models.imported import IMPORTED
from tests.models.planned import imported_case

if "without" in sys.argv:
    solve.load_library = native_stacking.load_library = lambda: "it is missing"
    local_search.improve_natively = None  # whoever calls it fails
for name in ("torch_op_six_lengths", "onnx_nested_branch", "torch_attention_of_many_outputs"):
    assert name in IMPORTED
    planned = plan_lowered(lower(imported_case(name).build(), "llvm"))
    print(planned.module.script())
    for plan in planned.plans.values():
        print(plan.representative, [str(arena.size) for arena in plan.arenas], plan.rungs)
"""


def test_plans_depend_neither_on_the_hash_seed_nor_on_the_native_library() -> None:
    children = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, library],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        for seed, library in (("1", "with"), ("2", "without"))
    ]
    (one, _), (other, _) = (child.communicate() for child in children)
    assert [child.returncode for child in children] == [0, 0]
    assert b"R.memory.alloc_tensor" in one
    assert one == other
