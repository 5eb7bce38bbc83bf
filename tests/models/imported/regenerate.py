"""Imports the models anew: `python -m tests.models.imported.regenerate [NAME…]`.

Needs the dependency group `import` (torch, transformers, onnx).  Weights become parameters; what TVM's
importer cannot take is told on standard error.
"""

from __future__ import annotations

import gzip
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
import tvm
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program

from tests.models.imported import torch_compositions  # noqa: F401 - enters its models
from tests.models.imported.onnx_models import ONNX_MODELS
from tests.models.imported.torch_models import TORCH_MODELS, CallableModule

__all__ = ["main"]

FOLDER = Path(__file__).parent


def _from_torch(name: str) -> tvm.IRModule:
    torch.manual_seed(0)
    model = TORCH_MODELS[name]()
    # a module whose forward takes *inputs has one dynamic argument: the tuple of all
    varied = isinstance(model.net, CallableModule)
    shapes = (model.dims,) if varied else model.dims
    exported = torch.export.export(model.net, model.inputs, dynamic_shapes=shapes)
    mod = from_exported_program(exported, keep_params_as_input=True)
    return relax.frontend.detach_params(mod)[0]


def _save(name: str, mod: tvm.IRModule) -> int:
    """Write the module, the same bytes each time; return their number."""
    packed = gzip.compress(tvm.ir.save_json(mod).encode(), 9, mtime=0)
    (FOLDER / f"{name}.json.gz").write_bytes(packed)
    return len(packed)


def main(names: list[str]) -> int:
    """Import the models with these names, or all; return how many failed."""
    makers: dict[str, Callable[[], tvm.IRModule]] = {
        **{f"torch_{n}": lambda n=n: _from_torch(n) for n in TORCH_MODELS},
        **{f"onnx_{n}": make for n, make in ONNX_MODELS.items()},
    }
    failed = 0
    for name in names or makers:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                size = _save(name, makers[name]())
            print(f"{name}: {size} bytes")
        except Exception as error:  # one that TVM cannot import must not stop the others
            failed += 1
            print(
                f"{name}: {type(error).__name__}: {str(error).strip().splitlines()[-1][:200]}",
                file=sys.stderr,
            )
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) > 0)
