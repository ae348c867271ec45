"""python train_programs.py FOLDER: exports models (FOLDER/NAME.pt2), trains each of them in Python, by SGD with momentum and by AdamW,
and saves the batches, the losses and what the weights and buffers are in the end (FOLDER/NAME.OPTIMIZER.pt). Prints the names, a line
each with the loss that the model is trained by."""

import logging
import math
import pathlib
import sys
import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F

warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)
torch.set_num_threads(1)
STEPS, BATCH = 50, 8
BATCH_DIM = torch.export.Dim("batch", min=2, max=64)


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.down = None
        if stride != 1 or inputs != outputs:
            self.down = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        y += x if self.down is None else self.down(x)
        return self.relu(y)


class ResNet18(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        layers, inputs = [], width
        for k, outputs in enumerate([width, 2 * width, 4 * width, 8 * width]):
            layers += [Block(inputs, outputs, 1 if k == 0 else 2), Block(outputs, outputs, 1)]
            inputs = outputs
        self.layers, self.fc = nn.Sequential(*layers), nn.Linear(inputs, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x.to(memory_format=torch.channels_last).contiguous()))), 3, 2, 1)
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(self.layers(x), 1), 1))


class Gpt(nn.Module):
    """A block of nanoGPT, its head tied to the embedding."""

    def __init__(self, tokens=50, width=32, heads=4, time=16):
        super().__init__()
        self.heads = heads
        self.wte, self.wpe = nn.Embedding(tokens, width), nn.Embedding(16, width)
        self.ln1, self.ln2, self.lnf = nn.LayerNorm(width), nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.head = nn.Linear(width, tokens, bias=False)
        self.head.weight = self.wte.weight
        self.drop = nn.Dropout(0.1)
        self.register_buffer("scale", torch.ones(width))
        self.register_buffer("mask", torch.zeros(time, time), persistent=False)
        self.order = torch.tensor([2, 0, 1, 3])

    def forward(self, ids):
        batch, time = ids.shape
        x = self.drop(self.wte(ids) + self.wpe(torch.arange(time, device=ids.device)))
        q, k, v = (t.view(batch, time, self.heads, -1).transpose(1, 2)[:, self.order]
                   for t in self.qkv(self.ln1(x)).split(x.shape[-1], 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.1)
        y = y + F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask[:time, :time])
        x = x + self.drop(self.proj(y.transpose(1, 2).reshape(batch * time, -1)).view(batch, time, -1)) * self.scale
        x = x + self.drop(self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh")))
        x = x.masked_fill(torch.triu(torch.ones(time, 32, dtype=torch.bool), 40), float("-inf"))
        return self.head(self.lnf(x))


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.rnn = kind(16, 24, 2, batch_first=True, dropout=0.1)
        self.head = nn.Linear(24, 50)

    def forward(self, ids):
        return self.head(self.rnn(self.embedding(ids))[0])


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        # norm2 cancels a bias of down2: its gradient would be rounding alone, of which AdamW makes steps of full length.
        self.down1, self.down2 = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1, bias=False)
        self.norm1, self.norm2 = nn.GroupNorm(2, 8), nn.InstanceNorm2d(16, affine=True, track_running_stats=True)
        self.up, self.out = nn.ConvTranspose2d(16, 8, 2, stride=2), nn.Conv2d(16, 5, 1)

    def forward(self, x):
        first = F.silu(self.norm1(self.down1(x)))
        second = F.leaky_relu(self.norm2(self.down2(F.avg_pool2d(first, 2))))
        bigger = self.up(second) + F.interpolate(second[:, :8], scale_factor=2, mode="bilinear", align_corners=False)
        return self.out(torch.cat([first, bigger], 1)).mean((2, 3))


class ViT(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.place = nn.Parameter(torch.randn(1, 17, width))
        self.layer = nn.TransformerEncoderLayer(width, 4, 48, dropout=0.1, batch_first=True, norm_first=True)
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.place
        return self.head(self.layer(x)[:, 0])


class TiedMlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(20, 20), nn.Linear(20, 20)
        self.second.weight = self.first.weight
        self.head = nn.Linear(20, 4)

    def forward(self, x):
        return self.head(torch.tanh(self.second(F.elu(self.first(x)))))


class Mixed(nn.Module):
    """Dropout and batch norm, in training mode, and parts without gradients."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(20, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 16), nn.PReLU(),
                                 nn.AlphaDropout(0.1), nn.Linear(16, 4))

    def forward(self, x):
        with torch.no_grad():
            center, scale = x.mean(0, keepdim=True), self.net[0].weight.abs().mean()
        return self.net((x - center) / (1 + scale))


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right, self.head = nn.Linear(20, 8), nn.Bilinear(8, 20, 8), nn.Linear(8, 3)

    def forward(self, x, *, other):
        hidden = self.left(x)
        return {"value": self.head(self.right(hidden, other) * torch.sigmoid(hidden)), "hidden": hidden}


class LossInside(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(20, 16), nn.Softplus(), nn.Linear(16, 3))

    def forward(self, x, target):
        outputs = self.net(x)
        return F.smooth_l1_loss(outputs, target) + 0.01 * outputs.pow(2).mean(), outputs


class Sizes(nn.Module):
    """Arithmetic with the batch's size."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(20, 4)

    def forward(self, x):
        batch = x.shape[0]
        both = torch.cat([x, x.flip(0)], 0).view(2 * batch, 20)
        y = self.fc(both)[: batch + 0] + self.fc(both)[batch:] * (1.0 / batch)
        return y + torch.arange(batch * 4).view(batch, 4) / batch + torch.zeros(batch, 4)


class Conv1d(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv1d(3, 6, 5, padding="same"), nn.LayerNorm(16)
        self.weighted, self.head = nn.utils.parametrizations.weight_norm(nn.Linear(16, 16)), nn.Linear(96, 4)

    def forward(self, x):
        y = F.mish(self.norm(self.conv(x)))
        y = torch.einsum("bct,ts->bcs", y, self.weighted.weight) * torch.rsqrt(y.var(-1, keepdim=True) + 1e-3)
        return self.head(F.dropout(y.flatten(1), 0.2, self.training))


class Spectral(nn.Module):
    """A layer of a Fourier neural operator: complex weights on the frequencies of a row."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8, 6, dtype=torch.cfloat) / 8)
        self.lift, self.head = nn.Linear(1, 8), nn.Linear(8, 4)

    def forward(self, x):
        y = self.lift(x.unsqueeze(-1)).transpose(1, 2)
        modes = torch.fft.rfft(y)[:, :, :6] * (1 - 0.5j)
        y = y + torch.fft.irfft(torch.einsum("bim,iom->bom", modes, self.weight), n=x.shape[1])
        return self.head(F.gelu(y).mean(2))


class Selected(nn.Module):
    """Parts whose size depends on values."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(20, 16), nn.Linear(16, 4)

    def forward(self, x):
        y = torch.nan_to_num(self.body(x))
        places, numbers = (x > 1).nonzero(), (x[:, 0].abs() * 3).long()
        few = torch.unique_consecutive(numbers).sum() + torch.unique(numbers).sum() + torch.bincount(numbers, minlength=4)[:4].sum()
        y = y + y.masked_select(y > 0).sum() * 0.001 + x[places[:, 0], places[:, 1]].sum() * 0.01 + few * 0.001
        grown = F.interpolate(y.view(-1, 1, 4, 4), scale_factor=1.5, mode="nearest-exact").mean((1, 2, 3))
        return self.head(y + grown.unsqueeze(1)) + y.sum_to_size(x.shape[0], 1) * 0.05


def groups_of(offsets):
    ends = offsets.tolist()
    return [(i, begin, end) for i, (begin, end) in enumerate(zip([0] + ends, ends)) if begin < end]


@torch.library.custom_op("transformers::grouped_mm_fallback", mutates_args=())
def grouped_product(input: torch.Tensor, weight: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    """As in transformers: rows by expert, each group times the matrix of its expert; rows after the last group are 0."""
    result = torch.zeros(input.size(0), weight.size(2))
    for i, begin, end in groups_of(offs):
        torch.mm(input[begin:end], weight[i], out=result[begin:end])
    return result


@grouped_product.register_fake
def _(input, weight, offs):
    return input.new_empty(input.size(0), weight.size(2))


def grouped_backward(context, grad):
    input, weight, offs = context.saved_tensors
    of_input, of_weight = torch.zeros_like(input), torch.zeros_like(weight)
    for i, begin, end in groups_of(offs):
        torch.mm(grad[begin:end], weight[i].T, out=of_input[begin:end])
        torch.mm(input[begin:end].T, grad[begin:end], out=of_weight[i])
    return of_input, of_weight, None


grouped_product.register_autograd(grouped_backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))


class Experts(nn.Module):
    """A mixture of experts as transformers exports it. One expert is never chosen, and the rows of the last one are dropped."""

    def __init__(self):
        super().__init__()
        self.choice, self.head = nn.Linear(20, 4), nn.Linear(5, 4)
        self.up, self.down = nn.Parameter(torch.randn(5, 7, 20) / 4), nn.Parameter(torch.randn(5, 7, 5) / 3)

    def forward(self, x):
        weight, expert = self.choice(x).softmax(-1).max(-1)
        expert = expert + (expert > 0)
        expert, order = expert.sort(stable=True)
        offsets = torch.histc(expert.int().float(), 5, 0, 4).mul(torch.tensor([1.0, 1, 1, 1, 0])).cumsum(0).to(torch.int32)
        hidden = F.silu(torch.ops.transformers.grouped_mm_fallback(x[order], self.up.transpose(-2, -1), offsets))
        found = torch.ops.transformers.grouped_mm_fallback(hidden, self.down, offsets) * weight[order].unsqueeze(1)
        return self.head(torch.zeros_like(found).index_put((order,), found))


class Output:
    """As those of transformers."""

    def __init__(self, logits, hidden):
        self.logits, self.hidden = logits, hidden


torch.utils._pytree.register_pytree_node(Output, lambda output: ([None, output.logits, output.hidden], ["loss", "logits", "hidden"]),
                                         lambda values, _: Output(*values[1:]), serialized_type_name="models.Output")


class Standardized(nn.Module):
    """Norms without running statistics, a part in which autocast is off, an output class, and a table that is indexed."""

    def __init__(self):
        super().__init__()
        self.body, self.norm, self.head = nn.Linear(20, 16), nn.BatchNorm1d(16, track_running_stats=False), nn.Linear(16, 4)
        self.table, self.square = nn.Parameter(torch.randn(5, 16)), nn.Parameter(torch.randn(16, 16) / 4)
        self.register_buffer("rows", torch.tensor([0, 2, 4]))

    def forward(self, x):
        weight = F.batch_norm(self.body.weight.unsqueeze(0), None, None, training=True).squeeze(0)
        x = self.norm(F.linear(x, weight, self.body.bias))
        with torch.autocast("cpu", enabled=False):
            hidden = torch.tanh(F.linear(x.float(), self.square)) + self.table[self.rows].sum(0)
        return Output(self.head(hidden), hidden)


def images(batch):
    return torch.randn(batch, 3, 16, 16)


def rows(batch):
    return torch.randn(batch, 20)


def tokens(batch):
    return torch.randint(50, (batch, 12))


def classes(count):
    return lambda batch: torch.randint(count, (batch,))


# name: the model, its inputs, its labels, its loss
MODELS = {
    "resnet18": (ResNet18, [images], classes(10), "cross_entropy"),
    "gpt": (Gpt, [tokens], tokens, "cross_entropy"),
    "lstm": (lambda: Recurrent(nn.LSTM), [tokens], tokens, "cross_entropy"),
    "gru": (lambda: Recurrent(nn.GRU), [tokens], tokens, "cross_entropy"),
    "gpt_lengths": (Gpt, [tokens], tokens, "cross_entropy"),
    "unet_sizes": (UNet, [images], classes(5), "cross_entropy"),
    "unet": (UNet, [images], classes(5), "cross_entropy"),
    "vit": (ViT, [images], classes(10), "cross_entropy"),
    "tied_mlp": (TiedMlp, [rows], classes(4), "cross_entropy"),
    "mixed": (Mixed, [rows], classes(4), "cross_entropy"),
    "two_inputs": (TwoInputs, [rows, rows], lambda batch: torch.randn(batch, 3), "mse"),
    "loss_inside": (LossInside, [rows, lambda batch: torch.randn(batch, 3)], None, "output"),
    "sizes": (Sizes, [rows], classes(4), "cross_entropy"),
    "spectral": (Spectral, [rows], classes(4), "cross_entropy"),
    "selected": (Selected, [rows], classes(4), "cross_entropy"),
    "experts": (Experts, [rows], classes(4), "cross_entropy"),
    "standardized": (Standardized, [rows], classes(4), "cross_entropy"),
    "conv1d": (Conv1d, [lambda batch: torch.randn(batch, 3, 16)], classes(4), "cross_entropy"),
}

# More dynamic sizes, of the first input: by dimension, of what it is a multiple. Those of a step are as much smaller.
TIME, HEIGHT, WIDTH = torch.export.Dim("time", min=1, max=15), torch.export.Dim("height", min=2), torch.export.Dim("width", min=2)
SIZES = {"gpt_lengths": {1: (TIME, 1)}, "unet_sizes": {2: (2 * HEIGHT, 2), 3: (2 * WIDTH, 2)}}


def loss_of(outputs, labels, name):
    if isinstance(outputs, dict):
        outputs = next(iter(outputs.values()))
    if isinstance(outputs, tuple):
        outputs = outputs[0]
    if isinstance(outputs, Output):
        outputs = outputs.logits
    if name == "output":
        return outputs
    if name == "mse":
        return F.mse_loss(outputs, labels)
    return F.cross_entropy(outputs.reshape(-1, outputs.shape[-1]), labels.reshape(-1))


def export(name, folder):
    make, inputs, _, _ = MODELS[name]
    torch.manual_seed(3)
    examples = [make_input(BATCH) for make_input in inputs]
    dims = {0: BATCH_DIM} | {place: dim for place, (dim, _) in SIZES.get(name, {}).items()}
    if name == "two_inputs":
        program = torch.export.export(make().train(), (examples[0],), {"other": examples[1]}, dynamic_shapes={"x": dims, "other": dims})
    else:
        program = torch.export.export(make().train(), tuple(examples), dynamic_shapes=tuple(dims for _ in examples))
    torch.export.save(program, folder / f"{name}.pt2")


def train(name, optimizer, folder):
    _, inputs, labels, loss_name = MODELS[name]
    model = torch.export.load(folder / f"{name}.pt2").module()
    parameters = list(dict.fromkeys(model.parameters()))
    # The fused ones, as Kindling's are: Adam makes steps of full size out of gradients that are rounding alone, as those of a bias in
    # front of a norm, and other kernels round otherwise.
    fused = not any(parameter.is_complex() for parameter in parameters)  # which the fused ones refuse
    make = {"sgd": lambda: torch.optim.SGD(parameters, lr=0.02, momentum=0.9, fused=fused),
            "adamw": lambda: torch.optim.AdamW(parameters, lr=1e-3, fused=fused)}
    by = make[optimizer]()
    torch.manual_seed(5)
    data = [torch.stack([each(BATCH) for _ in range(STEPS)]) for each in [*inputs, *([labels] if labels else [])]]
    torch.manual_seed(7)
    losses = []
    smaller = [(0, 1)] + [(place, multiple) for place, (_, multiple) in SIZES.get(name, {}).items()]
    for step in range(STEPS):
        batch = [each[step] for each in data]
        for place, multiple in smaller:  # its sizes change
            size = batch[0].shape[place] - multiple * (step % (3 + place))
            batch = [each.narrow(place, 0, size) if each.dim() > place else each for each in batch]
        given = batch[: len(inputs)]
        outputs = model(given[0], other=given[1]) if name == "two_inputs" else model(*given)
        loss = loss_of(outputs, batch[-1], loss_name)
        by.zero_grad()
        loss.backward()
        by.step()
        losses.append(loss.detach())
    state = {"smaller": torch.tensor(smaller)}
    state |= {f"data.{i}": each for i, each in enumerate(data)}
    state |= {"losses": torch.stack(losses)} | {f"final.{k}": v.detach().clone() for k, v in model.state_dict().items()}
    assert all(math.isfinite(loss) for loss in losses)
    torch.save(state, folder / f"{name}.{optimizer}.pt")


def main():
    folder = pathlib.Path(sys.argv[1])
    for name, (_, _, _, loss) in MODELS.items():
        export(name, folder)
        for optimizer in ("sgd", "adamw"):
            train(name, optimizer, folder)
        print(name, loss, flush=True)


if __name__ == "__main__":
    main()
