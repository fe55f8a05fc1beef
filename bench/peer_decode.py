#!/usr/bin/python3
"""Times one generated token in PyTorch (eager, float32): the decoder of bench/decode.c.

    peer_decode.py softmax|t2r CONTEXT THREADS TOKENS

Prints the median and best time of a token. The cache of keys and values is one tensor for
each layer, written in place.
"""
import os
import sys
import time

kind, context, threads, tokens = sys.argv[1], *map(int, sys.argv[2:5])
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = str(threads)
import torch
import torch.nn.functional as F

torch.set_num_threads(threads)
torch.manual_seed(0)
LAYERS, D, FFN, HEADS, FEATURES, WORDS = 6, 512, 2048, 8, 32, 1000
HEAD = D // HEADS


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = torch.nn.LayerNorm(D), torch.nn.LayerNorm(D)
        self.qkv, self.out = torch.nn.Linear(D, 3 * D), torch.nn.Linear(D, D)
        self.ffn_in, self.ffn_out = torch.nn.Linear(D, FFN), torch.nn.Linear(FFN, D)
        self.map = torch.nn.Parameter(torch.randn(HEADS, HEAD, FEATURES) / 8)
        self.bias = torch.nn.Parameter(torch.zeros(HEADS, 1, FEATURES))
        if kind == "t2r":
            self.S, self.z = torch.zeros(HEADS, FEATURES, HEAD), torch.zeros(HEADS, 1, FEATURES)
        else:
            self.k = torch.randn(HEADS, context + tokens, HEAD)
            self.v = torch.randn(HEADS, context + tokens, HEAD)

    def linear(self, q, k, v):
        q = F.relu(torch.baddbmm(self.bias, q.unsqueeze(1), self.map))
        k = F.relu(torch.baddbmm(self.bias, k.unsqueeze(1), self.map))
        self.S.baddbmm_(k.transpose(1, 2), v.unsqueeze(1))
        self.z += k
        return q @ self.S / (q @ self.z.transpose(1, 2)).clamp(min=0.01)

    def softmax(self, q, k, v, t):
        self.k[:, t], self.v[:, t] = k, v
        scores = q.unsqueeze(1) @ self.k[:, : t + 1].transpose(1, 2) / HEAD**0.5
        return scores.softmax(-1) @ self.v[:, : t + 1]

    def forward(self, x, t):
        q, k, v = self.qkv(self.norm1(x)).view(3, HEADS, HEAD)
        y = self.linear(q, k, v) if kind == "t2r" else self.softmax(q, k, v, t)
        x = x + self.out(y.reshape(1, D))
        return x + self.ffn_out(F.gelu(self.ffn_in(self.norm2(x))))


layers = [Layer() for _ in range(LAYERS)]
embedding = torch.nn.Embedding(WORDS, D)
times = []
with torch.no_grad():
    for i in range(tokens):
        start = time.perf_counter()
        x = embedding(torch.tensor([i % WORDS]))
        for layer in layers:
            x = layer(x, context + i)
        times.append(time.perf_counter() - start)
times = sorted(times[3:])
print(f"context {context:5d}: median {1e3 * times[len(times) // 2]:.3f} ms/token, best {1e3 * times[0]:.3f}")
