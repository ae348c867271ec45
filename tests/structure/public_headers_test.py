"""Every public header compiles alone, as a strict user would include it, and may be included twice.

  public_headers_test.py INCLUDE_FOLDER WORK COMPILER FLAG...

Reading LibTorch's headers and instantiating their templates is most of what that costs, so those that all headers of a group include by
themselves are precompiled, and header_chains.py puts several headers into one file where they cannot help each other. As many compilers run
at once as CMAKE_BUILD_PARALLEL_LEVEL says, or as there are cores.
"""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import header_chains

PRECOMPILED = {"tensor": "ATen/core/Tensor.h", "module": "torch/nn/module.h"}


def said_by(command):
    """What a compiler that fails prints; empty if it succeeds."""
    done = subprocess.run(command, capture_output=True, text=True)
    return "" if done.returncode == 0 else f"{' '.join(map(str, command))}\n{done.stderr}"


def main():
    include, work, compiler, *flags = sys.argv[1:]
    work = Path(work)
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    is_clang = "clang" in subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout
    compile_ = [compiler, *flags, "-std=c++20", "-O0", "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{include}"]
    workers = int(os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or os.cpu_count())

    def precompile(group):
        header = work / f"{group}.h"
        header.write_text(f"#include <{PRECOMPILED[group]}>\n")
        # Clang then instantiates the templates once and not for each header.
        more = ["-fpch-instantiate-templates", "-o", f"{header}.pch"] if is_clang else ["-o", f"{header}.gch"]
        return said_by([*compile_, *more, "-x", "c++-header", header])

    def check(numbered):
        number, (group, chain) = numbered
        source = work / f"{number}.cpp"
        source.write_text("".join(f'#include "{header}"\n' * 2 for header in chain))
        used = []
        if group in PRECOMPILED:
            used = ["-include-pch", work / f"{group}.h.pch"] if is_clang else ["-include", work / f"{group}.h"]
        return said_by([*compile_, *used, "-fsyntax-only", source])

    # The slow ones first, so that no compiler runs alone at the end.
    chains = sorted(header_chains.chains_of(Path(include)), key=lambda chain: chain[0] != "module")
    with ThreadPoolExecutor(workers) as pool:
        errors = [error for error in pool.map(precompile, PRECOMPILED) if error]
        if not errors:
            errors = [error for error in pool.map(check, enumerate(chains)) if error]
    shutil.rmtree(work)
    print("\n".join(errors))
    print(f"{sum(len(chain) for _, chain in chains)} headers in {len(chains)} files")
    sys.exit(1 if errors else 0)


if __name__ == "__main__":
    main()
