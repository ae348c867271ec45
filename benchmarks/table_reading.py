"""Reads a table into numbers and codes of categories, with Kindling and with pandas, in turns.

    python benchmarks/table_reading.py [--bench build/release/bin/kindling_bench] [--rows 200000] [--repeats 7] [--json FILE]

Needs NumPy and pandas. The table has eight columns of numbers and two of categories with commas, 10 % of the values missing, as CSV and
as JSON lines. Both programs read it, make a float32 array of the numbers and integer codes of each category, and use one thread. Prints
the processor time per row and the ratio of the medians. The exit status is 1 if CSV is not read 2.5 times as fast as by pandas 3.
"""

import argparse
import csv
import json
import statistics
import sys
import tempfile
from pathlib import Path

from facts import append_result, machine_facts

ROOT = Path(__file__).resolve().parent.parent
TARGETS = {"table.csv": 2.5, "table.jsonl": None}
NAMES = [f"x{i}" for i in range(8)] + ["city", "plan"]


def write_tables(folder, num_rows):
    import numpy

    random = numpy.random.default_rng(0)
    numbers = random.normal(0, 10, (num_rows, 8)).round(4).tolist()
    cities = random.choice(["Bern, old town", "Bern, new town", "Chur", "Basel", "Zug"], num_rows).tolist()
    plans = random.choice(["basic", "plus, yearly", "plus, monthly"], num_rows).tolist()
    missing = (random.random((num_rows, 10)) < 0.1).tolist()
    with open(folder / "table.csv", "w", newline="") as table, open(folder / "table.jsonl", "w") as lines:
        out = csv.writer(table)
        out.writerow(NAMES)
        for row, city, plan, is_missing in zip(numbers, cities, plans, missing):
            values = [None if skipped else value for value, skipped in zip([*row, city, plan], is_missing)]
            out.writerow(["" if value is None else value for value in values])
            lines.write(json.dumps(dict(zip(NAMES, values))) + "\n")


def read_with_pandas(file, repeats):
    """The program of pandas, with the protocol of kindling_bench."""
    import pandas

    for repeat in range(1 + repeats):
        if repeat > 0:
            print("ready", flush=True)
            sys.stdin.readline()
        frame = pandas.read_csv(file) if file.endswith(".csv") else pandas.read_json(file, orient="records", lines=True)
        numbers = frame.select_dtypes("number").to_numpy("float32")
        codes = [frame[name].astype("category").cat.codes.to_numpy() for name in frame.columns if frame[name].dtype.kind not in "fi"]
        assert numbers.shape[1] == 8 and len(codes) == 2
    print("{}", flush=True)


def compare(options, folder, name):
    from images import Program

    programs = {"kindling": Program([str(options.bench), "--case", "table_feed", "--gate", "--folder", str(folder), "--variant", name, "--repeats", str(options.repeats)]),
                "pandas": Program([sys.executable, __file__, "--read", str(folder / name), "--repeats", str(options.repeats)])}
    for program in programs.values():
        program.wait_until_ready()
    for repeat in range(options.repeats):
        order = list(programs.values())
        for program in order if repeat % 2 == 0 else reversed(order):
            program.epoch(is_last=repeat == options.repeats - 1)
    for program in programs.values():
        program.process.stdin.close()
        program.process.wait()
    result = {"case": "table_feed", "file": name, "rows": options.rows, "repeats": options.repeats}
    for peer, program in programs.items():
        result[f"{peer}_cpu_us_per_row"] = round(1e6 * statistics.median(program.cpu) / options.rows, 3)
        result[f"{peer}_wall_us_per_row"] = round(1e6 * statistics.median(program.wall) / options.rows, 3)
    result["ratio"] = round(result["pandas_cpu_us_per_row"] / result["kindling_cpu_us_per_row"], 2)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench", default=ROOT / "build/release/bin/kindling_bench", type=Path)
    parser.add_argument("--rows", default=200_000, type=int)
    parser.add_argument("--repeats", default=7, type=int)
    parser.add_argument("--json", type=Path, help="append the results to this file")
    parser.add_argument("--read", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        return read_with_pandas(options.read, options.repeats)
    import pandas

    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        write_tables(Path(folder), options.rows)
        for name, target in TARGETS.items():
            facts = machine_facts() | {"pandas": pandas.__version__}
            result = compare(options, Path(folder), name) | facts
            missed += target is not None and result["ratio"] < target
            print(f"{name:12} kindling {result['kindling_cpu_us_per_row']:.2f} us/row   pandas {result['pandas_cpu_us_per_row']:.2f} us/row   ratio {result['ratio']:.2f}"
                  + (f"  (target {target})" if target else ""), flush=True)
            append_result(options.json, result)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
