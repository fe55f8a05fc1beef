#!/usr/bin/python3
"""Reference tensors of the decoders in Llama's form (Debian package python3-torch).

    make_decoders.py [NAME ...]     write all folders, or these

Each folder has config.json, model.safetensors (float32), reference.safetensors (input_ids, and what
is computed from them in float64) and gradients.safetensors (of the loss, by weight). The formulas are
written from the papers: Jiang et al. 2023 (a window over the last W tokens), Qwen2 and Qwen3 technical
reports, Gemma and Gemma 2 technical reports, Phi-3 report, Chen et al. 2023 (linear), Llama 3.1 and
Peng et al. 2023 (YaRN) for stretched rotary positions. Rotations are complex products, windows and
scores are looked at pair by pair of query and key.
"""
import json
import math
import pathlib
import struct
import sys

import torch
import torch.nn.functional as F

HERE = pathlib.Path(__file__).resolve().parent
TYPES = {torch.float32: ("F32", 4), torch.int64: ("I64", 8)}


def write_safetensors(path, tensors):
    header, blobs, offset = {}, [], 0
    for name in sorted(tensors, key=lambda n: (tensors[n].is_floating_point(), n)):
        tensor = tensors[name].detach().contiguous()
        tensor = tensor.float() if tensor.is_floating_point() else tensor
        blob = tensor.numpy().tobytes()
        header[name] = {"dtype": TYPES[tensor.dtype][0], "shape": list(tensor.shape),
                        "data_offsets": [offset, offset + len(blob)]}
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))


# ---------------------------------------------------------------- formulas


def rms_norm(x, weight, eps, unit):
    return x / torch.sqrt(x.square().mean(-1, keepdim=True) + eps) * (1 + weight if unit else weight)


def stretched(config, dim):
    """What each pair of a head turns by from one token to the next, and the factor of what is turned."""
    theta = config.get("rope_theta", 10000.0)
    scaling = config.get("rope_scaling") or {}
    if "rope_parameters" in config:
        scaling, theta = config["rope_parameters"], config["rope_parameters"]["rope_theta"]
    kind, pairs = scaling.get("rope_type", scaling.get("type", "default")), dim // 2
    plain = [theta ** (-2 * j / dim) for j in range(pairs)]
    if kind == "default":
        return plain, 1.0
    s = scaling["factor"]
    if kind == "linear":
        return [f / s for f in plain], 1.0
    length = scaling["original_max_position_embeddings"]
    out = []
    if kind == "llama3":
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        for f in plain:
            wave = 2 * math.pi / f
            if wave > length / low:
                out.append(f / s)
            elif wave < length / high:
                out.append(f)
            else:
                smooth = (length / wave - low) / (high - low)
                out.append((1 - smooth) * f / s + smooth * f)
        return out, 1.0
    assert kind == "yarn"

    def dimension(rotations):  # where a pair turns so often within the original length
        return dim * math.log(length / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low, high = dimension(scaling.get("beta_fast", 32)), dimension(scaling.get("beta_slow", 1))
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    for j, f in enumerate(plain):
        ramp = min(max((j - low) / ((high - low) or 0.001), 0), 1)
        out.append(f / s * ramp + f * (1 - ramp))
    mscale = lambda m: 1.0 if s <= 1 else 0.1 * m * math.log(s) + 1
    if "attention_factor" in scaling:
        return out, scaling["attention_factor"]
    if scaling.get("mscale") and scaling.get("mscale_all_dim"):
        return out, mscale(scaling["mscale"]) / mscale(scaling["mscale_all_dim"])
    return out, mscale(1)


def rotate(x, config):
    """[N, heads, T, d]: numbers j and j + r/2 of the first r of a head turn together, as one complex number."""
    r = int(x.shape[-1] * config.get("partial_rotary_factor", 1.0))
    angles, amplitude = stretched(config, r)
    phase = torch.arange(x.shape[-2], dtype=x.dtype)[:, None] * torch.tensor(angles, dtype=x.dtype)
    z = torch.complex(x[..., : r // 2].contiguous(), x[..., r // 2 : r].contiguous())
    z = z * torch.polar(torch.full_like(phase, amplitude), phase)
    return torch.cat([z.real, z.imag, x[..., r:]], -1)


def window_of(config, layer):
    """Tokens that a query sees, itself one of them; None = all."""
    kind, size = config["model_type"], config.get("sliding_window")
    if "layer_types" in config:
        return size if config["layer_types"][layer] == "sliding_attention" else None
    if kind in ("mistral", "phi3"):
        return size
    if kind in ("qwen2", "qwen3"):
        return size if config["use_sliding_window"] and layer >= config["max_window_layers"] else None
    return size if kind == "gemma2" and layer % 2 == 0 else None


def sees(length, window):
    return torch.tensor([[k <= q and (window is None or q - k < window) for k in range(length)]
                         for q in range(length)])


def compute(config, w, ids):
    gemma = config["model_type"].startswith("gemma")
    around = config["model_type"] == "gemma2"
    heads, groups, eps = config["num_attention_heads"], config["num_key_value_heads"], config["rms_norm_eps"]
    width = config.get("head_dim", config["hidden_size"] // heads)
    norm = lambda x, name: rms_norm(x, w[name + ".weight"], eps, gemma)
    linear = lambda x, name: F.linear(x, w[name + ".weight"], w.get(name + ".bias"))
    act = {"silu": F.silu, "gelu_pytorch_tanh": lambda x: 0.5 * x * (
        1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))}[
        config.get("hidden_activation") or config["hidden_act"]]
    x = w["model.embed_tokens.weight"][ids]
    if gemma:
        x = x * math.sqrt(config["hidden_size"])
    out = {"hidden_states.0": x}
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}."
        y = norm(x, at + "input_layernorm")
        if config["model_type"] == "phi3":
            q, k, v = linear(y, at + "self_attn.qkv_proj").split([heads * width, groups * width, groups * width], -1)
        else:
            q, k, v = (linear(y, at + f"self_attn.{n}_proj") for n in "qkv")
        q, k, v = (t.unflatten(-1, (-1, width)).transpose(1, 2) for t in (q, k, v))
        if config["model_type"] == "qwen3":
            q, k = norm(q, at + "self_attn.q_norm"), norm(k, at + "self_attn.k_norm")
        q, k = rotate(q, config), rotate(k, config)
        k, v = (t.repeat_interleave(heads // groups, 1) for t in (k, v))
        scores = q @ k.transpose(-1, -2) / math.sqrt(config.get("query_pre_attn_scalar", width))
        cap = config.get("attn_logit_softcapping")
        scores = cap * torch.tanh(scores / cap) if cap else scores
        scores = scores.masked_fill(~sees(ids.shape[1], window_of(config, i)), -math.inf)
        y = linear((scores.softmax(-1) @ v).transpose(1, 2).flatten(2), at + "self_attn.o_proj")
        x = x + (norm(y, at + "post_attention_layernorm") if around else y)
        y = norm(x, at + ("pre_feedforward_layernorm" if around else "post_attention_layernorm"))
        if config["model_type"] == "phi3":
            gate, up = linear(y, at + "mlp.gate_up_proj").chunk(2, -1)
        else:
            gate, up = linear(y, at + "mlp.gate_proj"), linear(y, at + "mlp.up_proj")
        y = linear(act(gate) * up, at + "mlp.down_proj")
        x = x + (norm(y, at + "post_feedforward_layernorm") if around else y)
        out[f"hidden_states.{i + 1}"] = x
    out["last_block_output"] = x
    x = norm(x, "model.norm")
    out[f"hidden_states.{config['num_hidden_layers']}"] = x
    head = w["model.embed_tokens.weight"] if config["tie_word_embeddings"] else w["lm_head.weight"]
    logits = F.linear(x, head)
    cap = config.get("final_logit_softcapping")
    out["logits"] = cap * torch.tanh(logits / cap) if cap else logits
    out["loss"] = F.cross_entropy(out["logits"][:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    return out


# ---------------------------------------------------------------- weights


def draw(config, seed):
    """Spreads are wide, biases and norms far from 0 and 1, so that a mix-up shows."""
    generator = torch.Generator().manual_seed(seed)
    w, kind = {}, config["model_type"]

    def tensor(name, *shape, std=0.25, mean=0.0):
        w[name] = (mean + std * torch.randn(shape, generator=generator, dtype=torch.float64)).float()

    def linear(name, n_in, n_out, bias=False):
        tensor(name + ".weight", n_out, n_in)
        if bias:
            tensor(name + ".bias", n_out)

    D, H, G = config["hidden_size"], config["num_attention_heads"], config["num_key_value_heads"]
    d, M = config.get("head_dim", D // H), config["intermediate_size"]
    norm = lambda name, n: tensor(name + ".weight", n, mean=0.0 if kind.startswith("gemma") else 1.0)
    bias = kind == "qwen2" or config.get("attention_bias", False)
    tensor("model.embed_tokens.weight", config["vocab_size"], D, std=0.1 if kind.startswith("gemma") else 0.4)
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}."
        norm(at + "input_layernorm", D)
        if kind == "phi3":
            linear(at + "self_attn.qkv_proj", D, (H + 2 * G) * d)
            linear(at + "mlp.gate_up_proj", D, 2 * M)
        else:
            for name, n in (("q", H * d), ("k", G * d), ("v", G * d)):
                linear(at + f"self_attn.{name}_proj", D, n, bias)
            linear(at + "mlp.gate_proj", D, M)
            linear(at + "mlp.up_proj", D, M)
        if kind == "qwen3":
            norm(at + "self_attn.q_norm", d)
            norm(at + "self_attn.k_norm", d)
        linear(at + "self_attn.o_proj", H * d, D, bias and kind != "qwen2")
        norm(at + "post_attention_layernorm", D)
        if kind == "gemma2":
            norm(at + "pre_feedforward_layernorm", D)
            norm(at + "post_feedforward_layernorm", D)
        linear(at + "mlp.down_proj", M, D)
    norm("model.norm", D)
    if not config["tie_word_embeddings"]:
        linear("lm_head", D, config["vocab_size"])
    return w


# ---------------------------------------------------------------- folders

NAMES = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3", "gemma": "Gemma",
         "gemma2": "Gemma2", "phi3": "Phi3"}


def config_of(kind, **more):
    base = {"architectures": [NAMES[kind] + "ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1,
            "eos_token_id": 2, "hidden_act": "silu", "initializer_range": 0.02, "max_position_embeddings": 64,
            "model_type": kind, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "tie_word_embeddings": False,
            "torch_dtype": "float32", "use_cache": True}
    return {**base, **more}


def sizes(width, layers, heads, groups, hidden, vocabulary):
    return {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads,
            "num_key_value_heads": groups, "intermediate_size": hidden, "vocab_size": vocabulary}


GEMMA2 = {"hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh", "attention_bias": False,
          "tie_word_embeddings": True, "rms_norm_eps": 1e-06}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 3.0,
        "beta_slow": 0.5}

# name: configuration, samples and tokens
CASES = {
    "mistral": (config_of("mistral", **sizes(18, 2, 3, 1, 22, 23), sliding_window=4), 2, 11),
    "mistral_wide": (config_of("mistral", **sizes(20, 3, 4, 2, 14, 17), head_dim=6, sliding_window=9,
                               rope_scaling={"type": "linear", "factor": 2.5}), 3, 7),
    "qwen2": (config_of("qwen2", **sizes(20, 3, 5, 5, 26, 19), use_sliding_window=True, sliding_window=3,
                        max_window_layers=1, rope_theta=1000000.0), 2, 9),
    "qwen2_yarn": (config_of("qwen2", **sizes(24, 2, 3, 1, 14, 21), use_sliding_window=False, sliding_window=2,
                             max_window_layers=0, tie_word_embeddings=True, rope_scaling=YARN), 1, 23),
    "qwen3": (config_of("qwen3", **sizes(18, 2, 3, 1, 22, 23), head_dim=10, attention_bias=False,
                        use_sliding_window=False, sliding_window=None, max_window_layers=2), 2, 11),
    "qwen3_window": (config_of("qwen3", **sizes(14, 3, 4, 2, 10, 17), head_dim=4, attention_bias=True,
                               use_sliding_window=True, sliding_window=5, max_window_layers=0,
                               layer_types=["full_attention", "sliding_attention", "full_attention"],
                               tie_word_embeddings=True), 1, 13),
    "gemma": (config_of("gemma", **{**sizes(18, 2, 3, 1, 22, 23), **GEMMA2}, head_dim=8), 2, 11),
    "gemma_bias": (config_of("gemma", **{**sizes(14, 2, 2, 2, 18, 19), **GEMMA2, "attention_bias": True},
                             head_dim=6, rope_scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                                                       "high_freq_factor": 4.0,
                                                       "original_max_position_embeddings": 32}), 1, 9),
    "gemma2": (config_of("gemma2", **{**sizes(18, 3, 4, 2, 22, 23), **GEMMA2}, head_dim=6, sliding_window=4,
                         query_pre_attn_scalar=9, attn_logit_softcapping=2.0, final_logit_softcapping=3.0), 2, 11),
    "gemma2_plain": (config_of("gemma2", **{**sizes(14, 2, 3, 3, 18, 19), **GEMMA2}, head_dim=10, sliding_window=2,
                               query_pre_attn_scalar=10, attn_logit_softcapping=None, final_logit_softcapping=1.5,
                               layer_types=["full_attention", "sliding_attention"]), 1, 9),
    "phi3": (config_of("phi3", **sizes(18, 2, 3, 1, 22, 23), resid_pdrop=0.0, embd_pdrop=0.0, sliding_window=None,
                       original_max_position_embeddings=64, rope_scaling=None), 2, 11),
    "phi3_partial": (config_of("phi3", **sizes(32, 2, 4, 2, 14, 17), resid_pdrop=0.0, embd_pdrop=0.0,
                               sliding_window=5, original_max_position_embeddings=64, partial_rotary_factor=0.5,
                               tie_word_embeddings=True), 1, 13),
    "llama_yarn": (config_of("llama", **sizes(20, 2, 2, 1, 14, 17), attention_bias=False, mlp_bias=False,
                             rope_scaling={**YARN, "truncate": False, "mscale": 0.7, "mscale_all_dim": 1.2}), 1, 21),
    "llama_v5": (config_of("llama", **sizes(16, 2, 2, 2, 14, 17), attention_bias=False, mlp_bias=False,
                           rope_parameters={"rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0,
                                            "low_freq_factor": 1.0, "high_freq_factor": 3.0,
                                            "original_max_position_embeddings": 20}), 1, 9),
}


def parts_of(config, name, tensor):
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
    d = config.get("head_dim", config["hidden_size"] // heads)
    if "qkv_proj" in name:
        parts = tensor.split([heads * d, groups * d, groups * d])
        return {name.replace("qkv_proj", n + "_proj"): part for n, part in zip("qkv", parts)}
    if "gate_up_proj" in name:
        return {name.replace("gate_up", n): part for n, part in zip(("gate", "up"), tensor.chunk(2))}
    return {name: tensor}


def main():
    for seed, (name, (config, samples, tokens)) in enumerate(CASES.items()):
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        if "rope_parameters" in config:
            del config["rope_theta"]
        folder = HERE / name
        folder.mkdir(exist_ok=True)
        stored = draw(config, 8100 + seed)
        generator = torch.Generator().manual_seed(8200 + seed)
        ids = torch.randint(0, config["vocab_size"], (samples, tokens), generator=generator)
        w = {key: value.double().requires_grad_() for key, value in stored.items()}
        out = compute(config, w, ids)
        out["loss"].backward()
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        write_safetensors(folder / "model.safetensors", stored)
        write_safetensors(folder / "reference.safetensors", {"input_ids": ids, **out})
        gradients = {}
        for key, value in w.items():  # of the parts of a joined matrix one by one
            gradients.update(parts_of(config, "grad." + key, value.grad))
        write_safetensors(folder / "gradients.safetensors", gradients)


main()
