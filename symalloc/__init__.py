"""Verified memory planning for dynamic-shape models in Apache TVM's Relax.

    report = symalloc.lint("model.py", assume=["n <= 2048"])
    proof = symalloc.prove("4*m <= 16", assume=["m >= 1"])
    machine = relax.VirtualMachine(program, tvm.cpu(), memory_cfg=symalloc.memory_cfg(symalloc.Pool()))

Names are imported when they are first used: `import symalloc` loads neither TVM nor a solver.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from symalloc.pipelines import register_pipelines

if TYPE_CHECKING:
    from symalloc.api import lint, plan, prove, run
    from symalloc.errors import SymallocError, UsageError
    from symalloc.instrument import VerifyMemory
    from symalloc.linter.diagnostic import Diagnostic, Fix, Report, Severity
    from symalloc.packing import pack
    from symalloc.pipelines import pipeline
    from symalloc.pool.core.pool_errors import (
        BadFreeError,
        BoundsError,
        OutOfMemoryError,
        OverrunError,
        PoolError,
    )
    from symalloc.pool.core.pool_options import PoolOptions
    from symalloc.pool.observing.instrumented_pool import InstrumentedPool as Pool
    from symalloc.pool.observing.leaks import LeakWarning
    from symalloc.pool.observing.prometheus import prometheus_text
    from symalloc.prover.verdict import Proof, Verdict
    from symalloc.relax.passes.externalize_storage import ExternalizeStorage, register_pool
    from symalloc.relax.passes.name_tensors import NameTensors
    from symalloc.relax.passes.plan_pass import PlanMemory
    from symalloc.relax.run.memory_cfg import HookError, memory_cfg
    from symalloc.report.pool_use import pool_report

__all__ = [
    "BadFreeError",
    "BoundsError",
    "Diagnostic",
    "ExternalizeStorage",
    "Fix",
    "HookError",
    "LeakWarning",
    "NameTensors",
    "OutOfMemoryError",
    "OverrunError",
    "PlanMemory",
    "Pool",
    "PoolError",
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
    "prometheus_text",
    "prove",
    "register_pool",
    "run",
]

_HOMES = {  # the module, and the name there where that is another
    "BadFreeError": "symalloc.pool.core.pool_errors",
    "BoundsError": "symalloc.pool.core.pool_errors",
    "Diagnostic": "symalloc.linter.diagnostic",
    "ExternalizeStorage": "symalloc.relax.passes.externalize_storage",
    "Fix": "symalloc.linter.diagnostic",
    "HookError": "symalloc.relax.run.memory_cfg",
    "LeakWarning": "symalloc.pool.observing.leaks",
    "NameTensors": "symalloc.relax.passes.name_tensors",
    "OutOfMemoryError": "symalloc.pool.core.pool_errors",
    "OverrunError": "symalloc.pool.core.pool_errors",
    "PlanMemory": "symalloc.relax.passes.plan_pass",
    "Pool": "symalloc.pool.observing.instrumented_pool:InstrumentedPool",
    "PoolError": "symalloc.pool.core.pool_errors",
    "PoolOptions": "symalloc.pool.core.pool_options:PoolOptions",
    "Proof": "symalloc.prover.verdict",
    "Report": "symalloc.linter.diagnostic",
    "Severity": "symalloc.linter.diagnostic",
    "SymallocError": "symalloc.errors",
    "UsageError": "symalloc.errors",
    "Verdict": "symalloc.prover.verdict",
    "VerifyMemory": "symalloc.instrument",
    "lint": "symalloc.api",
    "memory_cfg": "symalloc.relax.run.memory_cfg",
    "pack": "symalloc.packing",
    "pipeline": "symalloc.pipelines",
    "plan": "symalloc.api",
    "pool_report": "symalloc.report.pool_use",
    "prometheus_text": "symalloc.pool.observing.prometheus",
    "prove": "symalloc.api",
    "register_pool": "symalloc.relax.passes.externalize_storage",
    "run": "symalloc.api",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("symalloc")
    if name == "pool":  # the room, for `symalloc.pool.statistics()`
        return import_module("symalloc.pool")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module `symalloc` has no attribute `{name}`")
    module, _, there = home.partition(":")
    value = getattr(import_module(module), there or name)
    globals()[name] = value
    return value


register_pipelines()


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
