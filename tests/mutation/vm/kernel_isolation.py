"""A kernel run on copies of its arguments, each in a block of its own, once for each pattern.

What it writes beside its arguments stops it, or shows.  What differs between the runs depends on elements
that hold nothing that the program has put there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm

from tests.models.execution import tensors_in
from tests.mutation.vm.guarded_memory import PATTERNS, as_bytes, fill_with, guarded_copy, overrun

__all__ = ["Isolated", "any_of_element", "causes_of", "run_isolated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolated:
    """What two runs did.  For each tensor among the arguments: its bytes behind the first run, and which
    elements were written.  `depends`: on something that the program has not put into the arguments.
    """

    contents: Sequence[np.ndarray]
    written: Sequence[np.ndarray]
    depends: bool
    overrun: bool


def run_isolated(
    function: Callable[..., Any], arguments: Sequence[Any], foreign: Sequence[np.ndarray]
) -> Isolated:
    """Run `function` twice; `foreign` tells for each tensor among `arguments` which elements are nobody's."""
    one, two = (_run(function, arguments, foreign, [n] * len(foreign), PATTERNS[n]) for n in (0, 1))
    fill_with(PATTERNS[0])
    return Isolated(
        contents=one.after,
        written=[a | b for a, b in zip(one.changed, two.changed, strict=True)],
        depends=_differ(one, two, foreign),
        overrun=one.overrun or two.overrun,
    )


def causes_of(
    function: Callable[..., Any], arguments: Sequence[Any], foreign: Sequence[np.ndarray]
) -> tuple[bool, Sequence[bool]]:
    """Whether it depends on bytes beside its arguments, and for each tensor on what is foreign in it."""
    none = [0] * len(foreign)
    base = _run(function, arguments, foreign, none, PATTERNS[0])
    beside = _differ(base, _run(function, arguments, foreign, none, PATTERNS[1]), foreign)
    causes = []
    for index, mask in enumerate(foreign):
        numbers = [int(i == index) for i in range(len(foreign))]
        changed = _run(function, arguments, foreign, numbers, PATTERNS[0]) if mask.any() else base
        causes.append(_differ(base, changed, foreign))
    fill_with(PATTERNS[0])
    return beside, causes


@dataclass(frozen=True, slots=True)
class _Run:
    after: Sequence[np.ndarray]
    changed: Sequence[np.ndarray]  # for each element whether it was
    result: Any
    overrun: bool


def _run(
    function: Callable[..., Any],
    arguments: Sequence[Any],
    foreign: Sequence[np.ndarray],
    numbers: Sequence[int],
    fill: int,
) -> _Run:
    """One run: the foreign elements of tensor i hold pattern `numbers[i]`, what lies beside them `fill`."""
    fill_with(fill)
    tensors = [a for a in arguments if isinstance(a, tvm.runtime.Tensor)]
    copies = [_poisoned(t, mask, n) for t, mask, n in zip(tensors, foreign, numbers, strict=True)]
    before = [as_bytes(c).copy() for c in copies]
    rest = iter(copies)
    result = function(*[next(rest) if isinstance(a, tvm.runtime.Tensor) else a for a in arguments])
    after = [as_bytes(c).copy() for c in copies]
    changed = [any_of_element(a != b, len(m)) for a, b, m in zip(after, before, foreign, strict=True)]
    return _Run(after, changed, result, bool(overrun()))


def _differ(one: _Run, two: _Run, foreign: Sequence[np.ndarray]) -> bool:
    """Whether the runs gave or wrote something else; foreign elements that none has written do not count."""
    for index, mask in enumerate(foreign):
        apart = any_of_element(one.after[index] != two.after[index], len(mask))
        if (apart & (~mask | one.changed[index] | two.changed[index])).any():
            return True
    return _results_differ(one.result, two.result)


def _results_differ(one: Any, two: Any) -> bool:
    if isinstance(one, bool | int | float):
        return bool(one != two)
    pairs = zip(tensors_in(one), tensors_in(two), strict=False)
    return any(as_bytes(a).tobytes() != as_bytes(b).tobytes() for a, b in pairs)


def any_of_element(flags: np.ndarray, count: int) -> np.ndarray:
    """For each of `count` elements whether one of its bytes' flags is set."""
    size = len(flags) // count if count else 1
    if size in (1, 2, 4, 8):  # four times as fast
        return np.asarray(flags.view(f"u{size}") != 0)
    return np.asarray(flags.reshape(count, size).any(axis=1))


def _poisoned(tensor: Any, foreign: np.ndarray, number: int) -> Any:
    """A copy whose foreign elements hold large numbers, no two alike; of whole numbers 0 or 1, which may be
    indices.
    """
    copy = guarded_copy(tensor)
    if foreign.any():
        rows = as_bytes(copy).reshape(len(foreign), -1)
        noise = np.random.default_rng(0).integers(0, 256, rows.shape, dtype=np.uint8)
        if str(tensor.dtype).startswith(("int", "uint", "bool")):
            noise = noise % 2 ^ number
            noise[:, 1:] = 0
        else:
            noise ^= number
            noise[:, -1] = PATTERNS[number]
        rows[foreign] = noise[foreign]
    return copy
