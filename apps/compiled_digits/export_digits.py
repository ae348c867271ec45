"""python export_digits.py: writes digits.pt2, a network to be trained in C++, and digits_compiled.pt2, the same compiled to be served. Once:
whatever is trained into the one goes into the other. Compiling wants a C++ compiler."""

import torch
import torch.nn as nn


class Net(nn.Module):
    """Images [batch, 1, 8, 8] -> scores of the ten digits [batch, 10], and the version of the weights that computed them [1].

    The version is a buffer, so it is replaced together with the weights. apps/serve_while_learning counts in it."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(),
            nn.Dropout(0.2), nn.Linear(512, 10),
        )  # fmt: skip
        self.register_buffer("version", torch.zeros(1, dtype=torch.int64))

    def forward(self, images):
        return self.layers(images), self.version.clone()


torch.manual_seed(0)
model, example = Net(), (torch.rand(8, 1, 8, 8),)
batch = {"images": {0: torch.export.Dim("batch", min=1)}}

# A program has one mode for ever: that which is trained drops and counts, that which is served does not. Their weights have the same names.
torch.export.save(torch.export.export(model.train(), example, dynamic_shapes=batch), "digits.pt2")
torch._inductor.aoti_compile_and_package(
    torch.export.export(model.eval(), example, dynamic_shapes=batch),
    package_path="digits_compiled.pt2",
    inductor_configs={"always_keep_tensor_constants": True},  # small weights, too, can be replaced
)
