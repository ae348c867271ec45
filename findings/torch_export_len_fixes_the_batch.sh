#!/usr/bin/env bash
# PyTorch 2.13.0: len(x) in a forward fixes the first dimension in torch.export. With Dim.AUTO the program that comes out takes that
# one size only, without an error or a warning; with a named Dim it is an error. x.shape[0] in its place is followed, and strict=True
# follows both.
#
# Setting: x.view(len(x), -1), as the attention of rtdl_revisiting_models 0.0.2 (FTTransformer) asks for its batch; exported with 7 rows.
# Seen: len with Dim.AUTO: the program refuses 5 rows; len with Dim("batch"): UserError; len with Dim("batch") and strict=True, and shape[0]
# with Dim.AUTO: the program takes 5 rows.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy
"$folder/venv/bin/python" - <<'PYTHON'
import logging
import warnings

warnings.filterwarnings("ignore")
import torch

logging.disable(logging.WARNING)
assert torch.__version__.startswith("2.13.0")


class ByLen(torch.nn.Module):
    def forward(self, x):
        return x.view(len(x), -1) * 2


class ByShape(torch.nn.Module):
    def forward(self, x):
        return x.view(x.shape[0], -1) * 2


def batch_of(model, batch, **options):
    try:
        program = torch.export.export(model, (torch.ones(7, 2, 3),), dynamic_shapes=({0: batch},), **options)
    except torch._dynamo.exc.UserError:
        return "UserError"
    try:
        program.module()(torch.ones(5, 2, 3))
        return "takes 5 rows"
    except (AssertionError, RuntimeError):
        return "takes 7 rows only"


named = torch.export.Dim("batch")
found = [batch_of(ByLen(), torch.export.Dim.AUTO), batch_of(ByLen(), named), batch_of(ByLen(), named, strict=True),
         batch_of(ByShape(), torch.export.Dim.AUTO)]
print("len, AUTO:", found[0], "| len, named:", found[1], "| len, named, strict:", found[2], "| shape[0], AUTO:", found[3])
assert found == ["takes 7 rows only", "UserError", "takes 5 rows", "takes 5 rows"], found
PYTHON
echo "as described"
