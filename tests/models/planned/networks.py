"""Networks: decoder, encoder, convolutional and recurrent ones, wide enough that rounding hides nothing."""

from __future__ import annotations

from itertools import pairwise

import tvm
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op

from tests.models.planned.case import bind, case
from tests.models.zoo import encoder, llama, small, vision
from tests.modules import exported

_LLAMA = llama.Shape(layers=2, hidden=64, heads=4, kv_heads=4, inner=160, vocabulary=96)
_LENGTHS = (1, 7, 16, 33, 64, 100)  # 64 is the bound, where one is declared
_BATCHES = (1, 3, 8, 13, 16, 40)  # 16 is the bound


class _Decode(nn.Module):
    """One step of a decoder on the keys and values of p earlier positions, which come in and go out."""

    def __init__(self, shape: llama.Shape) -> None:
        self.embedding = nn.Embedding(shape.vocabulary, shape.hidden)
        self.layers = nn.ModuleList([llama.Layer(shape) for _ in range(2)])
        self.norm = nn.RMSNorm(shape.hidden, -1, bias=False)
        self.head = nn.Linear(shape.hidden, shape.vocabulary, bias=False)

    def forward(
        self, tokens: nn.Tensor, k0: nn.Tensor, v0: nn.Tensor, k1: nn.Tensor, v1: nn.Tensor
    ) -> tuple[nn.Tensor, ...]:
        x, grown = self.embedding(tokens), []
        for layer, keys, values in zip(self.layers, (k0, k1), (v0, v1), strict=True):
            q, k, v = layer.attention.project(layer.before(x))
            k, v = op.concat([keys, k], dim=2), op.concat([values, v], dim=2)
            grown += [k, v]
            x = x + layer.attention.attend(q, k, v)
            x = x + layer.feed_forward(layer.after(x))
        return self.head(self.norm(x)), *grown


class _Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 with a shortcut, projected where the shape changes."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        self.reduce = nn.Conv2D(channels, width, 1)
        self.convolve = nn.Conv2D(width, width, 3, stride=stride, padding=1)
        self.expand = nn.Conv2D(width, 4 * width, 1)
        projected = stride > 1 or channels != 4 * width
        self.shortcut = nn.Conv2D(channels, 4 * width, 1, stride=stride) if projected else None

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        y = self.expand(op.relu(self.convolve(op.relu(self.reduce(x)))))
        return op.relu(y + (x if self.shortcut is None else self.shortcut(x)))


class _ResNet(nn.Module):
    """Stages of bottlenecks, each half the size of the one before."""

    def __init__(self, depths: tuple[int, ...], width: int) -> None:
        self.stem = nn.Conv2D(3, width, 3, padding=1)
        blocks, channels = [], width
        for stage, depth in enumerate(depths):
            for block in range(depth):
                inner, stride = width * 2**stage, 2 if stage and not block else 1
                blocks.append(_Bottleneck(channels, inner, stride))
                channels = 4 * inner
        self.blocks = nn.ModuleList(blocks)
        self.head = nn.Linear(channels, 64)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        x = op.relu(self.stem(x))
        for block in self.blocks:
            x = block(x)
        return self.head(op.sum(x, axis=[2, 3]))


class _UNet(nn.Module):
    """Three levels down and up, each joined to its counterpart by concatenation."""

    def __init__(self, channels: int = 8, levels: int = 3) -> None:
        widths = [channels * 2**level for level in range(levels + 1)]
        self.enter = nn.Conv2D(3, channels, 3, padding=1)
        self.down = nn.ModuleList([nn.Conv2D(a, b, 3, stride=2, padding=1) for a, b in pairwise(widths)])
        self.up = nn.ModuleList(
            [nn.Conv2D(a + b, a, 3, padding=1) for a, b in reversed(list(pairwise(widths)))]
        )
        self.leave = nn.Conv2D(channels, 3, 1)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        x = op.relu(self.enter(x))
        skips = []
        for down in self.down:
            skips.append(x)
            x = op.silu(down(x))
        for up in self.up:
            x = op.concat([op.interpolate(x, scale_factor=2.0, mode="nearest"), skips.pop()], dim=1)
            x = op.relu(up(x))
        return self.leave(x)


class _Branchy(nn.Module):
    """Inception blocks, then a dense one: many tensors of different size alive together."""

    def __init__(self, blocks: int = 2, layers: int = 4) -> None:
        self.stem = nn.Conv2D(3, 16, 3, padding=1)
        widths = (8, 12, 16, 4, 8, 8)
        self.inception = nn.ModuleList(
            [vision.Inception(40 if block else 16, widths) for block in range(blocks)]
        )
        self.dense = vision.Dense(40, layers)
        self.head = nn.Linear(40 + 8 * layers, 64)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        x = op.relu(self.stem(x))
        for block in self.inception:
            x = op.relu(block(x))
        return self.head(op.sum(self.dense(x), axis=[2, 3]))


class _TopK(nn.Module):
    """The eight best of the scores, and where they were: two outputs of different element types."""

    def __init__(self) -> None:
        self.score = nn.Linear(64, 128)

    def forward(self, x: nn.Tensor) -> tuple[nn.Tensor, nn.Tensor]:
        values, indices = op.topk(op.softmax(self.score(x), -1), k=8, axis=-1)
        return values / op.sum(values, axis=-1, keepdims=True), indices


@case(bind("n", *_LENGTHS, b=2), function="forward", declared={"n": 64})
def llama_prefill() -> tvm.IRModule:
    """Two decoder layers over tokens (b, n), n declared to be at most 64."""
    return llama.decoder(_LLAMA)


@case(bind("p", *_LENGTHS, b=3), function="forward", declared={"p": 64})
def llama_decode() -> tvm.IRModule:
    """One step on caches of p positions, which go out longer by one; p declared to be at most 64."""
    return decode_step(_LLAMA)


def decode_step(shape: llama.Shape) -> tvm.IRModule:
    """One step of a decoder of this shape; nothing declared."""
    caches = {name: ["b", shape.kv_heads, "p", shape.head] for name in ("k0", "v0", "k1", "v1")}
    return exported(_Decode(shape), tokens=nn.spec.Tensor(["b", 1], "int32"), **caches)


@case(bind("n", *_LENGTHS, b=2), function="forward")
def bert() -> tvm.IRModule:
    """Two encoder blocks with a mask; nothing declared."""
    return encoder.masked_bert(width=64)


@case(bind("n", *_LENGTHS, b=2), function="forward", pipeline="target", large=True)
def bert_fused() -> tvm.IRModule:
    """The same behind the target's own pipeline, which fuses operators."""
    return bert()


@case(bind("b", *_BATCHES), function="forward", declared={"b": 16}, large=True)
def resnet50() -> tvm.IRModule:
    """The depth and the proportions of ResNet-50, an eighth of its width; b declared to be at most 16."""
    return exported(_ResNet((3, 4, 6, 3), width=8), x=["b", 3, 32, 32])


@case(bind("b", *_BATCHES), function="forward", declared={"b": 16})
def resnet() -> tvm.IRModule:
    """Two bottlenecks, each a stage."""
    return exported(_ResNet((1, 1), width=8), x=["b", 3, 16, 16])


@case(bind("b", *_BATCHES), function="forward")
def unet_shallow() -> tvm.IRModule:
    """One level down and up, any batch."""
    return exported(_UNet(levels=1), x=["b", 3, 16, 16])


@case(bind("b", *_BATCHES), function="forward", large=True)
def unet() -> tvm.IRModule:
    """Three levels down and up, any batch."""
    return exported(_UNet(), x=["b", 3, 16, 16])


@case(bind("b", *_BATCHES), function="forward")
def inception() -> tvm.IRModule:
    """One inception block and two dense layers, any batch."""
    return exported(_Branchy(blocks=1, layers=2), x=["b", 3, 12, 12])


@case(bind("b", *_BATCHES), function="forward", declared={"b": 16}, large=True)
def branchy() -> tvm.IRModule:
    """Inception and dense blocks; b declared to be at most 16."""
    return exported(_Branchy(), x=["b", 3, 12, 12])


@case(bind("b", *_BATCHES), function="forward", pipeline="target")
def mlp_fused() -> tvm.IRModule:
    """The next one behind the target's own pipeline, which fuses operators."""
    return mlp()


@case(bind("b", *_BATCHES), function="forward")
def mlp() -> tvm.IRModule:
    """Four layers, any batch."""
    return exported(small.MLP((64, 256, 96, 192, 64)), x=["b", 64])


@case(bind("b", *_BATCHES), function="forward")
def lstm() -> tvm.IRModule:
    """Three steps of an LSTM; a pair out."""
    return exported(small.LSTM(width=64), x=["b", 3, 64], hidden=["b", 64], cell=["b", 64])


@case(bind("b", *_BATCHES), function="forward")
def top_k() -> tvm.IRModule:
    """Scores sorted by a packed function, the best eight and their places out."""
    return exported(_TopK(), x=["b", 64])


@case(
    [{"n": n, "s": s, "b": 2} for n, s in ((1, 1), (1, 64), (7, 5), (16, 32), (64, 3), (100, 100))],
    function="forward",
)
def cross_attention() -> tvm.IRModule:
    """Two sequences whose lengths n and s have nothing to do with each other."""
    return exported(encoder.Cross(width=64), x=["b", "n", 64], memory=["b", "s", 64])
