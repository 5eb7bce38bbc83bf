"""What users get wrong: every verb answers with one clear message and status 2, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import shlex
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import tvm

from symalloc.cli.bindings import MOST_BINDINGS
from symalloc.pool.trace import trace_as_json
from tests.conftest import Run
from tests.modules import CHAIN
from tests.pool.processes import descendants, ran, until_busy, until_gone
from tests.pool.workloads import make_trace

pytestmark = pytest.mark.usefixtures("warm_workers")


# nobody registered its packed function
PACKED = CHAIN.replace('("n", 16)', "(4, 16)").replace(
    "R.exp(x)", 'R.call_pure_packed("nobody.knows", x, ty_args=(R.Tensor((4, 16), "float32"),))'
)
SYMBOLIC = {"symbols": {"n": {}}, "buffers": [{"id": "x", "size": "n", "lower": 0, "upper": 1}]}
# a pure function must not call what may have effects
IMPURE = CHAIN.replace(
    "a = R.exp(x)", 'n = T.int64()\n        a = R.call_packed("f", x, ty_args=R.Tensor((n, 16), "float32"))'
)
FILES = {
    "model.py": CHAIN.encode(),
    "empty.py": b"",
    "empty.json": b"",
    "binary.py": b"\x89PNG\x00\x01",
    "binary.json": b"\x89PNG\x00\x01",
    "syntax.py": b"x = 1\ndef f(:\n",
    "plain.py": b'print("hello")\n',
    "notes.txt": b"def",
    "other.json": b'{"a": [1, 2]}',
    "cut.json": b'{"root_index": 1, "nodes": [{"type": "ir.I',
    "root.json": b'{"root_index": 9, "nodes": []}',
    "cut.json.gz": b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xab",
    "impure.py": IMPURE.encode(),
    "undefined.py": CHAIN.replace("R.exp(x)", "R.add(x, HEIGHT)").encode(),
    "packed.py": PACKED.encode(),
    "model.html": CHAIN.encode(),
    "trace.json": trace_as_json(make_trace("mixed", 2)),
    "faulty_trace.json": b'{"events": [[1, 0, -5]]}',
    "table.csv": b"id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\n",
    "two.json": json.dumps(SYMBOLIC).encode(),
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, data in FILES.items():
        Path(name).write_bytes(data)
    for name in ("nothing", "plain"):
        Path(name).mkdir()
    Path("plain/script.py").write_text("x = 1\n")
    os.mkfifo("pipe.py")
    Path("broken.py").symlink_to("nowhere.py")
    Path("no_functions.json").write_text(tvm.ir.save_json(tvm.IRModule({})))
    return tmp_path


# -- files that cannot be read: findings of lint, errors of plan and run

UNREADABLE = [
    ("empty.json", "the file is empty"),
    ("binary.py", "it is a binary file, not Python source"),
    ("binary.json", "it is a binary file, not JSON text"),
    ("syntax.py", "syntax error: invalid syntax"),
    ("cut.json", "the JSON ends too early: the file is truncated (line 1, column"),
    ("root.json", "the graph is damaged: its root is node 9 of 0"),
    ("cut.json.gz", "the gzip file is truncated"),
    ("undefined.py", "the script does not define `HEIGHT`"),
]


@pytest.mark.parametrize(("file", "words"), UNREADABLE)
def test_lint_reports_what_it_cannot_read(run: Run, file: str, words: str) -> None:
    status, out, err = run("lint", file)
    assert (status, err) == (2, "")
    assert out.startswith("error[SYM902]: cannot be read: ") and words in out
    assert f"--> {file}" in out
    assert out.endswith("\nnothing verified: 1 file could not be read.\n")
    assert "Traceback" not in out


NO_CHAINS = [
    ("empty.py", "it holds no Relax module"),
    ("plain.py", "it holds no Relax module"),
    ("other.json", "it is JSON, but not a graph written by tvm.ir.save_json"),
    ("notes.txt", "it holds no Relax module"),
]


def test_named_files_that_hold_no_model_are_skipped_with_a_count(run: Run) -> None:
    status, out, err = run("lint", *(file for file, _ in NO_CHAINS))
    assert (status, err) == (0, "")
    assert out.endswith(" 4 files without Relax modules skipped\n")


def test_they_are_unreadable_where_lint_is_strict(run: Run) -> None:
    status, out, err = run("lint", "--strict", *(file for file, _ in NO_CHAINS))
    assert (status, err) == (2, "")
    for file, words in NO_CHAINS:
        assert f"--> {file}" in out and words in out


def test_a_syntax_error_is_shown(run: Run) -> None:
    _, out, _ = run("lint", "syntax.py")
    assert " --> syntax.py:2:7\n  |\n2 | def f(:\n  |       ^ here\n" in out


def test_an_ill_formed_module_is_read_as_it_stands(run: Run) -> None:
    status, out, _ = run("lint", "impure.py")
    assert status == 2
    assert "the module is ill-formed: Function is annotated as pure" in out


# -- one line on standard error

WRONG = [
    ("--verson", "--version"),
    ("lint", "nothing to lint; give files or directories"),
    ("lint --formt json model.py", "--format"),
    ("lint model.py --format xml", "sarif"),
    ("lint ''", "an empty file name was given"),
    ("lint missing.py", "no such file or directory: missing.py"),
    ("lint pipe.py", "pipe.py is not a regular file"),
    ("lint broken.py", "broken.py is a broken link"),
    ("lint plain", "plain holds no Relax modules"),
    ("lint '*.zip'", "no file matches the pattern *.zip"),
    (f"lint {'n' * 300}.py", "File name too long"),
    ("lint model.py --select SYM999", "unknown rule `SYM999`"),
    ("lint model.py --assume 'k <= 3'", "`k`, which is a symbol of no linted function; there are n"),
    ("lint model.py --assume 'n <= 2' --assume 'n >= 3'", "assumptions contradict each other"),
    ("lint model.py -o nowhere/report.txt", "cannot write nowhere/report.txt: there is no directory nowhere"),
    ("lint model.py -o nothing", "'nothing' is a directory"),
    ("lint model.py --rules nothing", "nothing: holds no rules"),
    ("lint model.py --config nothing", "cannot read nothing: Is a directory"),
    ("lint model.py --timeout 0", "--timeout is 0.0; it must be a number of seconds of at least 0.001"),
    ("lint model.py -o ''", "an empty path was given"),
    ("plan ''", "an empty path was given"),
    ("prove ''", "the constraint is empty"),
    ("prove 'm <'", "constraint: syntax error: invalid syntax\n  m <\n     ^"),
    ("graph missing.py", "no such file: missing.py"),
    ("prove m", "a size where a condition is expected"),
    (f"prove '{'(' * 3000}m{')' * 3000} <= 4'", "too many nested parentheses"),
    ("prove \"__import__('os').system('id') <= 4\"", "not a size expression"),
    ("prove 'm <= 4' --assume 'm >= 5' --assume 'm <= 3'", "assumptions contradict each other"),
    ("prove 'm <= 4' --certificate model.py", "cannot write certificates to model.py: File exists"),
    ("prove --batch missing.json", "cannot read missing.json: No such file or directory"),
    ("prove --batch empty.json", "empty.json: not JSON"),
    ("prove --batch binary.json", "binary.json: not UTF-8 text"),
    ("prove --batch other.json", "other.json: not a list of constraints: Expected `array`"),
    ("plan", "missing argument 'FILE'"),
    ("plan missing.py", "no such file: missing.py"),
    ("plan nothing", "nothing is a directory; give one file"),
    ("plan pipe.py", "pipe.py is not a regular file"),
    ("plan model.py -o nowhere/p.py", "cannot write nowhere/p.py: there is no directory nowhere"),
    ("plan model.py -o p.txt", "the name must end in .json or .py"),
    ("plan model.py --certificate model.py", "to model.py: it is not a directory"),
    ("plan model.py --certificate nowhere/proofs", "there is no directory nowhere"),
    ("plan model.py -o p.json --certificate p.json", "-o and --certificate both name p.json"),
    ("plan model.py --bind n", "--bind n: expected NAME=NUMBER"),
    ("plan model.py --bind n=many", "--bind n=many: 'many' is no whole number"),
    ("plan model.py --bind n=1,n=2", "--bind gives `n` two values, 1 and 2"),
    (f"plan model.py --bind n={10**19}", "can be more than 2**63 - 1"),
    ("plan model.py --bind n=-1", "`n` is an extent of a tensor and cannot be -1"),
    ("plan model.py --bind k=4", "`k` is no symbol of the module's functions; there are n"),
    ("plan model.py --compare iree", "--compare is 'iree'; it must be one of tvm"),
    ("plan model.py --guards asserts", "none; did you mean 'assert'?"),
    ("plan model.py --bounds reserve --guards none", "rests on a check at entry"),
    ("plan model.py --target toaster", "TVM cannot lower the module for the target 'toaster'"),
    ("plan syntax.py", "syntax.py:2:7 cannot be read: syntax error: invalid syntax"),
    ("plan model.py --assume 'n <= 4'", "--assume would have no effect: it goes with --fits"),
    ("plan model.py --fits 1KiB --assume 'k <= 4'", "`k` is no symbol of the module's functions"),
    ("plan model.py --budget 1KiB --assume 'n <= 4' --assume 'n >= 5'", "no shape of `main` is left"),
    ("budget model.py --device 1GiB --margin 110%", "a share of the device is from 0% to less than 100%"),
    ("run model.py --bind k=4", "`k` is no symbol of the parameters: `main` takes n"),
    ("rules --rules nowhere", "nowhere: there is no such folder of rules"),
    ("explain use-after-kil", "did you mean `use-after-kill`?"),
    ("lnt model.py", "did you mean `lint`?"),
    ("lint model.py --assume 'n <='", "assumption `n <=`: syntax error"),
    ("lint model.py --config none.toml --no-config", "exclude each other"),
    ("lint - --fix", "--fix and --diff need files; `-` is standard input"),
    ("lint model.py --cache a --no-cache", "--cache and --no-cache exclude each other"),
    ("lint model.py --baseline none.json", "baseline none.json: cannot be read"),
    ("lint model.py --baseline model.py", "baseline model.py: not valid JSON"),
    ("lint model.py --baseline a --write-baseline b", "goes without --baseline"),
    ("lint model.py --unsafe-fixes", "goes with --fix or --diff"),
    ("prove '4*m/2 <= 3'", "use `//`\n  4*m/2 <= 3\n      ^"),
    ("prove", "give one constraint"),
    ("prove 'm <= 4' --batch x.json", "give one constraint"),
    ("prove --batch x.json --assume 'm <= 1'", "a batch has assumptions of its own"),
    ("plan model.py -o model.py", "-o model.py: it would overwrite model.py, which this run needs"),
    ("plan model.py --module Modul", "holds no module `Modul`; it holds Module"),
    ("plan no_functions.json", "the module in no_functions.json holds no Relax function"),
    ("plan no_functions.json --module M", "no_functions.json is one module, which has no name"),
    ("diff model.py model.py --bind k=4", "`k` is no symbol of the module's functions"),
    ("diff model.py packed.py -o model.py", "it would overwrite"),
    ("diff - -", "standard input can be one of the two"),
    ("diff model.py missing.py", "no such file"),
    ("run model.py", "no value for `n`; add --bind n=128"),
    ("run packed.py", "nobody.knows"),
    ("run model.py --sweep n", "expected NAME=VALUES"),
    ("run model.py --sweep =1..3", "expected NAME=VALUES"),
    ("run model.py --sweep n=", "expected NAME=VALUES"),
    ("run model.py --sweep n=1..x", "'x' is no whole number"),
    ("run model.py --sweep n=5..1", "the range 5..1 is empty"),
    ("run model.py --sweep n=1..5:0", "a step must be at least 1, not 0"),
    ("run model.py --sweep n=4:2", "a step needs a range"),
    ("run model.py --sweep n=1 --sweep n=2", "gives the values of `n` twice"),
    ("run model.py --sweep n=1..9223372036854775808", "no dimension can be more"),
    ("run model.py --sweep n=1..9223372036854775807", f"more than {MOST_BINDINGS} values"),
    ("run model.py --sweep n=1..1000 --sweep b=1..1000", "makes 1000000 bindings"),
    ("run model.py --sweep n=1..2 --bind n=1", "`n` has a value by --bind"),
    ("run model.py --bind n=1 --trace no/where.json", "there is no directory"),
    ("run model.py --bind n=1 --plan tvm --guards none", "--guards would have no effect: --plan tvm"),
    ("run model.py --bind n=1 --trace model.py", "--trace model.py: it would overwrite model.py"),
    ("report model.py -o map.pdf", "map.pdf: the name must end in .html"),
    ("report model.py -o missing/map.html", "cannot write missing/map.html"),
    ("report model.py -o x.html --limit 1GiB", "--limit would have no effect: model.py is a m"),
    ("report trace.json -o x.html --bind n=1", "--bind would have no effect: trace.json is an"),
    ("report model.html -o model.html", "-o model.html: it would overwrite model.html"),
    ("report faulty_trace.json -o x.html", "faulty_trace.json"),
    ("replay trace.json --soft-limit 0.9", "a soft limit of 0.9"),
    ("replay missing.json", "missing.json"),
    ("pack missing.json", "cannot read missing.json: No such file or directory"),
    ("pack two.json --format csv", "two.json: its sizes have symbols, which CSV cannot hold"),
    ("pack two.json -o two.csv", "two.json: its sizes have symbols, which CSV cannot hold"),
    ("pack table.csv table.csv --format csv", "CSV goes to standard output for one problem only"),
    ("pack table.csv table.csv -o out", "two of the problems have the same file name"),
    ("pack table.csv -o none/out.csv", "cannot write none/out.csv: there is no directory none"),
    ("pack table.csv -o out --format text", "the table goes to standard output"),
    ("schema plans", "document is 'plans'; it must be one of"),
]


@pytest.mark.parametrize(("command", "words"), WRONG, ids=[command[:60] for command, _ in WRONG])
def test_what_makes_no_sense_is_said_and_is_2(run: Run, folder: Path, command: str, words: str) -> None:
    before = sorted(folder.rglob("*"))
    status, out, err = run(*shlex.split(command))
    assert (status, out) == (2, "")
    assert err.startswith("error: ") and words in err
    assert "Traceback" not in err and len(err) < 600
    assert sorted(folder.rglob("*")) == before


# -- output that cannot be written

SYMALLOC = [sys.executable, "-m", "symalloc"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk(run: Run) -> None:
    status, out, err = run("rules", "--format", "json")
    assert status == 0
    for arguments in (["lint", "model.py", "-o", "/dev/full"], ["prove", "m >= 0", "-o", "/dev/full"]):
        status, out, err = run(*arguments)
        assert (status, out) == (2, "")
        assert err == "error: cannot write /dev/full: No space left on device\n"
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode), "a device is written to, not replaced"
    with open("/dev/full", "w") as full:  # noqa: PTH123
        assert ran(*SYMALLOC, "rules", stdout=full) == (2, "", "error: output: No space left on device\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_plan_that_cannot_be_shown_or_written_leaves_nothing(run: Run, folder: Path) -> None:
    Path("full.json").symlink_to("/dev/full")
    before = sorted(folder.rglob("*"))
    status, _, err = run("plan", "model.py", "-o", "full.json", "--certificate", "proofs")
    assert (status, err) == (2, "error: cannot write full.json: No space left on device\n")
    with open("/dev/full", "w") as full:  # noqa: PTH123
        said = ran(*SYMALLOC, "plan", "model.py", "-o", "p.json", "--certificate", "proofs", stdout=full)
    assert said == (2, "", "error: output: No space left on device\n")
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_closed_streams(closed: str) -> None:
    code = f"import sys; sys.{closed} = None; from symalloc.cli.main import main; main(['prove', 'm >= 0'])"
    status, _, err = ran(sys.executable, "-c", code)
    assert (status, err) == (0, "")


# -- Ctrl-C and other ends


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
@pytest.mark.parametrize(
    ("arguments", "group", "number"),
    [
        (["lint", "endless.py", "model.py", "-o", "report.txt"], False, signal.SIGINT),
        (["lint", "endless.py", "model.py", "-o", "report.txt"], True, signal.SIGINT),
        (["lint", "endless.py", "model.py", "-j2", "-o", "report.txt"], False, signal.SIGTERM),
        (["plan", "endless.py", "-o", "planned.py"], False, signal.SIGHUP),
        (["plan", "endless.py", "--compare", "tvm", "--certificate", "proofs"], True, signal.SIGTERM),
        (["prove", "--batch", "hard.json", "-o", "answers.json"], True, signal.SIGINT),
    ],
    ids=["lint-process", "lint-group", "lint-terminated", "plan-hung-up", "plan-group", "prove-group"],
)
def test_a_signal_ends_everything_at_once(
    folder: Path, arguments: list[str], group: bool, number: signal.Signals
) -> None:
    Path("endless.py").write_text(CHAIN.replace("R.exp(x)", "R.reshape(x, R.shape([7 ** 7 ** 9]))"))
    hard = (
        f"a*a*a + b*b*b*{i + 3} + c*c*c != {i * i + 31}*d*e + 7*(a*b // (c + {i + 1})) + a*d % 97"
        for i in range(300)
    )
    Path("hard.json").write_text(json.dumps([{"id": c, "constraint": c} for c in hard]))
    before = sorted(folder.rglob("*"))
    process = subprocess.Popen(
        [*SYMALLOC, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    alone = arguments[0] == "prove"  # it works in this process
    until_busy(lambda: [process.pid] if alone else descendants(process.pid))
    below = descendants(process.pid)
    (os.killpg if group else os.kill)(process.pid, number)
    out, err = process.communicate(timeout=120)
    word = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGHUP: "hung up"}[number]
    assert (process.returncode, out, err.strip()) == (128 + number, "", word)
    assert alone is not bool(below)
    until_gone(below)
    assert sorted(folder.rglob("*")) == before
