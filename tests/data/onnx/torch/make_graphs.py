"""Exports of PyTorch's own nn.TransformerEncoder and nn.MultiheadAttention, whose tokens stand
before the samples, and of encoder-decoders in the files that Hugging Face's exporter makes.

    python3 make_graphs.py FOLDER     writes NAME.onnx and NAME.safetensors

Needs PyTorch 1.13 (Debian's python3-torch). Outputs are what PyTorch computes in float64.
"""
import json
import math
import sys

import numpy as np
import torch
from torch import nn

N, T, S = 3, 5, 6


def save_tensors(path, tensors):
    kinds = {"int64": "I64", "float32": "F32"}
    header, at, body = {}, 0, b""
    for name, value in tensors.items():
        array = np.ascontiguousarray(value.numpy())
        if array.dtype == np.float64:
            array = array.astype(np.float32)
        data = array.tobytes()
        header[name] = {"dtype": kinds[str(array.dtype)], "shape": list(array.shape),
                        "data_offsets": [at, at + len(data)]}
        at += len(data)
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + body)


def draw(module, seed):
    torch.manual_seed(seed)
    for p in module.parameters():
        p.data = torch.randn(p.shape) * (0.4 if p.dim() > 1 else 0.2)
    for name, p in module.named_parameters():
        if "norm" in name and name.endswith("weight"):
            p.data += 1
    return module.eval()


def padding(n, t):
    return (torch.arange(t)[None] < torch.tensor([t, t - 2, t - 1])[:n, None]).long()


def export(path, module, inputs, output, axes, opset=14):
    torch.onnx.export(module, tuple(inputs.values()), path, input_names=list(inputs), output_names=[output],
                      dynamic_axes={name: dict(enumerate(axes[name])) for name in axes},
                      opset_version=opset, do_constant_folding=True)


def reference(module, inputs):
    module.double()
    out = module(*[x.double() if x.is_floating_point() else x for x in inputs.values()])
    module.float()
    return out.detach()


class Words(nn.Module):
    """Tokens before samples all the way, as nn.TransformerEncoder has them unless told otherwise."""

    def __init__(self, first):
        super().__init__()
        self.first = first
        self.words = nn.Embedding(13, 12)
        self.places = nn.Parameter(torch.zeros(9, 1, 12))
        layer = nn.TransformerEncoderLayer(12, 3, 20, 0.1, "gelu" if first else "relu", norm_first=first)
        self.encoder = nn.TransformerEncoder(layer, 1, nn.LayerNorm(12) if first else None,
                                             enable_nested_tensor=False)
        self.classifier = nn.Linear(12, 4)

    def forward(self, input_ids, attention_mask):
        x = self.words(input_ids).transpose(0, 1)
        x = x + self.places[: x.shape[0]]
        x = self.encoder(x, src_key_padding_mask=attention_mask == 0)
        return self.classifier(x[0])


class Image(nn.Module):
    """torchvision's ViT: nn.MultiheadAttention with batch_first, which turns tokens and samples itself."""

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(12, 1e-6), nn.LayerNorm(12, 1e-6)
            self.self_attention = nn.MultiheadAttention(12, 2, batch_first=True)
            self.mlp = nn.Sequential(nn.Linear(12, 20), nn.GELU(), nn.Dropout(0.1), nn.Linear(20, 12))

        def forward(self, x):
            y = self.ln_1(x)
            y, _ = self.self_attention(y, y, y, need_weights=False)
            x = x + y
            return x + self.mlp(self.ln_2(x))

    def __init__(self):
        super().__init__()
        self.conv_proj = nn.Conv2d(3, 12, 4, 4)
        self.class_token = nn.Parameter(torch.zeros(1, 1, 12))
        self.pos_embedding = nn.Parameter(torch.zeros(1, 5, 12))
        self.layers = nn.Sequential(*[Image.Block() for _ in range(1)])
        self.ln = nn.LayerNorm(12, 1e-6)
        self.head = nn.Linear(12, 4)

    def forward(self, pixel_values):
        n = pixel_values.shape[0]
        x = self.conv_proj(pixel_values).reshape(n, 12, 4).permute(0, 2, 1)
        x = torch.cat([self.class_token.expand(n, -1, -1), x], dim=1)
        return self.head(self.ln(self.layers(x + self.pos_embedding))[:, 0])


class Attention(nn.Module):
    """Attention of transformers' Marian and BART."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.width = heads, width // heads
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            setattr(self, name, nn.Linear(width, width))

    def shape(self, x, n):
        return x.view(n, -1, self.heads, self.width).transpose(1, 2).contiguous()

    def forward(self, x, memory=None, mask=None):
        n, t, d = x.size()
        source = x if memory is None else memory
        q = self.shape(self.q_proj(x) * self.width**-0.5, n).view(n * self.heads, -1, self.width)
        k = self.shape(self.k_proj(source), n).view(n * self.heads, -1, self.width)
        v = self.shape(self.v_proj(source), n).view(n * self.heads, -1, self.width)
        w = torch.bmm(q, k.transpose(1, 2))
        w = w.view(n, self.heads, t, -1) + mask
        w = torch.softmax(w.view(n * self.heads, t, -1), dim=-1)
        y = torch.bmm(w, v).view(n, self.heads, t, self.width).transpose(1, 2)
        return self.out_proj(y.reshape(n, t, d))


class Layer(nn.Module):
    def __init__(self, width, heads, hidden, cross):
        super().__init__()
        self.self_attn, self.self_attn_layer_norm = Attention(width, heads), nn.LayerNorm(width)
        if cross:
            self.encoder_attn, self.encoder_attn_layer_norm = Attention(width, heads), nn.LayerNorm(width)
        self.fc1, self.fc2 = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.final_layer_norm = nn.LayerNorm(width)

    def forward(self, x, mask, memory=None, memory_mask=None):
        x = self.self_attn_layer_norm(x + self.self_attn(x, mask=mask))
        if memory is not None:
            x = self.encoder_attn_layer_norm(x + self.encoder_attn(x, memory, memory_mask))
        return self.final_layer_norm(x + self.fc2(nn.functional.silu(self.fc1(x))))


def sinusoids(count, width):
    angles = torch.arange(count)[:, None] / 10000 ** (2 * (torch.arange(width // 2)[None]) / width)
    return torch.cat([angles.sin(), angles.cos()], 1)


class Side(nn.Module):
    def __init__(self, words, heads, hidden, layers, cross):
        super().__init__()
        width = words.weight.shape[1]
        self.embed_tokens, self.scale = words, math.sqrt(width)
        self.register_buffer("embed_positions", sinusoids(16, width))
        self.layers = nn.ModuleList([Layer(width, heads, hidden, cross) for _ in range(layers)])

    def embed(self, ids):
        positions = torch.arange(0, ids.shape[1], dtype=torch.long)
        return self.embed_tokens(ids) * self.scale + self.embed_positions[positions]


def expand(mask, t, kind):
    mask = mask[:, None, None, :].expand(mask.shape[0], 1, t, mask.shape[1]).to(kind)
    inverted = 1.0 - mask
    return inverted.masked_fill(inverted.to(torch.bool), torch.finfo(torch.float32).min)


class Encoder(Side):
    def forward(self, input_ids, attention_mask):
        x = self.embed(input_ids)
        mask = expand(attention_mask, x.shape[1], x.dtype)
        for layer in self.layers:
            x = layer(x, mask)
        return x


class Decoder(Side):
    def __init__(self, words, *sizes):
        super().__init__(words, *sizes)
        self.lm_head = nn.Linear(words.weight.shape[1], words.weight.shape[0], bias=False)
        self.lm_head.weight = words.weight
        self.register_buffer("final_logits_bias", torch.randn(1, words.weight.shape[0]))

    def forward(self, encoder_attention_mask, input_ids, encoder_hidden_states):
        x = self.embed(input_ids)
        t = x.shape[1]
        mask = torch.full((t, t), torch.finfo(torch.float32).min)
        cond = torch.arange(t)
        mask = mask.masked_fill(cond < (cond + 1).view(t, 1), 0).to(x.dtype)
        memory_mask = expand(encoder_attention_mask, t, x.dtype)
        for layer in self.layers:
            x = layer(x, mask[None, None], encoder_hidden_states, memory_mask)
        return self.lm_head(x) + self.final_logits_bias


def write_words(folder, name, first):
    module = draw(Words(first), 3)
    inputs = {"input_ids": torch.randint(0, 13, (N, T)), "attention_mask": padding(N, T)}
    axes = {key: ["batch", "tokens"] for key in inputs}
    # gradients on: the fast path of inference has an operator of its own
    export(f"{folder}/{name}.onnx", module, inputs, "logits", axes)
    save_tensors(f"{folder}/{name}.safetensors", {**inputs, "logits": reference(module, inputs)})


def write_image(folder):
    module = draw(Image(), 4)
    module.class_token.data.normal_()
    inputs = {"pixel_values": torch.randn(N, 3, 8, 8)}
    export(f"{folder}/image.onnx", module, inputs, "logits", {"pixel_values": ["batch"]})
    save_tensors(f"{folder}/image.safetensors", {**inputs, "logits": reference(module, inputs)})


def write_translator(folder):
    words = nn.Embedding(13, 12)
    encoder, decoder = Encoder(words, 3, 20, 1, False), Decoder(words, 2, 16, 1, True)
    both = draw(nn.ModuleList([encoder, decoder]), 5)
    source = {"input_ids": torch.randint(0, 13, (N, S)), "attention_mask": padding(N, S)}
    export(f"{folder}/encoder_model.onnx", encoder, source, "last_hidden_state",
           {key: ["batch", "source"] for key in source})
    states = encoder(*source.values()).detach()
    target = {"encoder_attention_mask": source["attention_mask"], "input_ids": torch.randint(0, 13, (N, T)),
              "encoder_hidden_states": states}
    export(f"{folder}/decoder_model.onnx", decoder, target, "logits",
           {"encoder_attention_mask": ["batch", "source"], "input_ids": ["batch", "target"],
            "encoder_hidden_states": ["batch", "source"]})
    both.double()
    logits = decoder(source["attention_mask"], target["input_ids"], encoder(*source.values())).detach()
    save_tensors(f"{folder}/decoder_model.safetensors",
                 {**source, "decoder_input_ids": target["input_ids"], "logits": logits})


if __name__ == "__main__":
    write_words(sys.argv[1], "norm_last", False)
    write_words(sys.argv[1], "norm_first", True)
    write_image(sys.argv[1])
    write_translator(sys.argv[1])
