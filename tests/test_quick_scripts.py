"""The short cuts that the tests take when they read scripts change nothing in what is read."""

from __future__ import annotations

from inspect import unwrap
from pathlib import Path

import pytest
import tvm
from tvm.script.parser.core import doc, evaluator

from symalloc.relax.read.script import ScriptReader
from symalloc.relax.read.script_file import parse_text
from tests.scale import NIGHTLY

MODULES = sorted((Path(__file__).parent / "museum" / "modules").glob("*.py"))[::3]
TRIED = """
from tvm.script import ir as I, relax as R, tirx as T
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")):
        n = T.int64()
        y = {tried}
        return y
"""


@pytest.mark.skipif(NIGHTLY, reason="the nightly run takes no short cut")
def test_what_is_read_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = (
        "nothing",  # a name that there is not
        "R.no_such_operator(x)",
        "R.add(x)",
        "R.add(x, x, x, other=x)",
        "R.add(*(x, x))",
        "R.sum(x, **{'axis': 1})",
        "R.sum(x, axis=[-1], keepdims=True)",
        "R.zeros((n, max(4, 2 * n)), 'float32')",
        "(x, x)[0]",
        "(x, x)[2]",
        "R.const(1 if 2 > 1 else 0, 'int64')",
    )
    texts = [file.read_text() for file in MODULES] + [TRIED.format(tried=one) for one in tried]
    quickly = [_read(text) for text in texts]
    for holder, name in (
        (doc, "_is_atomic_type"),
        (evaluator, "_eval_expr"),
        (evaluator.ExprEvaluator, "_visit"),
    ):
        way = getattr(holder, name)
        assert unwrap(way) is not way
        monkeypatch.setattr(holder, name, unwrap(way))
    assert quickly == [_read(text) for text in texts]
    assert any(mod is None for read in quickly for mod, _ in read)


def _read(text: str) -> list[tuple[str | None, str]]:
    """The modules in JSON, which has their source spans, and the problems."""
    script = parse_text("script.py", text)
    reader = ScriptReader(script, trust=False)
    found = [reader.read(module) for module in script.modules]
    return [(None if one.mod is None else tvm.ir.save_json(one.mod), str(one.problems)) for one in found]
