"""Small graphs of onnxruntime's own operators and of quantised matrices, with drawn weights.

    python3 make_graphs.py FOLDER     writes NAME.onnx and NAME.inputs.safetensors

Nodes are written one by one after the operators' descriptions (ContribOperators.md of
onnxruntime, Operators.md of ONNX). make_outputs.mjs has onnxruntime compute them.
"""
import json
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

rng = np.random.default_rng(7)
D, H, F, V, P = 12, 3, 20, 11, 9
N, T = 3, 5
MS = "com.microsoft"


class Maker:
    def __init__(self):
        self.nodes, self.stored, self.count = [], [], 0

    def weight(self, *shape, scale=0.5, name=None):
        return self.constant((rng.standard_normal(shape) * scale).astype(np.float32), name)

    def constant(self, array, name=None):
        self.count += 1
        name = name or f"w{self.count}"
        self.stored.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(self, op, *inputs, outputs=1, domain="", **attributes):
        self.count += 1
        names = [f"v{self.count}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, name=f"{op}_{self.count}",
                                           domain=domain, **attributes))
        return names[0] if outputs == 1 else names

    def write(self, folder, name, inputs, result, width, extra=None):
        self.nodes[-1].output[0] = result
        kinds = {"input_ids": V, "token_type_ids": 2, "attention_mask": None}
        declared, tensors = [], {}
        for key in inputs:
            declared.append(helper.make_tensor_value_info(key, TensorProto.INT64, ["batch", "tokens"]))
            if kinds[key] is None:
                value = (np.arange(T)[None] < np.array([[5], [3], [4]])).astype(np.int64)
            else:
                value = rng.integers(0, kinds[key], (N, T))
            tensors[key] = value.astype(np.int64)
        tensors.update(extra or {})
        out = helper.make_tensor_value_info(result, TensorProto.FLOAT, ["batch", "tokens", width])
        graph = helper.make_graph(self.nodes, "graph", declared, [out], self.stored)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(MS, 1)])
        model.ir_version = 8
        onnx.save(model, f"{folder}/{name}.onnx")
        save_tensors(f"{folder}/{name}.inputs.safetensors", tensors)


def save_tensors(path, tensors):
    kinds = {np.dtype(np.int64): "I64", np.dtype(np.float32): "F32"}
    header, at, body = {}, 0, b""
    for name, array in tensors.items():
        data = np.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": kinds[array.dtype], "shape": list(array.shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + body)


def embed(m):
    return m.node("Gather", m.weight(V, D), "input_ids")


def fused_bert(folder):
    """EmbedLayerNormalization, Attention, SkipLayerNormalization, BiasGelu, MultiHeadAttention, FastGelu."""
    m = Maker()
    ids, types = (m.node("Cast", name, to=TensorProto.INT32) for name in ("input_ids", "token_type_ids"))
    x = m.node("EmbedLayerNormalization", ids, types, m.weight(V, D), m.weight(P, D),
               m.weight(2, D), m.weight(D), m.weight(D), outputs=2, domain=MS, epsilon=1e-3)[0]
    mask = m.node("Cast", "attention_mask", to=TensorProto.INT32)
    y = m.node("Attention", x, m.weight(D, 3 * D), m.weight(3 * D), mask, domain=MS, num_heads=H)
    y = m.node("MatMul", y, m.weight(D, D))
    x = m.node("SkipLayerNormalization", y, x, m.weight(D), m.weight(D), m.weight(D), domain=MS, epsilon=1e-3)
    y = m.node("BiasGelu", m.node("MatMul", x, m.weight(D, F)), m.weight(F), domain=MS)
    y = m.node("MatMul", y, m.weight(F, D))
    x = m.node("SkipLayerNormalization", y, x, m.weight(D), m.weight(D), m.weight(D), domain=MS, epsilon=1e-3)
    q, k, v = (m.node("MatMul", x, m.weight(D, D)) for _ in range(3))
    y = m.node("MultiHeadAttention", q, k, v, m.weight(3 * D), mask, domain=MS, num_heads=H, scale=0.3)
    y = m.node("MatMul", y, m.weight(D, D))
    x = m.node("SkipLayerNormalization", y, x, m.weight(D), m.weight(D), domain=MS, epsilon=1e-3)
    y = m.node("FastGelu", m.node("MatMul", x, m.weight(D, F)), m.weight(F), domain=MS)
    y = m.node("MatMul", y, m.weight(F, D))
    x = m.node("SkipLayerNormalization", y, x, m.weight(D), m.weight(D), m.weight(D), domain=MS, epsilon=1e-3)
    m.write(folder, "fused_bert", ["input_ids", "token_type_ids", "attention_mask"], "last_hidden_state", D)


def fused_causal(folder):
    """SimplifiedLayerNormalization, Attention that sees no later token, FusedMatMul, Gelu, FusedGemm."""
    m = Maker()
    x = embed(m)
    y = m.node("SimplifiedLayerNormalization", x, m.weight(D), epsilon=1e-3, axis=-1)
    y = m.node("Attention", y, m.weight(D, 3 * D), m.weight(3 * D), domain=MS, num_heads=H, unidirectional=1)
    y = m.node("FusedMatMul", y, m.weight(D, D), domain=MS, transB=1)
    skip = m.node("SkipSimplifiedLayerNormalization", y, x, m.weight(D), outputs=4, domain=MS, epsilon=1e-3)
    y = m.node("Gelu", m.node("MatMul", skip[0], m.weight(D, F)), domain=MS)
    y = m.node("MatMul", y, m.weight(F, D))
    x = m.node("Add", skip[3], y)
    m.node("MatMul", x, m.weight(D, V))
    m.write(folder, "fused_causal", ["input_ids"], "logits", V)


def dense(folder):
    """Gemm with each of its transposes, LayerNormalization, Softmax, FusedGemm: as plain rows."""
    m = Maker()
    x = m.node("Reshape", embed(m), m.constant(np.array([-1, D])))
    x = m.node("Gemm", x, m.weight(D, D), m.weight(D))
    x = m.node("Gemm", x, m.weight(D, D), m.weight(D), transB=1)
    x = m.node("FusedGemm", x, m.weight(D, D), m.weight(D), domain=MS, activation="Tanh", transB=1)
    shape = m.node("Concat", m.node("Shape", "input_ids"), m.constant(np.array([D])), axis=0)
    x = m.node("Reshape", x, shape)
    x = m.node("LayerNormalization", x, m.weight(D), m.weight(D), epsilon=1e-3)
    m.node("Softmax", m.node("MatMul", x, m.weight(D, V)), axis=-1)
    m.write(folder, "dense", ["input_ids"], "logits", V)


def quantise(array, axis=None, bits=8, signed=False):
    """Rounds like the quantisers of weights: scale and zero point, and the integers."""
    around = tuple(i for i in range(array.ndim) if i != axis) if axis is not None else None
    low = np.minimum(array.min(axis=around), 0)
    high = np.maximum(array.max(axis=around), 0)
    if signed:
        scale = np.maximum(-low, high) / 127
        zero = np.zeros_like(scale)
    else:
        scale = (high - low) / (2**bits - 1)
        zero = np.round(-low / scale)
    shape = [1] * array.ndim
    if axis is not None:
        shape[axis] = -1
    q = np.round(array / scale.reshape(shape) + zero.reshape(shape))
    kind = np.int8 if signed else np.uint8
    q = np.clip(q, -127 if signed else 0, 127 if signed else 2**bits - 1).astype(kind)
    return q, scale.astype(np.float32), zero.astype(kind)


def weights_only(folder):
    """Weights of 8 and 4 bits whose products are of real numbers: the same up to rounding."""
    m = Maker()
    q, scale, zero = quantise(rng.standard_normal((V, D)))
    x = m.node("DequantizeLinear", m.node("Gather", m.constant(q, "words_quantized"), "input_ids"),
               m.constant(scale), m.constant(zero))
    q, scale, zero = quantise(rng.standard_normal((D, F)), axis=1, signed=True)
    w = m.node("DequantizeLinear", m.constant(q), m.constant(scale), m.constant(zero), axis=1)
    b = m.node("DequantizeLinear", m.constant(rng.integers(-99, 99, F).astype(np.int32)),
               m.constant(np.float32(0.01)))
    x = m.node("Relu", m.node("Add", m.node("MatMul", x, w), b))
    K, block = F, 16
    blocks = -(-K // block)
    packed = rng.integers(0, 256, (D, blocks, block // 2)).astype(np.uint8)
    scales = (rng.random(D * blocks) * 0.2).astype(np.float32)
    zeros = rng.integers(0, 256, D * ((blocks + 1) // 2)).astype(np.uint8)
    y = m.node("MatMulNBits", x, m.constant(packed), m.constant(scales), m.constant(zeros), domain=MS,
               K=K, N=D, bits=4, block_size=block)
    z = m.node("MatMulNBits", x, m.constant(packed), m.constant(scales), domain=MS,
               K=K, N=D, bits=4, block_size=block)
    m.node("Add", y, z)
    m.write(folder, "weights_only", ["input_ids"], "last_hidden_state", D)


def rounded(folder):
    """Activations rounded to 8 bits as well. `bound`: the most that this rounding can make of
    the result, since here they are not rounded: half a step of each activation."""
    m = Maker()
    table = rng.uniform(-1, 1, (V, D)).astype(np.float32)
    x = m.node("Gather", m.constant(table), "input_ids")
    step = 2 / 255
    q, scale, zero = quantise(rng.standard_normal((D, F)))
    real = (q.astype(float) - zero) * scale
    name, s, z = m.node("DynamicQuantizeLinear", x, outputs=3)
    y = m.node("Cast", m.node("MatMulInteger", name, m.constant(q), z, m.constant(zero)), to=TensorProto.FLOAT)
    y = m.node("Mul", y, m.node("Mul", s, m.constant(scale)))
    y = m.node("Add", y, m.weight(F))
    bound = step / 2 * np.abs(real).sum(axis=0).max()
    q, scale, zero = quantise(rng.standard_normal((D, F)), axis=1, signed=True)
    real = (q.astype(float) - zero) * scale
    w = m.node("DynamicQuantizeMatMul", x, m.constant(q), m.constant(scale), m.constant(zero), m.weight(F), domain=MS)
    bound += step / 2 * np.abs(real).sum(axis=0).max()
    q, scale, zero = quantise(rng.standard_normal((D, F)))
    real = (q.astype(float) - zero) * scale
    bound += 0.01 / 2 * np.abs(real).sum(axis=0).max()
    a = m.node("QuantizeLinear", x, m.constant(np.float32(0.01)), m.constant(np.uint8(128)))
    y2 = np.abs(real).sum(axis=0).max()
    out = np.float32(2 * y2 / 255)
    bound += out / 2
    p = m.node("QLinearMatMul", a, m.constant(np.float32(0.01)), m.constant(np.uint8(128)), m.constant(q),
               m.constant(scale), m.constant(zero), m.constant(out), m.constant(np.uint8(128)))
    p = m.node("DequantizeLinear", p, m.constant(out), m.constant(np.uint8(128)))
    m.node("Add", m.node("Add", y, w), p)
    m.write(folder, "rounded", ["input_ids"], "last_hidden_state", F,
            {"bound": np.array([bound], np.float32)})


def angles(rows, width, theta, stretch=lambda angle: angle):
    """Cosines and sines [rows, width / 2] of rotary positions, in float32."""
    turns = stretch(theta ** (-2 * np.arange(width // 2) / width))
    angle = np.outer(np.arange(rows), turns)
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)


def llama3(angle, factor=8, original=64, slow=1, fast=4):
    """Angles stretched as Llama 3.1 has them."""
    share = np.clip((original * angle / (2 * np.pi) - slow) / (fast - slow), 0, 1)
    return angle * share + angle / factor * (1 - share)


def lengths(m):
    """seqlens_k and total_sequence_length, as onnxruntime-genai computes them from the mask."""
    last = m.node("Sub", m.node("ReduceSum", "attention_mask", m.constant(np.array([1])), keepdims=0),
                  m.constant(np.array([1])))
    total = m.node("Gather", m.node("Shape", "attention_mask"), m.constant(np.array(1)), axis=0)
    return m.node("Cast", last, to=TensorProto.INT32), m.node("Cast", total, to=TensorProto.INT32)


def gated(m, x, width):
    """A feed-forward unit with a gate, as Llama has it."""
    gate = m.node("MatMul", x, m.weight(width, F))
    gate = m.node("Mul", gate, m.node("Sigmoid", gate))
    return m.node("MatMul", m.node("Mul", gate, m.node("MatMul", x, m.weight(width, F))), m.weight(F, width))


def decoder(folder, name, width, layers):
    """A decoder as onnxruntime-genai writes Llama: `layers` say what each layer's attention is made of."""
    m = Maker()
    x = m.node("Gather", m.weight(V, width), "input_ids")
    last, total = lengths(m)
    y = m.node("SimplifiedLayerNormalization", x, m.weight(width), epsilon=1e-3, axis=-1)
    for attention in layers:
        y = attention(m, y, last, total)
        y, _, _, x = m.node("SkipSimplifiedLayerNormalization", x, y, m.weight(width), outputs=4, domain=MS, epsilon=1e-3)
        y = gated(m, y, width)
        y, _, _, x = m.node("SkipSimplifiedLayerNormalization", x, y, m.weight(width), outputs=4, domain=MS, epsilon=1e-3)
    m.node("MatMul", y, m.weight(width, V))
    m.write(folder, name, ["input_ids", "attention_mask"], "logits", V,
            {"attention_mask": np.ones((N, T), np.int64)})


def grouped(width, heads, groups, table, packed, turned=True, each=16, normed=False, **attributes):
    """GroupQueryAttention that turns queries and keys itself, or gets them turned. onnxruntime asks for
    heads whose width `each` is a multiple of 16."""

    def make(m, y, last, total):
        cosine, sine = (m.constant(part) for part in table)
        sizes = (heads * each, groups * each, groups * each)
        if packed:
            q = m.node("Add", m.node("MatMul", y, m.weight(width, sum(sizes))), m.weight(sum(sizes)))
            k = v = ""
        else:
            q, k, v = (m.node("MatMul", y, m.weight(width, size)) for size in sizes)
        if normed:
            q, k = (m.node("Reshape", m.node(
                "SimplifiedLayerNormalization", m.node("Reshape", part, m.constant(np.array([0, -1, each]))),
                m.weight(each), epsilon=1e-3, axis=-1), m.constant(np.array([0, -1, count * each])))
                for part, count in ((q, heads), (k, groups)))
        if not turned:
            start = m.constant(np.array([0]))
            q, k = (m.node("RotaryEmbedding", part, start, cosine, sine, domain=MS,
                           num_heads=0 if 2 * table[0].shape[1] == each else count,
                           rotary_embedding_dim=0 if 2 * table[0].shape[1] == each else 2 * table[0].shape[1])
                    for part, count in ((q, heads), (k, groups)))
            cosine = sine = ""
        y = m.node("GroupQueryAttention", q, k, v, "", "", last, total, cosine, sine, outputs=3, domain=MS,
                   num_heads=heads, kv_num_heads=groups, do_rotary=int(turned), **attributes)[0]
        return m.node("MatMul", y, m.weight(heads * each, width))
    return make


def grouped_llama(folder):
    """Grouped queries, apart and from one matrix; angles as they are, and those of Llama 3.1."""
    decoder(folder, "grouped_llama", 16, [
        grouped(16, 2, 1, angles(40, 16, 20, llama3), packed=True, scale=0.4),
        grouped(16, 4, 2, angles(40, 16, 500), packed=False)])


def grouped_near(folder):
    """Near tokens alone, scores with a cap, heads turned in part before the attention."""
    decoder(folder, "grouped_near", 16, [
        grouped(16, 2, 2, angles(40, 16, 100), packed=False, each=32, local_window_size=2),
        grouped(16, 2, 1, angles(40, 8, 100), packed=False, turned=False, softcap=0.7)])


def normed_heads(folder):
    """Norms of each head of queries and keys, as onnxruntime-genai writes Qwen3."""
    decoder(folder, "normed_heads", 16, [grouped(16, 2, 1, angles(40, 16, 100), packed=False, normed=True)])


def masked_heads(folder):
    """MultiHeadAttention whose attention_bias forbids later tokens."""
    m = Maker()
    x = embed(m)
    count = m.node("Gather", m.node("Shape", "input_ids"), m.constant(np.array(1)), axis=0)
    key = m.node("Range", m.constant(np.array(0)), count, m.constant(np.array(1)))
    later = m.node("Less", m.node("Unsqueeze", key, m.constant(np.array([1]))), key)
    bias = m.node("Where", later, m.constant(np.float32(-1e9)), m.constant(np.float32(0)))
    bias = m.node("Unsqueeze", bias, m.constant(np.array([0, 1])))
    q, k, v = (m.node("MatMul", x, m.weight(D, D)) for _ in range(3))
    y = m.node("MultiHeadAttention", q, k, v, "", "", bias, domain=MS, num_heads=H)
    x = m.node("Add", x, m.node("MatMul", y, m.weight(D, D)))
    m.node("MatMul", x, m.weight(D, V))
    m.write(folder, "masked_heads", ["input_ids"], "logits", V)


def few_bits(folder):
    """MatMulNBits with a bias and zero points that are real numbers."""
    m = Maker()
    block = 16
    blocks = -(-D // block)
    packed = rng.integers(0, 256, (F, blocks, block // 2)).astype(np.uint8)
    scales = (rng.random(F * blocks) * 0.2).astype(np.float32)
    zeros = (rng.random(F * blocks) * 15).astype(np.float32)
    m.node("MatMulNBits", embed(m), m.constant(packed), m.constant(scales), m.constant(zeros), "", m.weight(F),
           domain=MS, K=D, N=F, bits=4, block_size=block)
    m.write(folder, "few_bits", ["input_ids"], "last_hidden_state", F)


for make in (fused_bert, fused_causal, dense, weights_only, rounded, grouped_llama, grouped_near, few_bits,
             masked_heads, normed_heads):
    make(sys.argv[1])
