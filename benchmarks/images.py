"""Compares how fast Kindling and PyTorch's DataLoader with PIL decode image files into batches.

    python benchmarks/images.py [--bench build/release/bin/kindling_bench] [--files 2000] [--workers 2] [--repeats 7] [--json FILE]

Needs Pillow, NumPy and PyTorch; no torchvision. Writes PNG and JPEG files of 64 and 256 pixels, and decodes shuffled epochs of them,
in batches of 64 uint8 images of three channels, without a model. Kindling has as many worker threads as PyTorch has worker processes,
which persist over the epochs. Both programs run all the time and take turns: while one decodes an epoch, the other waits. The sums of
all pixels are compared first; JPEG decoders may round differently, so they may differ by one part in 1,000. With a size behind the
arrow, both resize to it, bilinear with antialiasing; Kindling then decodes JPEG files at a reduced size where the result allows it.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from facts import append_result, machine_facts

ROOT = Path(__file__).resolve().parent.parent
# kind of files, their size, the size of the result, target of the ratio
CASES = [("png", 64, None, 2.0), ("jpg", 64, None, 2.0), ("jpg", 256, None, 1.2), ("jpg", 256, 64, None), ("png", 256, None, 2.0), ("png", 256, 64, 2.0)]


def write_images(folder, kind, size, count):
    """Writes smooth random images with some noise, in two classes."""
    import numpy
    from PIL import Image

    generator = numpy.random.default_rng(0)
    y, x = numpy.mgrid[0:size, 0:size] / size
    for name in ("a", "b"):
        (folder / name).mkdir(parents=True)
    for number in range(count):
        waves = [128 + sum(generator.uniform(10, 30) * numpy.sin(generator.uniform(2, 20) * x + generator.uniform(2, 20) * y + phase) for phase in range(4))
                 for _ in range(3)]
        pixels = numpy.stack(waves, axis=2) + generator.normal(0, 4, (size, size, 3))
        image = Image.fromarray(pixels.clip(0, 255).astype(numpy.uint8))
        image.save(folder / "ab"[number % 2] / f"{number:05}.{kind}", **({"quality": 90} if kind == "jpg" else {}))


def feed(folder, size, workers, repeats):
    """The program of PyTorch and PIL, with the protocol of kindling_bench."""
    import numpy
    import torch
    from PIL import Image

    class Files(torch.utils.data.Dataset):
        def __init__(self):
            self.files = sorted(Path(folder).glob("*/*"))

        def __len__(self):
            return len(self.files)

        def __getitem__(self, index):
            file = self.files[index]
            with Image.open(file) as opened:
                image = opened.convert("RGB")
            if size:
                image = image.resize((size, size), Image.Resampling.BILINEAR)
            return torch.from_numpy(numpy.array(image)).permute(2, 0, 1).contiguous(), 0 if file.parent.name == "a" else 1

    loader = torch.utils.data.DataLoader(Files(), batch_size=64, shuffle=True, num_workers=workers, persistent_workers=workers > 0)
    wall = []
    for repeat in range(1 + repeats):
        if repeat > 0:
            print("ready", flush=True)
            sys.stdin.readline()
        start, total, count = time.perf_counter(), 0, 0
        for images, labels in loader:
            count += len(labels)
            if repeat == 0:
                total += int(images.sum())
        wall.append(time.perf_counter() - start)
        assert count == len(loader.dataset)
        if repeat == 0:
            print("sum", total, flush=True)
    print(json.dumps({"wall": wall[1:]}), flush=True)


def ticks_of(session):
    """Returns the clock ticks of processor time of all processes of a session."""
    ticks = 0
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session:
            ticks += sum(int(field) for field in fields[11:15])
    return ticks


class Program:
    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
        self.wall, self.cpu, self.sum = [], [], None

    def wait_until_ready(self):
        for line in self.process.stdout:
            if line.startswith("sum "):
                self.sum = int(line.split()[1])
            if line.startswith("ready"):
                return
        sys.exit(f"{self.process.args[0]} ended early")

    def epoch(self, is_last):
        ticks, start = ticks_of(self.process.pid), time.perf_counter()
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        if is_last:
            while not self.process.stdout.readline().startswith("{"):
                pass
        else:
            self.wait_until_ready()
        self.wall.append(time.perf_counter() - start)
        self.cpu.append((ticks_of(self.process.pid) - ticks) / os.sysconf("SC_CLK_TCK"))


def compare(options, kind, size, wanted):
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        write_images(folder, kind, size, options.files)
        theirs = [sys.executable, __file__, "--feed", str(folder), "--workers", str(options.workers), "--repeats", str(options.repeats)]
        ours = [str(options.bench), "--case", "image_feed", "--gate", "--folder", str(folder), "--threads", str(options.workers), "--repeats",
                str(options.repeats)]
        if wanted:
            theirs += ["--size", str(wanted)]
            ours += ["--variant", str(wanted)]
        programs = {"kindling": Program(ours), "pytorch_pil": Program(theirs)}
        for program in programs.values():
            program.wait_until_ready()
        sums = [program.sum for program in programs.values()]
        # A reduced JPEG is another image than the one that is resized from full size; its mean is the same.
        if abs(sums[0] - sums[1]) > 1e-3 * sums[1] or (kind == "png" and not wanted and sums[0] != sums[1]):
            sys.exit(f"the images differ: {sums}")
        for repeat in range(options.repeats):
            order = list(programs.values())
            for program in order if repeat % 2 == 0 else reversed(order):
                program.epoch(is_last=repeat == options.repeats - 1)
        for program in programs.values():
            program.process.stdin.close()
            program.process.wait()
    result = {"case": "image_feed", "kind": kind, "size": size, "to": wanted, "files": options.files, "workers": options.workers, "repeats": options.repeats}
    for name, program in programs.items():
        result[f"{name}_images_per_s"] = round(options.files / statistics.median(program.wall))
        result[f"{name}_cpu_us_per_image"] = round(1e6 * statistics.median(program.cpu) / options.files, 1)
    pairs = [their / our for our, their in zip(programs["kindling"].wall, programs["pytorch_pil"].wall)]
    result["ratio"] = round(statistics.median(pairs), 3)
    result["ratios"] = [round(pair, 3) for pair in pairs]
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench", default=ROOT / "build/release/bin/kindling_bench", type=Path)
    parser.add_argument("--files", default=2000, type=int)
    parser.add_argument("--workers", default=2, type=int)
    parser.add_argument("--repeats", default=7, type=int)
    parser.add_argument("--json", type=Path, help="append the results to this file")
    parser.add_argument("--feed", help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.feed:
        return feed(options.feed, options.size, options.workers, options.repeats)
    import PIL
    import torch

    versions = {"torch": torch.__version__, "pillow": PIL.__version__}
    print("files           kindling   PyTorch, PIL   ratio")
    missed = 0
    for kind, size, wanted, target in CASES:
        facts = machine_facts() | versions
        result = compare(options, kind, size, wanted) | facts
        name = f"{kind} {size}" + (f" → {wanted}" if wanted else "")
        missed += target is not None and result["ratio"] < target
        print(f"{name:12} {result['kindling_images_per_s']:7} /s {result['pytorch_pil_images_per_s']:10} /s   {result['ratio']:5.2f}"
              + (f"  (target {target})" if target else ""), flush=True)
        append_result(options.json, result)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
