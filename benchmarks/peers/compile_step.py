"""Compiles the whole training step of a step case ahead of time, for the peer aoti_step.

The inputs of a package are parameters, first moments, second moments, step number, input and target. It updates all but
the last two in place (forward, backward, clipping, Adam) and returns the loss.
"""

import argparse
import time
from pathlib import Path

import torch
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx

import workloads


def capture(w):
    """Returns the step of workload `w` as one exported graph."""
    names, parameters = zip(*w.model.named_parameters())
    n = len(parameters)
    adam = w.make_optimizer(parameters).defaults
    lr, (beta1, beta2), eps = adam["lr"], adam["betas"], adam["eps"]

    def train_step(*tensors):
        params, firsts, seconds = (tensors[i * n : (i + 1) * n] for i in range(3))
        step, x, y = tensors[3 * n :]
        leaves = [p.detach().requires_grad_() for p in params]
        loss = w.loss_fn(functional_call(w.model, dict(zip(names, leaves)), x), y)
        grads = torch.autograd.grad(loss, leaves)
        norm = torch.sqrt(sum((g * g).sum() for g in grads))
        scale = torch.clamp(w.clip / (norm + 1e-6), max=1.0)
        step.add_(1)
        step_size = lr / (1 - beta1**step)
        correction = torch.sqrt(1 - beta2**step)
        for p, g, m, v in zip(params, grads, firsts, seconds):
            g = g * scale
            m.lerp_(g, 1 - beta1)
            v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
            p.sub_(step_size * m / (v.sqrt() / correction + eps))
        return loss.detach()

    def inputs():
        state = [p.detach().clone() for p in parameters]
        state += [torch.zeros_like(p) for p in 2 * parameters]
        return *state, torch.zeros(()), *w.train.batches[0]

    graph = make_fx(train_step)(*inputs())
    with torch.no_grad():
        return torch.export.export(graph, inputs(), strict=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where CASE-THREADS.pt2 of every case is written")
    parser.add_argument("--case", nargs="+", default=["step_tiny", "step_deep"])
    parser.add_argument("--threads", type=int, default=1, help="number of threads that the package is compiled for")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    args.folder.mkdir(parents=True, exist_ok=True)
    for case in args.case:
        start = time.perf_counter()
        package = args.folder / f"{case}-{args.threads}.pt2"
        program = capture(workloads.TRAINING[case](gather=True))
        torch._inductor.aoti_compile_and_package(program, package_path=str(package))
        print(f"{package}: {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
