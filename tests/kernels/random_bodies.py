"""Random kernels of nested loops that are left early, and of numbers kept in buffers of one element."""

from __future__ import annotations

import random
from textwrap import indent
from typing import NamedTuple

__all__ = ["STORES", "random_module", "random_scalar_kernel"]


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


STORES = 6
"""Parameters, each stored to by one statement at most, so that one unknown index hides no other."""
_BUFFERS = "\n".join(f'        b{i} = T.match_buffer(p{i}, (n,), "float32")' for i in range(STORES))
_KERNEL = f"""@I.ir_module
class Module:
    @T.prim_func
    def work(source: T.handle, {", ".join(f"p{i}: T.handle" for i in range(STORES))}):
        n = T.int64()
        a = T.match_buffer(source, (n,), "float32")
{_BUFFERS}
{{body}}
        T.evaluate(0)
"""
_VALUES = (
    "{x}",
    "{x} + 1",
    "{x} * 2 + {y}",
    "{x} - {y}",
    "{x} // 2",
    "{x} % 3",
    "T.max({x}, {y})",
    "n - {x}",
)
_SCALAR_TESTS = ("{x} < {y}", "{x} >= 2", "{x} % 2 == 0", "n > 3", "a[0] > T.float32(0)", "{x} == {y}")


class _Names(NamedTuple):
    """Loop variables and scalars that can be spoken of, and whether a loop is around."""

    loops: tuple[str, ...]
    scalars: tuple[str, ...]

    def value(self, draw: random.Random) -> str:
        known = (*self.loops, *self.scalars, *self.scalars, "n", "T.int64(1)")
        return draw.choice(_VALUES).format(x=draw.choice(known), y=draw.choice(known))

    def test(self, draw: random.Random) -> str:
        known = (*self.loops, *self.scalars, *self.scalars, "n")
        return draw.choice(_SCALAR_TESTS).format(x=draw.choice(known), y=draw.choice(known))


class _Writer:
    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self._stores = 0
        self._names = 0

    def block(self, names: _Names, depth: int) -> str:
        """Statements that follow each other; scalars that are made here are spoken of in what follows."""
        lines = []
        for _ in range(self._draw.randint(2, 4)):
            kind = self._draw.random()
            if kind < 0.3 or not names.scalars:
                name, value = self._name("k"), names.value(self._draw)
                lines.append(f"{name}: T.int64 = {value}")
                names = names._replace(scalars=(*names.scalars, name))
            else:
                lines.append(self._statement(names, depth, kind))
        return "\n".join(lines)

    def _statement(self, names: _Names, depth: int, kind: float) -> str:
        if kind < 0.5:
            return f"{self._draw.choice(names.scalars)} = {names.value(self._draw)}"
        if kind < 0.65 or depth == 3:
            return self._store(names)
        if kind < 0.8:
            return self._branches(names, depth)
        return self._loop(names, depth)

    def _store(self, names: _Names) -> str:
        if self._stores == STORES:
            return "T.evaluate(1)"
        self._stores += 1
        return f"b{self._stores - 1}[{names.value(self._draw)}] = T.float32(1)"

    def _branches(self, names: _Names, depth: int) -> str:
        then = self.block(names, depth + 1)
        if names.loops and self._draw.random() < 0.2:
            then += "\n" + self._draw.choice(("break", "continue"))
        text = f"if {names.test(self._draw)}:\n{_inside(then)}"
        if self._draw.random() < 0.4:
            text += f"\nelse:\n{_inside(self.block(names, depth + 1))}"
        return text

    def _loop(self, names: _Names, depth: int) -> str:
        kind = self._draw.random()
        if kind < 0.15:
            name = self._draw.choice(names.scalars)
            return f"while {name} < 3:\n{_inside(self.block(names, depth + 1))}\n    {name} = {name} + 1"
        name = self._name("i")
        body = _inside(self.block(names._replace(loops=(*names.loops, name)), depth + 1))
        extent = self._draw.choice(("n", "T.int64(3)", "n // 2", self._draw.choice(names.scalars)))
        return f"for {name} in {'T.parallel' if kind < 0.25 else 'range'}({extent}):\n{body}"

    def _name(self, letter: str) -> str:
        self._names += 1
        return f"{letter}{self._names}"


def _inside(text: str) -> str:
    return indent(text, "    ")


def random_scalar_kernel(seed: int) -> str:
    """The script of a module whose only kernel, `work`, is drawn from `seed`."""
    return _KERNEL.format(body=indent(_Writer(seed).block(_Names((), ()), 0), " " * 8))
