"""Networks that torch.export hands to TVM; `regenerate` imports them.  Needs torch and transformers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.export import Dim

__all__ = ["TORCH_MODELS", "CallableModule", "TorchModel", "Wrapped", "decoder", "model", "operator"]


@dataclass(frozen=True, slots=True)
class TorchModel:
    """A network, example inputs, and the dynamic dimensions of each input."""

    net: nn.Module
    inputs: tuple[torch.Tensor, ...]
    dims: tuple[dict[int, Any] | None, ...]


TORCH_MODELS: dict[str, Callable[[], TorchModel]] = {}


def model(build: Callable[[], TorchModel]) -> Callable[[], TorchModel]:
    TORCH_MODELS[build.__name__] = build
    return build


class CallableModule(nn.Module):
    """A module whose forward takes any number of inputs."""


class Wrapped(CallableModule):
    """`net`, called by a function that says how: a module for torch.export."""

    def __init__(self, net: nn.Module, call: Callable[..., Any]) -> None:
        super().__init__()
        self.net, self.call = net, call

    def forward(self, *inputs: torch.Tensor) -> Any:
        """The outputs of `call`."""
        return self.call(self.net, *inputs)


class _Function(CallableModule):
    """A function without weights as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        """The outputs of the function."""
        return self.function(*inputs)


BATCH, SEQ, PAST = Dim("batch", min=1, max=64), Dim("seq", min=2, max=512), Dim("past", min=1, max=512)
HEIGHT, WIDTH = Dim("height", min=4, max=512), Dim("width", min=4, max=512)

# -- transformers' small configurations --------------------------------------------------------------------


def decoder(config: Any, name: str, **more: Any) -> TorchModel:
    """A decoder on token embeddings with an explicit mask, over the length of the sequence."""
    import transformers

    kind = getattr(transformers, name)
    net = kind(config).eval()

    def call(net: nn.Module, embeds: torch.Tensor, mask: torch.Tensor, position: torch.Tensor) -> Any:
        out = net(inputs_embeds=embeds, attention_mask=mask, position_ids=position, use_cache=False, **more)
        return out.last_hidden_state

    n, width = 6, config.hidden_size
    inputs = (torch.randn(1, n, width), torch.zeros(1, 1, n, n), torch.arange(n)[None])
    return TorchModel(Wrapped(net, call), inputs, ({1: SEQ}, {2: SEQ, 3: SEQ}, {1: SEQ}))


SMALL = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 64,
    "max_position_embeddings": 512,
}


_TWO_HEADS = {"num_key_value_heads": 2}
_DECODERS: dict[str, tuple[str, dict[str, Any]]] = {  # the kind, and what its configuration has besides
    "llama": ("Llama", SMALL | _TWO_HEADS),
    "qwen2": ("Qwen2", SMALL | _TWO_HEADS),
    "qwen3": ("Qwen3", SMALL | _TWO_HEADS | {"head_dim": 8}),
    "mistral": ("Mistral", SMALL | _TWO_HEADS | {"sliding_window": None}),
    "gemma": ("Gemma", SMALL | {"num_key_value_heads": 1, "head_dim": 8}),
    "phi": ("Phi", SMALL),
    "gpt2": ("GPT2", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 512, "vocab_size": 64}),
    "gpt_neox": ("GPTNeoX", SMALL),
    "opt": ("OPT", {**SMALL, "ffn_dim": 64, "word_embed_proj_dim": 32}),
}


def _decoder_of(kind: str, sizes: dict[str, Any]) -> TorchModel:
    import transformers

    config = getattr(transformers, f"{kind}Config")(**sizes, attn_implementation="eager")
    return decoder(config, f"{kind}Model")


TORCH_MODELS.update({name: partial(_decoder_of, *of) for name, of in _DECODERS.items()})


@model
def bert() -> TorchModel:
    """BERT over batch and length, with an explicit additive mask."""
    from transformers import BertConfig, BertModel

    net = BertModel(BertConfig(**SMALL, attn_implementation="eager"), add_pooling_layer=False).eval()

    def call(net: nn.Module, embeds: torch.Tensor, mask: torch.Tensor) -> Any:
        return net.encoder(embeds, attention_mask=mask).last_hidden_state

    inputs = (torch.randn(2, 6, 32), torch.zeros(2, 1, 1, 6))
    return TorchModel(Wrapped(net, call), inputs, ({0: BATCH, 1: SEQ}, {0: BATCH, 3: SEQ}))


@model
def t5_encoder() -> TorchModel:
    """T5's encoder over batch and length, with relative positions."""
    from transformers import T5Config, T5EncoderModel

    config = T5Config(
        d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, vocab_size=64, attn_implementation="eager"
    )
    net = T5EncoderModel(config).eval()

    def call(net: nn.Module, embeds: torch.Tensor, mask: torch.Tensor) -> Any:
        return net(inputs_embeds=embeds, attention_mask=mask).last_hidden_state

    inputs = (torch.randn(2, 6, 32), torch.zeros(2, 1, 6, 6))
    dims = ({0: BATCH, 1: SEQ}, {0: BATCH, 2: SEQ, 3: SEQ})
    return TorchModel(Wrapped(net, call), inputs, dims)


def _patches(kind: str, **more: Any) -> TorchModel:
    """A transformer over the patches of an image."""
    import transformers

    config = getattr(transformers, f"{kind}Config")(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, image_size=32,
        patch_size=8, attn_implementation="eager",
    )  # fmt: skip
    net = getattr(transformers, f"{kind}Model")(config, **more).eval()
    call = lambda net, image: net(image).last_hidden_state  # noqa: E731
    return TorchModel(Wrapped(net, call), (torch.randn(2, 3, 32, 32),), ({0: BATCH},))


TORCH_MODELS["vit"] = partial(_patches, "ViT", add_pooling_layer=False)
TORCH_MODELS["clip_vision"] = partial(_patches, "CLIPVision")


@model
def whisper_encoder() -> TorchModel:
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = WhisperConfig(
        d_model=32, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=64, num_mel_bins=8,
        max_source_positions=20, attn_implementation="eager",
    )  # fmt: skip
    net = WhisperEncoder(config).eval()
    call = lambda net, mel: net(mel).last_hidden_state  # noqa: E731
    return TorchModel(Wrapped(net, call), (torch.randn(2, 8, 40),), ({0: BATCH},))


@model
def mixture_of_experts() -> TorchModel:
    """A dense mixture: every expert runs, the router weighs the two best."""

    class _Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.router = nn.Linear(16, 4)
            self.experts = nn.ModuleList(
                nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 16)) for _ in range(4)
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scores = torch.softmax(self.router(x), dim=-1)
            best, chosen = torch.topk(scores, 2, dim=-1)
            weights = torch.zeros_like(scores).scatter(-1, chosen, best)
            outputs = torch.stack([expert(x) for expert in self.experts], dim=-1)
            return (outputs * weights.unsqueeze(-2)).sum(-1)

    return TorchModel(_Experts().eval(), (torch.randn(6, 16),), ({0: SEQ},))


@model
def decode_step() -> TorchModel:
    """One token of attention; returns its output and the two caches, longer by one."""

    class _Step(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)

        def forward(self, x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> Any:
            q, k, v = self.qkv(x).reshape(1, 1, 3, 4, 8).permute(2, 0, 3, 1, 4)
            keys, values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
            weights = torch.softmax(q @ keys.transpose(-1, -2) / 8**0.5, dim=-1)
            return self.out((weights @ values).permute(0, 2, 1, 3).reshape(1, 1, 32)), keys, values

    inputs = (torch.randn(1, 1, 32), torch.randn(1, 4, 5, 8), torch.randn(1, 4, 5, 8))
    return TorchModel(_Step().eval(), inputs, (None, {2: PAST}, {2: PAST}))


# -- images --------------------------------------------------------------------------------------------------


def _image(kind: str, sizes: dict[str, Any]) -> TorchModel:
    import transformers

    net = getattr(transformers, f"{kind}Model")(getattr(transformers, f"{kind}Config")(**sizes)).eval()
    call = lambda net, image: net(image).last_hidden_state  # noqa: E731
    return TorchModel(Wrapped(net, call), (torch.randn(2, 3, 64, 64),), ({0: BATCH},))


_IMAGES: dict[str, tuple[str, dict[str, Any]]] = {
    "resnet": ("ResNet", {"embedding_size": 8, "hidden_sizes": [8, 16, 32, 64], "depths": [1, 1, 1, 1],
                          "layer_type": "bottleneck"}),
    "efficientnet": ("EfficientNet", {"width_coefficient": 0.25, "depth_coefficient": 0.3, "image_size": 64,
                                      "hidden_dim": 320}),
    "convnext": ("ConvNext", {"hidden_sizes": [8, 16, 32, 64], "depths": [1, 1, 2, 1]}),
    "mobilenet": ("MobileNetV2", {"depth_multiplier": 0.25, "image_size": 64}),
    "segformer": ("Segformer", {"hidden_sizes": [8, 16, 16, 32], "num_attention_heads": [1, 2, 2, 4],
                                "depths": [1, 1, 1, 1]}),
}  # fmt: skip
TORCH_MODELS.update({name: partial(_image, *of) for name, of in _IMAGES.items()})


class _UNet(nn.Module):
    """Two steps down, two up, with skip connections."""

    def __init__(self) -> None:
        super().__init__()
        block = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(2, o), nn.SiLU())  # noqa: E731
        self.first, self.second, self.third = block(3, 8), block(8, 16), block(16, 32)
        self.up1, self.up2 = nn.ConvTranspose2d(32, 16, 2, stride=2), nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.fourth, self.fifth, self.out = block(32, 16), block(16, 8), nn.Conv2d(8, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The mask."""
        a = self.first(x)
        b = self.second(nn.functional.max_pool2d(a, 2))
        c = self.third(nn.functional.max_pool2d(b, 2))
        d = self.fourth(torch.cat([self.up1(c), b], 1))
        return self.out(self.fifth(torch.cat([self.up2(d), a], 1)))


@model
def unet() -> TorchModel:
    return TorchModel(_UNet().eval(), (torch.randn(2, 3, 32, 32),), ({0: BATCH},))


@model
def super_resolution() -> TorchModel:
    """Any height and width; pixel shuffle in the end."""
    net = nn.Sequential(
        nn.Conv2d(1, 8, 5, padding=2), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(),
        nn.Conv2d(8, 4, 3, padding=1), nn.PixelShuffle(2),
    )  # fmt: skip
    return TorchModel(net.eval(), (torch.randn(1, 1, 12, 16),), ({2: HEIGHT, 3: WIDTH},))


@model
def image_any_size() -> TorchModel:
    """Strided convolutions and pooling over batch, height and width."""
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(16, 4),
    )  # fmt: skip
    height, width = 4 * Dim("h", min=2, max=128), 4 * Dim("w", min=2, max=128)
    dims = ({0: BATCH, 2: height, 3: width},)
    return TorchModel(net.eval(), (torch.randn(2, 3, 24, 28),), dims)


@model
def autoencoder() -> TorchModel:
    net = nn.Sequential(
        nn.Linear(48, 24),
        nn.GELU(),
        nn.Linear(24, 6),
        nn.GELU(),
        nn.Linear(6, 24),
        nn.GELU(),
        nn.Linear(24, 48),
    )
    return TorchModel(net.eval(), (torch.randn(3, 48),), ({0: BATCH},))


# -- sound and sequences ------------------------------------------------------------------------------------


@model
def audio_strided() -> TorchModel:
    """1-d convolutions with odd strides and dilation, any number of samples."""
    net = nn.Sequential(
        nn.Conv1d(1, 8, 10, stride=5), nn.GELU(), nn.Conv1d(8, 8, 3, stride=3), nn.GELU(),
        nn.Conv1d(8, 8, 3, dilation=2), nn.GELU(),
    )  # fmt: skip
    samples = Dim("samples", min=200, max=100_000)
    return TorchModel(net.eval(), (torch.randn(1, 1, 400),), ({2: samples},))


@model
def audio_padded() -> TorchModel:
    net = nn.Sequential(
        nn.Conv1d(2, 8, 7, stride=3, padding=3), nn.ReLU(), nn.Conv1d(8, 8, 5, stride=2, padding=1), nn.ReLU()
    )
    samples = Dim("samples", min=16, max=100_000)
    return TorchModel(net.eval(), (torch.randn(2, 2, 90),), ({0: BATCH, 2: samples},))


def _recurrent(kind: str) -> TorchModel:
    net = getattr(nn, kind)(8, 16, batch_first=True).eval()
    call = lambda net, x: net(x)[0]  # noqa: E731
    return TorchModel(Wrapped(net, call), (torch.randn(2, 5, 8),), ({0: BATCH},))


TORCH_MODELS |= {"lstm": partial(_recurrent, "LSTM"), "gru": partial(_recurrent, "GRU")}


@model
def attention_of_many_outputs() -> TorchModel:
    """Returns weights and intermediate values beside the result."""

    class _Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v = (nn.Linear(16, 16) for _ in range(3))

        def forward(self, x: torch.Tensor) -> Any:
            q, k, v = self.q(x), self.k(x), self.v(x)
            scores = q @ k.transpose(-1, -2) / 4
            weights = torch.softmax(scores, -1)
            return weights @ v, weights, scores, q, k

    return TorchModel(_Attention().eval(), (torch.randn(2, 6, 16),), ({0: BATCH, 1: SEQ},))


@model
def cross_attention() -> TorchModel:
    """Two lengths."""

    class _Cross(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.kv, self.norm = nn.Linear(16, 16), nn.Linear(16, 32), nn.LayerNorm(16)

        def forward(self, x: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
            k, v = self.kv(memory).chunk(2, -1)
            weights = torch.softmax(self.q(x) @ k.transpose(-1, -2) / 4, -1)
            return self.norm(x + weights @ v)

    dims = ({0: BATCH, 1: SEQ}, {0: BATCH, 1: PAST})
    return TorchModel(_Cross().eval(), (torch.randn(2, 6, 16), torch.randn(2, 9, 16)), dims)


# -- single operators that models are made of --------------------------------------------------------------


def operator(function: Callable[..., Any], *inputs: torch.Tensor, dims: Any = None) -> TorchModel:
    given = dims if dims is not None else tuple({0: SEQ} for _ in inputs)
    return TorchModel(_Function(function), inputs, given)


TORCH_MODELS |= {
    "op_topk": lambda: operator(lambda x: torch.topk(x, 3, dim=-1), torch.randn(6, 8)),
    "op_sort": lambda: operator(lambda x: torch.sort(x, dim=-1), torch.randn(6, 8)),
    "op_cumsum": lambda: operator(lambda x: torch.cumsum(torch.exp(x), dim=0), torch.randn(6, 8)),
    "op_gather": lambda: operator(
        lambda x, i: x.gather(1, i) * 2, torch.randn(6, 8), torch.randint(0, 8, (6, 3))
    ),
    "op_pad": lambda: operator(lambda x: nn.functional.pad(x, (1, 2, 3, 0)).relu(), torch.randn(6, 8)),
    "op_roll_flip": lambda: operator(lambda x: torch.flip(x, [0]) + torch.roll(x, 1, 1), torch.randn(6, 8)),
    "op_where_mask": lambda: operator(
        lambda x: torch.where(x > 0, x, x.mean(0, keepdim=True)).tril(), torch.randn(6, 6)
    ),
}


@model
def op_cond() -> TorchModel:
    def branch(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: torch.relu(x) * 2, lambda x: torch.tanh(x) - 1, (x,))

    return operator(branch, torch.randn(6, 8))


@model
def op_einsum() -> TorchModel:
    dims = ({0: BATCH, 1: SEQ}, {0: BATCH, 1: PAST})
    function = lambda a, b: torch.einsum("bik,bjk->bij", a, b)  # noqa: E731
    return operator(function, torch.randn(2, 6, 8), torch.randn(2, 5, 8), dims=dims)


@model
def op_scatter() -> TorchModel:
    index = torch.randint(0, 8, (6, 3))
    function = lambda x, i, s: x.scatter(1, i, s) + 1  # noqa: E731
    return operator(function, torch.randn(6, 8), index, torch.randn(6, 3))


@model
def op_embedding() -> TorchModel:
    net = nn.Sequential(nn.Embedding(20, 8), nn.LayerNorm(8), nn.Linear(8, 4))
    return TorchModel(net.eval(), (torch.randint(0, 20, (2, 6)),), ({0: BATCH, 1: SEQ},))


@model
def op_concat_slice() -> TorchModel:
    def function(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        joined = torch.cat([a, b], 0)
        return joined[1:] * joined[:-1]

    return operator(function, torch.randn(6, 8), torch.randn(5, 8), dims=({0: SEQ}, {0: PAST}))


@model
def op_resize() -> TorchModel:
    function = lambda x: nn.functional.interpolate(x, scale_factor=2, mode="nearest") + 1  # noqa: E731
    return operator(function, torch.randn(2, 3, 8, 8), dims=({0: BATCH},))


@model
def op_masked_select() -> TorchModel:
    def function(x: torch.Tensor) -> Any:
        chosen = torch.masked_select(x, x > 0)
        return chosen * 2, torch.exp(x)

    return operator(function, torch.randn(6, 8))


@model
def op_halves() -> TorchModel:
    """Floor divisions and remainders of a length."""

    def function(x: torch.Tensor) -> torch.Tensor:
        n = x.shape[0]
        return x[: n // 2].sum(0) + x[n // 2 :].mean(0)

    return operator(function, torch.randn(6, 8), dims=({0: 2 * Dim("half", min=1, max=256)},))


@model
def op_four_lengths() -> TorchModel:
    """Four symbols at once."""
    names = [Dim(name, min=1, max=256) for name in ("p", "q", "r", "s")]

    def function(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor) -> Any:
        left, right = torch.relu(a @ b.T), torch.tanh(c @ d.T)
        return torch.exp(left).sum(1), torch.sigmoid(right).sum(0), (left.sum() + right).abs()

    inputs = tuple(torch.randn(size, 8) for size in (3, 4, 5, 6))
    return operator(function, *inputs, dims=tuple({0: name} for name in names))
