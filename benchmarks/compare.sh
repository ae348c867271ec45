#!/usr/bin/env bash
# Measures kindling_bench and other frameworks in turns, then prints how much less time Kindling takes.
#
#   benchmarks/compare.sh [--mkl-for-all] [OPTION...]
#
# The options are those of bench_peers.py: --case, --peer, --repeats, --threads, --precision, --exec. Kindling takes part
# as kindling, with MKL's kernels as they are for everybody, and as kindling_mkl, with its fast ones on CPUs that are not
# Intel's; where its trainer is at work, also as kindling_eager, without the step graph. With --mkl-for-all everybody has these, by LD_PRELOAD, and only kindling_mkl takes part.
#
# From the environment: KINDLING_SHARED (the folder with peers/ and data/; default: ../shared beside this project),
# KINDLING_PEERS_PYTHON (a Python with the packages of peers/requirements.txt; default: python3), KINDLING_BENCH (the
# program; default: build/release/bin/kindling_bench).
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly root
readonly cases=step_tiny,step_deep,fmnist_epoch,cnn_mnist,data_feed,optim_only,cold_start
shared=${KINDLING_SHARED:-$root/../shared}
python=${KINDLING_PEERS_PYTHON:-python3}
bench=${KINDLING_BENCH:-$root/build/release/bin/kindling_bench}
results=$root/build/compare

say() { printf 'compare: %s\n' "$*" >&2; }

stop() {
  say "$*"
  exit 2
}

check_inputs() {
  local argument
  for argument in "$@"; do
    case $argument in --json | --json=*) stop "it writes its own file below $results; leave out --json" ;; esac
  done
  [ -e "$shared/peers/bench_peers.py" ] ||
    stop "there is no peers/bench_peers.py in $shared: let KINDLING_SHARED name the folder that has it"
  shared=$(cd "$shared" && pwd)
  [ -x "$bench" ] ||
    stop "there is no $bench: build it with 'cmake --preset release && cmake --build --preset release'"
  "$python" -c 'import torch, lightning, accelerate, ignite' 2>/dev/null ||
    stop "$python lacks a package of $shared/peers/requirements.txt: let KINDLING_PEERS_PYTHON name one that has them"
}

# Times of different builds of LibTorch cannot be compared.
check_libtorch() {
  local ours theirs
  ours=$(ldd "$bench" | sed -n 's/.*libtorch_cpu\.so => \(.*\) (.*/\1/p')
  theirs=$torch/lib/libtorch_cpu.so
  [ -n "$ours" ] || stop "$bench finds no libtorch_cpu.so"
  [ "$ours" -ef "$theirs" ] || cmp -s "$ours" "$theirs" ||
    stop "$bench runs on $ours, the others on $theirs, which is another build: configure with -DLIBTORCH=$torch"
}

build_bare_loop() {
  local log=$results/bare_loop.log
  say "building the peer bare_loop"
  {
    cmake -S "$shared/peers/bare_libtorch" -B "$results/bare_loop" -DCMAKE_BUILD_TYPE=Release \
      -DCMAKE_PREFIX_PATH="$torch/share/cmake" &&
      cmake --build "$results/bare_loop" --target bare_loop
  } >"$log" 2>&1 || stop "bare_loop could not be built (all that was said is in $log)"
}

# What src/fast_mkl tells MKL, for programs that do not link it.
preload_mkl_answer() {
  echo 'int mkl_serv_intel_cpu_true(void) { return 1; }' | cc -shared -fPIC -O2 -x c -o "$results/mkl_answer.so" - ||
    stop "the library for --mkl-for-all could not be built"
  export LD_PRELOAD=$results/mkl_answer.so
}

# The lines of Kindling, or of the others.
lines_of() { grep "$@" '"peer": "kindling' "$lines" || true; }

ours=(kindling kindling_mkl kindling_eager)
suffix=
if [ "${1-}" = --mkl-for-all ]; then
  shift
  ours=(kindling_mkl)
  suffix=-mkl_for_all
fi
check_inputs "$@"
torch=$("$python" -c 'import torch; print(torch.__path__[0])')
mkdir -p "$results"
check_libtorch
build_bare_loop

export KINDLING_SHARED=$shared PYTHONDONTWRITEBYTECODE=1  # the folder of the peers is only read
lines=$results/$(date +%Y%m%d-%H%M%S)$suffix.jsonl
agree=true
[ -z "$suffix" ] || preload_mkl_answer
programs=(--exec "$(printf %q "$results/bare_loop/bare_loop")")
for peer in "${ours[@]}"; do programs+=(--exec "$(printf %q "$bench") --peer $peer"); done
"$python" "$shared/peers/bench_peers.py" --case "$cases" "${programs[@]}" --json "$lines" "$@" >/dev/null || agree=false
[ -s "$lines" ] || stop "nothing was measured"

say "the lines are in $lines; B is Kindling, a ratio above 1 means that it takes less time"
"$python" "$shared/peers/compare.py" <(lines_of -v) <(lines_of -e) --metric cpu
$agree || { say "not every measurement counts: one failed, or its final losses differ (see above)"; exit 1; }
