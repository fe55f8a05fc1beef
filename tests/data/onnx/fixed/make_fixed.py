"""The modules of ../torch exported for fixed numbers of samples and tokens, as PyTorch does unless
told of dynamic_axes, and what PyTorch computes for other numbers of both.

    python3 make_fixed.py FOLDER     writes NAME.onnx and NAME.safetensors
"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "torch"))

import torch
from torch import nn

from make_encoders import Roberta
from make_graphs import N, S, T, Decoder, Encoder, Image, Words, draw, padding, reference, save_tensors

FIXED = 8  # tokens of the files


def export(path, module, inputs, output):
    torch.onnx.export(module, tuple(inputs.values()), path, input_names=list(inputs), output_names=[output],
                      opset_version=14, do_constant_folding=True)


def texts(n, t):
    return {"input_ids": torch.randint(3, 13, (n, t)), "attention_mask": padding(n, t)}


def write(folder, name, module, given, inputs):
    export(f"{folder}/{name}.onnx", module, given, "logits")
    save_tensors(f"{folder}/{name}.safetensors", {**inputs, "logits": reference(module, inputs)})


def write_translator(folder):
    words = nn.Embedding(13, 12)
    encoder, decoder = Encoder(words, 3, 20, 1, False), Decoder(words, 2, 16, 1, True)
    both = draw(nn.ModuleList([encoder, decoder]), 5)
    source = texts(1, FIXED + 1)
    export(f"{folder}/encoder_model.onnx", encoder, source, "last_hidden_state")
    target = {"encoder_attention_mask": source["attention_mask"], "input_ids": torch.randint(0, 13, (1, FIXED)),
              "encoder_hidden_states": encoder(*source.values()).detach()}
    export(f"{folder}/decoder_model.onnx", decoder, target, "logits")
    source, ids = texts(N, S), torch.randint(0, 13, (N, T))
    both.double()
    logits = decoder(source["attention_mask"], ids, encoder(*source.values())).detach()
    save_tensors(f"{folder}/decoder_model.safetensors", {**source, "decoder_input_ids": ids, "logits": logits})


if __name__ == "__main__":
    folder = sys.argv[1]
    torch.manual_seed(2)
    write(folder, "norm_last", draw(Words(False), 3), texts(1, FIXED), texts(N, T))
    write(folder, "roberta", draw(Roberta(), 6), texts(2, FIXED), texts(N, T))
    module = draw(Image(), 4)
    module.class_token.data.normal_()
    write(folder, "image", module, {"pixel_values": torch.randn(2, 3, 8, 8)},
          {"pixel_values": torch.randn(N, 3, 8, 8)})
    write_translator(folder)
