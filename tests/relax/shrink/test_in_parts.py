"""Tensors that lie in larger ones: found by hand, in random graphs that are run, and with faults planted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import get_args

import numpy as np
import pytest
import tvm
from tvm import tirx
from tvm.script import from_source

from symalloc.analysis.interprocedural import analyse
from symalloc.planner.memory_plan import PlanOptions
from symalloc.program import ir
from symalloc.program.reading import PipelineName
from symalloc.relax.extract import extract
from symalloc.relax.ir_types import Node, bindings_in, bound, elements, with_arguments
from symalloc.relax.passes.pipeline import lower
from symalloc.relax.passes.plan_pass import plan_lowered
from symalloc.relax.rewrite import by_binding, map_bindings, with_functions
from symalloc.relax.shrink.kernel_parts import PartsProof, Places, places_in, restores, write_in_parts
from tests.relax.built import errors
from tests.relax.shrink.compared import outputs
from tests.relax.shrink.graphs_of_parts import random_graph, stepwise
from tests.scale import tries


def proof_of(module: tvm.IRModule) -> PartsProof:
    program = extract(module, name="module", stage="CallTIRRewrite", handles=True)
    return PartsProof(module, analyse(program)["main"])


def written(module: tvm.IRModule) -> tuple[tvm.IRModule, Mapping[str, int]]:
    return write_in_parts(module, {"main": proof_of(module).analysis})


# -- what lies where -----------------------------------------------------------------------------------------

TWO = "a = tanh x; b = half x; "
CASES = [
    (TWO + "c = join a b; d = wide c; return d", "a=c+0 b=c+8"),
    (TWO + "c = join a b; return c", "a=c+0 b=c+8"),
    (TWO + "c = join b a; return c", "a=c+8 b=c+0"),
    (TWO + "c = join a b; d = half a; return c d", "b=c+8"),  # a is read later
    (TWO + "c = joined a b; return c", "a=c+0 b=c+8"),
    (TWO + "c = joined a b; d = half a; return c d", "b=c+8"),
    (TWO + "c = join a b; tanh x a; d = half a; return c d", "b=c+8"),  # written after
    (TWO + "c = join a b; e = wide c; wide e c; d = half a; return c d", "b=c+8"),  # while a is needed
    (TWO + "c = join a b; e = wide c; wide e c; return c", "a=c+0 b=c+8"),
    ("a = tanh x; c = join a x; return c", "a=c+0"),
    ("a = tanh x; c = join a a; return c", ""),
    ("a = tanh x; c = join a x; d = half a; return c d", ""),  # x is copied
    (TWO + "c = join a b; return c a", "b=c+8"),
    (TWO + "c = sum a b; return c", "a=c+0"),  # both would be at one place
    (TWO + "c = turned a b; return c", "b=c+8"),
    (TWO + "c = turned b b; return c", ""),
    (TWO + "c = join a b; join a b c; return c", ""),
    (TWO + "c = wide c; join a b c; return c", ""),
    ("a = tanh x; b = half a; c = join a b; return c", "a=c+0 b=c+8"),  # b is made of a, in one tensor
    (TWO + "c = join a b; d = tanh a; e = join a d; return c e", "a=e+0 b=c+8 d=e+8"),
]


def named(proof: PartsProof, places: Places) -> str:
    names = {root: made.var.name for root, made in proof.fresh.items()}
    found = [(names[root], names[place.whole], place.offsets[-1]) for root, place in places.items()]
    return " ".join(f"{part}={whole}+{begin}" for part, whole, begin in sorted(found))


@pytest.mark.parametrize(("steps", "expected"), CASES)
def test_what_lies_where(steps: str, expected: str) -> None:
    module = stepwise(steps)
    proof = proof_of(module)
    places = places_in(proof)
    assert named(proof, places) == expected
    after, count = written(module)
    assert count == ({"main": len(places)} if places else {})
    for n in (1, 5) if places else ():
        x = np.random.default_rng(n).standard_normal((n, 8)).astype("float32")
        assert outputs(after, "main", [x]) == outputs(module, "main", [x])


FLAT = """
@T.prim_func(private=True, s_tir=True)
def flat(a: T.handle, b: T.handle):
    T.func_attr({"tirx.noalias": True})
    n = T.int64()
    x = T.match_buffer(a, (n, T.int64(8)), "float32")
    y = T.match_buffer(b, (n, T.int64(8)), "float32")
    for i, j in T.grid(n, T.int64(8)):
        y[STORED] = x[LOADED] * T.float32(0.5)
"""


@pytest.mark.parametrize(
    ("stored", "loaded", "expected"),
    [("i, j", "i, j", "a=c+0 b=c+8"), ("i, j", "0, i * 8 + j", "b=c+8"), ("0, i * 8 + j", "i, j", "a=c+0")],
)
def test_indices_that_leave_their_row_find_the_same_elements(stored: str, loaded: str, expected: str) -> None:
    module = stepwise("a = tanh x; b = half a; c = join a b; return c")
    flat = from_source(FLAT.replace("STORED", stored).replace("LOADED", loaded))
    module = with_functions(module, {module.get_global_var("half"): flat})
    proof = proof_of(module)
    assert named(proof, places_in(proof)) == expected
    x = np.random.default_rng(0).standard_normal((5, 8)).astype("float32")
    assert outputs(written(module)[0], "main", [x]) == outputs(module, "main", [x])


def is_written(proof: PartsProof, places: Places, module: tvm.IRModule) -> bool:
    """Return whether the function in `module` does what it did, by its text and the places alone."""
    name, known = proof.analysis.cfg.function.name, by_binding(proof.analysis.cfg)
    before, after = proof.module[name].body, module[name].body
    left = {one.var.__chandle__(): one for one in bindings_in(after)}
    for binding in bindings_in(before):
        instruction, found = known.get(binding.__chandle__()), left.get(binding.var.__chandle__())
        if isinstance(instruction, ir.CallKernel) and proof.moved(places, instruction)[0]:
            calls = None if found is None else (binding.value, found.value)
            if calls is None or not is_moved(proof, places, instruction, *calls, module):
                return False
        elif found is None:
            if not (instruction is None or isinstance(instruction, ir.AllocFresh | ir.Alias | ir.View)):
                return False
        elif not found.same_as(binding):
            return False
    placed = {proof.bindings[root].var.__chandle__() for root in proof.fresh}
    orders = ([one.var.__chandle__() for one in bindings_in(body)] for body in (before, after))
    old, new = ([key for key in order if key in left and key not in placed] for order in orders)
    return old == new and bool(before.body.same_as(after.body)) and proof.holds(places)


def is_moved(
    proof: PartsProof, places: Places, call: ir.CallKernel, given: Node, made: Node, module: tvm.IRModule
) -> bool:
    """Return whether a call does with wholes what another one did with what lies in them."""
    moved, through = proof.moved(places, call)
    arguments = [*elements(given.args)]
    for at, place in moved.items():
        arguments[at] = proof.bindings[place.whole].var
    offsets = {at: place.offsets for at, place in moved.items()}
    same = all(map(tvm.ir.Var.same_as, elements(made.args), arguments))
    return same and restores(proof.module[call.kernel], module[made.op], offsets, through)


# -- faults --------------------------------------------------------------------------------------------------


def test_a_wrong_place_is_refused() -> None:
    """An offset that is off, exchanged places of two as large, ranges that overlap, too far, or too soon."""
    module = stepwise(TWO + "c = join a b; e = wide c; return e")
    proof = proof_of(module)
    places = places_in(proof)
    (one, left), (other, right) = sorted(places.items(), key=lambda item: item[1].offsets)
    assert proof.holds(places)
    wrong = [{**places, one: left._replace(offsets=(row, at))} for row in (0, 1, -1) for at in range(-1, 17)]
    wrong += [{**places, other: right._replace(offsets=(0, at))} for at in range(-1, 17)]
    wrong += [{one: left._replace(offsets=right.offsets), other: right._replace(offsets=left.offsets)}]
    wrong += [{other: right, one: left._replace(whole=other)}]
    wrong = [each for each in wrong if each != places]
    assert [each for each in wrong if proof.holds(each)] == []


def faults(module: tvm.IRModule, after: tvm.IRModule) -> Iterator[tuple[str, tvm.IRModule]]:
    """The module `after`, which was made of another one, with one fault each."""
    calls = [b for b in bindings_in(after["main"].body) if isinstance(b.value, tvm.ir.Call)]
    calls = [b for b in calls if isinstance(b.value.op, tvm.ir.GlobalVar)]
    tensors = {a.__chandle__(): a for b in calls for a in b.value.args}.values()
    both = with_functions(after, {v: f for v, f in module.functions_items() if isinstance(f, tirx.PrimFunc)})

    def other_call(one: Node, arguments: Sequence[Node], callee: Node) -> tvm.IRModule:
        made = bound(one.var, with_arguments(one.value, arguments, callee))
        return map_bindings(both, lambda _, b: [made] if b.var.same_as(one.var) else None)

    for one in calls:
        given, callee = elements(one.value.args), one.value.op
        yield f"{callee} left out", map_bindings(after, lambda _, b, w=one: [] if b.same_as(w) else None)
        for at, argument in enumerate(given):
            for other in tensors:
                if not other.same_as(argument):
                    arguments = [*given[:at], other, *given[at + 1 :]]
                    yield f"{callee} of {arguments}", other_call(one, arguments, callee)
        for kernel in both.get_global_vars():
            if kernel.name_hint not in (callee.name_hint, "main"):
                yield f"{kernel} for {callee}", other_call(one, given, kernel)
    for one, other in pairwise(calls):
        places = {one.var.__chandle__(): other, other.var.__chandle__(): one}
        turned = map_bindings(after, lambda _, b, p=places: [p.get(b.var.__chandle__(), b)])
        yield f"{one.value.op} behind {other.value.op}", turned


def test_a_function_that_is_written_wrongly_is_refused() -> None:
    """A producer or a reader as it was, or with another tensor or kernel; a call that is left out."""
    steps = "c = joined a b; d = wide c; e = half x; f = tanh e; g = join e f; h = wide g; return d g h"
    module = stepwise(TWO + steps)
    proof, (after, _) = proof_of(module), written(module)
    places = places_in(proof)
    assert named(proof, places) == "a=c+0 b=c+8 e=g+0 f=g+8"
    assert is_written(proof, places, after)
    planted = [*faults(module, after)]
    assert len(planted) > 100
    assert [fault for fault, wrong in planted if is_written(proof, places, wrong)] == []
    assert not is_written(proof, places, module)
    for root in places:
        fewer = {one: place for one, place in places.items() if one != root}
        assert not is_written(proof, fewer, after)


# -- whole plans ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pipeline", get_args(PipelineName))
@pytest.mark.parametrize("seed", range(tries(4, 200)))
def test_random_graphs_give_the_same_bits(seed: int, pipeline: PipelineName) -> None:
    """Also where that takes more than without, which a plan would not do."""
    lowered = lower(random_graph(seed), "llvm", pipeline=pipeline)
    planned = plan_lowered(lowered, options=PlanOptions(shrink="safe")).module
    after, count = written(lowered)
    proof = proof_of(lowered)
    places = places_in(proof)
    assert is_written(proof, places, after) if count else not places
    modules = {"planned": planned, "in parts": after}
    assert errors(planned) == []
    for n in (1, 6):
        x = np.random.default_rng(seed).standard_normal((3, n, 4)).astype("float32")
        expected = outputs(lowered, "main", [x])
        assert {
            label: outputs(one, "main", [x]) == expected for label, one in modules.items()
        } == dict.fromkeys(modules, True)


def test_random_graphs_have_parts() -> None:
    """Or nothing would be tested with them."""
    found = [written(lower(random_graph(seed), "llvm"))[1] for seed in range(20)]
    assert sum(map(bool, found)) >= 8
