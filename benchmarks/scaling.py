"""Measures steps of several processes: kindling_bench beside PyTorch's DistributedDataParallel, both over Gloo.

    python benchmarks/scaling.py [--bench build/release/bin/kindling_bench] [--processes 2] [--repeats 11] [--json FILE]

Needs a Python with torch and numpy, and the images that README.md describes. Every process has one thread and batches of the
size that the case has. Prints the JSON lines of bench_peers.py with the number of processes, times being those of process 0,
then a table. The exit status is 1 when final losses differ.
"""

import argparse
import importlib.util
import itertools
import json
import os
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PEERS_FOLDER = ROOT / "benchmarks/peers"
os.environ.setdefault("KINDLING_SHARED", str(ROOT))  # the folder of the images, for kindling_bench too
CASES = ("step_tiny", "step_deep", "lenet")
KINDLING_PEERS = ("kindling", "kindling_eager")
PYTHON_PEERS = ("ddp", "ddp_best", "ddp_compile")
LOSS_TOLERANCE = 0.01  # as bench_peers.py has it


# --- A process of a Python peer


def lenet():
    import torch
    import workloads
    from torch import nn

    images, labels = (tensor[: 156 * 64] for tensor in workloads.mnist())
    torch.manual_seed(workloads.MODEL_SEED)
    return workloads.Workload(
        model=nn.Sequential(
            nn.Conv2d(1, 6, 5, padding=2), nn.Sigmoid(), nn.AvgPool2d(2),
            nn.Conv2d(6, 16, 5), nn.Sigmoid(), nn.AvgPool2d(2), nn.Flatten(),
            nn.Linear(400, 120), nn.Sigmoid(), nn.Linear(120, 84), nn.Sigmoid(), nn.Linear(84, 10),
        ),
        loss_fn=nn.functional.cross_entropy,
        make_optimizer=partial(torch.optim.Adam, lr=1e-3),
        train=workloads.Batches((images, labels), 64),
        size=156,
        unit="us/step",
    )


def share(w, rank, size):
    """The batches of one process, cut beforehand: samples rank, rank + size, …"""
    import torch
    import workloads

    batch_size = len(next(iter(w.train))[0])
    tensors = (torch.cat(parts)[rank::size].contiguous() for parts in zip(*w.train))
    return workloads.Batches(tuple(tensors), batch_size)


def train(w, clock, peer):
    """`ddp`: PyTorch's defaults. `ddp_best`: as eager_best of the peers, with gradients that are views of buckets."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    is_best = peer != "ddp"
    torch.set_flush_denormal(is_best)
    alone = torch.compile(w.model) if peer == "ddp_compile" else w.model
    size = dist.get_world_size()
    model = DistributedDataParallel(alone, gradient_as_bucket_view=is_best) if size > 1 else alone
    optimizer = w.make_optimizer(w.model.parameters(), **({"fused": True} if is_best else {}))
    parameters = list(w.model.parameters())
    for _ in range(clock.rounds):
        clock.tick()
        losses = []
        for x, y in w.train:
            optimizer.zero_grad()
            loss = w.loss_fn(model(x), y)
            loss.backward()
            if w.clip:
                torch.nn.utils.clip_grad_norm_(parameters, w.clip, foreach=True if is_best else None)
            optimizer.step()
            losses.append(loss.detach() if is_best else loss.item())
        mean = torch.stack(losses).mean() if is_best else torch.tensor(losses).mean()
        dist.all_reduce(mean)
        mean_loss = mean.item() / size
    clock.tick()
    return mean_loss


def run_rank(args):
    import torch.distributed as dist
    import workloads
    from harness import MICRO, Clock, report

    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    w = lenet() if args.case == "lenet" else workloads.TRAINING[args.case](gather=False)
    w.train = share(w, rank, size)
    clock = Clock(warmup=1, repeats=args.repeats, gate=args.gate)
    final_loss = train(w, clock, args.peer)
    if rank == 0:
        for metric, seconds in clock.samples().items():
            values = [t * MICRO / len(w.train) for t in seconds]
            report(args, metric, w.unit, values, final_loss=final_loss)
    dist.destroy_process_group()


# --- The driver


def free_port():
    with socket.socket() as at:
        at.bind(("127.0.0.1", 0))
        return at.getsockname()[1]


class Ranks:
    """The processes of one peer. The first one keeps to the gate; the others wait for it in its steps."""

    def __init__(self, command, args, case, num_processes):
        from bench_peers import Peer

        port = free_port()

        def variables(rank):
            return [f"RANK={rank}", f"WORLD_SIZE={num_processes}", f"LOCAL_RANK={rank}", "MASTER_ADDR=127.0.0.1",
                    f"MASTER_PORT={port}", "GLOO_SOCKET_IFNAME=lo", "OMP_NUM_THREADS=1", "MKL_NUM_THREADS=1"]

        options = ["--case", case, "--threads", "1", "--repeats", str(args.repeats), "--precision", "fp32"]
        self.others = [
            subprocess.Popen(["env", *variables(rank), *command, *options], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            for rank in range(1, num_processes)
        ]
        self.first = Peer(["env", *variables(0), *command], args, case)
        self.num_processes = num_processes

    def lines(self):
        if any(process.wait() != 0 for process in self.others):
            sys.exit("a process has failed")
        return [line | {"processes": self.num_processes} for line in self.first.lines]


def measure(case, args):
    here = [sys.executable, str(Path(__file__).resolve()), "--peer"]
    commands = [[str(args.bench), "--peer", peer] for peer in KINDLING_PEERS]
    commands += [[*here, peer] for peer in PYTHON_PEERS]
    all_ranks = [Ranks(command, args, case, n) for n in (1, args.processes) for command in commands]
    while any(ranks.first.running for ranks in all_ranks):
        for ranks in all_ranks:
            if ranks.first.running:
                ranks.first.repeat()
    return list(itertools.chain.from_iterable(ranks.lines() for ranks in all_ranks))


def tell(case, lines, args):
    """The table, and whether the peers have trained the same."""
    of = {(line["peer"], line["processes"], line["metric"]): line for line in lines}
    print(f"{case:<16}{'1 process':>26}{f'{args.processes} processes':>26}   us/step on the clock; CPU of process 0; loss")
    for peer in KINDLING_PEERS + PYTHON_PEERS:
        text = f"  {peer:<14}"
        for n in (1, args.processes):
            wall, cpu = of[peer, n, "wall"], of[peer, n, "cpu"]
            text += f"{wall['median']:>9.0f} ({wall['min']:.0f} … {wall['max']:.0f}); {cpu['median']:.0f}; {cpu['final_loss']:.5g}"
        print(text)
    agree = True
    for n in (1, args.processes):
        losses = [line["final_loss"] for line in lines if line["processes"] == n]
        agree = agree and max(losses) <= min(losses) * (1 + LOSS_TOLERANCE)
    print(f"  final losses {'agree' if agree else 'DIFFER'}")
    return agree


def drive(args):
    missing = [name for name in ("torch", "numpy") if not importlib.util.find_spec(name)]
    if missing:
        sys.exit(f"{sys.executable} lacks {', '.join(missing)}: pip install them, or take another Python")
    if not os.access(args.bench, os.X_OK):
        sys.exit(f"there is no {args.bench}: build it, or name it with --bench")
    agree = True
    for case in args.case.split(","):
        print(f"load average {os.getloadavg()[0]:.1f}", file=sys.stderr)
        lines = measure(case, args)
        for line in lines:
            print(json.dumps(line), flush=True)
        if args.json:
            with args.json.open("a") as file:
                file.writelines(json.dumps(line) + "\n" for line in lines)
        agree = tell(case, lines, args) and agree
    sys.exit(0 if agree else 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", type=Path, default=ROOT / "build/release/bin/kindling_bench")
    parser.add_argument("--case", default=",".join(CASES))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--json", type=Path, help="append the lines to this file")
    parser.add_argument("--threads", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--precision", default="fp32", help=argparse.SUPPRESS)
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    parser.add_argument("--gate", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    sys.path.insert(0, str(PEERS_FOLDER))
    sys.dont_write_bytecode = True
    run_rank(args) if args.peer else drive(args)


if __name__ == "__main__":
    main()
