"""Trains models of the size that people train with Kindling and with PyTorch, and compares time and memory.

    python benchmarks/real_models.py [--program build/release/bin/kindling] [--models gpt,vit] [--repeats 11] [--json FILE]

Kindling trains the program that torch.export has written, with the same weights and batches as PyTorch: AdamW, clipping, the loss of
each step logged. The peers take turns, one process each per repeat. Prints the time per step of the epochs after the first one, and the
peak of resident memory, of the process and above that of a process which has only started (`kindling --version`, `import torch`). The
exit status is 1 if the losses differ. `tuned` is fused AdamW, flushed denormals, channels-last convolutions, and losses that are read
once per epoch; `compile` is that with torch.compile. Needs a Python with `torch` and `numpy`, and for `compile` a C++ compiler.
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
import warnings
from pathlib import Path

from facts import append_result, machine_facts

ROOT = Path(__file__).resolve().parent.parent
PEERS = ("kindling", "kindling_eager", "eager", "tuned", "compile")
# Of the last epoch, relative; compiled and channels-last kernels round differently, and ResNet-18 multiplies that.
LOSS_TOLERANCES = {"resnet18": 0.1}
LOSS_TOLERANCE = 1e-3

CONFIG = """[model]
name = "exported"
file = "model.pt2"
loss = "cross_entropy"

[data]
name = "arrays"
file = "data.npz"
inputs = "x"
labels = "y"
train = [0, NUM_TRAIN]
val = [NUM_TRAIN, NUM_ALL]
shuffle = false
batch_size = BATCH_SIZE

[optimizer]
name = "adamw"
lr = 0.001
weight_decay = 0.01

[trainer]
max_epochs = EPOCHS
num_threads = THREADS
num_gpus = 0
gradient_clip_val = 1.0
num_sanity_val_steps = 0
step_graph = "STEP_GRAPH"

[run]
fast_mkl = "off"

[checkpoint]
every_n_epochs = 0
"""


def samples_of(workload, num_samples):
    import torch

    generator = torch.Generator().manual_seed(1)
    return workload.inputs(generator, num_samples), workload.labels(generator, num_samples)


def model_of(workload):
    import torch

    torch.manual_seed(0)
    return workload.make().train()


def write_case(folder, workload, options):
    """Writes model.pt2, data.npz with a batch more than training needs, and the config."""
    import numpy
    import torch

    num_train = options.steps * workload.batch_size
    x, y = samples_of(workload, num_train + workload.batch_size)
    numpy.savez(folder / "data.npz", x=x.numpy(), y=y.numpy())
    dynamic = ({0: torch.export.Dim("batch", min=1)},)
    warnings.filterwarnings("ignore", "The tensor attributes")  # of recurrent layers
    torch.export.save(torch.export.export(model_of(workload), (x[:4],), dynamic_shapes=dynamic), folder / "model.pt2")
    values = {"NUM_TRAIN": num_train, "NUM_ALL": num_train + workload.batch_size, "BATCH_SIZE": workload.batch_size,
              "EPOCHS": options.epochs, "THREADS": options.threads}
    config = CONFIG
    for name, value in values.items():
        config = config.replace(name, str(value))
    for name, word in (("kindling", "auto"), ("kindling_eager", "off")):
        (folder / f"{name}.toml").write_text(config.replace("STEP_GRAPH", word))


def train_in_pytorch(options):
    """The program in PyTorch: prints the loss and the seconds per step."""
    import torch

    from real_workloads import WORKLOADS

    start_mb = peak_mb(resource.RUSAGE_SELF)
    torch.set_num_threads(options.threads)
    workload, is_tuned = WORKLOADS[options.models[0]], options.peer != "eager"
    num_train = options.steps * workload.batch_size
    x, y = (tensor[:num_train] for tensor in samples_of(workload, num_train + workload.batch_size))
    torch.set_flush_denormal(is_tuned)
    model = model_of(workload)
    trained = model
    if options.peer == "tuned":
        trained = model.to(memory_format=torch.channels_last)
    elif options.peer == "compile":
        trained = torch.compile(model)
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=0.001, weight_decay=0.01, **({"fused": True} if is_tuned else {}))
    seconds = []
    for _ in range(options.epochs):
        start, losses = time.perf_counter(), []
        for inputs, labels in zip(x.split(workload.batch_size), y.split(workload.batch_size)):
            if options.peer == "tuned" and inputs.dim() == 4:
                inputs = inputs.contiguous(memory_format=torch.channels_last)
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(trained(inputs), labels)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            losses.append(loss.detach() if is_tuned else loss.item())
        mean = torch.stack(losses).mean().item() if is_tuned else statistics.mean(losses)
        seconds.append((time.perf_counter() - start) / options.steps)
    print(json.dumps({"loss": mean, "ms": 1e3 * statistics.mean(seconds[1:]), "peak_mb": peak_mb(resource.RUSAGE_SELF), "start_mb": start_mb}))


def peak_mb(who):
    return resource.getrusage(who).ru_maxrss / 1024


def peak_of(command, folder, options):
    """Runs a command; returns its output and its peak of resident memory."""
    threads = {name: str(options.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    # The largest child of a process counts, so each one gets a parent of its own.
    script = "import resource, subprocess, sys; code = subprocess.call(sys.argv[1:]); " \
             "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024); sys.exit(code)"
    run = subprocess.run([sys.executable, "-c", script, *command], cwd=folder, capture_output=True, text=True, env=os.environ | threads)
    if run.returncode != 0:
        sys.exit(f"{command[0]} failed:\n{run.stdout}{run.stderr}")
    *output, peak = run.stdout.splitlines()
    return output, float(peak)


def run_kindling(peer, folder, options):
    program = str(options.program.resolve())
    _, start_mb = peak_of([program, "--version"], folder, options)
    _, peak = peak_of([program, "fit", f"{peer}.toml", "--progress", "none", "--quiet"], folder, options)
    lines = (sorted(folder.glob(f"runs/{peer}/*"))[-1] / "metrics.jsonl").read_text().splitlines()
    epochs = [record for record in map(json.loads, lines) if "epoch_time_s" in record]
    # epoch_time_s includes one batch of validation, a third of a step.
    ms = [1e3 * record["epoch_time_s"] / options.steps for record in epochs[1:]]
    return {"loss": epochs[-1]["train_loss"], "ms": statistics.mean(ms), "peak_mb": peak, "start_mb": start_mb}


def run_peer(peer, name, folder, options):
    if peer.startswith("kindling"):
        return run_kindling(peer, folder, options)
    command = [sys.executable, str(Path(__file__).resolve()), "--peer", peer, "--models", name]
    for key in ("epochs", "steps", "threads"):
        command += [f"--{key}", str(getattr(options, key))]
    output, _ = peak_of(command, ROOT / "benchmarks", options)
    return json.loads(output[-1])


def measure(name, options):
    from real_workloads import WORKLOADS

    runs = {peer: [] for peer in options.peers}
    with tempfile.TemporaryDirectory() as folder:
        write_case(Path(folder), WORKLOADS[name], options)
        for _ in range(options.repeats):
            for peer in options.peers:
                runs[peer].append(run_peer(peer, name, Path(folder), options))
    middle = {peer: {key: round(statistics.median(run[key] for run in all_runs), 6) for key in all_runs[0]} for peer, all_runs in runs.items()}
    for peer, values in middle.items():
        print(f"{name:16} {peer:15} {values['ms']:8.2f} ms/step   peak {values['peak_mb']:5.0f} MB, "
              f"{values['peak_mb'] - values['start_mb']:5.0f} above the start   loss {values['loss']:.6f}", flush=True)
    return middle


def main():
    def names(text):
        return text.split(",")

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=ROOT / "build/release/bin/kindling", type=Path)
    parser.add_argument("--models", type=names, help="of real_workloads.py; default: all")
    parser.add_argument("--peers", type=names, default=list(PEERS))
    parser.add_argument("--repeats", default=11, type=int)
    parser.add_argument("--epochs", default=2, type=int, help="the first one is not timed")
    parser.add_argument("--steps", default=50, type=int, help="of an epoch")
    parser.add_argument("--threads", default=1, type=int)
    parser.add_argument("--json", type=Path, help="append the results to this file")
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        return train_in_pytorch(options)
    import torch

    from real_workloads import WORKLOADS

    facts, agree = machine_facts(), True
    for name in options.models or WORKLOADS:
        results = measure(name, options)
        losses = [values["loss"] for values in results.values()]
        if max(losses) - min(losses) > LOSS_TOLERANCES.get(name, LOSS_TOLERANCE) * abs(losses[0]):
            agree = False
            print(f"{name}: the losses DIFFER", file=sys.stderr)
        case = {"case": "real_models", "model": name, "threads": options.threads, "repeats": options.repeats, "torch": torch.__version__}
        append_result(options.json, case | facts | results)
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
