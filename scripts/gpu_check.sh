#!/usr/bin/env bash
# On a machine with a CUDA card: builds and runs the tests labelled `gpu`, in which waits inside whole epochs are errors of
# LibTorch, and writes benchmarks/results/gpu_check_DATE.jsonl: one line per test with device, driver, LibTorch and date, and then what
# `kindling bench` measures.
#
# Installs nothing. LibTorch: LIBTORCH, else the `torch` of the Python on the PATH. Packages that the system lacks can lie unpacked
# in .gpu-deps/root (dpkg -x), for machines without a network.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

stop() {
  echo "gpu_check: $*" >&2
  exit 1
}
command -v nvidia-smi >/dev/null || stop "there is no nvidia-smi, so no CUDA driver; this check is for a machine with a card"
LIBTORCH=${LIBTORCH:-$(python3 -c "import torch, os; print(os.path.dirname(torch.__file__))")} ||
  stop "no LibTorch: set LIBTORCH, or let python3 import torch"
export LIBTORCH
[ -e "$LIBTORCH/lib/libtorch_cuda.so" ] || stop "$LIBTORCH is a CPU build of LibTorch"
device=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)
driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -n 1)
libtorch=$(python3 -c "import torch; print(torch.__version__)" 2>/dev/null || echo "?")

cmake -S . -B build/gpu -G Ninja -DCMAKE_BUILD_TYPE=Release -DLIBTORCH="$LIBTORCH" \
  -DCMAKE_PREFIX_PATH="$PWD/.gpu-deps/root/usr" -DKINDLING_BUILD_EXAMPLES=OFF
cmake --build build/gpu --target kindling_tests kindling_app kindling_bench  # the last for benchmarks/card.py

results=benchmarks/results/gpu_check_$(date -u +%Y-%m-%d).jsonl
mkdir -p benchmarks/results
report=build/gpu/gpu_tests.json
status=0
build/gpu/bin/kindling_tests --gtest_filter='*/cuda*:*Cuda*' --gtest_output="json:$report" || status=$?
python3 - "$report" "$device" "$driver" "$libtorch" "$(date -u +%Y-%m-%dT%H:%M:%SZ)" >"$results" <<'PYTHON'
import json, sys
report, device, driver, libtorch, date = sys.argv[1:]
for suite in json.load(open(report))["testsuites"]:
    for test in suite["testsuite"]:
        result = "failed" if test.get("failures") else "skipped" if test["result"] == "SKIPPED" else "passed"
        print(json.dumps({"check": "gpu", "test": f"{suite['name']}.{test['name']}", "result": result, "seconds": test["time"],
                          "device": device, "driver": driver, "libtorch": libtorch, "date": date}))
PYTHON
for measurement in "matmul --time-budget 60" log pair transfer; do
  # shellcheck disable=SC2086  # options are words of their own
  build/gpu/bin/kindling bench $measurement --json >>"$results" || status=$?
done
echo "gpu_check: $(grep -c '"passed"' "$results") passed, $(grep -c '"failed"' "$results" || true) failed: $results"
exit "$status"
