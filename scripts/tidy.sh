#!/usr/bin/env bash
# clang-tidy on the C++ files that differ from a base revision, committed or not.
#
#   ./scripts/tidy.sh [REVISION | --all]     default: where this branch left main; on main itself the commit before
#
# A changed header is read through one source file that includes it.
# shellcheck source=scripts/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
cd "$kindling_root"

base_revision() {
  local base
  base=$(git merge-base HEAD main 2>/dev/null || git merge-base HEAD origin/main 2>/dev/null || true)
  if [ -z "$base" ] || [ "$base" = "$(git rev-parse HEAD)" ]; then base=HEAD~1; fi
  echo "$base"
}

changed_files() {
  if [ "$1" = --all ]; then
    git ls-files --cached --others --exclude-standard
  else
    git diff --name-only --diff-filter=d "$1"
    git ls-files --others --exclude-standard
  fi | grep -E '^(include|src|apps|tests|benchmarks)/.*\.(cpp|h)$' || true
}

# The source files to run on: a changed one itself, for a changed header the first that includes it.
sources_of() {
  local file
  while read -r file; do
    case $file in
      *.cpp) echo "$file" ;;
      *) grep -rlF --include='*.cpp' "include \"${file#*/}\"" src apps tests benchmarks | head -n 1 || true ;;
    esac
  done | sort -u
}

revision=${1:-$(base_revision)}
[ "$revision" = --all ] || git rev-parse -q --verify "$revision^{commit}" >/dev/null || stop "no revision '$revision' here"
need_build_packages "${test_packages[@]}"
command -v clang-tidy >/dev/null || need_packages clang-tidy
find_libtorch
configure dev
limit_jobs

# Only what the build knows has flags to be read with.
mapfile -t sources < <(changed_files "$revision" | sources_of | while read -r file; do
  if grep -qF "\"$kindling_root/$file\"" build/dev/compile_commands.json; then echo "$file"; fi
done)
say "clang-tidy on ${#sources[@]} files that differ from $revision"
[ "${#sources[@]}" -gt 0 ] || exit 0
printf '%s\0' "${sources[@]}" | xargs -0 -n 1 -P "$CMAKE_BUILD_PARALLEL_LEVEL" \
  clang-tidy --quiet -p build/dev --extra-arg=-Wno-unknown-warning-option
