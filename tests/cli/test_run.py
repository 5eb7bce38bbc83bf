from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import symalloc
from symalloc.cli.bindings import bindings, parse_sweeps
from symalloc.pool.statistics_scope import statistics
from symalloc.pool.trace import Alloc, CallBegin, read_trace
from symalloc.report.run_text import COLUMNS
from tests.cli.documents import HEAD, read_as
from tests.conftest import Run
from tests.modules import CHAIN
from tests.pool.processes import descendants, until_busy, until_gone
from tests.scale import part

pytestmark = pytest.mark.slow


EXAMPLES = Path(__file__).parents[2] / "examples"
# the second arena is sized by what nonzero finds
LATE = CHAIN.replace(
    """        a = R.exp(x)
        b = R.add(a, x)
        return R.multiply(a, b)
""",
    """        n, k = T.int64(), T.int64()
        found = R.match_cast(R.nonzero(R.exp(x)), R.Tensor((2, k), "int64"))
        a = R.astype(found, "float32")
        return R.multiply(x, R.mean(R.exp(a)))
""",
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "module.py").write_text(CHAIN)
    (tmp_path / "late.py").write_text(LATE)
    monkeypatch.chdir(tmp_path)


def test_a_run_says_what_came_out(run: Run) -> None:
    status, out, err = run("run", "module.py", "--bind", "n=5", "--check", "--repeat", "3")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "main(n = 5) returns float32[5, 16]"
    assert lines[1] == "arena: 640 B for 2 tensors, floor: 640 B, arena / floor: 1.000"
    assert lines[2] == "outputs: 320 B"
    assert lines[3].startswith("time: ") and lines[3].endswith("median of 2 warm calls")
    assert lines[4] == "the same as the unplanned module, bit for bit"


@pytest.mark.parametrize("more", [("--order", "dag", "--guard"), ("--plan", "tvm"), ("--compare", "tvm")])
def test_workers_run_kernels_side_by_side(run: Run, more: tuple[str, ...]) -> None:
    status, out, err = run("run", "module.py", "--bind", "n=5", "--check", "--workers", "2", *more)
    assert (status, err) == (0, "")
    assert "the same as the unplanned module, bit for bit" in out


def test_workers_that_make_no_sense_are_refused(run: Run) -> None:
    for more in (("--workers", "0"), ("--workers", "two"), ("--workers", "2", "--profile", "times.json")):
        status, out, err = run("run", "module.py", "--bind", "n=5", *more)
        assert (status, out) == (2, "") and "workers" in err
    assert not Path("times.json").exists()


def test_a_dimension_of_zero_runs(run: Run) -> None:
    status, out, _ = run("run", "module.py", "--bind", "n=0", "--check")
    assert status == 0 and "float32[0, 16]" in out


def test_an_arena_that_is_sized_later_has_no_figure_at_entry(run: Run) -> None:
    status, out, err = run("run", "late.py", "--bind", "n=3", "--check")
    assert (status, err) == (0, "")
    assert "its size depends on what becomes known during the run\n" in out
    assert out.endswith("the same as the unplanned module, bit for bit\n")


# -- on a pool ----------------------------------------------------------------------------------------------

ISSUE = f"""{HEAD}\
    @T.prim_func
    def fill(out: T.handle):
        m = T.int64()
        a = T.match_buffer(out, (m,), "float32")
        for i in range(EXTENT):
            a[i] = T.float32(1)

    @R.function(pure=False)
    def main(x: R.Tensor(("m",), "float32")) -> R.Tensor(("m",), "float32"):
        m = T.int64()
        storage = R.memory.alloc_storage(R.shape([BYTES]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
        alloc = R.memory.alloc_tensor(storage, R.prim_value(0), R.shape([m]), R.dtype("float32"))
        Module.fill(alloc)
        return alloc
"""


def _issue(nbytes: int, extent: str) -> str:
    Path("issue.py").write_text(ISSUE.replace("BYTES", str(nbytes)).replace("EXTENT", extent))
    return "issue.py"


def test_a_sweep_on_a_pool_shows_what_was_used(run: Run) -> None:
    options = ("--sweep", "n=1..64:21", "--repeat", "2", "--pool", "--compare", "tvm", "--check")
    status, out, err = run("run", "module.py", *options)
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "main at 4 bindings, 8 calls"
    assert lines[1].split() == list(COLUMNS)
    assert [line.split()[2] for line in lines[2:6]] == ["1", "22", "43", "64"]
    assert lines[6].startswith(
        "pool: 2.125 storages a call, at most "
    )  # the first call asks for a shape heap
    assert lines[7].startswith("TVM's plan on its pooled allocator: ")
    assert lines[-1] == "the same as the unplanned module, bit for bit"


@pytest.mark.parametrize("plan", ("none", "tvm", "symalloc"))
def test_every_plan_gives_the_same_results(plan: str, run: Run) -> None:
    options = ("--bind", "n=7", "--plan", plan, "--pool", "--check", "--format", "json", "--repeat", "3")
    status, out, _ = run("run", "module.py", *options)
    document = read_as("run", out)
    assert status == 0 and document["ok"] and document["refused"] is None
    (found,) = document["runs"]
    assert found["binding"] == {"n": 7} and found["plan"] == plan and found["same_as_unplanned"]
    assert (found["arena"] is not None) == (plan == "symalloc")
    # a shape heap at the first call; then an arena and the output, or two tensors and the output
    assert document["pool"]["allocations"] == 1 + 3 * (2 if plan == "symalloc" else 3)


def test_a_limit_that_is_too_small_names_who_holds_the_memory(run: Run) -> None:
    options = ("--sweep", "n=100,100000", "--limit", "1MiB", "--plan", "none")
    status, out, err = run("run", "module.py", *options)
    assert (status, err) == (1, "")
    assert "REFUSED by the pool at n = 100000: " in out and "under the limit of 1048576" in out
    assert out.startswith("main(n = 100) returns")
    status, out, _ = run("run", "module.py", "--bind", "n=2000", "--limit", "300KiB", "--plan", "none")
    assert status == 1 and "`main.a float32[n, 16] (tir_exp, module.py:8)` 128000 bytes in 1 block" in out


def test_what_is_said_of_a_limit_is_what_the_pool_does(run: Run) -> None:
    """Where a further call takes no more than the limit, and nothing is said of pages, it is not refused."""
    options = ("module.py", "--bind", "n=5000", "--repeat", "3", "--limit")
    again = json.loads(run("run", *options, "64MiB", "--format", "json")[1])["limit"]["sums"]["again"]
    told = set()
    for limit in (again - 1, again, again + 4096, again + 12288, again + 65536):
        status, out, _ = run("run", *options, str(limit))
        line = next(line for line in out.splitlines() if line.startswith("  a further call, "))
        said = line.split("iB, ")[1]
        told.add((said, status))
        assert status == 0 or said != "no more than that", limit
        assert status == 1 or said != "more than that", limit
    assert ("more than that", 1) in told and ("no more than that", 0) in told
    assert any(said.startswith("no more than that, without pages") for said, _ in told)


def test_a_caller_whose_memory_the_pool_refuses_is_refused(run: Run) -> None:
    options = ("--arena", "caller", "--limit", "64KiB")
    status, out, err = run("run", "module.py", "--sweep", "n=1,100000", *options)
    assert (status, err) == (1, "")
    assert "main(n = 1) returns" in out and "REFUSED by the pool at n = 100000: " in out
    document = json.loads(run("run", "module.py", "--bind", "n=100000", *options, "--format", "json")[1])
    assert not document["ok"] and "under the limit of 65536" in json.dumps(document["refused"])


@pytest.mark.parametrize(
    ("file", "n"), part([("attention.py", 128), ("mlp.py", 64), ("branches.py", 2048)], 2)
)
def test_a_limit_is_told_beside_what_a_call_and_a_further_one_take(file: str, n: int, run: Run) -> None:
    path = EXAMPLES / file
    options = ("--bind", f"n={n}", "--check", "--format", "json")
    document = read_as("run", run("run", path, *options, "--limit", "64MiB")[1])
    taken = document["limit"]["sums"]
    assert document["limit"]["binding"] == {"n": n}
    assert document["pool"]["peak_live"] == taken["call"] <= taken["again"] < taken["everything"]
    pool = symalloc.Pool()
    with statistics(pool) as further:
        symalloc.run(path, {"n": n}, repeat=3, pool=pool)
    assert further.figures().peak_live == taken["again"]
    status, out, _ = run("run", path, *options[:2], "--limit", str(taken["call"] - 1))
    assert status == 1 and f" at n = {n}, which the pool takes in pages:\n" in out
    assert "  whole call: " in out and "  beside the pool: workspace of kernels" in out


@pytest.mark.parametrize("sweep", [False, True])
def test_beyond_the_bound_the_plan_is_not_used_and_nothing_is_compared(sweep: bool, run: Run) -> None:
    path = EXAMPLES / "attention.py"
    at = ("--sweep", "n=8,600") if sweep else ("--bind", "n=600")
    options = ("run", path, *at, "--check", "--guards", "fallback", "--bounds", "reserve")
    status, out, _ = run(*options)
    where = " at n = 600" if sweep else ""
    assert (
        status == 0 and f"the plan was not used{where}, it needs n <= 512: there is nothing to compare" in out
    )
    assert ("the same as the unplanned module" in out) is sweep
    *_, beyond = json.loads(run(*options, "--format", "json")[1])["runs"]
    assert (beyond["unused"], beyond["arena"], beyond["same_as_unplanned"]) == ("n <= 512", None, None)


def test_a_tensor_that_outgrows_its_storage_is_named(run: Run) -> None:
    status, out, err = run("run", _issue(16, "m"), "--sweep", "m=3..1025", "--pool")
    assert status == 1 and err.startswith("note: issue.py is planned already")
    tensor = "tensor `main.alloc (fill, issue.py:17)`, float32[5], needs 20 bytes"
    assert f"REFUSED by the pool at m = 5: {tensor}" in out


@pytest.mark.parametrize("m", (15, 16))  # canaries tell, and a protected page
def test_an_overrun_is_named_in_guard_mode(m: int, run: Run) -> None:
    status, out, err = run("run", _issue(4096, "m + 1"), "--bind", f"m={m}", "--guard")
    assert status == 1 and err.startswith("note: issue.py is planned already")
    assert out.startswith("REFUSED by the pool") and f"m = {m}" in out
    assert f"`main.alloc (fill, issue.py:17)` of {4 * m} bytes " in out
    assert "overrun: byte 0 past its end " in out


def test_what_was_allocated_is_written_for_replay(run: Run) -> None:
    status, _, _ = run("run", "module.py", "--sweep", "n=1..9", "--plan", "none", "--trace", "trace.json")
    assert status == 0
    trace = read_trace(Path("trace.json"))
    # a, b and the result; a shape heap
    assert sum(isinstance(event, Alloc) for event in trace.events) == 9 * 3 + 1
    assert sum(isinstance(event, CallBegin) for event in trace.events) == 9
    assert any(tag.startswith("main.a float32[n, 16]") for tag in trace.tags.values())


def test_an_interrupted_run_ends_with_130_and_leaves_nothing_behind() -> None:
    arguments = ["run", "module.py", "--bind", "n=3", "--repeat", "1000000"]
    child = subprocess.Popen(
        [sys.executable, "-m", "symalloc", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until_busy(lambda: descendants(child.pid))
    workers = descendants(child.pid)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=120)
    assert (child.returncode, out) == (130, "") and "Traceback" not in err
    until_gone(workers)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("n=5", [5]),
        ("n=1..4", [1, 2, 3, 4]),
        ("n=0..9:4", [0, 4, 8]),
        (" n = 8, 1 ,3..5 ", [8, 1, 3, 4, 5]),
        ("n=-2..0", [-2, -1, 0]),
    ],
)
def test_values_stand_in_the_order_in_which_they_are_written(text: str, values: list[int]) -> None:
    assert parse_sweeps([text]) == {"n": values}


def test_all_combinations_are_run_with_what_is_fixed() -> None:
    swept = parse_sweeps(["n=1..2", "b=3,4"])
    assert bindings({"h": 7}, swept) == [
        {"h": 7, "n": 1, "b": 3},
        {"h": 7, "n": 1, "b": 4},
        {"h": 7, "n": 2, "b": 3},
        {"h": 7, "n": 2, "b": 4},
    ]
    assert bindings({"h": 7}, {}) == [{"h": 7}]
