"""python run_program.py PROGRAM.pt2 INPUT.pt OUTPUT.pt: runs a program with the tensors of a file, in their order, and saves its "output"."""

import sys

import torch

torch.set_num_threads(1)

if __name__ == "__main__":
    inputs = torch.load(sys.argv[2])
    with torch.no_grad():
        torch.save({"output": torch.export.load(sys.argv[1]).module()(*inputs.values())}, sys.argv[3])
