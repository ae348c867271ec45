"""python check_torch_file.py X.pt X.safetensors AGAIN.pt: torch.load has to read from the first what the second holds;
it is saved again as the third. Prints which tensors share their values."""

import json
import pathlib
import struct
import sys

import torch

DTYPES = {"BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "I16": torch.int16, "I32": torch.int32,
          "I64": torch.int64, "F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32,
          "F64": torch.float64, "C64": torch.complex64}


def expected(path):
    data = pathlib.Path(path).read_bytes()
    start = 8 + struct.unpack("<Q", data[:8])[0]
    for name, entry in json.loads(data[8:start]).items():
        begin, end = entry["data_offsets"]
        values = bytearray(data[start + begin:start + end])
        dtype = DTYPES[entry["dtype"]]
        flat = torch.frombuffer(values, dtype=dtype) if values else torch.empty(0, dtype=dtype)
        yield name, flat.reshape(entry["shape"])


def bits(tensor):
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).tolist()) if tensor.numel() else b""


def check(state, wanted):
    assert list(state) == [*state.keys()] and set(state) == set(wanted), (list(state), list(wanted))
    for name, tensor in wanted.items():
        found = state[name]
        assert found.dtype == tensor.dtype and found.shape == tensor.shape, (name, found, tensor)
        assert bits(found) == bits(tensor), (name, found, tensor)


def main(torch_file, safetensors_file, again):
    wanted = dict(expected(safetensors_file))
    state = torch.load(torch_file, weights_only=True)
    check(state, wanted)
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if version >= (2, 1):
        check(torch.load(torch_file, weights_only=True, mmap=True), wanted)
    if version >= (2, 6):
        check(torch.load(torch_file), wanted)
    torch.save(state, again)
    names = list(state)
    for i, one in enumerate(names):
        for other in names[i + 1:]:
            if state[one].numel() and state[one].data_ptr() == state[other].data_ptr():
                print("tied", one, other)


main(*sys.argv[1:])
