"""Random Relax modules: several symbols, Ifs, calls of other functions, match_casts; as TVMScript text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

import tvm

from tests.models.planned import Case

__all__ = ["random_case", "random_text"]

SYMBOLS = ("n", "m", "k")
FLAGS = ("c0", "c1")
COLUMNS = (4, 8, 16)
SIZES = ((1, 2, 3), (40, 7, 90), (300, 200, 5))  # of n, m and k
MOST_BYTES = 64 * 2**20  # of a tensor
MOST_ROWS = 4096  # of an argument
_HEAD = "@I.ir_module\nclass Module:\n"


@dataclass(frozen=True, slots=True)
class Tensor:
    """A variable and its extents, as text."""

    name: str
    rows: str
    columns: str

    @property
    def shape(self) -> tuple[str, str]:
        return self.rows, self.columns


@dataclass(slots=True)
class Writer:
    """Writes the body of one function; `visible` are the tensors that may be used."""

    random: Random
    callees: Sequence[str]
    visible: list[Tensor]
    conditions: Sequence[str] = ()
    lines: list[str] = field(default_factory=list)
    indent: int = 2
    made: int = 0
    casts: int = 0
    different: Sequence[int] = (0,) * len(SIZES)
    spoken: list[str] = field(default_factory=list)

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def fresh(self) -> str:
        self.made += 1
        return f"t{self.made}"

    def bind(self, value: str, rows: str, columns: str) -> Tensor:
        """Bind `value` to a new variable."""
        tensor = Tensor(self.fresh(), rows, columns)
        self.line(f"{tensor.name} = {value}")
        self.visible.append(tensor)
        return tensor

    def any(self) -> Tensor:
        """A visible tensor, a late one more often."""
        return self.random.choice(self.visible[-4:] if self.random.random() < 0.6 else self.visible)

    def like(self, shape: tuple[str, str]) -> Tensor:
        return self.random.choice([t for t in self.visible if t.shape == shape])

    def statements(self, count: int, depth: int = 0) -> None:
        """Write so many statements."""
        kinds: list[tuple[Callable[[], None], int]] = [
            (self.unary, 5), (self.binary, 6), (self.concatenate, 3), (self.product, 2), (self.part, 2),
            (self.total, 1), (self.turned, 1), (self.call, 2), (self.cast, 1),
        ]  # fmt: skip
        if depth < 2 and self.conditions:
            kinds.append((lambda: self.branch(depth), 2))
        for _ in range(count):
            self.random.choices([k for k, _ in kinds], [w for _, w in kinds])[0]()

    def extents(self, text: str) -> list[int]:
        """The values of an extent at each of SIZES, q at most; 0 for what another function takes."""
        found = []
        for sizes, different in zip(SIZES, self.different, strict=True):
            known = dict(zip((*SYMBOLS, "q"), (*sizes, different), strict=True))
            found.append(
                sum(int(term) if term.isdigit() else known.get(term, 0) for term in text.split(" + "))
            )
        return found

    def elements(self, rows: str, columns: str) -> list[int]:
        """The elements of a tensor at each of SIZES."""
        return [r * c for r, c in zip(self.extents(rows), self.extents(columns), strict=True)]

    # -- statements ------------------------------------------------------------------------------------------

    def unary(self) -> None:
        a = self.any()
        self.bind(f"R.{self.random.choice(('tanh', 'sigmoid', 'negative', 'abs'))}({a.name})", *a.shape)

    def binary(self) -> None:
        a = self.any()
        b = self.like(a.shape)
        self.bind(f"R.{self.random.choice(('add', 'multiply', 'subtract'))}({a.name}, {b.name})", *a.shape)

    def concatenate(self) -> None:
        a = self.any()
        b = self.random.choice([t for t in self.visible if t.columns == a.columns])
        rows = f"{a.rows} + {b.rows}"
        if len(a.rows + b.rows) < 40 and 4 * max(self.elements(rows, a.columns)) <= MOST_BYTES:
            self.bind(f"R.concat([{a.name}, {b.name}], axis=0)", rows, a.columns)

    def product(self) -> None:
        """A times the transpose of b: an extent of each."""
        a = self.any()
        b = self.random.choice([t for t in self.visible if t.columns == a.columns])
        plain = "+" not in a.rows + b.rows + a.columns and not a.columns.isalpha()
        if plain and 4 * max(self.elements(a.rows, b.rows)) <= MOST_BYTES:
            turned = self.bind(f"R.permute_dims({b.name})", b.columns, b.rows)
            self.bind(f"R.matmul({a.name}, {turned.name})", a.rows, b.rows)

    def part(self) -> None:
        """Half of the columns, where their number is known."""
        a = self.any()
        if a.columns.isdigit() and int(a.columns) > 1:
            half = int(a.columns) // 2
            value = f"R.strided_slice({a.name}, axes=[1], begin=[0], end=[{half}])"
            self.bind(value, a.rows, str(half))

    def total(self) -> None:
        a = self.any()
        self.bind(f"R.sum({a.name}, axis=[1], keepdims=True)", a.rows, "1")

    def turned(self) -> None:
        a = self.any()
        self.bind(f"R.reshape({a.name}, R.shape([{a.columns}, {a.rows}]))", a.columns, a.rows)

    def call(self) -> None:
        """Call another function, which takes and gives rows of eight."""
        rows = [t for t in self.visible if t.columns == "8" and max(self.extents(t.rows)) <= MOST_ROWS]
        if rows and self.callees:
            a = self.random.choice(rows)
            self.bind(f"cls.{self.random.choice(self.callees)}({a.name})", *a.shape)

    def cast(self) -> None:
        """The different elements of a tensor: their number becomes known by a match_cast."""
        if self.casts or not self.conditions or self.indent > 2:
            return  # one in a module, at its top: an If cannot define a symbol for what follows
        self.casts += 1
        a = self.any()
        self.different = self.elements(a.rows, a.columns)
        flat = self.fresh()
        self.line(f"{flat} = R.reshape({a.name}, R.shape([({a.rows}) * ({a.columns})]))")
        self.line(f"{flat}u = R.unique({flat}, sorted=True)")
        self.line(f'{flat}c = R.match_cast({flat}u, R.Tensor((q,), "float32"))')
        self.bind(f"R.reshape({flat}c, R.shape([q, 1]))", "q", "1")

    def branch(self, depth: int) -> None:
        """An If on one of the flags, both of whose sides give a tensor of one shape."""
        shape = self.any().shape
        name = self.fresh()
        self.line(f"if {self.random.choice(self.conditions)}:")
        for last in (False, True):
            with self.side():
                self.statements(self.random.randint(1, 4), depth + 1)
                self.line(f"{name}{int(last)} = R.abs({self.like(shape).name})")
                self.line(f"{name} = {name}{int(last)}")
            if not last:
                self.line("else:")
        self.visible.append(Tensor(name, *shape))

    @contextmanager
    def side(self) -> Iterator[None]:
        before, self.indent = len(self.visible), self.indent + 1
        yield
        del self.visible[before:]
        self.indent -= 1


def random_text(seed: int) -> str:
    """The module of `seed`: a main function, and up to three others."""
    random = Random(seed)
    functions: list[str] = []
    callees: list[str] = []
    for index in range(random.randint(0, 3)):
        functions.append(_callee(random, f"f{index}", tuple(callees)))
        callees.append(f"f{index}")
    return "\n".join([_HEAD + functions[0] if functions else _HEAD, *functions[1:], _main(random, callees)])


def _callee(random: Random, name: str, callees: Sequence[str]) -> str:
    writer = Writer(random, callees, [Tensor("x", "p", "8")])
    writer.statements(random.randint(2, 6))
    writer.line(f"return R.abs({writer.like(('p', '8')).name})")
    private = "(private=True)" if random.random() < 0.5 else ""
    kind = 'R.Tensor(("p", 8), "float32")'
    head = f"    @R.function{private}\n    def {name}(x: {kind}) -> {kind}:\n"
    return f"{head}        p = T.int64()\n        cls = Module\n" + "\n".join(writer.lines) + "\n"


def _main(random: Random, callees: Sequence[str]) -> str:
    inputs = [Tensor(f"x{i}", random.choice(SYMBOLS), str(random.choice(COLUMNS))) for i in range(3)]
    inputs[0] = Tensor("x0", "n", "8")
    writer = Writer(random, callees, list(inputs), FLAGS)
    writer.statements(random.randint(8, 24))
    made = [t.name for t in writer.visible[len(inputs) :]] or ["x0"]
    results = random.sample(made, min(len(made), random.randint(1, 4)))
    params = [f'{flag}: R.Tensor((), "bool")' for flag in FLAGS]
    params += [f'{t.name}: R.Tensor(("{t.rows}", {t.columns}), "float32")' for t in inputs]
    used = dict.fromkeys([*(t.rows for t in inputs), "q"])
    symbols = "".join(f"        {name} = T.int64()\n" for name in used)
    returned = results[0] if len(results) == 1 else f"({', '.join(results)})"
    head = f"    @R.function\n    def main({', '.join(params)}):\n{symbols}        cls = Module\n"
    return head + "\n".join(writer.lines) + f"\n        return {returned}\n"


def random_case(seed: int) -> Case:
    """The module of `seed` at three bindings; every outcome of its conditions is run."""
    text = random_text(seed)
    return Case(
        name=str(seed),
        build=lambda: tvm.script.from_source(text),
        bindings=tuple(dict(zip(SYMBOLS, sizes, strict=True)) for sizes in SIZES),
        paths=FLAGS,
    )
