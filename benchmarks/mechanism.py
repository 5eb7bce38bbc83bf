"""What an ablation leaves out, and its lines."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Mechanism:
    """A mechanism, what stands in for it by dotted name, and the dotted names of its `code`."""

    stand_ins: Mapping[str, object]
    code: Sequence[str] = field(default=())

    @property
    def lines(self) -> int:
        """The lines of its code, docstrings included."""
        return sum(_length(_defined(name)) for name in self.code)


def _defined(name: str) -> Any:
    """The syntax of the module, class or function of a dotted name."""
    try:
        return ast.parse(inspect.getsource(import_module(name)))
    except ModuleNotFoundError:
        above, _, last = name.rpartition(".")
        return next(one for one in _defined(above).body if getattr(one, "name", None) == last)


def _length(tree: Any) -> int:
    first = 1 if isinstance(tree, ast.Module) else tree.lineno
    return int(tree.body[-1].end_lineno) - first + 1
