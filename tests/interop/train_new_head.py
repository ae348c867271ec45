"""python train_new_head.py FOLDER: trains features.pt2 with a new linear head on the x and y of start.pt, which also has the
weights of both. The features are frozen in the first of three epochs. Writes the trained weights to twin.pt."""

import pathlib
import sys
import warnings

import torch

warnings.filterwarnings("ignore")
folder = pathlib.Path(sys.argv[1])
torch.set_num_threads(1)
start = torch.load(folder / "start.pt", weights_only=True)
x, y = start.pop("x"), start.pop("y")
features = torch.nn.Sequential(torch.nn.Linear(6, 8, bias=False), torch.nn.BatchNorm1d(8), torch.nn.ReLU())
backbone = torch.nn.ModuleDict({"net": features})
model = torch.nn.ModuleDict({"backbone": backbone, "head": torch.nn.Linear(8, 3)})
model.load_state_dict(start)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
for epoch in range(3):
    features.requires_grad_(epoch > 0)
    features.train(epoch > 0)
    for at in range(0, len(x), 8):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model["head"](features(x[at:at + 8])), y[at:at + 8]).backward()
        optimizer.step()
torch.save(model.state_dict(), folder / "twin.pt")
