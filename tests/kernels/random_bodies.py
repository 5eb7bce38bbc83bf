"""Random kernels of nested loops that are left early, with guards and with indices of many forms."""

from __future__ import annotations

import random
from textwrap import indent

__all__ = ["random_module"]

_MODULE = """@I.ir_module
class Module:
    @T.prim_func
    def work(source: T.handle, out: T.handle):
        n = T.int64()
        a = T.match_buffer(source, (n,), "float32")
        b = T.match_buffer(out, (n,), "float32")
{body}

    @R.function
    def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        n = T.int64()
        y = R.call_tir(Module.work, (x,), out_ty=R.Tensor((n,), "float32"))
        return y
"""
_EXTENTS = ("n", "n", "n + 1", "n - 1", "(n + 1) // 2", "n // 4", "(n + 3) // 4", "T.int64(4)", "T.int64(2)")
_TESTS = ("{i} == n", "{i} >= n", "{i} >= n + 1", "{i} < 2", "{i} == 3", "{j} > {i}", "{i} % 2 == 0", "n > 3")
_DATA = "a[0] > T.float32(0)"


def random_module(seed: int) -> str:
    """The script of a module whose only kernel is drawn from `seed`."""
    draw = random.Random(seed)
    body = "\n".join(_nest(draw, [], 0) for _ in range(draw.choice((1, 1, 2))))
    return _MODULE.format(body=indent(body, " " * 8))


def _nest(draw: random.Random, loops: list[str], depth: int) -> str:
    name = f"{'ij'[depth]}{draw.randrange(10**6)}"
    inner = [*loops, name]
    lines = [_statement(draw, inner, depth) for _ in range(draw.randint(1, 3))]
    lines.append(_store(draw, inner))
    return f"for {name} in range({draw.choice(_EXTENTS)}):\n" + indent("\n".join(lines), "    ")


def _statement(draw: random.Random, loops: list[str], depth: int) -> str:
    kind = draw.random()
    if kind < 0.25 and depth == 0:
        return _nest(draw, loops, 1)
    if kind < 0.65:
        return f"if {_test(draw, loops)}:\n" + indent(_left(draw, loops, 0), "    ")
    if kind < 0.8:
        otherwise = f"\nelse:\n    {_store(draw, loops)}" if draw.random() < 0.5 else ""
        return f"if {_test(draw, loops)}:\n    {_store(draw, loops)}{otherwise}"
    return _store(draw, loops)


def _left(draw: random.Random, loops: list[str], depth: int) -> str:
    """A branch at whose end the loop may be left."""
    if depth < 2 and draw.random() < 0.35:
        return f"if {_test(draw, loops)}:\n" + indent(_left(draw, loops, depth + 1), "    ")
    first = f"{_store(draw, loops)}\n" if draw.random() < 0.3 else ""
    return first + draw.choice(("break", "continue", "continue", "break"))


def _test(draw: random.Random, loops: list[str]) -> str:
    test = draw.choice(_TESTS).format(i=draw.choice(loops), j=draw.choice(loops))
    if draw.random() < 0.1:
        return f"{test} {draw.choice(('and', 'or'))} {_DATA}"
    return test


def _store(draw: random.Random, loops: list[str]) -> str:
    i, j = draw.choice(loops), draw.choice(loops)
    index = draw.choice(
        (i, i, i, f"{i} * 2", f"{i} * 4 + {j}", f"n - 1 - {i}", f"{i} ^ 1", f"{i} // 2", f"{i} | 1")
    )
    return f"b[{index}] = T.float32(1)"
