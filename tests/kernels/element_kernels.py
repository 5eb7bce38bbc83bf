"""Random kernels in which it matters when an element is written: parts, scans, views of other types, scratch,
lanes, narrow integers, blocks with an initialisation.

Each fills its result in a few ways that are right, or nearly: an end is off by one, two statements have
changed places, one is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from textwrap import indent
from typing import NamedTuple

__all__ = ["ElementKernel", "Writer", "element_kernel", "written"]

_KERNEL = """
    @T.prim_func(private=True, s_tir=True)
    def {name}(a_: T.handle, b_: T.handle):
        n = T.int64()
        a = T.match_buffer(a_, ({n},), "float32")
        b = T.match_buffer(b_, ({n},), "float32")
{body}
"""
_MAIN = """
    @R.function
    def main(x: R.Tensor(({quoted},), "float32")):
        n = T.int64()
{calls}        return y
"""
_BYTES = {"float64": 8, "float32": 4, "int32": 4, "float16": 2, "uint8": 1}


class ElementKernel(NamedTuple):
    """The script of a module with a kernel `k`; `symbolic` if its length is n, otherwise that is 16.

    Each of `names` is a kernel that is given what the one before has left.
    """

    script: str
    symbolic: bool
    names: tuple[str, ...] = ("k",)


def written(symbolic: bool, **bodies: str) -> ElementKernel:
    """Kernels of these bodies, by name, each on the result of the one before."""
    n, quoted = ("n", '"n"') if symbolic else ("16", "16")
    script, calls, source = "@I.ir_module\nclass Module:", "", "x"
    for name, result in zip(bodies, ("t", "y")[-len(bodies) :], strict=True):
        script += _KERNEL.format(name=name, n=n, body=indent(bodies[name], " " * 8))
        out = f'R.Tensor(({n},), "float32")'
        calls += f"        {result} = R.call_tir(Module.{name}, ({source},), out_ty={out})\n"
        source = result
    return ElementKernel(script + _MAIN.format(quoted=quoted, calls=calls), symbolic, tuple(bodies))


class Writer:
    """Draws statements: names that are new, and numbers that are off by one now and then."""

    def __init__(self, draw: Random, symbolic: bool) -> None:
        self.draw, self.symbolic, self.made = draw, symbolic, 0
        self.n, self.wide = ("n", "int64") if symbolic else ("16", "int32")

    def name(self, letter: str) -> str:
        """A new name."""
        self.made += 1
        return f"{letter}{self.made}"

    def off(self, often: float = 0.04) -> str:
        """Mostly nothing, sometimes one more or less."""
        return self.draw.choice((" + 1", " - 1")) if self.draw.random() < often else ""


class _View(NamedTuple):
    """A buffer of `length` elements (as text) on the memory `memory`."""

    name: str
    memory: str
    dtype: str
    length: str


class _Writer(Writer):
    def __init__(self, draw: Random) -> None:
        super().__init__(draw, draw.random() < 0.4)
        self.written: list[_View] = []
        self.heads: list[str] = []
        self.parts: list[str] = []
        self.memories = [_View("b", "b", "float32", self.n)]

    # -- parts of statements --------------------------------------------------------------------------------

    def off(self, often: float = 0.07) -> str:
        return super().off(often)

    def value(self, dtype: str, index: str) -> str:
        """A value to be stored, for an index of an element that is below 16 or n."""
        kind = self.draw.random()
        if kind < 0.3 or (not self.written and kind < 0.5):
            return f"T.{dtype}(1)"
        sources = [_View("a", "a", "float32", self.n), *self.written]
        if self.draw.random() < 0.08:
            sources += self.memories
        source = self.draw.choice(sources)
        place = self.draw.choice((index, index, index, f"{source.length} - 1 - ({index})", f"({index}) // 2"))
        if self.draw.random() < 0.05:
            place = f"{index}{self.off(1)}"
        if _BYTES[source.dtype] > 4:
            place = f"({index}) // 2"
        loaded = f"{source.name}[{place}]"
        return loaded if source.dtype == dtype else f'T.Cast("{dtype}", {loaded})'

    def view(self, of: _View) -> _View:
        """A buffer on the memory of another."""
        if self.draw.random() < 0.55:
            return of
        kind = self.draw.choice(("float64", "float16", "uint8", "int32", "offset", "strides"))
        name = self.name("d")
        if kind == "offset":
            first = self.draw.choice((1, 4))
            self.heads.append(
                f'{name} = T.decl_buffer(({of.length},), "float32", data={of.name}.data, elem_offset={first})'
            )
            return _View(name, of.memory, "float32", f"{of.length} - {first}{self.off()}")
        if kind == "strides":
            self.heads.append(
                f'{name} = T.decl_buffer(({of.length},), "float32", data={of.name}.data, strides=[1])'
            )
            return _View(name, of.memory, "float32", of.length)
        scale = _BYTES[kind]
        length = {8: f"{of.length} // 2", 4: of.length, 2: f"{of.length} * 2", 1: f"{of.length} * 4"}[scale]
        length += self.off()
        self.heads.append(f'{name} = T.decl_buffer(({length},), "{kind}", data={of.name}.data)')
        return _View(name, of.memory, kind, length)

    def source_index(self, view: _View, index: str) -> str:
        """An index of a view as one that is below 16 or n."""
        scale = _BYTES[view.dtype]
        return index if scale >= 4 else f"({index}) // {4 // scale}"

    def store(self, view: _View, index: str, at: str | None = None) -> str:
        return f"{view.name}[{index}] = {self.value(view.dtype, self.source_index(view, at or index))}"

    def loop(self, extent: str, body: Callable[[str], str], kind: str = "range({})") -> str:
        name = self.name("i")
        return f"for {name} in {kind.format(extent)}:\n" + indent(body(name), "    ")

    # -- ways to fill a view --------------------------------------------------------------------------------

    def fill(self, view: _View) -> str:
        ways = [
            self.whole,
            self.halves,
            self.strided,
            self.guarded,
            self.scan,
            self.summed,
            self.tiled,
            self.left,
            self.narrow,
            self.counted,
            self.side_by_side,
            self.nested,
        ]
        if not self.symbolic:
            ways += [self.lanes, self.ramps]
        if view.dtype == "float32":
            ways += [self.block, self.block, self.shifted]
        return self.draw.choice(ways)(view)

    def whole(self, view: _View) -> str:
        length = view.length
        places = ["{i}", "{i}", f"{length} - 1 - {{i}}", f"({{i}} + 1) % ({length})"]
        if not self.symbolic:
            places += ["{i} ^ 1", f"({{i}} * 5) % ({length})"]
        place = self.draw.choice(places)
        return self.loop(length + self.off(), lambda i: self.store(view, place.format(i=i)))

    def halves(self, view: _View) -> str:
        middle = self.draw.choice((f"({view.length}) // 2", f"T.min(3, {view.length})"))
        if self.symbolic:
            middle = f"({view.length}) // 2"
        first = self.loop(middle + self.off(), lambda i: self.store(view, i))
        second = self.loop(f"{view.length} - {middle}", lambda i: self.store(view, f"{middle} + {i}"))
        return "\n".join(self.shuffled([first, second]))

    def strided(self, view: _View) -> str:
        even = self.loop(f"({view.length} + 1) // 2", lambda i: self.store(view, f"{i} * 2"))
        odd = self.loop(f"({view.length}) // 2" + self.off(), lambda i: self.store(view, f"{i} * 2 + 1"))
        return "\n".join(self.shuffled([even, odd]))

    def guarded(self, view: _View) -> str:
        test = self.draw.choice(
            ("{i} % 2 == 0", "{i} < 5", "{i} >= 3 and {i} < 9", "{i} // 4 == 1", "{i} == 0")
        )
        rest = self.draw.random() < 0.8

        def body(i: str) -> str:
            text = f"if {test.format(i=i)}:\n    {self.store(view, i)}"
            return text + (f"\nelse:\n    {self.store(view, i)}" if rest else "")

        return self.loop(view.length, body)

    def scan(self, view: _View) -> str:
        back = self.draw.random() < 0.4
        first = f"{view.length} - 1" if back else "0"
        start = f"{view.name}[{first}] = T.{view.dtype}(0)"
        wrong = self.draw.random() < 0.15

        def body(i: str) -> str:
            here = f"{view.length} - 2 - {i}" if back else f"{i} + 1"
            last = f"{view.length} - 1 - {i}" if back != wrong else i
            last = last if not wrong else (f"{i} + 2" if not back else i)
            value = self.value(view.dtype, self.source_index(view, i))
            return f"{view.name}[{here}] = {view.name}[{last}] + {value}"

        loop = self.loop(f"{view.length} - 1", body)
        return loop if self.draw.random() < 0.15 else f"{start}\n{loop}"

    def summed(self, view: _View) -> str:
        """A sum over three terms, its start within the loop or before it."""
        inside = self.draw.random() < 0.6

        def body(i: str) -> str:
            start = f"{view.name}[{i}] = T.{view.dtype}(0)\n" if inside else ""
            more = (
                f"{view.name}[{i}] = {view.name}[{i}] + {self.value(view.dtype, self.source_index(view, i))}"
            )
            test = self.draw.choice(("", "", f"if {{k}} == {self.draw.randrange(2)}:\n    "))
            if start and test:
                return self.loop("3", lambda k: test.format(k=k) + start.strip() + "\n" + more)
            return start + self.loop("3", lambda _: more)

        zero = (
            ""
            if inside
            else self.loop(view.length + self.off(0.2), lambda i: f"{view.name}[{i}] = T.{view.dtype}(0)")
        )
        return "\n".join(filter(None, (zero, self.loop(view.length, body))))

    def tiled(self, view: _View) -> str:
        count = self.draw.choice(
            (f"({view.length} + 3) // 4", f"({view.length} + 3) // 4", f"({view.length}) // 4")
        )
        test = self.draw.random() < 0.85

        def body(o: str) -> str:
            def inner(j: str) -> str:
                place = f"{o} * 4 + {j}"
                store = self.store(view, place)
                return f"if {place} < {view.length}:\n    {store}" if test else store

            return self.loop("4", inner)

        return self.loop(count, body)

    def nested(self, view: _View) -> str:
        """Rows of four, as if it were a matrix, then the rest."""
        rows = f"({view.length}) // 4"
        text = self.loop(rows, lambda i: self.loop("4", lambda j: self.store(view, f"{i} * 4 + {j}")))
        rest = self.loop(f"({view.length}) % 4", lambda i: self.store(view, f"{rows} * 4 + {i}"))
        return text if self.draw.random() < 0.3 else f"{text}\n{rest}"

    def left(self, view: _View) -> str:
        """A loop that is left, or skips an element, and another one that does the rest."""
        at = self.draw.randrange(1, 6)
        word = self.draw.choice(("break", "continue"))
        text = self.loop(view.length, lambda i: f"if {i} == {at}:\n    {word}\n{self.store(view, i)}")
        if self.draw.random() < 0.4:
            return text
        if word == "continue":
            test = f"if {at} < {view.length}:\n    "
            return f"{text}\n{test}{self.store(view, str(at), '0')}"
        return text + "\n" + self.loop(f"{view.length} - {at}", lambda i: self.store(view, f"{i} + {at}", i))

    def narrow(self, view: _View) -> str:
        """Counters that go through narrow integers."""
        dtype = self.draw.choice(("int8", "uint8", "int16", "int32"))
        wide = self.wide
        if self.draw.random() < 0.5:
            return self.loop(
                f'T.Cast("{wide}", T.Cast("{dtype}", {view.length}))', lambda i: self.store(view, i)
            )
        factor = self.draw.choice((1, 4, 7, 8, 17, 2**27))
        if self.symbolic and factor > 8:
            factor = 8
        text = f'T.Cast("{wide}", T.Cast("{dtype}", {{i}} * {factor})) // {factor}'
        if dtype == "int32" and not self.symbolic:
            text = f"T.shift_right(T.shift_left({{i}}, {self.draw.choice((3, 27, 28))}), 28)"
            if self.draw.random() < 0.5:
                text = "T.shift_right(T.shift_left({i}, 3), 3)"
        return self.loop(view.length, lambda i: self.store(view, text.format(i=i), i))

    def shifted(self, view: _View) -> str:
        """A load at a power of two."""
        amount = self.draw.choice(("{i} // 4", "{i} // 5", "{i} % 4", "{i} // 3"))
        one = "T.int64(1)" if self.symbolic else "1"
        source = self.draw.choice(["a", *(w.name for w in self.written if w.dtype == "float32")])

        def body(i: str) -> str:
            place = f"T.shift_left({one}, {amount.format(i=i)})"
            if self.symbolic:
                place = f"T.min({place}, {view.length} - 1)"
            return f"{view.name}[{i}] = {source}[{place}]"

        return self.loop(view.length, body)

    def counted(self, view: _View) -> str:
        """A loop that counts in a buffer."""
        name, wide = self.name("w"), self.wide
        store = self.store(view, f"{name}[0]")
        return (
            f'{name} = T.alloc_buffer((1,), "{wide}")\n{name}[0] = T.{wide}(0)\n'
            f"while {name}[0] < {view.length}{self.off()}:\n    {store}\n"
            f"    {name}[0] = {name}[0] + T.{wide}(1)"
        )

    def side_by_side(self, view: _View) -> str:
        return self.loop(view.length, lambda i: self.store(view, i), "T.parallel({})")

    def lanes(self, view: _View) -> str:
        """Vectors of four lanes, two statements in each, or a scan, which reads before any lane stores."""
        count = f"({view.length}) // 4{self.off()}"
        carried = self.draw.random() < 0.2
        vector = "T.vectorized({})"

        def body(o: str) -> str:
            def inner(v: str) -> str:
                place = f"{o} * 4 + {v}"
                if carried:
                    return f"{view.name}[{place}] = {view.name}[T.max({place} - 1, 0)]"
                more = (
                    f"\n{view.name}[{place}] = {view.name}[{o} * 4 + 3 - {v}]"
                    if self.draw.random() < 0.3
                    else ""
                )
                return self.store(view, place) + more

            return self.loop("4", inner, vector)

        start = f"{view.name}[0] = T.{view.dtype}(0)\n" if carried else ""
        return start + self.loop(count, body)

    def ramps(self, view: _View) -> str:
        source = self.draw.choice([w for w in (*self.written, view) if w.dtype == view.dtype])
        first = self.draw.choice((0, 0, 1))

        def body(o: str) -> str:
            if source is view or self.draw.random() < 0.5:
                value = f"T.Broadcast(T.{view.dtype}(1), 4)"
            else:
                value = f"{source.name}[T.Ramp({o} * 4 + {self.draw.choice((0, 0, 1))}, 1, 4)]"
            return f"{view.name}[T.Ramp({o} * 4, 1, 4)] = {value}"

        text = self.loop(f"({view.length}) // 4", body)
        if self.draw.random() < 0.3:
            text += f"\n{view.name}[T.Ramp(8, 1, 8)] = {view.name}[T.Ramp({first}, 1, 8)]"
        return text

    def block(self, view: _View) -> str:
        """A sum over four terms, in a block with an initialisation and perhaps a predicate."""
        i, k, axis, term = self.name("i"), self.name("k"), self.name("v"), self.name("v")
        start = self.draw.choice(("{k}", "{k}", "{k}", "{k} + 1", "3 - {k}"))
        tests = (
            None,
            None,
            f"{i} + {k} >= 2",
            f"{k} >= {i}",
            f"{i} < {view.length}",
            f"{k} > 0",
            f"{i} % 2 == 0",
            f"{k} < 2",
        )
        test = self.draw.choice(tests)
        where = f"        T.where({test})\n" if test else ""
        value = self.value("float32", axis)
        init = self.draw.random() < 0.9
        lines = f"        with T.init():\n            {view.name}[{axis}] = T.float32(0)\n" if init else ""
        extent = "5" if start == "{k} + 1" else "4"
        return (
            f'for {i}, {k} in T.grid({view.length}, 4):\n    with T.sblock("{axis}"):\n'
            f"        {axis} = T.axis.spatial({view.length}, {i})\n"
            f"        {term} = T.axis.reduce({extent}, {start.format(k=k)})\n{where}{lines}"
            f"        {view.name}[{axis}] = {view.name}[{axis}] + {value}"
        )

    def shuffled(self, parts: list[str]) -> list[str]:
        if self.draw.random() < 0.3:
            self.draw.shuffle(parts)
        return parts

    # -- the kernel -----------------------------------------------------------------------------------------

    def kernel(self) -> ElementKernel:
        for _ in range(self.draw.choice((0, 0, 1, 1, 2))):
            name = self.name("c")
            self.heads.append(f'{name} = T.alloc_buffer(({self.n},), "float32")')
            scratch = _View(name, name, "float32", self.n)
            self.parts.append(self.fill(self.view(scratch)))
            self.written.append(scratch)
            self.memories.append(scratch)
        for _ in range(self.draw.choice((1, 1, 1, 2))):
            self.parts.append(self.fill(self.view(self.memories[0])))
        self.written.append(self.memories[0])
        if self.draw.random() < 0.4:
            self.parts.append(self.fill(self.draw.choice(self.memories)))
        if len(self.parts) > 1 and self.draw.random() < 0.12:
            del self.parts[self.draw.randrange(len(self.parts))]
        if self.draw.random() < 0.12:
            self.draw.shuffle(self.parts)
        if self.symbolic and self.draw.random() < 0.15:
            self.parts.insert(self.draw.choice((0, len(self.parts))), "assert n == 8, 'eight'")
        return written(self.symbolic, k="\n".join((*self.heads, *self.parts)))


def element_kernel(seed: int) -> ElementKernel:
    """The kernel that is drawn from `seed`."""
    return _Writer(Random(seed)).kernel()
