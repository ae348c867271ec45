"""python evaluation_programs.py FOLDER: exports models whose forward pass modifies buffers or draws noise in training mode, as
NAME.pt2 in training mode, as NAME.eval.pt2 after eval(), and as NAME.both.pt2 with both programs (kindling.export()). Trains them eagerly with an evaluation after every step; NAME.pt has
the data, the outputs of these evaluations, and the final state."""

import importlib.util
import pathlib
import sys
import warnings

import torch
import torch.nn.functional as F
from torch import nn

warnings.filterwarnings("ignore")
sys.dont_write_bytecode = True  # next to sources
PACKAGE = pathlib.Path(__file__).resolve().parents[3] / "python/kindling"
STEPS = 4


class Counter(nn.Module):
    def __init__(self, classes=2):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(0.0), nn.Linear(4, classes))
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        if self.training:
            self.calls += 1
        return self.net(x)


class Average(nn.Module):
    """Subtracts an exponential average of its features, which is updated after they are computed."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(3, 4), nn.Linear(4, 2)
        self.register_buffer("average", torch.zeros(4))

    def forward(self, x):
        x = self.body(x)
        out = self.head(x - self.average)
        if self.training:
            self.average.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        return out


class Inner(nn.Module):
    """Keeps the last means in a row of a buffer that is not saved, and writes through views."""

    def __init__(self):
        super().__init__()
        self.register_buffer("history", torch.zeros(2, 4))
        self.register_buffer("scratch", torch.zeros(2, 4), persistent=False)

    def forward(self, x):
        out = x * 0.5 + self.history.mean(0) + self.scratch[1]
        if self.training:
            means = x.detach().mean(0)
            self.history[0].copy_(self.history[1].clone())
            self.history.view(8)[4:].view(1, 4)[0].copy_(means)
            self.scratch[1].lerp_(means, 0.25)
        return out


class Views(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.inner, self.head = nn.Linear(3, 4), Inner(), nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.inner(self.body(x)))


class Codes(nn.Module):
    """A VQ-VAE's codebook of averages; the codes are a parameter that no optimizer changes."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(3, 4), nn.Linear(4, 2)
        self.codes = nn.Parameter(torch.randn(5, 4), requires_grad=False)
        self.register_buffer("sizes", torch.ones(5))
        self.register_buffer("sums", torch.randn(5, 4))

    def forward(self, x):
        z = self.body(x)
        nearest = (z.detach().unsqueeze(1) - self.codes).square().sum(2).argmin(1)
        chosen = F.embedding(nearest, self.codes)
        if self.training:
            one_hot = F.one_hot(nearest, 5).to(z.dtype)
            self.sizes.mul_(0.8).add_(one_hot.sum(0), alpha=0.2)
            self.sums.mul_(0.8).add_(one_hot.t() @ z.detach(), alpha=0.2)
            self.codes.copy_(self.sums / self.sizes.unsqueeze(1))
        return self.head(z + (chosen - z).detach())


class Spectral(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 4))
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))


class Block(nn.Module):
    """Stochastic depth: skips its layer for some samples."""

    def __init__(self):
        super().__init__()
        self.linear, self.drop = nn.Linear(4, 4), nn.Dropout(0.1)

    def forward(self, x):
        out = self.drop(torch.relu(self.linear(x)))
        if self.training:
            out = out * x.new_empty(x.shape[0], 1).bernoulli_(0.5) / 0.5
        return x + out


class Noise(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.blocks, self.head = nn.Linear(3, 4), nn.Sequential(Block(), Block()), nn.Linear(4, 2)
        self.register_buffer("scale", torch.full((1,), 2.0), persistent=False)

    def forward(self, x):
        return self.head(self.blocks(self.body(x)) * self.scale)


MODELS = {"noise": Noise, "counter": Counter, "average": Average, "views": Views, "codes": Codes, "spectral": Spectral}


def export_of_package():
    spec = importlib.util.spec_from_file_location("export_of_kindling", PACKAGE / "_export.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.export


def main(folder):
    folder = pathlib.Path(folder)
    export = export_of_package()
    torch.set_num_threads(1)
    batch = torch.export.Dim("batch", min=1)
    for name, make in MODELS.items():
        torch.manual_seed(3)
        model = make().train()
        program = torch.export.export(model, (torch.randn(8, 3),), dynamic_shapes=({0: batch},))
        torch.export.save(program, folder / f"{name}.pt2")
        if name == "average":  # writes are outputs of the program then
            torch.export.save(program.run_decompositions({}), folder / "decomposed.pt2")
        evaluated = torch.export.export(model.eval(), (torch.randn(8, 3),), dynamic_shapes=({0: batch},))
        torch.export.save(evaluated, folder / f"{name}.eval.pt2")
        export(model, torch.randn(8, 3), folder / f"{name}.both.pt2")
        x, y = torch.randn(STEPS, 8, 3), torch.randint(2, (STEPS, 8))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        outputs = []
        torch.manual_seed(7)
        for step in range(STEPS):
            optimizer.zero_grad()
            F.cross_entropy(model.train()(x[step]), y[step]).backward()
            optimizer.step()
            with torch.no_grad():
                outputs.append(model.eval()(x[0]))
        state = {"x": x, "y": y, "outputs": torch.stack(outputs)}
        state |= {f"final.{k}": v.detach().clone() for k, v in model.state_dict().items()}
        torch.save(state, folder / f"{name}.pt")
        if name == "average":
            torch.save(state, folder / "decomposed.pt")
            torch.export.save(evaluated, folder / "decomposed.eval.pt2")
    wide = torch.export.export(Counter(classes=5).eval(), (torch.randn(8, 3),), dynamic_shapes=({0: batch},))
    torch.export.save(wide, folder / "wide.eval.pt2")


if __name__ == "__main__":
    main(*sys.argv[1:])
