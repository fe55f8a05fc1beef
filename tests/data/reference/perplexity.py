"""Perplexity of a text by windows, as Hugging Face's documentation has it ("Perplexity of
fixed-length models"), by PyTorch in float64, for tests/cli/cases/perplexity.case:

    python3 tests/data/reference/perplexity.py tests/data/reference

The text is word i = (7 i i + 3 i) mod 53 of words w0 .. w52 for i below 100. Printed are, for
each model, length and stride, what is counted, the sum of losses and e to their mean; then, of
texts of 10 words, how many last words are right, the sum, e to the mean, and the words."""
import sys

import numpy
import torch

torch.set_default_dtype(torch.float64)
FOLDER = sys.argv[1]


def load(name):
    import json, struct
    data = open(f"{FOLDER}/{name}/model.safetensors", "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    out = {}
    for key, entry in json.loads(data[8:8 + n]).items():
        if key == "__metadata__":
            continue
        a, b = entry["data_offsets"]
        array = numpy.frombuffer(data[8 + n + a:8 + n + b], numpy.float32)
        out[key] = torch.tensor(array.reshape(entry["shape"]).astype(numpy.float64))
    return out


def attend(q, k, v):
    """[heads, T, d] each, causal."""
    score = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
    score += torch.full_like(score, -torch.inf).triu(1)
    return score.softmax(-1) @ v


def split(x, heads):
    return x.reshape(len(x), heads, -1).transpose(0, 1)


def gpt2(w, ids):
    norm = lambda x, n: torch.nn.functional.layer_norm(
        x, (32,), w[f"transformer.{n}.weight"], w[f"transformer.{n}.bias"], 1e-5)
    linear = lambda x, n: x @ w[f"transformer.{n}.weight"] + w[f"transformer.{n}.bias"]
    x = w["transformer.wte.weight"][ids] + w["transformer.wpe.weight"][:len(ids)]
    for i in range(3):
        q, k, v = (split(a, 4) for a in
                   linear(norm(x, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn").chunk(3, -1))
        y = attend(q, k, v).transpose(0, 1).reshape(len(ids), -1)
        x = x + linear(y, f"h.{i}.attn.c_proj")
        y = linear(norm(x, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc")
        y = 0.5 * y * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (y + 0.044715 * y ** 3)))
        x = x + linear(y, f"h.{i}.mlp.c_proj")
    return norm(x, "ln_f") @ w["transformer.wte.weight"].T


def llama(w, ids):
    def norm(x, n):
        return x / (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * w[n + ".weight"]

    def turn(x):  # [heads, T, 8], halves as pairs
        rate = 10000.0 ** (-torch.arange(4) / 4)
        turns = torch.polar(torch.ones(len(ids), 4),
                            torch.arange(len(ids))[:, None] * rate)
        z = torch.complex(x[..., :4].contiguous(), x[..., 4:].contiguous()) * turns
        return torch.cat([z.real, z.imag], -1)

    x = w["model.embed_tokens.weight"][ids]
    for i in range(3):
        at = f"model.layers.{i}."
        linear = lambda x, n: x @ w[at + n + ".weight"].T
        y = norm(x, at + "input_layernorm")
        q = turn(split(linear(y, "self_attn.q_proj"), 4))
        k = turn(split(linear(y, "self_attn.k_proj"), 2)).repeat_interleave(2, 0)
        v = split(linear(y, "self_attn.v_proj"), 2).repeat_interleave(2, 0)
        y = attend(q, k, v).transpose(0, 1).reshape(len(ids), -1)
        x = x + linear(y, "self_attn.o_proj")
        y = norm(x, at + "post_attention_layernorm")
        y = torch.nn.functional.silu(linear(y, "mlp.gate_proj")) * linear(y, "mlp.up_proj")
        x = x + linear(y, "mlp.down_proj")
    return norm(x, "model.norm") @ w["lm_head.weight"].T


def windows(model, w, ids, length, stride):
    """The documentation's loop, with its labels: -100 for those that count before."""
    total = counted = end_before = 0
    for begin in range(0, len(ids), stride):
        end = min(begin + length, len(ids))
        labels = ids[begin:end].clone()
        labels[:len(labels) - (end - end_before)] = -100
        if len(labels) > 1:
            logits = model(w, ids[begin:end])
            total += torch.nn.functional.cross_entropy(
                logits[:-1], labels[1:], ignore_index=-100, reduction="sum").item()
        counted += (labels[1:] != -100).sum().item()
        end_before = end
        if end == len(ids):
            break
    return counted, total


def last_words(model, w, texts):
    right = total = 0
    for ids in texts:
        log_p = model(w, ids[:-1])[-1].log_softmax(-1)
        right += (log_p.argmax() == ids[-1]).item()
        total -= log_p[ids[-1]].item()
    return right, total


word = lambda i: (7 * i * i + 3 * i) % 53
ids = torch.tensor([word(i) for i in range(100)])
for name, model, length in ("gpt2", gpt2, 16), ("llama", llama, 32):
    w = load(name)
    text = ids if name == "gpt2" else torch.cat([torch.tensor([1]), ids])
    for l, s in (length, length // 2), (length, length), (11, 3), (9, 9):
        counted, total = windows(model, w, text, l, s)
        print(name, l, s, counted, "%.9g %.9g" % (total, numpy.exp(total / counted)))
    texts = [torch.cat([text[:len(text) - 100], ids[i:i + 10]]) for i in range(0, 100, 10)]
    for t in texts[:5]:  # half of them end in what the model says
        t[-1] = model(w, t[:-1])[-1].argmax()
    right, total = last_words(model, w, texts)
    print(name, "last", right, "%.9g %.9g" % (total, numpy.exp(total / 10)),
          [t[-1].item() for t in texts])
