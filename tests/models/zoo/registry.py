"""The table of ordinary models: each family's file adds its builders with `@model`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import tvm

__all__ = ["MODELS", "Model", "model", "networks"]

Builder = Callable[[], tvm.IRModule]


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One ordinary model.

    `build` makes the module.  `sizes` binds the symbolic dimensions when it is run (3 otherwise).  `needs`
    names a package that building it imports.  `fault` says, where TVM's own plan of the model is wrong, in
    which way; None for a model on which every error is a false alarm.  `runs`: whether it can be executed
    with random inputs alone.
    """

    name: str
    build: Builder
    sizes: Mapping[str, int] = field(default_factory=dict)
    needs: str | None = None
    fault: str | None = None
    runs: bool = True


MODELS: dict[str, Model] = {}


def model(**more: Any) -> Callable[[Builder], Builder]:
    """Enter the builder into the table under its own name; see `Model`."""

    def enter(build: Builder) -> Builder:
        MODELS[build.__name__] = Model(name=build.__name__, build=build, **more)
        return build

    return enter


def networks(**builders: Builder) -> None:
    """Enter builders of networks, each under its name."""
    for name, build in builders.items():
        MODELS[name] = Model(name=name, build=build)
