"""python check_exported.py FOLDER: for each NAME.pt2 in it, torch.export.load has to give a module that computes from
NAME.pt's in.C.I (input I of case C) its out.C.I. A line per file, and what differs."""

import pathlib
import sys
import warnings

import torch
from torch.utils import _pytree as pytree

warnings.filterwarnings("ignore")
TOLERANCE = 1e-6  # of the largest value: operators add up in another order where memory lies otherwise


def tensors_of(state, kind, case):
    names = [name for name in state if name.startswith(f"{kind}.{case}.")]
    return [state[name] for name in sorted(names, key=lambda name: int(name.rsplit(".", 1)[1]))]


def check(path):
    program = torch.export.load(path)
    state = torch.load(path.with_suffix(".pt"), weights_only=True)
    module, worst, sizes = program.module(), 0.0, []
    for case in sorted({int(name.split(".")[1]) for name in state}):
        args, kwargs = pytree.tree_unflatten(tensors_of(state, "in", case), program.call_spec.in_spec)
        with torch.no_grad():
            found = pytree.tree_leaves(module(*args, **kwargs))
        wanted = tensors_of(state, "out", case)
        assert len(found) == len(wanted), (len(found), len(wanted))
        for one, other in zip(found, wanted):
            assert one.shape == other.shape and one.dtype == other.dtype, (case, one.shape, other.shape)
            scale = max(1.0, float(other.abs().max()))
            worst = max(worst, float((one - other).abs().max()) / scale)
        sizes.append(list(pytree.tree_leaves(args)[0].shape) if args else case)
    args, kwargs = program.example_inputs
    module(*args, **kwargs)
    assert worst <= TOLERANCE, worst
    return f"ok {worst:.1e} at {sizes} {program.call_spec.out_spec} {sorted(program.state_dict)}"


def main(folder):
    torch.set_num_threads(1)
    failed = False
    for path in sorted(pathlib.Path(folder).glob("*.pt2")):
        try:
            print(path.stem, check(path))
        except Exception as error:  # all files are looked at
            failed = True
            print(path.stem, "FAILED", type(error).__name__, str(error)[:1500])
    sys.exit(failed)


main(*sys.argv[1:])
