"""Ordinary models: what TVM accepts, builds and runs.  `MODELS` holds them by name."""

from tests.models.zoo import (
    control,
    data_dependent,
    encoder,
    llama,
    onnx_models,
    shapes,
    small,
    tuples,
    vision,
)
from tests.models.zoo.registry import MODELS, Model

__all__ = [
    "MODELS",
    "Model",
    "control",
    "data_dependent",
    "encoder",
    "llama",
    "onnx_models",
    "shapes",
    "small",
    "tuples",
    "vision",
]
