"""What moves into the memory of results, and when nothing needs to be tried."""

from __future__ import annotations

from random import Random

import pytest

from symalloc.planner.buffers.result_memory import _Relief
from symalloc.planner.search.grid import Values
from symalloc.program.ir import Instruction, Operand
from symalloc.size.expr import Expr, constant
from tests.planner.buffers.test_candidates import N, X, alloc, kernel, split

WIDTHS: tuple[Expr, ...] = (N * constant(16), N * constant(48), N * N * constant(16), constant(4096))


def program(random: Random) -> tuple[list[Instruction], Operand]:
    """A line of kernels, each of which reads the last tensor and often an earlier one."""
    body: list[Instruction] = []
    made: list[Operand] = [X]
    for number in range(random.randint(3, 9)):
        one = alloc(f"t{number}", random.choice(WIDTHS))
        body += [one, kernel(made[-1], random.choice(made[-3:]), one.var)]
        made.append(one.var)
    return body, made[-1]


def test_hopeless_is_only_what_no_moves_could_save(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, found = _Relief.hopeless, {True: 0, False: 0}

    def recorded(self: _Relief, room: Values) -> bool:
        answer = plain(self, room)
        found[answer] += 1
        return answer

    def answers(seed: int) -> list[tuple[str, int]]:
        body, result = program(Random(seed))
        return [(name, buffer.arena) for name, buffer in split(*body, result=result)[0].items()]

    for seed in range(60):
        monkeypatch.setattr(_Relief, "hopeless", recorded)
        quick = answers(seed)
        monkeypatch.setattr(_Relief, "hopeless", lambda *_: False)
        assert quick == answers(seed), seed
    assert min(found.values()) > 0, "both happen"
