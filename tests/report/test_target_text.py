"""What a report says of targets that are no CPU."""

from __future__ import annotations

from dataclasses import replace

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


def lines(target: TargetReport) -> list[str]:
    return [line.strip() for line in target_lines(target)]


def test_offsets_handles_and_sizes_that_are_kept() -> None:
    first, second, third, fourth = lines(OPENCL)
    assert first == "target opencl: 3 of 5 kernels take a tensor at an offset"
    assert second.startswith("2 tensors start a storage each, as more than kernels looks there")
    assert third == "planned and linted; not run: this machine has no such device"
    assert fourth.startswith("TVM's allocator on opencl keeps a block for each size that an arena ever had: ")
    assert fourth.endswith("after a call at each of these sizes; --bounds reserve asks for one size")
    assert first in plans_as_text([replace(plan_samples.small(), target=OPENCL)])


@pytest.mark.parametrize(
    ("target", "number", "words"),
    [
        (
            structs.replace(OPENCL, grounded=1),
            1,
            "1 tensor starts a storage, as more than kernels looks there and data is a mere handle",
        ),
        (structs.replace(OPENCL, flavour="storages"), 0, "target opencl: tensors share whole storages"),
        (
            structs.replace(OPENCL, flavour="storages", shared=False),
            0,
            "target opencl: tensors share whole storages, as no kernel can read and write",
        ),
        (
            structs.replace(OPENCL, grounded=0, present=True),
            1,
            "planned and linted; `symalloc run` runs on the CPU only",
        ),
        (
            structs.replace(OPENCL, grounded=0, generated=False),
            1,
            "this build of TVM generates no code for opencl: ",
        ),
    ],
)
def test_what_is_said(target: TargetReport, number: int, words: str) -> None:
    assert lines(target)[number].startswith(words)
