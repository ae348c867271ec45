"""table_programs.py FOLDER RUN: runs FOLDER/houses.pt2 and FOLDER/houses.onnx on the raw rows of FOLDER/new.csv, and compares them with the
predictions in FOLDER/new.jsonl. Without arguments, only imports what it needs."""
import csv
import json
import pathlib
import struct
import sys

# Where scripts/test.sh installs onnxruntime and numpy.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[3] / ".deps" / "onnx"))

import numpy
import onnxruntime
import torch

if len(sys.argv) < 3:
    sys.exit(0)
folder, run = sys.argv[1:]


def metadata(path):
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        return json.loads(file.read(size))["__metadata__"]


def raw_value(feature, text):
    if feature["kind"] == "number":
        return float(text) if text not in ("", "NA") else float("nan")
    if text == "" and not feature.get("declared"):
        return float("nan")
    return feature["categories"].index(text) if text in feature["categories"] else -1


features = json.loads(metadata(run + "/weights.safetensors")["input_transform"])["features"]
with open(folder + "/new.csv", newline="") as file:
    rows = [[raw_value(feature, row[feature["name"]]) for feature in features] for row in csv.DictReader(file)]
raw = numpy.array(rows, dtype=numpy.float32)
assert numpy.isnan(raw).any() and (raw == -1).any()
predicted = numpy.array([json.loads(line)["outputs"] for line in open(folder + "/new.jsonl")])

program = torch.export.load(folder + "/houses.pt2").module()
session = onnxruntime.InferenceSession(folder + "/houses.onnx", providers=["CPUExecutionProvider"])
for name, outputs in (("pt2", program(torch.from_numpy(raw)).detach().numpy()),
                      ("onnx", session.run(None, {session.get_inputs()[0].name: raw})[0])):
    difference = numpy.abs(outputs - predicted).max()
    assert difference <= 1e-5, f"{name}: {difference}"
    assert numpy.isfinite(outputs).all()
