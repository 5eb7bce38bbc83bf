"""The trace `llm_kv_concat`: a decoder whose keys and values are concatenated anew for every token.

    python -m benchmarks.pool_native    (replays it beside others)

Sequences of random lengths are decoded, a few at a time; each token belongs to a random one of them.  In
every layer both caches of the sequence are replaced by ones that are a row longer, so that blocks of up to
a few mebibytes grow by 4 KiB, between small temporaries that live for one call.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

from symalloc.pool.trace import Alloc, CallBegin, CallEnd, Event, Free, Trace

FLOAT = 4  # bytes
HEAD = 128  # elements


@dataclass(slots=True)
class _Sequence:
    """A sequence that is decoded: its tokens so far, those to come, two caches for each layer."""

    tokens: int
    left: int
    caches: list[int] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class _Decoder:
    """Collects the events of its calls."""

    random: random.Random
    width: int
    heads: int
    layers: int
    events: list[Event] = field(default_factory=list)
    blocks: int = 0
    call: int = 0  # 0: none so far

    def alloc(self, nbytes: int) -> int:
        self.blocks += 1
        self.events.append(Alloc(block=self.blocks, nbytes=nbytes, call=self.call))
        return self.blocks

    def cache(self, tokens: int) -> int:
        self.alloc(tokens * self.width * FLOAT)
        return self.blocks

    def free(self, *blocks: int) -> None:
        self.events.extend(Free(block=block) for block in blocks)

    def lengths(self) -> _Sequence:
        tokens = min(600, int(self.random.lognormvariate(math.log(120), 0.8)))
        return _Sequence(tokens, min(120, int(self.random.lognormvariate(math.log(40), 0.7))))

    def start(self, sequence: _Sequence) -> _Sequence:
        sequence.caches = [self.cache(sequence.tokens) for _ in range(2 * self.layers)]
        return sequence

    def decode(self, sequence: _Sequence) -> None:
        """One token."""
        self.call += 1
        self.events.append(CallBegin(call=self.call))
        sequence.tokens += 1
        sequence.left -= 1
        row = self.width * FLOAT
        x = self.alloc(row)
        for layer in range(self.layers):
            qkv = self.alloc(3 * row)
            for side in (2 * layer, 2 * layer + 1):
                longer = self.cache(sequence.tokens)
                self.free(sequence.caches[side])
                sequence.caches[side] = longer
            scores = self.alloc(self.heads * sequence.tokens * FLOAT)
            attended = self.alloc(row)
            self.free(scores, qkv)
            hidden = self.alloc(4 * row)
            result = self.alloc(row)
            self.free(hidden, attended, x)
            x = result
        self.free(x)
        self.events.append(CallEnd(call=self.call))


def kv_concat_trace(
    *, seed: int = 5, width: int = 1024, layers: int = 4, sequences: int = 12, at_once: int = 6
) -> Trace:
    """The trace, the same for the same seed; `width` is that of a layer."""
    decoder = _Decoder(random=random.Random(seed), width=width, heads=width // HEAD, layers=layers)
    running = [decoder.start(decoder.lengths()) for _ in range(at_once)]
    started = at_once
    while running:
        sequence = decoder.random.choice(running)
        decoder.decode(sequence)
        if sequence.left > 0:
            continue
        decoder.free(*sequence.caches)
        running.remove(sequence)
        if started < sequences:
            running.append(decoder.start(decoder.lengths()))
            started += 1
    return Trace(
        name="llm_kv_concat",
        events=tuple(decoder.events),
        meta={"seed": seed},
    )
