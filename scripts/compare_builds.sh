#!/usr/bin/env bash
# Trains with two builds and compares all their numbers and files: for changes that must not move a number.
#
#   ./scripts/compare_builds.sh BUILD_A BUILD_B [KEY=VALUE...]
#
# The cases are every config in configs/, apps/custom_model (target custom_model) and the golden cases of tests/golden. Most of
# these need data/mnist-10k in the folder that KINDLING_SHARED names (default: the repository). A case is skipped if build A
# lacks its program or refuses its config. For each case the script compares
#   - as text, for every step: train_loss_step, lr and grad_norm; for every epoch: host waits and transfers;
#   - byte by byte: the final weights and every tensor of every checkpoint;
#   - the metadata of checkpoints, except for checksums, versions, run IDs, timings and type names of callbacks (keys that
#     only build B writes are listed at the end);
#   - the entries of the .pt2 and the fields of the .onnx files that `export` writes from the final weights of build A, except
#     for the version of Kindling;
#   - the operator calls of a step without capture, counted in a trace: build B may make fewer of them, but not more.
# Then both builds resume a run of build A from a checkpoint in the middle of an epoch, and must agree again.
#
# It prints a line per case and exits with 1 if a case differs. KEY=VALUE applies to the runs of build B only and makes it
# possible to see a difference reported: seed=2.
set -euo pipefail
# shellcheck source=scripts/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
KINDLING_SHARED=$(data_root)
export KINDLING_SHARED
exec python3 - "$kindling_root" "$@" <<'PYTHON'
import collections, dataclasses, functools, json, os, pathlib, re, shutil, struct, subprocess, sys, tempfile, time, zipfile

if len(sys.argv) < 4:
    sys.exit("usage: scripts/compare_builds.sh BUILD_A BUILD_B [KEY=VALUE...]")
root, *builds = (pathlib.Path(argument).resolve() for argument in sys.argv[1:4])
only_for_b = sys.argv[4:]
golden = root / "tests/golden"
mnist = pathlib.Path(os.environ["KINDLING_SHARED"]).resolve() / "data/mnist-10k"
STEP_VALUES = ("train_loss_step", "lr", "grad_norm")
TRANSFERS = ("host_waits", "device_to_host_copies", "device_to_host_bytes", "host_to_device_copies", "host_to_device_bytes")
# Metadata that differs between two runs of one build, or is meant to differ between two versions.
IGNORED = re.compile(r"run_id|xxh3\..*|(.*\.)?\w*version|callback_type\..*|.*(epoch_time_s|samples_per_s|data_wait_share|time_share/.*|step_time_s/.*)")
only_in_b = set()  # metadata keys that build B writes and build A does not: reported, no difference
EVERYWHERE = ["seed=1", "trainer.num_gpus=0", "trainer.num_threads=1", "trainer.log_every_n_steps=1"]
SHORT = ["trainer.max_epochs=3", "trainer.limit_train_batches=40"]
TRACED_STEPS = 3
TRACED = ["trainer.profile=true", f"trainer.profile_active={TRACED_STEPS}", "trainer.max_epochs=1", "trainer.max_steps=8"]


class Failed(Exception):
    """What a program said before it ended with an error."""


def golden_config(case, folder):
    """Writes the case as tests/cli/run/golden_test.cpp does; a build refuses options that it does not know."""
    def table(name, values):
        return f"[{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
    trainer = {"max_steps": case["steps"]}
    trainer |= {key: case[old] for key, old in (("gradient_clip_val", "clip"), ("accumulate_grad_batches", "accumulate")) if old in case}
    weights = golden / "reference" / case["name"] / "init.safetensors"
    text = table("model", {"init_weights": str(weights)} | case["model"]) + table("optimizer", case["optimizer"])
    data = {"name": "digits"}
    if case.get("data") != "digits":
        data = {"name": "idx", "images": str(mnist / "t10k-images-idx3-ubyte.gz"),
                "labels": str(mnist / "t10k-labels-idx1-ubyte.gz"), "train": [0, case["samples"]], "val": [6400, 7400]}
    text += table("data", data | {"shuffle": False, "batch_size": case["batch_size"]})
    if "schedule" in case:
        schedule = case["schedule"]
        text += table("schedule", {"name": "cosine", "warmup_steps": schedule["warmup_steps"],
                                   "warmup_start_factor": schedule["start_factor"]})
    file = folder / f"golden_{case['name']}.toml"
    file.write_text(text + table("trainer", trainer))
    return file


def cases(folder):
    """Yields (program, config, overrides) of each case."""
    mnist_root = folder / "mnist"
    mnist_root.mkdir()
    for part in ("train", "t10k"):
        for kind in ("images-idx3", "labels-idx1"):
            (mnist_root / f"{part}-{kind}-ubyte.gz").symlink_to(mnist / f"t10k-{kind}-ubyte.gz")
    for config in sorted(set((root / "configs").glob("*.toml")) - {root / "configs/sweep.toml"}):
        needs_files = "mnist" in config.stem
        yield "kindling", config, SHORT + ([f"data.root={mnist_root}"] if needs_files and mnist.exists() else [])
    yield "custom_model", root / "apps/custom_model/config.toml", SHORT
    for case in json.loads((golden / "cases.json").read_text())["cases"]:
        yield "kindling", golden_config(case, folder), []


def call(build, program, *words):
    command = [build / "bin" / program, *words]
    run = subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    if run.returncode != 0:
        lines = [line.partition("error: ")[2] or line for line in run.stderr.splitlines()]
        raise Failed(lines[0] if lines else f"exit code {run.returncode}")
    return run.stdout


@dataclasses.dataclass
class Run:
    """What a run has left in its folder."""
    folder: pathlib.Path

    @functools.cached_property
    def records(self):
        lines = (self.folder / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line, parse_float=str, parse_int=str) for line in lines]

    def select(self, key, values):
        """The values of the records that have the key, by epoch and step."""
        return [{name: record.get(name) for name in ("epoch", "global_step", *values)} for record in self.records if key in record]

    @functools.cached_property
    def steps(self):
        return self.select("train_loss_step", STEP_VALUES)

    @functools.cached_property
    def transfers(self):
        return self.select("host_waits", TRANSFERS)

    @property
    def weights(self):
        return self.folder / "weights.safetensors"

    @functools.cached_property
    def checkpoints(self):
        return {file.name: file for file in sorted((self.folder / "checkpoints").glob("*.safetensors"))}

    def operator_calls(self):
        """Of a step on average."""
        events = json.loads((self.folder / "trace.json").read_text())["traceEvents"]
        return sum(event.get("cat") == "cpu_op" for event in events) / TRACED_STEPS


def train(build, program, config, overrides, folder):
    call(build, program, "fit", "-c", config, "--quiet", *EVERYWHERE, *overrides, f"run.dir={folder}")
    return Run(next(folder.rglob("metrics.jsonl")).parent)


def safetensors(file):
    """(name → (dtype, shape, bytes), metadata)"""
    content = file.read_bytes()
    start = 8 + struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:start])
    metadata = header.pop("__metadata__", {})
    return {name: (entry["dtype"], entry["shape"], content[start + entry["data_offsets"][0]:start + entry["data_offsets"][1]])
            for name, entry in header.items()}, metadata


def different_keys(a, b):
    return sorted(key for key in a.keys() | b.keys() if a.get(key) != b.get(key))


def safetensors_difference(what, a, b):
    (tensors_a, metadata_a), (tensors_b, metadata_b) = safetensors(a), safetensors(b)
    for metadata in (metadata_a, metadata_b):  # the config has the run's directory, which differs on purpose
        if "program.config" in metadata:
            metadata["program.config"] = re.sub(r"^dir = .*$", "", metadata["program.config"], flags=re.MULTILINE)
    for key in different_keys(tensors_a, tensors_b):
        has = "in one file only" if (key in tensors_a) != (key in tensors_b) else "differs"
        return f"{what}: tensor {key} {has}"
    for key in different_keys(metadata_a, metadata_b):
        if key not in metadata_a:
            only_in_b.add(key)
        elif not IGNORED.fullmatch(key):
            return f"{what}: {key} {metadata_a.get(key)} / {metadata_b.get(key)}"


def records_difference(kind, a, b):
    for number, (one, other) in enumerate(zip(a, b), 1):
        for key in different_keys(one, other):
            return f"{kind} {number}: {key} {one[key]} / {other[key]}"
    if len(a) != len(b):
        return f"{len(a)} / {len(b)} {kind}s"


def run_difference(a, b):
    yield records_difference("step", a.steps, b.steps)
    yield records_difference("epoch", a.transfers, b.transfers)
    yield safetensors_difference("weights", a.weights, b.weights)
    if a.checkpoints.keys() != b.checkpoints.keys():
        yield f"checkpoints {', '.join(a.checkpoints)} / {', '.join(b.checkpoints)}"
    for name in a.checkpoints:
        yield safetensors_difference(name, a.checkpoints[name], b.checkpoints[name])


def protobuf_fields(content):
    """(number → the values of the field, in their order); between fields of different numbers the order means nothing"""
    fields, position = collections.defaultdict(list), 0
    def varint():
        nonlocal position
        value = shift = 0
        while True:
            byte = content[position]
            position, value, shift = position + 1, value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value
    while position < len(content):
        key = varint()
        number, wire_type, value = key >> 3, key & 7, varint()
        if wire_type == 2:
            value, position = content[position:position + value], position + value
        elif wire_type != 0:
            raise Failed(f"field {number} has the wire type {wire_type}")
        fields[number].append(value)
    return fields


GRAPH = 7  # the number of ModelProto's field


def onnx_entries(content):
    """The fields of the model and of its graph."""
    model = protobuf_fields(content)
    graph = protobuf_fields(model.pop(GRAPH)[0])
    return {f"model.onnx: {kind} field {number}": repr(values).encode()
            for kind, fields in (("model", model), ("graph", graph)) for number, values in fields.items()}


def entries(file, build, program):
    """The bytes of the entries of a .pt2 or of the fields of a .onnx file, without the version of Kindling."""
    version = call(build, program, "--version").split()[-1].encode()
    if file.suffix == ".onnx":
        named = onnx_entries(file.read_bytes())
    else:
        archive = zipfile.ZipFile(file)
        named = {f"{file.suffix}:{entry.filename}": archive.read(entry) for entry in archive.infolist()}
    return {name: content.replace(version, b"VERSION") for name, content in named.items()}


def export(build, program, run, file):
    file.parent.mkdir(parents=True, exist_ok=True)
    call(build, program, "export", run.folder, file)
    return entries(file, build, program)


def compare_exports(program, run, folder):
    """(suffixes that were compared, difference)"""
    compared = []
    for suffix in (".pt2", ".onnx"):
        try:
            a = export(builds[0], program, run, folder / f"a/model{suffix}")
        except Failed:
            continue  # A model that cannot be exported is no concern of this script.
        b = export(builds[1], program, run, folder / f"b/model{suffix}")
        for name in different_keys(a, b):
            return compared, f"{name} differs"
        compared.append(suffix)
    return compared, None


def compare_operators(program, config, overrides, folder):
    """(operator calls of a step, difference)"""
    a, b = (train(build, program, config, overrides + TRACED + more, folder / name).operator_calls()
            for build, more, name in ((builds[0], [], "a"), (builds[1], only_for_b, "b")))
    return f"{a:.1f} / {b:.1f}" if a != b else f"{a:.1f}", f"operator calls per step {a:.1f} / {b:.1f}" if b > a else None


def compare(program, config, overrides, folder):
    """(result, details)"""
    missing = [str(build / "bin" / program) for build in builds if not (build / "bin" / program).exists()]
    if missing:
        return "skipped", f"{missing[0]} has not been built"
    try:
        a = train(builds[0], program, config, overrides, folder / "a")
    except Failed as error:
        return "skipped", f"A: {error}"
    b = train(builds[1], program, config, overrides + only_for_b, folder / "b")
    if not a.steps:
        return "DIFFERENT", "no record of a step"
    if difference := next(filter(None, run_difference(a, b)), None):
        return "DIFFERENT", difference
    exported, difference = compare_exports(program, a, folder / "export")
    if difference:
        return "DIFFERENT", difference
    calls, difference = compare_operators(program, config, overrides, folder / "traced")
    waits, *copies = (sum(int(float(epoch[name] or 0)) for epoch in a.transfers) for name in TRANSFERS)
    if difference:
        return "DIFFERENT", difference
    files = f"{len(a.checkpoints)} checkpoints, exports: {' '.join(exported) or 'none'}"
    return "equal", (f"{len(a.steps)} steps, {len(safetensors(a.weights)[0])} tensors, {files}; {waits} host waits, "
                     f"{copies[0] + copies[2]} copies, {calls} operator calls per step")


def compare_resumed(folder):
    """The same for both builds resuming a run of A from a checkpoint in the middle of its second epoch."""
    stop = ["trainer.max_steps=60", "checkpoint.every_n_steps=50", "checkpoint.keep_last=9"]
    try:
        former = train(builds[0], "kindling", root / "configs/digits.toml", SHORT + stop, folder / "former")
    except Failed as error:
        return "skipped", f"A: {error}"
    runs = []
    for build, name, more in ((builds[0], "a", []), (builds[1], "b", only_for_b)):
        run = Run(pathlib.Path(shutil.copytree(former.folder, folder / name)))
        checkpoint = run.folder / "checkpoints/step-00000050.safetensors"
        call(build, "kindling", "fit", "--resume", checkpoint, "--quiet", "trainer.max_steps=120", *more)
        runs.append(run)
    if difference := next(filter(None, run_difference(*runs)), None):
        return "DIFFERENT", difference
    if len(runs[0].steps) != 120:
        return "DIFFERENT", f"{len(runs[0].steps)} steps instead of 120"
    return "equal", f"resumed after step 50 of 120; {len(runs[0].checkpoints)} checkpoints"


def report(name, comparison, *arguments):
    start = time.monotonic()
    try:
        result, details = comparison(*arguments)
    except Failed as error:
        result, details = "DIFFERENT", f"B: {error}"
    print(f"{result:<10} {name}: {details} ({time.monotonic() - start:.0f} s)", flush=True)
    return result


with tempfile.TemporaryDirectory() as temporary:
    folder = pathlib.Path(temporary)
    results = [report(f"{program} {config.stem}", compare, program, config, overrides, folder / f"{program} {config.stem}")
               for program, config, overrides in cases(folder)]
    results.append(report("kindling digits, resumed", compare_resumed, folder / "resumed"))
if only_in_b:
    print(f"metadata of checkpoints that only build B writes: {', '.join(sorted(only_in_b))}")
if not {"equal", "DIFFERENT"} & set(results):
    sys.exit("compare_builds: nothing was compared")
sys.exit(1 if "DIFFERENT" in results else 0)
PYTHON
