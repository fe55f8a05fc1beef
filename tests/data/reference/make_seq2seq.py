#!/usr/bin/python3
"""Reference models t5, t5_gated, bart, bart_scaled, dinov2 and dinov2_features, as README.md describes the folders:
random weights, inputs, and what the published definitions give for them in float64, with gradients by autograd.

    make_seq2seq.py [NAME ...]      writes the folders beside this file (Debian's python3-torch)

Written from the definitions: T5, Raffel et al., 2020, with the gated blocks of Shazeer, 2020; BART, Lewis et al., 2020;
DINOv2, Oquab et al., 2023, with the scale of Touvron et al., 2021. Tensors and keys are named as in transformers.
"""
import json
import math
import pathlib
import struct
import sys

import numpy
import torch
import torch.nn.functional as F

HERE = pathlib.Path(__file__).resolve().parent


# ---- files


def write(path, tensors):
    """Floats as F32, integers as I64, integers first."""
    header, blobs, at = {"__metadata__": {"format": "pt"}}, [], 0
    for name in sorted(tensors, key=lambda n: (tensors[n].is_floating_point(), n)):
        real = tensors[name].is_floating_point()
        blob = tensors[name].detach().numpy().astype("<f4" if real else "<i8").tobytes()
        header[name] = {
            "dtype": "F32" if real else "I64",
            "shape": list(tensors[name].shape),
            "data_offsets": [at, at + len(blob)],
        }
        blobs.append(blob)
        at += len(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))


class Weights(dict):
    """Name -> float64 tensor whose values are those of float32; biases and norms far from 0 and 1."""

    def __init__(self, seed):
        super().__init__()
        self.generator = torch.Generator().manual_seed(seed)

    def add(self, name, *shape, std=0.3, mean=0.0):
        value = mean + std * torch.randn(shape, generator=self.generator, dtype=torch.float64)
        self[name] = value.float().double().requires_grad_(True)

    def linear(self, name, inputs, outputs, bias=True):
        self.add(name + ".weight", outputs, inputs)
        if bias:
            self.add(name + ".bias", outputs)

    def norm(self, name, width, bias=True):
        self.add(name + ".weight", width, mean=1.0)
        if bias:
            self.add(name + ".bias", width)

    def integers(self, low, high, *shape):
        return torch.randint(low, high, shape, generator=self.generator)

    def apply(self, name, x):
        return F.linear(x, self[name + ".weight"], self.get(name + ".bias"))

    def layer_norm(self, name, x, eps):
        mean = x.mean(-1, keepdim=True)
        variance = ((x - mean) ** 2).mean(-1, keepdim=True)
        return (x - mean) / torch.sqrt(variance + eps) * self[name + ".weight"] + self[name + ".bias"]

    def rms_norm(self, name, x, eps):
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * self[name + ".weight"]


def attend(q, k, v, heads, scale, bias, allowed):
    """softmax(scale q k^T + bias) v for each head; `allowed` [N, 1 or T, S] says which keys count."""

    def split(x):
        return x.reshape(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)

    scores = scale * split(q) @ split(k).transpose(2, 3)
    if bias is not None:
        scores = scores + bias
    if allowed is not None:
        scores = scores.masked_fill(~allowed[:, None], -math.inf)
    y = torch.softmax(scores, -1) @ split(v)
    return y.transpose(1, 2).reshape(q.shape[0], q.shape[1], -1)


ACTIVATIONS = {
    "relu": torch.relu,
    "gelu": lambda x: 0.5 * x * (1 + torch.erf(x / math.sqrt(2))),
    "gelu_new": lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
}


def causal(length):
    return torch.ones(1, length, length, dtype=torch.bool).tril()


def sequence_inputs(w, vocabulary, pad, start, source, target, counts):
    """Sources of which the second is shorter; targets shifted by one token; labels -100 where nothing counts."""
    mask = (torch.arange(source)[None, :] < torch.tensor(counts)[:, None]).long()
    n = len(counts)
    labels = w.integers(2, vocabulary, n, target)
    ids = torch.where(mask == 1, w.integers(2, vocabulary, n, source), torch.tensor(pad))
    decoder = torch.cat([torch.full((n, 1), start), labels[:, :-1]], 1)
    labels[1, target - 2 :] = -100
    return {"input_ids": ids, "attention_mask": mask, "decoder_input_ids": decoder, "labels": labels}


def token_loss(logits, labels):
    picked = torch.log_softmax(logits, -1).gather(-1, labels.clamp(min=0)[..., None])[..., 0]
    return -picked[labels >= 0].mean()


# ---- T5


def t5_bucket(offset, both_sides, buckets, distance):
    """Bucket of a key that stands `offset` after its query."""
    first = 0
    if both_sides:
        buckets //= 2
        first = buckets if offset > 0 else 0
        n = abs(offset)
    else:
        n = max(-offset, 0)
    exact = buckets // 2
    if n < exact:
        return first + n
    far = exact + int(numpy.float32(math.log(n / exact) / math.log(distance / exact)) * (buckets - exact))
    return first + min(far, buckets - 1)


def t5_bias(c, w, side, length):
    table = w[f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"]
    arguments = (side == "encoder", c["relative_attention_num_buckets"], c["relative_attention_max_distance"])
    rows = [[t5_bucket(j - i, *arguments) for j in range(length)] for i in range(length)]
    return table[torch.tensor(rows)].permute(2, 0, 1)[None]


def t5_stack(c, w, side, ids, allowed, memory, memory_mask, outputs):
    eps = c["layer_norm_epsilon"]
    gated = c["feed_forward_proj"].startswith("gated-")
    act = ACTIVATIONS["gelu_new" if gated else c["feed_forward_proj"]]
    x = w["shared.weight"][ids]
    bias = t5_bias(c, w, side, ids.shape[1])
    layers = c["num_layers"] if side == "encoder" else c["num_decoder_layers"]
    outputs[f"{side}_hidden_states.0"] = x
    for i in range(layers):
        block = f"{side}.block.{i}.layer."
        y = w.rms_norm(block + "0.layer_norm", x, eps)
        q, k, v = (w.apply(block + "0.SelfAttention." + n, y) for n in "qkv")
        x = x + w.apply(block + "0.SelfAttention.o", attend(q, k, v, c["num_heads"], 1, bias, allowed))
        place = 1
        if side == "decoder":
            y = w.rms_norm(block + "1.layer_norm", x, eps)
            q = w.apply(block + "1.EncDecAttention.q", y)
            k, v = (w.apply(block + "1.EncDecAttention." + n, memory) for n in "kv")
            x = x + w.apply(block + "1.EncDecAttention.o", attend(q, k, v, c["num_heads"], 1, None, memory_mask))
            place = 2
        y = w.rms_norm(f"{block}{place}.layer_norm", x, eps)
        name = f"{block}{place}.DenseReluDense."
        y = act(w.apply(name + "wi_0", y)) * w.apply(name + "wi_1", y) if gated else act(w.apply(name + "wi", y))
        x = x + w.apply(name + "wo", y)
        outputs[f"{side}_hidden_states.{i + 1}"] = x
    return w.rms_norm(f"{side}.final_layer_norm", x, eps)


def t5_compute(c, w, inputs):
    outputs = {}
    source = inputs["attention_mask"].bool()[:, None]
    memory = t5_stack(c, w, "encoder", inputs["input_ids"], source, None, None, outputs)
    outputs["encoder_last_hidden_state"] = memory
    length = inputs["decoder_input_ids"].shape[1]
    y = t5_stack(c, w, "decoder", inputs["decoder_input_ids"], causal(length), memory, source, outputs)
    outputs["last_hidden_state"] = y
    if c["tie_word_embeddings"]:
        outputs["logits"] = (y * c["d_model"] ** -0.5) @ w["shared.weight"].T
    else:
        outputs["logits"] = w.apply("lm_head", y)
    outputs["loss"] = token_loss(outputs["logits"], inputs["labels"])
    return outputs


def t5_weights(c, w):
    width, wide = c["d_model"], c["num_heads"] * c["d_kv"]
    gated = c["feed_forward_proj"].startswith("gated-")
    w.add("shared.weight", c["vocab_size"], width, std=1.0)
    for side, layers in (("encoder", c["num_layers"]), ("decoder", c["num_decoder_layers"])):
        table = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        w.add(table, c["relative_attention_num_buckets"], c["num_heads"], std=1.0)
        for i in range(layers):
            blocks = ["SelfAttention", "EncDecAttention", "DenseReluDense"]
            if side == "encoder":
                del blocks[1]
            for place, kind in enumerate(blocks):
                name = f"{side}.block.{i}.layer.{place}."
                w.norm(name + "layer_norm", width, bias=False)
                if kind == "DenseReluDense":
                    for part in ("wi_0", "wi_1") if gated else ("wi",):
                        w.linear(name + kind + "." + part, width, c["d_ff"], bias=False)
                    w.linear(name + kind + ".wo", c["d_ff"], width, bias=False)
                else:
                    for part in "qkv":
                        w.linear(name + kind + "." + part, width, wide, bias=False)
                    w.linear(name + kind + ".o", wide, width, bias=False)
        w.norm(side + ".final_layer_norm", width, bias=False)
    if not c["tie_word_embeddings"]:
        w.linear("lm_head", width, c["vocab_size"], bias=False)


def t5(**changes):
    c = {
        "architectures": ["T5ForConditionalGeneration"],
        "d_ff": 18,
        "d_kv": 5,
        "d_model": 12,
        "decoder_start_token_id": 0,
        "dropout_rate": 0.1,
        "eos_token_id": 1,
        "feed_forward_proj": "relu",
        "initializer_factor": 1.0,
        "is_encoder_decoder": True,
        "layer_norm_epsilon": 1e-06,
        "model_type": "t5",
        "n_positions": 512,
        "num_decoder_layers": 2,
        "num_heads": 3,
        "num_layers": 2,
        "output_past": True,
        "pad_token_id": 0,
        "relative_attention_max_distance": 9,
        "relative_attention_num_buckets": 7,
        "tie_word_embeddings": True,
        "use_cache": True,
        "vocab_size": 23,
        **changes,
    }
    w = Weights(sum(map(ord, c["feed_forward_proj"])))
    t5_weights(c, w)
    return c, w, sequence_inputs(w, c["vocab_size"], 0, 0, 13, 11, [13, 6]), t5_compute


# ---- BART


def bart_stack(c, w, side, ids, allowed, memory, memory_mask, outputs):
    heads, name = c[side + "_attention_heads"], f"model.{side}."
    scale = (c["d_model"] // heads) ** -0.5
    act = ACTIVATIONS[c["activation_function"]]
    x = w["model.shared.weight"][ids] * (math.sqrt(c["d_model"]) if c["scale_embedding"] else 1)
    x = x + w[name + "embed_positions.weight"][2 : 2 + ids.shape[1]]
    x = w.layer_norm(name + "layernorm_embedding", x, 1e-5)
    outputs[f"{side}_hidden_states.0"] = x
    for i in range(c[side + "_layers"]):
        layer = f"{name}layers.{i}."

        def block(kind, y, keys, mask):
            q = w.apply(layer + kind + ".q_proj", y)
            k, v = (w.apply(f"{layer}{kind}.{n}_proj", keys) for n in "kv")
            y = y + w.apply(layer + kind + ".out_proj", attend(q, k, v, heads, scale, None, mask))
            return w.layer_norm(f"{layer}{kind}_layer_norm", y, 1e-5)

        x = block("self_attn", x, x, allowed)
        if side == "decoder":
            x = block("encoder_attn", x, memory, memory_mask)
        x = x + w.apply(layer + "fc2", act(w.apply(layer + "fc1", x)))
        x = w.layer_norm(layer + "final_layer_norm", x, 1e-5)
        outputs[f"{side}_hidden_states.{i + 1}"] = x
    return x


def bart_compute(c, w, inputs):
    outputs = {}
    source = inputs["attention_mask"].bool()[:, None]
    memory = bart_stack(c, w, "encoder", inputs["input_ids"], source, None, None, outputs)
    outputs["encoder_last_hidden_state"] = memory
    length = inputs["decoder_input_ids"].shape[1]
    y = bart_stack(c, w, "decoder", inputs["decoder_input_ids"], causal(length), memory, source, outputs)
    outputs["last_hidden_state"] = y
    outputs["logits"] = y @ w["model.shared.weight"].T + w["final_logits_bias"]
    outputs["loss"] = token_loss(outputs["logits"], inputs["labels"])
    return outputs


def bart_weights(c, w):
    width = c["d_model"]
    w.add("model.shared.weight", c["vocab_size"], width)
    w.add("final_logits_bias", 1, c["vocab_size"])
    for side in ("encoder", "decoder"):
        w.add(f"model.{side}.embed_positions.weight", c["max_position_embeddings"] + 2, width)
        w.norm(f"model.{side}.layernorm_embedding", width)
        for i in range(c[side + "_layers"]):
            layer = f"model.{side}.layers.{i}."
            for kind in ("self_attn", "encoder_attn")[: 1 if side == "encoder" else 2]:
                for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
                    w.linear(f"{layer}{kind}.{part}", width, width)
                w.norm(f"{layer}{kind}_layer_norm", width)
            w.linear(layer + "fc1", width, c[side + "_ffn_dim"])
            w.linear(layer + "fc2", c[side + "_ffn_dim"], width)
            w.norm(layer + "final_layer_norm", width)


def bart(**changes):
    c = {
        "activation_dropout": 0.0,
        "activation_function": "gelu",
        "architectures": ["BartForConditionalGeneration"],
        "attention_dropout": 0.0,
        "bos_token_id": 0,
        "classifier_dropout": 0.0,
        "d_model": 10,
        "decoder_attention_heads": 5,
        "decoder_ffn_dim": 14,
        "decoder_layerdrop": 0.0,
        "decoder_layers": 2,
        "decoder_start_token_id": 2,
        "dropout": 0.1,
        "encoder_attention_heads": 2,
        "encoder_ffn_dim": 17,
        "encoder_layerdrop": 0.0,
        "encoder_layers": 2,
        "eos_token_id": 2,
        "forced_eos_token_id": 2,
        "init_std": 0.02,
        "is_encoder_decoder": True,
        "max_position_embeddings": 13,
        "model_type": "bart",
        "num_hidden_layers": 2,
        "pad_token_id": 1,
        "scale_embedding": False,
        "use_cache": True,
        "vocab_size": 21,
        **changes,
    }
    w = Weights(7 + c["scale_embedding"])
    bart_weights(c, w)
    return c, w, sequence_inputs(w, c["vocab_size"], 1, 2, 9, 7, [9, 5]), bart_compute


# ---- DINOv2


def dinov2_compute(c, w, inputs):
    prefix = "dinov2." if "classifier.weight" in w else ""
    width, heads, patch, eps = c["hidden_size"], c["num_attention_heads"], c["patch_size"], c["layer_norm_eps"]
    pixels, embed = inputs["pixel_values"], prefix + "embeddings."
    n = pixels.shape[0]
    kernel = w[embed + "patch_embeddings.projection.weight"]
    x = F.conv2d(pixels, kernel, w[embed + "patch_embeddings.projection.bias"], stride=patch)
    x = torch.cat([w[embed + "cls_token"].expand(n, 1, width), x.flatten(2).transpose(1, 2)], 1)
    x = x + w[embed + "position_embeddings"]
    outputs = {"hidden_states.0": x}
    for i in range(c["num_hidden_layers"]):
        layer = f"{prefix}encoder.layer.{i}."
        y = w.layer_norm(layer + "norm1", x, eps)
        q, k, v = (w.apply(layer + "attention.attention." + name, y) for name in ("query", "key", "value"))
        y = attend(q, k, v, heads, (width // heads) ** -0.5, None, None)
        x = x + w[layer + "layer_scale1.lambda1"] * w.apply(layer + "attention.output.dense", y)
        y = w.layer_norm(layer + "norm2", x, eps)
        y = w.apply(layer + "mlp.fc2", ACTIVATIONS[c["hidden_act"]](w.apply(layer + "mlp.fc1", y)))
        x = x + w[layer + "layer_scale2.lambda1"] * y
        outputs[f"hidden_states.{i + 1}"] = x
    x = outputs["last_hidden_state"] = w.layer_norm(prefix + "layernorm", x, eps)
    if not prefix:
        outputs["pooler_output"] = x[:, 0]
        outputs["loss"] = ((x[:, 0] - inputs["target"]) ** 2).mean()
        return outputs
    outputs["logits"] = w.apply("classifier", torch.cat([x[:, 0], x[:, 1:].mean(1)], 1))
    outputs["loss"] = -torch.log_softmax(outputs["logits"], -1)[torch.arange(n), inputs["labels"]].mean()
    return outputs


def dinov2(classes, **changes):
    c = {
        "architectures": ["Dinov2ForImageClassification" if classes else "Dinov2Model"],
        "attention_probs_dropout_prob": 0.0,
        "drop_path_rate": 0.0,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.0,
        "hidden_size": 9,
        "image_size": 6,
        "initializer_range": 0.02,
        "layer_norm_eps": 1e-06,
        "layerscale_value": 1.0,
        "mlp_ratio": 3,
        "model_type": "dinov2",
        "num_attention_heads": 3,
        "num_channels": 3,
        "num_hidden_layers": 2,
        "patch_size": 2,
        "qkv_bias": True,
        "use_swiglu_ffn": False,
        **changes,
    }
    if classes:
        c["id2label"] = {str(i): f"LABEL_{i}" for i in range(classes)}
        c["label2id"] = {f"LABEL_{i}": i for i in range(classes)}
    prefix = "dinov2." if classes else ""
    width, patch, side = c["hidden_size"], c["patch_size"], c["image_size"] // c["patch_size"]
    w = Weights(21 + classes)
    w.add(prefix + "embeddings.cls_token", 1, 1, width)
    w.add(prefix + "embeddings.position_embeddings", 1, side * side + 1, width)
    w.add(prefix + "embeddings.patch_embeddings.projection.weight", width, c["num_channels"], patch, patch)
    w.add(prefix + "embeddings.patch_embeddings.projection.bias", width)
    hidden = int(width * c["mlp_ratio"])
    for i in range(c["num_hidden_layers"]):
        layer = f"{prefix}encoder.layer.{i}."
        for part in ("query", "key", "value"):
            w.linear(layer + "attention.attention." + part, width, width, bias=c["qkv_bias"])
        w.linear(layer + "attention.output.dense", width, width)
        w.linear(layer + "mlp.fc1", width, hidden)
        w.linear(layer + "mlp.fc2", hidden, width)
        for part in "12":
            w.norm(layer + "norm" + part, width)
            w.add(layer + f"layer_scale{part}.lambda1", width, std=0.5)
    w.norm(prefix + "layernorm", width)
    generator = w.generator
    image = torch.randn(2, c["num_channels"], c["image_size"], c["image_size"], generator=generator)
    inputs = {"pixel_values": image.double()}
    if classes:
        w.linear("classifier", 2 * width, classes)
        inputs["labels"] = w.integers(0, classes, 2)
    else:
        inputs["target"] = torch.randn(2, width, generator=generator).double()
    return c, w, inputs, dinov2_compute


CASES = {
    "t5": lambda: t5(),
    "t5_gated": lambda: t5(
        feed_forward_proj="gated-gelu",
        tie_word_embeddings=False,
        num_decoder_layers=1,
        num_heads=2,
        d_kv=7,
        d_model=10,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=20,
    ),
    "bart": lambda: bart(),
    "bart_scaled": lambda: bart(
        scale_embedding=True, activation_function="relu", decoder_layers=1, encoder_attention_heads=1, d_model=15
    ),
    "dinov2": lambda: dinov2(5),
    "dinov2_features": lambda: dinov2(
        0, qkv_bias=False, num_channels=1, image_size=9, patch_size=3, hidden_size=10, num_attention_heads=2, mlp_ratio=2.5
    ),
}


def main():
    for name in sys.argv[1:] or CASES:
        c, w, inputs, compute = CASES[name]()
        outputs = compute(c, w, inputs)
        outputs["loss"].backward()
        folder = HERE / name
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps({**c, "torch_dtype": "float32"}, indent=2, sort_keys=True) + "\n")
        write(folder / "model.safetensors", w)
        write(folder / "reference.safetensors", {**inputs, **outputs})
        write(folder / "gradients.safetensors", {"grad." + n: t.grad for n, t in w.items()})
        size = sum(file.stat().st_size for file in folder.iterdir())
        print(f"{name}: {sum(t.numel() for t in w.values())} weights, {size} bytes")


if __name__ == "__main__":
    main()
