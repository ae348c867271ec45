"""image_programs.py FOLDER: runs the exported programs of FOLDER/CASE.images.pt, raw uint8 images, and compares them with the predictions in
FOLDER/CASE.npz: labels for labels, probabilities to 1e-6. Without arguments, only imports what it needs."""
import json
import pathlib
import sys

# Where scripts/test.sh installs onnxruntime and numpy.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[3] / ".deps" / "onnx"))

import numpy
import onnxruntime
import torch


def in_python(path, raw):
    """What the program returns for all images and for one, and its class names."""
    extra_files = {"class_names": ""}
    program = torch.export.load(path, extra_files=extra_files).module()
    names = extra_files["class_names"]
    with torch.no_grad():
        return program(raw).numpy(), program(raw[-1:]).numpy(), names if isinstance(names, str) else names.decode()


def in_onnxruntime(path, raw):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    assert given.type == "tensor(uint8)" and given.shape[0] == "batch" and given.shape[1:] == list(raw.shape[1:]), (given.type, given.shape)
    names = session.get_modelmeta().custom_metadata_map.get("class_names", "")
    return session.run(None, {given.name: raw.numpy()})[0], session.run(None, {given.name: raw[-1:].numpy()})[0], names


def check(folder, case, num_samples):
    raw = torch.load(folder / f"{case}.images.pt")["images"]
    predicted = numpy.load(folder / f"{case}.npz")
    assert raw.dtype == torch.uint8 and len(raw) == len(predicted["class"]) == num_samples
    assert len(set(predicted["class"].tolist())) > 1
    for ending, run in (("pt2", in_python), ("onnx", in_onnxruntime)):
        labels, last, names = run(str(folder / f"{case}.labels.{ending}"), raw)
        assert labels.dtype == numpy.int64 and (labels == predicted["class"]).all(), (case, ending, (labels != predicted["class"]).sum())
        assert last.tolist() == labels[-1:].tolist()
        assert json.loads(names) == ["day", "night"] if case == "files" else names == "", (case, ending, names)
        probabilities = run(str(folder / f"{case}.probabilities.{ending}"), raw)[0]
        difference = numpy.abs(probabilities - predicted["probabilities"]).max()
        assert probabilities.shape == predicted["probabilities"].shape and difference <= 1e-6, (case, ending, difference)


if __name__ == "__main__" and len(sys.argv) > 1:
    torch.set_num_threads(1)
    for case, num_samples in (("digits", 1797), ("resized", 1797), ("files", 8)):
        check(pathlib.Path(sys.argv[1]), case, num_samples)
