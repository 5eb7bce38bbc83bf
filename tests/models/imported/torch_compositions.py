"""More networks for `regenerate`: caches of several layers, two lengths in one model, branches in branches.

Needs torch and transformers.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.export import Dim

from tests.models.imported.torch_models import (
    BATCH,
    PAST,
    SEQ,
    SMALL,
    TorchModel,
    Wrapped,
    model,
    operator,
)

WIDTH, HEADS = 16, 2


class _Attention(nn.Module):
    """Attention with heads over given keys and values; a mask is added to the scores."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def split(self, x: torch.Tensor) -> torch.Tensor:
        b, n, _ = x.shape
        return x.reshape(b, n, HEADS, WIDTH // HEADS).transpose(1, 2)

    def attend(self, q: Any, k: Any, v: Any, mask: Any = None) -> torch.Tensor:
        scores = q @ k.transpose(-1, -2) / 4
        weights = torch.softmax(scores if mask is None else scores + mask, -1)
        mixed = (weights @ v).transpose(1, 2)
        b, n, _, _ = mixed.shape
        return self.o(mixed.reshape(b, n, WIDTH))

    def forward(self, x: torch.Tensor, memory: torch.Tensor, mask: Any = None) -> torch.Tensor:
        q, k, v = self.split(self.q(x)), self.split(self.k(memory)), self.split(self.v(memory))
        return self.attend(q, k, v, mask)


class _Block(nn.Module):
    """Attention and a feed-forward part, each behind a norm."""

    def __init__(self, *, crossed: bool = False) -> None:
        super().__init__()
        self.attention = _Attention()
        self.crossed = _Attention() if crossed else None
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH) for _ in range(3)])
        self.inner = nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, WIDTH))

    def forward(self, x: torch.Tensor, mask: Any = None, memory: Any = None) -> torch.Tensor:
        before = self.norms[0](x)
        x = x + self.attention(before, before, mask)
        if self.crossed is not None:
            x = x + self.crossed(self.norms[1](x), memory)
        return x + self.inner(self.norms[2](x))


@model
def encoder_decoder() -> TorchModel:
    """Batch and two lengths: an encoder, and a decoder with a mask that looks at what was encoded."""

    class _Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.decoder = _Block(), _Block(crossed=True)

        def forward(self, source: torch.Tensor, target: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return self.decoder(target, mask, self.encoder(source))

    inputs = (torch.randn(2, 7, WIDTH), torch.randn(2, 5, WIDTH), torch.zeros(2, 1, 5, 5))
    dims = ({0: BATCH, 1: PAST}, {0: BATCH, 1: SEQ}, {0: BATCH, 2: SEQ, 3: SEQ})
    return TorchModel(_Net().eval(), inputs, dims)


@model
def decode_layers() -> TorchModel:
    """A step of two layers over batch and past; all four caches go out longer by one."""

    class _Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([_Block() for _ in range(2)])

        def forward(self, x: Any, k0: Any, v0: Any, k1: Any, v1: Any) -> Any:
            grown: list[torch.Tensor] = []
            for layer, keys, values in zip(self.layers, (k0, k1), (v0, v1), strict=True):
                attention = layer.attention
                before = layer.norms[0](x)
                keys = torch.cat([keys, attention.split(attention.k(before))], 2)
                values = torch.cat([values, attention.split(attention.v(before))], 2)
                x = x + attention.attend(attention.split(attention.q(before)), keys, values)
                x = x + layer.inner(layer.norms[2](x))
                grown += [keys, values]
            return x, *grown

    cache = torch.randn(2, HEADS, 5, WIDTH // HEADS)
    dims = ({0: BATCH}, *({0: BATCH, 2: PAST} for _ in range(4)))
    return TorchModel(_Net().eval(), (torch.randn(2, 1, WIDTH), *(cache.clone() for _ in range(4))), dims)


@model
def llama_batched() -> TorchModel:
    """Llama over batch and length."""
    from transformers import LlamaConfig, LlamaModel

    config = LlamaConfig(**SMALL, num_key_value_heads=2, attn_implementation="eager")

    def call(net: nn.Module, embeds: torch.Tensor, mask: torch.Tensor, position: torch.Tensor) -> Any:
        out = net(inputs_embeds=embeds, attention_mask=mask, position_ids=position, use_cache=False)
        return out.last_hidden_state

    inputs = (torch.randn(2, 6, 32), torch.zeros(2, 1, 6, 6), torch.arange(6)[None].repeat(2, 1))
    dims = ({0: BATCH, 1: SEQ}, {0: BATCH, 2: SEQ, 3: SEQ}, {0: BATCH, 1: SEQ})
    return TorchModel(Wrapped(LlamaModel(config).eval(), call), inputs, dims)


@model
def image_floors() -> TorchModel:
    """Strided convolutions with a shortcut over any height and width: sizes are floors of halves."""

    class _Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
            self.short = nn.Conv2d(8, 16, 1, stride=2)
            self.long = nn.Sequential(
                nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1)
            )
            self.head = nn.Linear(16, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = torch.relu(self.stem(x))
            x = torch.relu(self.short(x) + self.long(x))
            return self.head(x.mean((2, 3)))

    dims = ({0: BATCH, 2: Dim("h", min=16, max=256), 3: Dim("w", min=16, max=256)},)
    return TorchModel(_Net().eval(), (torch.randn(2, 3, 37, 29),), dims)


@model
def op_bag_of_rows() -> TorchModel:
    """A bag of embeddings, written with a gather and a mean: the importer has no EmbeddingBag."""
    net = nn.Embedding(20, 8).eval()
    call = lambda net, i: torch.relu(net(i).mean(1))  # noqa: E731
    return TorchModel(Wrapped(net, call), (torch.randint(0, 20, (3, 5)),), ({0: BATCH, 1: SEQ},))


@model
def op_nested_cond() -> TorchModel:
    def inner(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.mean() > 1, lambda x: torch.exp(x).sum(1), lambda x: (x * x).sum(1), (x,))

    def function(x: torch.Tensor) -> torch.Tensor:
        y = torch.cat([x, x * 2], 1)
        return torch.cond(y.sum() > 0, inner, lambda x: torch.tanh(x).sum(1), (y,))

    return operator(function, torch.randn(6, 8))


@model
def op_six_lengths() -> TorchModel:
    """Six symbols, of which each pair meets in a product."""
    names = [Dim(f"n{i}", min=1, max=256) for i in range(6)]

    def function(*rows: torch.Tensor) -> Any:
        made = [torch.relu(a) @ torch.tanh(b).T for a, b in pairwise(rows)]
        return [torch.softmax(product, -1).sum(0) for product in made]

    inputs = tuple(torch.randn(size, 8) for size in (3, 4, 5, 6, 7, 8))
    return operator(function, *inputs, dims=tuple({0: name} for name in names))
