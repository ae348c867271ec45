"""python train_exported.py FOLDER: trains NAME.pt2, exported in training mode, on NAME.pt's x and y; after the first step
the loss, the parameters and the buffers have to be what NAME.pt says, and in the end the loss has to be smaller."""

import pathlib
import sys
import warnings

import torch
import torch.nn.functional as F

warnings.filterwarnings("ignore")
TOLERANCE = 1e-6  # absolute, of numbers around one: gradients add up in another order where memory lies otherwise


def check(path):
    module = torch.export.load(path).module()
    state = torch.load(path.with_suffix(".pt"), weights_only=True)
    x, y = state["x"], state["y"].reshape(-1)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    torch.manual_seed(7)
    losses = []
    for step in range(20):
        optimizer.zero_grad()
        outputs = module(x)
        loss = F.cross_entropy(outputs.reshape(-1, outputs.shape[-1]), y)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
        if step > 0:
            continue
        assert abs(losses[0] - float(state["loss"])) <= TOLERANCE, (losses[0], float(state["loss"]))
        for name, value in {**dict(module.named_parameters()), **dict(module.named_buffers())}.items():
            difference = float((value.detach().double() - state["after." + name].double()).abs().max())
            assert difference <= TOLERANCE, (name, difference)
    assert losses[-1] < 0.8 * losses[0], losses
    return f"ok {losses[0]:.6f} to {losses[-1]:.6f}"


def main(folder):
    torch.set_num_threads(1)
    for path in sorted(pathlib.Path(folder).glob("*.pt2")):
        print(path.stem, check(path))


main(*sys.argv[1:])
