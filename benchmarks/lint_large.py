"""What findings cost: a large decoder as TVM plans it, clean and with one storage too small.

Process time of `symalloc.lint` on the module in memory, and on its JSON file without the time that TVM takes
to load and check it.  Clean and faulty take turns.  126 layers are 12,009 bindings.

    python -m benchmarks.lint_large [--layers 126] [--rounds 5] [--json]
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import click
import tvm
from tvm import relax

import symalloc
from benchmarks.harness import cpu_seconds, decoder_of, in_turns, json_option, rounds_option
from benchmarks.lint_llama import planned
from symalloc.linter.lint_options import LintOptions
from symalloc.linter.linter import Linter
from symalloc.program.reading import Message, ReadOptions, result_of
from symalloc.relax.workers.programs import read_path

LIMIT = 1.2
LIMIT_SECONDS = 2.5
_RESERVES = "relax.memory.alloc_storage"


def with_fault(mod: tvm.IRModule, name: str = "forward") -> tvm.IRModule:
    """`mod` with a storage of 16 bytes in the middle of a function."""
    function = mod[name]
    bindings = [b for block in function.body.blocks for b in block.bindings]
    middle = len(bindings) // 2
    at = next(i for i in range(middle, len(bindings)) if _reserves(bindings[i].value))
    call = bindings[at].value
    smaller = tvm.ir.Call(call.op, [relax.ShapeExpr([16]), *call.args[1:]], call.attrs, call.ty_args)
    bindings[at] = relax.VarBinding(bindings[at].var, relax.BlockBuilder().normalize(smaller))
    body = relax.BlockBuilder().normalize(relax.SeqExpr([relax.BindingBlock(bindings)], function.body.body))
    changed = relax.Function(function.params, body, function.ret_ty, function.is_pure, function.attrs)
    return tvm.IRModule({v: changed if v.name_hint == name else f for v, f in mod.functions.items()})


def _reserves(value: Any) -> bool:
    return isinstance(value, tvm.ir.Call) and getattr(value.op, "name", "") == _RESERVES


def lint_file(path: Path) -> int:
    """Lint a file in this process; return the number of findings."""
    told: list[Message] = []
    read_path(path, ReadOptions(stage="as-is"), tell=told.append)
    return len(Linter(LintOptions(stage="as-is")).lint(result_of(str(path), told)).report)


def load(path: Path) -> None:
    """What TVM itself does with a file: parse it, check that it is well-formed."""
    relax.analysis.well_formed(tvm.ir.load_json(path.read_text()))


def measure(layers: int, rounds: int) -> dict[str, Any]:
    """Seconds, one figure a round: `memory` and `file` for the clean module and the faulty one."""
    clean = planned(decoder_of(layers))
    faulty = with_fault(clean)
    with tempfile.TemporaryDirectory() as folder:
        files = {"clean": Path(folder, "clean.json"), "faulty": Path(folder, "faulty.json")}
        files["clean"].write_text(tvm.ir.save_json(clean))
        files["faulty"].write_text(tvm.ir.save_json(faulty))
        assert len(symalloc.lint(clean, stage="as-is")) == 0 < len(symalloc.lint(faulty, stage="as-is"))
        assert lint_file(files["clean"]) == 0 < lint_file(files["faulty"])
        found = in_turns(
            rounds,
            {
                "memory clean": cpu_seconds(lambda: symalloc.lint(clean, stage="as-is")),
                "memory faulty": cpu_seconds(lambda: symalloc.lint(faulty, stage="as-is")),
                "file clean": cpu_seconds(lambda: lint_file(files["clean"])),
                "file faulty": cpu_seconds(lambda: lint_file(files["faulty"])),
                "tvm loads": cpu_seconds(lambda: load(files["faulty"])),
            },
        )
    shown = {name: median(times) for name, times in found.items()}
    return {
        "bindings": sum(len(block.bindings) for block in clean["forward"].body.blocks),
        **shown,
        "ratio in memory": shown["memory faulty"] / shown["memory clean"],
        "ratio of files": shown["file faulty"] / shown["file clean"],
        "file beside tvm": shown["file faulty"] - shown["tvm loads"],
    }


@click.command()
@click.option("--layers", default=126, show_default=True, help="Layers of the decoder.")
@rounds_option
@json_option
def main(layers: int, rounds: int, as_json: bool) -> None:
    """Exit with 1 where a finding costs more than a fifth of a clean module's time."""
    figures = measure(layers, rounds)
    if as_json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:18} {value:9.3f}" if isinstance(value, float) else f"{name:18} {value:9}")
    worst = max(figures["ratio in memory"], figures["ratio of files"])
    sys.exit(worst > LIMIT or figures["file beside tvm"] > LIMIT_SECONDS)


if __name__ == "__main__":
    main()
