#!/usr/bin/env python3
"""Writes the golden runs: training with plain PyTorch, which Kindling's runs are compared with.

    python make_golden.py [--check] [CASE...]      (torch 2.13 for CPUs, safetensors, numpy)

Without arguments it writes all cases to the folder reference next to itself. With --check it writes nothing there and
compares its results with these files; the exit status is 1 if they differ by more than other CPUs explain.

cases.json describes the cases. For each of them the script writes, to reference/CASE,
  - init.safetensors: the weights before the first step, with the names of Python's state_dict,
  - losses.csv: global_step, train_loss_step, lr of the step and, with clipping, grad_norm; float32 with 9 digits,
  - final.safetensors: the weights after the last step.
A loss is the mean cross-entropy of the batch, or of all batches of the window with accumulated gradients. Everything
runs on one thread in fp32, and batches are taken in order, without shuffling.

The data are the first images of the MNIST test set (pixels / 255), or with "data": "digits" the training images of the
digits that Kindling contains (pixels / 16). The case `schedules` is reference/schedules.csv: the learning rates of
torch.optim.lr_scheduler, a column per schedule.
"""

import argparse
import csv
import gzip
import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.optim import lr_scheduler

HERE = Path(__file__).resolve().parent
REFERENCE = HERE / "reference"
REPOSITORY = HERE.parents[1]
MNIST = Path(os.environ.get("KINDLING_SHARED") or REPOSITORY) / "data/mnist-10k"
DIGITS = REPOSITORY / "src/data/digits"
# Other matrix kernels change a loss by up to 1e-6, and the last bits of the weights grow over the steps.
RELATIVE_TOLERANCE = 1e-5
WEIGHT_TOLERANCE = 1e-3

OPTIMIZERS = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
    "adagrad": torch.optim.Adagrad,
    "nadam": torch.optim.NAdam,
    "radam": torch.optim.RAdam,
}
SCHEDULES = {
    "constant": lr_scheduler.ConstantLR,
    "step": lr_scheduler.StepLR,
    "multistep": lr_scheduler.MultiStepLR,
    "exponential": lr_scheduler.ExponentialLR,
    "linear": lr_scheduler.LinearLR,
    "cosine": lr_scheduler.CosineAnnealingLR,
    "cosine_restarts": lr_scheduler.CosineAnnealingWarmRestarts,
    "polynomial": lr_scheduler.PolynomialLR,
    "one_cycle": lr_scheduler.OneCycleLR,
}


# --- Data


def read_idx(path):
    if not path.exists():
        sys.exit(f"{path}: no such file; benchmarks/README.md describes the MNIST files")
    raw = gzip.decompress(path.read_bytes())
    num_dimensions = raw[3]
    start = 4 + 4 * num_dimensions
    shape = np.frombuffer(raw, ">i4", offset=4, count=num_dimensions)
    return torch.from_numpy(np.frombuffer(raw, np.uint8, offset=start).reshape(shape).copy())


def mnist(num_samples):
    """Returns float images [n, 1, 28, 28] in 0…1 and labels, in the order of the file."""
    images, labels = (read_idx(MNIST / f"t10k-{kind}-ubyte.gz")[:num_samples] for kind in ("images-idx3", "labels-idx1"))
    return images.unsqueeze(1).float() / 255, labels.long()


def digits():
    """Returns float images [n, 1, 8, 8] in 0…1 and labels: the training samples as src/data/sources/digits.cpp splits them."""
    images, labels = (read_idx(DIGITS / f"digits-{kind}-ubyte.gz") for kind in ("images-idx3", "labels-idx1"))
    generator = torch.Generator().manual_seed(0)
    training = []
    for digit in range(10):
        samples = labels.eq(digit).nonzero().squeeze(1)
        mixed = samples[torch.randperm(len(samples), generator=generator)]
        num_validation = int(0.2 * len(samples) + 0.5)
        training.append(mixed[num_validation:])
    indices = torch.cat(training).sort().values
    return images[indices].unsqueeze(1).float() / 16, labels[indices].long()


# --- A run


class Model(nn.Module):
    """Gives the names of Kindling's models to the weights: net.0.weight."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net(x)


def linear_layers(widths):
    layers = [nn.Flatten()]
    for fan_in, fan_out in zip(widths, widths[1:]):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    return layers[:-1]


def make_model(options, num_pixels):
    """The models of Dive into Deep Learning (d2l.ai), as kindling/models has them."""
    if options["name"] == "softmax_regression":
        return Model(nn.Sequential(*linear_layers([num_pixels, 10])))
    if options["name"] == "mlp":
        return Model(nn.Sequential(*linear_layers([num_pixels, *options["hidden"], 10])))
    assert options["name"] == "lenet"
    return Model(nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.Sigmoid(), nn.AvgPool2d(2, 2),
        nn.Conv2d(6, 16, 5), nn.Sigmoid(), nn.AvgPool2d(2, 2), nn.Flatten(),
        nn.Linear(400, 120), nn.Sigmoid(), nn.Linear(120, 84), nn.Sigmoid(), nn.Linear(84, 10),
    ))


def make_schedule(optimizer, options, total_steps):
    options = dict(options)
    name = options.pop("name")
    if name != "warmup_cosine":
        return SCHEDULES[name](optimizer, **options)
    num_warm = options["warmup_steps"]
    warm_up = lr_scheduler.LinearLR(optimizer, start_factor=options["start_factor"], total_iters=num_warm)
    cosine = lr_scheduler.CosineAnnealingLR(optimizer, T_max=total_steps - num_warm)
    return lr_scheduler.SequentialLR(optimizer, [warm_up, cosine], milestones=[num_warm])


def save_weights(model, path):
    save_file({name: tensor.contiguous() for name, tensor in model.state_dict().items()}, path)


def write_csv(path, header, rows):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)


def batches(images, labels, size):
    """Yields batches of one epoch after the other; the last batch of an epoch may be smaller."""
    while True:
        yield from zip(images.split(size), labels.split(size))


def train(case, model, data):
    """Yields the rows of losses.csv."""
    options = dict(case["optimizer"])
    optimizer = OPTIMIZERS[options.pop("name")](model.parameters(), **options)
    schedule = make_schedule(optimizer, case["schedule"], case["steps"]) if "schedule" in case else None
    window = case.get("accumulate", 1)
    for step in range(1, case["steps"] + 1):
        optimizer.zero_grad()
        mean_loss = 0.0
        for _ in range(window):
            x, y = next(data)
            loss = nn.functional.cross_entropy(model(x), y)
            (loss / window).backward()
            mean_loss += loss.item() / window
        norm = ""
        if "clip" in case:
            norm = f"{nn.utils.clip_grad_norm_(model.parameters(), case['clip']).item():.9g}"
        yield step, f"{mean_loss:.9g}", f"{optimizer.param_groups[0]['lr']:.9g}", norm
        optimizer.step()
        if schedule:
            schedule.step()


def run(case, folder):
    images, labels = digits() if case.get("data") == "digits" else mnist(case["samples"])
    torch.manual_seed(case["seed"])
    model = make_model(case["model"], images[0].numel())
    folder.mkdir(parents=True, exist_ok=True)
    save_weights(model, folder / "init.safetensors")
    rows = list(train(case, model, batches(images, labels, case["batch_size"])))
    write_csv(folder / "losses.csv", ["global_step", "train_loss_step", "lr", "grad_norm"], rows)
    save_weights(model, folder / "final.safetensors")
    print(f"{folder.name}: loss {rows[0][1]} -> {rows[-1][1]}")


# --- Schedules


def rates(case):
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=case["lr"])
    schedule = make_schedule(optimizer, case["schedule"], case["steps"])
    for _ in range(case["steps"]):
        yield f"{optimizer.param_groups[0]['lr']:.12g}"
        optimizer.step()
        schedule.step()


def write_schedules(cases, file):
    rows = zip(*(rates(case) for case in cases), strict=True)
    write_csv(file, ["step", *(case["name"] for case in cases)], ([step, *row] for step, row in enumerate(rows)))


# --- Comparison with the files


def numbers(file):
    with file.open(newline="") as lines:
        return [float(cell) for row in list(csv.reader(lines))[1:] for cell in row if cell]


def deviation(file, reference):
    """Returns the largest deviation: relative for numbers of a CSV file, absolute for weights."""
    if file.suffix == ".csv":
        return max(abs(a - b) / (abs(b) or 1) for a, b in zip(numbers(file), numbers(reference), strict=True))
    made, expected = load_file(file), load_file(reference)
    assert made.keys() == expected.keys(), f"{reference} has other weights"
    return max((made[name] - tensor).abs().max().item() for name, tensor in expected.items())


def all_agree(folder):
    """Compares all files below the folder with the reference, and prints a line for each."""
    agree = True
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = file.relative_to(folder)
        if file.read_bytes() == (REFERENCE / name).read_bytes():
            print(f"{name}: identical")
            continue
        distance = deviation(file, REFERENCE / name)
        agree = agree and distance <= (RELATIVE_TOLERANCE if file.suffix == ".csv" else WEIGHT_TOLERANCE)
        print(f"{name}: differs by up to {distance:.1e}")
    return agree


def write(golden, names, folder):
    for case in golden["cases"]:
        if case["name"] in names:
            run(case, folder / case["name"])
    if "schedules" in names:
        write_schedules(golden["schedules"], folder / "schedules.csv")


def main():
    golden = json.loads((HERE / "cases.json").read_text())
    names = [*(case["name"] for case in golden["cases"]), "schedules"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", nargs="*", default=names, metavar="CASE", help=", ".join(names))
    parser.add_argument("--check", action="store_true", help="compare with the files instead of writing them")
    args = parser.parse_args()
    if unknown := set(args.case) - set(names):
        parser.error(f"unknown case: {', '.join(sorted(unknown))}")
    torch.set_num_threads(1)
    if not args.check:
        write(golden, args.case, REFERENCE)
        return
    with tempfile.TemporaryDirectory() as folder:
        write(golden, args.case, Path(folder))
        sys.exit(0 if all_agree(Path(folder)) else 1)


if __name__ == "__main__":
    main()
