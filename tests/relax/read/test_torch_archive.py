"""Archives of torch.export: what may not pass to torch's loader.  Needs no torch."""

from __future__ import annotations

import io
import json
import os
import sys
import zipfile
from types import SimpleNamespace

import pytest

from symalloc.program.reading import UnreadableError
from symalloc.relax.read.torch_program import _require_operators, guarded

SIZE = "Add(Mul(Integer(2), Symbol('s17', positive=True, integer=True)), Integer(1))"
NODE = {"target": "torch.ops.aten.add.Tensor", "inputs": []}


def archive(graph: object, **more: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as made:
        made.writestr("m/models/model.json", json.dumps(graph))
        for name, content in more.items():
            made.writestr(f"m/data/{name.replace('__', '/')}", content)
    return stream.getvalue()


def test_plain_graphs_pass_and_nothing_but_tensors_is_unpickled() -> None:
    with guarded(archive([{"expr_str": SIZE}, NODE], weights__weight_0=b"\0"), trust=False):
        assert os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] == "1"
    assert "TORCH_FORCE_WEIGHTS_ONLY_LOAD" not in os.environ


@pytest.mark.parametrize(
    "size",
    [
        "__import__('os').system('touch here')",
        "eval('1')",
        "(lambda: 1)()",
        "Symbol('a b').x",
        "[n for n in 3]",
        "Symbol('exit()')",
        "",
        "(" * 5000,
    ],
)
def test_a_size_that_is_no_arithmetic_is_refused(size: str) -> None:
    data = archive({"a": [{"expr_str": size}]})
    with pytest.raises(UnreadableError, match="is no arithmetic") as caught, guarded(data, trust=False):
        pytest.fail("it passed")
    assert "--trust" in str(caught.value.hint)
    with guarded(data, trust=True):
        pass


OTHERS = ("torch.os.system", "_operator.methodcaller", "torch.ops.load_library")
CODE = ("aotinductor__m__lib.so", "constants__custom_obj_0", "constants__opaque_obj_0")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        *((archive({"nodes": [NODE, {**NODE, "target": t}]}), "is no operator of torch") for t in OTHERS),
        *((archive({}, **{name: b"\0"}), "which is code") for name in CODE),
        (b"", "the file is empty"),
        (b"PK\x03\x04cut", "truncated or damaged"),
        (archive({})[:-30], "truncated or damaged"),
        (b"hello", "no archive of torch.export"),
        (archive({}).replace(b"model.json", b"model.text"), "without an exported program"),
        (archive({}).replace(b"{}", b"{]"), "m/models/model.json cannot be read"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_operator_code_and_damaged_archives_are_refused(data: bytes, said: str) -> None:
    with pytest.raises(UnreadableError, match=said), guarded(data, trust=False):
        pytest.fail("it passed")


@pytest.mark.parametrize(
    ("targets", "message", "hint"),
    [
        (["quantized_decomposed.quantize_per_tensor.default"], "quantized_decomposed.quan", "quantised"),
        (["mine.twice", "aten.add.Tensor"], "torch knows no mine.twice here", "them"),
        ([f"mine.f{n}.default" for n in range(5)], "mine.f0, mine.f1, mine.f2 and 2 more here", "them"),
        (["aten.add.Tensor"], "", ""),
    ],
)
def test_operators_that_torch_has_not_loaded_are_named(
    targets: list[str], message: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = SimpleNamespace()
    known = {"aten": SimpleNamespace(add=object()), "mine": SimpleNamespace(once=object())}
    ops = SimpleNamespace(**known, quantized_decomposed=nothing)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(ops=ops))
    data = archive({"nodes": [{**NODE, "target": f"torch.ops.{target}"} for target in targets]})
    if not message:
        _require_operators(data)
        return
    with pytest.raises(UnreadableError, match=message) as caught:
        _require_operators(data)
    assert hint in str(caught.value.hint)
