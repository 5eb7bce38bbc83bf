"""A language model as a server has it: a cache of keys and values, and a function that reads `seq_len` tokens."""
from tvm.script import ir as I, relax as R, tirx as T


@I.ir_module
class Chat:
    @T.prim_func
    def kernel():
        T.evaluate(0)

    @R.function(pure=False)
    def create_cache(
        sequences: R.Shape(["max_batch_size"]),
        tokens: R.Shape(["max_total_seq_len"]),
        chunk: R.Shape(["prefill_chunk_size"]),
        page: R.Shape(["page_size"]),
        window: R.Shape(["support_sliding_window"]),
    ) -> R.Any:
        max_batch_size = T.int64()
        max_total_seq_len = T.int64()
        prefill_chunk_size = T.int64()
        page_size = T.int64()
        support_sliding_window = T.int64()
        cache = R.call_packed(
            "vm.builtin.paged_attention_kv_cache_create",
            R.shape([max_batch_size, max_total_seq_len, prefill_chunk_size, page_size, support_sliding_window]),
            R.shape([0, 2]), 8, 2, 64, 64, R.shape([0, 0]), R.prim_value(0),
            1, T.float64(1.0), T.float64(10000.0), 0, R.const(0.0, "float16"), Chat.kernel, Chat.kernel,
            (R.str("tirx"), Chat.kernel), (R.str("tirx"), Chat.kernel), (R.str("tirx"), Chat.kernel),
            (R.str("tirx"), Chat.kernel), (R.str("tirx"), Chat.kernel), (R.str("tirx"), Chat.kernel),
            (R.str("tirx"), Chat.kernel), R.tuple(), (Chat.kernel,), Chat.kernel, Chat.kernel, Chat.kernel, Chat.kernel,
            ty_args=(R.Any,),
        )
        return cache

    @R.function(pure=False)
    def prefill(
        x: R.Tensor((1, "seq_len", 512), "float16"),
        cache: R.Any,
        weights: R.Tuple(
            R.Tensor((512, 768), "float16"), R.Tensor((512, 512), "float16"), R.Tensor((512, "vocabulary"), "float16")
        ),
    ) -> R.Tensor((1, "vocabulary"), "float16"):
        R.func_attr({"num_input": 2, "tir_var_upper_bound": {"seq_len": 2048}})
        seq_len = T.int64()
        vocabulary = T.int64()
        qkv = R.reshape(R.matmul(x, weights[0]), R.shape([seq_len, 12, 64]))
        seen = R.call_dps_packed(
            "vm.builtin.attention_kv_cache_attention_with_fused_qkv",
            (cache, R.prim_value(0), R.prim_value(T.float64(0.125)), qkv),
            out_ty=R.Tensor((seq_len, 8, 64), "float16"),
        )
        hidden = R.add(x, R.matmul(R.reshape(seen, R.shape([1, seq_len, 512])), weights[1]))
        last = R.strided_slice(hidden, axes=[1], begin=[seq_len - 1], end=[seq_len])
        return R.matmul(R.reshape(last, R.shape([1, 512])), weights[2])
