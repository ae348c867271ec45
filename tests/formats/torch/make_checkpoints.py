"""python make_checkpoints.py FOLDER: writes one file of each kind of checkpoint that people share, and next to it what
torch.load returns for it, as safetensors. Prints a line for each: FILE EXPECTED KEY. Without NumPy, its kinds are omitted."""

import argparse
import collections
import datetime
import fractions
import io
import json
import os
import pathlib
import struct
import sys

import torch

try:
    import numpy
except ImportError:
    numpy = None

NAMES = {torch.bool: "BOOL", torch.uint8: "U8", torch.int8: "I8", torch.int16: "I16", torch.int32: "I32",
         torch.int64: "I64", torch.float16: "F16", torch.bfloat16: "BF16", torch.float32: "F32", torch.float64: "F64",
         torch.complex64: "C64", torch.uint16: "U16", torch.uint32: "U32", torch.uint64: "U64",
         torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2"}


class Settings:
    """A class of the user's, which only this program has."""

    def __init__(self):
        self.width, self.path, self.me = 3, pathlib.PurePosixPath("a/b"), self


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3, bias=False), torch.nn.BatchNorm2d(3), torch.nn.ReLU())
        self.head = torch.nn.Linear(3, 4)
        self.tied = torch.nn.Linear(3, 4, bias=False)
        self.tied.weight = self.head.weight
        self.lstm = torch.nn.LSTM(2, 3)
        self.register_buffer("kept", torch.arange(5))
        self.register_buffer("temporary", torch.ones(2), persistent=False)
        self.register_buffer("empty", None)
        self.plain = torch.ones(3)  # not in a state dict
        self.settings = Settings()

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


class Scripted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(3, 3), torch.nn.Linear(3, 2)])
        self.norm = torch.nn.BatchNorm1d(2)
        self.plain = torch.ones(3)
        self.count: int = 3

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.norm(x) * self.count + self.plain[:2]


class Namespace(argparse.Namespace):
    pass


def write_expected(path, state):
    header, values = {}, b""
    for name, tensor in state.items():
        flat = tensor.detach().contiguous().clone().reshape(-1)
        data = bytes(flat.view(torch.uint8).tolist()) if flat.numel() else b""
        header[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [len(values), len(values) + len(data)]}
        values += data
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + values)


def beside():
    """Values that no tensor is made from."""
    values = {"epoch": 3, "none": None, "big": 2**70, "set": {1, 2}, "frozen": frozenset("a"), "bytes": b"abc", "complex": 1j,
              "dtype": torch.float32, "device": torch.device("cpu"), "size": torch.Size([1, 2]), "layout": torch.strided,
              "args": Namespace(lr=0.1, name="x"), "settings": Settings(), "path": pathlib.PurePosixPath("a"),
              "date": datetime.datetime(2026, 1, 1), "fraction": fractions.Fraction(1, 3), "function": os.path.join,
              "counter": collections.Counter("aab"), "named": collections.namedtuple, "deque": collections.deque([1, 2]),
              "default": collections.defaultdict(list, {"a": [1]}), "ordered": collections.OrderedDict(a=1),
              "slice": slice(1, 2), "range": range(3), "keys": {(1, 2): 3, None: 4, 1.5: 5}, "file": io.BytesIO(b"x"),
              "rng": torch.get_rng_state(), "sparse": torch.eye(2).to_sparse(),
              "quantized": torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)}
    if numpy is not None:
        values.update({"scalar": numpy.float64(0.5), "array": numpy.arange(3), "state": numpy.random.get_state(),
                       "generator": numpy.random.default_rng(1)})
    return values


def main(folder):
    folder = pathlib.Path(folder)
    torch.manual_seed(1)
    net = Net()
    state = net.state_dict()
    optimizer = torch.optim.AdamW(net.parameters())
    net(torch.randn(2, 2, 5, 5)).sum().backward()
    optimizer.step()
    halves = {k: v.half() if v.is_floating_point() else v for k, v in state.items()}
    many = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    views = {"rows": many, "transposed": many.t(), "tail": many.reshape(-1)[20:], "expanded": many[:1, :2].expand(3, 2),
             "scalar": torch.tensor(2.5), "empty": torch.empty(0, 3), "parameter": torch.nn.Parameter(torch.ones(2)),
             "complex": torch.randn(3, dtype=torch.complex64), "flags": torch.tensor([True, False])}
    new_types = {"u16": torch.arange(3).to(torch.uint16), "u32": torch.arange(3).to(torch.uint32)[1:],
                 "u64": torch.arange(3).to(torch.uint64), "e4m3": torch.randn(4).to(torch.float8_e4m3fn),
                 "e5m2": torch.randn(4, 2).to(torch.float8_e5m2).t()}
    marked = torch.nn.Parameter(torch.ones(2))
    marked.is_marked = True  # an attribute in Python
    checkpoint = {"state_dict": state, "optimizer": optimizer.state_dict(), **beside()}
    kinds = [("state", state, "", state), ("views", views, "", views), ("new_types", new_types, "", new_types),
             ("nested", {"epoch": 3, "state_dict": state}, "", state),
             ("levels", {"model": {"state_dict": state, "args": {"n": 3}}}, "", state),
             ("levels_key", {"model": {"state_dict": state}, "x": torch.ones(1)}, "model.state_dict", state),
             ("dotted_key", {"a.b": {"c.d": state}, "x": torch.ones(1)}, "a.b.c.d", state),
             ("checkpoint", checkpoint, "state_dict", state),
             ("two", {"model": state, "ema": halves}, "ema", halves),
             ("pair", (state, optimizer.state_dict()), "0", state),
             ("attributes", {"marked": marked, "n": 3}, "", {"marked": marked}),
             ("default_dict", collections.defaultdict(list, state), "", state),
             ("module", net, "", state), ("module_key", {"model": net, "optimizer": optimizer.state_dict()}, "model", state),
             ("data_parallel", torch.nn.DataParallel(net), "", {"module." + k: v for k, v in state.items()})]
    if numpy is None:
        checkpoint.pop("quantized")
    for name, value, key, expected in kinds:
        for variant, options in (("", {}), ("old_", {"_use_new_zipfile_serialization": False}),
                                 ("newest_pickle_", {"pickle_protocol": 5})):
            if variant == "old_" and name == "new_types":
                continue
            torch.save(value, folder / (variant + name + ".pt"), **options)
            write_expected(folder / (variant + name + ".safetensors"), expected)
            print(variant + name + ".pt", variant + name + ".safetensors", key)
    for name, program in (("scripted", torch.jit.script(Scripted())),
                          ("traced", torch.jit.trace(Net().eval(), torch.randn(1, 2, 5, 5)))):
        program.save(str(folder / (name + ".pt")))
        write_expected(folder / (name + ".safetensors"), torch.jit.load(str(folder / (name + ".pt"))).state_dict())
        print(name + ".pt", name + ".safetensors", "")


main(sys.argv[1])
