"""The memory that a process really has behind calls, beside what the report of the plan says."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

MODULE = """# script
@I.ir_module
class Convolutions:
    @R.function
    def main(
        x: R.Tensor(("n", 3, 192, 192), "float32"),
        w1: R.Tensor((16, 3, 3, 3), "float32"),
        w2: R.Tensor((16, 16, 3, 3), "float32"),
        w3: R.Tensor((16, 16, 3, 3), "float32"),
    ) -> R.Tensor(("n", 16, 192, 192), "float32"):
        with R.dataflow():
            a = R.nn.conv2d(x, w1, padding=(1, 1))
            b = R.nn.relu(a)
            c = R.nn.conv2d(b, w2, padding=(1, 1))
            d = R.nn.relu(c)
            e = R.nn.conv2d(d, w3, padding=(1, 1))
            f = R.add(e, b)
            R.output(f)
        return f
"""
CALLS = """
import gc, json, sys
import numpy as np, tvm
from symalloc.relax.files.plan_file import memory_reports, plan_module
from symalloc.relax.passes.pipeline import lower
from symalloc.relax.run.machine import machines
from tvm.script import from_source

IMAGE, KERNELS = (3, 192, 192), [(16, 3, 3, 3), (16, 16, 3, 3), (16, 16, 3, 3)]
Convolutions = from_source(sys.argv[2])
planned = plan_module(Convolutions)
(report,) = memory_reports(planned, "llvm", samples=[{"n": 2}])
runs = machines(planned.module, "pooled", target="llvm", pipeline="default")[0]
weights = [tvm.runtime.tensor(np.ones(shape, "float32")) for shape in KERNELS]
images = [tvm.runtime.tensor(np.ones((n, *IMAGE), "float32")) for n in (0, 2)]

def resident():
    gc.collect()
    with open("/proc/self/smaps_rollup") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Anonymous:"))

runs["main"](images[0], *weights)  # code and threads
before, found = resident(), []
for _ in range(int(sys.argv[1])):
    runs["main"](images[1], *weights)
    found.append(resident() - before)
sample = report.samples[0]
print(json.dumps({"found": found, "first": sample.whole, "further": sample.further, "call": sample.call}))
"""
SLACK = 256 << 10  # bytes: Python's own


@pytest.mark.real_process
@pytest.mark.slow
def test_a_process_takes_what_is_printed_of_the_first_call_and_of_further_ones() -> None:
    """The machine holds a result until the next call is over, so a second call takes that much more."""
    command = [sys.executable, "-c", CALLS, "4", MODULE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    first, *others = said["found"]
    assert said["call"] < said["first"] < said["further"] - (4 << 20)
    assert abs(first - said["first"]) <= SLACK
    assert all(abs(one - said["further"]) <= SLACK for one in others), said
