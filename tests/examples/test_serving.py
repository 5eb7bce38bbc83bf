"""The serving example, built and run as a user does it: no Python in the process, one library of TVM's.

Every run configures it with the installed package; compiling and running it take 6 s, in the nightly run.
tests/native/test_cmake_package.py compiles a program with the same headers in every run.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax

from examples.serving import make_model
from symalloc.native.library import installed_library
from tests.pool.library import ROOT
from tests.pool.processes import ran
from tests.scale import NIGHTLY
from tests.test_docs import blocks
from tests.conftest import Run

SOURCES = ROOT / "examples" / "serving"
WIDTH = make_model.WIDTH



@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The exported model."""
    file = tmp_path_factory.mktemp("serving") / "model.so"
    make_model.write(str(file))
    return file


@pytest.fixture(scope="module")
def configured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which cmake has found the package."""
    if shutil.which("cmake") is None or shutil.which("g++") is None:
        pytest.skip("cmake and g++ build the example")
    folder = tmp_path_factory.mktemp("build")
    package = installed_library().parent / "share/cmake/symalloc"
    status, out, err = ran("cmake", "-S", SOURCES, "-B", folder, f"-Dsymalloc_DIR={package}")
    assert status == 0, out + err
    return folder


@pytest.fixture(scope="module")
def program(configured: Path) -> Path:
    if not NIGHTLY:
        pytest.skip("the nightly run compiles the example")
    status, out, err = ran("cmake", "--build", configured)
    assert status == 0, out + err
    return configured / "serve"


@pytest.fixture
def serve(program: Path) -> Run:
    return lambda *arguments: ran(program, *map(str, arguments))


def _sum(model: Path, rows: int) -> float:
    """The sum of what the model answers in Python."""
    x = (np.arange(rows * WIDTH) * 37 % 101).astype("float32") / np.float32(101) - np.float32(0.5)
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(model)), tvm.cpu())
    result = machine["main"](tvm.runtime.tensor(x.reshape(rows, WIDTH))).numpy()
    return float(result.sum(dtype="float64"))


def test_the_package_is_found(configured: Path) -> None:
    found = re.search(r"^symalloc_DIR:\w+=(.*)$", (configured / "CMakeCache.txt").read_text(), re.MULTILINE)
    assert found is not None and Path(found[1]).parents[2] == installed_library().parent


def test_requests_of_all_lengths_get_the_answers_of_python(serve: Run, model: Path) -> None:
    lengths = (7, 512, 1, 128, 0)
    status, out, err = serve(model, 64, *lengths)
    assert (status, err) == (0, "")
    *answers, pool = out.splitlines()
    for rows, answer in zip(lengths, answers, strict=True):
        found = re.fullmatch(rf"{rows} rows: sum (\S+), the same bits as on TVM's allocator", answer)
        assert found is not None, answer
        assert float(found[1]) == pytest.approx(_sum(model, rows), rel=1e-4)
    counted = re.fullmatch(
        r"pool: (\d+) of 67108864 bytes reserved at most, (\d+) allocations, 0 refused, 0 bytes live", pool
    )
    assert counted is not None, pool
    assert int(counted[1]) >= 2 * 512 * WIDTH * 4
    assert int(counted[2]) > len(lengths)


def test_a_guard_says_what_it_refuses(serve: Run, model: Path) -> None:
    status, out, _ = serve(model, 64, 513, 7)
    refused, served, _ = out.splitlines()
    assert status == 1
    assert refused.startswith("513 rows: refused: AssertionError: main: these shapes are outside of the bounds")
    assert refused.endswith("need n <= 512")
    assert served.startswith("7 rows: sum ")


def test_a_pool_that_is_too_small_says_who_holds_it(serve: Run, model: Path) -> None:
    status, out, _ = serve(model, 1, 512, 7)
    assert status == 1
    assert out.startswith("512 rows: refused: OutOfMemoryError: ")
    assert "do not fit under the limit of 1048576" in out
    assert "held: `request 0` 131072 bytes in 1 block" in out
    assert re.search(r"^7 rows: sum \S+, the same bits", out, re.MULTILINE)
    assert out.endswith(", 1 refused, 0 bytes live\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "serve: expected LIBRARY MEBIBYTES ROWS..."),
        (("{model}", "64", "seven"), "serve: `seven` is no whole number from 0 to "),
        (("{model}", "0", "7"), "serve: `0` is no whole number from 1 to "),
        (("missing.so", "64", "7"), "serve: missing.so cannot be loaded: "),
        (("{runtime}", "64", "7"), "libtvm_runtime.so holds no Relax module"),
    ],
)
def test_arguments_that_make_no_sense_end_it(
    serve: Run, model: Path, arguments: tuple[str, ...], said: str
) -> None:
    runtime = tvm.libinfo.find_libtvm_runtime()
    status, out, err = serve(*(word.format(model=model, runtime=runtime) for word in arguments))
    assert (status, out) == (2, "")
    assert said in err and err.count("\n") == 1


def test_no_python_is_in_the_process(program: Path) -> None:
    libraries = ran("ldd", program)[1]
    assert "libsymalloc.so" in libraries and "libtvm_runtime.so" in libraries
    assert "python" not in re.sub(r"=> \S+", "", libraries) and "libtvm_compiler" not in libraries
    assert "not found" not in libraries


@pytest.mark.nightly
def test_the_documented_commands_print_what_is_documented(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (commands,) = (b.text for b in blocks("console") if b.document == "docs/deployment.md")
    (shown,) = (b.text for b in blocks("text") if b.document == "docs/deployment.md")
    script = commands.replace("$ ", "")
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    status, out, err = ran("bash", "-ec", script, cwd=tmp_path, env=environment)
    assert status == 1, err
    for line in shown.splitlines():
        assert re.search("^" + ".*".join(map(re.escape, line.split("…"))) + "$", out, re.MULTILINE)
