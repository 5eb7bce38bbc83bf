"""Plans the module in a file and writes it down again: the job of `symalloc plan`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import tvm
import tvm_ffi
from tvm.relax import transform

from symalloc.program.model import AllocStorage, Block, If
from symalloc.relax.extract import extract, locate
from symalloc.relax.pipeline import Flavour
from symalloc.relax.plan_pass import PlannedModule
from symalloc.relax.read_json import load_module
from symalloc.relax.run_load import from_script, load_one
from symalloc.relax.run_lower import lower_or_refuse, plan_or_refuse
from symalloc.relax.run_result import PlannedFile, RunError
from symalloc.size.expr import Expr

__all__ = ["Form", "plan_file", "plan_module", "written"]

Form: TypeAlias = Literal["json", "script"]

STAGE = "PlanMemory"
_COMMENTED_IMPORT = re.compile(r"^# (?=(?:from|import) )", re.MULTILINE)


def plan_file(
    path: Path, *, trust: bool, module: str | None, target: str, flavour: Flavour, form: Form
) -> PlannedFile:
    """Loads the module in `path`, lowers and plans it; raises RunError."""
    loaded = load_one(path, trust=trust, module=module)
    lowered = lower_or_refuse(loaded, target, flavour)
    planned = _planned(lowered)
    name = module or path.stem
    return PlannedFile(
        text=written(planned.module, form),
        program=locate(planned.module, name=name, stage=STAGE, file=str(path)),
        original=extract(loaded, name=name),
        plans=planned.plans,
        tvm_bytes=_tvm_bytes(lowered),
    )


def plan_module(module: tvm.IRModule, *, target: str = "llvm", flavour: Flavour = "default") -> PlannedModule:
    """`module` lowered and planned, no tensor left for another planner; raises RunError."""
    return _planned(lower_or_refuse(module, target, flavour))


def written(module: tvm.IRModule, form: Form) -> str:
    """`module` as JSON or as TVMScript that reads back as the same module; raises RunError where it does
    not.
    """
    if form == "json":
        text = str(tvm.ir.save_json(module))
        again = load_module(text.encode())
    else:
        text = _script(module)
        again = _read_back(text)
    if not _same(again, module):
        raise RunError(
            f"TVM writes this module as {form} that reads back as another one; choose the other form"
        )
    return text


def _same(one: tvm.IRModule, other: tvm.IRModule) -> bool:
    """Equal, or at least printed alike: scripts leave out widths of integers that decide nothing."""
    return bool(tvm_ffi.structural_equal(one, other)) or _printed(one) == _printed(other)


def _printed(module: tvm.IRModule) -> str:
    return str(module.script(show_meta=True))


def _planned(lowered: tvm.IRModule) -> PlannedModule:
    """The rest gets a storage each at once: StaticPlanBlockMemory must find nothing to plan wrongly."""
    planned = plan_or_refuse(lowered)
    return PlannedModule(module=transform.LowerAllocTensor()(planned.module), plans=planned.plans)


def _script(module: tvm.IRModule) -> str:
    """TVM's script with its imports made real, so that it is a Python file; constants travel as metadata."""
    plain = module.script()
    text = module.script(show_meta=True) if "metadata[" in plain else plain
    return _COMMENTED_IMPORT.sub("", text) + "\n"


def _read_back(text: str) -> Any:
    try:
        return from_script("the planned module", text.encode())
    except Exception as error:  # TVM prints what its own parser refuses in many ways
        raise RunError(f"the planned module cannot be written as TVMScript, write JSON: {error}") from None


def _tvm_bytes(lowered: tvm.IRModule) -> Mapping[str, tuple[Expr, ...]] | None:
    """The storages of TVM's own plan by function."""
    try:
        theirs = extract(transform.StaticPlanBlockMemory()(lowered), name="theirs")
    except Exception:  # its faults are not ours to report here
        return None
    return {name: tuple(_storages(function.body)) for name, function in theirs.functions.items()}


def _storages(block: Block) -> Iterator[Expr]:
    for instruction in block.instructions:
        if isinstance(instruction, AllocStorage) and instruction.size is not None:
            yield instruction.size
        elif isinstance(instruction, If):
            yield from _storages(instruction.then)
            yield from _storages(instruction.otherwise)
