"""Running a module of the zoo on TVM's virtual machine with random inputs.

`python -m tests.models.execution` builds every model with TVM's default pipeline and runs those that random
inputs can run: each in a process of its own, since some plans of TVM's crash.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from tests.models.zoo import MODELS, Model


def public_function(mod: tvm.IRModule) -> str:
    """The name of the first function that can be called from outside."""
    for name, function in mod.functions_items():
        if isinstance(function, relax.Function) and "global_symbol" in (function.attrs or {}):
            return str(name.name_hint)
    raise ValueError("the module has no public Relax function")


def _value(ty: Any, sizes: Mapping[str, int], rng: np.random.Generator) -> Any:
    if isinstance(ty, relax.TupleType):
        return tuple(_value(field, sizes, rng) for field in ty.fields)
    if isinstance(ty, relax.ShapeType):
        return tvm_ffi.Shape([_extent(e, sizes) for e in ty.values])
    if isinstance(ty, relax.TensorType):
        shape = [_extent(e, sizes) for e in ty.shape.values]
        dtype = str(ty.dtype.dtype)
        if dtype == "bool":
            return tvm.runtime.tensor(np.zeros(shape, dtype=np.bool_))
        if dtype.startswith("int"):
            return tvm.runtime.tensor(rng.integers(0, 2, shape).astype(dtype))
        return tvm.runtime.tensor(rng.standard_normal(shape).astype(dtype))
    return None


def _extent(extent: Any, sizes: Mapping[str, int]) -> int:
    analyzer = tvm.sym.Analyzer()
    for var in tvm.tirx.analysis.undefined_vars(extent):
        analyzer.bind(var, tvm.tirx.const(sizes.get(var.name, 3), "int64"))
    return int(analyzer.simplify(extent))


def random_inputs(function: relax.Function, sizes: Mapping[str, int], seed: int = 0) -> list[Any]:
    """Arguments: random floats, indices 0 or 1, conditions false, symbols bound by `sizes` or to 3."""
    rng = np.random.default_rng(seed)
    values = ((p.name, _value(p.ty, sizes, rng)) for p in function.params)
    return [sizes.get(name, 3) if value is None else value for name, value in values]


def run(model: Model) -> Any:
    """Build `model` with TVM's default pipeline and run its first public function once."""
    mod = model.build()
    machine = relax.VirtualMachine(relax.build(mod, target="llvm"), tvm.cpu())
    name = public_function(mod)
    return machine[name](*random_inputs(mod[name], model.sizes)) if model.runs else None


def main() -> int:
    """Build and run all models, or the one that is named; 1 if one fails that is not known to."""
    if len(sys.argv) > 1:
        run(MODELS[sys.argv[1]])
        return 0
    failed = 0
    for name, model in MODELS.items():
        command = [sys.executable, "-m", "tests.models.execution", name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        words = "runs" if done.returncode == 0 else f"exit status {done.returncode}"
        print(f"{name:28} {words}{f'  (known: {model.fault})' if model.fault else ''}")
        if done.returncode and not model.fault:
            print(done.stderr[-400:])
            failed += 1
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
