"""Certificates of ten models, checked without symalloc: true ones are accepted, forged ones refused.

`python -m benchmarks.forged_certificates` exits with 1 where one is not.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from time import process_time

from symalloc.planner.memory_plan import PlanOptions
from symalloc.relax.files.plan_file import plan_module
from tests.models.zoo import MODELS
from tests.planner.check.forgeries import FORGERIES, checker, forged

CERTIFIED = (
    *("bert", "branches", "gru", "llama_rotary", "lstm", "mixture_of_experts", "nonzero", "resnet_any_image"),
    *("subroutines", "unet"),
)


def main() -> int:
    """Print a line for each model, and for each forgery that is accepted."""
    script, wrong, made = checker(), 0, 0
    print(f"{'model':20} claims accepted forged refused plan s check s")
    for name in CERTIFIED:
        with tempfile.TemporaryDirectory() as folder:
            right, other = Path(folder) / "right", Path(folder) / "forged"
            start = process_time()
            plan_module(MODELS[name].build(), options=PlanOptions(certificate=right))
            planned = process_time()
            true = _accepts(script, right)
            checked = process_time()
            tried = [one for one in FORGERIES if forged(right, other, one)]
            passed = [one for one in tried if forged(right, other, one) and _accepts(script, other)]
            claims = len(list(right.rglob("*.smt2")))
        wrong, made = wrong + len(passed) + (not true), made + len(tried)
        times = f"{planned - start:6.1f} {checked - planned:7.1f}"
        print(f"{name:20} {claims:6} {true!s:>8} {len(tried):6} {len(tried) - len(passed):7} {times}")
        print("".join(f"  accepted: {one}\n" for one in passed), end="", flush=True)
    print(f"{made} forged, {wrong} answers wrong")
    return 1 if wrong else 0


def _accepts(script: object, folder: Path) -> bool:
    try:
        return bool(script.check(folder, packing=False))  # type: ignore[attr-defined]
    except Exception:  # what it cannot read it does not accept
        return False


if __name__ == "__main__":
    sys.exit(main())
