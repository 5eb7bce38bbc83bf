"""Compile an example with TVM's own default pipeline and call `main`: python run_with_tvm.py FILE NAME=N."""
import importlib.util
import sys
from pathlib import Path

import numpy as np
import tvm
from tvm import relax


def modules(path: Path) -> list[tvm.IRModule]:
    """The Relax modules of a script."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    script = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = script
    spec.loader.exec_module(script)
    return [value for value in vars(script).values() if isinstance(value, tvm.IRModule)]


def ones(ty: relax.TensorType, sizes: dict[str, int]) -> tvm.runtime.Tensor:
    """A tensor of the type, of ones."""
    shape = [sizes[e.name] if hasattr(e, "name") else int(e) for e in ty.shape.values]
    return tvm.runtime.tensor(np.ones(shape, dtype=str(ty.dtype.dtype)))


def main() -> None:
    path, *bindings = sys.argv[1:]
    sizes = {name: int(value) for name, value in (b.split("=") for b in bindings)}
    module = modules(Path(path))[0]
    machine = relax.VirtualMachine(relax.build(module, target="llvm"), tvm.cpu())
    result = machine["main"](*(ones(p.ty, sizes) for p in module["main"].params))
    print(f"main({', '.join(bindings)}) returns {result.dtype}{list(result.shape)}")


if __name__ == "__main__":
    main()
