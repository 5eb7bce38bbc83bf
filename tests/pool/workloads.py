"""Allocation traces of dynamic-shape serving and training, made from a seed: what a pool meets in practice.

Each workload is what the calls of an ordinary network allocate and free, at sizes drawn anew for every
call; several calls may be under way at once.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

from symalloc.pool.trace import Alloc, CallBegin, CallEnd, Event, Free, Trace

FLOAT = 4  # bytes
OUTPUTS_KEPT = 8  # results that callers still hold
CACHES_KEPT = 12  # requests whose key/value caches outlive them
WIDTHS = (256, 512, 1024)


@dataclass(slots=True)
class _Recorder:
    """Collects events; sizes are in bytes."""

    random: random.Random
    events: list[Event] = field(default_factory=list)
    calls: int = 0
    blocks: int = 0

    def begin(self) -> int:
        self.calls += 1
        self.events.append(CallBegin(call=self.calls))
        return self.calls

    def end(self, call: int) -> None:
        self.events.append(CallEnd(call=call))

    def alloc(self, nbytes: int, call: int = 0) -> int:
        self.blocks += 1
        self.events.append(Alloc(block=self.blocks, nbytes=nbytes, call=call))
        return self.blocks

    def free(self, *blocks: int) -> None:
        self.events.extend(Free(block=b) for b in blocks)

    def turn(self, source: int, nbytes: int, call: int) -> int:
        """A block computed from `source`, which is freed then."""
        block = self.alloc(nbytes, call)
        self.free(source)
        return block

    def lognormal(self, median: float, sigma: float, most: int) -> int:
        return max(1, min(most, round(self.random.lognormvariate(math.log(median), sigma))))


# a step of a call stops wherever another call may go on; what it returns is the block of its result
_Step = Generator[None, None, int]
_Call = Generator[None, None, None]


def _attention(r: _Recorder, call: int, row: int, scores: int) -> _Step:
    """Self-attention; `row` are the bytes of one activation, `scores` those of its scores, 0: not held."""
    state = r.turn(r.alloc(row, call), 3 * row, call)
    yield
    if scores:
        soft = r.turn(r.alloc(scores, call), scores, call)
        yield
        r.free(soft)
    for _ in range(2):
        state = r.turn(state, row, call)
        yield
    return state


def _decoder_layer(r: _Recorder, call: int, x: int, row: int, scores: int) -> _Step:
    attended = yield from _attention(r, call, row, scores)
    residual = r.alloc(row, call)
    r.free(attended, x)
    state = r.alloc(row, call)
    for width in (4, 4, 1, 1):
        state = r.turn(state, width * row, call)
        yield
    r.free(residual)
    return state


def _held_back(r: _Recorder, held: list[tuple[int, ...]], blocks: tuple[int, ...], most: int) -> None:
    """Adds `blocks` to `held`; a random one of them is let go where that makes too many."""
    held.append(blocks)
    if len(held) > most:
        r.free(*held.pop(r.random.randrange(len(held))))


@dataclass(slots=True, kw_only=True)
class _Server:
    """Serves prefills: results and caches outlive the calls."""

    recorder: _Recorder
    widths: tuple[int, ...] = (1024,)
    layers: int = 4
    heads: int = 0
    longest: int = 2048
    caches: int = 0
    outputs: list[tuple[int, ...]] = field(default_factory=list)
    held: list[tuple[int, ...]] = field(default_factory=list)

    def call(self) -> _Call:
        r = self.recorder
        tokens, width = r.lognormal(300, 1, self.longest), r.random.choice(self.widths)
        row = tokens * width * FLOAT
        caches = tuple(r.alloc(2 * row) for _ in range(self.caches))
        call = r.begin()
        x = r.alloc(row, call)
        for _ in range(self.layers):
            x = yield from _decoder_layer(r, call, x, row, self.heads * tokens * tokens * FLOAT)
        _held_back(r, self.outputs, (r.alloc(32_000 * FLOAT, call),), OUTPUTS_KEPT)
        r.free(x)
        r.end(call)
        if caches:
            _held_back(r, self.held, caches, CACHES_KEPT)


def _residual_block(r: _Recorder, call: int, x: int, nbytes: int) -> _Step:
    state = r.alloc(nbytes * 5 // 4, call)  # padded for the convolution
    for size in (nbytes, nbytes * 5 // 4, nbytes, nbytes):
        state = r.turn(state, size, call)
        yield
    r.free(x)
    return state


def _image_call(r: _Recorder, outputs: list[tuple[int, ...]]) -> _Call:
    """A residual network on a batch of 1 to 16 square images with sides of 128 to 320."""
    batch, side = r.random.randint(1, 16), r.random.randrange(128, 321, 16)
    call = r.begin()
    channels, side = 64, side // 2
    x = r.alloc(batch * 3 * 4 * side * side * FLOAT, call)
    x = r.turn(x, batch * channels * side * side * FLOAT, call)
    for stage in range(4):
        side, channels = max(side // 2, 1), 64 << stage
        x = r.turn(x, batch * channels * side * side * FLOAT, call)
        for _ in range(2):
            x = yield from _residual_block(r, call, x, batch * channels * side * side * FLOAT)
    _held_back(r, outputs, (r.alloc(batch * 1000 * FLOAT, call),), OUTPUTS_KEPT)
    r.free(x)
    r.end(call)


@dataclass(slots=True)
class _Sequence:
    """A sequence being decoded: its length so far, the tokens to come, its key and value caches."""

    tokens: int
    left: int
    caches: list[int]


def _decode_token(r: _Recorder, sequence: _Sequence, width: int) -> _Call:
    """One token: each cache is replaced by one that is a row longer."""
    call = r.begin()
    sequence.tokens += 1
    sequence.left -= 1
    row = width * FLOAT
    x = r.alloc(row, call)
    for layer in range(0, len(sequence.caches), 2):
        qkv = r.alloc(3 * row, call)
        for side in (layer, layer + 1):
            longer = r.alloc(sequence.tokens * row, call)
            r.free(sequence.caches[side])
            sequence.caches[side] = longer
        state = r.turn(r.alloc(8 * sequence.tokens * FLOAT, call), row, call)
        r.free(qkv)
        state = r.turn(r.turn(state, 4 * row, call), row, call)
        r.free(x)
        x = state
        yield
    r.free(x)
    r.end(call)


def _decoding(r: _Recorder, tokens: int, *, width: int = 1024, layers: int = 4, sequences: int = 6) -> None:
    def start() -> _Sequence:
        length, left = r.lognormal(150, 0.6, 2048), r.lognormal(80, 0.6, 400)
        return _Sequence(length, left, [r.alloc(length * width * FLOAT) for _ in range(2 * layers)])

    running = [start() for _ in range(sequences)]
    for _ in range(tokens):
        sequence = r.random.choice(running)
        for _ in _decode_token(r, sequence, width):
            pass
        if not sequence.left:
            running.remove(sequence)
            r.free(*sequence.caches)
            running.append(start())


def _training_step(r: _Recorder, *, batch: int = 8, width: int = 512, layers: int = 6) -> None:
    """Forward, keeping what backward needs, then backward; nothing outlives the step."""
    row = batch * r.lognormal(128, 0.6, 1024) * width * FLOAT
    call = r.begin()
    saved = [r.alloc(row, call)]
    for _ in range(layers):
        for factor in (1, 3, 1, 1, 1, 4, 4, 1):
            saved.append(r.alloc(factor * row, call))
        r.free(r.alloc(row, call))
    gradient = r.alloc(row, call)
    for _ in range(layers):
        weights = r.alloc(6 * width * width * FLOAT, call)
        for factor in (1, 4, 4, 1, 1, 1, 3, 1):
            gradient = r.turn(gradient, factor * row, call)
            r.free(saved.pop())
        r.free(weights)
    r.free(gradient, *saved)
    r.end(call)


def _interleaved(r: _Recorder, calls: int, streams: int, start: Callable[[], _Call]) -> None:
    """Runs `calls` calls, `streams` of them at once, taking turns at random."""
    running: list[_Call] = []
    while calls or running:
        while calls and len(running) < streams:
            running.append(start())
            calls -= 1
        call = r.random.choice(running)
        if next(call, call) is call:  # it has ended
            running.remove(call)


def _images(r: _Recorder, streams: int) -> None:
    outputs: list[tuple[int, ...]] = []
    _interleaved(r, 120, streams, lambda: _image_call(r, outputs))


def _train(r: _Recorder) -> None:
    for _ in range(18):
        r.alloc(12 * 2**20)  # weights and the optimiser's state
    for _ in range(40):
        _training_step(r)


WORKLOADS: dict[str, Callable[[_Recorder], None]] = {
    "llm": lambda r: _interleaved(r, 120, 1, _Server(recorder=r).call),
    "llm-batched": lambda r: _interleaved(r, 120, 4, _Server(recorder=r).call),
    "llm-scores": lambda r: _interleaved(r, 120, 1, _Server(recorder=r, heads=16, longest=1024).call),
    "mixed": lambda r: _interleaved(r, 120, 4, _Server(recorder=r, widths=WIDTHS, caches=3).call),
    "images": lambda r: _images(r, 1),
    "images-batched": lambda r: _images(r, 3),
    "decode": lambda r: _decoding(r, 400),
    "train": _train,
}


def make_trace(workload: str, seed: int) -> Trace:
    """The trace of one of `WORKLOADS`, the same for the same seed; raises KeyError for another name."""
    recorder = _Recorder(random.Random(seed))
    WORKLOADS[workload](recorder)
    return Trace(name=workload, events=tuple(recorder.events), meta={"seed": seed})
