#!/usr/bin/env python3
"""Prints results of benchmarks/compare.sh as the tables of docs/explain/performance.md.

    scripts/performance_table.py RESULTS.jsonl...

Each file is one table in Markdown. Its first number is the median CPU time of Kindling with the smallest and the largest
repeat; the other columns say how many times as long each peer took. A file that was measured with --mkl-for-all has only
the peer kindling_mkl of Kindling, which then takes the place of kindling. If a file has several lines for one
measurement, the last one counts.
"""

import json
import sys
from pathlib import Path

KINDLING = ("kindling", "kindling_mkl")
PEERS = {
    "lightning": "Lightning", "accelerate": "Accelerate", "eager": "PyTorch", "eager_best": "PyTorch, tuned",
    "bare": "LibTorch",
}
# (label, case, variant, precision, peer of Kindling or None for the first of KINDLING, factor of the unit)
ROWS = [
    ("`step_tiny`, µs per step", "step_tiny", "", "fp32", None, 1),
    ("`step_deep`, µs per step", "step_deep", "", "fp32", None, 1),
    ("`fmnist_epoch`, ms", "fmnist_epoch", "", "fp32", None, 1000),
    ("the same with `kindling_mkl`", "fmnist_epoch", "", "fp32", "kindling_mkl", 1000),
    ("`cnn_mnist`, µs per image", "cnn_mnist", "", "fp32", None, 1),
    ("`cnn_mnist`, bf16, µs per image", "cnn_mnist", "", "bf16", None, 1),
    ("`data_feed`, µs per sample", "data_feed", "", "fp32", None, 1),
    ("`data_feed`, from bytes", "data_feed", "", "fp32", "kindling_uint8", 1),
    ("Adam, `small32`, µs", "optim_only", "adam/small32", "fp32", None, 1),
    ("Adam, `mid300`, µs", "optim_only", "adam/mid300", "fp32", None, 1),
    ("Adam, `large4`, µs", "optim_only", "adam/large4", "fp32", None, 1),
    ("`cold_start`, ms", "cold_start", "", "fp32", None, 1000),
]


def time(value):
    """Three digits: 0.201, 21.0, 193, 1,738."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def ratio(value):
    return f"{value:.0f}" if value >= 20 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def row(label, peers, ours, factor):
    values = [time(ours[key] * factor) for key in ("median", "min", "max")]
    ratios = [ratio(peers[peer]["median"] / ours["median"]) if peer in peers else "" for peer in PEERS]
    return [label, f"{values[0]} ({values[1]} … {values[2]})", *ratios]


def rows(lines):
    """Returns the cells of all rows that were measured."""
    cases = {}
    for line in lines:
        if line["metric"] == "cpu":
            cases.setdefault((line["case"], line["variant"], line["precision"]), {})[line["peer"]] = line
    for label, case, variant, precision, peer, factor in ROWS:
        peers = cases.get((case, variant, precision), {})
        default = next((name for name in KINDLING if name in peers), None)
        if peer == default is not None:
            continue  # the row before shows this peer
        if (chosen := peer or default) in peers:
            yield row(label, peers, peers[chosen], factor)


def table(lines):
    header = ["case", "Kindling", *PEERS.values()]
    title, *body = (f"| {' | '.join(cells)} |" for cells in (header, *rows(lines)))
    return "\n".join([title, "|" + "---|" * len(header), *body])


def main(files):
    if not files:
        sys.exit(__doc__)
    for file in files:
        lines = [json.loads(line) for line in Path(file).read_text().splitlines() if line.startswith("{")]
        print(f"{table(lines)}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
