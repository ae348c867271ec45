"""Trains ResNet-18 on 2,000 PNG and JPEG files, from a config of Kindling and in PyTorch with PIL, and compares the accuracy.

    python benchmarks/image_training.py [--program build/release/bin/kindling] [--seeds 3] [--epochs 5] [--mnist DIR] [--json FILE]

Needs Pillow, NumPy and PyTorch; no torchvision. The files have 24 x 24 pixels, noise, and one of four shapes, of which the rarest is
seven times as rare as the most frequent one; with --mnist, which names the directory of the test images of MNIST, they are digits, of
which 9 is ten times as rare as 0. Both programs resize to 16 x 16 with bilinear interpolation, draw all classes equally
often, crop with a margin of 2, flip half of the images, normalize, and train with Adam and a learning rate that falls along a cosine;
400 of the files, the same ones for both, are for validation. The initial weights have the same distribution, but other random
numbers, as have the transforms: what agrees is the accuracy, within its spread over the seeds. Prints the accuracy of the last epoch
and the processor time of each run, one thread each.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from facts import append_result, machine_facts

ROOT = Path(__file__).resolve().parent.parent
SHAPES, CUMULATIVE = ["circle", "cross", "ring", "square"], [0.49, 0.79, 0.93, 1.0]
NUM_FILES, NUM_TRAIN, SIZE = 2000, 1600, 16

CONFIG = """[model]
name = "resnet18"
num_classes = NUM_CLASSES
in_channels = 3
small_images = true

[data]
name = "image_folder"
root = "images"
list = "images.csv"
size = [16, 16]
channels = 3
train = [0, 1600]
val = [1600, 2000]
sampler = "balanced"
batch_size = 64
num_workers = 1

[[data.train_transforms]]
name = "random_crop"
size = [16, 16]
padding = 2

[[data.train_transforms]]
name = "random_horizontal_flip"

[[data.train_transforms]]
name = "normalize"
mean = [0.5]
std = [0.25]

[[data.val_transforms]]
name = "normalize"
mean = [0.5]
std = [0.25]

[optimizer]
name = "adam"
lr = 0.001

[schedule]
name = "cosine"

[trainer]
num_threads = 1
num_gpus = 0

[checkpoint]
every_n_epochs = 0
"""


def write_images(folder):
    """Writes images/NUMBER.png and .jpg, and images.csv with their shapes."""
    import numpy
    from PIL import Image

    generator = numpy.random.default_rng(0)
    (folder / "images").mkdir()
    rows = ["file,label"]
    for number in range(NUM_FILES):
        shape = int(numpy.searchsorted(CUMULATIVE, generator.uniform()))
        center, radius = generator.uniform(9, 15, 2), generator.uniform(5, 8)
        y, x = numpy.mgrid[0:24, 0:24]
        y, x = y - center[0], x - center[1]
        distance = numpy.hypot(x, y)
        inside = [distance < radius, (numpy.minimum(abs(x), abs(y)) < radius / 3) & (numpy.maximum(abs(x), abs(y)) < radius),
                  (distance < radius) & (distance > radius / 2), numpy.maximum(abs(x), abs(y)) < radius * 0.9][shape]
        colors = [generator.uniform(130, 230, 3), generator.uniform(20, 120, 3)]
        pixels = numpy.where(inside[..., None], colors[0], colors[1]) + generator.normal(0, 15, (24, 24, 3))
        name = f"{number:04}." + ("png" if number % 2 == 0 else "jpg")
        Image.fromarray(pixels.clip(0, 255).astype(numpy.uint8)).save(folder / "images" / name, **({} if number % 2 == 0 else {"quality": 90}))
        rows.append(f"{name},{SHAPES[shape]}")
    (folder / "images.csv").write_text("\n".join(rows) + "\n")


def write_digits(folder, mnist):
    """Writes the same files with digits: the first ones of the test images whose classes fit."""
    import gzip

    import numpy
    from PIL import Image

    def read(name, header):
        path = next(path for path in (mnist / name, mnist / (name + ".gz")) if path.exists())
        content = path.read_bytes()
        return numpy.frombuffer(gzip.decompress(content) if path.suffix == ".gz" else content, numpy.uint8, offset=header)

    images, labels = read("t10k-images-idx3-ubyte", 16).reshape(-1, 28, 28), read("t10k-labels-idx1-ubyte", 8)
    frequency = numpy.linspace(1, 0.1, 10)
    left = (frequency / frequency.sum() * NUM_FILES).round().astype(int)
    left[0] += NUM_FILES - left.sum()
    (folder / "images").mkdir()
    rows = ["file,label"]
    for image, label in zip(images, labels):
        if left[label] == 0:
            continue
        left[label] -= 1
        number = len(rows) - 1
        name = f"{number:04}." + ("png" if number % 2 == 0 else "jpg")
        Image.fromarray(image).save(folder / "images" / name, **({} if number % 2 == 0 else {"quality": 90}))
        rows.append(f"{name},{label}")
    # The validation files are the last ones: without this, frequent digits would be rare among them.
    rows[1:] = numpy.random.default_rng(0).permutation(rows[1:]).tolist()
    (folder / "images.csv").write_text("\n".join(rows) + "\n")


def train_in_pytorch(folder, seed, epochs):
    """The program in PyTorch: prints the accuracy."""
    import csv

    import numpy
    import torch
    from PIL import Image

    sys.argv = ["resnet18.py", "", ""]  # the module acts on its arguments
    source = (ROOT / "tests/models/fixtures/resnet18.py").read_text().split("MODELS = ")[0]
    names = {}
    exec(compile(source, "resnet18.py", "exec"), names)
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    with open(folder / "images.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    classes = sorted({row["label"] for row in rows})

    class Files(torch.utils.data.Dataset):
        def __init__(self, rows):
            self.rows = rows

        def __len__(self):
            return len(self.rows)

        def __getitem__(self, index):
            row = self.rows[index]
            with Image.open(folder / "images" / row["file"]) as opened:
                image = opened.convert("RGB").resize((SIZE, SIZE), Image.Resampling.BILINEAR)
            return torch.from_numpy(numpy.array(image)).permute(2, 0, 1), classes.index(row["label"])

    def scaled(images):
        return (images.float() / 255 - 0.5) / 0.25

    def augmented(images):
        padded = torch.nn.functional.pad(images, (2, 2, 2, 2))
        parts = []
        for image, (top, left) in zip(padded, torch.randint(0, 5, (len(images), 2)).tolist()):
            part = image[:, top:top + SIZE, left:left + SIZE]
            parts.append(part.flip(2) if torch.rand(()) < 0.5 else part)
        return torch.stack(parts)

    training, validation = Files(rows[:NUM_TRAIN]), Files(rows[NUM_TRAIN:])
    labels = torch.tensor([classes.index(row["label"]) for row in training.rows])
    weights = (1.0 / labels.bincount().double())[labels]
    sampler = torch.utils.data.WeightedRandomSampler(weights, len(weights))
    loader = torch.utils.data.DataLoader(training, batch_size=64, sampler=sampler)
    checked = torch.utils.data.DataLoader(validation, batch_size=64)
    model = names["ResNet18"](len(classes), 3, True)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(loader))
    for _ in range(epochs):
        model.train()
        for images, target in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(scaled(augmented(images))), target).backward()
            optimizer.step()
            schedule.step()
        model.eval()
        with torch.no_grad():
            right = sum(int((model(scaled(images)).argmax(1) == target).sum()) for images, target in checked)
    print(right / len(validation))


def seconds_of(command, folder):
    """Runs a command; returns its output and its seconds of processor and wall time."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if run.returncode != 0:
        sys.exit(f"{command[0]} failed:\n{run.stderr}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return run.stdout, {"cpu_s": round(cpu, 1), "wall_s": round(time.monotonic() - start, 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=ROOT / "build/release/bin/kindling", type=Path)
    parser.add_argument("--seeds", default=3, type=int)
    parser.add_argument("--epochs", default=5, type=int)
    parser.add_argument("--mnist", type=Path, metavar="DIR", help="digits of the test images in this directory, instead of shapes")
    parser.add_argument("--json", type=Path, help="append the results to this file")
    parser.add_argument("--train", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        return train_in_pytorch(options.train, options.seed, options.epochs)
    import torch

    facts = machine_facts()
    results = {"kindling": [], "pytorch_pil": []}
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        if options.mnist:
            write_digits(folder, options.mnist)
        else:
            write_images(folder)
        (folder / "images.toml").write_text(CONFIG.replace("NUM_CLASSES", "10" if options.mnist else str(len(SHAPES))))
        for seed in range(options.seeds):
            _, used = seconds_of([str(options.program.resolve()), "fit", "images.toml", f"seed={seed}", f"trainer.max_epochs={options.epochs}",
                                  "--progress", "none", "--quiet"], folder)
            records = (sorted(folder.glob("runs/images/*"))[-1] / "metrics.jsonl").read_text().splitlines()
            last = [record for record in map(json.loads, records) if "val_acc" in record][-1]
            results["kindling"].append({"accuracy": last["val_acc"]} | used)
            output, used = seconds_of([sys.executable, __file__, "--train", str(folder), "--seed", str(seed), "--epochs", str(options.epochs)], folder)
            results["pytorch_pil"].append({"accuracy": float(output)} | used)
            for name, runs in results.items():
                print(f"seed {seed}: {name:12} accuracy {runs[-1]['accuracy']:.4f}   cpu {runs[-1]['cpu_s']:6.1f} s   wall {runs[-1]['wall_s']:6.1f} s", flush=True)
    means = {name: statistics.mean(run["accuracy"] for run in runs) for name, runs in results.items()}
    print("mean accuracy: " + ", ".join(f"{name} {mean:.4f}" for name, mean in means.items()))
    case = {"case": "image_training", "images": "mnist" if options.mnist else "shapes", "epochs": options.epochs, "torch": torch.__version__}
    append_result(options.json, case | facts | results)


if __name__ == "__main__":
    sys.exit(main())
