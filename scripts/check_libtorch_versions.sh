#!/usr/bin/env bash
# Builds Kindling against several LibTorch versions, as pip has them, runs the tests with each, and lets each version read the
# checkpoints and .pt2 files of the others.
#
#   ./scripts/check_libtorch_versions.sh [VERSION...]        (2.11.0 and those that setup.sh names)
#
# Everything goes to .deps/libtorch-VERSION and build/libtorch-VERSION: about 1.5 GB for a version, and 2.5 GB to download for all.
# CUDA packages also test the targets that FindLibTorch defines itself.
# shellcheck source=scripts/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

# check_version VERSION: adds a line to results.
check_version() {
  local folder=build/libtorch-$1 log=$deps/libtorch-$1.log total failures skips kind=CPU
  install_libtorch_version "$1" || stop "pip could not install torch==$1 (all it said is in $deps/versions.log)"
  if [ -e "$LIBTORCH/lib/libtorch_cuda.so" ]; then kind=CUDA; fi
  say "building and testing with LibTorch $1 ($kind package)"
  {
    cmake --preset ci -B "$folder" -DLIBTORCH="$LIBTORCH" -DKINDLING_SHARED="$(data_root)" &&
      cmake --build "$folder" --parallel "$CMAKE_BUILD_PARALLEL_LEVEL"
  } >"$log" 2>&1 || {
    results+=("$(printf '%-8s %-5s could not be built, see %s' "$1" "$kind" "$log")")
    failed=1
    return 0
  }
  # Skips as_subfolder: it compiles all of Kindling with a second compiler, which takes too long for every version. The wheel's
  # objects come from ccache.
  ctest --test-dir "$folder" --exclude-regex as_subfolder --parallel "$CMAKE_BUILD_PARALLEL_LEVEL" --output-on-failure >>"$log" 2>&1 || true
  read -r failures total < <(sed -n 's/^.*tests passed, \([0-9]*\) tests\{0,1\} failed out of \([0-9]*\)$/\1 \2/p' "$log")
  skips=$(grep -cE '^[[:space:]]+[0-9]+ - .*\(Skipped\)$' "$log" || true)
  results+=("$(printf '%-8s %-5s %s passed, %s failed, %s skipped' "$1" "$kind" $((total - failures - skips)) "$failures" "$skips")")
  if [ "$failures" -ne 0 ]; then failed=1; fi
  built+=("$1")
}

# kindling_of VERSION ARGUMENT...: its program, on the CPU.
kindling_of() { OMP_NUM_THREADS=1 "$kindling_root/build/libtorch-$1/bin/kindling" "${@:2}" >>"$deps/libtorch-files.log" 2>&1; }

# Each version resumes a run of every version, and trains the model that it has exported. Adds a line to results.
exchange_files() {
  local work a b place pairs=0 bad=()
  work=$(mktemp -d)
  : >"$deps/libtorch-files.log"
  for a in "${built[@]}"; do
    kindling_of "$a" fit -c configs/digits_mlp.toml --quiet run.dir="$work/$a" trainer.max_epochs=1 trainer.num_gpus=0 &&
      kindling_of "$a" export "$work/$a/digits_mlp/0001" "$work/$a.pt2" || bad+=("$a writes")
    printf '[model]\nname = "exported"\nfile = "%s"\n[data]\nname = "digits"\n[optimizer]\nname = "adamw"\n[trainer]\nmax_epochs = 1\n' \
      "$work/$a.pt2" >"$work/$a.toml"
  done
  for a in "${built[@]}"; do
    for b in "${built[@]}"; do
      place=$work/$a-$b
      cp -R "$work/$a" "$place"
      kindling_of "$b" fit --resume "$place/digits_mlp/0001" --quiet trainer.max_epochs=2 || bad+=("$b resumes a run of $a")
      kindling_of "$b" fit -c "$work/$a.toml" --quiet run.dir="$place" trainer.num_gpus=0 || bad+=("$b trains a .pt2 of $a")
      pairs=$((pairs + 1))
    done
  done
  rm -rf "$work"
  results+=("$(printf 'files    %s pairs of versions, %s failures (libtorch-files.log) %s' "$pairs" "${#bad[@]}" "${bad[*]/#/; }")")
  if [ "${#bad[@]}" -gt 0 ]; then failed=1; fi
}

cd "$kindling_root"
need_build_packages "${test_packages[@]}"
check_tool_versions
limit_jobs
results=()
failed=0
versions=("$@")
if [ $# -eq 0 ]; then versions=(2.11.0 "$torch_version" "${newest_torch_versions[@]}"); fi
built=()
for version in "${versions[@]}"; do check_version "$version"; done
exchange_files
printf '%s\n' "${results[@]}"
exit "$failed"
