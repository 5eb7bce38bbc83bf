from __future__ import annotations

import signal
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from symalloc.planner.exact import solve
from symalloc.planner.exact.attempts import Attempts
from symalloc.planner.exact.capacity_search import CapacitySearch, Rule, SearchOutcome
from symalloc.planner.exact.clique_instance import CliqueInstance
from symalloc.planner.exact.native_search import NativeSearch, fits
from tests.planner.exact.test_solve import (
    Block,
    Problem,
    assert_sound,
    buffers,
    neighbours,
    perfect,
    problems,
)
from tests.pool.library import need_native


@pytest.fixture(autouse=True, scope="session")
def native() -> None:
    """The installed library, else one built for the tests."""
    need_native()


def instance(problem: Problem) -> CliqueInstance:
    return CliqueInstance.of(buffers(problem))


def assert_alike(problem: Problem, capacity: int, limits: list[int]) -> None:
    """One attempt after another in both: the same outcome, steps and lowest offsets after each."""
    given = instance(problem)
    reference, native = CapacitySearch(given, capacity), NativeSearch(given, capacity)
    rules: tuple[Rule, ...] = ("lowest", "contested")
    chance = Random(len(problem))
    for number, limit in enumerate(limits):
        priorities = list(range(len(given.ids)))
        chance.shuffle(priorities)
        rule = rules[number % len(rules)]
        outcomes = [
            search.attempt(priorities=priorities, rule=rule, limit=limit) for search in (reference, native)
        ]
        assert outcomes[0] is outcomes[1]
        assert (native.steps, native.offsets) == (reference.steps, reference.offsets)
        if outcomes[0] is SearchOutcome.FOUND:
            break


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(problem=problems(most=8), capacity=st.integers(1, 40), limits=st.lists(st.integers(1, 30), max_size=5))
def test_small_problems_are_decided_as_by_the_reference(
    problem: Problem, capacity: int, limits: list[int]
) -> None:
    """Aligned ones, some with gaps in their live ranges; with packings and without."""
    largest = max((b.size for b in problem), default=0)
    assert_alike(problem, max(capacity, largest), limits)


@pytest.mark.parametrize("seed", range(8))
def test_large_problems_are_decided_as_by_the_reference(seed: int) -> None:
    problem = perfect(seed, count=120, positions=60, height=500)
    assert_alike(problem, 500, [700, 200, 600, 100])


def test_attempts_and_their_schedule_are_the_same() -> None:
    problem = perfect(2, count=150, positions=70, height=700)
    native, reference = (Attempts(instance(problem), 700, 3, native=on) for on in (True, False))
    assert isinstance(native.search, NativeSearch)
    assert isinstance(reference.search, CapacitySearch)
    outcomes = [attempts.run(limit=3000) for attempts in (native, reference)]
    assert outcomes[0] is outcomes[1]
    assert native.search.steps == reference.search.steps
    assert native.search.offsets == reference.search.offsets


def test_problems_deeper_than_a_stack() -> None:
    """A staircase of one component: each buffer lies on the one before."""
    count = 20_000
    problem = tuple(Block(id=i, size=1 + i % 3, live=((i, i + 2),)) for i in range(count))
    search = NativeSearch(instance(problem), 5)
    outcome = search.attempt(priorities=range(count), rule="lowest", limit=2000)
    assert outcome is SearchOutcome.CUT
    assert search.steps == 2000


def test_what_is_found_is_sound() -> None:
    problem = perfect(1, count=200, positions=100, height=1000)
    search = NativeSearch(instance(problem), 1000)
    chance, outcome = Random(0), SearchOutcome.CUT
    while outcome is SearchOutcome.CUT:
        priorities = list(range(len(problem)))
        chance.shuffle(priorities)
        outcome = search.attempt(priorities=priorities, rule="lowest", limit=20_000)
    assert outcome is SearchOutcome.FOUND
    assert_sound(problem, search.offsets)
    assert max(search.offsets[b.id] + b.size for b in problem) == 1000


def test_an_interrupt_gets_through() -> None:
    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    problem = perfect(11, count=400, positions=200, height=1 << 20)
    search = NativeSearch(instance(problem), 1 << 20)
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(KeyboardInterrupt):
            search.attempt(priorities=range(400), rule="contested", limit=1 << 40)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_what_goes_beyond_64_bits_is_left_to_python() -> None:
    problem = tuple(Block(id=i, size=1 << 62, live=((0, 1 + i),)) for i in range(3))
    assert not fits(instance(problem), 3 << 62)
    attempts = Attempts(instance(problem), 3 << 62, 0, native=True)
    assert isinstance(attempts.search, CapacitySearch)
    assert attempts.run(limit=None) is SearchOutcome.FOUND


def test_without_the_library_the_same_packing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = perfect(2, count=60, positions=30, height=300)

    def packing() -> solve.ExactPacking:
        return solve.pack_exactly(buffers(problem), neighbours(problem), capacity=None, steps=3000)

    found = packing()
    monkeypatch.setattr(solve, "load_library", lambda: "it is missing")
    monkeypatch.setattr(NativeSearch, "__init__", None)  # whoever calls it fails
    assert packing() == found
