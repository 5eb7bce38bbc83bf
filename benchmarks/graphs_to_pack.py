"""Random networks as packing problems: Inception- and DenseNet-like ones, and transformers.

Each operator allocates its result, which lives until its last reader has run: what a lowered module without
fusion does.  Sizes are float32 or float16 bytes; batch `b` and sequence length `n` are symbols or one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from symalloc.planner.packing.packing_problem import PackingProblem, problem_of


@dataclass(slots=True, kw_only=True)
class _Graph:
    """Operators in order of execution: what each allocates, and which is the last to read it."""

    sizes: list[str] = field(default_factory=list)
    last: dict[int, int] = field(default_factory=dict)

    def op(self, size: str, *inputs: int) -> int:
        """An operator that reads `inputs`; its result."""
        self.sizes.append(size)
        for i in inputs:
            self.last[i] = len(self.sizes) - 1
        return len(self.sizes) - 1

    def problem(self, name: str, *symbols: str) -> PackingProblem:
        """The buffers of all results."""
        buffers = [
            {"id": f"t{i}", "size": size, "lower": i, "upper": self.last.get(i, i) + 1}
            for i, size in enumerate(self.sizes)
        ]
        return problem_of({"name": name, "symbols": {s: {} for s in symbols}, "buffers": buffers})


def branchy(seed: int) -> PackingProblem:
    """Blocks of parallel branches that are concatenated, and blocks whose layers read all before them."""
    random = Random(seed)
    batch = random.choice(("", "b*"))
    graph, extent, channels = _Graph(), random.choice((17, 28, 35, 56, 112)), random.choice((64, 128, 192))
    padded = random.random() < 0.6

    def plane(depth: int, border: int = 0) -> str:
        return f"{batch}{4 * depth * (extent + border) ** 2}"

    def convolution(x: int, depth: int, result: int) -> int:
        source = graph.op(plane(depth, 2), x) if padded else x
        y = graph.op(plane(result), source)
        return graph.op(plane(result), y) if random.random() < 0.6 else y

    def inception(x: int) -> tuple[int, int]:
        outs, total = [], 0
        for _ in range(random.randint(3, 5)):
            y, depth = x, channels
            for _ in range(random.randint(1, 3)):
                wanted = random.choice((16, 24, 32, 48, 64, 96, 128, 192))
                y, depth = convolution(y, depth, wanted), wanted
            outs.append(y)
            total += depth
        return graph.op(plane(total), *outs), total

    def dense(x: int) -> tuple[int, int]:
        seen, growth, depth = [x], random.choice((12, 16, 32, 48)), channels
        for _ in range(random.randint(3, 6)):
            joined = graph.op(plane(depth), *seen)
            seen.append(convolution(convolution(joined, depth, 4 * growth), 4 * growth, growth))
            depth += growth
        return graph.op(plane(depth), *seen), depth

    x = graph.op(plane(channels))
    for _ in range(random.randint(3, 6)):
        x, channels = random.choice((inception, inception, dense))(x)
        if extent > 8 and random.random() < 0.6:
            extent //= 2
            x = graph.op(plane(channels), x)
    return graph.problem(f"branchy {seed}", *batch.strip("*"))


def transformer(seed: int) -> PackingProblem:
    """Layers of attention, now and then also to a fixed sequence of 77, and a feed-forward part."""
    random = Random(seed)
    batch, itemsize = random.choice(("", "b*")), random.choice((2, 4))
    width, heads = random.choice((256, 384, 512, 768)), random.choice((4, 6, 8, 12))
    inner = random.choice((2, 3, 4)) * width
    gated, crossed = random.random() < 0.5, random.random() < 0.4
    graph = _Graph()

    def rows(columns: int) -> str:
        return f"{batch}n*{columns * itemsize}"

    def attend(x: int, source: int, keys: str, scores: str) -> int:
        q, k, v = graph.op(rows(width), x), graph.op(keys, source), graph.op(keys, source)
        weights = graph.op(scores, graph.op(scores, q, k))
        return graph.op(rows(width), x, graph.op(rows(width), weights, v))

    def feed_forward(x: int) -> int:
        y = graph.op(rows(inner), graph.op(rows(width), x))
        if gated:
            y = graph.op(rows(inner), y, graph.op(rows(inner), x))
        return graph.op(rows(width), x, graph.op(rows(width), y))

    x = graph.op(rows(width))
    fixed = f"{batch}{77 * width * itemsize}"
    memory = graph.op(fixed) if crossed else x
    for _ in range(random.randint(2, 4)):
        normal = graph.op(rows(width), x, graph.op(f"{batch}n*4", x))
        x = attend(normal, normal, rows(width), f"{batch}n*n*{heads * itemsize}")
        if crossed:
            x = attend(x, memory, fixed, f"{batch}n*{77 * heads * itemsize}")
        x = feed_forward(x)
    graph.op(f"{batch}{width * itemsize}", x)
    return graph.problem(f"transformer {seed}", "n", *batch.strip("*"))
