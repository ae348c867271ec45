"""The cost model of docs/dev/scaling_model.md: its inputs, measured, and what it predicts.

    python benchmarks/scaling_model.py measure [--processes 2] [--repeats 7]     sums over Gloo on this machine's loopback
    python benchmarks/scaling_model.py compare FILE --alpha_us A --gb_per_s B    beside the lines that scaling.py has left
    python benchmarks/scaling_model.py predict --alpha_us A --gb_per_s B --compute_ms C --mb M [--processes 2,8,64]

`measure` needs a Python with torch, and a number of processes that is a power of two. It adds up as Kindling does, by recursive
doubling up to 512 KiB and by Gloo's ring beyond, and prints medians and what the model makes of the alpha and the bandwidth that
fit them best.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time

SIZES = [4 << shift for shift in range(0, 25, 2)]  # bytes: 4 B … 64 MiB
FIRST_BUCKET, BUCKET = 1 << 20, 25 << 20  # as src/training/parallel/gradient_plan.cpp has them
SMALL = 1 << 19  # as src/distributed/c10d_group.cpp has it
BACKWARD = 2 / 3  # of a step's time: assumed
PARAMETERS = {"step_tiny": 5_569, "step_deep": 66_560, "lenet": 61_706}


# --- Inputs


def add_up(tensor, theirs):
    import torch.distributed as dist

    if tensor.nbytes > SMALL:
        return dist.all_reduce(tensor)
    distance = 1
    while distance < dist.get_world_size():
        other = dist.get_rank() ^ distance
        works = [dist.irecv(theirs, other), dist.isend(tensor, other)]
        for work in works:
            work.wait()
        tensor.add_(theirs)
        distance *= 2


def run_rank(args):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for size in SIZES:
        tensor, theirs = torch.zeros(size // 4), torch.zeros(size // 4)
        rounds = max(3, min(500, (32 << 20) // max(size, 1 << 16)))
        samples = []
        for repeat in range(args.repeats + 1):
            dist.barrier()
            start = time.perf_counter()
            for _ in range(rounds):
                add_up(tensor, theirs)
            samples.append((time.perf_counter() - start) / rounds)
        if dist.get_rank() == 0:
            print(json.dumps({"bytes": size, "us": statistics.median(samples[1:]) * 1e6, "min_us": min(samples[1:]) * 1e6,
                              "max_us": max(samples[1:]) * 1e6}), flush=True)
    dist.destroy_process_group()


def fit(lines, processes):
    """alpha in us and bandwidth in GB/s: least squares of relative errors, in which small and large messages weigh alike."""
    rows = [tuple(part / line["us"] for part in messages_and_bytes(line["bytes"], processes)) for line in lines]
    aa, ab, bb = (sum(x[i] * x[j] for x in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    a, b = (sum(x[i] for x in rows) for i in (0, 1))
    determinant = aa * bb - ab * ab
    alpha, us_per_byte = (a * bb - b * ab) / determinant, (b * aa - a * ab) / determinant
    return alpha, 1e-3 / us_per_byte


def measure(args):
    with socket.socket() as at:
        at.bind(("127.0.0.1", 0))
        port = at.getsockname()[1]
    ranks = []
    for rank in range(args.processes):
        variables = {"RANK": str(rank), "WORLD_SIZE": str(args.processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                     "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, __file__, "rank", "--repeats", str(args.repeats)]
        ranks.append(subprocess.Popen(command, env=os.environ | variables, stdout=subprocess.PIPE if rank == 0 else None, text=True))
    lines = [json.loads(line) for line in ranks[0].communicate()[0].splitlines()]
    if any(rank.wait() != 0 for rank in ranks):
        sys.exit("a process has failed")
    alpha, bandwidth = fit(lines, args.processes)
    print(f"load average {os.getloadavg()[0]:.1f}; alpha {alpha:.0f} us, bandwidth {bandwidth:.2f} GB/s")
    for line in lines:
        says = all_reduce_us(line["bytes"], args.processes, alpha, bandwidth)
        print(f"{line['bytes']:>12} B {line['us']:>10.0f} us ({line['min_us']:.0f} … {line['max_us']:.0f})   model {says:>10.0f} us")


# --- The model


def messages_and_bytes(size, processes):
    """That follow each other in a sum: by recursive doubling, or around a ring."""
    if size <= SMALL:
        doublings = processes.bit_length() - 1
        messages = doublings + (2 if processes > 1 << doublings else 0)
        return messages, messages * size
    return 2 * (processes - 1), 2 * (processes - 1) * size / processes


def all_reduce_us(size, processes, alpha_us, gb_per_s):
    messages, size_of_all = messages_and_bytes(size, processes)
    return messages * alpha_us + size_of_all / gb_per_s * 1e-3


def buckets(size):
    """Of parameters that are small beside a bucket, in the order in which they travel."""
    found = []
    while size > 0:
        found.append(min(size, FIRST_BUCKET if not found else BUCKET))
        size -= found[-1]
    return found


def step_us(compute_us, size, processes, alpha_us, gb_per_s):
    """What the last bucket takes is never hidden: it waits for what rides along. The others have the time of backward."""
    if processes == 1:
        return compute_us
    times = [all_reduce_us(bucket, processes, alpha_us, gb_per_s) for bucket in buckets(size)]
    return compute_us + times[-1] + max(0, sum(times[:-1]) - BACKWARD * compute_us)


def compare(args):
    with open(args.file) as file:
        lines = [json.loads(line) for line in file]
    wall = {(line["case"], line["processes"]): line["median"] for line in lines if line["peer"] == args.peer and line["metric"] == "wall"}
    for case, processes in wall:
        if processes == 1:
            continue
        says = step_us(wall[case, 1], PARAMETERS[case] * 4, processes, args.alpha_us, args.gb_per_s)
        found = wall[case, processes]
        print(f"{case:<10} 1 process {wall[case, 1]:>7.0f} us   {processes} processes: model {says:>7.0f}, measured {found:>7.0f} us   "
              f"model/measured {says / found:.2f}")


def predict(args):
    for processes in map(int, args.processes.split(",")):
        step = step_us(args.compute_ms * 1e3, args.mb * 1e6, processes, args.alpha_us, args.gb_per_s)
        print(f"{processes:>5} processes: {step / 1e3:>8.2f} ms a step, efficiency {args.compute_ms * 1e3 / step:.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("measure", "rank"):
        command = commands.add_parser(name)
        command.add_argument("--processes", type=int, default=2)
        command.add_argument("--repeats", type=int, default=7)
    for name in ("compare", "predict"):
        command = commands.add_parser(name)
        command.add_argument("--alpha_us", type=float, required=True)
        command.add_argument("--gb_per_s", type=float, required=True)
        if name == "compare":
            command.add_argument("file")
            command.add_argument("--peer", default="kindling")
        else:
            command.add_argument("--compute_ms", type=float, required=True)
            command.add_argument("--mb", type=float, required=True)
            command.add_argument("--processes", default="2,8,64")
    args = parser.parse_args()
    {"measure": measure, "rank": run_rank, "compare": compare, "predict": predict}[args.command](args)


if __name__ == "__main__":
    main()
