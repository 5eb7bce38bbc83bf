"""The search of `exact_search.py` in C++: the same decisions, thirty times as fast and more.

The library is part of an installed package.  Where it is missing, for want of a C++ compiler when symalloc
was installed, `exact_search.Search` answers the same, later.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.util import find_spec
from itertools import accumulate, chain
from pathlib import Path
from time import monotonic
from typing import Any
from weakref import finalize

from symalloc.planner.exact.capacity_search import FORGET, Rule, SearchOutcome
from symalloc.planner.exact.static_problem import CliqueInstance

LIBRARY = "libsymalloc_packer.so"
SLICE = 500  # steps between two looks at the clock; Python hears of an interrupt only then
LARGEST = 1 << 60  # bytes; sums of sizes below it stay within 64 bits
RULES: dict[Rule, int] = {"lowest": 0, "contested": 1}
OUTCOMES = (SearchOutcome.CUT, SearchOutcome.FOUND, SearchOutcome.NONE)


class _Problem(ctypes.Structure):
    """`PackerProblem` of native/packer/api.cc."""

    _fields_ = (
        ("capacity", ctypes.c_int64),
        ("buffers", ctypes.c_int32),
        ("cliques", ctypes.c_int32),
        *((name, ctypes.POINTER(ctypes.c_int64)) for name in ("sizes", "alignments", "highest")),
        *(
            (f"{name}_{part}", ctypes.POINTER(ctypes.c_int32))
            for name in ("clique", "member", "neighbour")
            for part in ("starts", "items")
        ),
    )


def installed_library() -> Path | None:
    """Where the library lies in the installed package, if it does."""
    spec = find_spec("symalloc.planner.exact")
    folders = spec.submodule_search_locations if spec is not None else None
    return next((f for folder in folders or () if (f := Path(folder) / LIBRARY).exists()), None)


@cache
def load_library(path: Path | None = None) -> ctypes.CDLL | None:
    """The library at `path`, by default the installed one; None where it is missing or cannot be loaded."""
    file = path or installed_library()
    try:
        library = ctypes.CDLL(str(file)) if file is not None else None
    except OSError:
        return None
    if library is not None:
        _declare(library)
    return library


def fits(instance: CliqueInstance, capacity: int) -> bool:
    """Whether all numbers of the problem fit the library's; `capacity` is in bytes."""
    return sum(instance.nbytes) + sum(instance.alignments) * instance.unit + capacity < LARGEST


class NativeSearch:
    """What `exact_search.Search` is, on `library`; raises MemoryError where there is no memory for it."""

    def __init__(self, library: ctypes.CDLL, instance: CliqueInstance, capacity: int) -> None:
        """`capacity` is in bytes and holds each buffer by itself."""
        self.instance = instance
        self.steps = 0
        self._library = library
        self._search = library.packer_create(ctypes.byref(_problem(instance, capacity)))
        if not self._search:
            raise MemoryError
        finalize(self, library.packer_destroy, self._search)

    @property
    def offsets(self) -> dict[int, int]:
        """Offsets in bytes by id: the packing, where the last attempt found one."""
        offsets = (ctypes.c_int64 * len(self.instance.ids))()
        self._library.packer_offsets(self._search, offsets)
        return {id_: self.instance.unit * at for id_, at in zip(self.instance.ids, offsets, strict=True)}

    def attempt(self, *, priorities: Sequence[int], rule: Rule, limit: int, until: float) -> SearchOutcome:
        """As `Search.attempt`."""
        last = self.steps + limit
        _checked(self._library.packer_begin(self._search, _int32(priorities), RULES[rule], FORGET))
        outcome = self._go(last)
        while outcome is SearchOutcome.CUT and self.steps < last and monotonic() <= until:
            outcome = self._go(last)
        return outcome

    def _go(self, last: int) -> SearchOutcome:
        """Goes on for one slice, or until `steps` is `last`."""
        steps = min(SLICE, last - self.steps)
        outcome = OUTCOMES[_checked(self._library.packer_go(self._search, steps))]
        self.steps = int(self._library.packer_steps(self._search))
        return outcome


def _problem(instance: CliqueInstance, capacity: int) -> _Problem:
    return _Problem(
        -(-capacity // instance.unit),
        len(instance.ids),
        len(instance.members),
        _int64(instance.sizes),
        _int64(instance.alignments),
        _int64([(capacity - nbytes) // instance.unit for nbytes in instance.nbytes]),
        *_lists(instance.cliques),
        *_lists(instance.members),
        *_lists(instance.neighbours),
    )


def _lists(lists: Sequence[Sequence[int]]) -> tuple[ctypes.Array[Any], ctypes.Array[Any]]:
    """Where each of `lists` starts, and all their items one after the other."""
    return _int32(accumulate(map(len, lists), initial=0)), _int32(chain.from_iterable(lists))


def _int32(numbers: Iterable[int]) -> ctypes.Array[Any]:
    values = tuple(numbers)
    return (ctypes.c_int32 * len(values))(*values)


def _int64(numbers: Sequence[int]) -> ctypes.Array[Any]:
    return (ctypes.c_int64 * len(numbers))(*numbers)


def _checked(answer: int) -> int:
    if answer < 0:
        raise MemoryError
    return answer


def _declare(library: ctypes.CDLL) -> None:
    """Tells ctypes the types of native/packer/api.cc."""
    search, int32s = ctypes.c_void_p, ctypes.POINTER(ctypes.c_int32)
    types: dict[str, tuple[Any, tuple[Any, ...]]] = {
        "packer_create": (search, (ctypes.POINTER(_Problem),)),
        "packer_destroy": (None, (search,)),
        "packer_begin": (ctypes.c_int32, (search, int32s, ctypes.c_int32, ctypes.c_double)),
        "packer_go": (ctypes.c_int32, (search, ctypes.c_int64)),
        "packer_steps": (ctypes.c_int64, (search,)),
        "packer_offsets": (None, (search, ctypes.POINTER(ctypes.c_int64))),
    }
    for name, (result, arguments) in types.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
