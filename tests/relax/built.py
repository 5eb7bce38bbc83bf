"""Modules in scripts: read once, lowered, built, linted, and the calls of a machine counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from symalloc.linter.lint_options import LintOptions
from symalloc.linter.linter import Linter
from symalloc.pool.instrumented_pool import InstrumentedPool
from symalloc.program.reading import FileResult
from symalloc.relax.extract import extract
from symalloc.relax.files.load import load_one
from symalloc.relax.passes.pipeline import finishing_pipeline, lower
from symalloc.relax.run.machine import memory_cfg


class Scripts:
    """The modules of a file in TVMScript, each read once, when it is wanted first."""

    def __init__(self, name: str) -> None:
        self.path = Path(__file__).parent / f"{name}.py"

    def __getattr__(self, name: str) -> tvm.IRModule:
        module = load_one(self.path, module=name)
        setattr(self, name, module)
        return module


MODULES, CALLERS, EFFECTS = map(Scripts, ("modules_to_plan", "modules_of_callers", "modules_with_effects"))
WORKSPACES = Scripts("modules_with_workspace")
SCRIPT = MODULES.path


def graph(
    write: Callable[..., Any], *, attrs: Mapping[str, object] | None = None, **shapes: Sequence[int | str]
) -> tvm.IRModule:
    """What `write` makes of `emit` and of tensors of float32; texts among their extents are symbols."""
    builder, symbols = relax.BlockBuilder(), dict[str, tirx.Var]()
    given = []
    for name, shape in shapes.items():
        extents = [symbols.setdefault(e, tirx.Var(e, "int64")) if isinstance(e, str) else e for e in shape]
        given.append(relax.Var(name, relax.TensorType(extents, "float32")))
    with builder.function("main", given, attrs=attrs):
        with builder.dataflow():
            result = builder.emit_output(write(builder.emit, *given))
        builder.emit_func_output(result)
    return builder.finalize()


def rows(*extents: int) -> np.ndarray:
    """Numbers in a tensor, the same each time."""
    return np.random.default_rng(sum(extents)).standard_normal(extents).astype("float32")


@cache
def lowered(name: str, scripts: Scripts = MODULES) -> tvm.IRModule:
    return lower(getattr(scripts, name), "llvm")


def machine(module: tvm.IRModule, target: Any = "llvm") -> relax.VirtualMachine:
    """A machine for a module that is planned, or lowered."""
    built = relax.build(module, target, relax_pipeline=finishing_pipeline("llvm"))
    return relax.VirtualMachine(built, tvm.cpu())


def tensors(result: Any) -> list[Any]:
    """The tensors of a result, those of tuples in their order."""
    return [result] if hasattr(result, "numpy") else [each for one in result for each in tensors(one)]


def bits(built: relax.VirtualMachine, *arguments: Any) -> list[bytes]:
    """What `main` gives of arrays, and of arguments that are none."""
    result = built["main"](*(tvm.runtime.tensor(a) if isinstance(a, np.ndarray) else a for a in arguments))
    return [one.numpy().tobytes() for one in tensors(result)]


def functions(module: tvm.IRModule) -> set[str]:
    return {v.name_hint for v, f in module.functions_items() if isinstance(f, relax.Function)}


def errors(module: tvm.IRModule) -> list[str]:
    """What the linter has against `module`, notes left out."""
    program = extract(module, name="planned", stage="PlanMemory")
    linted = Linter(LintOptions(stage="as-is")).lint(FileResult(file="planned", programs=(program,)))
    return [f"{d.rule}: {d.message}" for d in linted.report if d.severity != "note"]


def calls(built: relax.VirtualMachine, *arguments: Any) -> Counter[str]:
    """How often `main` calls what."""
    found: Counter[str] = Counter()

    def note(_function: Any, name: str, before: bool, *_: Any) -> None:
        found[name] += before

    built.set_instrument(note)
    built["main"](*arguments)
    return found


def machine_on(program: Any, pool: InstrumentedPool | None) -> relax.VirtualMachine:
    """A machine on a pool, None for TVM's pooled allocator."""
    return relax.VirtualMachine(program, tvm.cpu(), memory_cfg="pooled" if pool is None else memory_cfg(pool))


def addresses() -> int:
    """GiB of address space that the process has."""
    return int(Path("/proc/self/statm").read_text("ascii").split()[0]) * 4096 >> 30
