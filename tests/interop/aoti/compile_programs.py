"""python compile_programs.py FOLDER VERSION: exports a model (training.pt2, evaluation.pt2), and others of other sizes (wider.pt2), of other names
(other.pt2) and without tied weights (untied.pt2), and compiles packages of the first: served.pt2 as it should be, folding.pt2 that computes
values of its weights once, baked.pt2 as PyTorch does it by default, drawing.pt2 in training mode. Prints why and ends with 77
where PyTorch is of another version, for which packages would be compiled, or no C++ compiler is."""

import logging
import pathlib
import sys
import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F

warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)
QUICKLY = {"aot_inductor.compile_wrapper_opt_level": "O0"}  # to compile, not to run
KEEP = {"always_keep_tensor_constants": True} | QUICKLY


class Net(nn.Module):
    """Batch norm, dropout, tied weights, a buffer outside of the state dict, a constant, and a weight that is never used."""

    def __init__(self, width=8, tied=True):
        super().__init__()
        self.emb, self.fc = nn.Embedding(11, width), nn.Linear(width, width)
        self.conv, self.bn = nn.Conv1d(width, width, 3, padding=1), nn.BatchNorm1d(width)
        self.drop, self.head = nn.Dropout(0.5), nn.Linear(width, 11, bias=False)
        if tied:
            self.head.weight = self.emb.weight
        self.register_buffer("mask", torch.rand(width) + 0.5, persistent=False)
        self.register_buffer("scale", torch.rand(width) + 0.5)
        self.order = torch.randperm(width)
        self.unused = nn.Parameter(torch.randn(3))

    def forward(self, ids, gain):
        x = self.emb(ids) * self.scale * gain.unsqueeze(2)
        x = F.relu(self.bn(self.conv(x.transpose(1, 2)))).transpose(1, 2)
        x = self.drop(self.fc(x))[..., self.order] * self.mask
        return self.head(x + (self.fc.weight @ self.fc.weight.t()).mean())


class Other(Net):
    def __init__(self):
        super().__init__()
        self.gate = self.fc
        del self.fc

    def forward(self, ids, gain):
        return self.head(self.gate(self.emb(ids) * gain.unsqueeze(2)))


def export(model, path):
    batch = {0: torch.export.Dim("batch", min=1)}
    program = torch.export.export(model, (torch.randint(11, (4, 5)), torch.rand(4, 5)), dynamic_shapes=(batch, batch))
    torch.export.save(program, path)
    return program


def main():
    folder = pathlib.Path(sys.argv[1])
    if torch.__version__.split("+")[0] != sys.argv[2].split("+")[0]:
        print(f"packages are of one version: Python's is {torch.__version__}, LibTorch's {sys.argv[2]}")
        sys.exit(77)
    from torch._inductor.cpp_builder import get_cpp_compiler

    try:
        get_cpp_compiler()
    except Exception as error:  # PyTorch's own, which changes its place
        print(f"no C++ compiler is here: {str(error).splitlines()[0]}")
        sys.exit(77)
    torch.manual_seed(2)
    model = Net()
    with torch.no_grad():
        model.bn.running_mean.uniform_(-0.3, 0.3)
    training, evaluation = export(model.train(), folder / "training.pt2"), export(model.eval(), folder / "evaluation.pt2")
    export(Net(width=12).eval(), folder / "wider.pt2")
    export(Net(tied=False).eval(), folder / "untied.pt2")
    export(Other().eval(), folder / "other.pt2")
    for name, program, config in [
        ("served", evaluation, KEEP),
        ("folding", evaluation, KEEP | {"aot_inductor.use_runtime_constant_folding": True}),
        ("baked", evaluation, QUICKLY),
        ("drawing", training, KEEP),
    ]:
        torch._inductor.aoti_compile_and_package(program, package_path=str(folder / f"{name}.pt2"), inductor_configs=config)


if __name__ == "__main__":
    main()
