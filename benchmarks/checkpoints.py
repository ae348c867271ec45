"""Compares the checkpoints of kindling_bench with plain files and Python's, interleaved repeat by repeat.

    python benchmarks/checkpoints.py [--bench build/release/bin/kindling_bench] [--repeats 11] [--json FILE]

Needs a Python with torch, safetensors and numpy. Prints the JSON lines of bench_peers.py, then a table. The exit status is 1 if a
peer has not read what it saved, or if a limit of benchmarks/checkpoints.md is exceeded.
"""

import argparse
import ctypes
import importlib.util
import itertools
import json
import os
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PEERS_FOLDER = ROOT / "benchmarks/peers"
LEAST_SHARE = 0.7  # of the speed of plain files
MOST_COPIES = 1.05  # of the state, in memory beside it; a loaded state is one
PYTHON_PEERS = {
    "ckpt_save": ("torch", "safetensors"),
    "ckpt_load": ("torch", "safetensors", "safetensors_mmap"),
}
STEP_VARIANTS = ("without", "snapshot", "wait", "wait_snapshot", "asynchronous")


def require_inputs(bench):
    missing = [name for name in ("torch", "safetensors", "numpy") if not importlib.util.find_spec(name)]
    if missing:
        sys.exit(f"{sys.executable} lacks {', '.join(missing)}: pip install them, or take another Python")
    if not os.access(bench, os.X_OK):
        sys.exit(f"there is no {bench}: build it, or name it with --bench")


# --- A Python peer, in a process of its own


class PeakMemory:
    """By how much the resident memory of this process has grown at its peak since this was made."""

    def __init__(self):
        Path("/proc/self/clear_refs").write_text("5")
        self.start = self._kilobytes("VmRSS")

    def bytes(self):
        return 1024 * (self._kilobytes("VmHWM") - self.start)

    @staticmethod
    def _kilobytes(name):
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(name + ":"))


def checksum(state):
    """As kindling_bench has it: the words of each tensor times its number in the order of names, modulo 2^32."""
    import torch

    sums = (state[name].reshape(-1).view(torch.int32).sum(dtype=torch.int64).item() for name in sorted(state))
    return sum(number * words for number, words in enumerate(sums, 1)) % 2**32


def save(peer, state, path):
    """As durable as Kindling: neither torch nor safetensors does so by itself."""
    import safetensors.torch
    import torch

    temporary = path.with_suffix(".tmp")
    if peer == "torch":
        torch.save(state, temporary)
    else:
        safetensors.torch.save_file(state, temporary)
    with temporary.open("rb+") as file:
        os.fsync(file.fileno())
    temporary.replace(path)


def load(peer, path):
    import safetensors.torch
    import torch

    if peer == "torch":
        return torch.load(path, weights_only=True)
    return safetensors.torch.load_file(path, backend="mmap" if peer == "safetensors_mmap" else "pread")


def stop(clock):
    """Ends the running stretch; what comes before the next tick does not count."""
    from harness import cpu_seconds

    clock.wall.append(time.perf_counter() - clock._start[0])
    clock.cpu.append(cpu_seconds() - clock._start[1])
    clock._start = None


def run_peer(args):
    import safetensors.torch
    from harness import Clock, report

    state = safetensors.torch.load_file(args.folder / "kindling.safetensors", backend="pread")
    state_bytes = sum(tensor.nbytes for tensor in state.values())
    path = args.folder / f"python_{args.peer}"
    save(args.peer, state, path)
    if args.case == "ckpt_load":
        state = None
    release_memory = ctypes.CDLL(None).malloc_trim
    clock = Clock(warmup=1, repeats=args.repeats, gate=args.gate)
    copies = []
    for _ in range(clock.rounds):
        loaded = None
        release_memory(0)  # each repeat has memory that is fresh from the system
        clock.tick()
        peak = PeakMemory()
        if args.case == "ckpt_save":
            save(args.peer, state, path)
        else:
            loaded = load(args.peer, path)
        stop(clock)
        copies.append(peak.bytes() / state_bytes)
    for metric, seconds in clock.samples().items():
        report(args, metric, "s", seconds)
    report(args, "peak_memory", "copies", copies)
    report(args, "checksum", "", [checksum(load(args.peer, path))])


# --- The driver


def take_turns(case, commands, args):
    from bench_peers import Peer

    peers = [Peer(command, args, case) for command in commands]
    while any(peer.running for peer in peers):
        for peer in peers:
            if peer.running:
                peer.repeat()
    return list(itertools.chain.from_iterable(peer.lines for peer in peers))


def medians(lines, metric):
    return {line["variant"] or line["peer"]: line["median"] for line in lines if line["metric"] == metric}


def says(kept, sentence):
    print(f"{'kept' if kept else 'NOT KEPT'}: {sentence}")
    return kept


def check_files(case, lines):
    checksums = medians(lines, "checksum")
    if len(set(checksums.values())) > 1:
        return says(False, f"{case}: everybody reads back what was saved: {checksums}")
    wall, copies = medians(lines, "wall"), medians(lines, "peak_memory")
    print(f"{case:<20}{'seconds':>8}{'least':>8}{'largest':>8}{'speed of plain':>16}{'peak memory':>13}")
    for line in (line for line in lines if line["metric"] == "wall"):
        peer, seconds = line["peer"], line["median"]
        print(f"  {peer:<18}{seconds:>8.3f}{line['min']:>8.3f}{line['max']:>8.3f}"
              f"{wall['plain'] / seconds:>16.0%}{copies[peer]:>6.2f} copies")
    share = wall["plain"] / wall["kindling"]
    fast = says(share >= LEAST_SHARE, f"{case} has {share:.0%} of plain's speed, of at least {LEAST_SHARE:.0%}")
    return says(copies["kindling"] <= MOST_COPIES, f"{case} takes at most one copy of the state") and fast


def check_steps(lines):
    print(f"{'ckpt_step':<14}{'thread cpu':>12}{'cost':>8}{'wall':>9}   us/step")
    cpu, wall = medians(lines, "thread_cpu"), medians(lines, "wall")
    cost = {variant: cpu[variant] - cpu["without"] for variant in STEP_VARIANTS}
    for variant in STEP_VARIANTS:
        print(f"  {variant:<14}{cpu[variant]:>10.0f}{cost[variant]:>8.0f}{wall[variant]:>9.0f}")
    print(f"  a wait and a snapshot cost {cost['wait_snapshot']:.0f}; this compares, it is no limit")
    return says(cost["asynchronous"] <= cost["snapshot"], "a save costs the training no more than the snapshot")


def measure(case, folder, args):
    bench = [str(args.bench), "--folder", str(folder)]
    if case == "ckpt_step":
        return take_turns(case, [[*bench, "--variant", variant] for variant in STEP_VARIANTS], args)
    here = [sys.executable, __file__, "--folder", str(folder), "--peer"]
    commands = [[*bench, "--peer", peer] for peer in ("kindling", "plain")]
    return take_turns(case, commands + [[*here, peer] for peer in PYTHON_PEERS[case]], args)


def drive(args):
    require_inputs(args.bench)
    print(f"load average {os.getloadavg()[0]:.1f}", file=sys.stderr)
    kept = []
    for case in args.case.split(","):
        with tempfile.TemporaryDirectory(dir=args.folder) as folder:
            lines = measure(case, folder, args)
        for line in lines:
            print(json.dumps(line), flush=True)
        if args.json:
            with args.json.open("a") as file:
                file.writelines(json.dumps(line) + "\n" for line in lines)
        kept.append(check_steps(lines) if case == "ckpt_step" else check_files(case, lines))
    sys.exit(0 if all(kept) else 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", type=Path, default=ROOT / "build/release/bin/kindling_bench")
    parser.add_argument("--case", default="ckpt_save,ckpt_load,ckpt_step")
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path("."), help="on the disk that is measured")
    parser.add_argument("--json", type=Path, help="append the lines to this file")
    parser.add_argument("--precision", default="fp32", help=argparse.SUPPRESS)
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    parser.add_argument("--gate", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    sys.path.insert(0, str(PEERS_FOLDER))
    sys.dont_write_bytecode = True
    run_peer(args) if args.peer else drive(args)


if __name__ == "__main__":
    main()
