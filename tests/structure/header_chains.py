"""The public headers as chains, in which every header includes all those before it: ("module", ["kindling/nn/module.h",
"kindling/nn/classifier.h"]).

A file that includes a chain in its order shows that each of its headers compiles alone, because a header's predecessors are headers that it
includes itself. So fewer files have to be compiled than there are headers. The number of chains is the smallest possible (a maximum matching
of the transitive closure).

The group names what all headers of the chain include from LibTorch, which may therefore be precompiled: nothing (plain), torch/nn/module.h
(module), ATen/core/Tensor.h (tensor), or other headers of LibTorch (other).
"""

import re

OURS = re.compile(r'^#include "(kindling/[^"]+)"', re.MULTILINE)
OTHERS = re.compile(r"^#include <([^>]+)>", re.MULTILINE)
LIBTORCH = re.compile(r"(torch|ATen|c10)/")
MODULE = re.compile(r"torch/nn/(module|cloneable|modules/container/sequential)\.h")


def transitive_includes(includes):
    """header → all headers that it includes, through others too."""
    found = {}

    def visit(header):
        if header not in found:
            found[header] = set()
            for target in includes.get(header, []):
                found[header] |= {target} | visit(target)
        return found[header]

    for header in includes:
        visit(header)
    return found


def group(outside):
    if any(map(MODULE.fullmatch, outside)):
        return "module"
    if "ATen/core/Tensor.h" in outside:
        return "tensor"
    return "other" if any(map(LIBTORCH.match, outside)) else "plain"


def chains(headers, closure):
    """The headers as lists in which each includes all before it. `closure`: see transitive_includes()."""
    follower = {}

    def finds_predecessor(header, tried):
        for candidate in sorted((closure[header] & headers) - tried):
            tried.add(candidate)
            if candidate not in follower or finds_predecessor(follower[candidate], tried):
                follower[candidate] = header
                return True
        return False

    for header in sorted(headers):
        finds_predecessor(header, set())
    found = [[header] for header in sorted(headers - set(follower.values()))]
    for chain in found:
        while chain[-1] in follower:
            chain.append(follower[chain[-1]])
    return found


def chains_of(folder):
    """All chains of the headers in a folder, each with its group."""
    texts = {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*.h"))}
    # The wrappers of an MPI compile these: mpi_ranks.c and apps/heat_mpi.
    texts = {header: text for header, text in texts.items() if "#include <mpi.h>" not in text}
    closure = transitive_includes({header: OURS.findall(text) for header, text in texts.items()})
    groups = {}
    for header in texts:
        outside = {name for other in {header} | closure[header] for name in OTHERS.findall(texts.get(other, ""))}
        groups.setdefault(group(outside), set()).add(header)
    return [(name, chain) for name, headers in sorted(groups.items()) for chain in chains(headers, closure)]
