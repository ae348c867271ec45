#!/usr/bin/env bash
# The sample compiled_digits from its export to what it serves: compiled_digits.sh SAMPLE KINDLING COMPILED_DIGITS PYTHON LIBTORCH_VERSION WORK.
# The folder WORK keeps its files for other tests. Ends with 77 where there is nothing to compile a package with.
set -euo pipefail

skip() {
  echo "skipped: $*"
  exit 77
}

sample=$1 kindling=$2 compiled_digits=$3 python=${KINDLING_TORCH_PYTHON:-$4} version=$5 work=$6
rm -rf "$work"
found=$("$python" -c 'import torch; print(torch.__version__)' 2>/dev/null) || skip "no Python with PyTorch is here"
[ "${found%+*}" = "${version%+*}" ] || skip "packages are of one version: Python's is $found, LibTorch's $version"
"$python" -c 'from torch._inductor import cpp_builder; cpp_builder.get_cpp_compiler()' 2>/dev/null || skip "no C++ compiler is here"

mkdir -p "$work"
cp "$sample"/*.py "$sample"/*.toml "$work"
cd "$work"
"$python" export_digits.py
"$kindling" fit -c config.toml --trainer.max_epochs 4 --run.dir runs
"$compiled_digits" digits_compiled.pt2 digits.pt2 runs/*/*/weights.safetensors
