"""export(): writes a model of PyTorch for Kindling."""

import collections
import contextlib
import copy
import io
import json
import logging
import os
import re
import warnings
import zipfile

# Kindling reads both programs of a file: "model", which torch.export.load returns, and this one.
_EVALUATION = "evaluation"
_REMEDY = "write the operation with operators that have a derivative, such as x + (y - x).detach(), or train the model in Python"


def export(model, example, path):
    """Writes `model` to a .pt2 file that Kindling trains and evaluates: the program after model.train() and the one after
    model.eval(), which share their parameters and buffers. The first dimension of the inputs, the batch, may have any size.

    model    a torch.nn.Module; its mode, parameters and buffers stay as they are, if what its train() and eval() change in place is
             undone by the other
    example  an input tensor, a tuple of them, or a dict by the names of forward's arguments, with at least 2 samples
    path     the file, whose name ends in .pt2; torch.export.load reads the training program from it

    Warns of operations whose backward a program does not contain: torch.autograd.Function and backward hooks; and of layers in evaluation
    mode that model.train() trains. Raises ValueError if the parameters or buffers of both modes differ, and what torch.export.export
    raises for a model that it cannot export.
    """
    import torch
    from torch.export.pt2_archive._package import package_pt2

    path = os.fsdecode(path)
    if not path.endswith(".pt2"):
        raise ValueError(f"path: found {path!r}, wanted a name that ends in .pt2")
    arguments, by_name = ((), dict(example)) if isinstance(example, dict) else (_tuple_of(example), {})
    _require_batch([*arguments, *by_name.values()])
    programs, lost, fixed = {}, _hooks_of(model), []
    with _unchanged(model):
        in_evaluation = [name for name, module in model.named_modules() if model.training > module.training]
        for name, is_training in (("model", True), (_EVALUATION, False)):
            model.train(is_training)
            with _watch_backward() as found:
                programs[name] = _exported(model, arguments, by_name)
            if is_training:
                lost += found + _functions_of(model, arguments, by_name)
                fixed = [name for name in in_evaluation if model.get_submodule(name).training]
    _require_same_state(*programs.values())
    if fixed:
        fixed = [name for name in fixed if not any(name.startswith(other + ".") for other in fixed)]
        warnings.warn("the program trains layers that are in evaluation mode: " + ", ".join(fixed) + ": model.train() puts them in training "
                      "mode; to keep them in evaluation mode, override train() of the model", stacklevel=2)
    if lost:
        warnings.warn("the program does not contain the backward of " + ", ".join(dict.fromkeys(lost)) + ": Kindling uses the derivatives "
                      "of the operators in forward instead, which may be zero or have another sign; " + _REMEDY, stacklevel=2)
    packed = io.BytesIO()
    package_pt2(packed, exported_programs=programs)
    _write_with_shared_weights(packed, path)


def _tuple_of(example):
    return tuple(example) if isinstance(example, (tuple, list)) else (example,)


def _samples_in(inputs):
    """The number of samples, which is the first size of the first input with one, or None."""
    import torch

    return next((value.shape[0] for value in inputs if isinstance(value, torch.Tensor) and value.dim() > 0), None)


def _require_batch(inputs):
    samples = _samples_in(inputs)
    if samples is None:
        raise ValueError("example: found no tensor with a batch dimension, wanted the inputs of a batch")
    if samples < 2:
        raise ValueError(f"example: found {samples} sample{'' if samples == 1 else 's'}, wanted at least 2: torch.export would fix the "
                         "size of a batch of one sample")


def _dynamic_shapes(arguments, by_name, batch):
    """The first dimension of each tensor that has as many samples as the first input is `batch`."""
    import torch

    inputs = [*arguments, *by_name.values()]
    samples = _samples_in(inputs)
    shapes = [{0: batch} if isinstance(value, torch.Tensor) and value.dim() > 0 and value.shape[0] == samples else None for value in inputs]
    return dict(zip(by_name, shapes)) if by_name else tuple(shapes)


@contextlib.contextmanager
def _unchanged(model):
    """Restores the modes of a model, which parameters and buffers it has, and which of them are trained."""
    was_training = model.training
    modules = [(module, module.training, dict(module._parameters), dict(module._buffers)) for module in model.modules()]
    trained = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    try:
        yield
    finally:
        model.train(was_training)
        for module, mode, parameters, buffers in modules:
            module.training = mode
            module._parameters.update(parameters)
            module._buffers.update(buffers)
        for parameter, is_trained in trained:
            parameter.requires_grad_(is_trained)


def _exported(model, arguments, by_name):
    """A program with values of its own, which the next change of the mode does not change."""
    import torch

    program = _program_of(model, arguments, by_name)
    memo = {}
    for values in (program.state_dict, program.constants):
        for name, value in values.items():
            if isinstance(value, torch.Tensor):
                values[name] = copy.deepcopy(value if isinstance(value, torch.nn.Parameter) else value.detach(), memo)
    return program


def _program_of(model, arguments, by_name):
    import torch

    def export_with(batch, strict):
        shapes = _dynamic_shapes(arguments, by_name, batch)
        return torch.export.export(model, arguments, by_name, dynamic_shapes=shapes, strict=strict)

    def is_constraint(error):
        return isinstance(error, torch._dynamo.exc.UserError) and "onstraints violated" in str(error)
    batch = torch.export.Dim("batch", min=1)
    try:
        with _einsum_paths_of_example():
            return export_with(batch, strict=False)
    except torch._dynamo.exc.UserError as error:
        if not is_constraint(error):
            raise
        refused = error
    try:
        with _without_log("torch._guards"):
            return export_with(batch, strict=True)  # it follows len(x), which is a number to the other one, but not all of Python
    except Exception as error:
        refused = error if is_constraint(error) else refused
    sizes = re.search(r"batch = Dim\('batch'(?:, min=(\d+))?(?:, max=(\d+))?\)", str(refused))
    if not sizes:
        raise ValueError("example: torch.export cannot export the model for any number of samples; if an input that does not belong to the "
                         "batch has as many rows as it, choose another number of samples") from refused
    limits = {name: int(size) for name, size in zip(("min", "max"), sizes.groups()) if size}
    program = export_with(torch.export.Dim("batch", **limits), strict=False)
    warnings.warn("the program takes batches of " + " and ".join({"min": "at least ", "max": "at most "}[name] + str(size)
                  for name, size in limits.items()) + " samples: the code of the model distinguishes sizes beyond that", stacklevel=4)
    return program


@contextlib.contextmanager
def _einsum_paths_of_example():
    """Lets opt_einsum, which orders the factors of torch.einsum if it is installed, read the sizes of the example: it would take the batch
    for a constant."""
    import torch

    package = torch.backends.opt_einsum.get_opt_einsum()
    if package is None:
        yield
        return
    original = package.contract_path

    def path_of(equation, *operands, **options):
        shapes = [tuple(size if isinstance(size, int) else size.node.hint for size in each.shape) for each in operands]
        return original(equation, *shapes, shapes=True, **options)
    package.contract_path = path_of
    try:
        yield
    finally:
        package.contract_path = original


@contextlib.contextmanager
def _without_log(name):
    logger = logging.getLogger(name)
    was_disabled, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = was_disabled


def _functions_of(model, arguments, by_name):
    """The autograd functions in the graph of a forward; a function that was bound earlier is not seen by _watch_backward."""
    import torch

    devices = {parameter.device for parameter in model.parameters() if parameter.is_cuda}
    try:
        with torch.enable_grad(), torch.random.fork_rng(devices):
            outputs = torch.utils._pytree.tree_leaves(copy.deepcopy(model)(*arguments, **by_name))  # forward may change buffers
    except Exception:  # a member cannot be copied, or the model only be exported
        return []
    nodes, seen, found = [value.grad_fn for value in outputs if isinstance(value, torch.Tensor)], set(), []
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        nodes += [following for following, _ in node.next_functions]
        if isinstance(node, torch.autograd.function.BackwardCFunction) and not node._forward_cls.__module__.startswith("torch."):
            found.append(f"the autograd function {node._forward_cls.__name__}")
    return found


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

    def refuse(name, first, second):
        raise ValueError(f"model: {name!r} is {first} after model.train() and {second} after model.eval(), wanted the same in both: do not "
                         "replace or change parameters when the mode changes")

    first, second = state_of(training), state_of(evaluation)
    for name in collections.ChainMap(first, second):
        if first.get(name) != second.get(name):
            refuse(name, *(f"{state[name][1]} {list(state[name][0])}" if name in state else "no such parameter or buffer"
                           for state in (first, second)))
        one, other = training.state_dict[name], evaluation.state_dict[name]
        if one.requires_grad != other.requires_grad:
            refuse(name, *("trained" if each.requires_grad else "not trained" for each in (one, other)))
        if not ((one == other) | ((one != one) & (other != other))).all():  # NaN equals NaN
            refuse(name, "one value", "another")


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
        unfinished = f"{path}.unfinished"
        try:
            with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_STORED) as target:
                for entry in source.infolist():
                    if entry.filename == configs[_EVALUATION]:
                        target.writestr(entry.filename, json.dumps(second))
                    elif not entry.filename.startswith(root) or entry.filename in used or entry.filename in configs.values():
                        target.writestr(entry.filename, source.read(entry))
            os.replace(unfinished, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.remove(unfinished)
            raise
