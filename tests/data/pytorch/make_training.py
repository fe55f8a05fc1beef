"""Checkpoints as training scripts of PyTorch leave them: arguments of the command line and
numbers of numpy's beside the weights; and one of them compressed by another tool.

    /usr/bin/python3 make_training.py     needs PyTorch (1.13) and numpy
"""
import argparse
import os
import zipfile

import numpy as np
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
weights = {"weight": torch.arange(600, dtype=torch.float32).reshape(20, 30), "bias": torch.zeros(20)}
checkpoint = {"args": argparse.Namespace(lr=1e-3, name="run", sizes=[1, 2]), "epoch": np.int64(-7),
              "best": np.float64(0.25), "loss": np.float32(1.5), "flag": np.bool_(True), "model": weights}
for protocol in (2, 4):
    torch.save(checkpoint, os.path.join(HERE, "arguments_%d.pt" % protocol), pickle_protocol=protocol)
with zipfile.ZipFile(os.path.join(HERE, "arguments_2.pt")) as source, \
        zipfile.ZipFile(os.path.join(HERE, "deflated.pt"), "w", zipfile.ZIP_DEFLATED) as target:
    for entry in source.infolist():
        target.writestr(zipfile.ZipInfo(entry.filename), source.read(entry), zipfile.ZIP_DEFLATED)
