"""Verified memory planning for dynamic-shape models in Apache TVM's Relax.

    report = symalloc.lint("model.py", assume=["n <= 2048"])
    proof = symalloc.prove("4*m <= 16", assume=["m >= 1"])
    machine = relax.VirtualMachine(program, tvm.cpu(), memory_cfg=symalloc.memory_cfg(symalloc.Pool()))

Names are imported when they are first used: `import symalloc` loads neither TVM nor a solver.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from symalloc.pipelines import register_pipelines

if TYPE_CHECKING:
    from symalloc.api import lint, plan, prove, run
    from symalloc.errors import SymallocError, UsageError
    from symalloc.instrument import VerifyMemory
    from symalloc.lint.diagnostic import Diagnostic, Fix, Report, Severity
    from symalloc.packing import pack
    from symalloc.pipelines import pipeline
    from symalloc.pool.native import NativePool as Pool
    from symalloc.pool.policy import Options as PoolOptions
    from symalloc.prove.verdict import Proof, Verdict
    from symalloc.relax.passes.name_tensors import NameTensors
    from symalloc.relax.passes.plan_pass import PlanMemory
    from symalloc.relax.run.memory_cfg import memory_cfg
    from symalloc.report.pool_use import pool_report

__all__ = [
    "Diagnostic",
    "Fix",
    "NameTensors",
    "PlanMemory",
    "Pool",
    "PoolOptions",
    "Proof",
    "Report",
    "Severity",
    "SymallocError",
    "UsageError",
    "Verdict",
    "VerifyMemory",
    "__version__",
    "lint",
    "memory_cfg",
    "pack",
    "pipeline",
    "plan",
    "pool_report",
    "prove",
    "run",
]

_HOMES = {  # the module, and the name there where that is another
    "Diagnostic": "symalloc.lint.diagnostic",
    "Fix": "symalloc.lint.diagnostic",
    "NameTensors": "symalloc.relax.passes.name_tensors",
    "PlanMemory": "symalloc.relax.passes.plan_pass",
    "Pool": "symalloc.pool.native:NativePool",
    "PoolOptions": "symalloc.pool.policy:Options",
    "Proof": "symalloc.prove.verdict",
    "Report": "symalloc.lint.diagnostic",
    "Severity": "symalloc.lint.diagnostic",
    "SymallocError": "symalloc.errors",
    "UsageError": "symalloc.errors",
    "Verdict": "symalloc.prove.verdict",
    "VerifyMemory": "symalloc.instrument",
    "lint": "symalloc.api",
    "memory_cfg": "symalloc.relax.run.memory_cfg",
    "pack": "symalloc.packing",
    "pipeline": "symalloc.pipelines",
    "plan": "symalloc.api",
    "pool_report": "symalloc.report.pool_use",
    "prove": "symalloc.api",
    "run": "symalloc.api",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("symalloc")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module `symalloc` has no attribute `{name}`")
    module, _, there = home.partition(":")
    value = getattr(import_module(module), there or name)
    globals()[name] = value
    return value


class _Face(ModuleType):
    """Some public functions share their name with a room (`lint`, `prove`, `plan`): the function wins.

    Importing a room sets it as an attribute of this package; that is passed over.  `from symalloc.lint.run
    import …` works all the same.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Face
register_pipelines()


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
