"""Which module may include which, and what a public header may not contain."""

import re
from pathlib import Path

# A module may include itself and the modules before it.
MODULES = ("base formats checkpoint config launch charts loggers runs device tensors graph distributed data metrics optim nn models "
           "interop training measurements fast_mkl cli bindings").split()
WITHOUT_LIBTORCH = MODULES[:8]
# The sub-modules of a module, in the same order. "" stands for the files in the module's own folder; without it there are none.
SUBMODULES = {
    "formats": ["", "zip", "tables", "images", "safetensors", "arrays", "hdf5", "netcdf", "pt2", "torch"],
    "interop": ["run", "onnx", "export", "aoti", ""],
    "data": ["loading", "transforms", "sources", "masks"],
    "cli": ["config", "help", "run", "check", "sweep", "data", "commands", ""],
    "training": ["state", "parallel", "step", "capture", "inspect", "loop", "callbacks", "tuner"],
    "graph": ["recording", "nodes", "kernels", "replay", "device"],
}
# The core of training works without these, so none of its files may include them, not even through other headers.
CORE = ("src/training/state", "src/training/loop", "src/training/step")
NOT_IN_CORE = {
    re.compile(r"(kindling/)?interop/|kindling/programs/"): "interop",
    re.compile(r"training/capture/(?!capture\.h)|graph/replay/|graph/recording/step_replay\.h"): "step capture and replay",
    re.compile(r"(torch/csrc/distributed|c10d)/"): "c10d",
}
# Without the module (KINDLING_INTEROP=OFF) a source defines the functions of its public headers, and nothing else.
PUBLIC_ONLY = ("interop",)
# Headers of `bindings` for programs that are not C++, in the include folder itself.
FOR_OTHER_LANGUAGES = ("kindling_c.h", "kindling_c_mpi.h")
# Users like any other: they see the public headers.
OUTSIDE = ("apps", "benchmarks")
# Headers in the name of another library.
NOT_OURS = "src/distributed/gloo_declarations"
MAX_FILES_IN_FOLDER = 45

LIBTORCH = re.compile(r"(torch|ATen|c10|caffe2)/")
# Other people's types stay out of the interface. LibTorch's umbrella costs every includer nine seconds.
BANNED_IN_PUBLIC = re.compile(r"torch/(torch|extension|all)\.h|(spdlog|fmt|toml\+\+|CLI|nlohmann|gtest|gmock)/|(zlib|png|jpeglib)\.h")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]')
# An old path of a public header: a comment and one include of the new path.
FORWARDING = re.compile(r'\A#pragma once\n\n// Deprecated: moved to (\S+)\. .*\n#include "\1"\n\Z')
BANNED_TEXT = {
    re.compile(r"^\s*using\s+namespace\b"): "`using namespace` reaches everyone who includes this header",
    re.compile(r"^\s*#\s*define\s+(LOG|CHECK)(_\w+)?\b"): "macros named LOG or CHECK clash with other libraries'",
    re.compile(r"^\s*#\s*if"): "no conditional compilation in public headers",
}


def source_files(root):
    for top in ("include/kindling", "src", *OUTSIDE):
        for path in sorted((root / top).rglob("*")):
            if path.suffix in (".h", ".cpp") and not path.is_relative_to(root / NOT_OURS):
                yield path.relative_to(root)


def is_forwarding(text):
    return FORWARDING.match(text) is not None


def folder_of(path):
    """(module, sub-module) of a file; the module of the umbrella header is None."""
    parts = path.parts
    if parts[0] in OUTSIDE:
        return parts[0], ""
    inside = parts[2:-1] if parts[0] == "include" else parts[1:-1]
    return (inside[0], "/".join(inside[1:])) if inside else (None, "")


def included_folder(target):
    """(module, sub-module, is it public) for an include of Kindling's own headers, else None."""
    parts = Path(target).parts
    if target in FOR_OTHER_LANGUAGES:
        return "bindings", "", True
    if parts[0] == "kindling" and len(parts) > 2:
        return parts[1], "", True
    return (parts[0], "/".join(parts[1:-1]), False) if parts[0] in MODULES and len(parts) > 1 else None


def check_submodule(module, submodule, other):
    order = SUBMODULES.get(module, [""])
    if submodule in order and other in order and order.index(other) > order.index(submodule):
        return f"'{module}/{submodule}' may not include '{module}/{other}', which comes after it"
    return None


def check_order(folder, is_public, target, bracket):
    module, submodule = folder
    included = included_folder(target)
    if included is None:
        if target == "kindling/kindling.h" and module not in OUTSIDE:
            return "the umbrella header is for users"
        if bracket == '"' and module in MODULES and target != "kindling/kindling.h":
            return "includes name their module"
        return None
    other, other_submodule, other_is_public = included
    if other not in MODULES:
        return f"there is no module '{other}'"
    if module in MODULES and MODULES.index(other) > MODULES.index(module):
        return f"'{module}' may not include '{other}', which comes after it"
    if not other_is_public and (is_public or module in OUTSIDE or other in PUBLIC_ONLY and module != other):
        return "a private header"
    if module == other and not other_is_public:
        return check_submodule(module, submodule, other_submodule)
    return None


def check_include(path, target, bracket):
    folder, is_public = folder_of(path), path.parts[0] == "include"
    problem = check_order(folder, is_public, target, bracket)
    if problem:
        return problem
    if folder[0] in WITHOUT_LIBTORCH and LIBTORCH.match(target):
        return f"'{folder[0]}' is built without LibTorch"
    if is_public and BANNED_IN_PUBLIC.match(target):
        return "not in a public header"
    return None


def check_line(path, line, forwarding):
    include = INCLUDE.match(line)
    if include:
        problem = check_include(path, include[2], include[1])
        if include[2] in forwarding:
            problem = "a deprecated path"
        return f"{include[2]}: {problem}" if problem else None
    # The specification of Arrow prescribes its macros.
    if path.parts[0] == "include" and path.name != "arrow.h":
        return next((reason for pattern, reason in BANNED_TEXT.items() if pattern.search(line)), None)
    return None


def check_place(path):
    """Whether the file's folder is one of the known modules and sub-modules."""
    module, submodule = folder_of(path)
    if module is None or module in OUTSIDE:
        return None
    if module not in MODULES:
        return f"there is no module '{module}'"
    known = SUBMODULES.get(module, [""])
    if path.parts[0] == "src" and submodule not in known:
        return f"there is no sub-module '{module}/{submodule}'" if submodule else f"'{module}' has sub-modules only"
    return None


def crowded_folders(paths):
    counts = {}
    for path in paths:
        counts[path.parent] = counts.get(path.parent, 0) + 1
    return [f"{folder}: {count} sources and headers in one folder, at most {MAX_FILES_IN_FOLDER} are allowed"
            for folder, count in sorted(counts.items()) if count > MAX_FILES_IN_FOLDER]


def header_file(target):
    """The file of an include of Kindling's own headers, else None."""
    if target.startswith("kindling/"):
        return Path("include") / target
    return Path("src") / target if target.split("/")[0] in MODULES else None


def core_violation(path, includes):
    """The first chain of includes from a file to what the core may not include, or None. `includes`: the targets by file."""
    chains = {path: [str(path)]}
    waiting = [path]
    for file in waiting:
        for target in includes.get(file, []):
            chain = [*chains[file], target]
            for pattern, name in NOT_IN_CORE.items():
                if pattern.match(target):
                    return f"{' -> '.join(chain)}: the core of training may not include {name}"
            header = header_file(target)
            if header is not None and header not in chains:
                chains[header] = chain
                waiting.append(header)
    return None


def core_violations(texts):
    includes = {path: [found[2] for found in map(INCLUDE.match, text.splitlines()) if found] for path, text in texts.items()}
    found = [core_violation(path, includes) for path in texts if str(path.parent) in CORE]
    return [violation for violation in found if violation]


def violations(root):
    """All of them as `file:line: what is wrong`."""
    texts = {path: (root / path).read_text() for path in source_files(root)}
    forwarding = {str(path.relative_to("include")) for path, text in texts.items()
                  if path.parts[0] == "include" and is_forwarding(text)}
    found = crowded_folders([path for path in texts if path.parts[0] == "src"])
    for path, text in texts.items():
        if is_forwarding(text):
            continue
        problem = check_place(path)
        if problem:
            found.append(f"{path}: {problem}")
            continue
        for number, line in enumerate(text.splitlines(), 1):
            problem = check_line(path, line, forwarding)
            if problem:
                found.append(f"{path}:{number}: {problem}")
    return found + core_violations(texts)
