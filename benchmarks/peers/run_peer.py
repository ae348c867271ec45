"""Runs one case of one Python peer in this process and prints its JSON lines.

bench_peers.py starts it once per case and peer. It can also measure any other program that accepts the same options,
prints the same lines and follows the ready/go protocol of harness.Clock.
"""

import argparse
import subprocess
import sys
import time
from functools import partial

import torch

import training_loops
import workloads
from harness import MICRO, Clock, report


def train(args):
    w = workloads.TRAINING[args.case](gather=args.peer in training_loops.GATHER)
    clock = Clock(warmup=1, repeats=args.repeats, gate=args.gate)
    final_loss = training_loops.TRAINING[args.peer](w, clock, args.precision)
    for metric, seconds in clock.samples().items():
        if w.unit == "us/step":
            unit, values = w.unit, [t * MICRO / w.size for t in seconds]
        elif w.unit == "img/s" and metric == "wall":
            unit, values = w.unit, [w.size / t for t in seconds]
        elif w.unit == "img/s":
            unit, values = "us/img", [t * MICRO / w.size for t in seconds]
        else:
            unit, values = w.unit, seconds
        report(args, metric, unit, values, final_loss=final_loss)
    if args.peer == "compile":
        report(args, "compile", "s", [clock.first_round_extra])


def data_feed(args):
    """One shuffled epoch over 60,000 x 784 floats. The batches are only counted."""
    images, labels = workloads.mnist()
    tensors = images.view(-1, 784).repeat(6, 1), labels.repeat(6)
    samples = len(tensors[0])
    gather = args.peer in training_loops.GATHER
    for workers in (0,) if gather else (0, 2):
        loader = workloads.make_loader(tensors, 256, shuffle=True, gather=gather, workers=workers)
        clock = Clock(warmup=1, repeats=args.repeats, gate=args.gate)
        for _ in range(clock.rounds):
            clock.tick()
            assert sum(len(x) for x, _ in loader) == samples
        clock.tick()
        for metric, seconds in clock.samples().items():
            values = [t * MICRO / samples for t in seconds]
            report(args, metric, "us/sample", values, peer=args.peer + ("_w2" if workers else ""))


def optim_only(args):
    """optimizer.step() on fixed gradients. eager: the for-loop; eager_best: foreach and fused."""
    optimizers = {
        "adam": partial(torch.optim.Adam, lr=1e-3),
        "adamw": partial(torch.optim.AdamW, lr=1e-3),
        "sgd": partial(torch.optim.SGD, lr=1e-2, momentum=0.9),
    }
    steps = {"small32": 300, "mid300": 30, "large4": 10}
    kinds = {"eager": {}}
    if args.peer == "eager_best":
        kinds = {"eager_foreach": {"foreach": True}, "eager_best": {"fused": True}}
    for shapes_name, shapes in workloads.optim_shapes().items():
        for optimizer_name, make in optimizers.items():
            for peer, options in kinds.items():
                torch.manual_seed(workloads.MODEL_SEED)
                parameters = [torch.nn.Parameter(torch.randn(s)) for s in shapes]
                for p in parameters:
                    p.grad = torch.randn_like(p)
                optimizer = make(parameters, **options)
                clock = Clock(warmup=1, repeats=args.repeats, gate=args.gate)
                for _ in range(clock.rounds):
                    clock.tick()
                    for _ in range(steps[shapes_name]):
                        optimizer.step()
                clock.tick()
                for metric, seconds in clock.samples().items():
                    values = [t * MICRO / steps[shapes_name] for t in seconds]
                    variant = f"{optimizer_name}/{shapes_name}"
                    report(args, metric, "us/step", values, peer=peer, variant=variant)


class FirstStepClock(Clock):
    """Prints the CPU time of the process at the end of the first step."""

    def tick(self):
        super().tick()
        if self.wall:
            print(time.process_time(), flush=True)


def first_step(args):
    w = workloads.step_tiny(gather=False)
    w.train.batches = w.train.batches[:1]
    training_loops.TRAINING[args.peer](w, FirstStepClock(warmup=0, repeats=1, gate=False), args.precision)


def cold_start(args):
    """Fresh processes, each timed from its start to the end of its first step of step_tiny."""
    command = [sys.executable, *sys.argv, "--first-step"]
    clock = Clock(warmup=1, repeats=args.repeats, gate=args.gate)
    wall, cpu = [], []
    for _ in range(clock.rounds):
        clock.tick()
        start = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            cpu.append(float(process.stdout.readline()))
            wall.append(time.perf_counter() - start)
    clock.tick()
    report(args, "cpu", "s", cpu[clock.warmup :])
    report(args, "wall", "s", wall[clock.warmup :])


MICRO_CASES = {"data_feed": data_feed, "optim_only": optim_only, "cold_start": cold_start}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", required=True, choices=[*workloads.TRAINING, *MICRO_CASES])
    parser.add_argument("--peer", required=True, choices=training_loops.TRAINING)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--gate", action="store_true", help="wait for 'go' before every repeat")
    parser.add_argument("--first-step", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.first_step:
        first_step(args)
    else:
        MICRO_CASES.get(args.case, train)(args)


if __name__ == "__main__":
    main()
