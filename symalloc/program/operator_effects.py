"""The effects on memory of Relax operators that are not lowered: what is not said here makes new memory."""

from __future__ import annotations

from collections.abc import Mapping

# operators that are there still where memory is planned: they look at shapes, or copy to another device
OPERATORS_THAT_CAPTURE_NOTHING = frozenset(
    {"relax.shape_of", "relax.shape_to_tensor", "relax.size", "relax.tensor_to_shape", "relax.to_vdevice"}
)

# the arguments of operators that are looked at for their shape and type alone
SHAPE_ARGUMENTS: Mapping[str, frozenset[int]] = {
    "relax.collapse_sum_like": frozenset({1}),
    **dict.fromkeys(
        (
            *(f"relax.{name}_like" for name in ("eye", "full", "ones", "zeros")),
            *(f"relax.inspect.tensor_{name}" for name in ("byte_offset", "elem_offset", "ndim", "shape_i")),
            *(f"relax.inspect.tensor_{name}" for name in ("dtype_bits", "dtype_code", "dtype_lanes")),
            *("relax.inspect.tensor_stride_i", "relax.shape_of", "relax.size"),
        ),
        frozenset({0}),
    ),
}

# operators that may read only some elements of their operands: which ones is not known here
READS_SOME = frozenset(
    (
        *(
            f"relax.{name}"
            for name in ("dynamic_strided_slice", "gather_elements", "gather_nd", "index_tensor")
        ),
        *(f"relax.{name}" for name in ("strided_slice", "take", "tril", "triu", "where")),
        *(f"relax.image.{name}" for name in ("grid_sample", "resize2d", "resize3d")),
        *(f"relax.nn.{name}{n}d" for name in ("avg_pool", "conv", "max_pool") for n in (1, 2, 3)),
        "relax.vision.roi_pool",
    )
)

# operators whose results TVM leaves as it found the memory where an axis has too few elements
NEEDS_ELEMENTS = frozenset(
    f"relax.{name}" for name in ("argmax", "argmin", "max", "mean", "median", "min", "prod", "sum", "topk")
)
