"""Trains a classifier of a table from a config of Kindling, and with scikit-learn and PyTorch, and compares the accuracy.

    python benchmarks/table_training.py [--program build/release/bin/kindling] [--json FILE]

Needs PyTorch, NumPy and scikit-learn; with onnxruntime it also compares exported programs. The table is that of
tests/cli/commands/table_twin.py: 6,000 rows with four columns of numbers and two of quoted categories with commas, 10 % of the values
missing. Both programs train an MLP with Adam on each of five folds, with early stopping on the validation loss, and predict the rows of
the fold with the weights of the best epoch. Kindling chooses the folds, stratified by class; the other program gets the same ones, and
prepares the table with SimpleImputer (median), StandardScaler and OneHotEncoder, fitted on the training rows. The initial weights have
the same distribution, but other random numbers, as has the order of the rows. Prints the accuracy and the processor time of each fold,
one thread each.
"""

import argparse
import csv
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from facts import append_result, machine_facts

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests/cli/commands")]


def rows_of(table):
    with open(table, newline="") as file:
        return list(csv.DictReader(file))


def train_in_pytorch(folder, fold):
    """The other program: prints the accuracy on the rows of FOLDER/foldFOLD.csv, the predictions of Kindling."""
    import numpy
    import torch
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler
    from table_twin import CATEGORIES, CLASSES, NUMBERS

    torch.set_num_threads(1)
    torch.manual_seed(fold)
    rows = rows_of(folder / "table.csv")
    held_out = {row["customer"] for row in rows_of(folder / f"fold{fold}.csv")}
    is_val = numpy.array([row["customer"] in held_out for row in rows])
    columns = numpy.array([[float(row[name] or "nan") for name in NUMBERS] + [row[name] for name in CATEGORIES] for row in rows], object)
    width = len(NUMBERS)
    prepare = ColumnTransformer(
        [("numbers", make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), list(range(width))),
         ("categories", OneHotEncoder(handle_unknown="ignore", sparse_output=False), list(range(width, width + len(CATEGORIES))))])
    prepare.fit(columns[~is_val])
    x = torch.tensor(prepare.transform(columns).astype(numpy.float32))
    y = torch.tensor([CLASSES.index(row["outcome"]) for row in rows])
    train, val = torch.tensor(numpy.flatnonzero(~is_val)), torch.tensor(numpy.flatnonzero(is_val))
    nn = torch.nn
    model = nn.Sequential(nn.Linear(x.shape[1], 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, len(CLASSES)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    best, accuracy, waited = float("inf"), 0.0, 0
    for _ in range(60):
        for chosen in train[torch.randperm(len(train))].split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[chosen]), y[chosen]).backward()
            optimizer.step()
        with torch.no_grad():
            outputs = model(x[val])
            loss = nn.functional.cross_entropy(outputs, y[val]).item()
        if loss < best:
            best, accuracy, waited = loss, (outputs.argmax(1) == y[val]).float().mean().item(), 0
        elif (waited := waited + 1) >= 8:
            break
    print(accuracy)


def exported_differences(program, folder):
    """Predicts other rows with a run and with its exported programs; returns the largest differences of the outputs."""
    from table_programs import differences, raw_rows
    from table_twin import write_table

    write_table(folder / "new.csv", seed=6, num_rows=1000)
    run = folder / "fold0" / "0001"
    for command in (["export", f"{run}:last", "fold0.pt2"], ["export", f"{run}:last", "fold0.onnx"],
                    ["predict", f"{run}:last", "new.csv", "--out", "new.jsonl"]):
        subprocess.run([program, *command], cwd=folder, check=True, capture_output=True)
    return differences(folder / "fold0.pt2", folder / "fold0.onnx", raw_rows(run, folder / "new.csv"), folder / "new.jsonl")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=ROOT / "build/release/bin/kindling", type=Path)
    parser.add_argument("--json", type=Path, help="append the results to this file")
    parser.add_argument("--train", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--fold", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        return train_in_pytorch(options.train, options.fold)
    import sklearn
    import torch
    from image_training import seconds_of
    from table_twin import CONFIG, write_table

    facts = machine_facts()
    program = str(options.program.resolve())
    results = {"kindling": [], "sklearn_pytorch": []}
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        write_table(folder / "table.csv")
        (folder / "twin.toml").write_text(CONFIG)
        truth = {row["customer"]: row["outcome"] for row in rows_of(folder / "table.csv")}
        seen = []
        for fold in range(5):
            _, used = seconds_of([program, "fit", "twin.toml", f"data.fold={fold}", "run.dir=.", f"name=fold{fold}", "--quiet"], folder)
            seconds_of([program, "predict", f"fold{fold}", "--values", "labels", "--out", f"fold{fold}.csv"], folder)
            predicted = {row["customer"]: row["class"] for row in rows_of(folder / f"fold{fold}.csv")}
            seen += predicted
            right = sum(truth[customer] == name for customer, name in predicted.items())
            results["kindling"].append({"accuracy": right / len(predicted)} | used)
            output, used = seconds_of([sys.executable, __file__, "--train", str(folder), "--fold", str(fold)], folder)
            results["sklearn_pytorch"].append({"accuracy": float(output)} | used)
            for name, runs in results.items():
                print(f"fold {fold}: {name:15} accuracy {runs[-1]['accuracy']:.4f}   cpu {runs[-1]['cpu_s']:5.1f} s   wall {runs[-1]['wall_s']:5.1f} s", flush=True)
        if sorted(seen) != sorted(truth):
            sys.exit("the folds do not contain each row once")
        try:
            exported = exported_differences(program, folder)
        except ImportError as error:
            exported = None
            print(f"exported programs are not compared: {error}")
    means = {name: statistics.mean(run["accuracy"] for run in runs) for name, runs in results.items()}
    print("mean accuracy: " + ", ".join(f"{name} {mean:.4f}" for name, mean in means.items()))
    if exported:
        print("largest difference of exported programs: " + ", ".join(f"{name} {difference:.2g}" for name, difference in exported.items()))
    case = {"case": "table_training", "torch": torch.__version__, "sklearn": sklearn.__version__}
    append_result(options.json, case | facts | {"mean_accuracy": means, "exported_differences": exported} | results)


if __name__ == "__main__":
    sys.exit(main())
