"""Libraries that only some models need, as extras of the package."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from symalloc.program.reading import MissingExtraError


def require_extra(name: Literal["onnx", "torch"], *, reading: Path) -> None:
    """Raise MissingExtraError where the library `name`, which reading a file needs, is not installed."""
    if find_spec(name) is None:
        raise MissingExtraError(f"reading {reading} needs {name}: pip install 'symalloc[{name}]'")
