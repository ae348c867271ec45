#!/usr/bin/env bash
# Builds Kindling against several LibTorch versions, as pip has them, and runs the tests with each.
#
#   ./scripts/check_libtorch_versions.sh [VERSION...]        (2.11.0 2.13.0 2.14.1 2.15.0)
#
# Everything goes to .deps/libtorch-VERSION and build/libtorch-VERSION: about 1.5 GB for a version, and 2.5 GB to download for all.
# Of a CUDA package only what its CPU part needs at run time is taken beside it (libcudart and libcupti), so it needs neither a GPU
# nor a toolkit; this also tests the targets that FindLibTorch defines itself.
# shellcheck source=scripts/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

# install_version VERSION: sets LIBTORCH.
install_version() {
  local folder=$deps/libtorch-$1 site cuda
  if [ ! -e "$folder/installed" ]; then
    say "installing torch==$1 with pip into $folder"
    run_logged versions "$(python_with_venv)" -m venv --clear "$folder"
    run_logged versions "$folder/bin/python" -m pip install --quiet --no-input --no-deps "torch==$1" ||
      stop "pip could not install torch==$1 (all it said is in $deps/versions.log)"
    site=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    # Such as `Requires-Dist: cuda-toolkit[cublas,cudart,…]==13.0.2; …`
    cuda=$(sed -n 's/^Requires-Dist: cuda-toolkit\[.*\]==\([0-9.]*\).*/\1/p' "$site"/torch-*.dist-info/METADATA)
    if [ -n "$cuda" ]; then
      run_logged versions "$folder/bin/python" -m pip install --quiet --no-input "cuda-toolkit[cudart,cupti]==$cuda" ||
        stop "pip could not install CUDA's libcudart and libcupti $cuda (all it said is in $deps/versions.log)"
    fi
    touch "$folder/installed"
  fi
  LIBTORCH=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib") + "/torch")')
}

# check_version VERSION: adds a line to results.
check_version() {
  local folder=build/libtorch-$1 log=$deps/libtorch-$1.log total failures skips kind=CPU
  install_version "$1"
  if [ -e "$LIBTORCH/lib/libtorch_cuda.so" ]; then kind=CUDA; fi
  say "building and testing with LibTorch $1 ($kind package)"
  {
    cmake --preset ci -B "$folder" -DLIBTORCH="$LIBTORCH" -DKINDLING_SHARED="${KINDLING_SHARED:-$kindling_root/../shared}" &&
      cmake --build "$folder" --parallel "$CMAKE_BUILD_PARALLEL_LEVEL"
  } >"$log" 2>&1 || {
    results+=("$(printf '%-8s %-5s could not be built, see %s' "$1" "$kind" "$log")")
    failed=1
    return 0
  }
  # Without those that compile Kindling again: another version of LibTorch changes nothing about them.
  ctest --test-dir "$folder" --exclude-regex 'as_subfolder|consumers.wheel' --parallel "$CMAKE_BUILD_PARALLEL_LEVEL" --output-on-failure >>"$log" 2>&1 || true
  read -r failures total < <(sed -n 's/^.*tests passed, \([0-9]*\) tests\{0,1\} failed out of \([0-9]*\)$/\1 \2/p' "$log")
  skips=$(grep -cE '^[[:space:]]+[0-9]+ - .*\(Skipped\)$' "$log" || true)
  results+=("$(printf '%-8s %-5s %s passed, %s failed, %s skipped' "$1" "$kind" $((total - failures - skips)) "$failures" "$skips")")
  if [ "$failures" -ne 0 ]; then failed=1; fi
}

cd "$kindling_root"
need_build_packages "${test_packages[@]}"
check_tool_versions
limit_jobs
results=()
failed=0
versions=("$@")
if [ $# -eq 0 ]; then versions=(2.11.0 2.13.0 2.14.1 2.15.0); fi
for version in "${versions[@]}"; do check_version "$version"; done
printf '%s\n' "${results[@]}"
exit "$failed"
