"""Random chains of kernels over tensors of several dimensions, drawn from a grammar of loops and indices.

Each dimension of what is stored is gone through in a way of its own: whole, backwards, in tiles, rotated, in
steps, up to a bound, by a counter in a buffer; values are loaded beside, through bounds and choices, or from
what was stored before.  Any number may be off by one.  A second kernel may read what the first one leaves.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from tests.kernels.element_kernels import ElementKernel, Writer, written

__all__ = ["composed_kernel"]


class _Buffer(NamedTuple):
    """A buffer; its extents as text."""

    name: str
    shape: tuple[str, ...]
    dtype: str = "float32"


class _Way(NamedTuple):
    """A way through one dimension: lines of loops and tests around, each a level deeper, and the index."""

    heads: tuple[str, ...]
    index: str


def _way(index: str, *heads: str) -> list[_Way]:
    return [_Way(heads, index)]


class _Composer(Writer):
    def __init__(self, draw: Random, symbolic: bool) -> None:
        super().__init__(draw, symbolic)
        self.lines: list[str] = []
        self.full: list[_Buffer] = []

    def number(self, value: int) -> str:
        return f"T.{self.wide}({value})"

    # -- through one dimension ------------------------------------------------------------------------------

    def ways(self, extent: str) -> list[list[_Way]]:
        """Nests that go through a dimension together."""
        i, j, every = self.name("i"), self.name("j"), "for {} in range({}{}):".format
        match self.draw.randrange(14):
            case 0:
                return [_way(f"{extent} - 1 - {i}", every(i, extent, self.off()))]
            case 1:
                heads = f"for {i}, {j} in T.grid(({extent} + 2) // 3, 3):", f"if {i} * 3 + {j} < {extent}:"
                return [[_Way(heads[: 1 + (self.draw.random() < 0.9)], f"({i} * 3 + {j}{self.off()})")]]
            case 2:
                loop = every(i, extent, self.off())
                return [_way(f"({i} + {self.draw.randrange(1, 4)}) % ({extent})", loop)]
            case 3:
                step = self.draw.choice((2, 3))
                return [
                    _way(i, f"for {i} in T.serial({first}, {extent}{self.off()}, step={step}):")
                    for first in range(step)
                ]
            case 4:
                bound = self.draw.choice(("2", "3", f"({extent}) // 2"))
                low = f"for {i} in range(T.min({bound}, {extent})):"
                return [_way(i, low), _way(i, f"for {i} in range({bound}{self.off()}, {extent}):")]
            case 5:
                test = self.draw.choice((f"{i} < 2", f"{i} % 3 == 1", f"{i} * 2 < {extent}", f"{i} >= 1"))
                other = f"T.Not({test})" if self.draw.random() < 0.95 else f"{i} > 2"
                return [_way(i, every(i, extent, ""), f"if {one}:") for one in (test, other)]
            case 6:
                return [_way(f"T.min({i}, {extent} - 1{self.off()})", every(i, f"{extent} + 3", ""))]
            case 7:
                inner = f"for {j} in range({i}, {i} + 1):"
                return [_way(f"{j}{self.off()}", every(i, extent, ""), inner)]
            case 8:
                return [
                    _way(i, every(i, f"({extent} + 1) // 2", self.off())),
                    _way(f"{extent} - 1 - {i}", every(i, f"(({extent}) // 2)", "")),
                ]
            case 9:
                kind = self.draw.choice(("int8", "int16", "uint8", "int32"))
                return [_way(i, every(i, f'T.Cast("{self.wide}", T.Cast("{kind}", {extent}))', ""))]
            case _:
                first = self.draw.choice(("0", "0", "0", "-1", "1"))
                if first != "0" and self.draw.random() < 0.7:
                    first = "0"
                return [_way(i, f"for {i} in range({first}, {extent}{self.off()}):")]

    # -- values ---------------------------------------------------------------------------------------------

    def beside(self, index: str, extent: str) -> str:
        """An index near another one, within bounds or not."""
        more = self.draw.choice((" + 1", " - 1", " + 2"))
        match self.draw.randrange(6):
            case 0:
                return f"T.max(T.min({index}{more}, {extent} - 1), 0)"
            case 1:
                return f"{extent} - 1 - ({index})"
            case 2:
                return f"({index}{more} + {extent}) % ({extent})"
            case 3 if self.draw.random() < 0.15:
                return f"{index}{more}"
            case _:
                return index

    def load(self, source: _Buffer, indices: list[str], extents: tuple[str, ...]) -> str:
        """What a buffer holds at indices that are below `extents`, perhaps behind a test."""
        flat = indices[0]
        for index, extent in zip(indices[1:], extents[1:], strict=True):
            flat = f"(({flat}) * ({extent}) + {index})"
        if source.shape == extents:
            found = [self.beside(i, n) for i, n in zip(indices, extents, strict=True)]
        elif len(source.shape) == 1:
            found = [f"T.min({flat}, {source.shape[0]} - 1)"]
        else:
            found = [f"T.min({indices[0]}, {extent} - 1)" for extent in source.shape]
        text = f"{source.name}[{', '.join(found)}]"
        if self.draw.random() < 0.15:
            near = f"{indices[-1]} - 1"
            beside = f"{source.name}[{', '.join([*found[:-1], near])}]"
            if source.shape == extents:
                least = self.draw.choice(("0", "0", "0", "-1"))
                text = f"T.if_then_else({indices[-1]} > {least}, {beside}, {text})"
        return text

    def value(self, indices: list[str], extents: tuple[str, ...], dtype: str) -> str:
        if self.draw.random() < 0.3:
            return f"T.{dtype}(1)"
        source = self.draw.choice([_Buffer("a", (self.n,)), *self.full])
        text = self.load(source, indices, extents)
        return text if source.dtype == dtype else f'T.Cast("{dtype}", {text})'

    # -- statements -----------------------------------------------------------------------------------------

    def nest(self, buffer: _Buffer, around: tuple[str, ...] = ()) -> None:
        """Store all of a buffer, dimension by dimension."""
        parts: list[list[_Way]] = [[]]
        for extent in buffer.shape:
            ways = self.ways(extent)
            parts = [[*before, *way] for before in parts for way in ways]
        if len(parts) > 1 and self.draw.random() < 0.05:
            parts.pop()
        if self.draw.random() < 0.2:
            self.draw.shuffle(parts)
        for ways in parts:
            indices = [way.index for way in ways]
            place = f"{buffer.name}[{', '.join(indices)}]"
            heads = [*around, *(head for way in ways for head in way.heads)]
            body = [f"{place} = {self.value(indices, buffer.shape, buffer.dtype)}"]
            match self.draw.randrange(9):
                case 0:
                    k = self.name("k")
                    test = self.draw.choice(("", "", f"if {k} > 0:", f"if {k} < 2:"))
                    more = f"{place} = {place} + {self.value(indices, buffer.shape, buffer.dtype)}"
                    body += [
                        f"for {k} in range(3):",
                        *([f"    {test}"] if test else []),
                        "    " * (1 + bool(test)) + more,
                    ]
                case 1:
                    local = self.name("t")
                    late = self.draw.random() < 0.1
                    body = [
                        f'{local} = T.alloc_buffer((2,), "{buffer.dtype}")',
                        f"{local}[{int(late)}] = {self.value(indices, buffer.shape, buffer.dtype)}",
                        f"{place} = {local}[0]",
                    ]
                case 2:
                    let = self.name("x")
                    body = [
                        f"{let}: T.{self.wide} = {indices[-1]}",
                        f"{buffer.name}[{', '.join([*indices[:-1], let])}] = T.{buffer.dtype}(2)",
                    ]
                case _:
                    pass
            for depth, line in enumerate(heads):
                self.lines.append("    " * depth + line)
            self.lines += ["    " * len(heads) + line for line in body]

    def carried(self, buffer: _Buffer) -> None:
        """Each element along one dimension from the one before."""
        axis = self.draw.randrange(len(buffer.shape))
        others = [(self.name("i"), n) for a, n in enumerate(buffer.shape) if a != axis]
        j, extent = self.name("j"), buffer.shape[axis]
        loops = [f"for {i} in range({n}):" for i, n in others]
        inner = f"for {j} in range({extent} - 1{self.off()}):"
        outside = self.draw.random() < 0.4

        def at(index: str) -> str:
            places = [i for i, _ in others]
            places.insert(axis, index)
            return f"{buffer.name}[{', '.join(places)}]"

        first, step = (
            f"{at('0')} = T.{buffer.dtype}(0)",
            f"{at(f'{j} + 1')} = {at(self.draw.choice((j, j, j, j, f'{j} + 1', f'{j} // 2')))}",
        )
        if self.draw.random() < 0.08:
            first = f"{at('0')} = {at('0')}"
        if outside or self.draw.random() < 0.2:
            nests = [[*loops, first], [inner, *loops, step] if outside else [*loops, inner, step]]
            for nest in nests:
                self.lines += ["    " * depth + line for depth, line in enumerate(nest)]
        else:
            self.lines += ["    " * depth + line for depth, line in enumerate(loops)]
            self.lines += ["    " * len(loops) + line for line in (first, inner, f"    {step}")]

    def block(self, buffer: _Buffer) -> None:
        """A block with an axis for each dimension, and one or two of reduction."""
        loops = [(self.name("i"), extent) for extent in buffer.shape]
        sums = [(self.name("k"), self.draw.choice(("2", "3"))) for _ in range(self.draw.choice((1, 1, 2)))]
        every = [*loops, *sums]
        if self.draw.random() < 0.3:
            self.draw.shuffle(every)
        axes = [(self.name("v"), "spatial", n, i) for i, n in loops]
        for k, n in sums:
            least = self.draw.choice(("0", "0", "0", "1"))
            value = k if least == "0" else f"{k} + {1 if self.draw.random() < 0.85 else 2}"
            axes.append((self.name("v"), "reduce", n if least == "0" else f"(1, {n} + 2)", value))
        k = sums[0][0]
        tests = [
            None,
            None,
            None,
            f"{k} < 1",
            f"{k} > 0",
            f"{k} <= {loops[0][0]}",
            f"{loops[0][0]} >= {k}",
            f"{loops[-1][0]} < {buffer.shape[-1]}",
        ]
        test = self.draw.choice(tests)
        place = f"{buffer.name}[{', '.join(v for v, kind, _, _ in axes if kind == 'spatial')}]"
        indices = [v for v, kind, _, _ in axes if kind == "spatial"]
        names, extents = ", ".join(i for i, _ in every), ", ".join(n for _, n in every)
        body = [f"with T.sblock({self.name('s')!r}):"]
        body += [f"    {v} = T.axis.{kind}({n}, {value})" for v, kind, n, value in axes]
        body += [f"    T.where({test})"] if test else []
        if self.draw.random() < 0.93:
            body += ["    with T.init():", f"        {place} = T.{buffer.dtype}(0)"]
        body.append(f"    {place} = {place} + {self.value(indices, buffer.shape, buffer.dtype)}")
        self.lines += [f"for {names} in T.grid({extents}):", *(f"    {line}" for line in body)]

    def vectors(self, buffer: _Buffer) -> None:
        """A buffer of one dimension whose length is a multiple of four, by lanes."""
        o, v = self.name("o"), self.name("v")
        step = self.draw.choice(("1", "1", "4"))
        count = f"({buffer.shape[0]}) // 4{self.off()}"
        place = f"{o} * 4 + {v}" if step == "1" else f"{v} * 4 + {o}"
        if self.draw.random() < 0.5:
            start = f"{o} * 4" if step == "1" else o
            first = "" if self.draw.random() < 0.9 else " + 1"
            text = f"{buffer.name}[T.Ramp({start}{first}, {step}, 4)] = T.Broadcast(T.{buffer.dtype}(1), 4)"
            self.lines += [f"for {o} in range({count}):", f"    {text}"]
            return
        body = [f"{buffer.name}[{place}] = {self.value([place], buffer.shape, buffer.dtype)}"]
        if self.draw.random() < 0.4:
            other = self.draw.choice(
                (
                    place,
                    f"({place}) % 4 + {o} * 4",
                    f"T.max({place} - 1, 0)",
                    f"T.min({place} + 1, {buffer.shape[0]} - 1)",
                )
            )
            body.append(f"{buffer.name}[{place}] = {buffer.name}[{other}]")
        self.lines += [
            f"for {o} in range({count}):",
            f"    for {v} in T.vectorized(4):",
            *(f"        {line}" for line in body),
        ]

    def counted(self, buffer: _Buffer) -> None:
        """A loop that counts up, down or by two in a buffer."""
        w, extent = self.name("w"), buffer.shape[0]
        first, test, step = self.draw.choice(
            (
                ("0", f"{{}} < {extent}", "+ {}"),
                (f"{extent} - 1", "{} >= 0", "- {}"),
                ("0", f"{{}} < {extent}{self.off(0.3)}", "+ {}"),
            )
        )
        by = self.number(2 if self.draw.random() < 0.1 else 1)
        store = f"{buffer.name}[{w}[0]] = {self.value([f'{w}[0]'], buffer.shape, buffer.dtype)}"
        start = [f"{w}[0] = {first if self.symbolic and first != '0' else self.number(int(eval(first)))}"]
        if self.draw.random() < 0.05:
            start = []
        self.lines += [
            f'{w} = T.alloc_buffer((1,), "{self.wide}")',
            *start,
            f"while {test.format(f'{w}[0]')}:",
            f"    {store}",
            f"    {w}[0] = {w}[0] {step.format(by)}",
        ]

    def fill(self, buffer: _Buffer) -> None:
        ways = [self.nest, self.nest, self.nest, self.block, self.carried]
        if len(buffer.shape) == 1:
            ways.append(self.counted)
            if not self.symbolic and buffer.shape[0] in ("16", "32", "64"):
                ways.append(self.vectors)
        if buffer.dtype != "float32":
            ways = [self.nest, self.carried]
        self.draw.choice(ways)(buffer)

    def on(self, buffer: _Buffer) -> _Buffer:
        """The buffer, or all of it under another shape or type."""
        if len(buffer.shape) > 1 or self.draw.random() < 0.5:
            return buffer
        name, n = self.name("d"), buffer.shape[0]
        shapes = [
            ((f"({n}) * 2",), "float16"),
            ((f"({n}) * 4",), "int8"),
            ((f"({n})", "2"), "int16"),
            ((f"({n}) * 2",), "bfloat16"),
        ]
        if not self.symbolic and n == "16":
            shapes += [
                (("4", "4"), "float32"),
                (("2", "8"), "float32"),
                (("2", "4"), "float64"),
                (("8",), "int64"),
            ]
        if self.symbolic:
            shapes += [((f"(({n}) // 2)",), "int64"), ((f"({n}) // 2", "2"), "float32")]
        shape, dtype = self.draw.choice(shapes)
        more = ""
        if shape == ("4", "4") and self.draw.random() < 0.5:
            more = ", strides=[1, 4]"
        self.lines.append(
            f'{name} = T.decl_buffer(({", ".join(shape)},), "{dtype}", data={buffer.name}.data{more})'
        )
        return _Buffer(name, shape, dtype)

    def body(self) -> str:
        """The statements of a kernel."""
        n = self.n
        for _ in range(self.draw.choice((0, 1, 1, 2))):
            shape = self.draw.choice(
                ((n,), (n, "2"), ("3", n), (f"{n} + 2",), ("4", "4"), (f"{n} * 2",), ("2", "3", "2"))
            )
            own = _Buffer(self.name("c"), shape)
            self.lines.append(f'{own.name} = T.alloc_buffer(({", ".join(shape)},), "float32")')
            view = self.on(own)
            self.fill(view)
            self.full += [own] if view is own else [own, view]
        result = _Buffer("b", (n,))
        view = self.on(result)
        self.fill(view)
        if view is not result and self.symbolic and view.dtype in ("int64", "float32"):
            self.lines += (
                [f"if {n} % 2 == 1:", f"    b[{n} - 1] = T.float32(0)"] if self.draw.random() < 0.8 else []
            )
        if self.draw.random() < 0.3:
            self.full.append(result)
            self.fill(result)
        if self.draw.random() < 0.06:
            self.lines.insert(self.draw.choice((0, len(self.lines))), f"assert {n} >= 3, 'three'")
        return "\n".join(self.lines)


def composed_kernel(seed: int) -> ElementKernel:
    """The kernel, or the two of them, that are drawn from `seed`."""
    draw = Random(seed)
    symbolic = draw.random() < 0.55
    names = ("k", "l") if draw.random() < 0.3 else ("k",)
    return written(symbolic, **{name: _Composer(draw, symbolic).body() for name in names})
