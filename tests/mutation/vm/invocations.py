"""Which calls of a module are made: every public function, at several sizes, on every path."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tests.models.execution import is_condition, paths_of, random_inputs
from tests.mutation.vm.guarded_memory import guarded_copy

__all__ = [
    "Binding",
    "Invocation",
    "arguments",
    "at",
    "generic_bindings",
    "guarded",
    "keeps_declared_bounds",
    "public_functions",
    "symbols_of",
]

Binding = Mapping[str, int]
_MOST_PATHS = 4
_ALIKE = (1, 5, 0, 13)
_MIXED = ((33, 2, 3), (2, 9, 4))


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """A call of `function`: its symbols' values, and those of the parameters that are conditions.

    Whole numbers in tensors are 0 or 1, which may be indices of anything, or `wide`: 0 to 8.
    """

    function: str
    binding: tuple[tuple[str, int], ...]
    path: tuple[tuple[str, bool], ...] = ()
    wide: bool = False

    def __str__(self) -> str:
        values = [f"{name}={value}" for name, value in (*self.binding, *self.path)]
        return f"{self.function}({', '.join(values)}){' of wide numbers' if self.wide else ''}"


def at(mod: tvm.IRModule, function: str, binding: Binding) -> Iterator[Invocation]:
    """The calls of `function` at `binding`: one for each choice of its conditions, or the first few."""
    names = [str(p.name) for p in mod[function].params if is_condition(p.ty)]
    numbers = any(_is_of_numbers(p.ty) for p in mod[function].params)
    for path in itertools.islice(paths_of(names), _MOST_PATHS):
        for wide in (False, True) if numbers else (False,):
            yield Invocation(
                function=function,
                binding=tuple(sorted(binding.items())),
                path=tuple(path.items()),
                wide=wide,
            )


def _is_of_numbers(ty: Any) -> bool:
    return isinstance(ty, relax.TensorType) and "int" in str(ty.dtype.dtype)


def public_functions(mod: tvm.IRModule) -> list[str]:
    """The Relax functions that can be called from outside; all where there are none."""
    functions = {str(g.name_hint): f for g, f in mod.functions_items() if isinstance(f, relax.Function)}
    public = [name for name, f in functions.items() if f.attrs and "global_symbol" in f.attrs]
    return public or list(functions)


def symbols_of(function: relax.Function) -> list[str]:
    """The names of the symbols, and of the scalars, that a caller chooses."""
    symbols = {str(v.name) for p in function.params for v in relax.analysis.tir_vars_in_type(p.ty)}
    return sorted(symbols | {str(p.name) for p in function.params if type(p.ty).__name__ == "PrimType"})


def generic_bindings(function: relax.Function, fixed: Binding) -> list[dict[str, int]]:
    """Small and odd values, those of no elements, and some for which tensors cross pages; `fixed` first."""
    names = symbols_of(function)
    if not names:
        return [{}]
    found = [{name: fixed.get(name, 3) for name in names}]
    found += [dict.fromkeys(names, value) for value in _ALIKE]
    if len(names) > 1:
        found += [dict(zip(names, itertools.cycle(values), strict=False)) for values in _MIXED]
    return found


def keeps_declared_bounds(mod: tvm.IRModule, invocation: Invocation) -> bool:
    """Whether the sizes of a call are those that its function is declared to get."""
    attrs = mod[invocation.function].attrs or {}
    least, most = (dict(attrs.get(f"tir_var_{side}_bound") or {}) for side in ("lower", "upper"))
    return all(int(least.get(s, v)) <= v <= int(most.get(s, v)) for s, v in invocation.binding)


def arguments(function: relax.Function, invocation: Invocation) -> list[Any]:
    """The arguments of a call, the same each time."""
    values = random_inputs(function, dict(invocation.binding), 1, dict(invocation.path))
    rng = np.random.default_rng(2)
    for index, param in enumerate(function.params):
        if invocation.wide and _is_of_numbers(param.ty):
            dtype = str(values[index].dtype)
            values[index] = tvm.runtime.tensor(rng.integers(0, 9, values[index].shape).astype(dtype))
    return values


def guarded(value: Any) -> Any:
    """The value with its tensors, those in lists too, copied to guarded memory."""
    if isinstance(value, tvm.runtime.Tensor):
        return guarded_copy(value)
    if isinstance(value, tuple | list):
        return type(value)(guarded(item) for item in value)
    return value
