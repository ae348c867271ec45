#!/usr/bin/env bash
# Lightning 2.6.6: EMAWeightAveraging with update_starting_at_epoch updates the average after the validation of
# an epoch, so the last validation measures another average than the one that the model gets at the end, and
# an update_starting_at_step that the run does not reach gives back the weights from before the training.
#
# Setting: one weight that starts at 0 and grows by 7 per epoch, two epochs, decay 0.5.
# Seen: with update_starting_at_epoch=1 the validation of the second epoch sees 0, the model ends with 14; with
# update_starting_at_step=100 (the run has 8 steps) the model ends with 0.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 lightning==2.6.6 numpy
"$folder/venv/bin/python" - <<'PYTHON'
import logging
import warnings

warnings.filterwarnings("ignore")
import lightning
import torch
from lightning.pytorch.callbacks import EMAWeightAveraging

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
assert lightning.__version__ == "2.6.6" and torch.__version__.startswith("2.13.0")


class OneWeight(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.validated = []

    def training_step(self, batch, index):
        return -(self.weight * batch[0]).mean()  # the gradient is minus the mean of the batch

    def validation_step(self, batch, index):
        self.validated.append(self.weight.item())

    def configure_optimizers(self):
        return torch.optim.SGD([self.weight], lr=1.0)


def fitted(**when):
    values = torch.tensor([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 7.0])  # batches of two: 1, 1, 1, 4
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(values), batch_size=2)
    model = OneWeight()
    trainer = lightning.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
                                limit_val_batches=1, callbacks=[EMAWeightAveraging(decay=0.5, **when)])
    trainer.fit(model, loader, loader)
    return model.validated, model.weight.item()


by_epoch = fitted(update_every_n_steps=0, update_starting_at_epoch=1)
too_late = fitted(update_starting_at_step=100)
print("update_starting_at_epoch=1: validated", by_epoch[0], "at the end", by_epoch[1])
print("update_starting_at_step=100: validated", too_late[0], "at the end", too_late[1])
assert by_epoch == ([0.0, 0.0], 14.0), by_epoch
assert too_late == ([0.0, 0.0], 0.0), too_late
PYTHON
echo "as described"
