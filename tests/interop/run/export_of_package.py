"""python export_of_package.py FOLDER: checks kindling.export() of the Python package; silent if all is as expected."""

import pathlib
import sys
import types
import warnings


def contract_path(_, *operands, shapes=False, **__):
    """As that of opt_einsum: it reads sizes as numbers. The path is from left to right."""
    sizes = [[int(size) for size in (each if shapes else each.shape)] for each in operands]
    return [(0, 1)] * (len(sizes) - 1), ""


sys.modules["opt_einsum"] = types.SimpleNamespace(contract_path=contract_path)

import torch
from torch import nn
from torch.export.pt2_archive._package import load_pt2

sys.dont_write_bytecode = True  # next to sources
from evaluation_programs import Block, export_of_package

warnings.filterwarnings("ignore", module="torch")
FOLDER = pathlib.Path(sys.argv[1])
export = export_of_package()


class Reversal(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -gradient


class Lossy(nn.Linear):
    def forward(self, x):
        x = Reversal.apply(super().forward(x))
        x.register_hook(double)
        return x


class Changing(nn.Linear):
    """Replaces its weight when the mode changes."""

    def train(self, mode=True):
        if not mode:
            self.weight = nn.Parameter(torch.zeros(4, 3))
        return super().train(mode)


class Merging(nn.Linear):
    """Adds its second weight to the first one in evaluation mode, as LoRA does."""

    def __init__(self):
        super().__init__(3, 3)
        self.more = nn.Parameter(torch.ones(3, 3))

    def train(self, mode=True):
        if mode != self.training:
            self.weight.data += -self.more.data if mode else self.more.data
        return super().train(mode)


class Freezing(nn.Linear):
    def train(self, mode=True):
        self.weight.requires_grad_(mode)
        return super().train(mode)


class Fixed(nn.BatchNorm1d):
    def train(self, mode=True):
        return super().train(False)


class Factors(nn.Module):
    """A product of three factors, whose order opt_einsum chooses."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Parameter(torch.randn(3, 4)), nn.Parameter(torch.randn(4, 2))

    def forward(self, x):
        torch._dynamo.graph_break()  # export() would otherwise try torch.export's strict mode, which has no such order
        return torch.einsum("bi,ij,jk->bk", x, self.first, self.second)


class Bound(nn.Linear):
    def forward(self, x):
        return reverse(super().forward(x))


class Rows(nn.Module):
    def forward(self, x, table):
        return x @ table.reshape(2, 4)


class Counting(nn.Module):
    """Asks for the samples with len(), which torch.export takes for a number if it is not strict."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 6)

    def forward(self, x):
        return self.linear(x).view(len(x), 2, 3).transpose(1, 2).reshape(len(x), 6)


class Few(nn.Linear):
    """Distinguishes batches of 64 samples, as diffusers' Upsample2D does."""

    def forward(self, x):
        return super().forward(x.contiguous() if x.shape[0] >= 64 else x)


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x, scale, table):
        return self.linear(x) * scale + table.sum(0)


reverse = Reversal.apply


def double(gradient):
    return 2 * gradient


def expect(condition, *found):
    if not condition:
        raise AssertionError(found)


def error_of(model, example, path="error.pt2"):
    try:
        export(model, example, FOLDER / path)
    except ValueError as error:
        return str(error)
    return "none"


def warnings_of(model, example):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        export(model, example, FOLDER / "warned.pt2")
    return [str(warning.message) for warning in found if str(warning.message).startswith("the program ")]


def check_both_programs():
    """Both have the weights of the model, once in the file, and the batch may have any size."""
    model = nn.Sequential(nn.Linear(3, 64, bias=False), nn.Linear(64, 4), Block(), nn.BatchNorm1d(4)).eval()
    model[2].train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    export(model, torch.randn(8, 3), FOLDER / "both.pt2")
    expect([module.training for module in model] == [False, False, True, False])
    expect(all(torch.equal(before[name], value) for name, value in model.state_dict().items()))
    export(model, torch.randn(8, 3), str(FOLDER / "text.pt2"))
    programs = load_pt2(str(FOLDER / "both.pt2")).exported_programs
    expect(list(programs) == ["model", "evaluation"], list(programs))
    for samples in (1, 5):
        x = torch.randn(samples, 3)
        expect(torch.equal(programs["evaluation"].module()(x), model.eval()(x)))
    targets = [str(node.target) for node in torch.export.load(FOLDER / "both.pt2").graph.nodes]
    expect("aten.bernoulli_.float" in targets, targets)
    one = torch.export.export(model.eval(), (torch.randn(8, 3),))
    torch.export.save(one, FOLDER / "one.pt2")
    values = sum(value.nbytes for value in model.state_dict().values())
    expect(programs["model"].state_dict["0.weight"].equal(model[0].weight))
    archive = torch._C.PyTorchFileReader(str(FOLDER / "both.pt2"))
    stored = sum(len(archive.get_record(name)) for name in archive.get_all_records() if name.startswith("data/weights/weight_"))
    expect(stored == values, stored, values)


def check_inputs():
    model = TwoInputs()
    export(model, (torch.randn(8, 4), torch.randn(8, 1), torch.randn(3, 4)), FOLDER / "inputs.pt2")
    export(model, {"scale": torch.randn(8, 1), "x": torch.randn(8, 4), "table": torch.randn(3, 4)}, FOLDER / "named.pt2")
    inputs = (torch.randn(2, 4), torch.randn(2, 1), torch.randn(3, 4))
    for name in ("inputs", "named"):
        program = torch.export.load(FOLDER / f"{name}.pt2").module()
        given = (inputs, {}) if name == "inputs" else ((), dict(zip(("x", "scale", "table"), inputs)))
        expect(torch.equal(program(*given[0], **given[1]), model(*inputs)))
    model = Counting()
    export(model, torch.randn(8, 4), FOLDER / "counting.pt2")
    program = torch.export.load(FOLDER / "counting.pt2")
    expect(list(program.state_dict) == list(model.state_dict()), list(program.state_dict))
    expect(torch.equal(program.module()(inputs[0]), model(inputs[0])))
    said = warnings_of(Few(4, 4), torch.randn(8, 4))
    expect(said == 2 * ["the program takes batches of at most 63 samples: the code of the model distinguishes sizes beyond that"], said)
    program = torch.export.load(FOLDER / "warned.pt2")
    expect([list(map(int, (limits.lower, limits.upper))) for limits in program.range_constraints.values()] == [[0, 63]], program.range_constraints)
    expect("found 1 sample, wanted at least 2" in error_of(model, torch.randn(1, 4)))
    expect("found no tensor" in error_of(model, 3))
    expect("ends in .pt2" in error_of(model, torch.randn(4, 4), "error.pth"))


def check_state():
    text = error_of(nn.Sequential(nn.Linear(3, 3), Changing(3, 5, bias=False)), torch.randn(8, 3))
    expect("'1.weight' is torch.float32 [5, 3] after model.train() and torch.float32 [4, 3] after model.eval()" in text, text)
    for kind, wanted in ((Merging, "one value after model.train() and another"), (Freezing, "trained after model.train() and not trained")):
        model = kind() if kind is Merging else kind(3, 3)
        weight = model.weight.clone()
        text = error_of(model, torch.randn(8, 3))
        expect(f"'weight' is {wanted}" in text, text)
        expect(torch.allclose(model.weight, weight, atol=1e-6) and model.weight.requires_grad and model.training)
    model = Changing(3, 5, bias=False)
    weight = model.weight
    error_of(model, torch.randn(8, 3))
    expect(model.weight is weight)
    model = nn.Linear(3, 3)
    model.weight.data[0, 0] = float("nan")
    export(model, torch.randn(8, 3), FOLDER / "nan.pt2")
    tied = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    tied[1].weight = tied[0].weight
    export(tied, torch.randn(8, 3), FOLDER / "tied.pt2")
    state = torch.export.load(FOLDER / "tied.pt2").state_dict
    expect(state["0.weight"].data_ptr() == state["1.weight"].data_ptr())
    expect("choose another number of samples" in error_of(Rows(), (torch.randn(4, 2), torch.randn(4, 2))))


def check_path():
    model = nn.Linear(3, 3)
    export(model, torch.randn(8, 3), bytes(FOLDER / "bytes.pt2"))
    expect((FOLDER / "bytes.pt2").exists())
    (FOLDER / "folder.pt2").mkdir()
    try:
        export(model, torch.randn(8, 3), FOLDER / "folder.pt2")
    except OSError:
        expect(not (FOLDER / "folder.pt2.unfinished").exists())
    else:
        expect(False)


def check_einsum():
    export(Factors(), torch.randn(8, 3), FOLDER / "factors.pt2")
    expect(torch.backends.opt_einsum.get_opt_einsum().contract_path is contract_path)
    program, x = torch.export.load(FOLDER / "factors.pt2").module(), torch.randn(5, 3)
    expect(torch.allclose(program(x), x @ (program.first @ program.second), atol=1e-6))


def check_warnings():
    plain = nn.Sequential(nn.Linear(3, 4), Block())
    plain.register_forward_hook(lambda module, inputs, output: output * 2)  # part of the program
    expect(warnings_of(plain, torch.randn(8, 3)) == [], warnings_of(plain, torch.randn(8, 3)))
    apply, register_hook = torch.autograd.Function.apply, torch.Tensor.register_hook
    model = nn.Sequential(Lossy(3, 4), nn.Linear(4, 4))
    model[1].register_full_backward_hook(lambda *_: None)
    model[1].bias.register_hook(double)
    text = warnings_of(model, torch.randn(8, 3))
    expect(len(text) == 1, text)
    for lost in ("the backward hook of 1", "the hook of the parameter 1.bias", "the autograd function Reversal", "the hook double on a tensor"):
        expect(lost in text[0], lost, text)
    text = warnings_of(nn.Sequential(nn.BatchNorm1d(3), Bound(3, 4), nn.Dropout()), torch.randn(8, 3))
    expect(len(text) == 1 and "the autograd function Reversal" in text[0], text)
    model = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.BatchNorm1d(4)), Fixed(4))
    expect(warnings_of(model, torch.randn(8, 3)) == [])
    expect(warnings_of(model.eval(), torch.randn(8, 3)) == [])
    model.train()[1].eval()
    text = warnings_of(model, torch.randn(8, 3))
    expect(len(text) == 1 and "in evaluation mode: 1: " in text[0], text)
    expect(torch.autograd.Function.apply == apply and torch.Tensor.register_hook == register_hook)


check_both_programs()
check_inputs()
check_state()
check_path()
check_einsum()
check_warnings()
