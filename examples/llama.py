"""Write a Llama-style decoder over tokens (1, n) as JSON, for `symalloc plan` and `symalloc run`.

    python examples/llama.py build/llama.json

The decoder has four layers of width 512 with eight heads, and no rotary positions.  It declares that n is at
most 1024; TVM plans for that size, whatever n a call has.
"""
from __future__ import annotations

import sys
from pathlib import Path

import tvm
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op

LAYERS, WIDTH, HEADS, INNER, VOCABULARY, LONGEST = 4, 512, 8, 1376, 2048, 1024


class Attention(nn.Module):
    """Every position looks at every other."""

    def __init__(self) -> None:
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        b, n, _ = x.shape
        q, k, v = (
            op.permute_dims(op.reshape(part, (b, n, HEADS, WIDTH // HEADS)), (0, 2, 1, 3))
            for part in op.split(self.qkv(x), 3, axis=-1)
        )
        scores = op.softmax(op.matmul(q, op.permute_dims(k, (0, 1, 3, 2))) * (WIDTH // HEADS) ** -0.5, axis=-1)
        return self.out(op.reshape(op.permute_dims(op.matmul(scores, v), (0, 2, 1, 3)), (b, n, WIDTH)))


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self) -> None:
        self.gate = nn.Linear(WIDTH, INNER, bias=False)
        self.up = nn.Linear(WIDTH, INNER, bias=False)
        self.down = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return self.down(op.silu(self.gate(x)) * self.up(x))


class Layer(nn.Module):
    """Attention and feed-forward, each behind a norm and added to what came in."""

    def __init__(self) -> None:
        self.attention, self.feed_forward = Attention(), FeedForward()
        self.before, self.after = (nn.RMSNorm(WIDTH, -1, bias=False) for _ in range(2))

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        x = x + self.attention(self.before(x))
        return x + self.feed_forward(self.after(x))


class Decoder(nn.Module):
    """Tokens to the logits of every position."""

    def __init__(self) -> None:
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList([Layer() for _ in range(LAYERS)])
        self.norm = nn.RMSNorm(WIDTH, -1, bias=False)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: nn.Tensor) -> nn.Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def module() -> tvm.IRModule:
    """The decoder as a Relax module with one function, `forward`."""
    mod, _ = Decoder().export_tvm({"forward": {"tokens": nn.spec.Tensor([1, "n"], "int32")}})
    mod["forward"] = mod["forward"].with_attr("tir_var_upper_bound", {"n": LONGEST})
    return mod


def main() -> None:
    """Write it to the file that the command line names."""
    target = Path(sys.argv[1])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(tvm.ir.save_json(module()))


if __name__ == "__main__":
    main()
