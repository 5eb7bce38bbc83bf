"""A module that is planned already: every verb says so, and none takes it for one without memory."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cli.documents import HEAD, read_as
from tests.conftest import Run
from tests.modules import CHAIN

pytestmark = pytest.mark.usefixtures("warm_workers")

EXAMPLES = Path(__file__).parents[2] / "examples"
MLP = EXAMPLES / "mlp.py"
MODULE = f"""{HEAD}\
    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor(("n", 16), "float32")) -> R.Tensor(("n", 16), "float32"):
        if c:
            a = R.exp(x)
            b = R.add(a, x)
            t = R.multiply(a, b)
            y = t
        else:
            d = R.sin(x)
            e = R.multiply(d, x)
            f = R.add(d, e)
            y = f
        return R.add(y, x)
"""


@pytest.fixture
def module(tmp_path: Path) -> Path:
    file = tmp_path / "module.py"
    file.write_text(MODULE)
    return file


@pytest.mark.slow
def test_the_plan_is_shown_and_what_is_written_runs_and_lints(module: Path, tmp_path: Path, run: Run) -> None:
    output = tmp_path / "planned.py"
    status, out, err = run("plan", module, "-o", output)
    assert status == 0 and err.startswith(f"wrote {output}: linted, ")
    assert out.startswith("main: 6 of 7 tensors planned\n  arena 1 on device 0 (global): ")
    assert "  checked at entry: n <= " in out
    assert "  result with memory of its own: 64*n B" in out
    assert run("lint", output)[0] == 0
    status, out, _ = run("run", output, "--bind", "n=3", "--check")
    assert status == 0 and "the same as the unplanned module, bit for bit" in out


def test_buffers_keep_the_limit_of_a_device_or_are_named(module: Path, run: Run) -> None:
    (module.parent / "pyproject.toml").write_text('[tool.symalloc]\nmax-buffer = "1KiB"\n')
    status, out, _ = run("plan", module)
    assert status == 0
    assert "  more than 1.0 KiB in one buffer: `" in " ".join(out.splitlines()) and "64*n B at n = 17" in out
    out = run("plan", module, "--format", "json", "--max-buffer", "4KiB")[1]
    (main,) = read_as("plan", out)["functions"]
    assert {(t["bytes"], t["limit"], t["binding"]["n"]) for t in main["too_large"]} == {("64*n", 4096, 65)}
    assert all(b["offset"] == "0" for arena in main["arenas"] for b in arena["buffers"])


def test_json_holds_formulas_and_samples(module: Path, tmp_path: Path, run: Run) -> None:
    output = tmp_path / "planned.json"
    status, out, _ = run("plan", module, "--format", "json", "--compare", "tvm", "-o", output)
    assert status == 0
    assert run("lint", output)[0] == 0
    (function,) = read_as("plan", out)["functions"]
    results = [one for one in function["arenas"] if one["result"] is not None]
    arenas = [one for one in function["arenas"] if one["result"] is None]
    assert sum(len(one["buffers"]) for one in function["arenas"]) == 6 + len(results)
    for sample in function["samples"]:
        n = sample["binding"]["n"]
        held = sum(eval(one["bytes"], {"max": max}, {"n": n}) for one in arenas)
        assert held == sample["arena"] > 0
        assert sample["call"] == sample["call_unplanned"] >= sample["floor"] > 0
        assert sample["ratio"] == sample["arena"] / sample["floor"]
        assert sample["unshared"] == 6 * 64 * n


QUOTIENT = f"""{HEAD}\
    @R.function
    def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("m",), "float32")) -> R.Tensor((), "float32"):
        n, m = T.int64(), T.int64()
        a = R.full(R.shape([n // m, n]), R.const(1, "float32"), "float32")
        b = R.nn.softmax(a, axis=0)
        return R.sum(b)
"""


def test_a_plan_with_warnings_is_written_and_shown_where_its_shapes_are_not_defined(
    tmp_path: Path, run: Run
) -> None:
    """At `m = 0` no shape is defined.  That the sum may have nothing to add up is the module's own affair."""
    file, output = tmp_path / "quotient.py", tmp_path / "planned.json"
    file.write_text(QUOTIENT)
    samples = ("--bind", "n=5", "--bind", "m=0", "--bind", "n=5,m=2")
    status, out, _ = run("plan", file, *samples, "-o", output)
    assert status == 0
    assert output.exists()
    (workspace,) = (line.split() for line in out.splitlines() if line.startswith("  workspace  "))
    assert workspace[1] == "-"
    assert workspace[2] != "-"


def test_a_sample_shows_what_makes_the_peak(run: Run) -> None:
    status, out, _ = run("plan", MLP, "--bind", "n=128")
    assert status == 0
    shown = os.path.relpath(MLP)
    assert "  peak at n = 128: 384.0 KiB of tensors, in call 4 of 7, `gelu`\n" in out
    assert f"    alloc1 (b = gelu)     128.0 KiB  add, idle here  {shown}:16\n" in out
    assert "    `gelu` takes 128.0 KiB of workspace besides\n" in out
    assert "    without alloc1 (b = gelu) it is 256.0 KiB: it waits for `add`\n" in out
    assert "    alloc5 (matmul2)  256*n " in out


RESULTS = f"""{HEAD}\
    @R.function
    def {{name}}(x: R.Tensor(("n", 64), "float32"), y: R.Tensor(("n", 64), "float32")):
        n = T.int64()
        {{body}}
        return d
"""


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("d = R.add(x, y)", "it is 0 B: the caller can donate an input (--alias {}result=x, tried)"),
        ("d = R.permute_dims(x)", "it is 0 B: the caller can donate an input (--alias {}result=y, tried)"),
        ("d = (R.permute_dims(x), y)", "but no input can be donated to this result: the alias 0=y of "),
        ("d = R.concat([x, y], axis=1)", "but no input can be donated to this result: no input is as large"),
        ("d = R.matmul(x, R.permute_dims(y))", "but no input can be donated to this result: "),
    ],
)
@pytest.mark.parametrize("name", ["main", "step"])
def test_a_remedy_is_tried_before_it_is_told(
    body: str, said: str, name: str, tmp_path: Path, run: Run
) -> None:
    file = tmp_path / "result.py"
    file.write_text(RESULTS.format(name=name, body=body))
    shown = run("plan", file, "--bind", "n=128")[1]
    found = [line for line in shown.splitlines() if line.startswith("    without ")]
    assert any(said.format("" if name == "main" else f"{name}:") in line for line in found)
    for alias in (line.partition("--alias ")[2].partition(",")[0] for line in found if "--alias" in line):
        status, out, _ = run("run", file, "--bind", "n=128", "--check", "--alias", alias)
        assert status == 0 and "the same as the unplanned module" in out


def test_what_kernels_in_place_would_save_is_told_beside_the_floor(run: Run) -> None:
    (main,) = json.loads(run("plan", MLP, "--bind", "n=128", "--format", "json")[1])["functions"]
    (sample,) = main["samples"]
    # without: b, c and d at once; gelu over its input: b and c, or b and d, of 256 floats a row
    assert (sample["ratio"], sample["floor"], sample["in_place"]) == (1.0, 3 * 131072, 131072)
    attention = EXAMPLES / "attention.py"
    assert "in place would save     896.0 KiB\n" in run("plan", attention, "--bind", "n=512")[1]
    told = run("plan", attention, "--bind", "n=512", "--shrink", "safe")[1]
    assert " in place save" in told and "898.0 KiB\n" in told and "1.1 MiB" in told


def test_where_a_plan_fits_and_where_its_arenas_exceed_a_limit(tmp_path: Path, run: Run) -> None:
    output = tmp_path / "planned.json"
    asked = ("--fits", "512MiB", "--max-arena", "1MiB", "-o", output, "--format", "json")
    status, out, err = run("plan", MLP, *asked)
    assert status == 1 and not output.exists()
    assert (
        "`main`: its arenas can take more than 1048576 B: counterexample n = 342; nothing is written" in err
    )
    fits = read_as("plan", out)["functions"][0]["fits"]
    assert fits["arenas"]["condition"] == "n <= 174762" == fits["call"]["condition"]
    (largest,) = fits["arenas"]["largest"]
    assert largest == {"symbol": "n", "at": {}, "value": 174762, "monotone": True, "alike": []}
    assert fits["again"]["condition"] == "n <= 161319" and not fits["everything"]["exact"]


def test_arenas_in_pieces_keep_to_a_limit(tmp_path: Path, run: Run) -> None:
    file = EXAMPLES / "attention.py"
    output = tmp_path / "planned.py"
    asked = ("--max-arena", "400KiB", "--shrink", "safe", "-o", output)
    status, out, err = run("plan", file, *asked)
    assert status == 1 and not output.exists() and "arenas can take more than 409600 B" in err
    said = "1 group of kernels, 8 each: 395264 B for 1310720 B\n"
    assert f"  in pieces: --chunks 8 would have {said}" in out
    status, out, err = run("plan", file, *asked, "--chunks", "16")
    assert status == 0 and f"  in pieces: {said}" in out
    assert run("lint", output)[0] == 0
    document = json.loads(run("plan", file, *asked, "--chunks", "16", "--format", "json")[1])
    assert document["functions"][0]["pieces"] == said.strip()
    assert run("plan", file, *asked, "--chunks", "16", "--bind", "n=2048")[0] == 1
    for wrong in (asked[:2], asked[2:4]):
        status, out, err = run("plan", file, *wrong, "--chunks", "16")
        said = "error: --chunks takes --max-arena, --shrink safe or --shrink full, and --order total\n"
        assert (status, out, err) == (2, "", said)
    for wrong in ("0", "'half'", "-1", "1000000"):
        status, out, err = run("plan", file, *asked, "--chunks", wrong.strip("'"))
        assert (status, out) == (2, "") and err.startswith(f"error: --chunks is {wrong}; it must be ")
    err = run("plan", file, "--arena", "caller", "--max-buffer", "1MiB")[2]
    assert (
        err == "error: --arena caller takes one arena, and --max-buffer splits it; leave one of the two out\n"
    )


def test_a_whole_call_against_a_budget(tmp_path: Path, run: Run) -> None:
    output = tmp_path / "planned.json"
    status, out, err = run("plan", MLP, "--budget", "1MiB", "-o", output)
    assert status == 1 and not output.exists() and "main: fits 1.0 MiB (1048576 B)\n" in out
    assert "a call of `main` can take more than 1048576 B: counterexample n = 342; nothing is written" in err
    for narrowed in (("--bind", "n=341"), ("--assume", "n <= 341")):
        status, out, err = run("plan", MLP, "--budget", "1MiB", *narrowed)
        assert (status, err) == (0, "") and "  whole call: at every shape (proved)\n" in out
    assert run("plan", MLP, "--budget", "1MiB", "--bind", "n=342")[0] == 1
    for wrong, said in ((("--bind", "m=1"), "no symbol"), (("--assume", "n <"), "assumption `n <`")):
        status, out, err = run("plan", MLP, "--budget", "1MiB", *wrong)
        assert status == 2 and said in err


# -- donated inputs ------------------------------------------------------------------------------------------

STEP = f"""{HEAD}\
    @R.function
    def main(w: R.Tensor(("n", 8), "float32"), g: R.Tensor(("n", 8), "float32")) -> R.Tensor:
        n = T.int64()
        scaled = R.multiply(g, R.const(0.1, "float32"))
        updated = R.subtract(w, scaled)
        return updated
"""


@pytest.fixture
def step(tmp_path: Path) -> str:
    path = tmp_path / "step.py"
    path.write_text(STEP)
    return str(path)


def test_a_plan_with_a_donated_input(run: Run, step: str, tmp_path: Path) -> None:
    output = tmp_path / "planned.json"
    status, out, _ = run("plan", step, "--alias", "updated=w", "-o", str(output))
    assert status == 0 and output.exists()
    assert out.startswith("main: 1 of 2 tensors planned, 1 in donated inputs\n")
    assert "  result in the donated input `w`: `result`, 32*n B\n" in out
    assert "  donated results " in out and "\n  results  " not in out


def test_the_plan_as_json(run: Run, step: str) -> None:
    _, out, _ = run("plan", step, "--alias", "result=w", "--format", "json", "--bind", "n=10")
    (function,) = json.loads(out)["functions"]
    assert function["carried"] == [{"output": "result", "input": "w", "bytes": "32*n", "room": "32*n"}]
    assert function["returned"] == []
    assert [(s["carried"], s["returned"]) for s in function["samples"]] == [(320, 0)]


@pytest.mark.parametrize(
    ("alias", "message"),
    [
        ("updated", "'updated' is no alias; write OUTPUT=INPUT"),
        ("updated=v", "there is no input `v`; the inputs are `w`, `g`"),
        ("other=w", "there is no output `other`; the outputs are `result` or `updated`"),
        ("step:updated=w", "there is no public function `step`"),
    ],
)
def test_what_is_refused(run: Run, step: str, alias: str, message: str) -> None:
    for command in (("plan", step), ("run", step, "--bind", "n=5")):
        status, out, err = run(*command, "--alias", alias)
        assert (status, out) == (2, "")
        assert message in err and "Traceback" not in err


def test_a_fault_in_a_buffer_of_a_kernel_keeps_no_plan_from_being_written(tmp_path: Path, run: Run) -> None:
    output = tmp_path / "planned.json"
    file = Path(__file__).parents[1] / "museum" / "modules" / "mlc_topk_index.py"
    status, _, err = run("plan", file, "-o", output)
    assert (status, output.is_file()) == (0, True)
    assert "error[SYM306]" in err and "every shape at which the kernel gets there fails" in err


VERBS = (
    ("plan",),
    ("plan", "--compare", "tvm"),
    ("run", "--bind", "n=3", "--check"),
    ("report", "-o", "map.html"),
    ("budget", "--device", "1GiB", "--bind", "n=3"),
)


@pytest.fixture
def planned(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(CHAIN)
    assert run("plan", "model.py", "-o", "planned.json", "-q")[0] == 0
    return Path("planned.json")


def test_every_verb_says_so_once(run: Run, planned: Path) -> None:
    said = "note: planned.json is planned already: "
    for verb, *options in VERBS:
        status, _, err = run(verb, planned, *options)
        assert (status, err.count(said)) == (0, 1), verb
        status, _, err = run(verb, planned, *options, "-q")
        assert (status, err) == (0, ""), verb
        assert said not in run(verb, "model.py", *options)[2], verb
    status, _, err = run("diff", "model.py", planned)
    assert (status, err.count(said)) == (0, 1)
    assert run("lint", planned)[0] == 0


def test_a_run_does_not_say_that_there_was_nothing(run: Run, planned: Path) -> None:
    _, out, _ = run("run", planned, "--bind", "n=3")
    assert "arena: none, no tensor was left to plan" in out
