"""Modules in JSON."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
import tvm
import tvm_ffi
from tvm import relax

from symalloc.program.reading import UnreadableError
from symalloc.relax.read.open_model import load_module
from tests.relax.built import graph


def module() -> Any:
    return graph(lambda _, x: relax.op.add(x, relax.const([1.0, 2.0, 3.0, 4.0], "float32")), x=("n", 4))


@pytest.fixture(scope="module")
def text() -> str:
    return str(tvm.ir.save_json(module()))


def changed(text: str, **replacement: object) -> bytes:
    return json.dumps({**json.loads(text), **replacement}).encode()


def test_plain_and_gzipped(text: str) -> None:
    for data in (text.encode(), gzip.compress(text.encode()), b"\xef\xbb\xbf" + text.encode()):
        assert tvm_ffi.structural_equal(load_module(data), module(), map_free_vars=True)


def test_a_lone_function() -> None:
    loaded = load_module(tvm.ir.save_json(module()["main"]).encode())
    assert [g.name_hint for g in loaded.get_global_vars()] == ["main"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b" \n", "the file is empty"),
        (b'{"nodes": }', "not valid JSON: .* .line 1, column 11"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"root_index": true, "nodes": [{"type": "None"}]}', "its root is node True"),
        (b'{"root_index": 0, "nodes": [1]}', "node 0 has no type"),
        (b'{"root_index": 0, "nodes": [{"type": "None"}]}', "no Relax module but an object of type NoneType"),
        (b'{"root_index": 0, "nodes": [{"type": "no.such"}]}', "TVM cannot load it"),
        (b"\x1f\x8bnonsense", "no valid gzip file"),
    ],
)
def test_what_is_no_module(data: bytes, message: str) -> None:
    with pytest.raises(UnreadableError, match=message):
        load_module(data)


def test_a_dangling_index_is_an_error(text: str) -> None:
    nodes = json.loads(text)["nodes"]
    next(node for node in nodes if node["type"] == "ffi.Array" and node["data"])["data"][0] = 10**9
    with pytest.raises(UnreadableError, match="TVM cannot load it"):
        load_module(changed(text, nodes=nodes))


@pytest.mark.parametrize(
    "node", [{"type": "ffi.Module", "data": ""}, {"type": "ir.EnvFunc", "data": "runtime.SystemLib"}]
)
def test_code_in_a_graph_is_not_loaded(text: str, node: dict[str, str]) -> None:
    data = changed(text, nodes=[*json.loads(text)["nodes"], node])
    with pytest.raises(UnreadableError, match=f"is a {node['type']}, which is code"):
        load_module(data)


def test_another_version_is_mentioned_where_loading_fails(text: str) -> None:
    data = changed(text, nodes=[{"type": "no.such"}], root_index=0, metadata={"tvm_version": "0.18.0"})
    with pytest.raises(UnreadableError) as caught:
        load_module(data)
    assert caught.value.hint == f"it was written by TVM 0.18.0; this is TVM {tvm.__version__}"
