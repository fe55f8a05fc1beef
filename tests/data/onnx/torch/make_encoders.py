"""Exports of encoders written like transformers' RoBERTa, whose positions leave padding out, and
ModernBERT, whose layers see near tokens alone in two of three.

    python3 make_encoders.py FOLDER     writes NAME.onnx and NAME.safetensors
"""
import sys

import torch
from torch import nn

from make_graphs import N, draw, export, padding, reference, save_tensors

T = 7  # near tokens end before the ends of a text


class RobertaLayer(nn.Module):
    def __init__(self, width, heads, hidden):
        super().__init__()
        self.heads, self.width = heads, width // heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.dense, self.attention_norm = nn.Linear(width, width), nn.LayerNorm(width)
        self.intermediate, self.output = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.output_norm = nn.LayerNorm(width)

    def split(self, x):
        return x.view(x.shape[:-1] + (self.heads, self.width)).permute(0, 2, 1, 3)

    def forward(self, x, mask):
        scores = torch.matmul(self.split(self.query(x)), self.split(self.key(x)).transpose(-1, -2))
        probabilities = nn.functional.softmax(scores / self.width**0.5 + mask, dim=-1)
        y = torch.matmul(probabilities, self.split(self.value(x))).permute(0, 2, 1, 3).contiguous()
        x = self.attention_norm(self.dense(y.view(y.shape[:-2] + (self.heads * self.width,))) + x)
        return self.output_norm(self.output(nn.functional.gelu(self.intermediate(x))) + x)


class Roberta(nn.Module):
    """A classifier; `padding_idx` is neither 0 nor 1, so that no other number passes for it."""

    padding_idx = 2

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(13, 12), nn.Embedding(12, 12)
        self.types, self.norm = nn.Embedding(1, 12), nn.LayerNorm(12, 1e-5)
        self.layers = nn.ModuleList([RobertaLayer(12, 3, 20) for _ in range(2)])
        self.dense, self.out_proj = nn.Linear(12, 12), nn.Linear(12, 4)

    def forward(self, input_ids, attention_mask):
        counted = input_ids.ne(self.padding_idx).int()
        counts = (torch.cumsum(counted, dim=1).type_as(counted) + 0) * counted
        places = counts.long() + self.padding_idx
        types = torch.zeros(input_ids.size(), dtype=torch.long)
        x = self.words(input_ids) + self.types(types)
        x = self.norm(x + self.places(places))
        mask = (1.0 - attention_mask[:, None, None, :].to(x.dtype)) * torch.finfo(torch.float32).min
        for layer in self.layers:
            x = layer(x, mask)
        return self.out_proj(torch.tanh(self.dense(x[:, 0, :])))


class NoBias(nn.Module):
    """A layer norm without a bias, in the nodes that older exporters write."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return nn.functional.layer_norm(x, (len(self.weight),), self.weight, None, 1e-5)


def rotate_half(x):
    return torch.cat((-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]), dim=-1)


class ModernLayer(nn.Module):
    def __init__(self, width, heads, hidden, first, theta):
        super().__init__()
        self.heads, self.width = heads, width // heads
        self.attn_norm = nn.Identity() if first else NoBias(width)
        self.mlp_norm = NoBias(width)
        self.Wqkv, self.attn_out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.Wi, self.mlp_out = nn.Linear(width, 2 * hidden, bias=False), nn.Linear(hidden, width, bias=False)
        self.register_buffer("inv_freq", 1.0 / theta ** (torch.arange(0, self.width, 2).float() / self.width))

    def forward(self, x, mask, places):
        n, t, d = x.shape
        qkv = self.Wqkv(self.attn_norm(x)).view(n, -1, 3, self.heads, self.width)
        angles = (self.inv_freq[None, :, None].to(x.dtype) @ places[:, None, :].to(x.dtype)).transpose(1, 2)
        angles = torch.cat((angles, angles), dim=-1)
        cos, sin = angles.cos().unsqueeze(1), angles.sin().unsqueeze(1)
        q, k, v = qkv.transpose(3, 1).unbind(dim=2)
        q, k = q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin
        scores = torch.matmul(q, k.transpose(2, 3)) * self.width**-0.5 + mask
        y = torch.matmul(nn.functional.softmax(scores, dim=-1), v).transpose(1, 2).contiguous()
        x = x + self.attn_out(y.view(n, -1, d))
        y, gate = self.Wi(self.mlp_norm(x)).chunk(2, dim=-1)
        return x + self.mlp_out(nn.functional.gelu(y) * gate)


class Modern(nn.Module):
    """A masked LM without a bias of its decoder."""

    def __init__(self):
        super().__init__()
        self.tok_embeddings, self.norm, self.final_norm = nn.Embedding(13, 12), NoBias(12), NoBias(12)
        self.layers = nn.ModuleList([ModernLayer(12, 3, 10, i == 0, 10.0 if i % 3 else 700.0) for i in range(4)])
        self.dense, self.head_norm = nn.Linear(12, 12, bias=False), NoBias(12)

    def forward(self, input_ids, attention_mask):
        x = self.norm(self.tok_embeddings(input_ids))
        lowest = torch.finfo(torch.float32).min
        mask = attention_mask[:, None, None, :].expand(x.shape[0], 1, x.shape[1], x.shape[1]).to(x.dtype)
        whole = (1.0 - mask).masked_fill((1.0 - mask).to(torch.bool), lowest)
        rows = torch.arange(whole.shape[2]).unsqueeze(0)
        close = (torch.abs(rows - rows.T) <= 2).unsqueeze(0).unsqueeze(0)
        near = whole.masked_fill(~close, lowest)
        places = torch.arange(x.shape[1]).unsqueeze(0)
        for i, layer in enumerate(self.layers):
            x = layer(x, near if i % 3 else whole, places)
        x = self.head_norm(nn.functional.gelu(self.dense(self.final_norm(x))))
        return x @ self.tok_embeddings.weight.T


def write(folder, name, module, ids, mask):
    inputs = {"input_ids": ids, "attention_mask": mask}
    export(f"{folder}/{name}.onnx", module, inputs, "logits", {key: ["batch", "tokens"] for key in inputs})
    save_tensors(f"{folder}/{name}.safetensors", {**inputs, "logits": reference(module, inputs)})


if __name__ == "__main__":
    torch.manual_seed(1)
    mask = padding(N, T)
    mask[1] = mask[1].flip(0)  # padded on the left
    ids = torch.randint(3, 13, (N, T))
    write(sys.argv[1], "roberta", draw(Roberta(), 6), torch.where(mask == 1, ids, Roberta.padding_idx), mask)
    write(sys.argv[1], "modernbert", draw(Modern(), 7), ids, padding(N, T))
