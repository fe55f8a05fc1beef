"""Writes the files of this folder: python3 make_files.py (numpy, no PyTorch)."""
import json
import os
import struct

import numpy as np

from torch_files import (OldTensor, OrderedDict, Parameter, Size, Storage, Tensor,
                         read_safetensors, save_stream, save_zip, tensor)

HERE = os.path.dirname(os.path.abspath(__file__))


def save_safetensors(tensors, path):
    kinds = {"<f4": "F32", "<f2": "F16", "<i8": "I64", "<i4": "I32", "|i1": "I8", "|u1": "U8",
             "|b1": "BOOL", "<u2": "BF16"}
    header, data = {}, b""
    for name in sorted(tensors):
        array = np.asarray(tensors[name], order="C")
        header[name] = {"dtype": kinds[array.dtype.str], "shape": list(array.shape),
                        "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def main():
    """One state dict with all that tensors may be, in every form; and what it must read as."""
    draw = np.random.default_rng(1)
    wide = draw.standard_normal((3, 4)).astype("<f4")
    shared, matrix = Storage(wide), draw.standard_normal((2, 3, 4)).astype("<f4")
    doubles = draw.standard_normal(5)
    brain = (draw.standard_normal(6).astype("<f4").view("<u4") >> 16).astype("<u2")
    state = OrderedDict()
    state["a.weight"] = tensor(wide, storage=shared)
    state["tied"] = tensor(wide, storage=shared)
    state["row"] = Tensor(shared, 4, (4,), (1,))
    state["columns"] = Tensor(shared, 1, (2, 3), (1, 4))
    state["turned"] = tensor(matrix, size=(4, 2, 3), stride=(1, 12, 4))
    state["parameter"] = Parameter(tensor(draw.standard_normal(3).astype("<f4")))
    state["old"] = OldTensor(Storage(np.arange(4, dtype="<f4")), 1, (2,), (2,))
    state["scalar"] = tensor(np.float32(2.5), size=())
    state["empty"] = tensor(np.zeros((0, 3), "<f4"), size=(0, 3))
    state["double"] = tensor(doubles)
    state["half"] = tensor(draw.standard_normal((2, 2)).astype("<f2"))
    state["brain"] = tensor(brain, "bf16")
    state["long"] = tensor(np.array([-1, 2**40]))
    state["int"] = tensor(np.array([-7], "<i4"))
    state["char"] = tensor(np.array([-8, 8], "|i1"))
    state["byte"] = tensor(np.array([200], "|u1"))
    state["bool"] = tensor(np.array([True, False, True]))
    state["size"] = Size(2, 3)
    state["nothing"] = None
    state._metadata = OrderedDict([("", {"version": 2})])
    want = {"a.weight": wide, "tied": wide, "row": wide[1], "columns": wide[:, 1:3].T,
            "turned": matrix.transpose(2, 0, 1), "old": np.array([1, 3], "<f4"),
            "scalar": np.float32(2.5).reshape(()), "empty": np.zeros((0, 3), "<f4"),
            "double": doubles.astype("<f4"), "brain": brain}
    for name in ["parameter", "half", "long", "int", "char", "byte", "bool"]:
        item = state[name].data if name == "parameter" else state[name]
        want[name] = item.arguments[0].array.reshape(item.arguments[2])
    save_safetensors(want, os.path.join(HERE, "state.safetensors"))
    for protocol in (2, 3, 4, 5):
        save_zip(state, os.path.join(HERE, "state_%d.pt" % protocol), protocol)
    save_stream(state, os.path.join(HERE, "state_stream.pt"))

    # a state dict among other things, of a model that DataParallel wrapped
    inner = OrderedDict(("module." + key, tensor(np.arange(n, dtype="<f4")))
                        for key, n in [("head.weight", 4), ("head.bias", 2)])
    save_zip({"epoch": 3, "best": 0.5, "model": {"state_dict": inner},
              "optimizer": {"lr": 1e-3, "state": {0: {"step": tensor(np.float32(7), size=())}}}},
             os.path.join(HERE, "training.pt"))
    # a list of tensors, and one in it
    save_zip([tensor(np.arange(2, dtype="<f4")), [tensor(np.arange(3, dtype="<f4"))]],
             os.path.join(HERE, "list.pt"))

    # the reference ViT under the names of a hand-written one, queries, keys and values in one
    vit = read_safetensors(os.path.join(HERE, "..", "reference", "vit", "model.safetensors"))
    own = OrderedDict((name, tensor(array)) for name, array in hand_written(vit))
    save_zip({"model": own, "epoch": 300}, os.path.join(HERE, "vit.pt"), folder="vit")

    # a folder of a masked language model as transformers saved it with torch.save: tied
    # weights under both names, and indices of positions
    folder = os.path.join(HERE, "tied")
    os.makedirs(folder, exist_ok=True)
    config = {"architectures": ["BertForMaskedLM"], "model_type": "bert", "vocab_size": 6,
              "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2,
              "intermediate_size": 8, "max_position_embeddings": 5, "type_vocab_size": 2,
              "attention_probs_dropout_prob": 0.0}
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file, indent=1, sort_keys=True)
    save_zip(masked_lm(draw), os.path.join(folder, "pytorch_model.bin"))


def masked_lm(draw):
    def new(*shape):
        return tensor(draw.standard_normal(shape).astype("<f4"))
    state = OrderedDict()
    layer, head = "bert.encoder.layer.0.", "cls.predictions."
    for name, shape in [("word", (6, 4)), ("position", (5, 4)), ("token_type", (2, 4))]:
        state["bert.embeddings.%s_embeddings.weight" % name] = new(*shape)
    linear = [(layer + "attention.self." + name, (4, 4)) for name in ("query", "key", "value")]
    linear += [(layer + "attention.output.dense", (4, 4)), (layer + "intermediate.dense", (8, 4)),
               (layer + "output.dense", (4, 8)), (head + "transform.dense", (4, 4))]
    for name, shape in linear:
        state[name + ".weight"], state[name + ".bias"] = new(*shape), new(shape[0])
    for name in ("bert.embeddings.LayerNorm", layer + "attention.output.LayerNorm",
                 layer + "output.LayerNorm", head + "transform.LayerNorm"):
        state[name + ".weight"], state[name + ".bias"] = new(4), new(4)
    state["bert.embeddings.position_ids"] = tensor(np.arange(5).reshape(1, 5))
    state[head + "bias"] = new(6)
    words, bias = state["bert.embeddings.word_embeddings.weight"], state[head + "bias"]
    state[head + "decoder.weight"] = tensor(None, storage=words.arguments[0], size=(6, 4))
    state[head + "decoder.bias"] = tensor(None, storage=bias.arguments[0], size=(6,))
    return state


def hand_written(vit):
    """Names and arrays as timm's VisionTransformer has them."""
    top = {"embeddings.cls_token": "cls_token", "embeddings.position_embeddings": "pos_embed",
           "embeddings.patch_embeddings.projection.": "patch_embed.proj.", "layernorm.": "norm."}
    inner = {"layernorm_before.": "norm1.", "layernorm_after.": "norm2.",
             "attention.output.dense.": "attn.proj.", "intermediate.dense.": "mlp.fc1.",
             "output.dense.": "mlp.fc2."}
    layer = "vit.encoder.layer."
    for name, array in vit.items():
        if name.startswith(layer):
            number, rest = name[len(layer):].split(".", 1)
            if rest.startswith("attention.attention.query"):
                parts = [vit[name.replace("query", part)] for part in ("query", "key", "value")]
                yield "blocks.%s.attn.qkv.%s" % (number, rest.rsplit(".")[-1]), np.concatenate(parts)
            for old, new in inner.items():
                if rest.startswith(old):
                    yield "blocks.%s.%s" % (number, rest.replace(old, new)), array
        elif name.startswith("classifier."):
            yield name.replace("classifier", "head"), array
        else:
            for old, new in top.items():
                if name.startswith("vit." + old):
                    yield name.replace("vit." + old, new), array


if __name__ == "__main__":
    main()
