"""table_programs.py FOLDER RUN: runs FOLDER/houses.pt2 and FOLDER/houses.onnx on the raw rows of FOLDER/new.csv, and compares them with the
predictions in FOLDER/new.jsonl. If a column of the run has an offset, the programs must take float64 rows only. Without arguments, only
imports what it needs."""
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


def raw_rows(run, table):
    """The inputs of an exported program, from the rows of a CSV file and the description in a run's weights."""
    features = json.loads(metadata(f"{run}/weights.safetensors")["input_transform"])["features"]
    with open(table, newline="") as file:
        rows = [[raw_value(feature, row[feature["name"]]) for feature in features] for row in csv.DictReader(file)]
    has_offsets = any("offset" in feature for feature in features)
    return numpy.array(rows, dtype=numpy.float64 if has_offsets else numpy.float32)


def require_refusal(run):
    """Rows that are float32 lack the digits, and must not be predicted."""
    try:
        run()
    except Exception as error:
        assert "double" in str(error).lower() or "float64" in str(error), error
        return
    raise AssertionError("the program takes float32 rows")


def differences(program, onnx, raw, predictions):
    """The largest differences of a .pt2 and an ONNX file from the outputs in a file of JSON lines, by the kind of file."""
    predicted = numpy.array([json.loads(line)["outputs"] for line in open(predictions)])
    session = onnxruntime.InferenceSession(str(onnx), providers=["CPUExecutionProvider"])
    outputs = {"pt2": torch.export.load(program).module()(torch.from_numpy(raw)).detach().numpy(),
               "onnx": session.run(None, {session.get_inputs()[0].name: raw})[0]}
    assert all(numpy.isfinite(values).all() for values in outputs.values())
    if raw.dtype == numpy.float64:
        require_refusal(lambda: torch.export.load(program).module()(torch.from_numpy(raw.astype(numpy.float32))))
        require_refusal(lambda: session.run(None, {session.get_inputs()[0].name: raw.astype(numpy.float32)}))
    return {name: float(numpy.abs(values - predicted).max()) for name, values in outputs.items()}


def main():
    folder, run = sys.argv[1:]
    raw = raw_rows(run, folder + "/new.csv")
    assert numpy.isnan(raw).any() and (raw == -1).any()
    for name, difference in differences(folder + "/houses.pt2", folder + "/houses.onnx", raw, folder + "/new.jsonl").items():
        assert difference <= 1e-5, f"{name}: {difference}"


if __name__ == "__main__" and len(sys.argv) == 3:
    main()
