"""python train_on.py IN.pt2 DATA.pt STEPS OUT.pt2: trains a program on with SGD, a batch of DATA's "inputs" and "labels" per step, and saves
it as a program again."""

import sys

import torch
import torch.nn.functional as F

torch.set_num_threads(1)


def main():
    program = torch.export.load(sys.argv[1])
    data = torch.load(sys.argv[2])
    model = program.module()
    by = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    for step in range(int(sys.argv[3])):
        by.zero_grad()
        F.cross_entropy(model(data["inputs"][step]), data["labels"][step]).backward()
        by.step()
    with torch.no_grad():
        for name, value in model.state_dict().items():
            program.state_dict[name].copy_(value)
    torch.export.save(program, sys.argv[4])


if __name__ == "__main__":
    main()
