"""Random programs on one storage, beside what its bytes hold at any time: what is lost, or never written.

Kernels write and read parts of tensors by rows, columns and halves; tensors overlap, are viewed as other
shapes and as single bytes, and written anew in parts, on one side of an If or both.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import pytest
import tvm
from tvm.script import from_source

import symalloc
from symalloc.linter.diagnostic import Diagnostic, Severity
from symalloc.linter.lint_options import LintOptions
from symalloc.linter.linter import Linter
from symalloc.program.reading import Message, ReadOptions, result_of
from symalloc.prover.domain import Verdict
from symalloc.relax.workers.programs import read_path
from symalloc.size.parse import parse_expr
from tests.hostile.machine import Machine, depends_on_storages
from tests.pool.processes import died
from tests.scale import tries

Places: TypeAlias = Callable[..., Sequence[tuple[int, ...]]]
SIZES = range(15)


def _box(*axes: Callable[[int], range]) -> Places:
    """The elements of a box: by dimension the indices for an extent."""

    def places(*extents: int) -> Sequence[tuple[int, ...]]:
        found: list[tuple[int, ...]] = [()]
        for axis, extent in zip(axes, extents, strict=True):
            found = [(*one, index) for one in found for index in axis(extent)]
        return found

    return places


class Part(NamedTuple):
    """Indices of one dimension: as a loop has them, and as numbers."""

    passes: str
    index: str
    of: Callable[[int], range]


_ALL = Part("{}", "{}", range)
_LOW = Part("{} // 2", "{}", lambda n: range(n // 2))
_HIGH = Part("({} + 1) // 2", "{0} // 2 + {1}", lambda n: range(n // 2, n))
_EVEN = Part("({} + 1) // 2", "2 * {1}", lambda n: range(0, n, 2))
_ODD = Part("{} // 2", "2 * {1} + 1", lambda n: range(1, n, 2))
_REST = Part("{} - 1", "{1} + 1", lambda n: range(1, n))
_PARTS = {"all": _ALL, "low": _LOW, "high": _HIGH, "even": _EVEN, "odd": _ODD, "rest": _REST}


def _kernel(name: str, parts: Sequence[Part], body: str, parameters: str = "b", kind: str = "float32") -> str:
    """A kernel over a part of each dimension; `@` in `body` stands for the indices."""
    sizes, counters = "nm"[: len(parts)], "ij"[: len(parts)]
    shape = f"({', '.join(sizes)},)"
    heads = ", ".join(f"{one}_: T.handle" for one in parameters)
    offset = "elem_offset=T.int64(), offset_factor=1"
    buffers = [f'{one} = T.match_buffer({one}_, {shape}, "{kind}", {offset})' for one in parameters]
    grid = ", ".join(part.passes.format(size) for part, size in zip(parts, sizes, strict=True))
    loop = f"for {', '.join(counters)} in T.grid({grid}):" if len(parts) > 1 else f"for i in range({grid}):"
    told = zip(parts, sizes, counters, strict=True)
    indices = ", ".join(
        part.index.format(counter if part.index == "{}" else size, counter) for part, size, counter in told
    )
    lines = (*(f"{size} = T.int64()" for size in sizes), *buffers, loop, f"    {body.replace('@', indices)}")
    return f"\n    @T.prim_func\n    def {name}({heads}):\n" + "".join(f"        {line}\n" for line in lines)


class Kernel(NamedTuple):
    """A kernel: its text, the elements that it reads of its first argument, and those that it writes there.

    `copies` unless it has one argument only.
    """

    text: str
    reads: Places
    writes: Places
    copies: bool = False


_NONE: Places = lambda *_: ()  # noqa: E731


def _kernels() -> Iterator[tuple[str, Kernel]]:
    two = [("all", "all"), ("low", "all"), ("high", "all"), ("all", "low"), ("all", "high")]
    two += [("all", "even"), ("all", "odd"), ("rest", "all")]
    for names in (*two, *((name,) for name in _PARTS)):
        parts = [_PARTS[name] for name in names]
        box, name = _box(*(part.of for part in parts)), "_".join(names)
        store = _kernel(f"fill_{name}", parts, "b[@] = T.float32(7)")
        yield f"fill_{name}", Kernel(store, _NONE, box)
        more = _kernel(f"more_{name}", parts, "b[@] = b[@] + T.float32(1)")
        yield f"more_{name}", Kernel(more, box, box)
        copy = _kernel(f"copy_{name}", parts, "b[@] = a[@]", "ab")
        yield f"copy_{name}", Kernel(copy, box, _NONE, copies=True)
    for name in ("all", "low", "high"):
        store = _kernel(f"bytes_{name}", [_PARTS[name]], "b[@] = T.uint8(7)", kind="uint8")
        yield f"bytes_{name}", Kernel(store, _NONE, _box(_PARTS[name].of))


KERNELS = dict(_kernels())


@cache
def _value(text: str, n: int) -> int:
    return parse_expr(text).evaluate({"n": n})


class Tensor(NamedTuple):
    """A tensor on the storage: extents and offset in n, bytes of an element, and whose content it shows."""

    shape: tuple[str, ...]
    offset: str
    itemsize: int
    owner: str


class Step(NamedTuple):
    """A kernel that is handed a tensor, on one side of the If or on both (None)."""

    kernel: str
    tensor: Tensor
    side: bool | None


class RandomProgram:
    """One program; a `careful` one never reads what it has lost, at any size that is tried."""

    def __init__(self, draw: random.Random) -> None:
        self.draw, self.careful = draw, draw.random() < 0.6
        self.lines: list[str] = []
        self.steps: list[Step] = []
        self.tensors: dict[str, Tensor] = {}
        extents = [("n", "n"), ("4", "n"), ("n", "4"), ("n", "3"), ("6", "4"), ("3", "5")]
        self.shape, self.outputs = draw.choice(extents), 0
        for name in "yz":
            self.place(name)
            self.step("fill_all_all", name)
        has_if = draw.random() < 0.3
        for number in range(draw.randint(4, 9)):
            if draw.random() < 0.3:
                self.view(f"v{number}")
            if has_if and number == 2:
                self.branch()
            self.any_step()
        self.any_step(reads=True)

    def place(self, name: str) -> None:
        """A tensor on the storage."""
        rows, columns = self.shape
        offset = self.draw.choice(["0", "0", "64", f"{rows} // 2 * {columns} * 4"])
        self.tensors[name] = Tensor(self.shape, offset, 4, name)
        shape = ", ".join(self.shape)
        made = f'R.memory.alloc_tensor(s, R.prim_value({offset}), R.shape([{shape}]), R.dtype("float32"))'
        self.lines.append(f"{name} = {made}")

    def view(self, name: str) -> None:
        """A view of a tensor: of its elements in one row, of its bytes, or of some of its rows."""
        of = self.draw.choice("yz")
        rows, columns = self.shape
        offset, kind = "0", "float32"
        match self.draw.choice(["row", "bytes", "upper", "lower"]):
            case "row":
                shape: tuple[str, ...] = (f"{rows} * {columns}",)
            case "bytes":
                shape, kind = (f"{rows} * {columns} * 4",), "uint8"
            case "upper":
                shape = (f"{rows} // 2", columns)
            case _:
                shape, offset = (f"({rows} + 1) // 2", columns), f"{rows} // 2 * {columns} * 4"
        whole = self.tensors[of]
        size = 1 if kind == "uint8" else 4
        self.tensors[name] = Tensor(shape, f"{whole.offset} + {offset}", size, whole.owner)
        made = (
            f'R.memory.view({of}, R.shape([{", ".join(shape)}]), R.dtype("{kind}"), R.prim_value({offset}))'
        )
        self.lines.append(f"{name} = {made}")

    def branch(self) -> None:
        self.lines.append("if c:")
        self.any_step(side=True)
        self.lines += ["    q = R.add(x, x)", "else:"]
        self.any_step(side=False)
        self.lines += ["    q = R.multiply(x, x)", ""]

    def any_step(self, side: bool | None = None, *, reads: bool = False) -> None:
        """A kernel on some tensor; in a careful program one that reads only what is there."""
        for _ in range(40):
            name = self.draw.choice([*self.tensors, "y"])
            tensor = self.tensors[name]
            rank = "bytes" if tensor.itemsize == 1 else len(tensor.shape)
            fitting = [one for one in KERNELS if (one.count("_") if one[0] != "b" else "bytes") == rank]
            kernel = self.draw.choice([one for one in fitting if KERNELS[one].copies or not reads] or ["-"])
            if kernel != "-" and not self.spoils(Step(kernel, tensor, side)):
                self.step(kernel, name, side)
                return
        self.step("fill_all_all", "y", side)

    def spoils(self, step: Step) -> bool:
        """True if a careful program would read what is not there."""
        if not self.careful:
            return False
        self.steps.append(step)
        found = any(map(self.is_harmful, SIZES))
        self.steps.pop()
        return found

    def step(self, kernel: str, name: str, side: bool | None = None) -> None:
        tensor, ahead = self.tensors[name], "" if side is None else "    "
        self.steps.append(Step(kernel, tensor, side))
        given = name
        if KERNELS[kernel].copies:
            self.outputs += 1
            given = f"{name}, w{self.outputs}"
            shape = ", ".join(tensor.shape)
            made = f'R.builtin.alloc_tensor(R.shape([{shape}]), R.dtype("float32"), R.prim_value(0))'
            self.lines.append(f"{ahead}w{self.outputs} = {made}")
        self.lines.append(f"{ahead}cls.{kernel}({given})")

    @property
    def text(self) -> str:
        """The module in TVMScript."""
        head = (
            "    @R.function(pure=False)\n"
            '    def main(x: R.Tensor(("n",), "float32"), c: R.Tensor((), "bool")) -> R.Tuple():\n'
        )
        size = "n * n * 32 + n * 128 + 1024"
        storage = (
            f"R.memory.alloc_storage(R.shape([{size}]), R.prim_value(0), R.str('global'), R.dtype('uint8'))"
        )
        lines = ["n = T.int64()", "cls = Module", f"s = {storage}", *self.lines, "return R.tuple()"]
        kernels = "".join(KERNELS[one].text for one in dict.fromkeys(step.kernel for step in self.steps))
        imports = "from tvm.script import ir as I, relax as R, tirx as T\n\n@I.ir_module\nclass Module:\n"
        return imports + kernels + "\n" + head + "".join(f"        {line}\n" for line in lines)

    def is_harmful(self, n: int) -> bool:
        """True if bytes are read at this size that are not the tensor's own, on either side of the If."""
        return any(self.loses(n, side) for side in (True, False))

    def loses(self, n: int, taken: bool) -> bool:
        owners: dict[int, str] = {}
        for kernel, tensor, side in self.steps:
            if side in (None, taken):
                extents, begin = [_value(extent, n) for extent in tensor.shape], _value(tensor.offset, n)
                for places, stores in ((KERNELS[kernel].reads, False), (KERNELS[kernel].writes, True)):
                    for place in places(*extents):
                        number = place[0] if len(place) == 1 else place[0] * extents[1] + place[1]
                        first = begin + number * tensor.itemsize
                        for byte in range(first, first + tensor.itemsize):
                            if stores:
                                owners[byte] = tensor.owner
                            elif owners.get(byte) != tensor.owner:
                                return True
        return False


def _findings(program: RandomProgram, file: Path) -> list[Diagnostic]:
    """The faults of content that are found: errors and warnings."""
    file.write_text(program.text)
    told: list[Message] = []
    read_path(file, ReadOptions(stage="as-is"), tell=told.append)
    linter = Linter(LintOptions(stage="as-is", select=["SYM203", "SYM208"]))
    found = linter.lint(result_of(str(file), told)).report
    return [d for d in found if d.rule in {"SYM203", "SYM208", "SYM900"} and d.severity is not Severity.NOTE]


SEEDS = (*range(tries(4, 600)), 1036, 1054)
"""The last two: elements of which two parts hold some bytes each."""


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_read_of_lost_bytes_is_found_and_nothing_else(seed: int, tmp_path: Path) -> None:
    program = RandomProgram(random.Random(seed))
    found = _findings(program, tmp_path / "program.py")
    harmful = [n for n in SIZES if program.is_harmful(n)]
    assert bool(found) == bool(harmful), (harmful, found, program.text)
    for one in found:
        if one.counterexample is not None and "n" in one.counterexample:
            assert program.is_harmful(one.counterexample["n"]), (one, program.text)
        if one.verdict is Verdict.ALWAYS_INVALID and not one.reason:
            assert set(harmful) >= set(SIZES[1:]), (one, harmful, program.text)


REDUCTIONS = ("argmax", "argmin", "max", "mean", "median", "min", "prod", "sum")
CALLS: Mapping[str, tuple[str, int]] = {
    **{name: (f"R.{name}(x, axis={'0' if name.startswith('arg') else '[0]'})", 1) for name in REDUCTIONS},
    "topk": ('R.topk(x, k=2, axis=0, ret_type="values")', 2),
    "topk-indices": ('R.topk(x, k=2, axis=-2, ret_type="indices")', 2),
    "sort": ("R.sort(x, axis=0)", 0),
    "cumsum": ("R.cumsum(x, axis=0)", 0),
    "all-but-none": ("R.max(x, axis=[1])", 0),
}
"""Calls on n rows of 4, and the least n at which each is right."""


def _module(call: str) -> tvm.IRModule:
    text = f"""
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")):
        n = T.int64()
        y = {call}
        return y
"""
    return from_source(text)


def _is_made_up(machine: Machine, rows: int) -> bool:
    """True if the result depends on what was there, or is a number where there is none."""
    x = np.arange(rows * 4, dtype=np.float32).reshape(rows, 4)
    if depends_on_storages(machine, x):
        return True
    found, *_ = machine.run(x)
    return rows == 0 and bool(found.size) and not np.isnan(found.astype(np.float64)).all()


@pytest.mark.slow
def test_what_is_said_is_what_happens() -> None:
    machines = {name: Machine(_module(call)) for name, (call, _) in CALLS.items()}
    for name, (_, least) in CALLS.items():
        found = [d for d in symalloc.lint(machines[name].module, stage="as-is") if d.rule == "SYM309"]
        severities = [str(d.severity) for d in found]
        assert severities == (["warning"] if least > 1 else ["note"] * least), name
        assert all(d.precondition in (f"n >= {least}", f"{least} <= n") for d in found), found
        machines[name].prepare()

    def show() -> None:
        wrong = {
            name: [rows for rows in (0, 1, 3) if _is_made_up(one, rows)] for name, one in machines.items()
        }
        assert wrong == {name: [r for r in (0, 1, 3) if r < least] for name, (_, least) in CALLS.items()}

    status, said = died(show)
    assert status == 0, said[-3000:]
