"""Times the same in PyTorch (eager; float32, or products in bfloat16 by autocast): a step of
training (forward, backward, AdamW), a forward run, or a token of a text that is being written.

    /usr/bin/python3 bench/peer_step.py train|train_bf16|infer CONFIG.json BATCH TOKENS THREADS [REPEATS] [BATCHES]
    /usr/bin/python3 bench/peer_step.py decode CONFIG.json TOKENS CONTEXT THREADS

Arguments and what is printed are those of bench/step.c; weights are drawn. Texts fill their batch, so
that nothing is masked. bench/speed says how to start it as installed and tuned.
"""
import json
import os
import resource
import sys
import time

threads = sys.argv[5]
os.environ["OMP_NUM_THREADS"] = threads
os.environ["OPENBLAS_NUM_THREADS"] = threads
import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self, width, heads, hidden, eps):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width, eps), nn.LayerNorm(width, eps)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.ffn_in, self.ffn_out = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def attention(self, x):
        n, t, d = x.shape
        q, k, v = self.qkv(x).reshape(n, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        p = torch.softmax(q @ k.transpose(-1, -2) * (d // self.heads) ** -0.5, -1)
        return self.out((p @ v).transpose(1, 2).reshape(n, t, d))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.ffn_out(nn.functional.gelu(self.ffn_in(self.norm2(x))))


class Transformer(nn.Module):
    def __init__(self, c):
        super().__init__()
        d, p = c["hidden_size"], c["patch_size"]
        tokens = (c["image_size"] // p) ** 2
        self.patch = nn.Conv2d(c["num_channels"], d, p, p)
        self.cls = nn.Parameter(torch.zeros(1, 1, d))
        self.position = nn.Parameter(0.02 * torch.randn(1, tokens + 1, d))
        eps = c["layer_norm_eps"]
        self.layers = nn.Sequential(*[
            Layer(d, c["num_attention_heads"], c["intermediate_size"], eps)
            for _ in range(c["num_hidden_layers"])])
        self.norm, self.head = nn.LayerNorm(d, eps), nn.Linear(d, c["num_labels"])

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.position
        return self.head(self.norm(self.layers(x))[:, 0])


class Encoder(nn.Module):
    """BERT with a classifier."""

    class Block(Layer):
        def forward(self, x):  # norms behind the sums
            x = self.norm1(x + self.attention(x))
            return self.norm2(x + self.ffn_out(nn.functional.gelu(self.ffn_in(x))))

    def __init__(self, c):
        super().__init__()
        d, eps = c["hidden_size"], c["layer_norm_eps"]
        self.words = nn.Embedding(c["vocab_size"], d)
        self.positions = nn.Embedding(c["max_position_embeddings"], d)
        self.types = nn.Embedding(c["type_vocab_size"], d)
        self.norm = nn.LayerNorm(d, eps)
        self.layers = nn.Sequential(*[
            Encoder.Block(d, c["num_attention_heads"], c["intermediate_size"], eps)
            for _ in range(c["num_hidden_layers"])])
        self.pooler, self.head = nn.Linear(d, d), nn.Linear(d, c["num_labels"])

    def forward(self, ids):
        x = self.words(ids) + self.positions.weight[:ids.shape[1]] + self.types(torch.zeros_like(ids))
        return self.head(torch.tanh(self.pooler(self.layers(self.norm(x))[:, 0])))


class Decoder(nn.Module):
    """A llama. With room for `capacity` tokens it takes one token at a time and keeps its keys and values."""

    class Norm(nn.Module):
        def __init__(self, width, eps):
            super().__init__()
            self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

        def forward(self, x):
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight

    class Block(nn.Module):
        def __init__(self, c, capacity):
            super().__init__()
            d, hidden, eps = c["hidden_size"], c["intermediate_size"], c["rms_norm_eps"]
            self.heads = c["num_attention_heads"]
            self.norm1, self.norm2 = Decoder.Norm(d, eps), Decoder.Norm(d, eps)
            self.q, self.k, self.v, self.o = (nn.Linear(d, d, bias=False) for _ in range(4))
            self.gate, self.up = nn.Linear(d, hidden, bias=False), nn.Linear(d, hidden, bias=False)
            self.down = nn.Linear(hidden, d, bias=False)
            if capacity:
                self.kept = torch.zeros(2, self.heads, capacity, d // self.heads)

        def split(self, x):
            return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

        def attend(self, q, k, v, mask, position):
            if position is not None:
                self.kept[0, :, position], self.kept[1, :, position] = k[0, :, 0], v[0, :, 0]
                k, v = self.kept[:, None, :, :position + 1]
            p = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
            p = (p if mask is None else p + mask).softmax(-1)
            return (p @ v).transpose(1, 2).flatten(2)

        def forward(self, x, angles, mask, position):
            y = self.norm1(x)
            q, k, v = self.split(self.q(y)), self.split(self.k(y)), self.split(self.v(y))
            x = x + self.o(self.attend(rotated(q, angles), rotated(k, angles), v, mask, position))
            y = self.norm2(x)
            return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))

    def __init__(self, c, capacity=0):
        super().__init__()
        width = c["hidden_size"] // c["num_attention_heads"]
        frequency = c["rope_theta"] ** (-torch.arange(0, width, 2) / width)
        angles = torch.outer(torch.arange(c["max_position_embeddings"]), frequency).repeat(1, 2)
        self.angles = torch.stack([angles.cos(), angles.sin()])
        self.words = nn.Embedding(c["vocab_size"], c["hidden_size"])
        nn.init.normal_(self.words.weight, 0, 0.02)
        self.layers = nn.ModuleList(Decoder.Block(c, capacity) for _ in range(c["num_hidden_layers"]))
        self.norm = Decoder.Norm(c["hidden_size"], c["rms_norm_eps"])

    def forward(self, ids, position=None):
        count = ids.shape[1]
        mask = None
        if position is None:
            mask = torch.full((count, count), float("-inf")).triu(1)
        first = position or 0
        x = self.words(ids)
        for layer in self.layers:
            x = layer(x, self.angles[:, first:first + count], mask, position)
        return self.norm(x) @ self.words.weight.T


def rotated(x, angles):
    half = x.shape[-1] // 2
    return x * angles[0] + torch.cat([-x[..., half:], x[..., :half]], -1) * angles[1]


def swin(c):
    from torchvision.models import SwinTransformer  # python3-torchvision
    p, w = c["patch_size"], c["window_size"]
    return SwinTransformer([p, p], c["embed_dim"], c["depths"], c["num_heads"], [w, w], c["mlp_ratio"],
                           stochastic_depth_prob=0.0, num_classes=c["num_labels"])


def told(times):
    times = sorted(times)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"median {1e3 * times[len(times) // 2]:.3f} ms, best {1e3 * times[0]:.3f} ms, peak {peak:.0f} MB")


def decode(c, count, context):
    model, times = Decoder(c, context + count).eval(), []
    with torch.inference_mode():
        for i in range(context + count):
            start = time.perf_counter()
            model(torch.tensor([[i * 7919 % c["vocab_size"]]]), i)
            times.append(time.perf_counter() - start)
    told(times[context:])


def main():
    mode, config = sys.argv[1], json.load(open(sys.argv[2]))
    batch, tokens = int(sys.argv[3]), int(sys.argv[4])
    repeats = int(sys.argv[6]) if len(sys.argv) > 6 else 5
    batches = int(sys.argv[7]) if len(sys.argv) > 7 else 5
    torch.set_num_threads(int(threads))
    torch.manual_seed(0)
    if mode == "decode":
        return decode(config, batch, tokens)
    kinds = {"bert": Encoder, "llama": Decoder, "swin": swin, "vit": Transformer}
    model = kinds[config["model_type"]](config)
    if tokens:
        x = torch.arange(batch * tokens).reshape(batch, tokens) * 7919 % config["vocab_size"]
    else:
        x = torch.randn(batch, config["num_channels"], config["image_size"], config["image_size"])
    rows = batch * tokens if config["model_type"] == "llama" else batch
    y = torch.arange(rows) % config.get("num_labels", config.get("vocab_size"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def train():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, mode == "train_bf16"):
            logits = model(x)
        nn.functional.cross_entropy(logits.float().reshape(-1, logits.shape[-1]), y).backward()
        optimizer.step()

    def infer():
        with torch.inference_mode():
            model(x)

    step = infer if mode == "infer" else train
    model.train(mode != "infer")
    times = []
    for repeat in range(repeats + 1):
        count = batches if repeat else 1
        start = time.perf_counter()
        for _ in range(count):
            step()
        times.append((time.perf_counter() - start) / count)
    told(times[1:])


main()
