#!/usr/bin/env bash
# Sets everything up, builds and runs all tests, with the flags of a release. Then runs the unit tests with AddressSanitizer and the
# newest tested LibTorch that pip can install (or the one that LIBTORCH or Torch_DIR names), those of the modules without LibTorch with
# ThreadSanitizer, and each fuzzer for 20 seconds (scripts/fuzz.sh). Ends with what each part took, the ten slowest entries of ctest, why
# tests were skipped, and the numbers of ctest's entries that passed and failed; among the skipped each test inside of an entry counts too.
#
#   ./scripts/test.sh [--quick | --no-sanitizers]
#
# --quick builds and runs only the tests that need neither Python nor another build nor other processes (ctest's label `quick`): a few
# minutes, for the time while you work.
#
# From the environment, in addition to what setup.sh takes: KINDLING_SHARED, the folder that contains data/mnist-10k (default: the
# repository). Tests that need these files are skipped without them.
# shellcheck source=scripts/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

presets=(ci asan tsan) is_quick=''
for argument in "$@"; do
  case $argument in
    --quick) presets=(ci) is_quick=yes ;;
    --no-sanitizers) presets=(ci) ;;
    *) stop "unknown argument '$argument'; usage: scripts/test.sh [--quick | --no-sanitizers]" ;;
  esac
done
KINDLING_SHARED=$(data_root)
export KINDLING_SHARED

# Sets processor_seconds: those of all commands that this shell has waited for.
read_processor_seconds() {
  times >"$deps/times"  # in a command substitution they would be that of its own shell
  processor_seconds=$(awk 'NR == 2 { for (i = 1; i <= 2; i++) { split($i, t, /[ms]/); s += 60 * t[1] + t[2] } print int(s) }' "$deps/times")
}

# timed PART COMMAND...: adds a line to parts.
timed() {
  local before wall=$SECONDS
  read_processor_seconds
  before=$processor_seconds
  "${@:2}"
  read_processor_seconds
  parts+=("$(printf '%-14s %5d s %5d s of processors' "$1" $((SECONDS - wall)) $((processor_seconds - before)))")
}

set_up() {
  local packages=("${test_packages[@]}")
  # Root can run the test of launchers, which then must not be skipped.
  if [ "$(id -u)" -eq 0 ] && [ -z "$is_quick" ]; then
    packages+=("${launcher_packages[@]}")
    export KINDLING_NEEDS_LAUNCHERS=1
  fi
  need_build_packages "${packages[@]}"
  find_libtorch
  limit_jobs
}

# Installs what only tests need, while the build runs: it mostly waits for the network. wait_for_test_packages() waits for its end.
install_test_packages() {
  install_torch_for_python
  install_tensorboard
  install_onnx
  install_mkdocs || say "pip could not install MkDocs (its output is in $deps/pip-docs.log): its test will be skipped"
  install_clang_format || say "pip could not install clang-format (its output is in $deps/pip-format.log): its test will be skipped"
  if [ -z "$named_libtorch" ] && [[ " ${presets[*]} " == *' asan '* ]]; then use_newest_libtorch || true; fi
}

# An installation that stopped counts as a test that failed.
wait_for_test_packages() {
  if wait "$installing"; then return; fi
  say "installing packages for tests ended with an error, see the logs in $deps"
  failed=$((failed + 1))
}

# Sets LIBTORCH to the newest tested version that pip can install, or keeps it if there is none. Counts a skipped test if that is not the
# newest tested version of all.
choose_newest_libtorch() {
  local newest=${newest_torch_versions[0]} chosen
  use_newest_libtorch || true
  chosen=$(libtorch_version "$LIBTORCH")
  if [ "$chosen" = "$newest" ]; then return; fi
  skipped=$((skipped + 1))
  skip_reasons+="newest LibTorch: $newest could not be installed, so AddressSanitizer's tests used $chosen"$'\n'
}

# The runtime of clang's sanitizers and fuzzers.
need_clang_runtime() { need_packages "libclang-rt-$(clang -dumpversion | cut -d. -f1)-dev"; }

# sanitizing_compiler SANITIZERS: prints the compiler of a preset with sanitizers: that of CXX, or clang, which compiles them in half of GCC's
# time, and whose warnings about all of Kindling are seen then. Prints GCC if what clang links with them does not run here.
sanitizing_compiler() {
  local clang
  if [ -z "${CXX:-}" ] && clang=$(command -v clang++); then
    (need_clang_runtime) || true
    if "$clang" "-fsanitize=$1" -x c++ - -o "$deps/probe" 2>"$deps/probe.log" <<<'int main() {}' &&
      "$deps/probe" 2>>"$deps/probe.log"; then
      echo "$clang"
      return
    fi
  fi
  command -v "${CXX:-g++}"
}

# build_all PRESET [TARGET...]: a warning counts as a test that failed. ccache repeats those of the objects that it keeps.
build_all() {
  local log=$kindling_root/build/$1/build.log
  build "$@" 2>&1 | tee "$log" >&2
  if grep -q ': warning: ' "$log"; then
    say "the compiler has warned, see $log"
    failed=$((failed + 1))
  fi
}

# run_tests PRESET [ARGUMENT of ctest...]: adds what ctest counted to passed, failed and skipped, the reasons to skip_reasons, and the
# seconds of each entry to entries.
run_tests() {
  local folder=$kindling_root/build/$1 log total failures skips
  log=$folder/tests.log
  say "running the tests of build/$1"
  (cd "$kindling_root" && ctest --preset "$1" --parallel "$CMAKE_BUILD_PARALLEL_LEVEL" "${@:2}") 2>&1 | tee "$log" || true
  entries+=$(sed -nE "s/^ *[0-9]+\/[0-9]+ Test +#[0-9]+: ([^ ]+) .* ([0-9.]+) sec\$/\2 s $1 \1/p" "$log")$'\n'
  read -r failures total < <(sed -n 's/^.*tests passed, \([0-9]*\) tests\{0,1\} failed out of \([0-9]*\)$/\1 \2/p' "$log") ||
    stop "ctest did not come to its end in build/$1"
  skips=$(grep -cE '^[[:space:]]+[0-9]+ - .*\(Skipped\)$' "$log" || true)
  failed=$((failed + failures)) passed=$((passed + total - failures - skips))
  # Inside of an entry GoogleTest skips tests, each of which says why in the line behind its own.
  log=$folder/Testing/Temporary/LastTest.log
  skipped=$((skipped + skips + $(grep -cE '^\[  SKIPPED \] .* \([0-9]+ ms\)$' "$log" || true)))
  skip_reasons+=$(sed -n '/: Skipped$/{n;p}' "$log")$'\n'
}

# run_fuzzers: counts as one test; skipped where the packages have no libFuzzer.
run_fuzzers() {
  local code=0
  (need_clang_runtime) || true
  "$kindling_root/scripts/fuzz.sh" 20 || code=$?
  case $code in
    0) passed=$((passed + 1)) ;;
    77) skipped=$((skipped + 1)) skip_reasons+="fuzzers: clang has no libFuzzer here"$'\n' ;;
    *) failed=$((failed + 1)) ;;
  esac
}

mkdir -p "$deps"
passed=0 failed=0 skipped=0 skip_reasons='' entries='' parts=()
named_libtorch=${LIBTORCH:-${Torch_DIR:-}}
timed 'set up' set_up
usual_libtorch=$LIBTORCH
if [ -n "$is_quick" ]; then
  timed 'configure' configure ci "KINDLING_SHARED:PATH=$KINDLING_SHARED"
  timed 'build' build_all ci kindling_quick_tests
  timed 'tests' run_tests ci --label-regex '^quick$'
  presets=()
else
  install_test_packages &
  installing=$!
  trap 'kill "$installing" 2>/dev/null || true' EXIT
fi
for preset in "${presets[@]}"; do
  LIBTORCH=$usual_libtorch
  # A LibTorch that the user names is tested throughout.
  if [ "$preset" = asan ] && [ -z "$named_libtorch" ]; then timed 'asan LibTorch' choose_newest_libtorch; fi
  definitions=("KINDLING_SHARED:PATH=$KINDLING_SHARED")
  case $preset in
    asan) definitions+=("CMAKE_CXX_COMPILER:STRING=$(sanitizing_compiler address,undefined)") ;;
    tsan) definitions+=("CMAKE_CXX_COMPILER:STRING=$(sanitizing_compiler thread)") ;;
  esac
  timed "$preset configure" configure "$preset" "${definitions[@]}"
  parts+=("$(printf '%-14s LibTorch %s' "$preset" "$(libtorch_version "$LIBTORCH")")")
  timed "$preset build" build_all "$preset"
  if [ "$preset" = ci ]; then timed 'test packages' wait_for_test_packages; fi
  timed "$preset tests" run_tests "$preset"
done
if [ "${#presets[@]}" -gt 1 ]; then timed fuzzers run_fuzzers; fi
read_processor_seconds
parts+=("$(printf '%-14s %5d s %5d s of processors' all "$SECONDS" "$processor_seconds")")
grep . <<<"$skip_reasons" | sort | uniq -c | sed 's/^ */skipped /' || true
echo 'the slowest entries:'
sort -rn <<<"$entries" | awk 'NR <= 10 && NF'
printf '%s\n' "${parts[@]}"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
