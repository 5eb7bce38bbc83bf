"""Timelines of a module under each planner, and what a counting allocator sees of the same calls.

Memory of packed functions is left out: it does not come from the machine's allocator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import tvm
from tvm import relax
from tvm.ir.instrument import pass_instrument
from tvm.ir.transform import PassContext

from symalloc.analysis.register_lifetimes import Kills
from symalloc.analysis.timeline import Timeline
from symalloc.planner.planned_program import planned_program
from symalloc.program import ir
from symalloc.program.operands import instructions_of
from symalloc.relax.extract import extract
from symalloc.relax.passes.pipeline import finishing_pipeline, lower
from symalloc.relax.passes.plan_pass import plan_lowered
from symalloc.relax.passes.stages import OPAQUE, PLANNER, UNNAMED, tvm_pipeline
from tests.models.execution import paths_of, random_inputs
from tests.models.measure import ALLOCATOR, measured

Binding: TypeAlias = Mapping[str, int]
TARGET = tvm.target.Target({"kind": "llvm", "opt-level": 0})
COUNTED = "relax.run.unique"
"""The function whose result has as many elements as the symbol `q` says."""
LETTING_GO = "let_go_of_the_last_result"
"""A function beside a module's own: a machine keeps what it returned last until it returns again."""


@dataclass(frozen=True, slots=True)
class Side:
    """A module built in one way: what it is called, its program, and how to build it."""

    name: str
    program: ir.Program
    build: Callable[[], Any]
    kills: Kills = "paths"

    def is_decided(self, function: str, flags: Sequence[str]) -> bool:
        """Whether flags alone decide the Ifs of a function."""
        ifs = (
            one for one in instructions_of(self.program.functions[function].body) if isinstance(one, ir.If)
        )
        return all(isinstance(one.test, ir.Var) and one.test.name in flags for one in ifs)

    def timeline(self, function: str, path: Mapping[str, bool]) -> Timeline:
        """What a call of a function holds whose flags are those of `path`; of every path where there are
        none.
        """
        body = self.program.functions[function].body
        ifs = (one for one in instructions_of(body) if isinstance(one, ir.If))
        tests = {one.var: one.test.name for one in ifs if isinstance(one.test, ir.Var)}
        decided = {var: path[name] for var, name in tests.items() if name in path}
        found = Timeline.of(self.program, function, kills=self.kills, decided=decided)
        functions = self.program.functions.values()
        packed = {o.var for f in functions for o in instructions_of(f.body) if isinstance(o, ir.CallPacked)}
        return found.only(lambda one: one.var not in packed)


def sides(
    module: tvm.IRModule, kind: Literal["default", "target"] = "default", target: tvm.target.Target = TARGET
) -> Iterator[Side]:
    """The module without a plan behind our passes and behind TVM's alone, and with our plan."""
    module = _letting_go(module)
    lowered = lower(module, target, pipeline=kind)
    planned = plan_lowered(lowered, target=target, keeps_reshapes=True)
    written = planned_program(planned.program, planned.plans).program
    given = extract(lowered, name="module")

    def behind_planner(what: tvm.IRModule, context: PassContext) -> tvm.IRModule:
        """TVM's own pipeline less what stands in front of the planner, and the planner."""
        met: list[str] = []

        @pass_instrument
        class Skipping:
            def should_run(self, _: tvm.IRModule, info: Any) -> bool:
                met.append(str(info.name))
                return info.name in (OPAQUE, UNNAMED) or (PLANNER in met[:-1])

        with PassContext(context.opt_level, config=dict(context.config), instruments=[Skipping()]):
            return tvm_pipeline(target, kind)(what)

    stock = tvm.transform.module_pass(behind_planner, opt_level=0, name="stock")

    def built(what: tvm.IRModule, passes: Any) -> Callable[[], Any]:
        return lambda: _built(what, target, passes)

    finishing = finishing_pipeline(target, pipeline=kind)
    yield Side("unplanned", given, built(lowered, finishing))
    yield Side("stock", given, built(lowered, stock), "stock")
    yield Side("planned", written, built(planned.module, finishing))


def _built(module: tvm.IRModule, target: tvm.target.Target, passes: Any) -> Any:
    """What is built, without the kernels' own checks of their arguments, which are most of LLVM's work."""
    with tvm.transform.PassContext(config={"tirx.disable_assert": True}):
        return relax.build(module, target, relax_pipeline=passes)


def _letting_go(module: tvm.IRModule) -> tvm.IRModule:
    function = relax.Function([], relax.ShapeExpr([])).with_attr("global_symbol", LETTING_GO)
    return tvm.IRModule({**module.functions, tvm.ir.GlobalVar(LETTING_GO): function}, module.attrs)


def faults(
    side: Side, module: tvm.IRModule, functions: Mapping[str, Sequence[Binding]], flags: Sequence[str]
) -> Iterator[str | None]:
    """What is said of each call and is not so, None where it is: on each path, and on all of them.

    Nothing where a size is not known.  Where data decide an If, more may be said than the one path holds that
    ran.
    """
    machine = relax.VirtualMachine(side.build(), [tvm.cpu()], memory_cfg={tvm.cpu(): ALLOCATOR})
    for function, bindings in functions.items():
        everywhere, strict = side.timeline(function, {}), side.is_decided(function, flags)
        for binding in bindings:
            found = [_held(machine, module, function, binding, path) for path in paths_of(flags)]
            for path, (held, known) in zip(paths_of(flags), found, strict=True):
                where = f"{side.name} {function} {path}"
                yield from _fault(side.timeline(function, path), known, held, where, strict=strict)
            if all(known == found[0][1] for _, known in found):
                most = max(held for held, _ in found)
                yield from _fault(everywhere, found[0][1], most, f"{side.name} {function}", strict=strict)


def _fault(
    timeline: Timeline, binding: Binding, held: int, where: str, *, strict: bool
) -> Iterator[str | None]:
    said = timeline.peak(binding)
    if said is None:
        return
    wrong = said < held or (strict and said > held and timeline.doubt is None)
    yield f"{where} {dict(binding)}: {said} said, {held} held" if wrong else None


def _held(
    machine: Any, module: tvm.IRModule, function: str, binding: Binding, path: Mapping[str, bool]
) -> tuple[int, Binding]:
    """The most bytes of a call, and the binding with what became known during it."""
    machine[LETTING_GO]()
    arguments = random_inputs(module[function], binding, 0, path)
    known = dict(binding)

    def watch(_: Any, name: str, before: bool, result: Any, *__: Any) -> None:
        if name == COUNTED and not before:
            known["q"] = int(result.shape[0])

    machine.set_instrument(watch)
    _, usage = measured(lambda: machine[function](*arguments))
    return usage.total, known
