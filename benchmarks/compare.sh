#!/usr/bin/env bash
# Measures kindling_bench interleaved with other frameworks (benchmarks/peers), then prints how many times as long they take.
#
#   benchmarks/compare.sh [--mkl-for-all] [OPTION...]     some cases: a ratio for every pair of peers
#   benchmarks/compare.sh --table [OPTION...]             everything in the tables of docs/explain/performance.md
#
# The options are those of peers/bench_peers.py: --case, --peer, --repeats, --threads, --precision, --exec; --table chooses
# --case and --precision itself. Kindling is measured as kindling, with MKL's default kernels as all programs have them; as
# kindling_mkl, with MKL's fast kernels on CPUs from other vendors than Intel; and in the cases that train as kindling_eager,
# without step capture. With --mkl-for-all, every peer has the fast kernels, by LD_PRELOAD, and kindling_mkl is measured only.
#
# Environment variables:
#   KINDLING_PEERS_PYTHON   a Python with the packages of peers/requirements.txt; default: python3
#   KINDLING_BENCH          the benchmark program; default: build/release/bin/kindling_bench
#   KINDLING_SHARED         the folder that contains data/mnist-10k; default: the repository
# shellcheck source=scripts/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/setup.sh"

readonly peers=$kindling_root/benchmarks/peers results=$kindling_root/build/compare
readonly cases=step_tiny,step_deep,fmnist_epoch,cnn_mnist,data_feed,optim_only,cold_start
python=${KINDLING_PEERS_PYTHON:-python3}
bench=${KINDLING_BENCH:-$kindling_root/build/release/bin/kindling_bench}

say() { printf 'compare: %s\n' "$*" >&2; }

stop() {
  say "$*"
  exit 2
}

check_options() {
  local option
  for option in "$@"; do
    case $option in
      --json | --json=*) stop "$option: the lines are written to a file in $results; remove the option" ;;
      --case | --case=* | --precision | --precision=*) ! $table || stop "$option: --table chooses it; remove one of them" ;;
      --table | --mkl-for-all) stop "$option: expected as the first option, and only one of --table and --mkl-for-all" ;;
    esac
  done
}

# Sets KINDLING_SHARED for all peers.
find_data() {
  local name
  KINDLING_SHARED=$(data_root)
  export KINDLING_SHARED
  for name in t10k-images-idx3-ubyte.gz t10k-labels-idx1-ubyte.gz; do
    [ -e "$KINDLING_SHARED/data/mnist-10k/$name" ] ||
      stop "$KINDLING_SHARED/data/mnist-10k/$name: no such file; benchmarks/README.md describes the data"
  done
}

check_programs() {
  [ -x "$bench" ] || stop "$bench: no such program; build it with 'cmake --preset release && cmake --build --preset release'"
  "$python" -c 'import torch, lightning, accelerate, ignite' 2>/dev/null ||
    stop "$python: a package of $peers/requirements.txt is missing; set KINDLING_PEERS_PYTHON to a Python that has them"
}

# Times of different builds of LibTorch cannot be compared.
check_libtorch() {
  local ours theirs
  ours=$(ldd "$bench" | sed -n 's/.*libtorch_cpu\.so => \(.*\) (.*/\1/p')
  theirs=$torch/lib/libtorch_cpu.so
  [ -n "$ours" ] || stop "$bench: libtorch_cpu.so is not found"
  [ "$ours" -ef "$theirs" ] || cmp -s "$ours" "$theirs" ||
    stop "$bench uses $ours, the peers another build, $theirs; configure with -DLIBTORCH=$torch"
}

build_bare_loop() {
  local log=$results/bare_loop.log
  say "building the peer bare_loop"
  {
    cmake -S "$peers/bare_libtorch" -B "$results/bare_libtorch" -DCMAKE_BUILD_TYPE=Release \
      -DCMAKE_PREFIX_PATH="$torch/share/cmake" &&
      cmake --build "$results/bare_libtorch" --target bare_loop
  } >"$log" 2>&1 || stop "bare_loop could not be built; the output is in $log"
}

# The library that has the same effect on a program as src/fast_mkl.
build_mkl_answer() {
  echo 'int mkl_serv_intel_cpu_true(void) { return 1; }' | cc -shared -fPIC -O2 -x c -o "$results/mkl_answer.so" - ||
    stop "the library for --mkl-for-all could not be built"
}

# measure LINES OPTION...: adds the lines of kindling_bench and the peers to the file, whose name says if all have the fast kernels.
measure() {
  local lines=$1 ours=(kindling kindling_mkl kindling_eager) preload=${LD_PRELOAD-} programs peer
  shift
  if [[ $lines == *-mkl_for_all.jsonl ]]; then
    ours=(kindling_mkl)
    preload=$results/mkl_answer.so
  fi
  programs=(--exec "$(printf %q "$results/bare_libtorch/bare_loop")")
  for peer in "${ours[@]}"; do programs+=(--exec "$(printf %q "$bench") --peer $peer"); done
  LD_PRELOAD=$preload PYTHONDONTWRITEBYTECODE=1 "$python" "$peers/bench_peers.py" "${programs[@]}" --json "$lines" "$@" >/dev/null ||
    agree=false
  [ -s "$lines" ] || stop "nothing was measured"
}

print_ratios() {
  say "the lines are in $1; B is Kindling, and a ratio above 1 means that it takes less time"
  "$python" -B "$peers/ratios.py" <(grep -v '"peer": "kindling' "$1" || true) <(grep '"peer": "kindling' "$1" || true) --metric cpu
}

table=false
suffix=
case ${1-} in
  --table) table=true ;;
  --mkl-for-all) suffix=-mkl_for_all ;;
esac
if $table || [ -n "$suffix" ]; then shift; fi
check_options "$@"
find_data
check_programs
torch=$("$python" -c 'import torch; print(torch.__path__[0])')
mkdir -p "$results"
check_libtorch
build_bare_loop
if $table || [ -n "$suffix" ]; then build_mkl_answer; fi

start=$results/$(date +%Y%m%d-%H%M%S)
agree=true
if $table; then
  measure "$start.jsonl" --case "$cases" "$@"
  measure "$start.jsonl" --case cnn_mnist --precision bf16 "$@"
  measure "$start-mkl_for_all.jsonl" --case step_tiny,step_deep,fmnist_epoch,cnn_mnist "$@"
  say "the lines are in $start.jsonl and $start-mkl_for_all.jsonl"
  "$python" -B "$kindling_root/scripts/performance_table.py" "$start.jsonl" "$start-mkl_for_all.jsonl"
else
  measure "$start$suffix.jsonl" --case "$cases" "$@"
  print_ratios "$start$suffix.jsonl"
fi
$agree || { say "a measurement failed, or final losses differ (see above): those times do not count"; exit 1; }
