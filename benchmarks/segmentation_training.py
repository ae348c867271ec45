"""Trains a U-Net on 600 images and masks, from a config of Kindling and in PyTorch with PIL, and compares the mean IoU.

    python benchmarks/segmentation_training.py [--program build/release/bin/kindling] [--seeds 3] [--epochs 8] [--json FILE]

Needs Pillow, NumPy and PyTorch; no torchvision. The images have 64 x 64 pixels with noise and up to four discs and squares, of which
most discs are the lighter ones; the masks have their classes, with borders of the value 255, which do not count. Both programs flip
half of the images with their masks, and train the same network with Adam on 480 of them; 120, the same ones for both, are for
validation. Initial weights and flips are other random numbers of the same distribution: what agrees is the IoU, within its spread over
the seeds. Prints the mean IoU of the last epoch and the processor time of each run, one thread each.
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

from facts import append_result, machine_facts
from image_training import seconds_of

ROOT = Path(__file__).resolve().parent.parent
NUM_FILES, NUM_TRAIN, SIZE, NUM_CLASSES, WIDTH, DEPTH, BATCH, LR = 600, 480, 64, 3, 8, 3, 16, 0.003

CONFIG = f"""[model]
name = "unet"
num_classes = {NUM_CLASSES}
in_channels = 3
width = {WIDTH}
depth = {DEPTH}
metrics = ["iou_macro"]

[data]
name = "segmentation_folder"
root = "shapes"
classes = ["background", "disc", "square"]
train_list = "train.txt"
val_list = "val.txt"
batch_size = {BATCH}

[[data.train_transforms]]
name = "random_horizontal_flip"

[optimizer]
name = "adam"
lr = {LR}

[trainer]
num_threads = 1
num_gpus = 0

[checkpoint]
every_n_epochs = 0
"""


def write_files(folder):
    """Writes shapes/images/NUMBER.png and .jpg, shapes/masks/NUMBER.png, and the lists of both sets."""
    import numpy
    from PIL import Image

    generator = numpy.random.default_rng(0)
    root = folder / "shapes"
    for name in ("images", "masks"):
        (root / name).mkdir(parents=True)
    y, x = numpy.mgrid[0:SIZE, 0:SIZE]
    for number in range(NUM_FILES):
        mask = numpy.zeros((SIZE, SIZE), numpy.uint8)
        background = generator.uniform(80, 170, 3)
        pixels = numpy.broadcast_to(background, (SIZE, SIZE, 3)).copy()
        for _ in range(generator.integers(1, 5)):
            kind, radius = int(generator.integers(1, 3)), generator.uniform(5, 12)
            center = generator.uniform(8, SIZE - 8, 2)
            distance = numpy.hypot(y - center[0], x - center[1]) if kind == 1 else numpy.maximum(abs(y - center[0]), abs(x - center[1]))
            mask[distance < radius + 1] = 255
            mask[distance < radius] = kind
            pixels[distance < radius + 0.5] = background + (40 if kind == 1 else -40) + generator.uniform(-30, 30, 3)
        pixels += generator.normal(0, 20, pixels.shape)
        image = Image.fromarray(pixels.clip(0, 255).astype(numpy.uint8))
        if number % 2 == 0:
            image.save(root / "images" / f"{number:04}.png")
        else:
            image.save(root / "images" / f"{number:04}.jpg", quality=90)
        Image.fromarray(mask).save(root / "masks" / f"{number:04}.png")
    names = [f"{number:04}" for number in range(NUM_FILES)]
    (root / "train.txt").write_text("\n".join(names[:NUM_TRAIN]) + "\n")
    (root / "val.txt").write_text("\n".join(names[NUM_TRAIN:]) + "\n")


def make_unet():
    """The network of Kindling's unet."""
    import torch
    from torch import nn

    def convolutions(inside, outside):
        layers = []
        for channels in (inside, outside):
            layers += [nn.Conv2d(channels, outside, 3, padding=1, bias=False), nn.BatchNorm2d(outside), nn.ReLU()]
        return nn.Sequential(*layers)

    class Unet(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.up, self.decoder = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
            channels, wide = 3, WIDTH
            for _ in range(DEPTH):
                self.encoder.append(convolutions(channels, wide))
                channels, wide = wide, 2 * wide
            self.bottom = convolutions(channels, wide)
            for _ in range(DEPTH):
                self.up.append(nn.ConvTranspose2d(wide, wide // 2, 2, stride=2))
                self.decoder.append(convolutions(wide, wide // 2))
                wide //= 2
            self.head = nn.Conv2d(wide, NUM_CLASSES, 1)

        def forward(self, x):
            skipped = []
            for level in self.encoder:
                skipped.append(level(x))
                x = nn.functional.max_pool2d(skipped[-1], 2)
            x = self.bottom(x)
            for up, level in zip(self.up, self.decoder):
                x = level(torch.cat([skipped.pop(), up(x)], 1))
            return self.head(x)

    return Unet()


def train_in_pytorch(folder, seed, epochs):
    """The program in PyTorch: prints the mean IoU."""
    import numpy
    import torch
    from PIL import Image

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    root = folder / "shapes"

    class Files(torch.utils.data.Dataset):
        def __init__(self, names, flips):
            self.flips = flips
            self.files = [(next((root / "images").glob(name + ".*")), root / "masks" / (name + ".png")) for name in names]

        def __len__(self):
            return len(self.files)

        def __getitem__(self, index):
            image, mask = self.files[index]
            with Image.open(image) as opened:
                image = torch.from_numpy(numpy.array(opened.convert("RGB"))).permute(2, 0, 1)
            with Image.open(mask) as opened:
                mask = torch.from_numpy(numpy.array(opened)).long()
            if self.flips and torch.rand(()) < 0.5:
                image, mask = image.flip(2), mask.flip(1)
            return image.float() / 255, mask

    def loader(name, train):
        return torch.utils.data.DataLoader(Files((root / name).read_text().split(), flips=train), batch_size=BATCH, shuffle=train)

    training, validation = loader("train.txt", True), loader("val.txt", False)
    model = make_unet()
    optimizer = torch.optim.Adam(model.parameters(), lr=LR)
    for _ in range(epochs):
        model.train()
        for images, masks in training:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images), masks, ignore_index=255).backward()
            optimizer.step()
    model.eval()
    confusion = torch.zeros(NUM_CLASSES, NUM_CLASSES, dtype=torch.long)
    with torch.no_grad():
        for images, masks in validation:
            predicted, counts = model(images).argmax(1), masks != 255
            confusion += (masks[counts] * NUM_CLASSES + predicted[counts]).bincount(minlength=NUM_CLASSES**2).view(NUM_CLASSES, NUM_CLASSES)
    both = confusion.diag().double()
    print(float((both / (confusion.sum(0) + confusion.sum(1) - both)).mean()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=ROOT / "build/release/bin/kindling", type=Path)
    parser.add_argument("--seeds", default=3, type=int)
    parser.add_argument("--epochs", default=8, type=int)
    parser.add_argument("--json", type=Path, help="append the results to this file")
    parser.add_argument("--train", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        return train_in_pytorch(options.train, options.seed, options.epochs)
    import torch

    results = {"kindling": [], "pytorch_pil": []}
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        write_files(folder)
        (folder / "shapes.toml").write_text(CONFIG)
        for seed in range(options.seeds):
            _, used = seconds_of([str(options.program.resolve()), "fit", "shapes.toml", f"seed={seed}", f"trainer.max_epochs={options.epochs}",
                                  "--progress", "none", "--quiet"], folder)
            records = (sorted(folder.glob("runs/shapes/*"))[-1] / "metrics.jsonl").read_text().splitlines()
            last = [record for record in map(json.loads, records) if "val_iou_macro" in record][-1]
            results["kindling"].append({"iou_macro": last["val_iou_macro"]} | used)
            output, used = seconds_of([sys.executable, __file__, "--train", str(folder), "--seed", str(seed), "--epochs", str(options.epochs)], folder)
            results["pytorch_pil"].append({"iou_macro": float(output)} | used)
            for name, runs in results.items():
                print(f"seed {seed}: {name:12} IoU {runs[-1]['iou_macro']:.4f}   cpu {runs[-1]['cpu_s']:6.1f} s   wall {runs[-1]['wall_s']:6.1f} s", flush=True)
    means = {name: statistics.mean(run["iou_macro"] for run in runs) for name, runs in results.items()}
    print("mean IoU: " + ", ".join(f"{name} {mean:.4f}" for name, mean in means.items()))
    append_result(options.json, {"case": "segmentation_training", "epochs": options.epochs, "torch": torch.__version__} | machine_facts() | results)


if __name__ == "__main__":
    sys.exit(main())
