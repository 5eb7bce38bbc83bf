"""The same module gives the same plan, byte for byte, in another process with other hashes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

PROGRAM = """
from symalloc.relax.passes.pipeline import lower
from symalloc.relax.passes.plan_pass import plan_lowered
from tests.models.imported import IMPORTED
from tests.models.planned import imported_case

for name in ("torch_op_six_lengths", "onnx_nested_branch", "torch_attention_of_many_outputs"):
    assert name in IMPORTED
    planned = plan_lowered(lower(imported_case(name).build(), "llvm"))
    print(planned.module.script())
    for plan in planned.plans.values():
        print([str(arena.size) for arena in plan.arenas], plan.fallbacks)
"""


def test_plans_do_not_depend_on_the_hash_seed() -> None:
    children = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
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
