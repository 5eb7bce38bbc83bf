"""Reading in worker processes: crashes, deadlines, interruptions cost what was being read, never the run."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import tvm

from symalloc.program.reading import FileResult, ReadOptions
from symalloc.relax.workers.worker_pool import WorkerPool
from tests.pool.processes import descendants, until_busy, until_gone

pytestmark = pytest.mark.slow

IMPORTS = "from tvm.script import ir as I, relax as R, tirx as T\n"
# TVM 0.27 segfaults when a shape holds None
CRASH = "R.shape([None])"
# Python multiplies for minutes
ENDLESS = "R.shape([7 ** 7 ** 9])"


def module(name: str, shape: str = "R.shape([n, 2])") -> str:
    return (
        f'@I.ir_module\nclass {name}:\n    @R.function\n    def main(x: R.Tensor(("n", 2), "float32")):\n'
        f"        n = T.int64()\n        y = R.add(x, x)\n        z = R.reshape(y, {shape})\n"
        "        w = R.add(z, z)\n        return w\n"
    )


AS_IS = ReadOptions(stage="as-is", timeout=60.0)


def write(path: Path, *modules: str) -> Path:
    path.write_text(IMPORTS + "".join(modules))
    return path


def read(*files: Path, options: ReadOptions = AS_IS) -> list[FileResult]:
    with WorkerPool(1) as pool:
        return list(pool.read(files, options))


def found(result: FileResult) -> list[tuple[str, str]]:
    return [(program.name, program.stage) for program in result.programs]


def test_results_come_in_order_the_parent_stays_without_tvm_and_nothing_is_imported_from_the_folder(
    tmp_path: Path,
) -> None:
    """A repository under review may hold a file called tvm.py or pickle.py."""
    write(tmp_path / "a.py", module("A"), module("B"))
    (tmp_path / "b.json").write_text("{}")
    for name in ("tvm", "pickle", "numpy", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text("open('imported', 'w').close()\n")
    code = (
        "import sys; from pathlib import Path\n"
        "from symalloc.program.reading import ReadOptions\n"
        "from symalloc.relax.workers.worker_pool import WorkerPool\n"
        "for r in WorkerPool().read([Path('b.json'), Path('a.py')], ReadOptions(stage='auto')):\n"
        "    print(r.file, [(p.name, p.stage) for p in r.programs], len(r.problems))\n"
        "print('tvm' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    passes = ("as-is", "StaticPlanBlockMemory", "KillAfterLastUse")
    assert done.stdout.splitlines() == [
        "b.json [] 1",
        f"a.py {[(name, stage) for name in 'AB' for stage in passes]} 0",
        "False",
    ]
    assert done.stderr == "" and not (tmp_path / "imported").exists()


@pytest.mark.real_process
def test_a_crash_costs_one_module(tmp_path: Path) -> None:
    file = write(tmp_path / "m.py", module("A"), module("B", CRASH), module("C"))
    other = write(tmp_path / "other.py", module("D"))
    result, after = read(file, other)
    assert found(result) == [("A", "as-is"), ("C", "as-is")]
    [problem] = result.problems
    assert problem.module == "B"
    assert problem.message.startswith(f"TVM {tvm.__version__} crashed (SIGSEGV) while reading m.py")
    assert found(after) == [("D", "as-is")]


def test_a_crash_in_a_pass_keeps_the_module_as_it_stands(tmp_path: Path) -> None:
    """A trusted file gives relax.add a legalization that kills the process, as a fault of TVM would."""
    code = (
        "import os, signal, tvm\n\n\ndef die(*_):\n    os.kill(os.getpid(), signal.SIGSEGV)\n\n\n"
        'tvm.ir.Op.get("relax.add").set_attr("FLegalize", die, 99)\nTWO = len("ab")\n'
    )
    file = write(tmp_path / "m.py", code, module("A", "R.shape([n, TWO])"))
    [result] = read(file, options=ReadOptions(trust=True))
    assert found(result) == [("A", "as-is")]
    [problem] = result.problems
    assert problem.message.startswith(
        f"TVM {tvm.__version__} crashed (SIGSEGV) in LegalizeOps while lowering m.py"
    )
    assert (problem.stage, problem.module) == ("LegalizeOps", "A")
    assert problem.hint == "the fault is TVM's; --stage as-is leaves its passes out"


def test_a_file_that_takes_too_long(tmp_path: Path) -> None:
    file = write(tmp_path / "m.py", module("A", ENDLESS), module("B"))
    [result] = read(file, options=ReadOptions(stage="as-is", timeout=2.0))
    assert [problem.message for problem in result.problems] == ["gave up after 2 s while reading m.py"]
    assert found(result) == [("B", "as-is")]


def test_workers_stay_for_the_next_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "m.py", module("A"))
    endless = write(tmp_path / "endless.py", module("B"), module("C", ENDLESS))
    caplog.set_level(logging.INFO, "symalloc")
    with WorkerPool() as pool:
        pool.start()
        [worker] = pool._workers
        monkeypatch.chdir(tmp_path)  # names are relative to where the reading is asked for
        for _ in range(2):
            [result] = pool.read([Path("m.py")], AS_IS)
            assert found(result) == [("A", "as-is")]
            assert pool._workers == [worker]
        told = [(vars(r).get("done"), vars(r).get("total"), r.getMessage()) for r in caplog.records]
        assert (0, 1, "reading m.py") in told

        worker.process.kill()  # while it is idle: no file is to blame
        worker.process.wait()
        [result] = pool.read([Path("m.py")], AS_IS)
        assert (found(result), result.problems) == ([("A", "as-is")], ())

        [successor] = pool._workers
        results = pool.read([Path("m.py"), endless], AS_IS)
        next(results)
        results.close()  # what is still being read is given up
        assert successor.process.poll() == -signal.SIGKILL


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_a_run_that_is_killed_leaves_no_process(tmp_path: Path) -> None:
    """What is interrupted leaves none either: `tests/cli` shows it of every verb."""
    write(tmp_path / "m.py", module("A", ENDLESS))
    code = (
        "from pathlib import Path; from symalloc.program.reading import ReadOptions\n"
        "from symalloc.relax.workers.worker_pool import WorkerPool\n"
        "list(WorkerPool().read([Path('m.py')], ReadOptions()))"
    )
    run = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, start_new_session=True)
    until_busy(lambda: descendants(run.pid))
    workers = descendants(run.pid)
    run.kill()
    assert run.wait(120) == -signal.SIGKILL
    assert workers
    until_gone(workers)


def test_too_much_memory_is_a_problem_not_the_end(tmp_path: Path) -> None:
    file = write(tmp_path / "m.py", module("A", "R.shape([len([0] * (1 << 45))])"), module("B"))
    [result] = read(file)
    assert len(result.problems) == 1
    assert found(result) == [("B", "as-is")]
