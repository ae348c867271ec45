#!/usr/bin/env bash
# Sets everything up, builds and runs all tests: with the flags of a release, then the unit tests under sanitizers.
#
#   ./scripts/test.sh [--no-sanitizers]
#
# From the environment, beside what setup.sh takes: KINDLING_SHARED, the folder with the golden cases and further data
# (../shared); tests that need it are skipped where it is absent.
# shellcheck source=scripts/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

presets=(ci asan tsan)
for argument in "$@"; do
  case $argument in
    --no-sanitizers) presets=(ci) ;;
    *) stop "unknown argument '$argument'; usage: scripts/test.sh [--no-sanitizers]" ;;
  esac
done
shared=$(realpath -m "${KINDLING_SHARED:-$kindling_root/../shared}")
export KINDLING_SHARED=$shared

# run_tests PRESET: adds what ctest counted to passed, failed and skipped.
run_tests() {
  local log=$kindling_root/build/$1/tests.log total failures skips
  say "running the tests of build/$1"
  (cd "$kindling_root" && ctest --preset "$1" --parallel "$CMAKE_BUILD_PARALLEL_LEVEL") 2>&1 | tee "$log" || true
  read -r failures total < <(sed -n 's/^.*tests passed, \([0-9]*\) tests\{0,1\} failed out of \([0-9]*\)$/\1 \2/p' "$log") ||
    stop "ctest did not come to its end in build/$1"
  skips=$(grep -cE '^[[:space:]]+[0-9]+ - .*\(Skipped\)$' "$log" || true)
  failed=$((failed + failures)) skipped=$((skipped + skips)) passed=$((passed + total - failures - skips))
}

need_build_packages "${test_packages[@]}"
find_libtorch
passed=0 failed=0 skipped=0
for preset in "${presets[@]}"; do
  configure "$preset" "KINDLING_SHARED:PATH=$shared"
  build "$preset"
  run_tests "$preset"
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
