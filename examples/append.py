"""A decoding step as models come from ONNX and PyTorch: it hands back its cache of keys, longer by a row."""
from tvm.script import ir as I, relax as R, tirx as T


@I.ir_module
class Append:
    @R.function
    def main(
        query: R.Tensor((1, 8, 1, 64), "float32"),
        row: R.Tensor((1, 8, 1, 64), "float32"),
        keys: R.Tensor((1, 8, "n", 64), "float32"),
    ) -> R.Tuple(R.Tensor((1, 8, 1, "n + 1"), "float32"), R.Tensor((1, 8, "n + 1", 64), "float32")):
        n = T.int64()
        longer = R.concat((keys, row), axis=2)
        scores = R.matmul(query, R.permute_dims(longer, axes=(0, 1, 3, 2)))
        weights = R.nn.softmax(scores)
        return (weights, longer)
