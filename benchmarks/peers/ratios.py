"""Prints how much faster the peers of B are than those of A, case by case.

ratios.py a.jsonl b.jsonl           every peer of A against every peer of B
ratios.py --same a.jsonl b.jsonl    every peer of A against itself in B (two runs)

A ratio above 1 means that B is faster: less time or more images per second. If a file has several lines for one
measurement, the last one counts.
"""

import argparse
import json


def read(path):
    """Returns {measurement: {peer: line}}."""
    with open(path) as f:
        lines = [json.loads(line) for line in f if line.startswith("{")]
    table = {}
    for line in lines:
        keys = ("case", "variant", "threads", "precision", "metric", "unit")
        table.setdefault(tuple(line[key] for key in keys), {})[line["peer"]] = line
    return table


def spread(line):
    return f"{line['median']:.4g} ({line['min']:.4g}..{line['max']:.4g})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("a")
    parser.add_argument("b")
    parser.add_argument("--same", action="store_true", help="compare peers of the same name only")
    parser.add_argument("--metric", help="only this metric: cpu, wall or compile")
    args = parser.parse_args()
    a, b = read(args.a), read(args.b)

    spread_title = "median (min..max)"
    rows = [("case", "thr", "prec", "metric", "A", spread_title, "B", spread_title, "unit", "B faster by")]
    for key in sorted(a.keys() & b.keys()):
        case, variant, threads, precision, metric, unit = key
        if args.metric and metric != args.metric:
            continue
        for peer_a, line_a in a[key].items():
            for peer_b, line_b in b[key].items():
                if args.same and peer_a != peer_b:
                    continue
                ratio = line_a["median"] / line_b["median"]
                if unit == "img/s":
                    ratio = 1 / ratio
                measured = f"{case} {variant}".strip(), str(threads), precision, metric
                pair = peer_a, spread(line_a), peer_b, spread(line_b)
                rows.append((*measured, *pair, unit, f"{ratio:.2f}x"))
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


if __name__ == "__main__":
    main()
