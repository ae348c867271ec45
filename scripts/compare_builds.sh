#!/usr/bin/env bash
# Trains with two builds and compares every step: for changes that may not move a number.
#
#   ./scripts/compare_builds.sh BUILD_A BUILD_B [KEY=VALUE...]
#
# The cases are those that both folders have a program for: every config in configs/, apps/custom_model (target custom_model), and
# the golden cases of KINDLING_SHARED (../shared). Compared as text, for every step: train_loss_step, lr and grad_norm; byte by byte: the
# last weights. A line per case; ends with 1 when a case differs. KEY=VALUE goes to the runs of BUILD_B alone, to see a difference
# found: seed=2.
set -euo pipefail
exec python3 - "$(realpath "$(dirname "${BASH_SOURCE[0]}")/..")" "$@" <<'PYTHON'
import json, os, pathlib, struct, subprocess, sys, tempfile

if len(sys.argv) < 4:
    sys.exit("usage: scripts/compare_builds.sh BUILD_A BUILD_B [KEY=VALUE...]")
root, *builds = (pathlib.Path(argument).resolve() for argument in sys.argv[1:4])
only_for_b = sys.argv[4:]
shared = pathlib.Path(os.environ.get("KINDLING_SHARED") or root.parent / "shared").resolve()
mnist = shared / "data" / "mnist-10k"
COMPARED = ("train_loss_step", "lr", "grad_norm")
EVERYWHERE = ["seed=1", "trainer.num_gpus=0", "trainer.num_threads=1", "trainer.log_every_n_steps=1"]
SHORT = ["trainer.max_epochs=3", "trainer.limit_train_batches=40"]


def golden_config(case, folder):
    """The case as tests/program/golden_test.cpp writes it down; what a build does not know, it refuses."""
    def table(name, values):
        return f"[{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
    trainer = {"max_steps": case["steps"]}
    trainer |= {key: case[old] for key, old in (("gradient_clip_val", "clip"), ("accumulate", "accumulate")) if old in case}
    weights = shared / "golden" / "reference" / case["name"] / "init.safetensors"
    text = table("model", {"init_weights": str(weights)} | case["model"]) + table("optimizer", case["optimizer"])
    text += table("data", {"name": "idx", "images": str(mnist / "t10k-images-idx3-ubyte.gz"),
                           "labels": str(mnist / "t10k-labels-idx1-ubyte.gz"), "train": [0, case["samples"]],
                           "val": [6400, 7400], "shuffle": False, "batch_size": case["batch_size"]})
    if "schedule" in case:
        schedule = case["schedule"]
        text += table("schedule", {"name": "cosine", "warmup_steps": schedule["warmup_steps"],
                                   "warmup_start_factor": schedule["start_factor"]})
    file = folder / f"golden_{case['name']}.toml"
    file.write_text(text + table("trainer", trainer))
    return file


def cases(folder):
    """(program, config, overrides) of each case."""
    mnist_root = folder / "mnist"
    mnist_root.mkdir()
    for part in ("train", "t10k"):
        for kind in ("images-idx3", "labels-idx1"):
            (mnist_root / f"{part}-{kind}-ubyte.gz").symlink_to(mnist / f"t10k-{kind}-ubyte.gz")
    for config in sorted((root / "configs").glob("*.toml")):
        needs_files = "mnist" in config.stem
        yield "kindling", config, SHORT + ([f"data.root={mnist_root}"] if needs_files and mnist.exists() else [])
    yield "custom_model", root / "apps/custom_model/config.toml", SHORT
    golden = shared / "golden" / "cases.json"
    if not golden.exists():
        print(f"left out   golden cases: there is no {golden}")
        return
    for case in json.loads(golden.read_text())["cases"]:
        yield "kindling", golden_config(case, folder), []


def train(build, program, config, overrides, folder):
    """(steps, tensors) of a run, or the text of why it did not come about."""
    command = [build / "bin" / program, "fit", "-c", config, "--quiet", *EVERYWHERE, *overrides, f"run.dir={folder}"]
    run = subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    if run.returncode != 0:
        said = [line.partition("error: ")[2] or line for line in run.stderr.splitlines()]
        return said[0] if said else f"ended with {run.returncode}"
    metrics = next(folder.rglob("metrics.jsonl"))
    records = [json.loads(line, parse_float=str, parse_int=str) for line in metrics.read_text().splitlines()]
    return [record for record in records if "train_loss_step" in record], tensors(metrics.with_name("weights.safetensors"))


def tensors(file):
    """name → (dtype, shape, bytes)"""
    content = file.read_bytes()
    start = 8 + struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:start])
    return {name: (entry["dtype"], entry["shape"], content[start + entry["data_offsets"][0]:start + entry["data_offsets"][1]])
            for name, entry in header.items() if name != "__metadata__"}


def first_difference(a, b):
    (steps_a, tensors_a), (steps_b, tensors_b) = a, b
    for number, (step_a, step_b) in enumerate(zip(steps_a, steps_b), 1):
        for key in COMPARED:
            if step_a.get(key) != step_b.get(key):
                return f"step {number}: {key} {step_a.get(key)} / {step_b.get(key)}"
    if len(steps_a) != len(steps_b):
        return f"{len(steps_a)} / {len(steps_b)} steps"
    if tensors_a.keys() != tensors_b.keys():
        return f"other names of weights: {sorted(tensors_a.keys() ^ tensors_b.keys())}"
    return next((f"weights: {name}" for name in tensors_a if tensors_a[name] != tensors_b[name]), None)


def compare(program, config, overrides, folder):
    """(what was found, details)"""
    missing = [str(build / "bin" / program) for build in builds if not (build / "bin" / program).exists()]
    if missing:
        return "left out", f"{missing[0]} has not been built"
    a = train(builds[0], program, config, overrides, folder / "a")
    if isinstance(a, str):
        return "left out", f"A: {a}"
    b = train(builds[1], program, config, overrides + only_for_b, folder / "b")
    if isinstance(b, str):
        return "DIFFERENT", f"B: {b}"
    if not a[0]:
        return "DIFFERENT", "no record of a step"
    difference = first_difference(a, b)
    return ("DIFFERENT", difference) if difference else ("equal", f"{len(a[0])} steps, {len(a[1])} tensors")


with tempfile.TemporaryDirectory() as temporary:
    results = []
    for program, config, overrides in cases(pathlib.Path(temporary)):
        name = f"{program} {config.stem}"
        result, details = compare(program, config, overrides, pathlib.Path(temporary) / name)
        print(f"{result:<10} {name}: {details}", flush=True)
        results.append(result)
if "equal" not in results:
    sys.exit("compare_builds: nothing was compared")
sys.exit(1 if "DIFFERENT" in results else 0)
PYTHON
