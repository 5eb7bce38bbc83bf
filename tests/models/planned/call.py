"""Calls of a model at one binding, one for each path, and what differs between the results of two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
import tvm_ffi

from tests.models.execution import paths_of, random_inputs
from tests.models.measure import Floor, Usage, floors, measured
from tests.models.planned.case import Binding
from tests.models.planned.variants import Machine, Variants

__all__ = ["Call", "Found", "calls", "difference", "needed"]


@dataclass(frozen=True, slots=True)
class Found:
    """What came back, then what was passed, as arrays; and what the call took."""

    arrays: list[np.ndarray]
    usage: Usage


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a model's function, on fresh arguments each time, since it may write them."""

    variants: Variants
    binding: Binding
    path: Mapping[str, bool]
    seed: int

    def arguments(self) -> list[Any]:
        """Random arguments, the conditions as `path` says."""
        function = self.variants.module[self.variants.case.function]
        values = random_inputs(function, self.binding, self.seed, self.path)
        return [_on(self.variants.device[0], value) for value in values]

    def on(self, machine: Machine, weights: Sequence[Any] = ()) -> Found:
        """One call on a machine that counts, with `weights` for the last arguments."""
        arguments = self.arguments()
        arguments[len(arguments) - len(weights) :] = weights
        result, usage = measured(lambda: machine[self.variants.case.function](*arguments))
        return Found([*_arrays(result), *_arrays(arguments)], usage)


def calls(variants: Variants, binding: Binding, seed: int = 0) -> list[Call]:
    """A call for each combination of the model's conditions."""
    return [Call(variants, binding, path, seed) for path in paths_of(variants.case.paths)]


def needed(paths: Sequence[Call]) -> list[Floor]:
    """What each of the `calls` at one binding needs at least."""
    variants = paths[0].variants
    return floors(variants.unplanned, variants.case.function, [call.arguments() for call in paths])


def difference(ours: Found, expected: Found) -> str | None:
    """The first tensor that differs in shape, element type or a single bit, in words."""
    if len(ours.arrays) != len(expected.arrays):
        return f"{len(ours.arrays)} tensors, not {len(expected.arrays)}"
    for index, (a, b) in enumerate(zip(ours.arrays, expected.arrays, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"tensor {index} is {a.dtype}{list(a.shape)}, not {b.dtype}{list(b.shape)}"
        if a.tobytes() != b.tobytes():
            return f"tensor {index} differs"
    return None


def _on(device: tvm.runtime.Device, value: Any) -> Any:
    """`value` with its tensors on `device`."""
    if isinstance(value, tuple):
        return tuple(_on(device, item) for item in value)
    return tvm.runtime.tensor(value, device) if isinstance(value, tvm.runtime.Tensor) else value


def _arrays(value: Any) -> list[np.ndarray]:
    """The tensors in `value`, and shapes and numbers as arrays, depth first; none of another object, such as
    a cache.
    """
    if isinstance(value, tvm.runtime.Tensor):
        return [value.numpy()]
    if isinstance(value, int | float | tvm.runtime.ShapeTuple):
        return [np.array(value)]
    if isinstance(value, list | tuple | tvm_ffi.Array):
        return [array for item in value for array in _arrays(item)]
    return []
