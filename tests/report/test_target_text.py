"""What a report says of targets that are no CPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from symalloc.planner.memory_report.function_report import TargetReport
from symalloc.report.plan_text import plans_as_text, target_lines
from tests.report import plan_samples

OPENCL = TargetReport(
    name="opencl",
    present=False,
    generated=True,
    flavour="arena",
    shared=True,
    kernels=5,
    offset_kernels=3,
    grounded=2,
    kept=4096,
)


STORAGES = "target opencl: tensors share whole storages"
GROUNDED = "starts a storage, as more than kernels looks there and data is a mere handle"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {},
            [
                "target opencl: 3 of 5 kernels take a tensor at an offset",
                "2 tensors start a storage each, as more than kernels looks there",
                "planned and linted; not run: this machine has no such device",
                "TVM's allocator on opencl keeps a block for each size that an arena ever had: 4.0 KiB after",
            ],
        ),
        ({"grounded": 1}, ["target opencl", f"1 tensor {GROUNDED}"]),
        ({"flavour": "storages"}, [STORAGES]),
        ({"flavour": "storages", "shared": False}, [f"{STORAGES}, as no kernel can read and write"]),
        (
            {"grounded": 0, "present": True},
            ["target", "planned and linted; `symalloc run` runs on"],
        ),
        ({"grounded": 0, "generated": False}, ["target", "this build of TVM generates no code for opencl: "]),
    ],
)
def test_what_is_said(changed: dict[str, Any], said: list[str]) -> None:
    target = structs.replace(OPENCL, **changed)
    lines = [line.strip() for line in target_lines(target)]
    for line, words in zip(lines, said, strict=False):
        assert line.startswith(words)
    assert lines[0] in plans_as_text([replace(plan_samples.small(), target=target)])
