"""Files as torch.save writes them, without PyTorch: Python's own pickle makes the stream,
with classes and functions of PyTorch's names in it.

    save_zip(value, path)      the archive of PyTorch 1.6 and later
    save_stream(value, path)   the stream before that
    tensor(array, ...)         a tensor of a numpy array, or a strided look at a Storage

The archive has what PyTorch's writer puts into it: stored entries with bits 3 and 11,
sizes in the record behind the data, padding up to 64 bytes in an extra field "FB", and a
directory of 64 bits.
"""
import io
import pickle
import struct
import sys
import types
import zlib
from collections import OrderedDict

import numpy as np


def _module(name):
    module = types.ModuleType(name)
    sys.modules[name] = module
    return module


torch = _module("torch")
torch._utils = _module("torch._utils")


def _named(module, name):
    def function(*_):
        raise RuntimeError("only its name is pickled")
    function.__module__, function.__name__, function.__qualname__ = module, name, name
    setattr(sys.modules[module], name, function)
    return function


rebuild_tensor = _named("torch._utils", "_rebuild_tensor_v2")
rebuild_tensor_old = _named("torch._utils", "_rebuild_tensor")
rebuild_parameter = _named("torch._utils", "_rebuild_parameter")
size_class = _named("torch", "Size")

CLASSES = {}
for _name, _kind in [("Float", "<f4"), ("Double", "<f8"), ("Half", "<f2"), ("Long", "<i8"),
                     ("Int", "<i4"), ("Char", "|i1"), ("Byte", "|u1"), ("Bool", "|b1"),
                     ("BFloat16", "bf16")]:
    _class = type(_name + "Storage", (), {"__module__": "torch"})
    setattr(torch, _name + "Storage", _class)
    CLASSES[_kind] = _class


class Storage:
    """Numbers that tensors look at. kind: a numpy dtype, or "bf16" over uint16."""

    def __init__(self, array, kind=None):
        self.array = np.ascontiguousarray(array).reshape(-1)
        self.kind = kind or self.array.dtype.str


class Tensor:
    def __init__(self, storage, offset, size, stride):
        self.arguments = (storage, offset, tuple(size), tuple(stride), False, OrderedDict())
        self.rebuild = rebuild_tensor

    def __reduce_ex__(self, protocol):
        return self.rebuild, self.arguments


class OldTensor(Tensor):
    def __init__(self, storage, offset, size, stride):
        self.arguments = (storage, offset, tuple(size), tuple(stride))
        self.rebuild = rebuild_tensor_old


class Parameter:
    def __init__(self, data):
        self.data = data

    def __reduce_ex__(self, protocol):
        return rebuild_parameter, (self.data, True, OrderedDict())


class Size:
    def __init__(self, *dims):
        self.dims = dims

    def __reduce__(self):
        return size_class, (self.dims,)


def strides(shape):
    out, step = [], 1
    for dim in reversed(shape):
        out.append(step)
        step *= dim
    return tuple(reversed(out))


def tensor(array, kind=None, storage=None, offset=0, size=None, stride=None):
    storage = storage or Storage(array, kind)
    size = np.shape(array) if size is None else size
    return Tensor(storage, offset, size, stride if stride is not None else strides(size))


def dumps(value, protocol=2, views=False):
    """The pickle of a value, and its storages with their keys. views: as the stream has
    persistent ids, with the view of a storage behind its size."""
    storages = {}

    class Pickler(pickle.Pickler):
        def persistent_id(self, thing):
            if not isinstance(thing, Storage):
                return None
            key = storages.setdefault(id(thing), (str(len(storages)), thing))[0]
            told = ("storage", CLASSES[thing.kind], key, "cpu", thing.array.size)
            return told + (None,) if views else told

    out = io.BytesIO()
    Pickler(out, protocol).dump(value)
    return out.getvalue(), [s for s in storages.values()]


def save_stream(value, path):
    data, storages = dumps(value, views=True)
    with open(path, "wb") as file:
        pickle.dump(0x1950a86a20f9469cfc6c, file, 2)
        pickle.dump(1001, file, 2)
        pickle.dump({"protocol_version": 1001, "little_endian": True,
                     "type_sizes": {"short": 2, "int": 4, "long": 4}}, file, 2)
        file.write(data)
        pickle.dump(sorted(key for key, _ in storages), file, 2)
        for _, storage in sorted(storages, key=lambda pair: pair[0]):
            file.write(struct.pack("<q", storage.array.size))
            file.write(storage.array.tobytes())


def write_archive(entries, path, zip64=True):
    """Entries are pairs of name and bytes."""
    out, directory, flags = b"", b"", 0x0808
    for name, data in entries:
        name, crc, start = name.encode(), zlib.crc32(data), len(out)
        padding = -(start + 30 + len(name) + 4) % 64
        extra = b"FB" + struct.pack("<H", padding) + b"Z" * padding
        out += struct.pack("<IHHHHHIIIHH", 0x04034b50, 0, flags, 0, 0, 0, 0, 0, 0, len(name),
                           len(extra)) + name + extra + data
        out += struct.pack("<IIII", 0x08074b50, crc, len(data), len(data))
        directory += struct.pack("<IHHHHHHIIIHHHHHII", 0x02014b50, 0, 0, flags, 0, 0, 0, crc,
                                 len(data), len(data), len(name), 0, 0, 0, 0, 0, start) + name
    start, count = len(out), len(entries)
    out += directory
    if zip64:
        out += struct.pack("<IQHHIIQQQQ", 0x06064b50, 44, 45, 45, 0, 0, count, count,
                           len(directory), start)
        out += struct.pack("<IIQI", 0x07064b50, 0, start + len(directory), 1)
    out += struct.pack("<IHHHHIIH", 0x06054b50, 0, 0, count, count, len(directory), start, 0)
    with open(path, "wb") as file:
        file.write(out)


def archive_entries(value, protocol=2, folder="archive"):
    data, storages = dumps(value, protocol)
    entries = [(folder + "/data.pkl", data), (folder + "/byteorder", b"little")]
    entries += [(folder + "/data/" + key, storage.array.tobytes()) for key, storage in storages]
    return entries + [(folder + "/version", b"3\n")]


def save_zip(value, path, protocol=2, folder="archive"):
    write_archive(archive_entries(value, protocol, folder), path)


def read_safetensors(path):
    """Tensors of a file by name: f32 and others as numpy has them, bf16 as uint16."""
    import json
    with open(path, "rb") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        header, data = json.loads(file.read(length)), file.read()
    kinds = {"F32": "<f4", "F16": "<f2", "F64": "<f8", "I64": "<i8", "I32": "<i4", "BF16": "<u2"}
    out = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        array = np.frombuffer(data[begin:end], dtype=kinds[entry["dtype"]])
        out[name] = array.reshape(entry["shape"])
    return out
