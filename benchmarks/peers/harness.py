"""Timing and reporting, common to all Python peers."""

import json
import multiprocessing
import os
import sys
import time

import torch

MICRO = 1e6
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds() -> float:
    """Returns the CPU time of this process, all its threads and its running worker processes."""
    total = time.process_time()
    for child in multiprocessing.active_children():
        with open(f"/proc/{child.pid}/stat") as f:
            fields = f.read().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / CLOCK_TICKS  # utime + stime
    return total


class Clock:
    """Times the rounds between calls of tick(). The first `warmup` rounds are not counted.

    With `gate`, every counted round starts only after the driver has answered the line "ready" with the line "go", so
    that the driver can interleave the repeats of several peers.
    """

    def __init__(self, warmup: int, repeats: int, gate: bool):
        self.warmup, self.repeats, self.gate = warmup, repeats, gate
        self.wall: list[float] = []
        self.cpu: list[float] = []
        self._start = None

    @property
    def rounds(self) -> int:
        return self.warmup + self.repeats

    def tick(self):
        now = time.perf_counter(), cpu_seconds()
        if self._start is not None:
            self.wall.append(now[0] - self._start[0])
            self.cpu.append(now[1] - self._start[1])
        if self.gate and self.warmup <= len(self.wall) < self.rounds:
            print("ready", flush=True)
            sys.stdin.readline()
        self._start = time.perf_counter(), cpu_seconds()

    def samples(self) -> dict[str, list[float]]:
        return {"cpu": self.cpu[self.warmup :], "wall": self.wall[self.warmup :]}

    @property
    def first_round_extra(self) -> float:
        """Additional wall-clock seconds of the first round: compilation and other set-up."""
        return self.wall[0] - median(self.wall[self.warmup :])


def median(values):
    values = sorted(values)
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


def cpu_model() -> str:
    with open("/proc/cpuinfo") as f:
        names = (line.split(":")[1].strip() for line in f if line.startswith("model name"))
        return next(names, "?")


def report(args, metric, unit, values, *, peer=None, variant="", final_loss=None):
    """Prints one JSON line: median, minimum and maximum of one metric over the repeats."""
    line = {
        "case": args.case,
        "variant": variant,
        "peer": peer or args.peer,
        "threads": args.threads,
        "precision": args.precision,
        "metric": metric,
        "unit": unit,
        "median": round(median(values), 6),
        "min": round(min(values), 6),
        "max": round(max(values), 6),
        "repeats": len(values),
        "final_loss": final_loss,
        "torch": torch.__version__,
        "cpu_model": cpu_model(),
    }
    print(json.dumps(line), flush=True)
