#!/usr/bin/python3
"""Reference models of text encoders: small random networks in the layout of Hugging Face folders, with inputs and what
PyTorch computes from them in float64, by formulas written down from the papers and the published definitions.

    make_encoders.py [NAME ...]     write these folders beside this script (all of them without a name)

A folder holds config.json, model.safetensors (float32), reference.safetensors (inputs and outputs, rounded to float32)
and, of what has a loss, gradients.safetensors (grad.NAME). Sizes are odd on purpose: widths that are no powers of two,
few heads, texts that are padded on the right and on the left.
"""
import json
import math
import pathlib
import struct
import sys

import numpy
import torch

HERE = pathlib.Path(__file__).resolve().parent
DTYPES = {torch.float64: ("F32", "<f4"), torch.float32: ("F32", "<f4"), torch.int64: ("I64", "<i8")}


def write_tensors(path, tensors):
    header, blobs, at = {}, [], 0
    for name in sorted(tensors, key=lambda n: (tensors[n].is_floating_point(), n)):
        kind, storage = DTYPES[tensors[name].dtype]
        blob = tensors[name].detach().contiguous().numpy().astype(storage).tobytes()
        header[name] = {"dtype": kind, "shape": list(tensors[name].shape), "data_offsets": [at, at + len(blob)]}
        blobs.append(blob)
        at += len(blob)
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))


# ---------------------------------------------------------------- weights


class Weights(dict):
    """Weights by name, drawn when first asked for, float32 numbers in float64; biases and norms far from 0 and 1."""

    def __init__(self, seed):
        super().__init__()
        self.random = torch.Generator().manual_seed(seed)

    def get(self, name, *shape, std=0.3, mean=0.0):
        if name not in self:
            drawn = mean + std * torch.randn(shape, generator=self.random, dtype=torch.float64)
            self[name] = drawn.float().double().requires_grad_()
        assert list(self[name].shape) == list(shape), name
        return self[name]

    def linear(self, x, name, out, bias=True):
        y = x @ self.get(name + ".weight", out, x.shape[-1]).T
        return y + self.get(name + ".bias", out) if bias else y

    def norm(self, x, name, eps, bias=True):
        width = x.shape[-1]
        centred = x - x.mean(-1, keepdim=True)
        y = centred / torch.sqrt((centred * centred).mean(-1, keepdim=True) + eps)
        y = y * self.get(name + ".weight", width, std=0.2, mean=1.0)
        return y + self.get(name + ".bias", width) if bias else y


def gelu(x):
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


ACTIVATIONS = {
    "gelu": gelu,
    "relu": torch.relu,
    "gelu_new": lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
}


# ---------------------------------------------------------------- parts of encoders


def attention(q, k, v, heads, allowed, bias=None):
    """softmax(q k^T / sqrt(d) + bias) v by heads over the keys that are allowed [N, 1, T or 1, T]."""
    n, t, width = q.shape
    q, k, v = (x.reshape(n, t, heads, width // heads).transpose(1, 2) for x in (q, k, v))
    scores = q @ k.transpose(2, 3) / math.sqrt(width // heads)
    if bias is not None:
        scores = scores + bias
    scores = scores.masked_fill(~allowed, -1e30)
    seen = torch.softmax(scores, -1) * allowed.any(-1, keepdim=True)  # a query without any key gets zeros
    return (seen @ v).transpose(1, 2).reshape(n, t, width)


def positions_from_ids(ids, padding):
    """Tokens that are not padding are counted from padding + 1 on; padding stays at its own number."""
    counted = (ids != padding).long()
    return counted.cumsum(1) * counted + padding


def bert_layer(w, c, x, at, names, allowed, bias=None):
    width, eps = c["hidden_size"], c["layer_norm_eps"]
    q, k, v, out, norm1, ffn_in, ffn_out, norm2 = (at + name for name in names)
    y = attention(w.linear(x, q, width), w.linear(x, k, width), w.linear(x, v, width), c["num_attention_heads"],
                  allowed, bias)
    x = w.norm(x + w.linear(y, out, width), norm1, eps)
    y = ACTIVATIONS[c["hidden_act"]](w.linear(x, ffn_in, c["intermediate_size"]))
    return w.norm(x + w.linear(y, ffn_out, width), norm2, eps)


BERT_LAYER = ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense",
              "attention.output.LayerNorm", "intermediate.dense", "output.dense", "output.LayerNorm")


def embed(w, c, inputs, trunk, width, positions):
    at = trunk + "embeddings."
    x = w.get(at + "word_embeddings.weight", c["vocab_size"], width)[inputs["input_ids"]]
    if c.get("type_vocab_size"):
        x = x + w.get(at + "token_type_embeddings.weight", c["type_vocab_size"], width)[inputs["token_type_ids"]]
    x = x + w.get(at + "position_embeddings.weight", c["max_position_embeddings"], width)[positions]
    return w.norm(x, at + "LayerNorm", c["layer_norm_eps"])


def encode(w, c, x, inputs, trunk, names, outputs, bias=None):
    allowed = inputs["attention_mask"].bool()[:, None, None, :]
    for i in range(c["num_hidden_layers"]):
        outputs[f"hidden_states.{i}"] = x
        x = bert_layer(w, c, x, f"{trunk}encoder.layer.{i}.", names, allowed, bias)
    outputs[f"hidden_states.{c['num_hidden_layers']}"] = x
    return x


def predict_words(w, c, x, dense, norm, decoder, bias, words):
    """The head of masked language models; `words` is the table that it is tied to, or nothing."""
    x = w.norm(gelu(w.linear(x, dense, words.shape[1])), norm, c["layer_norm_eps"])
    if not c.get("tie_word_embeddings", True):
        words = w.get(decoder, *words.shape)
    return x @ words.T + w.get(bias, words.shape[0])


def classify_twice(w, c, x, act):
    """Dense layer and output projection on the first token."""
    x = act(w.linear(x[:, 0], "classifier.dense", c["hidden_size"]))
    return w.linear(x, "classifier.out_proj", len(c["id2label"]))


def pool(w, c, x, trunk):
    return torch.tanh(w.linear(x[:, 0], trunk + "pooler.dense", c["hidden_size"]))


# ---------------------------------------------------------------- families


def roberta(w, c, inputs, outputs):
    kind = c["architectures"][0]
    trunk = "" if kind.endswith("Model") else "roberta."
    x = embed(w, c, inputs, trunk, c["hidden_size"], positions_from_ids(inputs["input_ids"], c["pad_token_id"]))
    x = encode(w, c, x, inputs, trunk, BERT_LAYER, outputs)
    if kind.endswith("ForMaskedLM"):
        return predict_words(w, c, x, "lm_head.dense", "lm_head.layer_norm", "lm_head.decoder.weight", "lm_head.bias",
                             w["roberta.embeddings.word_embeddings.weight"])
    if kind.endswith("ForSequenceClassification"):
        return classify_twice(w, c, x, torch.tanh)
    if kind.endswith("ForTokenClassification"):
        return w.linear(x, "classifier", len(c["id2label"]))
    if kind.endswith("ForQuestionAnswering"):
        return w.linear(x, "qa_outputs", 2)
    y = pool(w, c, x, trunk)
    if kind.endswith("ForMultipleChoice"):
        return w.linear(y, "classifier", 1)
    outputs["pooler_output"] = y
    return None


def electra(w, c, inputs, outputs):
    kind = c["architectures"][0]
    trunk = "" if kind.endswith("Model") else "electra."
    ids = inputs["input_ids"]
    x = embed(w, c, inputs, trunk, c["embedding_size"], torch.arange(ids.shape[1]).expand(ids.shape))
    if c["embedding_size"] != c["hidden_size"]:
        x = w.linear(x, trunk + "embeddings_project", c["hidden_size"])
    x = encode(w, c, x, inputs, trunk, BERT_LAYER, outputs)
    if kind.endswith("ForMaskedLM"):
        return predict_words(w, c, x, "generator_predictions.dense", "generator_predictions.LayerNorm",
                             "generator_lm_head.weight", "generator_lm_head.bias",
                             w["electra.embeddings.word_embeddings.weight"])
    if kind.endswith("ForSequenceClassification"):
        return classify_twice(w, c, x, gelu)
    y = w.linear(x[:, 0], "sequence_summary.summary", c["hidden_size"])
    return w.linear(ACTIVATIONS[c["summary_activation"]](y), "classifier", 1)


def bucket(distance):
    """MPNet's bucket of the distance from query to key: 32 in all, half for later keys, 8 of each half exact, the
    others by the logarithm up to a distance of 128."""
    at = 16 if distance > 0 else 0
    n = abs(distance)
    if n < 8:
        return at + n
    return at + min(15, 8 + int(math.log(n / 8) / math.log(128 / 8) * 8))


MPNET_LAYER = ("attention.attn.q", "attention.attn.k", "attention.attn.v", "attention.attn.o", "attention.LayerNorm",
               "intermediate.dense", "output.dense", "output.LayerNorm")


def mpnet(w, c, inputs, outputs):
    kind = c["architectures"][0]
    trunk = "" if kind.endswith("Model") else "mpnet."
    x = embed(w, c, inputs, trunk, c["hidden_size"], positions_from_ids(inputs["input_ids"], 1))
    tokens = x.shape[1]
    buckets = torch.tensor([[bucket(j - i) for j in range(tokens)] for i in range(tokens)])
    table = w.get(trunk + "encoder.relative_attention_bias.weight", 32, c["num_attention_heads"], std=0.7)
    x = encode(w, c, x, inputs, trunk, MPNET_LAYER, outputs, table[buckets].permute(2, 0, 1))
    if kind.endswith("ForMaskedLM"):
        return predict_words(w, c, x, "lm_head.dense", "lm_head.layer_norm", "lm_head.decoder.weight", "lm_head.bias",
                             w["mpnet.embeddings.word_embeddings.weight"])
    if kind.endswith("ForSequenceClassification"):
        return classify_twice(w, c, x, torch.tanh)
    outputs["pooler_output"] = pool(w, c, x, trunk)
    return None


def turn(x, heads, theta):
    """Rotary positions: the two halves of each head as complex numbers, times exp(i t theta^(-2j/d))."""
    n, t, width = x.shape
    d = width // heads
    x = x.reshape(n, t, heads, d)
    x = torch.complex(x[..., : d // 2], x[..., d // 2 :])
    angles = torch.arange(t, dtype=torch.float64)[:, None] * theta ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    x = x * torch.polar(torch.ones_like(angles), angles)[:, None, :]
    return torch.cat([x.real, x.imag], -1).reshape(n, t, width)


def modernbert(w, c, inputs, outputs):
    kind = c["architectures"][0]
    trunk = "" if kind.endswith("Model") else "model."
    width, heads, hidden, eps = (c[k] for k in ("hidden_size", "num_attention_heads", "intermediate_size", "norm_eps"))
    mask, tokens = inputs["attention_mask"].bool(), inputs["input_ids"].shape[1]
    places = torch.arange(tokens)
    close = (places[:, None] - places[None, :]).abs() <= c["local_attention"] // 2

    def norm(x, name):
        return w.norm(x, name, eps, c["norm_bias"])

    x = w.get(trunk + "embeddings.tok_embeddings.weight", c["vocab_size"], width)[inputs["input_ids"]]
    x = norm(x, trunk + "embeddings.norm")
    for i in range(c["num_hidden_layers"]):
        outputs[f"hidden_states.{i}"] = x
        at = f"{trunk}layers.{i}."
        whole = i % c["global_attn_every_n_layers"] == 0
        theta = c["global_rope_theta"] if whole else c["local_rope_theta"]
        y = norm(x, at + "attn_norm") if i else x
        q, k, v = w.linear(y, at + "attn.Wqkv", 3 * width, c["attention_bias"]).chunk(3, -1)
        allowed = mask[:, None, None, :] & (torch.ones_like(close) if whole else close)
        y = attention(turn(q, heads, theta), turn(k, heads, theta), v, heads, allowed)
        x = x + w.linear(y, at + "attn.Wo", width, c["attention_bias"])
        y, gate = w.linear(norm(x, at + "mlp_norm"), at + "mlp.Wi", 2 * hidden, c["mlp_bias"]).chunk(2, -1)
        x = x + w.linear(ACTIVATIONS[c["hidden_activation"]](y) * gate, at + "mlp.Wo", width, c["mlp_bias"])
    outputs[f"hidden_states.{c['num_hidden_layers']}"] = x
    x = norm(x, trunk + "final_norm")
    outputs["last_hidden_state"] = x
    if kind.endswith("ForSequenceClassification"):
        counted = mask[..., None].double()
        x = (x * counted).sum(1) / counted.sum(1) if c["classifier_pooling"] == "mean" else x[:, 0]
    x = ACTIVATIONS[c["classifier_activation"]](w.linear(x, "head.dense", width, c["classifier_bias"]))
    x = norm(x, "head.norm")
    if kind.endswith("ForMaskedLM"):
        words = w["model.embeddings.tok_embeddings.weight"]
        if not c["tie_word_embeddings"]:
            words = w.get("decoder.weight", *words.shape)
        return x @ words.T + (w.get("decoder.bias", words.shape[0]) if c["decoder_bias"] else 0)
    return w.linear(x, "classifier", len(c["id2label"]))


FAMILIES = {"roberta": roberta, "xlm-roberta": roberta, "electra": electra, "mpnet": mpnet, "modernbert": modernbert}

# ---------------------------------------------------------------- cases


def texts(c, seed, lengths, tokens, left=(), zero=False):
    """Ids and masks: samples of these lengths, padded on the right, but on the left for those of `left`."""
    random = torch.Generator().manual_seed(seed)
    padding = c.get("pad_token_id", 0)
    ids = torch.full((len(lengths), tokens), padding)
    mask = torch.zeros(len(lengths), tokens, dtype=torch.long)
    for i, length in enumerate(lengths):
        drawn = torch.randint(0, c["vocab_size"], (length,), generator=random)
        drawn = torch.where(drawn == padding, (drawn + 2) % c["vocab_size"], drawn)
        at = slice(tokens - length, tokens) if i in left else slice(0, length)
        ids[i, at], mask[i, at] = drawn, 1
    inputs = {"input_ids": ids, "attention_mask": mask}
    types = c.get("type_vocab_size", 0)
    if types:
        inputs["token_type_ids"] = torch.randint(0, types, ids.shape, generator=random) * mask
    return inputs


def labels_for(c, inputs, logits, seed):
    """Classes of samples, or of some of the tokens that count."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, logits.shape[-1], logits.shape[:-1], generator=random)
    if labels.dim() == 1:
        return labels
    known = (torch.rand(labels.shape, generator=random) < 0.6) & inputs["attention_mask"].bool()
    return torch.where(known, labels, torch.full_like(labels, -100))


def cross_entropy(logits, labels):
    known = labels != -100
    chosen = torch.log_softmax(logits, -1).gather(-1, labels.clamp(min=0)[..., None])[..., 0]
    return -(chosen * known).sum() / known.sum()


def named(count):
    return {"id2label": {str(i): f"LABEL_{i}" for i in range(count)},
            "label2id": {f"LABEL_{i}": i for i in range(count)}}


def base(model_type, architecture, **more):
    return {"architectures": [architecture], "model_type": model_type, "attention_probs_dropout_prob": 0.1,
            "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "initializer_range": 0.02, "layer_norm_eps": 1e-5,
            "torch_dtype": "float32", **more}


ROBERTA = dict(bos_token_id=0, eos_token_id=2, pad_token_id=1, type_vocab_size=1, use_cache=True,
               position_embedding_type="absolute", classifier_dropout=None)

ELECTRA = dict(pad_token_id=0, type_vocab_size=2, classifier_dropout=None, summary_activation="gelu",
               summary_last_dropout=0.1, summary_type="first", summary_use_proj=True,
               position_embedding_type="absolute", use_cache=True)
MPNET = dict(bos_token_id=0, eos_token_id=2, pad_token_id=1, relative_attention_num_buckets=32)

# name: configuration, (lengths of the samples, tokens, samples padded on the left)
CASES = {
    "roberta": (base("roberta", "RobertaForSequenceClassification", **ROBERTA, vocab_size=41, hidden_size=15,
                     num_hidden_layers=3, num_attention_heads=3, intermediate_size=22, max_position_embeddings=13,
                     **named(3)), ([9, 6, 4], 9, (2,))),
    "roberta_mlm": (base("roberta", "RobertaForMaskedLM", **{**ROBERTA, "pad_token_id": 3}, vocab_size=29,
                         hidden_size=14, num_hidden_layers=2, num_attention_heads=1, intermediate_size=9,
                         max_position_embeddings=21), ([11, 5], 11, (1,))),
    "roberta_choice": (base("roberta", "RobertaForMultipleChoice", **ROBERTA, vocab_size=11, hidden_size=6,
                            num_hidden_layers=1, num_attention_heads=2, intermediate_size=5,
                            max_position_embeddings=9), ([5, 3, 7, 2], 7, ())),
    "roberta_bare": (base("roberta", "RobertaModel", **ROBERTA, vocab_size=11, hidden_size=6, num_hidden_layers=1,
                          num_attention_heads=2, intermediate_size=5, max_position_embeddings=9), ([5, 3], 5, (1,))),
    "xlm_roberta": (base("xlm-roberta", "XLMRobertaForTokenClassification", **{**ROBERTA, "type_vocab_size": 3},
                         vocab_size=37, hidden_size=21, num_hidden_layers=2, num_attention_heads=7,
                         intermediate_size=10, max_position_embeddings=12, output_past=True, **named(5)),
                    ([7, 10, 3], 10, (2,))),
    "xlm_roberta_span": (base("xlm-roberta", "XLMRobertaForQuestionAnswering", **{**ROBERTA, "pad_token_id": 0},
                              vocab_size=19, hidden_size=10, num_hidden_layers=2, num_attention_heads=5,
                              intermediate_size=33, max_position_embeddings=16), ([6, 13], 13, (0,))),
    "electra": (base("electra", "ElectraForSequenceClassification", **ELECTRA, embedding_size=10, vocab_size=31,
                     hidden_size=18, num_hidden_layers=2, num_attention_heads=3, intermediate_size=25,
                     max_position_embeddings=9, **named(4)), ([9, 5, 7], 9, (1,))),
    "electra_mlm": (base("electra", "ElectraForMaskedLM", **{**ELECTRA, "type_vocab_size": 3, "hidden_act": "relu"},
                         tie_word_embeddings=False, embedding_size=7, vocab_size=23, hidden_size=12,
                         num_hidden_layers=3, num_attention_heads=1, intermediate_size=11,
                         max_position_embeddings=14), ([6, 10], 10, ())),
    "electra_choice": (base("electra", "ElectraForMultipleChoice", **{**ELECTRA, "summary_activation": "relu"},
                            embedding_size=6, vocab_size=13, hidden_size=6, num_hidden_layers=1,
                            num_attention_heads=2, intermediate_size=5, max_position_embeddings=9),
                       ([5, 3, 7, 2], 7, ())),
    "mpnet": (base("mpnet", "MPNetForSequenceClassification", **MPNET, vocab_size=43, hidden_size=15,
                   num_hidden_layers=2, num_attention_heads=5, intermediate_size=22, max_position_embeddings=47,
                   **named(3)), ([45, 30, 21], 45, (2,))),
    "mpnet_mlm": (base("mpnet", "MPNetForMaskedLM", **MPNET, vocab_size=27, hidden_size=14, num_hidden_layers=3,
                       num_attention_heads=2, intermediate_size=9, max_position_embeddings=21), ([17, 8], 17, (1,))),
    "mpnet_bare": (base("mpnet", "MPNetModel", **MPNET, vocab_size=11, hidden_size=6, num_hidden_layers=1,
                        num_attention_heads=3, intermediate_size=5, max_position_embeddings=142), ([139], 139, ())),
}


MODERN = {
    "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 0, "classifier_activation": "gelu",
    "classifier_bias": False, "classifier_dropout": 0.0, "classifier_pooling": "mean", "cls_token_id": 0,
    "decoder_bias": True, "deterministic_flash_attn": False, "embedding_dropout": 0.0, "eos_token_id": 2,
    "global_attn_every_n_layers": 3, "global_rope_theta": 160000.0, "gradient_checkpointing": False,
    "hidden_activation": "gelu", "initializer_cutoff_factor": 2.0, "initializer_range": 0.02, "layer_norm_eps": 1e-05,
    "local_attention": 128, "local_rope_theta": 10000.0, "mlp_bias": False, "mlp_dropout": 0.0,
    "model_type": "modernbert", "norm_bias": False, "norm_eps": 1e-05, "pad_token_id": 3,
    "position_embedding_type": "absolute", "sep_token_id": 2, "tie_word_embeddings": True, "torch_dtype": "float32"}

CASES["modernbert"] = ({
    **MODERN, "architectures": ["ModernBertForSequenceClassification"], "vocab_size": 31, "hidden_size": 12,
    "num_hidden_layers": 4, "num_attention_heads": 3, "intermediate_size": 11, "max_position_embeddings": 64,
    "local_attention": 6, **named(4)}, ([17, 9, 12], 17, (2,)))
CASES["modernbert_mlm"] = ({
    **MODERN, "architectures": ["ModernBertForMaskedLM"], "vocab_size": 23, "hidden_size": 20, "num_hidden_layers": 3,
    "num_attention_heads": 2, "intermediate_size": 9, "max_position_embeddings": 32, "local_attention": 5,
    "global_attn_every_n_layers": 2, "global_rope_theta": 50.0, "local_rope_theta": 700.0, "attention_bias": True,
    "mlp_bias": True, "norm_bias": True, "classifier_bias": True, "decoder_bias": False, "norm_eps": 1e-3,
    "layer_norm_eps": 1e-3, "tie_word_embeddings": False, "hidden_activation": "gelu_new",
    "classifier_activation": "relu"}, ([11, 4], 11, (1,)))
CASES["modernbert_tokens"] = ({
    **MODERN, "architectures": ["ModernBertForTokenClassification"], "vocab_size": 13, "hidden_size": 6,
    "num_hidden_layers": 2, "num_attention_heads": 1, "intermediate_size": 5, "max_position_embeddings": 32,
    "local_attention": 2, "global_attn_every_n_layers": 1, "classifier_pooling": "cls", **named(3)}, ([7, 5], 7, ()))


def parts_of(name, tensor):
    """Gradients go by the names that parts of fused weights have in a graph."""
    for whole, parts in (("attn.Wqkv.", ("attn.q.", "attn.k.", "attn.v.")), ("mlp.Wi.", ("mlp.input.", "mlp.gate."))):
        if whole in name:
            return [(name.replace(whole, p), x) for p, x in zip(parts, tensor.chunk(len(parts)))]
    return [(name, tensor)]


def make(name):
    c, (lengths, tokens, left) = CASES[name]
    seed = sum(name.encode())
    w, outputs = Weights(seed), {}
    inputs = texts(c, seed + 1, lengths, tokens, left)
    logits = FAMILIES[c["model_type"]](w, c, inputs, outputs)
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    if logits is not None:
        outputs["logits"] = logits
    if logits is not None and logits.shape[-1] > 2:
        inputs["labels"] = labels_for(c, inputs, logits, seed + 2)
        loss = cross_entropy(logits, inputs["labels"])
        loss.backward()
        outputs["loss"] = loss
        gradients = dict(part for k, v in w.items() for part in parts_of(k, v.grad))
        write_tensors(folder / "gradients.safetensors", {"grad." + k: v for k, v in gradients.items()})
    (folder / "config.json").write_text(json.dumps(c, indent=2, sort_keys=True) + "\n")
    write_tensors(folder / "model.safetensors", w)
    write_tensors(folder / "reference.safetensors", {**inputs, **outputs})


for case in sys.argv[1:] or CASES:
    make(case)
