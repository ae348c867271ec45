"""heat_twin.py LOG LIBTORCH_VERSION: the losses that apps/heat_fortran wrote into LOG are those of PyTorch for the same solver, surrogate
and steps. Ends with 77 without PyTorch of that version, or without LOG, which the test heat_fortran leaves behind."""

import sys
from pathlib import Path

try:
    import torch
except ImportError:
    print("skipped: no PyTorch")
    sys.exit(77)

NX, NY = 32, 24
TOLERANCE = 1e-6  # relative


def conductivity(u):
    return 0.5 / (1 + u * u)


def flux(here, there):
    return (0.5 * (conductivity(here) + conductivity(there))) * (there - here)


class Adam:
    """PyTorch's fused Adam, without torch.optim, whose import takes longer than this test."""

    def __init__(self, parameters):
        self.parameters = list(parameters)
        self.means, self.squares = ([torch.zeros_like(p) for p in self.parameters] for _ in range(2))
        self.steps = [torch.zeros(()) for _ in self.parameters]

    @torch.no_grad()
    def step(self, loss):
        gradients = torch.autograd.grad(loss, self.parameters)
        torch._foreach_add_(self.steps, 1)
        torch._fused_adam_(
            self.parameters, gradients, self.means, self.squares, [], self.steps,
            lr=0.003, beta1=0.9, beta2=0.999, weight_decay=0, eps=1e-8, amsgrad=False, maximize=False,
        )  # fmt: skip


def losses():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(5, 32), torch.nn.Tanh(), torch.nn.Linear(32, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1)
    )
    optimizer = Adam(net.parameters())
    u = torch.zeros(NY + 2, NX + 2, dtype=torch.float64)  # u[j, i] is u(i, j) in Fortran
    here, left, right, below, above = u[1:-1, 1:-1], u[1:-1, :-2], u[1:-1, 2:], u[:-2, 1:-1], u[2:, 1:-1]
    step = 0
    while True:
        features = torch.stack([here, left, right, below, above]).reshape(5, -1).T
        rate = ((flux(here, right) + flux(here, left)) + flux(here, above)) + flux(here, below)
        loss = torch.nn.functional.mse_loss(net(features.float()), rate.reshape(-1, 1).float())
        optimizer.step(loss)
        here += 0.2 * rate
        u[1 + 5 * step % NY, 1 + 7 * step % NX] += 1
        step += 1
        yield loss.item()


def main(log, version):
    if torch.__version__.split("+")[0] != version.split("+")[0]:
        print(f"skipped: PyTorch {torch.__version__} may round otherwise than LibTorch {version}")
        return 77
    if not log.exists():
        print(f"skipped: {log} was not written")
        return 77
    found = [float(line.split()[3]) for line in log.read_text().splitlines()]
    difference = max(abs(a - b) / b for a, b in zip(found, losses()))
    print(f"{len(found)} losses, largest relative difference {difference:g}")
    return 0 if len(found) == 200 and difference <= TOLERANCE else 1


sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
