"""Paths that control can take, beside executions of random functions over all small inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from symalloc.analysis.conflicts import FeasiblePaths
from symalloc.analysis.facts import branch_tests, facts_of
from symalloc.analysis.interprocedural import analyse
from symalloc.linter.function_prover import FunctionProver
from symalloc.program.control_flow import PathCondition, PointKind
from symalloc.program.ir import Assert, CallKernel, CallOperator, Function, If, Instruction, Operand, Var
from symalloc.prover.prover import Prover
from tests.program.build import KERNELS, NOTHING, Body, param, program_of, tensor_of
from tests.program.interpreter import Interpreter
from tests.scale import tries

CONDITIONS = ("n <= 4", "n > 4", "n <= 2", "n >= 7", "n + m <= 5", "m > n", "n == 3", "m <= 1 or n <= 1")
PROVER = Prover()
LARGEST = 10


def condition_tensor(name: str) -> Var:
    return Var(name, tensor_of())


def negation(body: Body, source: Var) -> Var:
    made = CallOperator(var=body.var(source.type), name="relax.logical_not", arguments=(source,))
    return body.emit(made)


@dataclass
class Writer:
    """Draws the body of a function; `flags` are the tensors that Ifs test, in scope."""

    draw: Any
    body: Body

    def block(self, depth: int, flags: tuple[Var, ...]) -> Operand:
        for _ in range(self.draw(st.integers(0, 3 if depth else 4))):
            flags = self.step(depth, flags)
        return NOTHING

    def step(self, depth: int, flags: tuple[Var, ...]) -> tuple[Var, ...]:
        kind = self.draw(st.sampled_from(("if", "if", "if", "assert", "write", "alias", "not", "tuple")))
        if kind == "if" and depth < 3:
            self.branch(depth, flags)
        elif kind == "assert":
            self.body.check(self.draw(st.sampled_from(CONDITIONS)))
        elif kind == "write" and not self.draw(st.integers(0, 3)):
            self.body.call("update", self.draw(st.sampled_from(flags)))
        elif kind == "alias":
            return (*flags, self.body.alias(self.draw(st.sampled_from(flags))))
        elif kind == "not":
            return (*flags, negation(self.body, self.draw(st.sampled_from(flags))))
        elif kind == "tuple":
            pair = self.body.tuple(*(self.draw(st.sampled_from(flags)) for _ in range(2)))
            return (*flags, self.body.take(pair, self.draw(st.integers(0, 1))))
        return flags

    def branch(self, depth: int, flags: tuple[Var, ...]) -> None:
        size = self.draw(st.booleans())
        self.body.branch(
            lambda: self.block(depth + 1, flags),
            lambda: self.block(depth + 1, flags),
            condition=self.draw(st.sampled_from(CONDITIONS)) if size else None,
            test=None if size else self.draw(st.sampled_from(flags)),
        )


@st.composite
def functions(draw: st.DrawFn) -> Function:
    body = Body(param("x", "n"), param("y", "m"), condition_tensor("c"), condition_tensor("d"))
    Writer(draw, body).block(0, body.params[2:])
    return body.finish()


# -- execution ---------------------------------------------------------------------------------------------


class StoppedError(Exception):
    """An assert failed."""


@dataclass
class Execution(Interpreter):
    """One run: `written` are the values that kernels write to flags, one after the other."""

    function: Function
    sizes: Mapping[str, int]
    memory: dict[Var, bool]
    written: Iterator[bool]
    numbers: Mapping[Var, int]

    def run(self) -> tuple[PathCondition, list[int]]:
        """The branches that it takes and the points of instructions that it gets to, in order."""
        self.taken: set[tuple[int, bool]] = set()
        self.passed: list[int] = []
        self.values = {var: var for var in self.memory}
        with suppress(StoppedError, StopIteration):
            self.block(self.function.body)
        return frozenset(self.taken), self.passed

    def step(self, instruction: Instruction) -> Any:
        self.passed.append(self.numbers[instruction.var])
        return super().step(instruction)

    def takes(self, branch: If) -> bool:
        known = branch.condition
        then = self.memory[self.of(branch.test)] if known is None else known.evaluate(self.sizes)
        self.taken.add((self.numbers[branch.var], then))
        return then

    def touch(self, instruction: Instruction) -> Any:
        match instruction:
            case Assert(condition=condition) if condition is not None:
                if not condition.evaluate(self.sizes):
                    raise StoppedError
            case CallKernel(kernel="update", arguments=(target,)):
                self.memory[self.of(target)] = next(self.written)
            case CallOperator(arguments=(source,)):
                self.memory[instruction.var] = not self.memory[self.of(source)]
                return instruction.var
        return None


def executions(function: Function, paths: FeasiblePaths) -> list[tuple[PathCondition, list[int]]]:
    numbers = paths.cfg.starts
    flags = function.params[2:]
    writes = sum(isinstance(p.instruction, CallKernel) for p in paths.cfg.points)
    found = {}
    for n, m in product(range(LARGEST), repeat=2):
        for values in product((False, True), repeat=len(flags) + writes):
            memory = dict(zip(flags, values, strict=False))
            rest = iter(values[len(flags) :])
            one = Execution(function, {"n": n, "m": m}, memory, rest, numbers).run()
            found[one[0], tuple(one[1])] = one
    return list(found.values())


def paths_of(function: Function) -> FeasiblePaths:
    program = program_of(function)
    analysis = analyse(program)["main"]
    tests = branch_tests(analysis.points_to, analysis.effects)
    facts = facts_of(analysis.cfg, KERNELS, tests)
    prover = FunctionProver(PROVER, function, facts)
    return FeasiblePaths(analysis.cfg, facts, tests, prover.possible)


def is_small(function: Function, paths: FeasiblePaths) -> bool:
    kernels = sum(isinstance(point.instruction, CallKernel) for point in paths.cfg.points)
    return len(paths.cfg.joins) <= 7 and kernels <= 3


@settings(max_examples=tries(40, 1500))
@given(functions())
def test_a_path_is_feasible_where_some_execution_takes_it(function: Function) -> None:
    paths = paths_of(function)
    if not is_small(function, paths):
        return
    runs = executions(function, paths)
    literals = [(branch, side) for branch in sorted(paths.cfg.joins) for side in (True, False)]
    for size in (1, 2, 3):
        for path in map(frozenset, combinations(literals, size)):
            taken = any(path <= run for run, _ in runs)
            assert not taken or paths.feasible(path), f"{path} is taken"
            rewritten = any(isinstance(p.instruction, CallKernel) for p in paths.cfg.points)
            assert taken or rewritten or not paths.feasible(path), f"{path} is never taken"


@settings(max_examples=tries(40, 1500))
@given(functions(), st.data())
def test_points_are_reached_where_some_execution_gets_there(function: Function, data: st.DataObject) -> None:
    paths = paths_of(function)
    if not is_small(function, paths):
        return
    runs = executions(function, paths)
    rewritten = any(isinstance(p.instruction, CallKernel) for p in paths.cfg.points)
    points = [n for n, p in enumerate(paths.cfg.points) if p.kind < PointKind.ELSE]
    for first, second in combinations(points, 2):
        reached = any(first in passed and second in passed for _, passed in runs)
        assert not reached or paths.reaches(first, second)
        assert reached or rewritten or not paths.reaches(first, second)


@settings(max_examples=tries(40, 1500))
@given(functions(), st.data())
def test_uncovered_paths_avoid_all_the_others(function: Function, data: st.DataObject) -> None:
    paths = paths_of(function)
    points = [n for n, p in enumerate(paths.cfg.points) if p.kind is PointKind.INSTRUCTION]
    if not points or not is_small(function, paths):
        return
    runs = executions(function, paths)
    reader = data.draw(st.sampled_from(points))
    writers = data.draw(st.lists(st.sampled_from(points), max_size=4, unique=True))
    writers = [writer for writer in writers if writer < reader]
    found = paths.uncovered(paths.at[reader], [paths.at[w] for w in writers], reader)
    avoids = [run for run, passed in runs if reader in passed and not {*writers} & {*passed}]
    assert found.decided
    if avoids:
        assert found.path is not None, "an execution reads and passes no writer"
    elif not any(isinstance(p.instruction, CallKernel) for p in paths.cfg.points):
        assert found.path is None, f"no execution takes {found.path}"
    if found.path is not None:
        assert paths.at[reader] <= found.path
        assert all(any((b, not s) in found.path for b, s in paths.at[w]) for w in writers)
