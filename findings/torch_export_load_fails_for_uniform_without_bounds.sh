#!/usr/bin/env bash
# PyTorch 2.13.0: torch.export.save writes a program that calls Tensor.uniform_ with its default bounds, and torch.export.load cannot
# read the file: the first bound is an argument whose name is a keyword of Python, for which the reader looks among those that the file
# gives. With a bound other than the default, or with rand, the file is read.
#
# Setting: stochastic depth as in vit-pytorch 1.26.14 (its CCT), x + x * (a tensor of uniform_() > 0.5).
# Seen: with uniform_() and uniform_(0, 1) saving works, loading raises RuntimeError; uniform_(0.25, 1) and rand are read.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy
"$folder/venv/bin/python" - <<'PYTHON'
import io
import logging
import warnings

warnings.filterwarnings("ignore")
import torch

logging.disable(logging.WARNING)
assert torch.__version__.startswith("2.13.0")


class Depth(torch.nn.Module):
    def __init__(self, draw):
        super().__init__()
        self.draw = draw

    def forward(self, x):
        return x + x * (self.draw(x.new_empty(x.shape[0], 1)) > 0.5)


def is_read(draw):
    written = io.BytesIO()
    torch.export.save(torch.export.export(Depth(draw), (torch.ones(3, 4),)), written)
    written.seek(0)
    try:
        torch.export.load(written)
    except RuntimeError:
        return False
    return True


found = {"uniform_()": is_read(lambda t: t.uniform_()), "uniform_(0, 1)": is_read(lambda t: t.uniform_(0, 1)),
         "uniform_(0.25, 1)": is_read(lambda t: t.uniform_(0.25, 1)), "rand": is_read(lambda t: torch.rand(t.shape))}
for name, is_fine in found.items():
    print(name, "is read" if is_fine else "is not read")
assert list(found.values()) == [False, False, True, True], found
PYTHON
echo "as described"
