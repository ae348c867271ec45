"""python check_exported.py FOLDER: for each NAME.pt2 in it, torch.export.load has to give a module that computes from
NAME.pt's in.C.I (input I of case C) its out.C.I, and on the way sizes that the program's expressions of its dynamic sizes say. A line
per file, and what differs."""

import pathlib
import sys
import warnings

import sympy
import torch
from torch.utils import _pytree as pytree

warnings.filterwarnings("ignore")
TOLERANCE = 1e-6  # of the largest value: operators add up in another order where memory lies otherwise


def tensors_of(state, kind, case):
    names = [name for name in state if name.startswith(f"{kind}.{case}.")]
    return [state[name] for name in sorted(names, key=lambda name: int(name.rsplit(".", 1)[1]))]


def expression(size):
    return size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(size)


class Shapes(torch.fx.Interpreter):
    """Runs a program's graph and compares the sizes that it meets with what is said of them."""

    def run_node(self, node):
        result = super().run_node(node)
        said = node.meta.get("val")
        pairs = [(said, result)] if not isinstance(said, (list, tuple)) else list(zip(said, result, strict=True))
        for wanted, found in pairs:
            sizes = (wanted.shape, found.shape) if isinstance(wanted, torch.Tensor) else ((wanted,), (found,))
            for one, other in zip(*sizes, strict=True):
                if isinstance(other, int):
                    self.compare(node, expression(one), other)
        return result

    def compare(self, node, expected, found):
        values = self.__dict__.setdefault("values", {})
        if node.op == "placeholder" and len(expected.free_symbols) == 1 and not expected.free_symbols & values.keys():
            (symbol,) = expected.free_symbols
            values[symbol] = sympy.Rational(found * symbol / expected)  # "s0", or "8*s0"
        assert expected.subs(values) == found, (node, expected, values, found)


def check_shapes(program, args):
    weights = {**program.state_dict, **program.constants}
    names = {**program.graph_signature.inputs_to_parameters, **program.graph_signature.inputs_to_buffers,
             **program.graph_signature.inputs_to_lifted_tensor_constants}
    given = iter(pytree.tree_leaves(args))
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
    inputs = [weights[names[each.name]] if each.name in names else next(given) for each in placeholders]
    with torch.no_grad():
        Shapes(program.graph_module).run(*[each.clone() for each in inputs])


def check(path):
    program = torch.export.load(path)
    state = torch.load(path.with_suffix(".pt"), weights_only=True)
    module, worst, sizes = program.module(), 0.0, []
    for case in sorted({int(name.split(".")[1]) for name in state}):
        args, kwargs = pytree.tree_unflatten(tensors_of(state, "in", case), program.call_spec.in_spec)
        check_shapes(program, args)
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
