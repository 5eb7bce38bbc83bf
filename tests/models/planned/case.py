"""The table of models whose plans are run and measured: each family's file adds its builders with `@case`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import tvm

__all__ = ["CASES", "Case", "bind", "case"]

Builder = Callable[[], tvm.IRModule]
Binding = Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A model, and the bindings of its symbols at which it is run.

    `function` is the one that is called.  `declared` holds the upper bounds that the module declares
    (tir_var_upper_bound); some of `bindings` lie beyond them.  `paths`: the arguments that are conditions,
    by name; every combination of them is run.  `large`: too slow to build for a quick test.  `theirs`:
    why TVM's own plan of the model cannot be run, or None.  `devices`: how many devices of the CPU's kind
    the module is for.
    """

    name: str
    build: Builder
    bindings: tuple[Binding, ...]
    function: str = "main"
    declared: Binding = field(default_factory=dict)
    paths: tuple[str, ...] = ()
    pipeline: Literal["default", "target"] = "default"
    large: bool = False
    theirs: str | None = None
    devices: int = 1

    def beyond(self, binding: Binding) -> bool:
        """Whether `binding` lies beyond what the module declares."""
        return any(binding[name] > bound for name, bound in self.declared.items())


CASES: dict[str, Case] = {}


def bind(name: str, *extents: int, **others: int) -> tuple[Binding, ...]:
    """One binding for each of `extents`, the other symbols alike in all."""
    return tuple({name: extent, **others} for extent in extents)


def case(
    bindings: Sequence[Binding],
    *,
    name: str | None = None,
    function: str = "main",
    declared: Binding | None = None,
    **more: Any,
) -> Callable[[Builder], Builder]:
    """Enter the builder into the table, under its own name where there is no other `name`; see `Case`."""

    def enter(build: Builder) -> Builder:
        called = name or build.__name__
        CASES[called] = Case(
            name=called,
            build=partial(_bounded, build, function, declared) if declared else build,
            bindings=tuple(bindings),
            function=function,
            declared=declared or {},
            **more,
        )
        return build

    return enter


def _bounded(build: Builder, function: str, bounds: Binding) -> tvm.IRModule:
    """The module with upper bounds of symbols declared on `function`, as TVM's importers of torch do it."""
    mod = build().clone()
    mod.update_func(mod.get_global_var(function), mod[function].with_attr("tir_var_upper_bound", bounds))
    return mod
