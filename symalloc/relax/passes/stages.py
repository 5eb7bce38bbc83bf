"""A module at the stages of TVM's own compilation pipeline.

The passes are not listed here: TVM's pipeline runs as it is in relax.build, and an instrument keeps the
module after each of its passes, names the pass that is running, and leaves out those that come after the
memory operations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import tvm
from tvm import relax
from tvm.ir.instrument import PassInstrument, pass_instrument

from symalloc.program.reading import Stage
from symalloc.relax.extract.memory_operators import MEMORY_OPERATORS
from symalloc.relax.ir_types import Node, bindings_in
from symalloc.relax.tvm_error import error_text

PLANNER = "StaticPlanBlockMemory"
FINAL = "KillAfterLastUse"
FIRST, LAST = "CallTIRRewrite", "LowerRuntimeBuiltin"
# passes behind the last of interest: nothing in them plans memory
_LATER = frozenset({"ComputePrimValue", "VMShapeLower", "AttachGlobalSymbol"})
# FoldConstant compiles kernels of the module and runs them; a linter must not
_EXECUTES = frozenset({"FoldConstant"})
_WRAPPERS = frozenset({"sequential", "_pipeline"})
_MEMORY_OPERATIONS = MEMORY_OPERATORS.keys() - {
    "relax.builtin.alloc_tensor",
    "relax.memory.ensure_zero_offset",
    "relax.memory.view",
    "relax.vm.call_tir_dyn",
}
"""Those that place tensors on storages, or kill."""


@dataclass(frozen=True, slots=True)
class Lowered:
    """A module after the pass `stage`."""

    stage: str
    mod: tvm.IRModule


class PassFailedError(Exception):
    """A pass of TVM raised; `stage` names it (empty before the first), the text is what TVM says, without its
    stack.
    """

    def __init__(self, stage: str, message: str) -> None:
        super().__init__(message)
        self.stage = stage


def wanted_stages(stage: Stage, planned: bool) -> tuple[bool, Callable[[str], bool] | None]:
    """(whether the module is read as it stands, which passes to read it after, None for no lowering).

    `planned`: whether the module already holds memory operations, in which case TVM plans nothing more for
    it.
    """
    if stage == "as-is" or (planned and stage == "auto"):
        return True, None
    if stage == "all":
        return True, _Between(FIRST, LAST)
    if planned:
        return True, None
    return stage == "auto", lambda name: name in (PLANNER, FINAL)


class _Between:
    """True from the first of two names on, until behind the second."""

    def __init__(self, first: str, last: str) -> None:
        self._first, self._last, self._inside = first, last, False

    def __call__(self, name: str) -> bool:
        self._inside = self._inside or name == self._first
        wanted = self._inside
        self._inside = self._inside and name != self._last
        return wanted


def lower(
    mod: tvm.IRModule,
    target: str,
    *,
    wanted: Callable[[str], bool],
    keep: Callable[[Lowered], None],
    entering: Callable[[str], None] = lambda _: None,
    trust: bool = False,
) -> None:
    """Run TVM's pipeline for `target` on `mod`, and `keep` it after every pass that `wanted` names.

    `keep` is called while the pipeline runs, so that what came before a crash is not lost; `entering` is told
    the name of each pass before it runs.  Raises PassFailedError.
    """
    keeper = _Keeper(wanted, keep, entering, skip=_LATER if trust else _LATER | _EXECUTES)
    try:
        chosen = tvm.target.Target(target)
        pipeline = (
            relax.get_default_pipeline(chosen) if "gpu" in chosen.keys else relax.get_pipeline("default")
        )
        with chosen, tvm.transform.PassContext(opt_level=2, instruments=[_instrument(keeper)]):
            pipeline(mod)
    except Exception as error:  # a pass raises whatever it raises
        raise PassFailedError(keeper.running, error_text(error)) from error


def _instrument(keeper: _Keeper) -> PassInstrument:
    """`keeper` as TVM takes it: it wraps classes, and its wrapper hides their fields."""

    @pass_instrument
    class Instrument:
        should_run = staticmethod(keeper.should_run)
        run_before_pass = staticmethod(keeper.run_before_pass)
        run_after_pass = staticmethod(keeper.run_after_pass)

    return Instrument()


class _Keeper:
    """Hands on the module after the passes that are wanted."""

    def __init__(
        self,
        wanted: Callable[[str], bool],
        keep: Callable[[Lowered], None],
        entering: Callable[[str], None],
        skip: frozenset[str],
    ) -> None:
        self.running = ""
        self._wanted, self._keep, self._entering, self._skip = wanted, keep, entering, skip

    def should_run(self, mod: tvm.IRModule, info: Node) -> bool:
        """Leave out what is skipped."""
        return str(info.name) not in self._skip

    def run_before_pass(self, mod: tvm.IRModule, info: Node) -> None:
        """Note which pass is running."""
        if info.name not in _WRAPPERS:
            self.running = str(info.name)
            self._entering(self.running)

    def run_after_pass(self, mod: tvm.IRModule, info: Node) -> None:
        """Keep what the pass made."""
        name = str(info.name)
        if name not in _WRAPPERS and self._wanted(name):
            self._keep(Lowered(name, mod))


def has_memory_operations(mod: tvm.IRModule) -> bool:
    """Return whether any Relax function of `mod` already places tensors on storages or kills them."""
    functions = (f for f in mod.functions.values() if isinstance(f, relax.Function))
    calls = (binding.value for function in functions for binding in bindings_in(function.body))
    return any(
        type(call) is tvm.ir.Call and type(call.op) is tvm.ir.Op and call.op.name in _MEMORY_OPERATIONS
        for call in calls
    )
