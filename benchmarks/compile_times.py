"""Measures how long a compiler takes for a file that includes Kindling, compared with LibTorch's <torch/torch.h>.

    python benchmarks/compile_times.py --libtorch FOLDER [--compiler g++] [--flags "-O3 -DNDEBUG"] [--repeats 7] [--json FILE]

Needs Python's standard library only, and a LibTorch (the folder with include/ and lib/). Compiles five files in turn, without ccache:
two that include a header and do nothing else, the same short program with Kindling's umbrella header and with single headers, and a
loop that is written with LibTorch alone. Prints the medians of the CPU time (user and system) and of the
largest memory of the compiler, and the median of the ratios to <torch/torch.h> of the same repeat.
"""

import argparse
import os
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from facts import append_result, machine_facts

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = """
struct DigitNet : kindling::Classifier {
  DigitNet()
      : net(register_module("net", torch::nn::Sequential(torch::nn::Flatten(), torch::nn::Linear(64, 128), torch::nn::ReLU(),
                                                         torch::nn::Linear(128, 10)))) {}
  torch::Tensor forward(const torch::Tensor& images) override { return net->forward(images); }
  torch::nn::Sequential net;
};

int main() {
  torch::manual_seed(0);
  kindling::Digits data({.batch_size = 32});
  auto model = std::make_shared<DigitNet>();
  kindling::Trainer trainer({.max_epochs = 5});
  trainer.fit(model, data);
  std::cout << model->parameters().size() << " tensors trained\\n";
}
"""
LOOP = """
struct DigitNet : torch::nn::Module {
  DigitNet()
      : net(register_module("net", torch::nn::Sequential(torch::nn::Flatten(), torch::nn::Linear(64, 128), torch::nn::ReLU(),
                                                         torch::nn::Linear(128, 10)))) {}
  torch::Tensor forward(const torch::Tensor& images) { return net->forward(images); }
  torch::nn::Sequential net;
};

int main() {
  torch::manual_seed(0);
  DigitNet model;
  torch::optim::AdamW optimizer(model.parameters(), 1e-3);
  const auto images = torch::rand({32, 64}), labels = torch::zeros({32}, torch::kLong);
  for (int step = 0; step < 100; ++step) {
    optimizer.zero_grad();
    torch::nn::functional::cross_entropy(model.forward(images), labels).backward();
    optimizer.step();
  }
  std::cout << model.parameters().size() << " tensors trained\\n";
}
"""


def includes(*headers):
    return "".join(f"#include <{header}>\n" for header in headers)


REFERENCE = "<torch/torch.h>"
FILES = {
    REFERENCE: includes("torch/torch.h") + "int main() {}\n",
    "<kindling/kindling.h>": includes("kindling/kindling.h") + "int main() {}\n",
    "loop, <torch/torch.h>": includes("torch/torch.h", "iostream") + LOOP,
    "program, <kindling/kindling.h>": includes("kindling/kindling.h", "iostream") + PROGRAM,
    "program, single headers": includes(
        "kindling/data/digits.h", "kindling/nn/classifier.h", "kindling/training/trainer.h", "torch/nn/modules/activation.h",
        "torch/nn/modules/container/sequential.h", "torch/nn/modules/linear.h", "torch/utils.h", "iostream") + PROGRAM,
}


def compile_file(command):
    """Returns the CPU seconds of the compiler and its largest resident memory in MiB."""
    process = subprocess.Popen(command, env=os.environ | {"CCACHE_DISABLE": "1"})
    _, status, use = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"the compiler failed: {shlex.join(command)}")
    return use.ru_utime + use.ru_stime, use.ru_maxrss / 1024


def libtorch_version(libtorch):
    text = (libtorch / "include/torch/headeronly/version.h").read_text()
    return ".".join(re.search(rf"define TORCH_VERSION_{part} (\d+)", text)[1] for part in ("MAJOR", "MINOR", "PATCH"))


def main():
    parser = argparse.ArgumentParser(description="Compile times of files that include Kindling.")
    parser.add_argument("--libtorch", type=Path, required=True)
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--flags", default="-O3 -DNDEBUG")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json")
    options = parser.parse_args()
    compiler = subprocess.run([options.compiler, "--version"], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[0]
    facts = {"compiler": compiler, "flags": options.flags, "libtorch": libtorch_version(options.libtorch), **machine_facts()}
    include = options.libtorch / "include"
    measured = {name: [] for name in FILES}
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, text) in enumerate(FILES.items()):
            Path(folder, f"{number}.cpp").write_text(text)
        for _ in range(options.repeats):
            for number, name in enumerate(FILES):
                measured[name].append(compile_file(
                    [options.compiler, "-std=c++20", *shlex.split(options.flags), f"-I{ROOT / 'include'}", "-isystem", str(include),
                     "-isystem", str(include / "torch/csrc/api/include"), "-c", str(Path(folder, f"{number}.cpp")), "-o", os.devnull]))
    print(f"{'file':<32}{'CPU s':>8}{'MiB':>8}{'ratio':>8}")
    for name, runs in measured.items():
        seconds, memory = (statistics.median(values) for values in zip(*runs))
        ratio = statistics.median(run[0] / reference[0] for run, reference in zip(runs, measured[REFERENCE]))
        print(f"{name:<32}{seconds:>8.1f}{memory:>8.0f}{ratio:>8.2f}")
        append_result(options.json, {"benchmark": "compile_times", "file": name, "cpu_s": round(seconds, 2), "peak_mib": round(memory),
                                     "ratio": round(ratio, 3), "ratios": [round(run[0] / reference[0], 3) for run, reference in
                                                                         zip(runs, measured[REFERENCE])],
                                     "repeats": options.repeats, **facts})


if __name__ == "__main__":
    main()
