"""Models of the size that people train, in PyTorch, with their random data: what real_models.py measures."""

import dataclasses
from typing import Callable

import torch
from torch import nn
from torch.nn import functional as F

NUM_CLASSES, NUM_WORDS = 10, 256


class Block(nn.Module):
    """A block of a transformer with the norms first; `memory`: it also attends to that."""

    def __init__(self, width, heads=4, causal=False, memory=False):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        if memory:
            self.norm3, self.query, self.key_value = nn.LayerNorm(width), nn.Linear(width, width), nn.Linear(width, 2 * width)
            self.out2 = nn.Linear(width, width)

    def _heads(self, x, parts):
        batch, length, width = x.shape
        return x.view(batch, length, parts, self.heads, width // parts // self.heads).permute(2, 0, 3, 1, 4)

    def _attend(self, query, key, value, causal):
        joined = F.scaled_dot_product_attention(query, key, value, is_causal=causal).transpose(1, 2)
        return joined.reshape(joined.shape[0], joined.shape[1], -1)

    def forward(self, x, memory=None):
        x = x + self.out(self._attend(*self._heads(self.qkv(self.norm1(x)), 3), self.causal))
        if memory is not None:
            (query,) = self._heads(self.query(self.norm3(x)), 1)
            x = x + self.out2(self._attend(query, *self._heads(self.key_value(memory), 2), False))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    def __init__(self, width=128, layers=4, length=64):
        super().__init__()
        self.words, self.places = nn.Embedding(NUM_WORDS, width), nn.Parameter(torch.zeros(length, width))
        self.blocks = nn.Sequential(*(Block(width, causal=True) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, NUM_WORDS)

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.words(x) + self.places))).transpose(1, 2)


class EncoderDecoder(nn.Module):
    """The first half of the words is the source, the second half the target."""

    def __init__(self, width=128, layers=2, length=64):
        super().__init__()
        self.half = length // 2
        self.words, self.places = nn.Embedding(NUM_WORDS, width), nn.Parameter(torch.zeros(self.half, width))
        self.encoder = nn.Sequential(*(Block(width) for _ in range(layers)))
        self.decoder = nn.ModuleList(Block(width, causal=True, memory=True) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, NUM_WORDS)

    def forward(self, x):
        memory = self.encoder(self.words(x[:, : self.half]) + self.places)
        y = self.words(x[:, self.half :]) + self.places
        for block in self.decoder:
            y = block(y, memory)
        return self.head(self.norm(y)).transpose(1, 2)


class Vit(nn.Module):
    def __init__(self, width=96, layers=4, patch=4):
        super().__init__()
        self.patches, self.places = nn.Conv2d(3, width, patch, patch), nn.Parameter(torch.zeros((32 // patch) ** 2, width))
        self.blocks = nn.Sequential(*(Block(width) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, NUM_CLASSES)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2) + self.places
        return self.head(self.norm(self.blocks(x)).mean(1))


class MixerBlock(nn.Module):
    def __init__(self, width, num_patches):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.tokens = nn.Sequential(nn.Linear(num_patches, 2 * num_patches), nn.GELU(), nn.Linear(2 * num_patches, num_patches))
        self.channels = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class Mixer(nn.Module):
    def __init__(self, width=128, layers=4, patch=4):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.blocks = nn.Sequential(*(MixerBlock(width, (32 // patch) ** 2) for _ in range(layers)))
        self.head = nn.Linear(width, NUM_CLASSES)

    def forward(self, x):
        return self.head(self.blocks(self.patches(x).flatten(2).transpose(1, 2)).mean(1))


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.layers, self.head = kind(32, 128, 2, batch_first=True), nn.Linear(128, NUM_CLASSES)

    def forward(self, x):
        return self.head(self.layers(x)[0][:, -1])


def convolution(inputs, outputs, stride=1, groups=1, size=3):
    return nn.Sequential(nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())


class Separable(nn.Module):
    """Depthwise, then pointwise convolutions, as in MobileNet."""

    def __init__(self, widths=(32, 64, 128, 128, 256)):
        super().__init__()
        layers = [convolution(3, widths[0])]
        for i, (inputs, outputs) in enumerate(zip(widths, widths[1:])):
            layers += [convolution(inputs, inputs, stride=1 + i % 2, groups=inputs), convolution(inputs, outputs, size=1)]
        self.layers, self.head = nn.Sequential(*layers), nn.Linear(widths[-1], NUM_CLASSES)

    def forward(self, x):
        return self.head(self.layers(x).mean((2, 3)))


class Residual(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = convolution(inputs, outputs, stride)
        self.conv2 = nn.Sequential(nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs))
        changes = stride != 1 or inputs != outputs
        self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)) if changes else nn.Identity()

    def forward(self, x):
        return F.relu(self.conv2(self.conv1(x)) + self.shortcut(x))


class ResNet18(nn.Module):
    """With a first layer for small images."""

    def __init__(self):
        super().__init__()
        layers, inputs = [convolution(3, 64)], 64
        for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            layers += [Residual(inputs, outputs, stride), Residual(outputs, outputs, 1)]
            inputs = outputs
        self.layers, self.head = nn.Sequential(*layers), nn.Linear(512, NUM_CLASSES)

    def forward(self, x):
        return self.head(self.layers(x).mean((2, 3)))


class UNet(nn.Module):
    """A class per pixel."""

    def __init__(self, width=16):
        super().__init__()

        def block(inputs, outputs):
            parts = []
            for size in (inputs, outputs):
                parts += [nn.Conv2d(size, outputs, 3, padding=1), nn.GroupNorm(8, outputs), nn.SiLU()]
            return nn.Sequential(*parts)

        self.down = nn.ModuleList((block(3, width), block(width, 2 * width), block(2 * width, 4 * width)))
        self.up = nn.ModuleList((nn.ConvTranspose2d(4 * width, 2 * width, 2, 2), nn.ConvTranspose2d(2 * width, width, 2, 2)))
        self.join = nn.ModuleList((block(4 * width, 2 * width), block(2 * width, width)))
        self.head = nn.Conv2d(width, NUM_CLASSES, 1)

    def forward(self, x):
        first = self.down[0](x)
        second = self.down[1](F.max_pool2d(first, 2))
        x = self.down[2](F.max_pool2d(second, 2))
        x = self.join[0](torch.cat([self.up[0](x), second], 1))
        return self.head(self.join[1](torch.cat([self.up[1](x), first], 1)))


def images(generator, n):
    return torch.randn(n, 3, 32, 32, generator=generator)


def classes(*shape):
    return lambda generator, n: torch.randint(0, NUM_CLASSES, (n, *shape), generator=generator)


def words(length):
    return lambda generator, n: torch.randint(0, NUM_WORDS, (n, length), generator=generator)


def sequences(generator, n):
    return torch.randn(n, 64, 32, generator=generator)


@dataclasses.dataclass
class Workload:
    make: Callable  # () -> nn.Module
    batch_size: int
    inputs: Callable  # (generator, number of samples) -> tensor
    labels: Callable


WORKLOADS = {
    "gpt": Workload(Gpt, 12, words(64), words(64)),
    "vit": Workload(Vit, 32, images, classes()),
    "resnet18": Workload(ResNet18, 16, images, classes()),
    "lstm": Workload(lambda: Recurrent(nn.LSTM), 32, sequences, classes()),
    "unet": Workload(UNet, 16, images, classes(32, 32)),
    "separable": Workload(Separable, 32, images, classes()),
    "mixer": Workload(Mixer, 32, images, classes()),
    "gru": Workload(lambda: Recurrent(nn.GRU), 32, sequences, classes()),
    "encoder_decoder": Workload(EncoderDecoder, 12, words(64), words(32)),
}
