"""What comes behind the logits: sorting, sampling, choosing."""

from __future__ import annotations

from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op

from tests.models.zoo.registry import networks
from tests.modules import exported


class _TopK(nn.Module):
    def forward(self, logits: nn.Tensor) -> tuple[nn.Tensor, nn.Tensor]:
        values, indices = op.topk(logits, k=3, axis=-1)
        return op.softmax(values, -1), indices


class _Sort(nn.Module):
    def forward(self, logits: nn.Tensor) -> tuple[nn.Tensor, nn.Tensor]:
        return op.sort(logits, axis=-1, descending=True), op.argsort(logits, axis=-1, descending=True)


class _Sample(nn.Module):
    """Top-p, top-k sampling from sorted probabilities."""

    def forward(
        self,
        probabilities: nn.Tensor,
        indices: nn.Tensor,
        top_p: nn.Tensor,
        top_k: nn.Tensor,
        uniform: nn.Tensor,
    ) -> nn.Tensor:
        return op.sample_top_p_top_k_from_sorted_prob(probabilities, indices, top_p, top_k, uniform)


class _Cumulative(nn.Module):
    def forward(self, x: nn.Tensor) -> nn.Tensor:
        limit, zero = op.full((1, 1), 0.9, "float32"), op.full((1, 1), 0.0, "float32")
        return op.where(op.greater(op.cumsum(op.softmax(x, -1), axis=1), limit), zero, x)


networks(
    top_k=lambda: exported(_TopK(), logits=["b", "v"]),
    sort_logits=lambda: exported(_Sort(), logits=["b", "v"]),
    sample_top_p=lambda: exported(
        _Sample(),
        probabilities=[4, "v"],
        indices=nn.spec.Tensor([4, "v"], "int64"),
        top_p=[4, 1],
        top_k=nn.spec.Tensor([4, 1], "int64"),
        uniform=[4, 1],
    ),
    cumulative_mask=lambda: exported(_Cumulative(), x=["b", "v"]),
)
