"""Modules with outputs in donated inputs: planned, linted, written down, built, and run in one memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax

import symalloc
from symalloc.analysis.donation import parse_donation
from symalloc.analysis.interprocedural import analyse
from symalloc.errors import RunError, UsageError
from symalloc.planner.check.validate import PlanRefusedError
from symalloc.planner.memory_plan import PlanOptions
from symalloc.planner.memory_report.non_arena import DonatedResult, NonArenaMemory, non_arena_memory
from symalloc.relax.files.load import load_one
from symalloc.relax.files.plan_file import Form, plan_module, written
from symalloc.relax.passes.pipeline import lower
from symalloc.relax.passes.plan_pass import PlannedModule
from symalloc.size.parse import parse_expr
from tests.relax.built import errors, graph, machine
from tests.relax.donation.planned import planned, runner, same_bits_and_no_finding
from tests.scale import tries

pytestmark = pytest.mark.slow

UNOPTIMISED = tvm.target.Target({"kind": "llvm", "opt-level": 0})
SCRIPT = Path(__file__).parents[1] / "modules_that_donate.py"


@cache
def module(name: str) -> tvm.IRModule:
    return load_one(SCRIPT, module=name)


def refusal(mod: tvm.IRModule, *alias: str, **options: Any) -> str:
    with pytest.raises(PlanRefusedError) as refused:
        planned(mod, *alias, **options)
    return str(refused.value)


def address(tensor: Any) -> int:
    return int(np.from_dlpack(tensor).ctypes.data)


def outside(found: PlannedModule) -> NonArenaMemory:
    return non_arena_memory(found.program, analyse(found.program)["main"], {})


CACHE, OPTIMIZER = ("Cache", ("longer=caches.0",)), ("Optimizer", ("updated=w",))
CASES: Sequence[tuple[str, Sequence[str], Sequence[Mapping[str, int]], dict[str, Any]]] = (
    (*OPTIMIZER, [{"n": n} for n in (0, 1, 3, 200)], {}),
    ("Optimizer", ("updated=w", "1=g"), [{"n": n} for n in (1, 77)], {}),
    ("Optimizer", ("normal=w",), [{"n": 5}], {}),
    ("Optimizer", ("0=w",), [{"n": 33}], {"pipeline": "target"}),  # kernels are fused
    (*OPTIMIZER, [{"n": 9}], {"guards": "fallback"}),
    ("Momentum", ("0=w", "1=m"), [{"n": n} for n in (0, 1, 999)], {}),
    (*CACHE, [{"c": 8, "p": p} for p in (0, 5, 7)], {}),
    (*CACHE, [{"c": 9, "p": 4}], {"guards": "native"}),
    (*CACHE, [{"c": 9, "p": 4}], {"flavour": "storages"}),
    ("Cache", ("1=caches.1",), [{"c": 8, "p": 7}], {}),
    ("Branches", ("y=x",), [{"n": n} for n in (0, 1, 40)], {}),
    ("Flat", ("b=room",), [{"n": 6, "m": 1}, {"n": 0, "m": 0}], {}),
)


@pytest.mark.parametrize(("name", "alias", "bindings", "options"), CASES)
def test_the_same_bits_and_no_finding(
    name: str, alias: Sequence[str], bindings: Sequence[Mapping[str, int]], options: dict[str, Any]
) -> None:
    same_bits_and_no_finding(module(name), alias, bindings, **options)


def write_chain(emit: Any, x: relax.Var, w: relax.Var) -> relax.Expr:
    h = emit(relax.op.exp(x), "h")
    g = emit(relax.op.matmul(h, w), "g")
    k = emit(relax.op.add(g, h), "k")
    y = emit(relax.op.matmul(k, w), "y")
    return relax.Tuple([y, emit(relax.op.multiply(y, k))])


@pytest.mark.parametrize(
    ("aliases", "refused"),
    [
        (("h=x",), ""),
        (("g=x",), ""),
        (("k=x",), ""),
        (("y=x",), ""),
        (("h=x", "k=w"), "`matmul` uses `w` after"),
        (("h=x", "g=x"), "`x` is donated already, to `h`"),
        (("q=x",), "there is no output `q`"),
    ],
)
def test_a_variable_that_is_not_returned(aliases: tuple[str, ...], refused: str) -> None:
    chain = graph(write_chain, x=("n", 8), w=(8, 8))
    if refused:
        assert refused in refusal(chain, *aliases)
        return
    same_bits_and_no_finding(chain, aliases, [{"n": n} for n in (0, 1, 3, 50)])
    left, all_of_them = (
        planned(chain, *given).module.script().count("alloc_tensor(") for given in (aliases, ())
    )
    assert left == all_of_them - 1


@pytest.mark.parametrize("form", ["json", "script"])
def test_round_trips(form: Form, tmp_path: Path) -> None:
    """What is written down is read again and built with TVM's own pipeline."""
    options = PlanOptions(alias=(parse_donation("longer=caches.0"),))
    text = written(plan_module(module("Cache"), options=options).module, form)
    path = tmp_path / {"json": "planned.json", "script": "planned.py"}[form]
    path.write_text(text)
    again = load_one(path)
    assert errors(again) == []
    vm = relax.VirtualMachine(relax.build(again, UNOPTIMISED, relax_pipeline="default"), tvm.cpu())
    source = np.random.default_rng(0)
    rows, new = (source.random((n, 16), dtype="float32") for n in (9, 1))
    cache, other = map(tvm.runtime.tensor, (rows, rows))
    _, longer = vm["main"]((cache, other), tvm.runtime.tensor(new), tvm.runtime.ShapeTuple([6]))
    assert address(longer) == address(cache)
    assert longer.numpy().tobytes() == np.concatenate([rows[:6], new]).tobytes()


def test_the_output_lies_in_the_input_and_outlives_it() -> None:
    vm = machine(planned(module("Optimizer"), "updated=w").module, UNOPTIMISED)
    weights, gradient = (np.random.default_rng(s).random((50, 8), dtype="float32") for s in (0, 1))
    w, g = map(tvm.runtime.tensor, (weights, gradient))
    start = address(w)
    updated, _ = vm["main"](w, g)
    assert address(updated) == start
    expected = weights - gradient * np.float32(0.1)
    assert w.numpy().tobytes() == updated.numpy().tobytes() == expected.tobytes()
    del w
    again = [tvm.runtime.tensor(np.zeros((50, 8), dtype="float32")) for _ in range(4)]
    assert updated.numpy().tobytes() == expected.tobytes() and len(again) == 4


def test_an_input_that_is_too_small_is_noticed_before_anything_is_written() -> None:
    arguments = (np.ones((4, 16), dtype="float32"), np.zeros((1, 16), dtype="float32"))
    for guards, error in (("assert", AssertionError), ("native", ValueError), ("fallback", AssertionError)):
        vm = machine(planned(module("Cache"), "longer=caches.0", guards=guards).module, UNOPTIMISED)
        cache, new = map(tvm.runtime.tensor, arguments)
        with pytest.raises(error, match=r"`longer` does not fit into `caches\.0`.*p < c"):
            vm["main"]((cache, cache), new, tvm.runtime.ShapeTuple([4]))
        assert cache.numpy().tobytes() == arguments[0].tobytes()


def test_memory_that_is_not_compact_or_begins_elsewhere_is_refused() -> None:
    vm = machine(planned(module("Flat"), "b=room").module, UNOPTIMISED)
    x = tvm.runtime.tensor(np.ones(8, dtype="float16"))
    base = np.zeros((8, 8), dtype="float32")
    with pytest.raises(tvm.error.InternalError, match="compact"):
        vm["main"](tvm_ffi.from_dlpack(base[:, ::2]), x)
    whole = tvm.runtime.tensor(np.zeros((16, 8), dtype="float32"))
    with pytest.raises(ValueError, match="byte_offset"):
        vm["main"](whole._create_view((8, 8), "float32", relative_byte_offset=128), x)
    assert not base.any() and not whole.numpy().any()


def test_what_is_saved() -> None:
    before, after = planned(module("Optimizer")), planned(module("Optimizer"), "updated=w")
    nbytes = parse_expr("32*n")
    assert outside(before).donated == ()
    assert outside(after).donated == (DonatedResult(output="0", input="w", nbytes=nbytes, room=nbytes),)
    assert [[r.nbytes for r in outside(p).returned] for p in (before, after)] == [[nbytes] * 2, [nbytes]]


# -- refusals ----------------------------------------------------------------------------------------------


def test_what_no_check_makes_good() -> None:
    assert "`y` never fits into `c`" in refusal(module("Branches"), "y=c")
    text = refusal(module("Cache"), "longer=caches.0", guards="none")
    assert "it takes a check at entry, p + 1 >= 0 and p < c, and guards are turned off" in text


def test_an_input_that_a_kernel_takes_twice() -> None:
    """In one buffer TVM would make 0 of the difference, also where that is NaN."""
    twice = graph(lambda _, x: relax.op.subtract(x, x), x=("n",))
    assert "kernel has that takes `x` once" in refusal(twice, "result=x")


def test_which_function() -> None:
    assert "say which function is meant" not in refusal(module("Called"), "b=x")
    assert "there is no public function `step`" in refusal(module("Optimizer"), "step:updated=w")
    text = refusal(module("Called"), "again:z=x")
    assert "calls `again`, and donates nothing" in text
    assert outside(planned(module("Optimizer"), "main:updated=w")).donated


def test_refusals_reach_the_user() -> None:
    with pytest.raises(symalloc.SymallocError, match="uses `x` after"):
        symalloc.plan(module("Reads"), alias="y=x")
    with pytest.raises(RunError, match="uses `x` after"):
        runner(module("Reads"), "y=x").run({"n": 3})
    with pytest.raises(UsageError, match="is no alias"):
        symalloc.plan(module("Reads"), alias=["y:x"])
    with pytest.raises(UsageError, match="is no alias"):
        symalloc.pipeline(alias="y")
    with pytest.raises(PlanRefusedError, match="uses `x` after"):
        relax.build(module("Reads"), "llvm", relax_pipeline=symalloc.pipeline(alias="y=x"))


# -- random modules ----------------------------------------------------------------------------------------

UNARY: Sequence[Callable[[relax.Expr], relax.Expr]] = (
    relax.op.exp,
    relax.op.nn.softmax,
    relax.op.negative,
    lambda x: relax.op.cumsum(x, 1),
    lambda x: relax.op.flip(x, 0),
)
BINARY = ("add", "multiply", "subtract", "maximum")


def random_module(seed: int) -> tvm.IRModule:
    """Operators on tensors of one shape, from two inputs to two outputs."""
    random = Random(seed)

    def write(emit: Any, *given: relax.Var) -> relax.Expr:
        values = [*given]
        for _ in range(random.randint(2, 6)):
            if random.random() < 0.5:
                made = random.choice(UNARY)(random.choice(values[-3:]))
            else:
                combined = getattr(relax.op, random.choice(BINARY))
                made = combined(random.choice(values), random.choice(values[-3:]))
            values.append(emit(made))
        return relax.Tuple(random.sample(values[2:], 2))

    return graph(write, x=("n", 8), z=("n", 8))


def test_random_modules_give_the_same_bits_in_donated_memory() -> None:
    accepted = refused = 0
    for seed in range(tries(4, 60)):
        mod = random_module(seed)
        plain = machine(lower(mod, "llvm"), UNOPTIMISED)
        arrays = [np.random.default_rng(s).random((5, 8), dtype="float32") for s in (0, 1)]
        expected = [t.numpy().tobytes() for t in plain["main"](*map(tvm.runtime.tensor, arrays))]
        for alias in (("0=x",), ("1=x",), ("0=x", "1=z"), ("0=z", "1=x")):
            try:
                found = planned(mod, *alias)
            except PlanRefusedError:
                refused += 1
                continue
            accepted += 1
            assert errors(found.module) == []
            given = [tvm.runtime.tensor(a) for a in arrays]
            got = machine(found.module, UNOPTIMISED)["main"](*given)
            assert [t.numpy().tobytes() for t in got] == expected, f"{seed}, {alias}"
            places = {address(g) for g in given}
            assert all(address(got[int(one[0])]) in places for one in alias)
    assert accepted > 5 and refused > 5
