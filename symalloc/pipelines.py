"""TVM's compilation pipelines with memory planned by symalloc: by function, and by name.

`relax_pipeline="symalloc"` is known to TVM whichever of the two is imported first.
`import symalloc` imports no TVM: where TVM is not there yet, its module of pipelines is watched for and
the names are entered as soon as it is loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from symalloc.errors import UsageError

if TYPE_CHECKING:
    from tvm.target import Target
    from tvm.transform import Pass

    from symalloc.planner.options import EffortName, Flavour, GuardKind

Base: TypeAlias = Literal["default", "target"]

WATCHED = "tvm.relax.pipeline"
PIPELINES: dict[str, Base] = {"symalloc": "default", "symalloc-target": "target"}


def pipeline(
    target: str | Target | None = None,
    *,
    pipeline: Base = "default",
    flavour: Flavour = "arena",
    guards: GuardKind = "assert",
    effort: EffortName = "quick",
    seed: int = 0,
    alias: str | Sequence[str] = (),
) -> Pass:
    """What `relax.build(mod, target, relax_pipeline=…)` takes to plan memory with symalloc.

    `pipeline`: "default" is TVM's pipeline of that name, "target" is the target's own, which fuses
    operators.  Without `target` it serves the target that is built for.  The rest is as for
    `symalloc.plan`.  Raises UsageError for a choice that there is not.
    """
    from symalloc.analysis.donation import parse_donation
    from symalloc.planner.options import EffortName, Flavour, GuardKind, PlanOptions
    from symalloc.relax.passes.pipeline import pipeline as make

    for name, value, kind in (
        ("pipeline", pipeline, Base),
        ("flavour", flavour, Flavour),
        ("guards", guards, GuardKind),
        ("effort", effort, EffortName),
    ):
        if value not in get_args(kind):
            raise UsageError(f"{name} is {value!r}; it must be one of {', '.join(get_args(kind))}")
    try:
        donations = tuple(map(parse_donation, [alias] if isinstance(alias, str) else alias))
    except ValueError as error:
        raise UsageError(str(error)) from None
    options = PlanOptions(flavour=flavour, guards=guards, effort=effort, seed=seed, alias=donations)
    return make(target, pipeline=pipeline, options=options)


def register_pipelines() -> None:
    """Enters the pipelines named in PIPELINES into TVM's table, at once or when TVM is imported.

    "symalloc" stands for TVM's "default", "symalloc-target" for the target's own pipeline.  Both take the
    options of a plan: `relax.get_pipeline("symalloc", guards="native")`.
    """
    module = sys.modules.get(WATCHED)
    if module is not None:
        _enter(module)
    elif not any(isinstance(finder, _Watcher) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Watcher())


def _enter(module: ModuleType) -> None:
    table = getattr(module, "PIPELINE_MAP", None)
    for name, base in PIPELINES.items():
        if table is not None and name not in table:
            module.register_pipeline(name)(_factory(base))


def _factory(base: Base) -> Callable[..., Pass]:
    def build(**options: Any) -> Pass:
        return pipeline(pipeline=base, **options)

    return build


class _Watcher:
    """A finder that finds nothing itself: it has the pipelines entered behind the real loader's work."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec that the other finders give for the watched module; None for any other."""
        if name != WATCHED:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)  # type: ignore[assignment]
        return spec


class _Loader:
    """Loads as the real loader does, gives it its place back, and enters the pipelines."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """The module that the real loader creates."""
        created: ModuleType | None = self._real.create_module(spec)
        return created

    def exec_module(self, module: ModuleType) -> None:
        """Runs the module, then enters the pipelines."""
        if module.__spec__ is not None:
            module.__spec__.loader = self._real
        module.__loader__ = self._real
        self._real.exec_module(module)
        _enter(module)
