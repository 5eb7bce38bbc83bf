"""Tensors that lie in larger ones: found by hand, in random graphs that are run, and with faults planted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

import numpy as np
import pytest
import tvm
from tvm.script import from_source

from symalloc.analysis.interprocedural import analyse
from symalloc.planner.memory_plan import PlanOptions
from symalloc.program.reading import PipelineName
from symalloc.relax.extract import extract
from symalloc.relax.passes.pipeline import lower
from symalloc.relax.passes.plan_pass import plan_lowered
from symalloc.relax.rewrite import with_functions
from symalloc.relax.shrink.kernel_parts import PartsProof, Places, places_in, write_in_parts
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


# -- whole plans ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pipeline", get_args(PipelineName))
@pytest.mark.parametrize("seed", range(tries(4, 200)))
def test_random_graphs_give_the_same_bits(seed: int, pipeline: PipelineName) -> None:
    """Also where that takes more than without, which a plan would not do."""
    lowered = lower(random_graph(seed), "llvm", pipeline=pipeline)
    planned = plan_lowered(lowered, options=PlanOptions(shrink="safe")).module
    after, count = written(lowered)
    assert bool(count) == bool(places_in(proof_of(lowered)))
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
