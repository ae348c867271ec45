"""Measures products of two n x n float32 matrices: `kindling bench matmul` beside PyTorch, one thread each, on the CPU.

    python benchmarks/matmul.py [--program build/release/bin/kindling] [--max-n 4096] [--repeats 11] [--json FILE]

Needs a Python with torch, and a C compiler. In each of the repeats all take turns, in fresh processes, and each measures all sizes:
the median of three times of at least 2 ms, by the clock, with the same number of calls. Prints one JSON line for each size and
peer, then a table.

The program has MKL's fast kernels on CPUs that are not Intel's (run.fast_mkl); so has `torch_mkl`, by LD_PRELOAD.
"""

import argparse
import importlib.util
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from facts import cpu_model

ROOT = Path(__file__).resolve().parent.parent
# `torch`: a @ b, a fresh result each time; `torch_out`: into memory that is there, as Kindling's.
PEERS = ("kindling", "torch", "torch_out", "torch_mkl", "torch_mkl_out")
WARM_UP, TIMES, LEAST_SECONDS, MOST_CALLS = 2, 3, 2e-3, 1000  # as src/measurements/timing.cpp has them
MKL_ANSWER = "int mkl_serv_intel_cpu_true(void) { return 1; }"  # as benchmarks/compare.sh has it


# --- A process of PyTorch


def seconds(call, calls):
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls


def time_call(call):
    for _ in range(WARM_UP):
        one_call = seconds(call, 1)
    calls = max(1, min(MOST_CALLS, math.ceil(LEAST_SECONDS / one_call)))
    return statistics.median(seconds(call, calls) for _ in range(TIMES))


def run_torch(args):
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    n = 16
    while n <= args.max_n:
        a, b, out = torch.randn(n, n), torch.randn(n, n), torch.empty(n, n)
        print(json.dumps({"n": n, "plain": time_call(lambda: a @ b), "out": time_call(lambda: torch.mm(a, b, out=out))}))
        n *= 2


# --- The driver


def output_of(command, **variables):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"} | variables
    result = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
    if result.returncode != 0:
        sys.exit(f"failed: {' '.join(map(str, command))}")
    return [json.loads(line) for line in result.stdout.splitlines()]


def of_kindling(args):
    lines = output_of([args.program, "bench", "matmul", "--json", "--threads", "1", "--repeats", str(TIMES), "--max-n", str(args.max_n),
                       "--time-budget", "86400"])
    points = [line for line in lines if line["kind"] == "result" and line["device"] == "cpu" and line["precision"] == "fp32"]
    return {("kindling", line["n"]): line["median_s"] for line in points}


def of_torch(args, peer, **variables):
    lines = output_of([sys.executable, str(Path(__file__).resolve()), "--torch", "--max-n", str(args.max_n)], **variables)
    return {(peer + suffix, line["n"]): line[key] for line in lines for key, suffix in (("plain", ""), ("out", "_out"))}


def measure(args):
    """Seconds by (peer, n), one for each repeat."""
    times = {}
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "mkl_answer.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-o", answer, "-"], input=MKL_ANSWER, text=True, check=True)
        for _ in range(args.repeats):
            for found in (of_kindling(args), of_torch(args, "torch"), of_torch(args, "torch_mkl", LD_PRELOAD=str(answer))):
                for key, value in found.items():
                    times.setdefault(key, []).append(value)
    return times


def tell(times):
    print("us, median (least … largest), and behind it by Kindling's: " + ", ".join(PEERS))
    for n in sorted({n for _, n in times}):
        text = f"{n:>6}"
        own = statistics.median(times["kindling", n])
        for peer in PEERS:
            all_of = [1e6 * value for value in times[peer, n]]
            text += f"{statistics.median(all_of):>12.4g} ({min(all_of):.4g} … {max(all_of):.4g})"
            text += "" if peer == "kindling" else f" {statistics.median(times[peer, n]) / own:.2f}"
        print(text)


def drive(args):
    if not importlib.util.find_spec("torch"):
        sys.exit(f"{sys.executable} lacks torch: pip install it, or take another Python")
    if not os.access(args.program, os.X_OK):
        sys.exit(f"there is no {args.program}: build it, or name it with --program")
    print(f"load average {os.getloadavg()[0]:.1f}", file=sys.stderr)
    times = measure(args)
    lines = [
        {"case": "matmul", "variant": str(n), "peer": peer, "threads": 1, "precision": "fp32", "metric": "wall", "unit": "us",
         "median": 1e6 * statistics.median(values), "min": 1e6 * min(values), "max": 1e6 * max(values), "repeats": len(values),
         "cpu_model": cpu_model()}
        for (peer, n), values in times.items()
    ]
    for line in lines:
        print(json.dumps(line))
    if args.json:
        with args.json.open("a") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
    tell(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/bin/kindling")
    parser.add_argument("--max-n", type=int, default=4096)
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--json", type=Path, help="append the lines to this file")
    parser.add_argument("--torch", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    run_torch(args) if args.torch else drive(args)


if __name__ == "__main__":
    main()
