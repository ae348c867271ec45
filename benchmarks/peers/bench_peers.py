"""Measures the peers of each case, interleaved repeat by repeat.

Every case and peer runs in a fresh process. The repeats of all peers of a case take turns, so that a change of the
machine's load affects all of them. Prints one JSON line per metric (README.md describes the format) and checks that the
peers of a case end with the same training loss.
"""

import argparse
import itertools
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

TRAINING_PEERS = ("lightning", "accelerate", "ignite", "eager", "eager_best", "compile")
STEP_PEERS = ("lightning", "lightning_plain", *TRAINING_PEERS[1:])
CASES = {  # the peers of each case
    "step_tiny": STEP_PEERS,
    "step_deep": STEP_PEERS,
    "fmnist_epoch": TRAINING_PEERS,
    "cnn_mnist": TRAINING_PEERS,
    "data_feed": ("eager", "eager_best"),
    "optim_only": ("eager", "eager_best"),
    "cold_start": ("eager", "lightning", "accelerate"),
}
LOSS_TOLERANCE = 0.01  # relative to the first peer that reports a loss
CNN_LOSS_TOLERANCE = 0.05  # torch.compile draws different dropout masks


class Peer:
    """A running process. It prints "ready" before every repeat and waits for the line "go"."""

    def __init__(self, command, args, case):
        options = f"--case {case} --threads {args.threads} --repeats {args.repeats} --gate"
        threads = {name: str(args.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
        no_caches = {  # because the time of compilation is reported too
            "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
            "PYTHONWARNINGS": "ignore:dynamo_pgo force disabled",
        }
        self.lines = []
        self.process = subprocess.Popen(
            [*command, *options.split(), "--precision", args.precision],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | threads | no_caches,
        )
        self.running = True
        self._wait_until_ready()

    def repeat(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        self._wait_until_ready()

    def _wait_until_ready(self):
        for line in self.process.stdout:
            if line == "ready\n":
                return
            if line.startswith("{"):
                self.lines.append(json.loads(line))
        self.running = False
        if self.process.wait() != 0:
            sys.exit(f"failed: {shlex.join(self.process.args)}")


def run_case(case, args):
    here = [sys.executable, str(Path(__file__).with_name("run_peer.py"))]
    commands = [[*here, "--peer", peer] for peer in args.peer if peer in CASES[case]]
    commands += [shlex.split(command) for command in args.exec]
    peers = [Peer(command, args, case) for command in commands]
    while any(peer.running for peer in peers):
        for peer in peers:
            if peer.running:
                peer.repeat()
    return list(itertools.chain.from_iterable(peer.lines for peer in peers))


def losses_agree(lines, tolerance):
    losses = {line["peer"]: line["final_loss"] for line in lines if line["final_loss"] is not None}
    if not losses:
        return True
    reference = next(iter(losses.values()))
    deviations = {peer: loss / reference - 1 for peer, loss in losses.items()}
    text = ", ".join(f"{peer} {losses[peer]:.6g} ({d:+.3%})" for peer, d in deviations.items())
    agree = all(abs(d) <= tolerance for d in deviations.values())
    print(f"final losses {'agree' if agree else 'DIFFER'}: {text}", file=sys.stderr)
    return agree


def main():
    def names(allowed):
        def parse(text):
            chosen = text.split(",")
            if unknown := set(chosen) - set(allowed):
                raise argparse.ArgumentTypeError(f"unknown: {', '.join(sorted(unknown))}")
            return chosen

        return parse

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", type=names(CASES), default=list(CASES))
    parser.add_argument("--peer", type=names([*STEP_PEERS, "none"]), default=list(STEP_PEERS))
    parser.add_argument(
        "--exec",
        action="append",
        default=[],
        metavar="COMMAND",
        help="also measure this program, which accepts the options of run_peer.py; repeatable",
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32", help="bf16: cnn_mnist only")
    parser.add_argument("--json", type=Path, help="append the lines to this file")
    args = parser.parse_args()
    if args.precision == "bf16" and args.case != ["cnn_mnist"]:
        parser.error("--precision bf16 needs --case cnn_mnist")

    if (load := os.getloadavg()[0]) > 0.5:
        text = "a busy machine distorts wall-clock times and all times with several threads"
        print(f"warning: the load average is {load:.1f}; {text}", file=sys.stderr)
    agree = True
    for case in args.case:
        lines = run_case(case, args)
        for line in lines:
            print(json.dumps(line), flush=True)
        if args.json:
            with args.json.open("a") as f:
                f.writelines(json.dumps(line) + "\n" for line in lines)
        tolerance = CNN_LOSS_TOLERANCE if case == "cnn_mnist" else LOSS_TOLERANCE
        agree = losses_agree(lines, tolerance) and agree
    sys.exit(0 if agree else 1)


if __name__ == "__main__":
    main()
