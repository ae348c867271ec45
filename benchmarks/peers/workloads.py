"""Models, data and batch order of every case, used by all Python peers.

Every random choice has a fixed seed, and bare_libtorch/bare_loop.cpp draws the same numbers in the same order. All peers
therefore start from the same weights and use the same batches. With `gather`, a workload makes its batches by
index_select instead of a DataLoader.
"""

import gzip
import os
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Callable, Iterable

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Sampler, TensorDataset

DATA = Path(os.environ.get("KINDLING_SHARED") or Path(__file__).parents[2]) / "data/mnist-10k"
MODEL_SEED, DATA_SEED, SHUFFLE_SEED = 0, 1, 1000


@dataclass
class Workload:
    model: nn.Module
    loss_fn: Callable
    make_optimizer: Callable  # (parameters, **options) -> torch.optim.Optimizer
    train: Iterable  # of (input, target), in a new order in every epoch
    size: int  # of an epoch, in steps, images or epochs as the unit has it
    unit: str
    valid: Iterable | None = None
    clip: float | None = None


class EpochShuffle(Sampler):
    """As shuffle=True, with an order that depends only on the number of the epoch."""

    def __init__(self, size: int):
        self.size, self.epoch = size, 0

    def __len__(self):
        return self.size

    def permutation(self):
        generator = torch.Generator().manual_seed(SHUFFLE_SEED + self.epoch)
        self.epoch += 1
        return torch.randperm(self.size, generator=generator)

    def __iter__(self):
        return iter(self.permutation().tolist())


class Batches:
    """Tensors that are split into batches once, unshuffled, so that a step has no cost of a loader."""

    def __init__(self, tensors, batch_size: int):
        self.batches = list(zip(*(t.split(batch_size) for t in tensors)))

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        return iter(self.batches)


class Gather:
    """Shuffled batches by one index_select per tensor and batch."""

    def __init__(self, tensors, batch_size: int):
        self.tensors, self.batch_size = tensors, batch_size
        self.sampler = EpochShuffle(len(tensors[0]))

    def __iter__(self):
        for indices in self.sampler.permutation().split(self.batch_size):
            yield tuple(t.index_select(0, indices) for t in self.tensors)


def make_loader(tensors, batch_size, shuffle, gather, workers=0):
    if gather:
        return Gather(tensors, batch_size) if shuffle else Batches(tensors, batch_size)
    return DataLoader(
        TensorDataset(*tensors),
        batch_size,
        sampler=EpochShuffle(len(tensors[0])) if shuffle else None,
        num_workers=workers,
        persistent_workers=workers > 0,
        generator=torch.Generator(),  # so that the loader draws nothing from the generator of the dropout
    )


def mnist():
    """Returns the 10,000 test images, float [n, 1, 28, 28] in 0…1, and their labels."""

    def read(name, offset):
        path = DATA / f"{name}-ubyte.gz"
        if not path.exists():
            sys.exit(f"{path}: no such file; benchmarks/README.md describes the data")
        with gzip.open(path) as f:
            return torch.from_numpy(np.frombuffer(f.read(), np.uint8, offset=offset).copy())

    images = read("t10k-images-idx3", 16).view(-1, 1, 28, 28).float().div_(255)
    return images, read("t10k-labels-idx1", 8).long()


def regression(n, features, outputs):
    generator = torch.Generator().manual_seed(DATA_SEED)
    x = torch.randn(n, features, generator=generator)
    w = torch.randn(features, outputs, generator=generator)
    noise = torch.randn(n, outputs, generator=generator)
    return x, torch.sin(x.matmul(w) / features**0.5) + 0.1 * noise


def step_case(layers, features, outputs, steps, batch_size=32):
    x, y = regression(steps * batch_size, features, outputs)
    torch.manual_seed(MODEL_SEED)
    return Workload(
        model=nn.Sequential(*layers()),
        loss_fn=nn.functional.mse_loss,
        make_optimizer=partial(torch.optim.Adam, lr=1e-3),
        train=Batches((x, y), batch_size),
        size=steps,
        unit="us/step",
        clip=1.0,
    )


def step_tiny(gather):
    def layers():
        return nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)

    return step_case(layers, features=20, outputs=1, steps=1280)


def step_deep(gather):
    def layers():
        return [module for _ in range(16) for module in (nn.Linear(64, 64), nn.ReLU())][:-1]

    return step_case(layers, features=64, outputs=64, steps=320)


def fmnist_epoch(gather):
    images, labels = mnist()
    train = images.repeat(6, 1, 1, 1), labels.repeat(6)
    torch.manual_seed(MODEL_SEED)
    return Workload(
        model=nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10)),
        loss_fn=nn.functional.cross_entropy,
        make_optimizer=partial(torch.optim.SGD, lr=0.1),
        train=make_loader(train, 256, shuffle=True, gather=gather),
        valid=make_loader((images, labels), 256, shuffle=False, gather=gather),
        size=1,
        unit="s/epoch",
    )


class MnistNet(nn.Module):
    """The network of pytorch/examples cpp/mnist."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 10, 5)
        self.conv2 = nn.Conv2d(10, 20, 5)
        self.conv2_drop = nn.Dropout2d()
        self.fc1 = nn.Linear(320, 50)
        self.fc2 = nn.Linear(50, 10)

    def forward(self, x):
        f = nn.functional
        x = f.relu(f.max_pool2d(self.conv1(x), 2))
        x = f.relu(f.max_pool2d(self.conv2_drop(self.conv2(x)), 2))
        x = f.relu(self.fc1(x.reshape(-1, 320)))
        x = f.dropout(x, 0.5, self.training)
        return f.log_softmax(self.fc2(x), dim=1)


def cnn_mnist(gather):
    images, labels = mnist()
    images = (images - 0.1307) / 0.3081
    torch.manual_seed(MODEL_SEED)
    return Workload(
        model=MnistNet(),
        loss_fn=nn.functional.nll_loss,
        make_optimizer=partial(torch.optim.SGD, lr=0.01, momentum=0.5),
        train=make_loader((images, labels), 64, shuffle=True, gather=gather),
        size=len(images),
        unit="img/s",
    )


def optim_shapes():
    layers = [(64, 20), (64,)] + 15 * [(64, 64), (64,)]
    return {"small32": layers, "mid300": 300 * [(64, 64)], "large4": 4 * [(1024, 1024)]}


TRAINING = {f.__name__: f for f in (step_tiny, step_deep, fmnist_epoch, cnn_mnist)}
