"""The same module gives the same plan, byte for byte, in another process with other hashes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.scale import part

pytestmark = pytest.mark.slow

NAMES = part(("onnx_nested_branch", "torch_op_six_lengths", "torch_attention_of_many_outputs"), 3)

PROGRAM = """
import sys
from symalloc.relax.passes.pipeline import lower
from symalloc.relax.passes.plan_pass import plan_lowered
from tests.models.imported import IMPORTED, load_imported

for name in sys.argv[1:]:
    assert name in IMPORTED
    planned = plan_lowered(lower(load_imported(name), "llvm"))
    print(planned.module.script())
    for plan in planned.plans.values():
        print([str(arena.size) for arena in plan.arenas], plan.fallbacks)
"""


def test_plans_do_not_depend_on_the_hash_seed() -> None:
    children = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *NAMES],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        for seed in ("1", "2")
    ]
    (one, _), (other, _) = (child.communicate() for child in children)
    assert [child.returncode for child in children] == [0, 0]
    assert b"R.memory.alloc_tensor" in one
    assert one == other
