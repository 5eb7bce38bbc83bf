"""What comes behind the logits: sorting, sampling, choosing."""

from __future__ import annotations

import tvm
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op

from tests.models.zoo.registry import model


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


@model()
def top_k() -> tvm.IRModule:
    """The three best of v logits."""
    mod, _ = _TopK().export_tvm({"forward": {"logits": nn.spec.Tensor(["b", "v"], "float32")}})
    return mod


@model()
def sort_logits() -> tvm.IRModule:
    """Sorted values and indices."""
    mod, _ = _Sort().export_tvm({"forward": {"logits": nn.spec.Tensor(["b", "v"], "float32")}})
    return mod


@model()
def sample_top_p() -> tvm.IRModule:
    """One sampled index a row."""
    spec = {
        "probabilities": nn.spec.Tensor([4, "v"], "float32"),
        "indices": nn.spec.Tensor([4, "v"], "int64"),
        "top_p": nn.spec.Tensor([4, 1], "float32"),
        "top_k": nn.spec.Tensor([4, 1], "int64"),
        "uniform": nn.spec.Tensor([4, 1], "float32"),
    }
    mod, _ = _Sample().export_tvm({"forward": spec})
    return mod


@model()
def cumulative_mask() -> tvm.IRModule:
    """A cumulative sum and a choice by it."""
    mod, _ = _Cumulative().export_tvm({"forward": {"x": nn.spec.Tensor(["b", "v"], "float32")}})
    return mod
