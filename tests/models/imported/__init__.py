"""Models imported from torch.export and ONNX, stored as gzipped JSON, so that tests need neither.

`regenerate` makes them anew.  Weights are parameters; symbols have the names that the importer gave them.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import tvm

__all__ = ["IMPORTED", "load_imported"]

_FOLDER = Path(__file__).parent
_ENDING = ".json.gz"

IMPORTED: tuple[str, ...] = tuple(
    sorted(file.name.removesuffix(_ENDING) for file in _FOLDER.glob(f"*{_ENDING}"))
)
"""The names of the stored models: `torch_…` and `onnx_…`."""


def load_imported(name: str) -> tvm.IRModule:
    """The stored model `name`, as its importer made it."""
    return tvm.ir.load_json(gzip.decompress((_FOLDER / f"{name}{_ENDING}").read_bytes()).decode())
