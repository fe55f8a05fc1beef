"""Times the same step in PyTorch: forward, backward, AdamW, or forward alone.

    /usr/bin/python3 bench/peer_step.py train|infer CONFIG.json BATCH THREADS [REPEATS]

Prints the median and best time of a batch and the process's peak memory. bench/step
says how to start it as installed and tuned.
"""
import json
import os
import resource
import sys
import time

threads = sys.argv[4]
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


def swin(c):
    from torchvision.models import SwinTransformer  # python3-torchvision
    p, w = c["patch_size"], c["window_size"]
    return SwinTransformer([p, p], c["embed_dim"], c["depths"], c["num_heads"], [w, w], c["mlp_ratio"],
                           stochastic_depth_prob=0.0, num_classes=c["num_labels"])


def main():
    config = json.load(open(sys.argv[2]))
    batch, repeats = int(sys.argv[3]), int(sys.argv[5]) if len(sys.argv) > 5 else 5
    torch.set_num_threads(int(threads))
    torch.manual_seed(0)
    model = swin(config) if config["model_type"] == "swin" else Transformer(config)
    size = config["image_size"]
    x = torch.randn(batch, config["num_channels"], size, size)
    y = torch.arange(batch) % config["num_labels"]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def train():
        optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    def infer():
        with torch.inference_mode():
            model(x)

    if sys.argv[1] == "infer":
        model.eval()
    step = infer if sys.argv[1] == "infer" else train
    times = []
    for repeat in range(repeats + 1):
        start = time.perf_counter()
        for _ in range(5):
            step()
        times.append((time.perf_counter() - start) / 5)
    times = sorted(times[1:])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"batch {batch} threads {threads}: median {1e3 * times[len(times) // 2]:.1f} ms, "
          f"best {1e3 * times[0]:.1f} ms, peak {peak:.0f} MB")


main()
