"""Places of calls in scripts: TVM's parser gives none to a call that others are written in."""

from __future__ import annotations

from pathlib import Path

from symalloc.relax.files.load import load_one
from symalloc.relax.ir_types import bindings_in
from symalloc.relax.source_spans import source_of

SCRIPT = """\
from tvm.script import ir as I, relax as R

@I.ir_module
class Module:
    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        a = R.add(R.exp(x), x)
        if c:
            b = R.tanh(a)
            y = R.add(R.exp(b), b)
        else:
            y = R.multiply(
                R.exp(a),
                R.exp(R.negative(a)),
            )
        return R.add(y, R.exp(y))
"""


def test_every_call_has_its_line(tmp_path: Path) -> None:
    file = tmp_path / "nested.py"
    file.write_text(SCRIPT)
    found = [
        (str(b.value.op.name).rpartition(".")[2], int(source_of(b).rpartition(":")[2]))
        for b in bindings_in(load_one(file)["main"].body)
        if hasattr(b.value, "op")
    ]
    assert found == [
        ("exp", 7),
        ("add", 7),
        ("exp", 16),
        ("add", 16),
        ("exp", 13),
        ("negative", 14),
        ("exp", 12),  # of the statement: `negative`, not `exp`, has a line of its own
        ("multiply", 12),
        ("tanh", 9),
        ("exp", 10),
        ("add", 10),
    ]
