"""The library's sums of bytes over time: those of Python to the last bit, also where they are rounded."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from random import Random

import numpy as np
import pytest

from symalloc.native.flat_lists import lists_of, shared
from symalloc.native.library import LIBRARY
from symalloc.native.native_functions import arena_functions
from symalloc.planner.buffers import call_timeline
from symalloc.planner.buffers.call_columns import CallColumns
from symalloc.planner.buffers.call_timeline import CallProfile, CallTimeline
from symalloc.planner.buffers.first_fit import few_arenas, first_fit
from symalloc.planner.buffers.merged_arenas import merged_arenas
from symalloc.planner.buffers.sample_shapes import SizeTable
from symalloc.planner.plan_functions import plan_program
from symalloc.prover.prover import Prover
from tests.planner.buffers.test_worst_shapes import straight
from tests.planner.random_programs import random_program
from tests.pool.library import ROOT, built, need_native
from tests.scale import tries


@pytest.fixture(autouse=True, scope="module")
def native() -> None:
    """The installed library, else one built for the tests."""
    need_native()


def timelines(monkeypatch: pytest.MonkeyPatch, seeds: int) -> list[CallTimeline]:
    """Those that random functions are judged at, branching ones among them."""
    found: list[CallTimeline] = []
    init = CallTimeline.__init__

    def noted(
        self: CallTimeline, columns: CallColumns, table: SizeTable, profiles: Mapping[str, CallProfile]
    ) -> None:
        init(self, columns, table, profiles)
        found.append(self)

    with monkeypatch.context() as patched:
        patched.setattr(CallTimeline, "__init__", noted)
        for seed in range(seeds):
            plan_program(random_program(seed), Prover())
            plan_program(straight(Random(seed)), Prover())
    return [one for one in found if len(one.tenants) > 1]


def huge(memory: CallTimeline, random: Random) -> CallTimeline:
    """The same with sizes whose sums are rounded."""
    table = memory._table
    values = table.values * 2.0**50 + np.array([[random.random() * 2.0**40] for _ in table.values])
    return CallTimeline(memory.columns, SizeTable(table.grid, table.rows, values), memory.profiles)


def in_python(memory: CallTimeline, monkeypatch: pytest.MonkeyPatch) -> CallTimeline:
    with monkeypatch.context() as patched:
        patched.setattr(call_timeline, "native_timeline", lambda *_, **__: None)
        return CallTimeline(memory.columns, memory._table, memory.profiles)


@pytest.mark.parametrize("rounded", [False, True])
def test_sums_and_groups_are_those_of_python(rounded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    random, several, by_path = Random(1), 0, 0
    for memory in timelines(monkeypatch, tries(12, 200)):
        one = huge(memory, random) if rounded and not memory.profiles else memory
        other = in_python(one, monkeypatch)
        assert one.native is not None and other.native is None
        everyone = range(len(one.tenants))
        chosen = sorted(random.sample(everyone, random.randint(1, len(everyone))))
        assert np.array_equal(one.load(chosen), other.load(chosen))
        assert np.array_equal(one.height(chosen), other.height(chosen))
        for figure in ("limit", "floor", "scale", "need"):
            assert np.array_equal(getattr(one, figure), getattr(other, figure))
        results = [i for i in everyone if one.tenants[i].kept]
        planned = [i for i in everyone if not one.tenants[i].kept]
        for fit in (few_arenas, first_fit):
            groups = fit(one, planned, results, results)
            assert groups == fit(other, planned, results, results)
            if groups is not None:
                assert np.array_equal(one.taken(groups), other.taken(groups))
                assert np.array_equal(one.taken(groups, {0}), other.taken(groups, {0}))
                for lent in ((), {0}):
                    assert one.excess(groups, lent) == other.excess(groups, lent)
                assert np.array_equal(one.spreads(groups), other.spreads(groups))
                by_path += len(one.over(groups)[1]) < len(one.limit)
                assert merged_arenas(one, groups) == merged_arenas(other, groups)
                several += len(groups) > len(results) + 1
    assert several > 10
    assert rounded or by_path > 10


def test_what_does_not_fit_together_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = timelines(monkeypatch, 1)[0]
    assert memory.native is not None
    one_group, whole = lists_of([[0]]), shared(np.empty_like(memory.limit))
    for members in ([-1], [len(memory.tenants)]):
        with pytest.raises(ValueError, match="a tensor is not there"):
            memory.native.height(members)
    with pytest.raises(ValueError, match="groups differ in number"):
        arena_functions.arenas(memory.native.made, one_group, b"", whole)
    with pytest.raises(ValueError, match="lists do not start and end"):
        arena_functions.arenas(memory.native.made, lists_of([[0]])[:8] + b"\7" + b"\0" * 7, b"\0" * 4, whole)
    with pytest.raises(ValueError, match="as long as it must be"):
        arena_functions.arenas(memory.native.made, one_group, b"\0" * 4, shared(np.empty((1, 1))))
    with pytest.raises(ValueError, match="paths do not lie one behind the other"):
        arena_functions.peaks(memory.native.made, one_group, b"\0" * 4, b"\0" * 8, whole)
    with pytest.raises(ValueError, match="held elsewhere"):
        memory.native.load([0], 0, 0)
    with pytest.raises(ValueError, match="tensors differ in number from sizes"):
        assert memory.columns.native is not None
        arena_functions.timeline(memory.columns.native, shared(np.zeros((1, 1))), True)


@pytest.mark.sanitize
def test_the_library_reads_and_writes_within_its_arrays() -> None:
    folder = built("symalloc", ROOT / "build" / "planner-address", "-DSYMALLOC_SANITIZE=address,undefined")
    preloaded = [  # a program that is not sanitized has neither when the library looks for them
        subprocess.run(["c++", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
        for name in ("libasan.so", "libstdc++.so")
    ]
    here = Path(__file__).parent
    files = [str(here / f"test_{name}.py") for name in ("native_timeline", "first_fit", "merged_arenas")]
    script = f"""
import sys, pathlib, pytest
from symalloc.native.library import load_library
load_library(pathlib.Path({str(folder / LIBRARY)!r}))
sys.exit(pytest.main(["-s", "-n", "0", "-p", "no:cacheprovider", "-m", "not sanitize", *{files!r}]))
"""
    environment = {
        **os.environ,
        "LD_PRELOAD": " ".join(done.stdout.strip() for done in preloaded),
        "ASAN_OPTIONS": "detect_leaks=0",
    }
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
