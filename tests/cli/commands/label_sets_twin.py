"""label_sets_twin.py KINDLING FOLDER: trains a classifier of several labels per row for 16 steps with kindling, from the weights of a twin
in PyTorch, and the twin with BCEWithLogitsLoss on the labels of pandas' rule (a 1 for each part of a cell). Exit code 1: a loss or weight
differs by more than 1e-6. Without arguments, only imports what it needs."""
import csv
import json
import pathlib
import subprocess
import sys

import numpy
import torch
from safetensors.torch import load_file, save_file

torch.set_num_threads(1)
CONFIG = """
name = "twin"
[model]
name = "mlp"
hidden = [16]
num_classes = 3
multi_label = true
pos_weight = [2.0]
init_weights = "start.safetensors"
[data]
name = "csv"
file = "tags.csv"
label = "tags"
label_separator = "|"
batch_size = 16
train = [0, 64]
val = [64, 80]
shuffle = false
[optimizer]
name = "adam"
lr = 0.01
[trainer]
max_epochs = 4
log_every_n_steps = 1
num_gpus = 0
num_threads = 1
"""


def write_table(path):
    random = numpy.random.default_rng(3)
    with open(path, "w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["x", "y", "z", "tags"])
        for _ in range(80):
            values = random.normal(size=3)
            tags = [name for name, value in zip("cab", values) if value + random.normal(0, 0.3) > 0.3]
            out.writerow([f"{value:.3f}" for value in values] + [" | ".join(tags)])


def main():
    kindling, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    write_table(folder / "tags.csv")
    (folder / "twin.toml").write_text(CONFIG)
    with open(folder / "tags.csv", newline="") as file:
        rows = list(csv.DictReader(file))[:64]
    x = numpy.array([[float(row[name]) for name in "xyz"] for row in rows])
    x = torch.tensor((x - x.mean(0)) / x.std(0), dtype=torch.float32)
    y = torch.tensor([[float(name in [part.strip() for part in row["tags"].split("|")]) for name in "abc"] for row in rows])

    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    save_file({f"net.{name}": tensor for name, tensor in model.state_dict().items()}, folder / "start.safetensors")
    done = subprocess.run([kindling, "fit", folder / "twin.toml", f"run.dir={folder}", "--quiet"], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)

    loss_of = torch.nn.BCEWithLogitsLoss(pos_weight=torch.tensor([2.0]))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(4):
        for inputs, labels in zip(x.split(16), y.split(16)):
            optimizer.zero_grad()
            loss = loss_of(model(inputs), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    records = [json.loads(line) for line in open(folder / "twin/0001/metrics.jsonl")]
    steps = [record["train_loss_step"] for record in records if "train_loss_step" in record]
    assert len(steps) == len(losses) == 16, (len(steps), records[0])
    worst_loss = max(abs(own - twin) for own, twin in zip(steps, losses))
    weights = load_file(folder / "twin/0001/weights.safetensors")
    worst_weight = max((weights[f"net.{name}"] - tensor).abs().max().item() for name, tensor in model.state_dict().items())
    print(f"16 steps: losses differ by {worst_loss:.1e}, weights by {worst_weight:.1e}; the first loss is {losses[0]:.4f}, the last {losses[-1]:.4f}")
    sys.exit(0 if worst_loss <= 1e-6 and worst_weight <= 1e-6 else 1)


if __name__ == "__main__" and len(sys.argv) > 1:
    main()
