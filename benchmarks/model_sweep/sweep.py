#!/usr/bin/env python3
"""Exports architectures of public packages from Python, trains and evaluates them with Kindling, and compares with PyTorch.

    benchmarks/model_sweep/sweep.py PROGRAM [--package NAME] [--only TEXT] [--speed REPEATS [--former PROGRAM]] [--json FILE]

PROGRAM is `kindling`. Needs requirements.txt. For each architecture:
- export    kindling.export() writes it, as the package ships it; what torch.export refuses counts as "torch"
- evaluate  `predict` equals the model's eval()
- train     3 steps of SGD equal those of the exported program in Python, to the last bit; if the program has noise, it is compared with
            dropout rates of 0 (if it still has some, only the run itself counts)
- capture   these steps are bit-equal with and without step capture
- pt2, onnx `export RUN` writes a program that equals eval() with the trained weights, in Python and in onnxruntime
A value is the largest difference, relative to the largest value; above TOLERANCE it is wrong.

--speed adds the processor time of a step with BATCH rows in one thread, interleaved with the model itself in PyTorch, and with another
build: the smallest of so many repeats, in ms.
"""

import argparse
import copy
import glob
import importlib.util
import json
import multiprocessing
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import models

TOLERANCE = 1e-4
LIMIT_S = 400
STEPS, BATCH = 3, 4
EXPORTED_ROWS = 7  # no size that the models have
CONFIG = """seed = 0
name = "sweep"
[model]
name = "exported"
file = {file}
loss = "{loss}"
[data]
name = "arrays"
file = {data}
batch_size = {batch}
shuffle = false
keep_type = true
more_inputs = {more}
train = [0, {trained}]
val = [{trained}, {rows}]
[optimizer]
name = "sgd"
lr = 0.01
[trainer]
max_steps = {steps}
check_val_every_n_epoch = {val_every}
num_threads = 1
num_sanity_val_steps = 0
step_graph = "{capture}"
on_nonfinite = "ignore"
[run]
dir = "runs"
fast_mkl = "off"
"""


def load_export():
    """kindling.export(), which needs no built wheel."""
    source = Path(__file__).resolve().parents[2] / "python/kindling/_export.py"
    spec = importlib.util.spec_from_file_location("kindling_export", source)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.export


def register_torchvision():
    """Lets torchvision be imported next to a CPU build of PyTorch, without its compiled operators."""
    import torch
    register = torch.library.register_fake
    torch.library.register_fake = lambda name, *more, **options: (
        (lambda function: function) if str(name).startswith("torchvision::") else register(name, *more, **options))


def leaf(output):
    """The first tensor of an output."""
    import torch
    return next(value for value in torch.utils._pytree.tree_leaves(output) if isinstance(value, torch.Tensor))


def call(model, example, rows):
    if isinstance(example, dict):
        return leaf(model(**{name: value[rows] for name, value in example.items()}))
    return leaf(model(*(value[rows] for value in (example if isinstance(example, tuple) else (example,)))))


def difference(ours, theirs):
    import torch
    ours, theirs = (torch.as_tensor(value) for value in (ours, theirs))
    ours, theirs = (torch.view_as_real(value).double() if value.is_complex() else value.double() for value in (ours, theirs))
    if ours.shape != theirs.shape:
        return f"shape {list(ours.shape)}, {list(theirs.shape)} in Python"
    if not theirs.numel() or torch.equal(ours.isnan(), theirs.isnan()) and torch.equal(ours.nan_to_num(), theirs.nan_to_num()):
        return 0.0
    return float((ours - theirs).abs().max() / theirs.abs().max().clamp(min=1e-30))


def has_noise(program):
    def draws(node):
        name = str(node.target)
        operator = name.split(".")[1].rstrip("_") if "." in name else ""
        rate = {"dropout": 1, "scaled_dot_product_attention": 4, "feature_dropout": 1, "alpha_dropout": 1}.get(operator)
        if rate is not None:
            return len(node.args) > rate and node.args[rate] > 0
        return any(text in name for text in ("bernoulli", "rand", "rrelu", "multinomial", "normal_", "uniform_"))
    return any(draws(node) for node in program.graph.nodes if node.op == "call_function")


def silence(model):
    """Sets the rates of dropout to 0."""
    for module in model.modules():
        for name, value in vars(module).items():
            if isinstance(value, float) and ("drop" in name or name == "p"):
                setattr(module, name, 0.0)
    return model


class Sweep:
    def __init__(self, program, export, architecture, repeats=0, former=None):
        self.program, self.export, self.architecture, self.repeats, self.former = program, export, architecture, repeats, former
        self.folder = Path(tempfile.mkdtemp(prefix="sweep-"))
        self.result = {"name": architecture.name}

    def run(self):
        try:
            self.check()
        except subprocess.TimeoutExpired as error:
            self.result["error"] = f"longer than {error.timeout} s"
        except Exception as error:
            self.result["error"] = repr(error)[-400:]
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)
        return self.result

    def kindling(self, *arguments):
        """Returns an empty text, or the message."""
        done = subprocess.run([self.program, *arguments], cwd=self.folder, capture_output=True, text=True, timeout=LIMIT_S,
                              env=os.environ | {"OMP_NUM_THREADS": "1"})
        return "" if done.returncode == 0 else f"exit code {done.returncode}: {done.stderr.strip()[-400:]}"

    def configure(self, file, capture="auto", data="data.npz", trained=STEPS * BATCH, val_every=1):
        (self.folder / "config.toml").write_text(CONFIG.format(
            file=json.dumps(file), loss=self.loss, batch=BATCH, more=json.dumps(self.names[1:]), data=json.dumps(data), trained=trained,
            rows=trained + BATCH, steps=STEPS, capture=capture, val_every=val_every))

    def check(self):
        import torch
        torch.manual_seed(0)
        self.model, self.example = self.architecture.build()
        try:
            self.export(copy.deepcopy(self.model), self.rows_of_example(EXPORTED_ROWS), self.folder / "model.pt2")
            program = torch.export.load(self.folder / "model.pt2")
        except Exception as error:
            self.result["torch"] = str(error)[:300]
            return
        self.result["noise"] = has_noise(program)
        self.result["operators"] = sorted({str(node.target) for node in program.graph.nodes if node.op == "call_function"})
        self.write_data()
        self.evaluate()
        file = "model.pt2"
        if self.result["noise"]:
            file = "quiet.pt2"
            self.export(silence(copy.deepcopy(self.model)), self.rows_of_example(EXPORTED_ROWS), self.folder / file)
        if self.train(file):
            if self.repeats:
                self.time()
            self.write_back()

    def rows_of_example(self, rows):
        if isinstance(self.example, dict):
            return {name: value[:rows] for name, value in self.example.items()}
        return tuple(value[:rows] for value in self.example) if isinstance(self.example, tuple) else self.example[:rows]

    def write_data(self):
        import numpy
        import torch
        with torch.no_grad():
            self.expected = call(copy.deepcopy(self.model).eval(), self.example, slice(STEPS * BATCH, None))
        shape = (models.ROWS, *self.expected.shape[1:])
        self.loss = "cross_entropy" if len(shape) == 2 and shape[1] > 1 else "mse"
        self.labels = torch.randint(0, shape[1], (models.ROWS,)) if self.loss == "cross_entropy" else torch.randn(shape)
        if isinstance(self.example, dict):
            arrays = dict(self.example)
        else:
            arrays = {f"x{number}": value for number, value in enumerate(self.example if isinstance(self.example, tuple) else (self.example,))}
            arrays["x"] = arrays.pop("x0")
            arrays = {"x": arrays.pop("x")} | arrays
        self.names = list(arrays)
        if self.names[0] != "x":
            arrays = {"x": arrays.pop(self.names[0])} | arrays
        numpy.savez(self.folder / "data.npz", y=self.labels.numpy(), **{name: value.numpy() for name, value in arrays.items()})

    def evaluate(self):
        import numpy
        self.configure("model.pt2")
        message = self.kindling("predict", "-c", "config.toml", "--out", "outputs.npz", "--quiet")
        if message:
            self.result["evaluate"] = message
            return
        with numpy.load(self.folder / "outputs.npz") as outputs:
            values = outputs["outputs" if "outputs" in outputs.files else outputs.files[-1]]
        self.result["evaluate"] = difference(values, self.expected)

    def train(self, file):
        import torch
        from safetensors.torch import load_file
        weights = {}
        for capture in ("off", "on"):
            shutil.rmtree(self.folder / "runs", ignore_errors=True)
            self.configure(file, capture)
            message = self.kindling("fit", "-c", "config.toml", "--quiet")
            if message:
                self.result["train"] = message
                return False
            weights[capture] = load_file(glob.glob(str(self.folder / "runs/*/*/weights.safetensors"))[0])
        self.weights = weights["on"]
        self.result["capture"] = max((difference(weights["on"][name], value) for name, value in weights["off"].items()), default=0.0)
        program = torch.export.load(self.folder / file)
        if has_noise(program):
            self.result["train"] = "noise"
            return True
        module = program.module()
        optimizer = torch.optim.SGD([p for p in dict.fromkeys(module.parameters()) if p.requires_grad], lr=0.01)
        loss = torch.nn.functional.cross_entropy if self.loss == "cross_entropy" else torch.nn.functional.mse_loss
        for step in range(STEPS):
            rows = slice(BATCH * step, BATCH * (step + 1))
            optimizer.zero_grad()
            loss(call(module, self.example, rows), self.labels[rows]).backward()
            optimizer.step()
        differences = [difference(self.weights[name], value) for name, value in module.state_dict().items() if name in self.weights]
        texts = [value for value in differences if isinstance(value, str)]
        self.result["train"] = texts[0] if texts else max(differences, default="no weights")
        return True

    def time(self):
        """Adds "ms": the processor time of a step of Kindling, PyTorch and the former Kindling."""
        import numpy
        import torch
        copies = 200 // models.ROWS + 1
        with numpy.load(self.folder / "data.npz") as data:
            numpy.savez(self.folder / "long.npz", **{name: numpy.concatenate([value] * copies) for name, value in data.items()})
        self.configure("model.pt2", data="long.npz", trained=models.ROWS * copies - BATCH, val_every=10**6)
        model = copy.deepcopy(self.model).train()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        loss = torch.nn.functional.cross_entropy if self.loss == "cross_entropy" else torch.nn.functional.mse_loss

        def eager(steps):
            before = time.process_time()
            for step in range(steps):
                rows = slice(BATCH * (step % 4), BATCH * (step % 4) + BATCH)
                optimizer.zero_grad()
                loss(call(model, self.example, rows), self.labels[rows]).backward()
                optimizer.step()
            return time.process_time() - before

        def kindling(program, steps):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            done = subprocess.run([program, "fit", "-c", "config.toml", "--quiet", f"trainer.max_steps={steps}", "name=\"speed\""],
                                  cwd=self.folder, capture_output=True, timeout=LIMIT_S, env=os.environ | {"OMP_NUM_THREADS": "1"})
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            if done.returncode:
                raise RuntimeError(done.stderr[-300:])
            return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        eager(2)
        steps = max(5, min(300, int(0.7 / (eager(3) / 3))))  # 0.7 s
        programs = [self.program] + [self.former] * bool(self.former)
        times = [[] for _ in range(len(programs) + 1)]
        for _ in range(self.repeats):
            for number, program in enumerate(programs):
                times[number].append((kindling(program, steps + 3) - kindling(program, 3)) / steps)
            times[-1].append(eager(steps) / steps)
        self.result["ms"] = dict(zip(["kindling"] + ["former"] * bool(self.former) + ["eager"], (1000 * min(each) for each in times)))

    def write_back(self):
        import onnxruntime
        import torch
        state = self.model.state_dict()  # load_state_dict() of some models wants a version, which files of weights do not have
        for name in state.keys() & self.weights.keys():
            state[name].copy_(self.weights[name])
        rows = slice(0, BATCH - 1)
        with torch.no_grad():
            wanted = call(self.model.eval(), self.example, rows)
        run = os.path.relpath(glob.glob(str(self.folder / "runs/*/*"))[0], self.folder)
        message = self.kindling("export", run, "back.pt2")
        if not message:
            with torch.no_grad():
                program = torch.export.load(self.folder / "back.pt2").module()
                try:
                    message = difference(call(program, self.example, rows), wanted)
                except (TypeError, ValueError):  # it does not keep the names
                    values = self.example.values() if isinstance(self.example, dict) else self.example
                    message = difference(call(program, tuple(values), rows), wanted)
        self.result["pt2"] = message
        message = self.kindling("export", run, "back.onnx")
        if not message:
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads, options.log_severity_level = 1, 3
            session = onnxruntime.InferenceSession(str(self.folder / "back.onnx"), options, providers=["CPUExecutionProvider"])
            values = list(self.example.values()) if isinstance(self.example, dict) else self.example if isinstance(self.example, tuple) else [self.example]
            inputs = [given.name for given in session.get_inputs()]
            message = difference(session.run(None, {name: value[rows].numpy() for name, value in zip(inputs, values)})[0], wanted)
        self.result["onnx"] = message


def check_in_child(sweep, queue):
    queue.put(sweep.run())


def sweep_package(package, arguments):
    """Checks each architecture in a process of its own, which an error of a library may end."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    warnings.filterwarnings("ignore")
    import torch
    torch.set_num_threads(1)
    register_torchvision()
    export = load_export()
    for architecture in package():
        if arguments.only and arguments.only not in architecture.name:
            continue
        former = arguments.former and os.path.abspath(arguments.former)
        sweep = Sweep(os.path.abspath(arguments.program), export, architecture, arguments.speed, former)
        queue = multiprocessing.Queue()
        child = multiprocessing.Process(target=check_in_child, args=(sweep, queue))
        child.start()
        try:
            result = queue.get(timeout=2 * LIMIT_S)
        except Exception:
            result = {"name": architecture.name, "error": f"ended with {child.exitcode}"}
        child.join(5)
        child.kill()
        yield {"package": package.__name__} | result


def is_right(value):
    return isinstance(value, float) and value <= TOLERANCE


def report(results):
    exported = [r for r in results if "torch" not in r and "error" not in r]
    print(f"{len(results)} architectures, {len(exported)} exported by torch")
    for check in ("evaluate", "train", "capture", "pt2", "onnx"):
        values = [r.get(check) for r in exported if r.get(check) != "noise"]
        same = sum(value == 0 for value in values)
        right = sum(is_right(value) for value in values)
        wrong = sum(isinstance(value, float) and not is_right(value) for value in values)
        print(f"{check:9} {right} of {len(values)} right, {same} to the last bit, {wrong} wrong, {len(values) - right - wrong} refused")
    timed = [r["ms"] for r in exported if "ms" in r]
    for peer in ("eager", "former"):
        ratios = sorted(ms["kindling"] / ms[peer] for ms in timed if peer in ms)
        if ratios:
            print(f"a step takes {ratios[0]:.3f} to {ratios[-1]:.3f}, median {statistics.median(ratios):.3f}, of {peer} ({len(ratios)} models)")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--package")
    parser.add_argument("--only", help="a part of the name")
    parser.add_argument("--speed", type=int, default=0, metavar="REPEATS")
    parser.add_argument("--former", help="another build of the program")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    multiprocessing.set_start_method("fork")
    results = []
    for package in models.PACKAGES:
        if arguments.package and package.__name__ != arguments.package:
            continue
        for result in sweep_package(package, arguments):
            results.append(result)
            shown = {key: value for key, value in result.items() if key != "operators"}
            print(json.dumps(shown), flush=True)
    report(results)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(results, indent=1))
    wrong = [r for r in results if any(isinstance(r.get(c), float) and not is_right(r[c]) for c in ("evaluate", "train", "capture", "pt2", "onnx"))]
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
