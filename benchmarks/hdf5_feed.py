"""Compares how fast Kindling and PyTorch's DataLoader with h5py read batches of a chunked and compressed HDF5 file.

    python benchmarks/hdf5_feed.py [--bench build/release/bin/kindling_bench] [--workers 2] [--repeats 11] [--json FILE]

Needs h5py and PyTorch. The file has 327,680 samples of 64 × 64 float32 (5 GiB, which Kindling leaves in the file), in chunks of 8 samples
with shuffle and gzip level 4. It takes 4.3 GB, repeats 64 different chunks, and stays in --folder if that is given. A repeat is 200
batches of 64 samples in the order of the file, or 50 batches that are shuffled, completely and with data.shuffle_chunks = 8, for which
PyTorch's sampler draws the same kind of order; there is no model. Kindling has as many worker threads as PyTorch has worker processes,
which persist. Both programs run all the time and take turns. The sums of the first samples in order are compared first.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

from facts import append_result, machine_facts
from images import Program

ROOT = Path(__file__).resolve().parent.parent
SAMPLES, SIZE, CHUNK, BATCH = 327680, 64, 8, 64


def write_file(path):
    """Writes smooth fields whose chunks repeat, because compressing all of them would take minutes."""
    import h5py
    import numpy

    generator = numpy.random.default_rng(0)
    y, x = numpy.mgrid[0:SIZE, 0:SIZE] / SIZE
    with h5py.File(path, "w") as file:
        kinds = file.create_dataset("kinds", (64 * CHUNK, SIZE, SIZE), "f4", chunks=(CHUNK, SIZE, SIZE), compression="gzip", shuffle=True)
        for number in range(len(kinds)):
            waves = sum(generator.normal() * numpy.sin(generator.uniform(2, 20) * x + generator.uniform(2, 20) * y + phase) for phase in range(6))
            kinds[number] = waves + generator.normal(0, 1e-3, waves.shape)
        encoded = [kinds.id.read_direct_chunk((i * CHUNK, 0, 0))[1] for i in range(64)]
        whole = file.create_dataset("x", (SAMPLES, SIZE, SIZE), "f4", chunks=(CHUNK, SIZE, SIZE), compression="gzip", shuffle=True)
        for i in range(SAMPLES // CHUNK):
            whole.id.write_direct_chunk((i * CHUNK, 0, 0), encoded[i * 7 % 64])
        file["y"] = numpy.arange(SAMPLES) % 10


def samples_of(variant):
    return BATCH * (200 if variant == "sequential" else 50)


def feed(folder, variant, workers, repeats):
    """The program of PyTorch and h5py, with the protocol of kindling_bench."""
    import h5py
    import torch

    class Fields(torch.utils.data.Dataset):
        def __init__(self):
            self.file = None

        def __len__(self):
            return SAMPLES

        def __getitem__(self, index):
            if self.file is None:  # in each worker
                self.file = h5py.File(Path(folder) / "fields.h5", "r")
                self.x, self.y = self.file["x"], self.file["y"][:]
            return torch.from_numpy(self.x[index]), self.y[index]

    class Order(torch.utils.data.Sampler):
        epoch = 0

        def __len__(self):
            return samples_of(variant)

        def __iter__(self):
            generator = torch.Generator().manual_seed(self.epoch)
            self.epoch += 1
            if variant == "sequential":
                return iter(range(len(self)))
            if variant == "shuffled":
                return iter(torch.randperm(SAMPLES, generator=generator)[: len(self)].tolist())
            chunks = torch.randperm(SAMPLES // CHUNK, generator=generator)[: len(self) // CHUNK // 8 * 8].view(-1, 8)
            rows = (chunks[:, :, None] * CHUNK + torch.arange(CHUNK)).flatten(1)
            return iter(torch.cat([row[torch.randperm(len(row), generator=generator)] for row in rows]).tolist())

    loader = torch.utils.data.DataLoader(Fields(), batch_size=BATCH, sampler=Order(), num_workers=workers, persistent_workers=workers > 0)
    wall = []
    for repeat in range(1 + repeats):
        if repeat > 0:
            print("ready", flush=True)
            sys.stdin.readline()
        start, total = time.perf_counter(), 0.0
        for fields, _ in loader:
            if repeat == 0:
                total += float(fields.sum(dtype=torch.float64))
        wall.append(time.perf_counter() - start)
        if repeat == 0:
            print("sum", int(total), flush=True)
    print(json.dumps({"wall": wall[1:]}), flush=True)


def compare(options, folder, variant):
    arguments = ["--repeats", str(options.repeats), "--variant", variant]
    ours = [str(options.bench), "--case", "hdf5_feed", "--gate", "--folder", str(folder), "--threads", str(options.workers), *arguments]
    theirs = [sys.executable, __file__, "--feed", str(folder), "--workers", str(options.workers), *arguments]
    programs = {
  "kindling" : Program(ours), "pytorch_h5py" : Program(theirs)}
    for program in programs.values():
        program.wait_until_ready()
    sums = [program.sum for program in programs.values()]
    if variant == "sequential" and sums[0] != sums[1]:
        sys.exit(f"the samples differ: {sums}")
    for repeat in range(options.repeats):
        order = list(programs.values())
        for program in order if repeat % 2 == 0 else reversed(order):
            program.epoch(is_last=repeat == options.repeats - 1)
    for program in programs.values():
        program.process.stdin.close()
        program.process.wait()
    result = {
  "case" : "hdf5_feed", "order" : variant, "workers" : options.workers, "repeats" : options.repeats}
    for name, program in programs.items():
        result[f"{name}_samples_per_s"] = round(samples_of(variant) / statistics.median(program.wall))
        result[f"{name}_cpu_us_per_sample"] = round(1e6 * statistics.median(program.cpu) / samples_of(variant), 1)
    pairs = [their / our for our, their in zip(programs["kindling"].wall, programs["pytorch_h5py"].wall)]
    result["ratio"] = round(statistics.median(pairs), 3)
    result["ratios"] = [round(pair, 3) for pair in pairs]
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench", default=ROOT / "build/release/bin/kindling_bench", type=Path)
    parser.add_argument("--workers", default=2, type=int)
    parser.add_argument("--repeats", default=11, type=int)
    parser.add_argument("--folder", type=Path, help="where fields.h5 is kept; default: a temporary folder")
    parser.add_argument("--json", type=Path, help="append the results to this file")
    parser.add_argument("--feed", help=argparse.SUPPRESS)
    parser.add_argument("--variant", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.feed:
        return feed(options.feed, options.variant, options.workers, options.repeats)
    import h5py
    import torch

    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        if not (folder / "fields.h5").exists():
            write_file(folder / "fields.h5")
        print("order        kindling   PyTorch, h5py   ratio")
        for variant in ("sequential", "shuffled", "chunks"):
            result = compare(options, folder, variant)
            print(f"{variant:<10} {result['kindling_samples_per_s']:>8}/s {result['pytorch_h5py_samples_per_s']:>12}/s {result['ratio']:>7}")
            if options.json:
                append_result(options.json, {**result, **machine_facts(), "torch": torch.__version__, "h5py": h5py.__version__})


if __name__ == "__main__":
    main()
