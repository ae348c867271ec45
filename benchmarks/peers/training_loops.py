"""One training loop per peer, each written as the documentation of the peer recommends.

A loop trains the workload `w` for clock.rounds epochs. It calls clock.tick() at the start of every epoch and once after
the last, and returns the mean training loss of the last epoch, or None if it logs no loss.
"""

import logging
import warnings
from contextlib import nullcontext
from functools import partial

import torch
from torch.nn.utils import clip_grad_norm_


def autocast(precision):
    return torch.autocast("cpu", torch.bfloat16) if precision == "bf16" else nullcontext()


def validate(model, w):
    model.eval()
    loss = correct = count = 0
    with torch.no_grad():
        for x, y in w.valid:
            output = model(x)
            loss += w.loss_fn(output, y).item() * len(x)
            correct += (output.argmax(1) == y).sum().item()
            count += len(x)
    return loss / count, correct / count


def eager(w, clock, precision):
    """A plain PyTorch loop with default settings."""
    optimizer = w.make_optimizer(w.model.parameters())
    for _ in range(clock.rounds):
        clock.tick()
        w.model.train()
        total = count = 0
        for x, y in w.train:
            optimizer.zero_grad()
            with autocast(precision):
                loss = w.loss_fn(w.model(x), y)
            loss.backward()
            if w.clip:
                clip_grad_norm_(w.model.parameters(), w.clip)
            optimizer.step()
            total += loss.item() * len(x)
            count += len(x)
        if w.valid:
            validate(w.model, w)
    clock.tick()
    return total / count


def eager_best(w, clock, precision, compiled=False):
    """The same loop, tuned: fused optimizer, foreach clipping, losses read once per epoch, flushed denormals.

    Its workload makes batches by index_select. Eager convolutions run in channels_last, which makes compiled
    ones slower.
    """
    torch.set_flush_denormal(True)
    parameters = list(w.model.parameters())
    optimizer = w.make_optimizer(parameters, fused=True)
    model = torch.compile(w.model) if compiled else w.model.to(memory_format=torch.channels_last)
    for _ in range(clock.rounds):
        clock.tick()
        model.train()
        losses, sizes = [], []
        for x, y in w.train:
            optimizer.zero_grad(set_to_none=True)
            with autocast(precision):
                loss = w.loss_fn(model(x), y)
            loss.backward()
            if w.clip:
                clip_grad_norm_(parameters, w.clip, error_if_nonfinite=False, foreach=True)
            optimizer.step()
            losses.append(loss.detach())
            sizes.append(len(x))
        mean_loss = torch.stack(losses).dot(torch.tensor(sizes) / sum(sizes)).item()
        if w.valid:
            validate(model, w)
    clock.tick()
    return mean_loss


def lightning(w, clock, precision, plain=False):
    """Lightning's Trainer without its extras. `plain`: barebones mode, without clipping and logging."""
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
            if not plain:
                self.log("train_loss", loss, on_step=False, on_epoch=True, batch_size=len(x))
            return loss

        def validation_step(self, batch, _):
            x, y = batch
            output = self.model(x)
            accuracy = (output.argmax(1) == y).float().mean()
            values = {"val_loss": w.loss_fn(output, y), "val_acc": accuracy}
            self.log_dict(values, batch_size=len(x))

        def configure_optimizers(self):
            return w.make_optimizer(self.parameters())

        def on_train_epoch_start(self):
            clock.tick()

        def on_train_end(self):
            clock.tick()

    extras = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=clock.rounds,
        precision="bf16-mixed" if precision == "bf16" else "32-true",
        **({"barebones": True} if plain else {"gradient_clip_val": w.clip, **extras}),
    )
    trainer.fit(Model(), w.train, w.valid)
    return None if plain else trainer.callback_metrics["train_loss"].item()


def accelerate(w, clock, precision):
    """The loop of Accelerate's documentation."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, mixed_precision="bf16" if precision == "bf16" else "no")
    optimizer = w.make_optimizer(w.model.parameters())
    model, optimizer, train, valid = accelerator.prepare(w.model, optimizer, w.train, w.valid)
    for _ in range(clock.rounds):
        clock.tick()
        model.train()
        total = count = 0
        for x, y in train:
            optimizer.zero_grad()
            loss = w.loss_fn(model(x), y)
            accelerator.backward(loss)
            if w.clip:
                accelerator.clip_grad_norm_(model.parameters(), w.clip)
            optimizer.step()
            total += loss.item() * len(x)
            count += len(x)
        if valid:
            model.eval()
            valid_loss = correct = valid_count = 0
            with torch.no_grad():
                for x, y in valid:
                    output, target = accelerator.gather_for_metrics((model(x), y))
                    valid_loss += w.loss_fn(output, target).item() * len(target)
                    correct += (output.argmax(1) == target).sum().item()
                    valid_count += len(target)
    clock.tick()
    return total / count


def ignite(w, clock, precision):
    """An Engine with a custom step; a handler collects the losses."""
    from ignite.engine import Engine, Events, create_supervised_evaluator
    from ignite.metrics import Accuracy, Loss

    optimizer = w.make_optimizer(w.model.parameters())
    log = []

    def train_step(engine, batch):
        w.model.train()
        optimizer.zero_grad()
        x, y = batch
        with autocast(precision):
            loss = w.loss_fn(w.model(x), y)
        loss.backward()
        if w.clip:
            clip_grad_norm_(w.model.parameters(), w.clip)
        optimizer.step()
        return loss.item(), len(x)

    trainer = Engine(train_step)

    @trainer.on(Events.EPOCH_STARTED)
    def start():
        clock.tick()
        log.clear()

    @trainer.on(Events.ITERATION_COMPLETED)
    def log_loss(engine):
        log.append(engine.state.output)

    if w.valid:
        metrics = {"loss": Loss(w.loss_fn), "accuracy": Accuracy()}
        evaluator = create_supervised_evaluator(w.model, metrics)
        trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: evaluator.run(w.valid))

    trainer.run(w.train, max_epochs=clock.rounds)
    clock.tick()
    return sum(loss * size for loss, size in log) / sum(size for _, size in log)


TRAINING = {
    "lightning": lightning,
    "lightning_plain": partial(lightning, plain=True),
    "accelerate": accelerate,
    "ignite": ignite,
    "eager": eager,
    "eager_best": eager_best,
    "compile": partial(eager_best, compiled=True),
}
GATHER = {"eager_best", "compile"}  # peers whose workload makes batches by index_select
