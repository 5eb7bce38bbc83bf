"""The second oracle sees every kind of fault, and nothing in modules that are right."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any

import pytest
import tvm
from tvm import relax

from tests.models.measure.library import compiler
from tests.mutation.editable import EditableFunction, Step, rebuild, take_apart
from tests.mutation.operators.bodies import shift_load, shift_store, swap_loops
from tests.mutation.operators.places import set_argument
from tests.mutation.vm.forked import in_child
from tests.mutation.vm.handmade import DOUBLE, MATRIX, alloc, function, module_of, storage
from tests.mutation.vm.judging import Judgement, Subject, VmOracle
from tests.mutation.vm.subjects import finish_planned

pytestmark = pytest.mark.skipif(compiler() is None, reason="guarded memory needs a C++ compiler")


# x -> 2x in `a`, `a` -> 2a in `b`, on one storage
Planned = module_of(
    DOUBLE,
    function(
        f"x: {MATRIX}",
        *(storage("s", "n * 128"), alloc("a", "s"), alloc("b", "s", "n * 64")),
        *("_1 = cls.double(x, a)", "_2 = cls.double(a, b)", "_3 = R.memory.kill_tensor(a)", "return b"),
    ),
)
ROWS = Planned["main"].params[0].ty.shape[0]


@cache
def oracle() -> VmOracle:
    return VmOracle(Subject(name="planned", module=Planned, finish=finish_planned))


def judged(edited: EditableFunction) -> Judgement:
    main = Planned.get_global_var("main")
    changed = {Planned.get_global_var(name): kernel for name, kernel in edited.changed.items()}
    functions = dict(Planned.functions_items()) | changed | edited.added | {main: rebuild(edited)}
    return oracle().judge(tvm.IRModule(functions))


def main() -> EditableFunction:
    return take_apart(Planned["main"], {"double": Planned["double"]})


def test_the_unchanged_module_is_right() -> None:
    assert judged(main()) == Judgement(faults=(), same=True)
    assert not oracle().excluded


def place(step: int, offset: Any) -> Callable[[list[Step]], None]:
    """Gives what a step places another offset."""
    return lambda steps: set_argument(steps[step], 1, relax.prim_value(offset))


def reserve(size: Any) -> Callable[[list[Step]], None]:
    """Gives the storage another size."""
    return lambda steps: set_argument(steps[0], 0, relax.ShapeExpr([size]))


def overwrite(steps: list[Step]) -> None:
    place(2, 64)(steps)
    steps.insert(5, Step(relax.Var("again", relax.TupleType([])), steps[4].value))


def split(steps: list[Step]) -> None:
    reserve(ROWS * 128 + 64)(steps)
    place(2, ROWS * 64 + 1)(steps)


@pytest.mark.parametrize(
    ("change", "least", "most"),
    [
        (place(2, 64), {"arguments-overlap"}, None),  # apart for one row only
        (overwrite, {"overwritten"}, None),
        (lambda steps: steps.pop(3), {"unwritten", "poison"}, None),
        (lambda steps: steps.pop(4), {"unwritten", "poison"}, None),  # the result
        (reserve(ROWS * 128 - 1), {"exceeds"}, None),
        (place(1, -64), {"negative-offset"}, {"negative-offset"}),
        (split, {"split-element"}, None),
        (lambda steps: steps.insert(4, steps.pop()), {"use-after-kill"}, {"use-after-kill"}),
    ],
)
def test_each_kind_of_fault_is_seen(
    change: Callable[[list[Step]], object], least: set[str], most: set[str] | None
) -> None:
    edited = main()
    change(edited.body.steps)
    kinds = judged(edited).kinds
    assert least <= kinds and (most is None or kinds <= most)


@pytest.mark.parametrize("shift", [shift_store, shift_load])
@pytest.mark.parametrize("seed", range(4))
def test_a_kernel_that_goes_beside_its_arguments(
    shift: Callable[[EditableFunction, Random], str | None], seed: int
) -> None:
    edited = main()
    assert shift(edited, Random(seed))
    assert judged(edited).kinds & {"out-of-bounds", "crash"}


@pytest.mark.parametrize(
    ("change", "same"),
    [
        (place(2, 0), True),  # `b` lies exactly on `a`, which nobody reads later
        (lambda steps: set_argument(steps[4], 0, Planned["main"].params[0]), False),  # b = 2x
    ],
)
def test_another_program_is_no_fault(change: Callable[[list[Step]], None], same: bool) -> None:
    edited = main()
    change(edited.body.steps)
    assert judged(edited) == Judgement(faults=(), same=same)


def test_a_kernel_that_loops_in_another_order() -> None:
    edited = main()
    assert swap_loops(edited, Random(0))
    assert judged(edited) == Judgement(faults=(), same=True)


def test_what_does_not_compile_is_not_judged() -> None:
    edited = main()
    del edited.body.steps[0]
    assert judged(edited).unbuilt is not None


def test_a_child_that_hangs_is_ended() -> None:
    ended = in_child(lambda tell: (tell(1), time.sleep(60))[1], seconds=1)
    assert (ended.told, ended.died) == ((1,), "hangs")


def test_a_child_that_crashes_has_told_what_it_could() -> None:
    ended = in_child(lambda tell: (tell("before"), os.abort())[1])
    assert (ended.told, ended.died) == (("before",), "SIGABRT")
