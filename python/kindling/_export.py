"""export(): writes a model of PyTorch for Kindling."""

import collections
import contextlib
import io
import json
import os
import warnings
import zipfile

# Kindling reads both programs of a file: "model", which torch.export.load returns, and this one.
_EVALUATION = "evaluation"
_REMEDY = "write the operation with operators that have a derivative, such as x + (y - x).detach(), or train the model in Python"


def export(model, example, path):
    """Writes `model` to a .pt2 file that Kindling trains and evaluates: the program after model.train() and the one after
    model.eval(), which share their parameters and buffers. The first dimension of the inputs, the batch, may have any size.

    model    a torch.nn.Module; its mode, parameters and buffers stay as they are
    example  an input tensor, a tuple of them, or a dict by the names of forward's arguments, with at least 2 samples
    path     the file, whose name ends in .pt2; torch.export.load reads the training program from it

    Warns of operations whose backward a program does not contain: torch.autograd.Function and backward hooks. Raises ValueError if the
    parameters or buffers of both modes differ, and what torch.export.export raises for a model that it cannot export.
    """
    import torch
    from torch.export.pt2_archive._package import package_pt2

    if not os.fspath(path).endswith(".pt2"):
        raise ValueError(f"path: found {os.fspath(path)!r}, wanted a name that ends in .pt2")
    arguments, by_name = ((), dict(example)) if isinstance(example, dict) else (_tuple_of(example), {})
    shapes = _dynamic_batch([*arguments, *by_name.values()])
    dynamic = dict(zip(by_name, shapes)) if by_name else tuple(shapes)
    modes = [(module, module.training) for module in model.modules()]
    programs, lost = {}, _hooks_of(model)
    try:
        for name, is_training in (("model", True), (_EVALUATION, False)):
            model.train(is_training)
            with _watch_backward() as found:
                programs[name] = torch.export.export(model, arguments, by_name, dynamic_shapes=dynamic)
            if is_training:
                lost += found
    finally:
        for module, mode in modes:
            module.training = mode
    _require_same_state(*programs.values())
    if lost:
        warnings.warn("the program does not contain the backward of " + ", ".join(dict.fromkeys(lost)) + ": Kindling uses the derivatives "
                      "of the operators in forward instead, which may be zero or have another sign; " + _REMEDY, stacklevel=2)
    packed = io.BytesIO()
    package_pt2(packed, exported_programs=programs)
    _write_with_shared_weights(packed, path)


def _tuple_of(example):
    return tuple(example) if isinstance(example, (tuple, list)) else (example,)


def _dynamic_batch(inputs):
    """The dynamic shapes: the first dimension of each tensor that has as many samples as the first input."""
    import torch

    tensors = [value for value in inputs if isinstance(value, torch.Tensor) and value.dim() > 0]
    if not tensors:
        raise ValueError("example: found no tensor with a batch dimension, wanted the inputs of a batch")
    samples = tensors[0].shape[0]
    if samples < 2:
        raise ValueError(f"example: found {samples} sample{'' if samples == 1 else 's'}, wanted at least 2: torch.export would fix the "
                         "size of a batch of one sample")
    batch = torch.export.Dim("batch", min=1)
    return [{0: batch} if isinstance(value, torch.Tensor) and value.dim() > 0 and value.shape[0] == samples else None for value in inputs]


def _hooks_of(model):
    """Backward hooks of modules and parameters, by name."""
    found = [f"the backward hook of {name or 'the model'}" for name, module in model.named_modules()
             if module._backward_hooks or getattr(module, "_backward_pre_hooks", None)]
    return found + [f"the hook of the parameter {name}" for name, parameter in model.named_parameters()
                    if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None)]


@contextlib.contextmanager
def _watch_backward():
    """Collects the autograd functions that a forward calls, and the hooks that it registers on tensors."""
    import torch

    found = []
    apply, register_hook = torch.autograd.Function.__dict__["apply"], torch.Tensor.register_hook

    def watched_apply(cls, *args, **kwargs):
        if not cls.__module__.startswith("torch."):
            found.append(f"the autograd function {cls.__name__}")
        return apply.__get__(None, cls)(*args, **kwargs)

    def watched_hook(self, hook):
        found.append(f"the hook {getattr(hook, '__qualname__', type(hook).__name__)} on a tensor")
        return register_hook(self, hook)

    torch.autograd.Function.apply, torch.Tensor.register_hook = classmethod(watched_apply), watched_hook
    try:
        yield found
    finally:
        torch.autograd.Function.apply, torch.Tensor.register_hook = apply, register_hook


def _require_same_state(training, evaluation):
    def state_of(program):
        return {name: (tuple(value.shape), value.dtype) for name, value in program.state_dict.items()}

    first, second = state_of(training), state_of(evaluation)
    for name in collections.ChainMap(first, second):
        if first.get(name) != second.get(name):
            def text(state):
                return "no such parameter or buffer" if name not in state else f"{state[name][1]} {list(state[name][0])}"

            raise ValueError(f"model: {name!r} is {text(first)} after model.train() and {text(second)} after model.eval(), wanted the same "
                             "in both: do not replace parameters when the mode changes")


def _write_with_shared_weights(packed, path):
    """Copies the archive, in which package_pt2 has written the weights of each program, with each of them once."""
    with zipfile.ZipFile(packed) as source:
        root = source.namelist()[0].split("/")[0] + "/data/weights/"
        configs = {name: f"{root}{name}_weights_config.json" for name in ("model", _EVALUATION)}
        first, second = (json.loads(source.read(entry)) for entry in configs.values())
        for name, weight in second["config"].items():
            same = first["config"].get(name)
            if same and all(same[key] == weight[key] for key in ("tensor_meta", "use_pickle")):
                weight["path_name"] = same["path_name"]
        used = {root + weight["path_name"] for config in (first, second) for weight in config["config"].values()}
        unfinished = f"{os.fspath(path)}.unfinished"
        with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_STORED) as copy:
            for entry in source.infolist():
                if entry.filename == configs[_EVALUATION]:
                    copy.writestr(entry.filename, json.dumps(second))
                elif not entry.filename.startswith(root) or entry.filename in used or entry.filename in configs.values():
                    copy.writestr(entry.filename, source.read(entry))
    os.replace(unfinished, path)
