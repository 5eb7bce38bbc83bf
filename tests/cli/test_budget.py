from __future__ import annotations

import json
from pathlib import Path

import pytest
import tvm.script
from tvm import relax

import symalloc
from symalloc.program.packed_contracts import contract_of, contracts
from tests.cli.documents import read_as
from tests.conftest import Run
from tests.modules import CHAIN

pytestmark = pytest.mark.usefixtures("warm_workers")

CHAT = Path(__file__).parent.parent.parent / "examples" / "chat.py"
SIZES = "prefill_chunk_size=2048,seq_len=prefill_chunk_size,vocabulary=32000"
CACHE = "create_cache:max_batch_size=16,max_total_seq_len=65536,page_size=16,support_sliding_window=0"
PAGES = 2 * (65536 // 16 + 1) * 2 * 2 * 16 * 64 * 2
UNKNOWN = """
    @R.function(pure=False)
    def main(x: R.Tensor(("n", 16), "float32")) -> R.Tensor(("n", 16), "float32"):
        a = R.call_dps_packed({name!r}, (x,), out_ty=R.Tensor((n, 16), "float32"))
        return a
"""
RETURNED = """
    @R.function(pure=False)
    def main(x: R.Tensor((160,), "float32")):
        {body}
"""
STORAGE = """s = R.memory.alloc_storage(R.shape([6400]), R.prim_value(0), R.str("global"), R.dtype("float32"))
        y = R.memory.alloc_tensor(s, R.prim_value(0), R.shape([16]), R.dtype("float32"))
        return y"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_server_and_its_settings(run: Run) -> None:
    status, out, err = run("budget", str(CHAT), "--device", "1GiB", "--state", CACHE, "--bind", SIZES)
    assert (status, err) == (0, "")
    assert out.startswith("365.9 MiB of 1.0 GiB: fits, 658.1 MiB left\n")
    assert f"  {PAGES:,} B  paged_kv_cache.cc:469, 3307; attn_utils.h:74" in out
    shown = ("--state", CACHE, "--bind", SIZES, "--margin", "10%", "--extra", "1MB")
    status, out, _ = run("budget", str(CHAT), "--device", "400MiB", *shown)
    assert status == 1 and "fits with max_total_seq_len = " in out and "calls where one was" in out


def test_the_json_is_described(run: Run) -> None:
    given = ("--device", "1GiB", "--state", CACHE, "--bind", SIZES)
    free = ("--free", "max_total_seq_len", "--free", "max_batch_size")
    status, text, _ = run("budget", str(CHAT), *given, *free, "--format", "json")
    document = read_as("budget", text)
    assert status == 0 and document["fits"] is True and document["unknown"] == []
    found = symalloc.budget(CHAT, device="1GiB", state=CACHE, bind=SIZES, free=[free[1], free[3]])
    assert found.total == document["total"]
    assert [one.value for one in found.largest] == [one["value"] for one in document["largest"]]


def test_an_ordinary_model(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "chain.py"
    file.write_text(CHAIN)
    status, out, _ = run("budget", str(file), "--device", "1MiB")
    assert status == 0 and "fits exactly when n <= " in out
    assert run("budget", str(file), "--device", "1MiB", "--bind", "n=1000000")[0] == 1
    assert run("budget", str(file), "--device", "1MiB", "--bind", "m=1")[0] == 2
    assert run("budget", str(file))[0] == 2


@pytest.mark.parametrize(
    "name",
    [
        "mylib.f",
        "tvm.contrib.cublas.matmul",
        "vm.builtin.attention_kv_cache_append",
        "fused_attention_cutlass",
    ],
)
def test_nothing_is_proved_where_a_packed_function_takes_who_knows(name: str) -> None:
    module = tvm.script.from_source(f"# script\n@I.ir_module\nclass Module:{UNKNOWN.format(name=name)}")
    found = symalloc.budget(module, device="1TiB", bind={"n": 4})
    assert found.fits is None and found.total is not None and name in found.unknown[0]
    open_ = symalloc.budget(module, device="1TiB")
    assert open_.verdict == "runtime-check" and open_.condition is None
    assert symalloc.budget(module, device=100, bind={"n": 4}).fits is False


@pytest.mark.parametrize(
    ("body", "call", "kept"),
    [
        ("return x", 640, 640),
        ("return (x, R.exp(x))", 1280, 1280),
        ("return R.exp(x)", 1280, 640),
        (STORAGE, 7040, 6400),
    ],
)
def test_all_that_a_result_holds_is_kept(body: str, call: int, kept: int) -> None:
    text = f"# script\n@I.ir_module\nclass Module:{RETURNED.format(body=body)}"
    found = symalloc.budget(tvm.script.from_source(text), device="1MiB")
    assert {one.what: one.nbytes for one in found.terms} == {"call": call, "kept": kept}
    assert found.exact


def test_weights_of_one_name_count_each() -> None:
    x, first, second = (relax.Var(name, relax.TensorType([100], "float32")) for name in "xww")
    builder = relax.BlockBuilder()
    with builder.function("main", [x, first, second], attrs={"num_input": 1}):
        builder.emit_func_output(builder.emit(relax.op.add(first, relax.op.add(x, second))))
    assert symalloc.budget(builder.get(), device="1MiB").terms[0].nbytes == 800


KERNEL = """# script
@I.ir_module
class Module:
    @T.prim_func
    def kernel(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32")):
        T.evaluate({call}("mylib.f", a.data, b.data))
        b[0] = a[0]

    @R.function
    def main(x: R.Tensor((16,), "float32")) -> R.Tensor((16,), "float32"):
        y = R.call_tir(Module.kernel, (x,), out_ty=R.Tensor((16,), "float32"))
        return R.call_tir(Module.kernel, (y,), out_ty=R.Tensor((16,), "float32"))
"""


@pytest.mark.parametrize("call", ["T.call_packed", "T.call_cpacked", 'T.call_extern("int32", '])
def test_nothing_is_proved_where_a_kernel_calls_a_function_that_is_not_seen(call: str, run: Run) -> None:
    """By `symalloc budget`, `plan --fits` and SYM402 alike."""
    text = KERNEL.format(call=call).replace('"int32", (', '"int32", ')
    Path("kernel.py").write_text(f"from tvm.script import ir as I, relax as R, tirx as T\n\n{text[9:]}")
    module = tvm.script.from_source(text)

    def proved() -> tuple[bool | None, bool, bool]:
        fits = json.loads(run("plan", "kernel.py", "--fits", "1MiB", "--format", "json")[1])
        whole = fits["functions"][0]["fits"]["call"]
        found = symalloc.lint(module, stage="planned", budget="1MiB", select="SYM402")
        return symalloc.budget(module, device="1MiB").fits, whole["unknown"] is None, not len(found)

    assert symalloc.budget(module, device="1MiB").unknown == ("what `mylib.f` takes, in `main`",)
    assert proved() == (None, False, False)
    with contracts({"mylib.f": contract_of("", {"takes": "nothing"})}):
        Path("pyproject.toml").write_text('[tool.symalloc.packed."mylib.f"]\ntakes = "nothing"\n')
        assert proved() == (True, True, True)
