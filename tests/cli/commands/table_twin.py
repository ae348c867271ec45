"""table_twin.py KINDLING FOLDER [FOLDS]: trains a classifier of a table of 6,000 rows with 10 % missing values on the first FOLDS of 5
folds, with kindling from a config alone and with a twin in PyTorch that prepares the table by hand (median, scaling, one-hot). Prints the
validation accuracies of the best epochs. Exit code 1: their means differ by more than 0.02."""
import csv
import pathlib
import subprocess
import sys

# Where scripts/test.sh installs numpy.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[3] / ".deps" / "onnx"))

import numpy
import torch

torch.set_num_threads(1)
NUMBERS = ["income", "age", "debt", "visits"]
CATEGORIES = ["city", "plan"]
CITIES = ["Bern, old town", "Bern, new town", "Chur", 'Basel "North"', "Zug"]
PLANS = ["basic", "plus, yearly", "plus, monthly"]
CLASSES = ["leaves", "stays", "upgrades"]
CONFIG = """
name = "twin"
[model]
name = "mlp"
hidden = [64, 64]
num_classes = 3
[data]
name = "csv"
file = "table.csv"
label = "outcome"
id = "customer"
categories = ["city", "plan"]
folds = 5
stratify = true
batch_size = 64
[optimizer]
name = "adam"
lr = 0.001
[trainer]
max_epochs = 60
num_gpus = 0
num_threads = 1
[checkpoint]
monitor = "val_loss"
mode = "min"
[early_stopping]
monitor = "val_loss"
mode = "min"
patience = 8
"""


def write_table(path, seed=5, num_rows=6000):
    random = numpy.random.default_rng(seed)
    with open(path, "w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["customer", *NUMBERS, *CATEGORIES, "outcome"])
        for i in range(num_rows):
            numbers = random.normal([50, 40, 10, 6], [15, 12, 6, 3])
            city, plan = random.integers(len(CITIES)), random.integers(len(PLANS))
            score = (numbers[0] - 50) / 15 - (numbers[2] - 10) / 6 + 0.5 * numpy.sin(numbers[1] / 8) + 0.6 * (city % 2) - 0.7 * (plan == 0)
            outcome = CLASSES[int(numpy.digitize(score + random.normal(0, 0.3), [-0.5, 0.8]))]
            fields = [f"{number:.2f}" for number in numbers] + [CITIES[city], PLANS[plan]]
            out.writerow([f"c{i:05}"] + ["" if random.random() < 0.1 else field for field in fields] + [outcome])


def encoded(rows, train):
    columns = []
    for name in NUMBERS:
        values = numpy.array([float(row[name] or "nan") for row in rows])
        values = numpy.where(numpy.isnan(values), numpy.nanmedian(values[train]), values)
        columns.append((values - values[train].mean()) / values[train].std())
    for name in CATEGORIES:  # an empty field is a category
        texts = numpy.array([row[name] for row in rows])
        columns += [(texts == category).astype(float) for category in sorted(set(texts[train]))]
    return torch.tensor(numpy.stack(columns, 1), dtype=torch.float32)


def twin_accuracy(rows, is_val, seed):
    torch.manual_seed(seed)
    train, val = numpy.flatnonzero(~is_val), numpy.flatnonzero(is_val)
    x, y = encoded(rows, train), torch.tensor([CLASSES.index(row["outcome"]) for row in rows])
    model = torch.nn.Sequential(torch.nn.Linear(x.shape[1], 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.ReLU(),
                                torch.nn.Linear(64, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    best, accuracy, waited = float("inf"), 0.0, 0
    for _ in range(60):
        for chosen in torch.tensor(train)[torch.randperm(len(train))].split(64):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x[chosen]), y[chosen]).backward()
            optimizer.step()
        with torch.no_grad():
            outputs = model(x[val])
            loss = torch.nn.functional.cross_entropy(outputs, y[val]).item()
        if loss < best:
            best, accuracy, waited = loss, (outputs.argmax(1) == y[val]).float().mean().item(), 0
        elif (waited := waited + 1) >= 8:
            break
    return accuracy


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{words}: {done.stderr}")
    return done.stdout


def main():
    kindling, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    num_folds = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    write_table(folder / "table.csv")
    (folder / "twin.toml").write_text(CONFIG)
    with open(folder / "table.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    truth = {row["customer"]: row["outcome"] for row in rows}
    accuracies, seen = [], []
    for fold in range(num_folds):
        run(kindling, "fit", folder / "twin.toml", f"data.fold={fold}", f"run.dir={folder}", f"name=fold{fold}", "--quiet")
        out = run(kindling, "predict", folder / f"fold{fold}", "--values", "labels", "--quiet")
        predicted = {row["customer"]: row["class"] for row in csv.DictReader(out.splitlines())}
        seen += predicted
        own = sum(truth[customer] == name for customer, name in predicted.items()) / len(predicted)
        twin = twin_accuracy(rows, numpy.array([row["customer"] in predicted for row in rows]), fold)
        accuracies.append((own, twin))
        print(f"fold {fold}: kindling {own:.4f}, PyTorch {twin:.4f}, {len(predicted)} rows")
    if num_folds == 5:
        assert sorted(seen) == sorted(truth)
    own, twin = numpy.mean(accuracies, 0)
    print(f"mean: kindling {own:.4f}, PyTorch {twin:.4f}")
    sys.exit(0 if abs(own - twin) <= 0.02 else 1)


if __name__ == "__main__":
    main()
