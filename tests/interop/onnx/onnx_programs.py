"""python onnx_programs.py export FOLDER: exports models in evaluation mode with a dynamic batch (FOLDER/NAME.pt2), with their inputs and
outputs at batch sizes that they were not exported with (FOLDER/NAME.pt), and prints their names.
python onnx_programs.py check FOLDER NAME…: onnx's full check of FOLDER/NAME.onnx, and onnxruntime's outputs against PyTorch's; prints
"NAME: " and what is wrong, a line each."""

import logging
import pathlib
import sys
import warnings

# Where scripts/test.sh installs onnx, onnxruntime and numpy; what is installed otherwise comes first.
_HERE = pathlib.Path(__file__).resolve()
sys.path.append(str(_HERE.parents[3] / ".deps" / "onnx"))
sys.path.append(str(_HERE.parents[1] / "run"))

import torch
import torch.nn as nn
import torch.nn.functional as F

from train_programs import Block

warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)
torch.set_num_threads(1)
SIZES = (1, 3, 27)
EXPORTED = 8  # samples
BOUNDS = {"bounded_pieces": (6, 8)}  # batch sizes; others are refused
TOLERANCE = 1e-5  # of the largest output: both are sums of float32 in orders of their own


class Apply(nn.Module):
    """A function as a model."""

    def __init__(self, function, **parts):
        super().__init__()
        self.function = function
        for name, part in parts.items():
            if isinstance(part, nn.Module):
                setattr(self, name, part)
            else:
                self.register_buffer(name, part)

    def forward(self, *inputs):
        return self.function(self, *inputs)


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.layers, self.fc = nn.Sequential(Block(8, 8, 1), Block(8, 16, 2), Block(16, 32, 2)), nn.Linear(32, 10)

    def forward(self, x):
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(self.layers(self.stem(x)), 1), 1))


class Gpt(nn.Module):
    """A block of nanoGPT, its head tied to the embedding."""

    def __init__(self, tokens=50, width=32, heads=4):
        super().__init__()
        self.heads = heads
        self.wte, self.wpe = nn.Embedding(tokens, width), nn.Embedding(16, width)
        self.ln1, self.ln2, self.lnf = nn.LayerNorm(width), nn.LayerNorm(width), nn.LayerNorm(width, bias=False)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.head = nn.Linear(width, tokens, bias=False)
        self.head.weight = self.wte.weight
        self.drop = nn.Dropout(0.1)

    def forward(self, ids):
        batch, time = ids.shape
        x = self.drop(self.wte(ids) + self.wpe(torch.arange(time)))
        q, k, v = (t.view(batch, time, self.heads, -1).transpose(1, 2) for t in self.qkv(self.ln1(x)).split(x.shape[-1], 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y + F.scaled_dot_product_attention(q, k, v, attn_mask=torch.ones(time, time, dtype=torch.bool).tril(2))
        x = x + self.drop(self.proj(y.transpose(1, 2).contiguous().view(batch * time, -1)).view(batch, time, -1))
        x = x + self.drop(self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh")))
        return self.head(self.lnf(x))


class Recurrent(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.rnn = kind(16, 24, 2, dropout=0.1, **options)
        self.head = nn.Linear(48 if options.get("bidirectional") else 24, 5)

    def forward(self, x):
        x, state = self.rnn(x if self.rnn.batch_first else x.transpose(0, 1))
        return self.head(x), state[0] if isinstance(state, tuple) else state


class Projected(nn.Module):
    """An LSTM with projections, from zeros and from states of its own."""

    def __init__(self, **options):
        super().__init__()
        self.rnn, self.start = nn.LSTM(16, 24, 2, proj_size=6, batch_first=True, **options), nn.Linear(16, 6)

    def forward(self, x):
        x, (h, c) = self.rnn(x)
        begin = self.start(x[:, 0].repeat(1, 3)[:, :16]).expand(h.shape)
        again, (hidden, cells) = self.rnn(F.pad(x, (0, 16 - x.shape[2])), (begin, c))
        return x, h, c, again, hidden, cells


class Cells(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.gru, self.rnn = nn.LSTMCell(16, 24), nn.GRUCell(24, 24), nn.RNNCell(24, 24, bias=False)

    def forward(self, x):
        h = c = torch.zeros(x.shape[0], 24)
        for step in x.unbind(1)[:3]:
            h, c = self.lstm(step, (h, c))
            h = self.rnn(h, self.gru(h, c))
        return h, c


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right, self.head = nn.Linear(20, 8), nn.Bilinear(8, 20, 8), nn.Linear(8, 3)

    def forward(self, x, other):
        hidden = self.left(x)
        return {"value": self.head(self.right(hidden, other) * torch.sigmoid(hidden)), "hidden": hidden}


class Dictionary(nn.Module):
    def __init__(self):
        super().__init__()
        self.image, self.row = nn.Conv2d(3, 4, 3), nn.Linear(20, 4)

    def forward(self, batch):
        return {"sum": self.image(batch["image"]).mean((2, 3)) + self.row(batch["row"])}


class Sizes(nn.Module):
    """Arithmetic with the batch's size."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(20, 4)

    def forward(self, x):
        batch = x.shape[0]
        both = torch.cat([x, x.flip(0)], 0).view(2 * batch, 20)
        y = self.fc(both)[: batch + 0] + self.fc(both)[batch:] * (1.0 / batch)
        y = y + torch.arange(batch * 4).view(batch, 4) / batch + torch.zeros(batch, 4) + torch.full((batch * 2 + 3,), 0.5).sum()
        return y + (x.numel() // 7 % 5) + x.new_ones(batch, 1).expand(batch, 4)


class InPlace(nn.Module):
    """Writes that others do not see, and those that the same tensor sees."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(20, 20)

    def forward(self, x):
        y = self.fc(x)
        same = y.detach()
        y.mul_(2).clamp_(-1, 1).add_(x, alpha=0.5)
        z = torch.zeros_like(x)
        z[:] = y
        row = self.fc(y).view(-1)
        row.relu_()
        return row.view(-1, 20) + z + same.new_zeros(20).fill_(3), same * 1


class Masked(nn.Module):
    """Fills constants part by part, as Swin does with its mask, and has dropout in place, also of a view."""

    def __init__(self):
        super().__init__()
        self.fc, self.drop = nn.Linear(20, 20), nn.Dropout(0.1, inplace=True)

    def forward(self, x):
        regions = torch.zeros(1, 4, 5)
        for number, (rows, columns) in enumerate([(slice(0, 2), slice(0, 3)), (slice(2, 4), slice(0, 3)), (slice(0, 4), slice(3, 5))]):
            regions[:, rows, columns] = number
        windows = regions.view(-1, 20)
        mask = windows.unsqueeze(1) - windows.unsqueeze(2)
        mask = mask.masked_fill(mask != 0, -100.0).masked_fill(mask == 0, 0.0)
        places = torch.arange(20).repeat(20, 1)
        places[1:, 0] = 3
        places[0:, 2].add_(1)
        h = self.drop(self.fc(x))
        flat = F.dropout(h.view(-1), 0.3, self.training, inplace=True)
        return torch.softmax(h.unsqueeze(1) + mask, -1), h.unsqueeze(1) * places, flat.view(-1, 20) + regions.view(-1)


def rows(batch):
    return torch.randn(batch, 20)


def images(batch):
    return torch.randn(batch, 3, 16, 16)


def sequences(batch):
    return torch.randn(batch, 12, 16)


def tokens(batch):
    return torch.randint(50, (batch, 12))


def dictionary(batch):
    return {"image": images(batch), "row": rows(batch)}


def lenet():
    return nn.Sequential(nn.Conv2d(3, 6, 5, padding=2), nn.Sigmoid(), nn.AvgPool2d(2, 2), nn.Conv2d(6, 16, 5), nn.Sigmoid(),
                         nn.AvgPool2d(2, 2), nn.Flatten(), nn.Linear(64, 120), nn.Sigmoid(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10))


def activations(_, x):
    kinds = [F.relu, F.gelu, F.silu, F.elu, F.leaky_relu, F.hardtanh, torch.sigmoid, torch.tanh, F.softplus, F.mish, F.selu, F.hardswish,
             F.hardsigmoid, F.logsigmoid, F.celu, F.relu6, F.softshrink, F.hardshrink, F.softsign, F.tanhshrink, F.glu]
    some = [each(x) for each in kinds[:-1]] + [F.gelu(x, approximate="tanh"), F.softplus(x, 2.0, 1.5), F.threshold(x, 0.1, 20), F.elu(x, 0.3)]
    return torch.stack(some, 1), F.glu(x)


def arithmetic(_, x):
    p = x.abs() + 0.5
    some = [x + 1, x - 2.5, 3 - x, x * x, x / p, 2 / p, torch.exp(x), torch.log(p), torch.sqrt(p), torch.rsqrt(p), -x, x.pow(3), p**0.3, 2**x,
            p**x, torch.erf(x), torch.erfc(x), torch.sin(x), torch.cos(x), torch.tan(x), x.clamp(-0.5, 1), x.clamp(min=0), x.clamp_max(0.2),
            torch.maximum(x, p - 1), torch.minimum(x, -p), x.floor(), x.ceil(), x.round(), x.trunc(), x.sign(), p.reciprocal(), torch.log2(p),
            torch.log10(p), torch.log1p(p), torch.expm1(x), torch.exp2(x), x.square(), torch.add(x, p, alpha=2), torch.sub(x, p, alpha=0.5),
            torch.addcmul(x, x, p, value=0.1), torch.addcdiv(x, x, p), torch.lerp(x, p, 0.3), torch.div(x, p, rounding_mode="floor"),
            torch.div(x, p, rounding_mode="trunc"), x % 0.7, torch.fmod(x, 0.7), x // 0.3, torch.asin(x.tanh()), torch.atan(x),
            torch.sinh(x), torch.cosh(x)]
    return torch.stack(some, 1)


def comparisons(_, x):
    n = (x * 3).long()
    flags = [x > 0, x >= n, n < 1, n <= 2.5, n == 0, n != x.round(), (x > 0) & (n < 1), (x > 0) | (n < 1), (x > 0) ^ (n < 1), ~(x > 0),
             torch.logical_not(n), torch.logical_and(x, n), torch.isnan(x), torch.isinf(1 / n)]
    some = [torch.where(x > 0, x, 2.0), torch.where(n > 0, n, x), x.masked_fill(x < 0, -3), torch.where(x > 0, 1.0, 0.0).type_as(x), n * 2 + x,
            (x > 0).float() * 2, (x > 0) + 1.5, (n * 7 % 5).to(torch.float32), torch.div(n, 2, rounding_mode="floor") * 1.0, (n // 3) * 0.5]
    some_flags = [torch.where(x > 0, n > 1, n < -1), (n > 1).masked_fill(x > 1, False), torch.maximum(x > 0, n < 1), torch.minimum(x > 0, n < 2),
                  (n > 1).index_put((x < 0,), torch.tensor(True))]
    return torch.stack(flags, 1), torch.stack(some, 1), n.int(), torch.stack(some_flags), torch.stack([n.relu(), n.floor(), n.ceil(), n.round()])


def exactness(_, x):
    """Where a simple formula would lose digits, or NaN."""
    small, p, power = x * 1e-6, x.abs() + 0.5, (x.abs() * 2).round()
    some = [torch.log1p(small) * 1e6, torch.expm1(small) * 1e6, torch.log1p(p), torch.expm1(x), torch.log2(torch.exp2(x.round())).floor(),
            torch.log2(p), (x.round() * 0.1) // 0.1, x // -0.3, torch.floor_divide(x, p), (x.round() * 0.1) % 0.1, x % -0.7, torch.remainder(x, p),
            torch.logaddexp(x, x + 3), torch.logaddexp(x * 100, -x * 100), torch.hypot(x * 1e30, p * 1e30) / 1e30, torch.hypot(x, p), torch.frac(x * 3),
            (torch.log10(10 ** power) - power) * 1e6]
    odd = torch.where(x > 1, float("nan"), torch.where(x < -1, float("inf"), torch.where(x < -0.5, float("-inf"), x)))
    with_nan = [F.threshold(odd, 0.1, 20), F.hardshrink(odd), F.softshrink(odd), F.softshrink(x, 0.2), odd.sign()]
    numbers = [torch.nan_to_num(odd, 1.5, 2, -3), torch.nan_to_num(odd, posinf=1, neginf=2)]
    return torch.stack(some, 1), torch.stack(with_nan, 1), torch.stack(numbers, 1)


def aliases(_, x):
    p = x.abs() + 0.5
    some = [x.clip(-1, 1), x.multiply(p), x.subtract(p, alpha=2), x.divide(p), x.true_divide(2), torch.negative(x), torch.absolute(x), torch.fix(x),
            x.divide(p, rounding_mode="trunc"), torch.arctan(x)]
    flags = [x.greater(p), x.less_equal(0.5), x.not_equal(1), x.greater_equal(p), x.less(p)]
    return torch.stack(some, 1), torch.stack(flags, 1)


def windows(_, x):
    y = x.view(-1, 4, 5)
    some = [x.diff(), x.diff(n=2, dim=1), y.diff(dim=1, prepend=y[:, :1], append=y[:, -1:]), (x > 0).diff(), x.unfold(1, 4, 3), y.unfold(-1, 2, 1),
            x.unfold(0, 1, 1), torch.cat([x, x]).unfold(0, 2, 2), y.diagonal(dim1=1, dim2=2), y.diagonal(1, -1, 1), y.diagonal(-2, 1, 2),
            y.repeat_interleave(3, 1), x.repeat_interleave(2, 0), x.repeat_interleave(2), torch.cat([x, x.repeat_interleave(0, 1)], 1), y.repeat_interleave(torch.tensor([1, 0, 2, 3]), 1),
            torch.hstack([x, x]), torch.vstack([x, x]), torch.column_stack([x[:, 0], x, x[:, 1]]), torch.hstack([x[0], x[0] * 2]),
            torch.vstack([x[0], x]), *y.tensor_split([1, 3], 1), torch.cdist(y, y[:, :2]), torch.cdist(x, x, p=1.0),
            torch.cdist(x, x[:1] + 1, p=float("inf"))]
    return tuple(some)


def spatial(_, x):
    grid = F.affine_grid(x[:, 0, :2, :3], [x.shape[0], 3, 7, 9], align_corners=False)
    some = [F.unfold(x, 3, padding=1, stride=2), F.unfold(x, (2, 3), dilation=2), F.pixel_unshuffle(x, 4), F.interpolate(x, size=(7, 9), mode="nearest-exact"),
            F.interpolate(x[:, 0], scale_factor=2, mode="nearest-exact"), grid]
    some += [F.grid_sample(x, grid, mode, padding, align_corners=corners) for mode in ("bilinear", "nearest", "bicubic")
             for padding, corners in (("zeros", False), ("border", True), ("reflection", False))]
    return tuple(some)


def order(_, x):
    y, n = x.view(-1, 4, 5), (x * 3).long()
    odd = torch.where(x > 1.5, float("nan"), x)
    some = [*y.sort(2), *y.sort(1, descending=True), *n.sort(dim=1, stable=True), n.argsort(dim=1, stable=True), y.argsort(descending=True), *(x > 0).sort(dim=1, stable=True),
            y.median(), y.median(1)[0], odd.median(1, keepdim=True)[0]]
    return tuple(some)


def scatters(_, x):
    y, index = x.view(-1, 4, 5), (x.abs() * 7).long() % 20
    rows = torch.tensor([2, 0, 2])
    some = [x.scatter_add(1, index, x), x.scatter(1, index[:, :1], x), x.scatter(1, index, 2.5), torch.zeros_like(x).scatter_reduce(1, index, x, "sum"),
            x.scatter_reduce(1, index, x * 2, "amax"), x.scatter_reduce(1, index, x, "amin"), x.scatter_reduce(1, index, x, "prod"),
            y.index_add(1, rows, y[:, :3], alpha=2), y.index_copy(1, rows[:2], y[:, :2] * 2), y.index_put((torch.tensor([0, 0]), rows[:2]), y[:2, 0] * 0 + 3),
            y.index_put((torch.tensor([0, 0, 0]), rows), torch.ones(5), accumulate=True), x.index_put((x > 0,), torch.tensor(-1.0)),
            y.index_put((y[:, :, 0] > 0,), torch.tensor(4.0))]
    some += inner_indices(y, rows, torch.tensor([[4], [0]]))
    return tuple(some)


def inner_indices(y, rows, columns):
    """Of dimensions after others, as in the diagonals of dense graphs."""
    z, ends = y.unsqueeze(2).repeat(1, 1, 4, 1) + 0, torch.arange(4)
    z[:, ends, ends] = 1
    z[:, :, 2, torch.tensor([0, 3])] += 2
    return [z, y[:, rows, columns], y[:, rows, rows], z[:, :, rows, columns], z[:, ends, ends], z[:, rows, columns % 4],
            z[:, rows, :, rows], z[:, rows, :, columns], y[rows * 0, :, rows], z[torch.tensor(0), :, rows, rows],
            *(torch.ops.aten.index_put(*each) for each in (
                (y, [None, rows, columns], y[:, :2, :3]), (y, [None, rows[:2]], y[:, :2] * 2), (y, [None, rows, rows], torch.ones(3), True),
                (z, [None, None, ends, ends], torch.ones(4), True), (z, [None, rows[:2], None, columns], z[:, 0, :, 0]),
                (z, [None, rows[:2], None, rows[:2]], z[:, :2, :, 1].transpose(0, 1)), (z, [None, rows, None, rows], torch.ones(4), True),
                (y, [rows * 0, None, rows], torch.ones(3, 1), True), (y, [None, y[0, :, 0] > 0], torch.tensor(7.0)), (y, [None, y[0] > 0], torch.tensor(8.0)),
                (z, [None, None, y[0] > 0], torch.tensor(9.0))))]


def odd_values(x):
    """NaN, infinite numbers and zeros of both signs among others."""
    special = torch.tensor([float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1.0, -1.0])
    return torch.where(x.abs() <= 0.3, x, special[(x.abs() * 100).long() % 7])  # onnxruntime keeps -0 of the last operand only


def angles(_, x):
    pairs = torch.tensor([float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1.5, -1e-30, 1e38])
    grid, odd = torch.atan2(pairs.view(-1, 1) + 0 * x[:1, :1], pairs), odd_values(x)
    flat = torch.atan2(pairs * x[0, 0].abs(), pairs.flip(0))
    return torch.atan2(x, x.flip(1)), grid, 1 / grid, torch.atan2(odd, odd.flip(1)), 1 / torch.atan2(odd, odd.roll(1, 1)), flat, torch.arctan2((x * 3).long(), (x * 3).long().flip(1)), torch.hypot(pairs.view(-1, 1) + 0 * x[:1, :1], pairs)


def sums_and_products(_, x):
    y, odd = x.view(-1, 4, 5), odd_values(x).view(-1, 4, 5)
    some = [y.cumprod(1), (y * 1e20).cumprod(-1), odd.cumprod(2), (x * 3).long().cumprod(1), (x > 0).cumprod(1), y[:, :1].cumprod(1), y[:, :0].cumprod(1), (x * 2).int().cumprod(1, dtype=torch.float32)]
    some += [torch.tensordot(y, y[0], 2), torch.tensordot(y, y[0], ([2, 1], [1, 0])), torch.tensordot(y, y, ([-1], [2])), torch.tensordot(x[0], x[0], 0),
             torch.tensordot(odd, y[0].t(), 1), torch.tensordot(y[:, :, :0], y[0, :0], 1)]
    return tuple(some)


def lengths(_, x):
    y, odd, norm = x.view(-1, 4, 5), odd_values(x).view(-1, 4, 5), torch.linalg.norm
    some = [norm(y), norm(y, dim=1), norm(y, dim=(0, 2)), norm(y[0]), norm(y[0], 1), norm(y[0], float("-inf")), norm(x[0], 0), norm(x[0], 3)]
    for order in (1, -1, float("inf"), float("-inf"), "fro"):
        some += [norm(torch.stack([each[0], each[0].flip(1)]), order, (1, 2), keepdim=keep) for keep in (False, True) for each in (y, odd)]
        some += [norm(y[0], order, (-1, 0))]
    some += [torch.linalg.vector_norm(odd, order, dim, keepdim=keep) for order in (0, 1, 2, 3.5, float("inf"), float("-inf")) for dim, keep in ((1, True), (-1, False), (None, False))]
    some += [torch.linalg.matrix_norm(y[0], 1), torch.linalg.matrix_norm(y, keepdim=True), norm(y[:, :0], dim=1), norm(y[:, :0], 0, dim=1)]
    return *some, odd.amax(1), odd.amin((1, 2), keepdim=True), odd.max(), y.min(), (y * 3).long().amax(1)


def histograms(_, x):
    odd = odd_values(x)
    some = [x.histc(7, -1, 1), x.histc(), x.histc(5), odd.histc(10, -1, 1), torch.histc(odd, 4, -0.5, 3), x.round().histc(8, 0, 8), x[:, :0].histc(3), x[:, :0].histc(3, 0, 1),
            (x[:1, :1] * 0).histc(4), x.histc(4, 1, 1)]
    return tuple(some)


def bags(self, x):
    index, weight = (x.abs() * 50).long() % 30, self.table
    ends, weights = torch.tensor([0, 3, 3, 11, 20, 20]), torch.cat([x[0], x[0] * 0 + 1])
    some = [F.embedding_bag(index, weight, mode=mode, padding_idx=padding) for mode in ("sum", "mean", "max") for padding in (None, 4, -1)]
    some += [F.embedding_bag(index[0], weight, ends, mode=mode, padding_idx=index.shape[1] - 13) for mode in ("sum", "mean", "max")]
    some += [F.embedding_bag(index[0], weight, ends, include_last_offset=True, mode=mode) for mode in ("sum", "mean")]
    return *some, F.embedding_bag(index, weight, mode="sum", per_sample_weights=x), F.embedding_bag(index.int()[0], weight, (ends / 2).int(), mode="sum")


def dynamic_pieces(_, x):
    """Pieces whose lengths depend on the batch."""
    pair = torch.cat([x, x + 1])
    return *pair.tensor_split(2), *pair.t().tensor_split(2, -1), *pair.split([x.shape[0], x.shape[0]])


def bounded_pieces(_, x):
    """As many pieces as any batch of the exported range has."""
    return *x.split(4), *(x.t() + 1).split(4, 1)


def noise(_, x):
    """The numbers are others in each run, of the normal distribution."""
    long = x.repeat(1, 100)
    first, second = torch.randn_like(long), torch.randn_like(long, dtype=torch.float64)
    flags = [first.mean(1).abs() < 0.2, (first.std(1) - 1).abs() < 0.2, (second.var(1) - 1).abs() < 0.3, (first - second).abs().mean(1) > 0.5, second.amax(1) > 2]
    return torch.stack(flags), first * 0, second * 0


def fourier(_, x):
    y, fft = x.view(-1, 4, 5), torch.fft
    z = torch.complex(y, y.flip(2))
    kinds = ("backward", "ortho", "forward")
    some = [fft.fft(y), fft.fft(z, dim=1), fft.ifft(z, norm="ortho"), fft.fft(z, 3), fft.fft(z, 8, 1), fft.rfft(y), fft.rfft(y, dim=-2), fft.rfft(x, 32), fft.rfft(y, 3, 1),
            fft.ihfft(y), fft.ihfft(x, 9), fft.fft2(y), fft.fftn(y, dim=(1, 2)), fft.ifft2(z, s=(3, 6)), fft.fftn(z, s=(2, 7)), fft.rfft2(y), fft.rfftn(y, dim=(2, 1), norm="ortho"),
            fft.fftshift(z, 1), fft.ifftshift(z, (1, 2)), fft.fft(x.long()), fft.fftn(y, s=(2, -1), dim=(-1, 1)), fft.fft(y[:, :1], dim=1)]
    some += [fft.rfft(y, norm=kind) for kind in kinds] + [fft.ifft(y, 7, norm=kind) for kind in kinds]
    real = [fft.irfft(z), fft.irfft(z, 7), fft.irfft(z, 3), fft.irfft(z, 12, 1), fft.irfft(y), fft.irfft2(y), fft.hfft(z, norm="ortho"), fft.hfft(z, 5, 1), fft.irfft2(z, s=(4, 9)), fft.irfftn(z, dim=(1, 2)), fft.fftshift(y, 2),
            fft.irfft(fft.rfft(x), 20) - x, fft.ifft2(fft.fft2(z)).real, fft.fftn(fft.fft(y), dim=1).real, fft.fft(fft.fft(y, dim=-1), dim=-2).imag]
    real += [fft.irfft(z, norm=kind) for kind in kinds]
    with_nan = torch.cat([x, x * float("nan")], 1)
    return *[torch.view_as_real(each.resolve_conj()) for each in some], *real, fft.rfft(with_nan, 20).abs(), fft.irfft(torch.complex(with_nan, with_nan), 38), fft.rfft(x.double(), 16).imag


def complex_numbers(self, x):
    y = x.view(-1, 4, 5)
    z, w = torch.complex(y, y.flip(2)), torch.complex(y[:, :1] + 1, y.roll(1, 2)[:, :1])
    filled = torch.zeros(x.shape[0], 4, 5, dtype=torch.complex64)
    filled[:, 1:3, :2] = z[:, :2, 3:] * 2
    filled[:, 0, 1] = w[:, 0, 0]
    some = [z * w, z * 2, z * y, y * z, z * (1 - 2j), z + w, z - 1.5, 2j - z, z + y, y - z, z / 3, z / (y * y + 1), -z, z.conj(), z.conj() * w, z.conj_physical(), z.conj().resolve_conj(),
            torch.einsum("bij,bkj->bik", z, w), torch.einsum("bij,ijk->bk", z, self.weight), torch.einsum("bij,ij,jk->bik", z, self.weight[:, :, 0], self.weight[0]),
            torch.einsum("bij,bkj->ik", w, z), z @ w.mT, torch.tensordot(z, self.weight, 2), torch.tensordot(self.weight, z, ([0], [1])),
            torch.cat([z, w, y[:, :1].to(torch.complex64)], 1), torch.stack([z, z * 2]), torch.cat([z, y], 2), z[:, 1:, ::2], z[:, -1], z.permute(2, 0, 1), z.mT, z.reshape(-1, 20), z.flatten(1), z.unsqueeze(1),
            w.expand(-1, 4, 5), z.roll(2, 1), z.flip(1), F.pad(z, (1, 2, 0, 1)), torch.where(y > 0, z, w), torch.where(y > 0, z, 0.0), z.masked_fill(y > 1, 3), z.sum(1), z.mean((1, 2), keepdim=True),
            torch.zeros_like(z), torch.full_like(z, 2 - 1j), torch.full_like(z, 3.5), z.index_select(1, torch.tensor([2, 0])), z[:, torch.tensor([1, 1, 3])], torch.polar(y.abs(), y), torch.view_as_complex(y[:, :, :2].contiguous()), filled,
            z.clone(), z.to(torch.complex128), y.to(torch.complex64), torch.complex(y, y[:, :1, :1]), self.weight[0] + 0 * z[:1, :1, :3].sum(), *z.split(2, 1), *z.unbind(1), z.narrow(2, 1, 3)]
    real = [z.abs(), (z * 1e25).abs(), z.angle(), z.real, z.imag, z.conj().imag, F.gelu(z.real), torch.view_as_real(z)[..., 0] + z.imag]
    return *[torch.view_as_real(each.resolve_conj()) for each in some], *real


def written_pieces(_, x):
    """Writes to slices, which the whole tensor sees."""
    y = x.view(-1, 4, 5) * 1
    y[:, 0] = 7
    y[:, 1:3] += 1
    y[:, -1, 2:].mul_(2)
    y[:, :, -2] = x[:, :4]
    y[..., 1:-2, 3].relu_()
    y[0] = 3
    y[-1, 1] -= 2
    y[:, 3:1] = 5
    y[:, 9:] = 5
    rows = torch.cat([x, x + 1, x]) * 2
    rows[1:] += 1
    rows[:-1, 2] = 4
    rows[:1] -= 1
    rows[:] = rows * 3
    inner = torch.cat([rows, rows])[1:]
    inner[:, :3] = 0
    inner.detach()[1:, 4:6] = 1
    mask = torch.zeros(4, 5)
    mask[1:, 2] = y[0, 0, 0]
    return y, rows, inner, mask


def shapes(_, x):
    y = x.view(-1, 4, 5)
    some = [y, y.flatten(1), y.flatten(0, 1), y.permute(2, 0, 1), y.transpose(1, 2), y.mT, y.unsqueeze(1).squeeze(1), y.unsqueeze(-1),
            y[:, :1].expand(-1, 4, 5), y[:, :1].expand_as(y), y.repeat(1, 2, 1), y.repeat(2, 1, 1, 1), y.tile(2), y.flip(1), y.flip([0, 2]),
            y.movedim(0, 2), y.unflatten(2, (5, 1)), y.swapaxes(0, 1), y.reshape(-1), x.t(), F.pad(y, (1, 2, 0, 1), value=0.5),
            F.pad(y, (1, 2), mode="reflect"), F.pad(y, (1, 2), mode="replicate"), F.pad(y, (2, 1), mode="circular"), y.roll(2, 1), y.contiguous()]
    return tuple(some)


def pieces(_, x):
    y = x.view(-1, 4, 5)
    a, b = y.split([1, 3], 1)
    c, d, e = y.split(2, 2)
    f, g = y.chunk(2, 1)
    h, *_ = y.unbind(1)
    index = torch.tensor([2, 0])
    some = [a, b, c, d, e, f, g, h, y[:, 1], y[:, -1], y[0], y[:, 1:3], y[:, :, ::2], y[:, 1:], y[:, :-1], y[..., -2:], y.narrow(1, 1, 2), y.narrow(1, -2, 2), y.narrow(1, -3, 2),
            torch.cat([a, b, a], 1), torch.cat([x, x.long()]), torch.stack([y, y], -1), y.index_select(1, index), y[:, index],
            y.gather(2, (y > 0).long()), y[:, :, torch.tensor([[0, 1], [2, 3]])], y[torch.tensor([0, 0]), index], y.triu(), y.tril(-1),
            y.cumsum(1), F.one_hot((x > 0).long(), 3), y.topk(3, 2)[0], y.topk(2, 1)[1], torch.ones(4, 5, dtype=torch.bool).triu(1) & (y > 0)]
    return tuple(some)


def products(self, x):
    y = x.view(-1, 4, 5)
    some = [y @ self.square, torch.bmm(y, y.transpose(1, 2)), x.mm(x.t()), torch.addmm(x[0], x, self.big, alpha=0.5, beta=2),
            torch.baddbmm(y, y, y.transpose(1, 2) @ y), F.linear(y, self.square), F.linear(x, self.big), torch.einsum("bij,jk->bik", y, self.square),
            torch.einsum("b i j, b k j -> b i k", y, y), torch.matmul(y, self.square[0]), torch.outer(x[0], x[0]), F.linear(y, self.square, y[0, 0])]
    return tuple(some)


def pools(self, x):
    some = [F.max_pool2d(x, 2), F.max_pool2d(x, 3, 2, 1, ceil_mode=True), F.max_pool2d(x, 3, 1, 1, 2), F.avg_pool2d(x, 3, 2, 1),
            F.avg_pool2d(x, 3, 1, 1, count_include_pad=False), F.adaptive_avg_pool2d(x, 1), F.adaptive_avg_pool2d(x, (4, 8)),
            F.adaptive_avg_pool2d(x, (5, 7)), F.adaptive_max_pool2d(x, 1), F.adaptive_max_pool2d(x, 4), F.max_pool1d(x[:, 0], 2),
            F.avg_pool1d(x[:, 0], 4, 2), F.max_pool3d(x[:, None], (1, 2, 2)), F.avg_pool3d(x[:, None], (3, 2, 2)),
            F.adaptive_avg_pool1d(x[:, 0], 1), F.interpolate(x, scale_factor=2), F.interpolate(x, size=(24, 20)),
            F.interpolate(x, scale_factor=2, mode="bilinear"), F.interpolate(x, size=(20, 24), mode="bilinear", align_corners=True),
            F.interpolate(x[:, 0], scale_factor=2, mode="linear"), F.interpolate(x, scale_factor=1.5, mode="nearest"),
            F.interpolate(x, size=(7, 9), mode="bilinear"), F.interpolate(x, scale_factor=2, mode="bicubic"),
            F.interpolate(x, size=(5, 7), mode="bilinear", antialias=True), F.interpolate(x, scale_factor=1.5, mode="bilinear", antialias=True),
            torch.ops.aten.upsample_bilinear2d(x, [5, 7], False), torch.ops.aten._upsample_bilinear2d_aa(x, [5, 7], False),
            F.pixel_shuffle(x.repeat(1, 4, 1, 1), 2), F.max_pool2d(x[0], 2), F.avg_pool2d(x[0], 2)]
    return tuple(some)


def convolutions():
    parts = {"a": nn.Conv2d(3, 6, 3, stride=2, padding=1, groups=3), "b": nn.Conv2d(6, 4, (3, 2), padding="same", dilation=2),
             "c": nn.ConvTranspose2d(4, 5, 3, 2, 1, output_padding=1), "d": nn.Conv2d(5, 2, 3, padding=1, padding_mode="circular"),
             "e": nn.Conv1d(16, 4, 5, padding="same"), "f": nn.ConvTranspose1d(4, 3, 4, 2), "g": nn.Conv3d(1, 2, (3, 3, 3), padding=(0, 1, 1)),
             "h": nn.ConvTranspose3d(2, 1, 2, 2, bias=False)}

    def forward(m, x):
        y = m.d(m.c(m.b(m.a(x))))
        return y, m.f(m.e(y[:, 0])), m.h(m.g(x[:, None])), m.a(x[0])

    return Apply(forward, **parts)


def norms():
    parts = {"a": nn.BatchNorm2d(3), "b": nn.GroupNorm(3, 6), "c": nn.InstanceNorm2d(3, affine=True), "d": nn.LayerNorm([16, 16]),
             "e": nn.InstanceNorm2d(3, track_running_stats=True), "f": nn.RMSNorm(16), "g": nn.BatchNorm1d(16, affine=False),
             "h": nn.LayerNorm(16, elementwise_affine=False), "i": nn.PReLU(3), "j": nn.PReLU(), "k": nn.LocalResponseNorm(2)}

    def forward(m, x):
        y = m.f(m.e(m.d(m.c(m.i(m.a(x))))))
        return (m.b(y.repeat(1, 2, 1, 1)), m.g(y.mean(2).transpose(1, 2)), m.h(y), m.j(y), y.softmax(1), y.log_softmax(-1), F.softmin(y, 1),
                F.normalize(y, dim=1), torch.softmax(y.long(), 1, dtype=torch.float32), F.cosine_similarity(y, x, dim=1))

    return Apply(forward, **parts)


def reductions(_, x):
    y = x.view(-1, 4, 5)
    some = [y.mean(1), y.mean((1, 2), keepdim=True), y.sum(-1), y.amax(1), y.amin((1, 2)), y.argmax(1), y.argmin(-1, keepdim=True), y.max(1)[0],
            y.min(2)[1], y.prod(1), y.var(1), y.std((1, 2)), y.var(2, unbiased=False), y.logsumexp(1), y.norm(dim=1), y.abs().sum((0, 1, 2)),
            y.mean(), y.max(), y.var(), (y > 0).any(1), (y > 0).all(2), (y > 0).sum(1), torch.linalg.vector_norm(y, 3, 1), y.argmax(),
            torch.linalg.vector_norm(y, float("inf"), 2), torch.var_mean(y, 1)[1], y.norm(p=1, dim=2), y.long().sum(1)]
    return tuple(some)


def attention(_, x):
    q = x.view(-1, 12, 4, 4).transpose(1, 2)
    mask = torch.ones(12, 12, dtype=torch.bool).tril(-1)  # the first place looks at nothing
    some = [F.scaled_dot_product_attention(q, q, q), F.scaled_dot_product_attention(q, q[:, :, :7], q[:, :, :7], is_causal=True),
            F.scaled_dot_product_attention(q, q, q, attn_mask=mask), F.scaled_dot_product_attention(q, q, q, attn_mask=q @ q.mT, scale=0.3),
            F.scaled_dot_product_attention(q, q[:, :2], q[:, :2], enable_gqa=True), F.scaled_dot_product_attention(x, x, x, is_causal=True)]
    return tuple(some)


def multihead():
    parts = {"a": nn.MultiheadAttention(16, 4, batch_first=True), "b": nn.MultiheadAttention(16, 2)}

    def forward(m, x):
        mask = torch.nn.Transformer.generate_square_subsequent_mask(12)
        return *m.a(x, x, x, attn_mask=mask), m.b(x.transpose(0, 1), x.transpose(0, 1), x.transpose(0, 1), need_weights=False)[0]

    return Apply(forward, **parts)


# name: the model and its inputs
MODELS = {
    "linear_regression": (lambda: nn.Linear(20, 1), [rows]),
    "softmax_regression": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(768, 10)), [images]),
    "mlp": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(768, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 10)), [images]),
    "lenet": (lenet, [images]),
    "small_cnn": (lambda: nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2),
                                        nn.Dropout2d(0.2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)), [images]),
    "resnet": (ResNet, [images]),
    "gru": (lambda: Recurrent(nn.GRU, batch_first=True), [sequences]),
    "lstm": (lambda: Recurrent(nn.LSTM, batch_first=True), [sequences]),
    "gpt": (Gpt, [tokens]),
    "encoder": (lambda: nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), [sequences]),
    "two_inputs": (TwoInputs, [rows, rows]),
    "dictionary": (Dictionary, [dictionary]),
    "gru_both_ways": (lambda: Recurrent(nn.GRU, bidirectional=True, bias=False), [sequences]),
    "lstm_both_ways": (lambda: Recurrent(nn.LSTM, bidirectional=True, batch_first=True), [sequences]),
    "rnn_tanh": (lambda: Recurrent(nn.RNN), [sequences]),
    "rnn_relu": (lambda: Recurrent(nn.RNN, nonlinearity="relu", bidirectional=True), [sequences]),
    "projected": (Projected, [sequences]),
    "projected_both_ways": (lambda: Projected(bidirectional=True, bias=False), [sequences]),
    "cells": (Cells, [sequences]),
    "encoder_norm_first": (lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, activation="gelu", norm_first=True,
                                                                                    batch_first=True), 2), [sequences]),
    "sizes": (Sizes, [rows]),
    "in_place": (InPlace, [rows]),
    "masked": (Masked, [rows]),
    "activations": (lambda: Apply(activations), [rows]),
    "arithmetic": (lambda: Apply(arithmetic), [rows]),
    "comparisons": (lambda: Apply(comparisons), [rows]),
    "exactness": (lambda: Apply(exactness), [rows]),
    "aliases": (lambda: Apply(aliases), [rows]),
    "windows": (lambda: Apply(windows), [rows]),
    "spatial": (lambda: Apply(spatial), [images]),
    "order": (lambda: Apply(order), [rows]),
    "scatters": (lambda: Apply(scatters), [rows]),
    "angles": (lambda: Apply(angles), [rows]),
    "sums_and_products": (lambda: Apply(sums_and_products), [rows]),
    "lengths": (lambda: Apply(lengths), [rows]),
    "histograms": (lambda: Apply(histograms), [rows]),
    "bags": (lambda: Apply(bags, table=torch.randn(30, 8)), [rows]),
    "dynamic_pieces": (lambda: Apply(dynamic_pieces), [rows]),
    "bounded_pieces": (lambda: Apply(bounded_pieces), [rows]),
    "noise": (lambda: Apply(noise), [rows]),
    "fourier": (lambda: Apply(fourier), [rows]),
    "complex_numbers": (lambda: Apply(complex_numbers, weight=torch.randn(4, 5, 3, dtype=torch.complex64)), [rows]),
    "written_pieces": (lambda: Apply(written_pieces), [rows]),
    "shapes": (lambda: Apply(shapes), [rows]),
    "pieces": (lambda: Apply(pieces), [rows]),
    "products": (lambda: Apply(products, square=torch.randn(5, 5), big=torch.randn(20, 20)), [rows]),
    "pools": (lambda: Apply(pools), [images]),
    "convolutions": (convolutions, [images]),
    "norms": (norms, [images]),
    "reductions": (lambda: Apply(reductions), [rows]),
    "attention": (lambda: Apply(attention), [sequences]),
    "multihead": (multihead, [sequences]),
}


def leaves(tree):
    return torch.utils._pytree.tree_leaves(tree)


def settle(model):
    """Statistics and scales that are not those of a new layer."""
    for layer in model.modules():
        if getattr(layer, "running_mean", None) is not None:
            layer.running_mean.normal_()
            layer.running_var.uniform_(0.5, 2)
        if isinstance(layer, (nn.BatchNorm1d, nn.BatchNorm2d, nn.GroupNorm, nn.LayerNorm, nn.InstanceNorm2d, nn.RMSNorm)) and layer.weight is not None:
            nn.init.normal_(layer.weight, 1, 0.3)
            if getattr(layer, "bias", None) is not None:
                nn.init.normal_(layer.bias)


def export(name, folder):
    make, inputs = MODELS[name]
    torch.manual_seed(3)
    model = make().eval()
    settle(model)
    examples = tuple(each(EXPORTED) for each in inputs)
    least, most = BOUNDS.get(name, (1, 1024))
    batch = torch.export.Dim("batch", min=least, max=most)
    dims = torch.utils._pytree.tree_map(lambda _: {0: batch}, examples)
    if isinstance(model, Apply):
        dims = (dims,)
    program = torch.export.export(model, examples, dynamic_shapes=dims)
    torch.export.save(program, folder / f"{name}.pt2")
    cases = []
    for size in range(least, most + 1) if name in BOUNDS else SIZES:
        given = [each(size) for each in inputs]
        with torch.no_grad():
            wanted = model(*given)
        cases.append((leaves(given), leaves(wanted)))
    torch.save(cases, folder / f"{name}.pt")


def cases_in(path):
    """(inputs, outputs) by batch size: ours, or a state dict of C++ with names such as in.3.0 and out.3.0."""
    cases = torch.load(path, weights_only=False)
    if isinstance(cases, list):
        return cases
    sizes = sorted({name.split(".")[1] for name in cases})
    return [tuple([value for name, value in cases.items() if name.startswith(f"{kind}.{size}.")] for kind in ("in", "out")) for size in sizes]


def largest(tensor):
    """Of the finite ones."""
    finite = tensor.double()[tensor.isfinite()].abs()
    return finite.max().item() if finite.numel() else 0.0


def differences(name, folder):
    path = str(folder / f"{name}.onnx")
    onnx.checker.check_model(path, full_check=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4 if name in BOUNDS else 3  # refusals are logged, too
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    for size in [each + by for each, by in zip(BOUNDS.get(name, ()), (-2, 1))]:
        try:
            session.run(None, {key: rows(size).numpy() for key in names})
            yield f"it takes {size} samples"
        except Exception as error:
            if "Split" not in str(error):
                raise
    for given, wanted in cases_in(folder / f"{name}.pt"):
        outputs = session.run(None, {key: value.numpy() for key, value in zip(names, given, strict=True)})
        if len(outputs) != len(wanted):
            yield f"{len(outputs)} outputs, wanted {len(wanted)}"
        for i, (ours, pythons) in enumerate(zip(outputs, wanted)):
            ours = torch.from_numpy(ours)
            if ours.shape != pythons.shape or ours.dtype != pythons.dtype:
                yield f"output {i} is {ours.dtype} {list(ours.shape)}, wanted {pythons.dtype} {list(pythons.shape)}"
            elif not torch.allclose(ours.double(), pythons.double(), 0, TOLERANCE * max(1, largest(pythons)), equal_nan=True):
                yield f"output {i} differs by {largest(ours.double() - pythons.double()):.3g} with {list(given[0].shape)}"


def main():
    what, folder, names = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]
    if what == "export":
        for name in names or MODELS:
            export(name, folder)
            print(name, flush=True)
    else:
        global onnx, onnxruntime
        import onnx
        import onnxruntime

        for name in names:
            try:
                for difference in differences(name, folder):
                    print(f"{name}: {difference}", flush=True)
            except Exception as error:
                print(f"{name}: {error}", flush=True)


if __name__ == "__main__":
    main()
