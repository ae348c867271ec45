"""Measures what all records of a run and the screen cost: fits with everything on, compared with the same fits with everything off.

    python benchmarks/records.py [--program build/release/bin/kindling] [--steps 1000000] [--pairs 5] [--epochs long|short] [--together]
                                 [--profiler LIBPROFILER] [--json FILE]

Needs Python's standard library only. "on" writes metrics.jsonl, metrics.csv, event files, curves.svg and report.html, a record
every 50 steps, and draws the screen on a pseudo-terminal, which this script reads. "off" writes none of them and is quiet. Both
train the same small model with one thread, without checkpoints; on and off alternate, and so does the one that comes first. Long
epochs have 50,000 steps, short ones 719. With --together both fits of a pair run at once and share one core, so that other work on
the machine slows both equally; then the wall times mean nothing. Prints the processor time (user and system) and the wall time of
each run, then the median of the pairs' ratios, and the resident memory of the runs that are on. The exit status is 1 if the
processor time grows by more than --limit percent.

On a virtual machine the times of equal runs differ by more than records cost. --profiler LIB repeats the fit that is on under
gperftools' sampling profiler (LIB is its libprofiler.so) and prints the share of samples taken inside records and screen: other
work on the machine hardly changes it. It needs `google-pprof` on the PATH.
"""

import argparse
import os
import pty
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from facts import append_result, machine_facts

ROOT = Path(__file__).resolve().parent.parent
FIT = ["model.hidden=[128]", "data.batch_size=2", "trainer.num_threads=1", "trainer.num_gpus=0", "checkpoint.every_n_epochs=0",
       "name=records", "seed=0"]
# Both models have 64 inputs.
EPOCHS = {
    "short": ["model.name=mlp", "data.name=digits"],
    "long": ["model.name=mlp_regressor", "data.name=synthetic_regression", "data.num_train=100000",
             "data.w=[" + ",".join(str(feature / 64) for feature in range(64)) + "]"],
}
ON = ["trainer.log_every_n_steps=50"]
OFF = ["trainer.log_every_n_steps=0", "run.jsonl=false", "run.csv=false", "run.tensorboard=false", "run.svg=false", "run.html=false",
       "--progress", "none", "--quiet"]
PAGE = os.sysconf("SC_PAGE_SIZE")
# The functions whose samples count, with everything they call.
RECORDS = "report_steps|EpochReport::close|kindling::Screen|EpochTable|ProgressBoard|RunLog|RunReport|RunMetrics|Logger|FitFolder"


def resident_mib(process):
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * PAGE / 2**20
    except (OSError, IndexError):
        return 0


def run(program, steps, words, environment=None):
    """Returns the seconds of processor and wall time of a fit, and its resident memory in MiB every half second."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.monotonic()
        process, terminal = pty.fork()
        if process == 0:
            os.chdir(folder)
            os.environ.update(OMP_NUM_THREADS="1", TERM="xterm-256color", **(environment or {}))
            os.execv(program, [program, "fit", f"trainer.max_steps={steps}", *words])
        memory, output, next_sample = [], b"", start
        while True:
            if time.monotonic() >= next_sample:
                memory.append(resident_mib(process))
                next_sample += 0.5
            if not select.select([terminal], [], [], 0.5)[0]:
                continue
            try:
                block = os.read(terminal, 1 << 16)
            except OSError:  # the program has ended
                break
            if not block:
                break
            output = (output + block)[-2000:]
        _, status, usage = os.wait4(process, 0)
        seconds = time.monotonic() - start
        os.close(terminal)
        if status != 0:
            sys.exit(f"{program} failed:\n{output.decode(errors='replace')}")
        return {"cpu": usage.ru_utime + usage.ru_stime, "system": usage.ru_stime, "wall": seconds, "memory": [one for one in memory if one > 0]}


def run_both(program, steps, case, order, together):
    """Returns the results of both variants by name."""
    words = {"on": case + ON, "off": case + OFF}
    if not together:
        return {variant: run(program, steps, words[variant]) for variant in order}
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})  # the programs inherit it
    try:
        with ThreadPoolExecutor(2) as pool:
            started = {variant: pool.submit(run, program, steps, words[variant]) for variant in order}
            return {variant: one.result() for variant, one in started.items()}
    finally:
        os.sched_setaffinity(0, cores)


def profiled(program, steps, words, library):
    """Returns the number of samples of a fit, and of those inside RECORDS."""
    pprof = shutil.which("google-pprof") or shutil.which("pprof") or sys.exit("google-pprof was not found; it is part of gperftools")
    with tempfile.TemporaryDirectory() as folder:
        profile = f"{folder}/fit.prof"
        run(program, steps, words, {"LD_PRELOAD": str(library), "CPUPROFILE": profile, "CPUPROFILE_FREQUENCY": "1000"})
        report = subprocess.run([pprof, "--text", "--cum", f"--focus={RECORDS}", program, profile], capture_output=True, text=True, check=True)
        lines = report.stdout.splitlines()
        return int(lines[0].split()[1]), max((int(line.split()[3]) for line in lines[1:]), default=0)


def libtorch_of(program):
    """Returns the version of the LibTorch that the program runs with."""
    doctor = subprocess.run([program, "doctor"], capture_output=True, text=True, check=True).stdout
    return next((line.split()[1] for line in doctor.splitlines() if line.lower().startswith("libtorch")), "")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=ROOT / "build/release/bin/kindling", type=Path)
    parser.add_argument("--steps", default=1_000_000, type=int)
    parser.add_argument("--pairs", default=5, type=int)
    parser.add_argument("--epochs", choices=EPOCHS, default="long")
    parser.add_argument("--profiler", type=Path, help="libprofiler.so of gperftools")
    parser.add_argument("--together", action="store_true", help="run both fits of a pair at once, on one core")
    parser.add_argument("--limit", default=1.0, type=float, help="percent of processor time")
    parser.add_argument("--json", type=Path, help="append the results to this file")
    options = parser.parse_args()
    program = str(options.program.resolve())
    facts = machine_facts() | {"torch": libtorch_of(program)}
    case = FIT + EPOCHS[options.epochs]
    run(program, 1000, case + ON)  # reads the program and its libraries
    runs = {"on": [], "off": []}
    for pair in range(options.pairs):
        order = ("on", "off") if pair % 2 == 0 else ("off", "on")
        for variant, one in run_both(program, options.steps, case, order, options.together).items():
            runs[variant].append(one)
            print(f"{variant:4} cpu {one['cpu']:.2f} s, of which system {one['system']:.2f} s   wall {one['wall']:.2f} s", flush=True)
    ratios = {metric: [on[metric] / off[metric] for on, off in zip(runs["on"], runs["off"])] for metric in ("cpu", "wall")}
    memory = [one["memory"] for one in runs["on"]]
    quarter = [series[len(series) // 4] for series in memory]
    last = [max(series[-len(series) // 4:]) for series in memory]
    result = {
        "case": "records", "epochs": options.epochs, "steps": options.steps, "pairs": options.pairs, "together": options.together, **facts,
        "cpu_on_s": [round(one["cpu"], 3) for one in runs["on"]],
        "system_on_s": [round(one["system"], 3) for one in runs["on"]], "system_off_s": [round(one["system"], 3) for one in runs["off"]],
        "cpu_off_s": [round(one["cpu"], 3) for one in runs["off"]], "wall_on_s": [round(one["wall"], 3) for one in runs["on"]],
        "wall_off_s": [round(one["wall"], 3) for one in runs["off"]],
        "cpu_ratio": round(statistics.median(ratios["cpu"]), 4), "wall_ratio": round(statistics.median(ratios["wall"]), 4),
        "memory_at_quarter_mib": round(statistics.median(quarter), 2), "memory_at_end_mib": round(statistics.median(last), 2),
    }
    for metric in ("cpu", "wall"):
        print(f"{metric}: median {100 * (result[metric + '_ratio'] - 1):+.2f} %, pairs "
              + ", ".join(f"{100 * (ratio - 1):+.2f}" for ratio in ratios[metric]))
    print(f"resident memory: {result['memory_at_quarter_mib']} MiB after a quarter, {result['memory_at_end_mib']} MiB at the end")
    if options.profiler:
        samples, of_records = profiled(program, options.steps, case + ON, options.profiler.resolve())
        result.update(samples=samples, samples_of_records=of_records)
        print(f"profile: {of_records} of {samples} samples are in records and screen, {100 * of_records / samples:.2f} %")
    append_result(options.json, result)
    return 1 if 100 * (result["cpu_ratio"] - 1) > options.limit else 0


if __name__ == "__main__":
    sys.exit(main())
