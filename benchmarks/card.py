"""Measures training steps on a card: kindling_bench beside PyTorch and Lightning, all with the data on the card.

    python benchmarks/card.py [--bench build/gpu/bin/kindling_bench] [--case card_lenet,card_mlp,card_cifar,card_gpt2]
                              [--peer NAMES] [--repeats 11] [--json FILE]

Needs a Python with torch (the LibTorch that kindling_bench runs on), numpy and lightning, and the images that README.md describes.
Prints the JSON lines of bench_peers.py with device, driver and date, then a table of times by the clock: an epoch ends when the
card has done its last step. The exit status is 1 when final losses differ.
"""

import argparse
import datetime
import json
import os
import sys
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PEERS_FOLDER = ROOT / "benchmarks/peers"
os.environ.setdefault("KINDLING_SHARED", str(ROOT))  # the folder of the images, for kindling_bench too
KINDLING_PEERS = ("kindling", "kindling_eager")
LOSS_TOLERANCE = 0.01  # as bench_peers.py has it


# --- A process of a Python peer


def to_floats(images):
    return images.float().div_(128).sub_(1)


def drawn(end, shape, dtype, generator):
    import torch

    return torch.randint(end, shape, generator=generator, dtype=dtype)


def on_card(batch_size, *tensors):
    import workloads

    return workloads.Batches(tuple(tensor.cuda() for tensor in tensors), batch_size)


def steps_of_images(steps, batch_size, layers):
    import torch
    import workloads
    from torch import nn

    images, labels = (tensor.repeat(6, *[1] * (tensor.dim() - 1)) for tensor in workloads.mnist())
    return workloads.Workload(
        model=nn.Sequential(*layers).cuda(),
        loss_fn=nn.functional.cross_entropy,
        make_optimizer=partial(torch.optim.Adam, lr=1e-3),
        train=on_card(batch_size, *(tensor[: steps * batch_size] for tensor in (images, labels))),
        size=steps,
        unit="us/step",
        clip=1.0,
    )


def card_lenet():
    from torch import nn

    return steps_of_images(937, 64, [
        nn.Conv2d(1, 6, 5, padding=2), nn.Sigmoid(), nn.AvgPool2d(2),
        nn.Conv2d(6, 16, 5), nn.Sigmoid(), nn.AvgPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.Sigmoid(), nn.Linear(120, 84), nn.Sigmoid(), nn.Linear(84, 10),
    ])


def card_mlp():
    from torch import nn

    return steps_of_images(234, 256, [nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10)])


def card_cifar():
    """A residual network in channels-last order, from bytes."""
    import torch
    import workloads
    from torch import nn
    from torch.nn.functional import max_pool2d

    def convolution(fan_in, fan_out):
        return nn.Sequential(nn.Conv2d(fan_in, fan_out, 3, padding=1, bias=False), nn.BatchNorm2d(fan_out), nn.ReLU())

    class CifarNet(nn.Module):
        def __init__(self):
            super().__init__()
            widths = 3, 64, 128, 128, 128, 256, 512, 512, 512
            self.layers = nn.ModuleList(map(convolution, widths[:-1], widths[1:]))
            self.out = nn.Linear(512, 10)

        def forward(self, images):
            layers = self.layers
            x = to_floats(images).contiguous(memory_format=torch.channels_last)
            x = max_pool2d(layers[1](layers[0](x)), 2)
            x = x + layers[3](layers[2](x))
            x = max_pool2d(layers[4](x), 2)
            x = max_pool2d(layers[5](x), 2)
            x = x + layers[7](layers[6](x))
            return self.out(max_pool2d(x, 4).flatten(1)) * 0.125

    steps, batch_size = 97, 512
    generator = torch.Generator().manual_seed(workloads.DATA_SEED)
    images = drawn(256, (steps * batch_size, 3, 32, 32), torch.uint8, generator)
    labels = drawn(10, (steps * batch_size,), torch.int64, generator)
    return workloads.Workload(
        model=CifarNet().cuda().to(memory_format=torch.channels_last),
        loss_fn=nn.functional.cross_entropy,
        make_optimizer=partial(torch.optim.SGD, lr=0.01, momentum=0.9, weight_decay=5e-4, nesterov=True),
        train=on_card(batch_size, images, labels),
        size=steps,
        unit="us/step",
    )


def card_gpt2():
    import torch
    import workloads
    from torch import nn

    vocabulary, context, width, num_heads, num_blocks = 50304, 1024, 768, 12, 12

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.qkv, self.project = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.norm2, self.widen, self.narrow = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def attention(self, x):
            heads = self.qkv(x).view(*x.shape[:2], 3, num_heads, -1).permute(2, 0, 3, 1, 4)
            seen = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
            return self.project(seen.transpose(1, 2).reshape(x.shape))

        def forward(self, x):
            x = x + self.attention(self.norm1(x))
            return x + self.narrow(nn.functional.gelu(self.widen(self.norm2(x)), approximate="tanh"))

    class Gpt2(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
            self.blocks = nn.Sequential(*(Block() for _ in range(num_blocks)))
            self.norm = nn.LayerNorm(width)
            torch.manual_seed(workloads.MODEL_SEED)
            for name, parameter in self.named_parameters():
                if parameter.dim() > 1:
                    nn.init.normal_(parameter, std=0.02)
                elif name.endswith("bias"):
                    nn.init.zeros_(parameter)

        def forward(self, tokens):
            x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
            return nn.functional.linear(self.norm(self.blocks(x)), self.tokens.weight)

    steps, batch_size = 20, 16
    generator = torch.Generator().manual_seed(workloads.DATA_SEED)
    text = drawn(vocabulary, (steps * batch_size, context + 1), torch.int64, generator)
    return workloads.Workload(
        model=Gpt2().cuda(),
        loss_fn=lambda logits, targets: nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten()),
        make_optimizer=partial(torch.optim.AdamW, lr=6e-4, weight_decay=0.1),
        train=on_card(batch_size, text[:, :-1].contiguous(), text[:, 1:].contiguous()),
        size=steps,
        unit="us/step",
        clip=1.0,
    )


def workload(case):
    import torch
    import workloads

    torch.manual_seed(workloads.MODEL_SEED)
    return {"card_lenet": card_lenet, "card_mlp": card_mlp, "card_cifar": card_cifar, "card_gpt2": card_gpt2}[case]()


def loss_of(w, model, x, y):
    import torch

    if not w.bf16:
        return w.loss_fn(model(x), y)
    with torch.autocast("cuda", torch.bfloat16):
        return w.loss_fn(model(x), y)


def eager(w, clock):
    """A plain PyTorch loop with every default."""
    import torch

    optimizer = w.make_optimizer(w.model.parameters())
    for _ in range(clock.rounds):
        clock.tick()
        total = 0.0
        for x, y in w.train:
            optimizer.zero_grad()
            loss = loss_of(w, w.model, x, y)
            loss.backward()
            if w.clip:
                torch.nn.utils.clip_grad_norm_(w.model.parameters(), w.clip)
            optimizer.step()
            total += loss.item()
    clock.tick()
    return total / w.size


def eager_best(w, clock, mode=None):
    """Fused optimizer, foreach clip, losses read once per epoch; `mode`: that of torch.compile."""
    import torch

    torch.set_float32_matmul_precision("highest")
    parameters = list(w.model.parameters())
    optimizer = w.make_optimizer(parameters, fused=True)
    model = torch.compile(w.model, mode=mode) if mode else w.model
    for _ in range(clock.rounds):
        clock.tick()
        losses = []
        for x, y in w.train:
            optimizer.zero_grad(set_to_none=True)
            loss = loss_of(w, model, x, y)
            loss.backward()
            if w.clip:
                torch.nn.utils.clip_grad_norm_(parameters, w.clip, error_if_nonfinite=False, foreach=True)
            optimizer.step()
            # the graphs of `reduce-overhead` use the memory of their results again
            losses.append(loss.detach().clone() if mode else loss.detach())
        mean_loss = torch.stack(losses).mean().item()
    clock.tick()
    return mean_loss


def whole_graph(w, clock):
    """The whole step captured by hand, as the documentation of torch.cuda.graph shows: nothing in Python can be shorter."""
    import torch

    parameters = list(w.model.parameters())
    optimizer = w.make_optimizer(parameters, fused=True, capturable=True)
    x, y = (tensor.clone() for tensor in w.train.batches[0])

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = w.loss_fn(w.model(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, w.clip, error_if_nonfinite=False, foreach=True)
        optimizer.step()
        return loss

    first = {name: tensor.clone() for name, tensor in w.model.state_dict().items()}
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    w.model.load_state_dict(first)
    for state in optimizer.state.values():
        for tensor in state.values():
            tensor.zero_()
    losses = torch.empty(w.size, device="cuda")
    for _ in range(clock.rounds):
        clock.tick()
        for i, batch in enumerate(w.train):
            x.copy_(batch[0])
            y.copy_(batch[1])
            graph.replay()
            losses[i].copy_(loss.detach())
        mean_loss = losses.mean().item()
    clock.tick()
    return mean_loss


def lightning(w, clock):
    """Lightning's Trainer without its extras, as in peers/training_loops.py."""
    import logging
    import warnings

    import lightning.pytorch as pl

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")

    class Model(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = w.model

        def training_step(self, batch, _):
            x, y = batch
            loss = w.loss_fn(self.model(x), y)
            self.log("train_loss", loss, on_step=False, on_epoch=True, batch_size=len(x))
            return loss

        def configure_optimizers(self):
            return w.make_optimizer(self.parameters())

        def on_train_epoch_start(self):
            clock.tick()

        def on_train_epoch_end(self):
            import torch

            torch.cuda.synchronize()

        def on_train_end(self):
            clock.tick()

    extras = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    trainer = pl.Trainer(accelerator="gpu", devices=1, max_epochs=clock.rounds, gradient_clip_val=w.clip,
                         **dict.fromkeys(extras, False))
    trainer.fit(Model(), w.train)
    return trainer.callback_metrics["train_loss"].item()


# Their steps are short, so what is around a step counts.
SMALL_CASES = ("card_lenet", "card_mlp")
OF_SMALL_CASES = ("lightning", "whole_graph")
PYTHON_PEERS = {
    "lightning": lightning,
    "eager": eager,
    "eager_best": eager_best,
    "compile": partial(eager_best, mode="default"),
    "compile_graphs": partial(eager_best, mode="reduce-overhead"),
    "whole_graph": whole_graph,
}


def run_peer(args):
    from harness import MICRO, Clock, report

    w = workload(args.case)
    w.bf16 = args.precision == "bf16"
    clock = Clock(warmup=1, repeats=args.repeats, gate=args.gate)
    final_loss = PYTHON_PEERS[args.peer](w, clock)
    for metric, seconds in clock.samples().items():
        report(args, metric, w.unit, [t * MICRO / w.size for t in seconds], final_loss=final_loss)


# --- The driver


def machine():
    import torch
    from torch.cuda import get_device_name

    with open("/proc/driver/nvidia/version") as file:
        driver = next(word for word in file.readline().split() if word[0].isdigit())
    return {"device": get_device_name(), "driver": driver, "torch": torch.__version__,
            "date": datetime.date.today().isoformat()}


def measure(case, args):
    from bench_peers import Peer

    here = [sys.executable, str(Path(__file__).resolve()), "--peer"]
    commands = {peer: [str(args.bench), "--device", "cuda", "--peer", peer] for peer in KINDLING_PEERS}
    commands |= {peer: [*here, peer] for peer in PYTHON_PEERS}
    is_small = case in SMALL_CASES
    how = argparse.Namespace(**vars(args) | {"precision": "fp32" if is_small else "bf16"})
    peers = [Peer(commands[peer], how, case) for peer in args.peer.split(",") if is_small or peer not in OF_SMALL_CASES]
    while any(peer.running for peer in peers):
        for peer in peers:
            if peer.running:
                peer.repeat()
    return [line for peer in peers for line in peer.lines]


def tell(case, lines):
    """The table, and whether the peers have trained the same."""
    walls = [line for line in lines if line["metric"] == "wall"]
    ours = walls[0]["median"]
    print(f"{case}: us/step by the clock (least … largest), ratio to {walls[0]['peer']}, final loss")
    for line in walls:
        print(f"  {line['peer']:<16}{line['median']:>9.1f} ({line['min']:.1f} … {line['max']:.1f})"
              f"{line['median'] / ours:>8.2f}{line['final_loss']:>12.6g}")
    losses = [line["final_loss"] for line in walls]
    agree = max(losses) <= min(losses) * (1 + LOSS_TOLERANCE)
    print(f"  final losses {'agree' if agree else 'DIFFER'}")
    return agree


def drive(args):
    agree = True
    about = machine()
    for case in args.case.split(","):
        lines = [line | about for line in measure(case, args)]
        if args.json:
            with args.json.open("a") as file:
                file.writelines(json.dumps(line) + "\n" for line in lines)
        agree = tell(case, lines) and agree
    sys.exit(0 if agree else 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", type=Path, default=ROOT / "build/gpu/bin/kindling_bench")
    parser.add_argument("--case", default="card_lenet,card_mlp,card_cifar,card_gpt2")
    parser.add_argument("--peer", default=",".join([*KINDLING_PEERS, *PYTHON_PEERS]))
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--json", type=Path, help="append the lines to this file")
    parser.add_argument("--threads", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--precision", default="fp32", help=argparse.SUPPRESS)
    parser.add_argument("--gate", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    sys.path.insert(0, str(PEERS_FOLDER))
    sys.dont_write_bytecode = True
    run_peer(args) if args.gate else drive(args)


if __name__ == "__main__":
    main()
